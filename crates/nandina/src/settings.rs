//! `SET`, `RESET` and `SHOW` for Nandina's own settings, beside DataFusion's (`datafusion.…`).
//!
//! ```sql
//! SET memory_limit = '256MB';   SHOW memory_limit;   RESET memory_limit;   SHOW ALL;   PRAGMA threads = 4;
//! ```
//!
//! `others` are the names that other engines have for them, and their settings which mean nothing here.

mod others;

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use nandina_storage::Durability;

use crate::catalog::names::SchemaName;
use crate::error::{Error, Result};
use crate::files::names;
use crate::options::{IoBackend, Options, Settings};
use crate::{byte_size, process_memory, suggestion};

/// Nandina's settings: name and what it does.
pub const NAMES: [(&str, &str); 19] = [
    ("memory_limit", "bytes that the session may hold, e.g. '256MB' or '60%' of what the process may use"),
    ("temp_directory", "folder for what does not fit into memory"),
    ("temp_quota", "most bytes of temporary files at once, or 'none'"),
    (
        "temp_preallocation",
        "where temporary files get their space: none (as they are written), fallocate or recycle",
    ),
    (
        "temp_discard",
        "when temporary files give space back: none (at the end of the session), immediate or deferred",
    ),
    (
        "temp_compression",
        "whether what does not fit into memory is compressed: auto (where the disk is what queries wait for), on or off",
    ),
    (
        "sort_algorithm",
        "auto (what costs less), merge (of whole rows) or ssd (of keys; the other columns are fetched in order, those of \
         rows that have no ids after they have been written once)",
    ),
    (
        "join_algorithm",
        "auto (what costs less), hybrid (hash join of whole rows), rare (of keys; the other columns are fetched for the result), or, to compare with: grace_pax, grace_rows, digest",
    ),
    ("threads", "workers per operator"),
    ("batch_size", "rows per batch, or 'auto'"),
    ("io_backend", "how requests reach the device: auto, io_uring or threads"),
    (
        "statement_timeout",
        "how long a statement may take, e.g. '30s', '5min' or 1500 (milliseconds), or 'none'",
    ),
    (
        "durability",
        "what a crash may lose of rows that were changed and committed: full (nothing) or relaxed (the last transactions)",
    ),
    ("table_cache", "whether what was read of tables stays in memory that no query needs: on or off"),
    (
        "background_vacuum",
        "whether changed rows, and small segments, go into larger segments by themselves, in databases that are attached: on or off",
    ),
    ("auto_calibrate", "whether unknown devices are measured before the first large statement: on or off"),
    (
        NULL_ORDER,
        "where nulls are in an order that does not say: nulls_first, nulls_last, or as in postgres or sqlite",
    ),
    (SCHEMA, "where new tables go, and names without a schema are looked for"),
    (SEARCH_PATH, "the same, of several schemas with commas between"),
];

/// Those that are not fields of [`Settings`].
const NULL_ORDER: &str = "default_null_order";
const SCHEMA: &str = "schema";
const SEARCH_PATH: &str = "search_path";

/// A statement about a setting.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Statement {
    /// `SET name = value`, `SET name TO value`
    Set { name: String, value: String },
    /// `RESET name`
    Reset { name: String },
    /// `SHOW name`
    Show { name: String },
    /// `SHOW ALL`
    ShowAll,
    /// One that changes nothing here.
    Accepted,
}

