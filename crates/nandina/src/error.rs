//! What can go wrong, in words for the person who typed the statement.
//!
//! DataFusion's errors reach users nested and prefixed by the layer they came from. Here they become one
//! sentence each; the names that were not found get the nearest known name beside them.

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use datafusion::common::{Column, DataFusionError, SchemaError};
use datafusion::sql::sqlparser::parser::ParserError;

use nandina_storage::StorageError;

use crate::suggestion;

/// An error of this crate. Its text is one line: what happened to which object, and the way out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The text is not SQL.
    #[error("syntax error: {message}")]
    Syntax { message: String },
    /// A statement names a table that does not exist.
    #[error("there is no table '{name}'{hint}")]
    UnknownTable { name: String, hint: String },
    /// A statement names a column that its tables do not have.
    #[error("there is no column '{name}'{hint}")]
    UnknownColumn { name: String, hint: String },
    /// A file that a statement names is missing, unreadable or not what its name says.
    #[error("file '{path}': {message}")]
    File { path: String, message: String },
    /// `SET`, `SHOW` or an option names no setting, or gives it a value it cannot have.
    #[error("{message}")]
    Setting { message: String },
    /// The database directory could not be opened or changed.
    #[error("database '{}': {message}", path.display())]
    Database { path: PathBuf, message: String },
    /// The statement is SQL, but not something that can be done (here).
    #[error("{message}")]
    Unsupported { message: String },
    /// Memory or temporary space ran out.
    #[error("{message}")]
    Resources { message: String },
    /// The statement took longer than the setting `statement_timeout` allows.
    #[error("the statement was cancelled after {0:?}; SET statement_timeout allows more")]
    TimedOut(Duration),
    /// Anything else that happened while planning or running a query.
    #[error("{message}")]
    Query { message: String },
}

const ONE_NAMED: &str = "; there is one named";

/// Results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Error::Unsupported { message: message.into() }
    }

    pub(crate) fn setting(message: impl Into<String>) -> Self {
        Error::Setting { message: message.into() }
    }

    pub(crate) fn file(path: impl Into<String>, message: impl Into<String>) -> Self {
        Error::File { path: path.into(), message: message.into() }
    }

    /// What must not happen has happened. The statement ends; the session and the program go on.
    pub(crate) fn bug(what: &str) -> Self {
        Error::Query {
            message: one_line(format!(
                "the statement ended because of a bug in Nandina ({what}); please report it with the statement"
            )),
        }
    }

    /// For what a panic was raised with.
    pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Self {
        Self::of_panic(panic_message(panic))
    }

    /// For the message of a panic.
    fn of_panic(message: &str) -> Self {
        // Texts of a batch are longer than offsets of 32 bits tell, which Arrow does not return as an error.
        if message.contains("offset overflow") {
            return Error::Resources {
                message:
                    "a column of one batch of rows would hold more than 2 GB; SET batch_size to fewer rows"
                        .to_owned(),
            };
        }
        Self::bug(message)
    }

    /// Whether a column is unknown that there is with other capitals.
    pub(crate) fn is_about_capitals(&self) -> bool {
        matches!(self, Error::UnknownColumn { hint, .. } if hint.starts_with(ONE_NAMED))
    }

    /// Adds the nearest of the tables that exist to an error about one that does not.
    pub(crate) fn with_tables(self, tables: &[String]) -> Self {
        match self {
            Error::UnknownTable { name, .. } => {
                let mut hint = suggestion::phrase(&name, tables.iter().map(String::as_str));
                if hint.is_empty() {
                    hint = match tables {
                        [] => "; the database has no tables yet (to query a file write FROM 'file.parquet')"
                            .to_owned(),
                        some if some.len() <= 12 => format!("; there are: {}", some.join(", ")),
                        _ => "; SHOW TABLES lists those that exist".to_owned(),
                    };
                }
                Error::UnknownTable { name, hint }
            }
            other => other,
        }
    }
}

impl Error {
    /// For a text that is no statement.
    pub(crate) fn from_parser(error: ParserError) -> Self {
        DataFusionError::SQL(Box::new(error), None).into()
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        DataFusionError::External(Box::new(error))
    }
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        if let Some(own) = own_error_within(&error) {
            return own;
        }
        translate(error.find_root())
    }
}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::NoTable { name, .. } => Error::UnknownTable { name, hint: String::new() },
            // Its messages name the object and the way out.
            other => Error::Query { message: one_line(other.to_string()) },
        }
    }
}

impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Self {
        DataFusionError::from(error).into()
    }
}

/// What a panic was raised with, as text.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}

/// An error of ours that travelled through DataFusion.
fn own_error_within(error: &DataFusionError) -> Option<Error> {
    let mut current: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = current {
        if let Some(own) = inner.downcast_ref::<Error>() {
            return Some(own.clone());
        }
        if let Some(DataFusionError::External(boxed)) = inner.downcast_ref::<DataFusionError>()
            && let Some(own) = boxed.downcast_ref::<Error>()
        {
            return Some(own.clone());
        }
        if let Some(shared) = inner.downcast_ref::<Arc<DataFusionError>>() {
            return own_error_within(shared);
        }
        current = inner.source();
    }
    None
}

