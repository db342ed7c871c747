//! What the shell offers while one types: keywords, tables, columns, settings, files within quotes, earlier
//! lines, and whether a statement is complete.

use std::borrow::Cow;

use nandina::{Session, statement_text};
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::{Hinter, HistoryHinter};
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Helper};

use super::commands::COMMANDS;

const KEYWORDS: [&str; 78] = [
    "ALL",
    "ALTER",
    "ANALYZE",
    "AND",
    "ANTI",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "COPY",
    "COUNT(",
    "CREATE",
    "CROSS",
    "CURRENT_DATE",
    "DATE",
    "DECIMAL",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "DROP",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN",
    "EXTRACT(",
    "FALSE",
    "FILTER",
    "FROM",
    "FULL",
    "GROUP",
    "HAVING",
    "IN",
    "INNER",
    "INSERT",
    "INTERSECT",
    "INTERVAL",
    "INTO",
    "IS",
    "JOIN",
    "LEFT",
    "LIKE",
    "LIMIT",
    "MAX(",
    "MIN(",
    "NOT",
    "NULL",
    "NULLS",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "OVER",
    "PARTITION",
    "RESET",
    "RIGHT",
    "ROWS",
    "SELECT",
    "SEMI",
    "SET",
    "SHOW",
    "SUBSTRING(",
    "SUM(",
    "TABLE",
    "TABLES",
    "THEN",
    "TO",
    "TRUE",
    "UNION",
    "USING",
    "VALUES",
    "VIEW",
    "WHEN",
    "WHERE",
    "WITH",
];

/// Helps the line editor.
#[derive(Default)]
pub struct ShellHelper {
    names: Vec<String>,
    files: FilenameCompleter,
    history: HistoryHinter,
}

impl ShellHelper {
    /// Learns the tables and columns that exist now.
    pub async fn learn(&mut self, session: &Session) {
        let mut names = session.table_names();
        for table in names.clone() {
            // A table that cannot be opened has no columns to offer.
            if let Ok(provider) = session.table(&table).await {
                names.extend(provider.schema().fields().iter().map(|field| field.name().clone()));
            }
        }
        names.extend(nandina::SETTING_NAMES.iter().map(|(name, _)| (*name).to_owned()));
        names.sort();
        names.dedup();
        self.names = names;
    }

    /// Keywords and names that continue `word`. Keywords come in the case in which they are being typed.
    fn continuations(&self, word: &str) -> Vec<String> {
        let lower = word.to_lowercase();
        let is_upper = word.chars().any(char::is_uppercase);
        let names = self.names.iter().filter(|name| name.to_lowercase().starts_with(&lower)).cloned();
        let keywords = KEYWORDS.iter().filter(|keyword| keyword.to_lowercase().starts_with(&lower));
        let keywords =
            keywords.map(|keyword| if is_upper { (*keyword).to_owned() } else { keyword.to_lowercase() });
        names.chain(keywords).collect()
    }
}

/// Whether the text ends inside a quoted string that is still open.
fn is_in_quotes(text: &str) -> bool {
    text.matches('\'').count() % 2 == 1
}

impl Completer for ShellHelper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = line.get(..position).unwrap_or_default();
        if is_in_quotes(before) || before.starts_with("\\i ") {
            return self.files.complete(line, position, context);
        }
        if before.starts_with('\\') && !before.contains(' ') {
            let commands = COMMANDS.iter().filter(|(name, _)| name.starts_with(before));
            let pairs = commands
                .map(|(name, _)| Pair { display: (*name).to_owned(), replacement: (*name).to_owned() });
            return Ok((0, pairs.collect()));
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let start = before.rfind(|c: char| !is_word(c)).map_or(0, |at| {
            at + before.get(at..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8)
        });
        let word = before.get(start..).unwrap_or_default();
        if word.is_empty() {
            return Ok((position, Vec::new()));
        }
        let pairs = self
            .continuations(word)
            .into_iter()
            .map(|text| Pair { display: text.clone(), replacement: text });
        Ok((start, pairs.collect()))
    }
}

impl Hinter for ShellHelper {
    type Hint = String;

    fn hint(&self, line: &str, position: usize, context: &Context<'_>) -> Option<String> {
        if line.trim().is_empty() { None } else { self.history.hint(line, position, context) }
    }
}

impl Highlighter for ShellHelper {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(format!("\x1b[2m{hint}\x1b[0m"))
    }
}

impl Validator for ShellHelper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if is_complete(context.input()) {
            ValidationResult::Valid(None)
        } else {
            ValidationResult::Incomplete
        })
    }
}

impl Helper for ShellHelper {}

/// Whether Enter runs the text or starts another line of it.
fn is_complete(text: &str) -> bool {
    let trimmed = text.trim();
    trimmed.is_empty()
        || trimmed.starts_with('\\')
        || ["exit", "quit"].iter().any(|word| trimmed.eq_ignore_ascii_case(word))
        || statement_text::split(text).rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_complete_with_their_semicolon() {
        for complete in ["SELECT 1;", "\\d", "", "quit", "-- only a comment"] {
            assert!(is_complete(complete), "{complete}");
        }
        for open in ["SELECT 1", "SELECT ';", "SELECT 1; SELECT"] {
            assert!(!is_complete(open), "{open}");
        }
    }

    #[test]
    fn keywords_follow_the_case_of_typing() {
        let helper = ShellHelper { names: vec!["selection".to_owned()], ..ShellHelper::default() };
        assert_eq!(helper.continuations("sele"), ["selection", "select"]);
        assert_eq!(helper.continuations("SELE"), ["selection", "SELECT"]);
    }

    #[test]
    fn files_are_completed_within_quotes() {
        assert!(is_in_quotes("SELECT * FROM 'da"));
        assert!(!is_in_quotes("SELECT * FROM 'data.csv' WHERE "));
    }
}
