//! What kind of statement a text is, as far as its first words tell.

use std::sync::LazyLock;

use regex::Regex;

/// A statement's words in lower case, without comments before them.
fn words(sql: &str) -> Vec<String> {
    let mut rest = sql.trim_start();
    loop {
        let behind = if rest.starts_with("--") {
            rest.split_once('\n').map_or("", |(_, behind)| behind)
        } else if rest.starts_with("/*") {
            rest.split_once("*/").map_or("", |(_, behind)| behind)
        } else {
            break;
        };
        rest = behind.trim_start();
    }
    let letters = |letter: char| !(letter.is_alphanumeric() || letter == '_');
    rest.split(letters).filter(|word| !word.is_empty()).take(4).map(str::to_lowercase).collect()
}

fn is_any(word: Option<&String>, of: &[&str]) -> bool {
    word.is_some_and(|word| of.contains(&word.as_str()))
}

/// Statements that only answer: all others change what later ones find.
const ANSWERING: [&str; 13] = [
    "select",
    "with",
    "values",
    "from",
    "table",
    "explain",
    "describe",
    "desc",
    "show",
    "summarize",
    "pivot",
    "unpivot",
    "analyze",
];

/// Whether later statements may answer differently after this one.
pub fn changes_state(sql: &str) -> bool {
    !is_any(words(sql).first(), &ANSWERING)
}

/// Words in the names of settings which decide what a query answers; no other setting matters to answers.
const TELLING_SETTINGS: [&str; 13] = [
    "order", "null", "zone", "calendar", "division", "case", "schema", "path", "ieee", "scalar", "variable",
    "quote", "limit",
];

/// Whether answers that a file expects later still hold when this statement was refused.
pub fn matters_when_refused(sql: &str) -> bool {
    let words = words(sql);
    let is_first = |of: &[&str]| is_any(words.first(), of);
    if is_first(&["set", "pragma", "reset"]) {
        return words
            .iter()
            .skip(1)
            .any(|word| TELLING_SETTINGS.iter().any(|telling| word.contains(telling)))
            && !words.iter().any(|word| word == "memory_limit" || word == "preserve_insertion_order");
    }
    if is_first(&["checkpoint", "force", "vacuum", "install", "load"]) {
        return false;
    }
    // An index that is not unique changes no answer.
    if is_first(&["create", "drop"]) && is_any(words.get(1), &["index"]) {
        return false;
    }
    changes_state(sql)
}

/// Tables and functions that show DuckDB's inside.
static INTERNALS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let tables = "duckdb_\\w+|pragma_\\w+|sqlite_master|sqlite_schema|information_schema|pg_\\w+";
    let functions = "parquet_\\w+|sniff_csv|test_all_types|storage_info|json_\\w*serialize\\w*|json_execute\\w*|stats|getenv|\
                     current_setting|reservoir_sample|repeat_row|test_vector_types|sql_auto_complete";
    Regex::new(&format!(r"(?i)\b(({tables})\b|({functions})\s*\()")).ok()
});

static FOREIGN_FILES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"\{DATA_DIR\}|['"](\./)?(data|test|third_party|extension|https?:|s3:)/"#).ok()
});

/// Why a statement is not worth running: it asks for what only DuckDB has inside, or for files that are not here.
pub fn reason_to_skip(sql: &str, is_query: bool) -> Option<&'static str> {
    if FOREIGN_FILES.as_ref().is_some_and(|files| files.is_match(sql)) {
        return Some("reads files that are not there");
    }
    let words = words(sql);
    let first = words.first();
    if is_any(first, &["install", "load"]) {
        return Some("needs an extension");
    }
    let shows = ["explain", "describe", "desc", "show", "summarize"];
    if is_any(first, &["pragma"])
        || is_query && is_any(first, &shows)
        || is_query && INTERNALS.as_ref().is_some_and(|internals| internals.is_match(sql))
    {
        return Some("shows or sets what is inside the engine");
    }
    None
}

static LIMIT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(limit|offset|fetch\s+(first|next)|distinct\s+on|tablesample|using\s+sample)\b").ok()
});

static ANY_ROW: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let functions = "first|last|any_value|arg_min|arg_max|argmin|argmax|min_by|max_by|arbitrary|mode|random|uuid|\
                     gen_random_uuid|now|current_timestamp|current_date|today|current_time|row_number|lag|lead|\
                     first_value|last_value|nth_value|ntile|approx_\\w+|nextval|rowid|version|setseed";
    Regex::new(&format!(r"(?i)\b({functions})\b")).ok()
});

static COLLECTING: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(list|array_agg|string_agg|group_concat|listagg|histogram|map_from_entries)\s*\(").ok()
});

/// Whether a query takes some of the rows that a limit or a sample leaves it, which may be any.
pub fn takes_some_rows(sql: &str) -> bool {
    LIMIT.as_ref().is_some_and(|limit| limit.is_match(sql))
}

/// Whether a query has functions that depend on the order or the time of rows, which it may leave open.
pub fn depends_on_order(sql: &str) -> bool {
    ANY_ROW.as_ref().is_some_and(|functions| functions.is_match(sql))
}

/// Whether a query collects values in the order in which they come.
pub fn collects(sql: &str) -> bool {
    COLLECTING.as_ref().is_some_and(|functions| functions.is_match(sql))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        assert!(changes_state("-- a\n/* b */ INSERT INTO t VALUES (1)"));
        assert!(!changes_state("(SELECT 1)"));
        assert!(matters_when_refused("SET default_null_order = 'nulls_first'"));
        assert!(!matters_when_refused("PRAGMA enable_verification"));
        assert!(!matters_when_refused("SET memory_limit='4gb'"));
        assert!(!matters_when_refused("CREATE INDEX i ON t(a)"));
        assert!(matters_when_refused("CREATE UNIQUE INDEX i ON t(a)"));
        assert!(matters_when_refused("ROLLBACK"));
    }

    #[test]
    fn what_is_skipped() {
        assert!(reason_to_skip("SELECT * FROM 'data/a.csv'", true).is_some());
        assert!(reason_to_skip("FROM '{DATA_DIR}/a.csv'", true).is_some());
        assert!(reason_to_skip("EXPLAIN SELECT 1", true).is_some());
        assert!(reason_to_skip("SELECT * FROM duckdb_tables()", true).is_some());
        assert!(reason_to_skip("SELECT stats FROM t", true).is_none());
        assert!(reason_to_skip("SELECT 'data' FROM t", true).is_none());
    }
}
