//! Functions in `FROM` that read files: `read_csv(['a.csv', 'b.csv'], header = true)`.
//!
//! Files are looked up asynchronously, by the names of tables; DataFusion's table functions are neither asynchronous, nor
//! do they have named arguments. So a call becomes the name of a table, in one way of writing it, and is read from this
//! name when the table is looked up.

use std::fmt;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
};

use super::option_value::OptionValue;
use crate::error::{Error, Result};
use crate::planning::syntax;

/// What a function does with its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    Csv,
    SniffCsv,
    Parquet,
    Json,
    JsonLines,
    JsonArray,
    ParquetMetadata,
    ParquetSchema,
    ParquetFileMetadata,
    ParquetKeyValues,
    Glob,
    Text,
    Blob,
}

const FUNCTIONS: [(&str, Function); 18] = [
    ("read_csv", Function::Csv),
    ("read_csv_auto", Function::Csv),
    ("sniff_csv", Function::SniffCsv),
    ("read_parquet", Function::Parquet),
    ("parquet_scan", Function::Parquet),
    ("read_json", Function::Json),
    ("read_json_auto", Function::Json),
    ("read_ndjson", Function::JsonLines),
    ("read_ndjson_auto", Function::JsonLines),
    ("read_json_lines", Function::JsonLines),
    ("read_json_array", Function::JsonArray),
    ("parquet_metadata", Function::ParquetMetadata),
    ("parquet_schema", Function::ParquetSchema),
    ("parquet_file_metadata", Function::ParquetFileMetadata),
    ("parquet_kv_metadata", Function::ParquetKeyValues),
    ("glob", Function::Glob),
    ("read_text", Function::Text),
    ("read_blob", Function::Blob),
];

/// A call of one of the functions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    /// As it was called.
    pub name: String,
    pub function: Function,
    pub paths: Vec<String>,
    pub options: Vec<(String, OptionValue)>,
}

impl Call {
    /// The call of a function with these arguments; none if it is another function.
    pub(crate) fn of(name: &str, arguments: &[FunctionArg]) -> Option<Result<Self>> {
        let name = name.to_lowercase();
        let (_, function) = FUNCTIONS.into_iter().find(|(known, _)| *known == name)?;
        Some(Self::with_arguments(name, function, arguments))
    }

    /// The call that the name of a table is; none if it is another table.
    pub(crate) fn parse(text: &str) -> Option<Result<Self>> {
        let (name, _) = text.split_once('(').filter(|_| text.ends_with(')'))?;
        FUNCTIONS.iter().find(|(known, _)| *known == name)?;
        match syntax::expression(text).ok()? {
            Expr::Function(function) => match function.args {
                FunctionArguments::List(list) => Self::of(name, &list.args),
                _ => None,
            },
            _ => None,
        }
    }

    fn with_arguments(name: String, function: Function, arguments: &[FunctionArg]) -> Result<Self> {
        let mut paths = None;
        let mut options = Vec::new();
        for argument in arguments {
            let (option, value) = match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::BinaryOp {
                    left,
                    op: BinaryOperator::Eq,
                    right,
                })) if let Expr::Identifier(option) = left.as_ref() => (Some(option), right.as_ref()),
                FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => (None, value),
                FunctionArg::Named { name: option, arg: FunctionArgExpr::Expr(value), .. } => {
                    (Some(option), value)
                }
                other => return Err(not_constant(&name, &other.to_string())),
            };
            let value = OptionValue::of(value).ok_or_else(|| not_constant(&name, &value.to_string()))?;
            match option {
                Some(Ident { value: option, .. }) => options.push((option.to_lowercase(), value)),
                None if paths.is_none() => {
                    let is_path = |value: &OptionValue| matches!(value, OptionValue::Text(_));
                    let are_paths = match &value {
                        OptionValue::List(values) => !values.is_empty() && values.iter().all(is_path),
                        value => is_path(value),
                    };
                    if !are_paths {
                        return Err(Error::unsupported(format!(
                            "{name}(…) reads the files of a path, or of a list of them, not {value}"
                        )));
                    }
                    paths = Some(value.texts("path")?);
                }
                None => {
                    return Err(Error::unsupported(format!(
                        "{name}(…): only the path has no name; write name = {value}, and several paths as a list \
                         ['a', 'b']"
                    )));
                }
            }
        }
        let paths = paths.ok_or_else(|| Error::unsupported(format!("{name}(…) needs the path of a file")))?;
        Ok(Call { name, function, paths, options })
    }
}

fn not_constant(function: &str, argument: &str) -> Error {
    Error::unsupported(format!(
        "{function}(…): the argument {argument} is not a constant, which paths and options of files are"
    ))
}

impl fmt::Display for Call {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<OptionValue> = self.paths.iter().cloned().map(OptionValue::Text).collect();
        match paths.as_slice() {
            [path] => write!(formatter, "{}({path}", self.name)?,
            _ => write!(formatter, "{}({}", self.name, OptionValue::List(paths))?,
        }
        for (option, value) in &self.options {
            write!(formatter, ", {option} := {value}")?;
        }
        formatter.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_read_from_its_text() {
        for text in [
            "read_csv('it''s.csv', header := true, delim := '|', skip := -1)",
            "read_json(['a', 'b'])",
            "read_csv('x', columns := {'a b': 'INTEGER', 'c': 'DECIMAL(3, 1)'}, nullstr := ['', 'NA'])",
        ] {
            let call = Call::parse(text).unwrap().unwrap();
            assert_eq!(call.to_string(), text);
        }
        let other = Call::parse("read_csv('x', header = true, sep => ';')").unwrap().unwrap();
        assert_eq!(other.to_string(), "read_csv('x', header := true, sep := ';')");
        assert!(Call::parse("read_csv.csv").is_none());
        assert!(Call::parse("orders(1)").is_none());
    }

    #[test]
    fn arguments_are_constants_and_named() {
        let message = |text: &str| Call::parse(text).unwrap().unwrap_err().to_string();
        assert!(message("read_csv('a', 'b')").contains("['a', 'b']"));
        assert!(message("read_csv('a', skip = 1 + 1)").contains("1 + 1 is not a constant"));
        assert!(message("read_csv(header = true)").contains("needs the path"));
        assert!(message("read_csv(1)").contains("not 1"));
    }
}