fn translate(error: &DataFusionError) -> Error {
    match error {
        DataFusionError::SQL(parser, _) => match parser.as_ref() {
            ParserError::ParserError(message) | ParserError::TokenizerError(message) => {
                Error::Syntax { message: one_line(parser_message(message)) }
            }
            ParserError::RecursionLimitExceeded => Error::Syntax {
                message:
                    "the statement is nested too deeply; SET datafusion.sql_parser.recursion_limit to a \
                          higher value"
                        .to_owned(),
            },
        },
        DataFusionError::SchemaError(schema_error, _) => match schema_error.as_ref() {
            SchemaError::FieldNotFound { field, valid_fields } => unknown_column(field, valid_fields),
            other => Error::Query { message: one_line(other.to_string()) },
        },
        DataFusionError::Plan(message) => match unknown_table(message) {
            Some(name) => Error::UnknownTable { name, hint: String::new() },
            None => Error::Query { message: one_line(message.clone()) },
        },
        DataFusionError::NotImplemented(message) => {
            Error::Unsupported { message: one_line(format!("not supported: {message}")) }
        }
        DataFusionError::Configuration(message) => Error::Setting { message: one_line(message.clone()) },
        // The governor's own refusals say what can be done.
        DataFusionError::ResourcesExhausted(message) if message.contains("SET memory_limit") => {
            Error::Resources { message: one_line(message.clone()) }
        }
        DataFusionError::ResourcesExhausted(message) => Error::Resources {
            message: one_line(format!(
                "the query does not fit into its memory limit; raise it with SET memory_limit = '…' or -m \
                 ({message})"
            )),
        },
        DataFusionError::ExecutionJoin(join) if join.is_panic() => Error::of_panic(&join.to_string()),
        other => Error::Query { message: one_line(DataFusionError::message(other).into_owned()) },
    }
}

/// The parser's message in the words of the others.
pub(crate) fn parser_message(message: &str) -> String {
    let message = match message.strip_prefix("Expected: ") {
        Some(rest) => format!("expected {rest}"),
        None => message.to_owned(),
    };
    message.replace(" at Line: ", " at line ").replace(", Column: ", ", column ")
}

/// The name in DataFusion's "table 'catalog.schema.name' not found".
fn unknown_table(message: &str) -> Option<String> {
    let name = message.strip_prefix("table '")?.split_once("' not found")?.0;
    let own_catalog = format!("{}.", crate::catalog::CATALOG);
    let own_schema = format!("{}.", crate::catalog::SCHEMA);
    let name = name.strip_prefix(&own_catalog).unwrap_or(name);
    Some(name.strip_prefix(&own_schema).unwrap_or(name).to_owned())
}

fn unknown_column(field: &Column, valid_fields: &[Column]) -> Error {
    let names: Vec<&str> = valid_fields.iter().map(|column| column.name.as_str()).collect();
    let mut hint = suggestion::phrase(&field.name, names.iter().copied());
    if let Some(twin) =
        names.iter().find(|name| **name != field.name && name.eq_ignore_ascii_case(&field.name))
    {
        hint = format!("{ONE_NAMED} \"{twin}\": put names with capitals in double quotes");
    } else if hint.is_empty() && !names.is_empty() {
        let shown = names.iter().take(12).copied().collect::<Vec<_>>().join(", ");
        let more = names.len().saturating_sub(12);
        hint = if more > 0 {
            format!("; there are: {shown} and {more} more")
        } else {
            format!("; there are: {shown}")
        };
    }
    let name = match &field.relation {
        Some(relation) => format!("{}.{}", relation.table(), field.name),
        None => field.name.clone(),
    };
    Error::UnknownColumn { name, hint }
}

/// A message as one line, without the backtraces and bug-report requests that are for developers.
fn one_line(message: String) -> String {
    let message = message.split("\n\nbacktrace:").next().unwrap_or_default();
    let message = message.split("\nThis issue was likely caused by a bug").next().unwrap_or_default();
    message.split('\n').map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_errors_come_back_unchanged() {
        let inner = Error::file("a.parquet", "no such file");
        let wrapped = DataFusionError::from(inner.clone()).context("while planning");
        let shared = DataFusionError::Shared(Arc::new(wrapped));
        assert_eq!(Error::from(shared).to_string(), inner.to_string());
    }

    #[test]
    fn unknown_tables_get_the_nearest_name() {
        let error = DataFusionError::Plan("table 'nandina.*.linitem' not found".to_owned());
        let error = Error::from(error).with_tables(&["lineitem".to_owned(), "orders".to_owned()]);
        assert_eq!(error.to_string(), "there is no table 'linitem'; did you mean 'lineitem'?");
    }

    #[test]
    fn messages_are_one_line() {
        let error = Error::from(DataFusionError::Plan("broken\n  plan".to_owned()));
        assert_eq!(error.to_string(), "broken plan");
    }
}