/// Recognises a statement about one of our settings, or about no setting at all but meant as one.
/// DataFusion's own settings and everything else are `None`.
///
/// These are read here and not by the SQL parser so that values need no quotes: `SET memory_limit = 256MB`.
pub(crate) fn parse(text: &str) -> Result<Option<Statement>> {
    let mut words = text.split_whitespace();
    let verb = words.next().unwrap_or_default().to_ascii_uppercase();
    let rest = text.get(verb.len()..).unwrap_or_default().trim();
    match verb.as_str() {
        "PRAGMA" if others::is_switch(&rest.to_ascii_lowercase()) => Ok(Some(Statement::Accepted)),
        "PRAGMA" if !rest.contains('=') => Ok(None),
        "SET" | "PRAGMA" => {
            let rest = without_scope(rest);
            if let Some(zone) = time_zone(rest) {
                return is_accepted("time zone", Some(unquoted(zone))).map(|_| Some(Statement::Accepted));
            }
            let end = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
            let (name, value) = rest.split_at(end);
            let value = value.trim();
            let is_to = value.get(..2).is_some_and(|word| word.eq_ignore_ascii_case("to"));
            let value = value.strip_prefix('=').or(if is_to { value.get(2..) } else { None });
            if is_accepted(name, Some(value.map(unquoted).unwrap_or_default()))? {
                return Ok(Some(Statement::Accepted));
            }
            let Some(name) = own_name(name)? else { return Ok(None) };
            match value.map(unquoted).filter(|value| !value.is_empty()) {
                Some(value) => Ok(Some(Statement::Set { name, value })),
                None => Err(Error::setting(format!("write SET {name} = 'value'"))),
            }
        }
        "RESET" => {
            let rest = without_scope(rest);
            if is_accepted(rest, None)? {
                return Ok(Some(Statement::Accepted));
            }
            Ok(own_name(rest)?.map(|name| Statement::Reset { name }))
        }
        "SHOW" if rest.eq_ignore_ascii_case("all") => Ok(Some(Statement::ShowAll)),
        "SHOW" if rest.split_whitespace().count() == 1 => {
            let other = ["tables", "columns", "functions", "databases", "schemas"];
            if other.iter().any(|word| rest.eq_ignore_ascii_case(word)) {
                return Ok(None);
            }
            Ok(own_name(rest)?.map(|name| Statement::Show { name }))
        }
        _ => Ok(None),
    }
}

/// The zone of `SET TIME ZONE zone`.
fn time_zone(rest: &str) -> Option<&str> {
    const WORDS: [&str; 2] = ["time", "zone"];
    WORDS.iter().try_fold(rest, |rest, word| {
        let (first, behind) = rest.trim_start().split_once(char::is_whitespace)?;
        first.eq_ignore_ascii_case(word).then_some(behind)
    })
}

/// `SET GLOBAL x` and the like are of the session, as all settings are.
fn without_scope(rest: &str) -> &str {
    let scope = rest.split_whitespace().next().unwrap_or_default();
    let is_scope = ["global", "session", "local"].iter().any(|word| scope.eq_ignore_ascii_case(word));
    match is_scope && !rest.get(scope.len()..).unwrap_or_default().trim_start().starts_with('=') {
        true => rest.get(scope.len()..).unwrap_or_default().trim_start(),
        false => rest,
    }
}

/// Whether a setting is another engine's and changes nothing here.
fn is_accepted(name: &str, value: Option<String>) -> Result<bool> {
    match others::accepted(&name.trim_matches('"').to_ascii_lowercase(), value.as_deref()) {
        Some(accepted) => accepted.map(|()| true).map_err(Error::setting),
        None => Ok(false),
    }
}

/// The setting of ours that `name` names; `None` for DataFusion's; an error with the nearest one otherwise.
fn own_name(name: &str) -> Result<Option<String>> {
    let lower = name.trim_matches('"').to_ascii_lowercase();
    let alias = others::ALIASES.iter().find(|(other, _)| *other == lower).map(|(_, own)| *own);
    let alias = alias.unwrap_or_else(|| lower.strip_prefix("nandina.").unwrap_or(&lower));
    if NAMES.iter().any(|(known, _)| *known == alias) {
        return Ok(Some(alias.to_owned()));
    }
    let is_for_datafusion = lower.contains('.') || lower == "timezone" || lower == "time" || lower.is_empty();
    if is_for_datafusion {
        return Ok(None);
    }
    let mut hint = suggestion::phrase(&lower, NAMES.iter().map(|(known, _)| *known));
    if hint.is_empty() {
        let names: Vec<&str> = NAMES.iter().map(|(known, _)| *known).collect();
        hint = format!("; there are: {} (SHOW ALL lists DataFusion's too)", names.join(", "));
    }
    Err(Error::setting(format!("there is no setting '{lower}'{hint}")))
}

fn unquoted(value: &str) -> String {
    let value = value.trim();
    let inner = value.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    let inner = inner.or_else(|| value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')));
    inner.map_or_else(|| value.to_owned(), |inner| inner.replace("''", "'"))
}

/// What is set beside [`Settings`].
pub(crate) enum Outside {
    /// DataFusion's name of an order of nulls.
    NullOrder(&'static str),
    /// Schemas, by the parts of their names.
    Path(Vec<Vec<String>>),
}

/// The meaning of a setting that is not a field of [`Settings`]; `None` for the others.
pub(crate) fn outside(name: &str, value: &str) -> Result<Option<Outside>> {
    match name {
        NULL_ORDER => match others::null_order(value) {
            Some(order) => Ok(Some(Outside::NullOrder(order))),
            None => Err(Error::setting(format!(
                "{name} is nulls_first, nulls_last, postgres or sqlite, not '{value}'"
            ))),
        },
        SCHEMA | SEARCH_PATH => {
            let schemas = value.split(',').map(str::trim).filter(|schema| !schema.is_empty());
            let parts = |schema: &str| {
                schema.split('.').map(|part| part.trim_matches(['"', '\'']).to_lowercase()).collect()
            };
            Ok(Some(Outside::Path(schemas.map(parts).collect())))
        }
        _ => Ok(None),
    }
}

/// The order of nulls of a session that says nothing, as DataFusion names it.
const USUAL_NULL_ORDER: &str = "nulls_max";

/// What a setting outside of [`Settings`] is at the start; `None` for the others.
pub(crate) fn outside_default(name: &str, main: &str) -> Option<Outside> {
    match name {
        NULL_ORDER => Some(Outside::NullOrder(USUAL_NULL_ORDER)),
        SCHEMA | SEARCH_PATH => {
            Some(Outside::Path(vec![vec![main.to_owned(), nandina_storage::MAIN.to_owned()]]))
        }
        _ => None,
    }
}

/// How a setting outside of [`Settings`] is shown; `None` for the others.
pub(crate) fn outside_shown(name: &str, null_order: &str, path: &[SchemaName]) -> Option<String> {
    match name {
        NULL_ORDER => Some(others::shown_null_order(null_order).to_owned()),
        SCHEMA => path.first().map(|first| first.schema.clone()),
        SEARCH_PATH => {
            let names = path.iter().map(|name| format!("{}.{}", name.database, name.schema));
            Some(names.collect::<Vec<_>>().join(","))
        }
        _ => None,
    }
}

impl Settings {
    /// The settings with one of them changed.
    pub(crate) fn with(&self, name: &str, value: &str) -> Result<Settings> {
        let mut changed = self.clone();
        let is_none = ["none", "unlimited", "off"].iter().any(|word| value.eq_ignore_ascii_case(word));
        match name {
            "memory_limit" if is_none => {
                return Err(Error::setting("memory_limit cannot be switched off; '90%' is possible"));
            }
            "memory_limit" => {
                changed.memory_limit_bytes = amount(name, value, process_memory::usable_bytes())?;
            }
            "temp_directory" => changed.temp_directory = directory(value)?,
            "temp_quota" if is_none => changed.temp_quota_bytes = None,
            "temp_quota" => changed.temp_quota_bytes = Some(amount(name, value, 0)?),
            "temp_preallocation" => changed.temp_preallocation = policy(name, value)?,
            "temp_discard" => changed.temp_discard = policy(name, value)?,
            "temp_compression" => changed.temp_compression = policy(name, value)?,
            "sort_algorithm" => changed.sort_algorithm = policy(name, value)?,
            "join_algorithm" => changed.join_algorithm = policy(name, value)?,
            "threads" => changed.threads = number(name, value)?,
            "batch_size" if value.eq_ignore_ascii_case("auto") => changed.batch_size = None,
            "batch_size" => changed.batch_size = Some(number(name, value)?),
            "io_backend" => changed.io_backend = value.parse::<IoBackend>()?,
            "statement_timeout" if is_none => changed.statement_timeout = None,
            "statement_timeout" => changed.statement_timeout = timeout(name, value)?,
            "durability" => {
                changed.durability = match value.trim_matches('\'').to_ascii_lowercase().as_str() {
                    "full" | "on" => Durability::Full,
                    "relaxed" | "off" => Durability::Relaxed,
                    _ => return Err(Error::setting(format!("{name} is full or relaxed, not {value}"))),
                }
            }
            "table_cache" => changed.table_cache = switch(name, value)?,
            "background_vacuum" => changed.background_vacuum = switch(name, value)?,
            "auto_calibrate" => changed.auto_calibrate = switch(name, value)?,
            _ => return Err(Error::setting(format!("there is no setting '{name}'"))),
        }
        changed.check()?;
        Ok(changed)
    }

    /// The settings with one of them as it was when the session started.
    pub(crate) fn with_default(&self, name: &str, options: &Options, start: &Settings) -> Result<Settings> {
        let mut changed = self.clone();
        match name {
            "memory_limit" => changed.memory_limit_bytes = start.memory_limit_bytes,
            "temp_directory" => changed.temp_directory.clone_from(&start.temp_directory),
            "temp_quota" => changed.temp_quota_bytes = start.temp_quota_bytes,
            "temp_preallocation" => changed.temp_preallocation = start.temp_preallocation,
            "temp_discard" => changed.temp_discard = start.temp_discard,
            "temp_compression" => changed.temp_compression = start.temp_compression,
            "sort_algorithm" => changed.sort_algorithm = start.sort_algorithm,
            "join_algorithm" => changed.join_algorithm = start.join_algorithm,
            "threads" => changed.threads = start.threads,
            "batch_size" => changed.batch_size = options.batch_size,
            "io_backend" => changed.io_backend = start.io_backend,
            "statement_timeout" => changed.statement_timeout = start.statement_timeout,
            "durability" => changed.durability = start.durability,
            "table_cache" => changed.table_cache = start.table_cache,
            "background_vacuum" => changed.background_vacuum = start.background_vacuum,
            "auto_calibrate" => changed.auto_calibrate = start.auto_calibrate,
            _ => return Err(Error::setting(format!("there is no setting '{name}'"))),
        }
        Ok(changed)
    }

    /// The value of a setting as `SHOW` prints it.
    pub(crate) fn shown(&self, name: &str) -> String {
        match name {
            "memory_limit" => byte_size::format(self.memory_limit_bytes),
            "temp_directory" => self.temp_directory.display().to_string(),
            "temp_quota" => self.temp_quota_bytes.map_or_else(|| "none".to_owned(), byte_size::format),
            "temp_preallocation" => self.temp_preallocation.to_string(),
            "temp_discard" => self.temp_discard.to_string(),
            "temp_compression" => self.temp_compression.to_string(),
            "sort_algorithm" => self.sort_algorithm.to_string(),
            "join_algorithm" => self.join_algorithm.to_string(),
            "threads" => self.threads.to_string(),
            "batch_size" => match self.batch_size {
                Some(rows) => rows.to_string(),
                None => format!("auto ({})", self.batch_rows()),
            },
            "io_backend" => self.io_backend.name().to_owned(),
            "statement_timeout" => {
                self.statement_timeout.map_or_else(|| "none".to_owned(), |timeout| format!("{timeout:?}"))
            }
            "durability" => match self.durability {
                Durability::Full => "full",
                Durability::Relaxed => "relaxed",
            }
            .to_owned(),
            "table_cache" => if self.table_cache { "on" } else { "off" }.to_owned(),
            "background_vacuum" => if self.background_vacuum { "on" } else { "off" }.to_owned(),
            "auto_calibrate" => if self.auto_calibrate { "on" } else { "off" }.to_owned(),
            _ => String::new(),
        }
    }
}

fn amount(name: &str, value: &str, whole_bytes: u64) -> Result<u64> {
    byte_size::parse(value, whole_bytes).map_err(|message| Error::setting(format!("{name}: {message}")))
}

fn switch(name: &str, value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Ok(true),
        "off" | "false" | "no" | "0" => Ok(false),
        _ => Err(Error::setting(format!("{name} is on or off, not '{value}'"))),
    }
}

/// A time such as `1500` (milliseconds, as in Postgres), `'2.5s'` or `'10 min'`; zero is none.
fn timeout(name: &str, value: &str) -> Result<Option<Duration>> {
    let unknown = || {
        Error::setting(format!(
            "{name} is a number of milliseconds, or a time in us, ms, s, min, h or d as '30s', not '{value}'"
        ))
    };
    let digits = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let unit_seconds = match unit.trim().to_ascii_lowercase().as_str() {
        "us" => 1e-6,
        "" | "ms" => 1e-3,
        "s" | "sec" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(unknown()),
    };
    let number: f64 = number.parse().map_err(|_| unknown())?;
    let timeout = Duration::try_from_secs_f64(number * unit_seconds).map_err(|_| unknown())?;
    Ok(Some(timeout).filter(|timeout| !timeout.is_zero()))
}

fn number(name: &str, value: &str) -> Result<usize> {
    value.parse().map_err(|_| Error::setting(format!("{name} is a whole number, not '{value}'")))
}

fn policy<T: FromStr<Err: Display>>(name: &str, value: &str) -> Result<T> {
    value.parse::<T>().map_err(|error| Error::setting(format!("{name}: {error}")))
}

fn directory(value: &str) -> Result<PathBuf> {
    let path = names::absolute_path(value)?;
    if path.exists() && !path.is_dir() {
        return Err(Error::setting(format!("temp_directory: '{}' is a file, not a folder", path.display())));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let options = Options { memory_limit: Some(1 << 30), threads: Some(2), ..Options::default() };
        Settings::resolve(&options, None).unwrap()
    }

    #[test]
    fn values_need_no_quotes() {
        let expected = Statement::Set { name: "memory_limit".to_owned(), value: "256MB".to_owned() };
        for text in ["SET memory_limit = '256MB'", "set Memory_Limit=256MB", "SET memory_limit TO '256MB'"] {
            assert_eq!(parse(text).unwrap().as_ref(), Some(&expected), "{text}");
        }
        assert!(parse("SET memory_limit").unwrap_err().to_string().contains("SET memory_limit = "));
    }

    #[test]
    fn other_statements_are_left_alone() {
        for text in ["SHOW TABLES", "SET datafusion.explain.format = tree", "SELECT 1", "SHOW COLUMNS FROM t"]
        {
            assert_eq!(parse(text).unwrap(), None, "{text}");
        }
        assert_eq!(parse("SHOW ALL").unwrap(), Some(Statement::ShowAll));
    }

    #[test]
    fn datafusions_names_for_our_settings_are_ours() {
        let parsed = parse("SET datafusion.runtime.memory_limit = '1G'").unwrap();
        assert_eq!(parsed, Some(Statement::Set { name: "memory_limit".to_owned(), value: "1G".to_owned() }));
    }

    #[test]
    fn unknown_settings_get_the_nearest() {
        let message = parse("SET memory_limt = '1GB'").unwrap_err().to_string();
        assert_eq!(message, "there is no setting 'memory_limt'; did you mean 'memory_limit'?");
        assert!(parse("SHOW zebra").unwrap_err().to_string().contains("temp_quota"));
    }

    #[test]
    fn changes_are_checked() {
        let settings = settings();
        assert_eq!(settings.with("memory_limit", "64MB").unwrap().memory_limit_bytes, 64 << 20);
        assert_eq!(settings.with("temp_quota", "none").unwrap().temp_quota_bytes, None);
        assert_eq!(settings.with("temp_quota", "1GB").unwrap().shown("temp_quota"), "1 GiB");
        assert!(settings.with("memory_limit", "1KB").is_err());
        assert!(settings.with("threads", "many").unwrap_err().to_string().contains("whole number"));
        assert!(settings.with("temp_quota", "50%").is_err());
    }

    #[test]
    fn temporary_files_have_policies() {
        let settings = settings();
        let shown =
            |settings: &Settings| ["temp_preallocation", "temp_discard"].map(|name| settings.shown(name));
        assert_eq!(shown(&settings), ["recycle", "auto"]);
        let changed = settings.with("temp_preallocation", "fallocate").unwrap();
        let changed = changed.with("temp_discard", "Immediate").unwrap();
        assert_eq!(shown(&changed), ["fallocate", "immediate"]);
        let message = settings.with("temp_discard", "later").unwrap_err().to_string();
        assert_eq!(message, "temp_discard: 'later' is not one of auto, none, immediate, deferred");
        let options = Options::default();
        let reset = changed.with_default("temp_discard", &options, &settings).unwrap();
        assert_eq!(shown(&reset), ["fallocate", "auto"]);
    }

    #[test]
    fn timeouts_have_units() {
        let shown =
            |value: &str| settings().with("statement_timeout", value).unwrap().shown("statement_timeout");
        let values = ["1500", "1500ms", "2.5 s", "10min", "1h", "0", "none"];
        assert_eq!(values.map(shown), ["1.5s", "1.5s", "2.5s", "600s", "3600s", "none", "none"]);
        for wrong in ["soon", "-1", "5 parsecs", "1e400d"] {
            let message = settings().with("statement_timeout", wrong).unwrap_err().to_string();
            assert!(message.contains(&format!("not '{wrong}'")), "{message}");
        }
    }

    #[test]
    fn spilled_pages_are_compressed_on_request() {
        let settings = settings();
        assert_eq!(settings.shown("temp_compression"), "auto");
        let changed = settings.with("temp_compression", "OFF").unwrap();
        assert_eq!(changed.shown("temp_compression"), "off");
        let message = settings.with("temp_compression", "lz4").unwrap_err().to_string();
        assert_eq!(message, "temp_compression: 'lz4' is not one of auto, on, off");
        let reset = changed.with_default("temp_compression", &Options::default(), &settings).unwrap();
        assert_eq!(reset.shown("temp_compression"), "auto");
    }
}
