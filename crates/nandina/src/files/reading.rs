//! Which files are to be read, and how: what `FROM 'file'`, `read_csv(…)` and `COPY … FROM` say of it.

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::execution::SessionState;
use datafusion::logical_expr::ExprSchemable as _;

use super::call::{Call, Function};
use super::csv::{CsvDialect, Encoding, NeverNull};
use super::names::{Format, compression_named};
use super::option_value::OptionValue;
use crate::error::{Error, Result};
use crate::planning::syntax;
use crate::suggestion;

/// Files, and how they are read. What is `None` is found out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Paths, folders and patterns.
    pub names: Vec<String>,
    pub format: Option<Format>,
    pub compression: Option<FileCompressionType>,
    pub csv: CsvDialect,
    /// Whether JSON is a value per line, rather than an array.
    pub json_lines: Option<bool>,
    /// All columns of CSV or JSON files, with the names of their types.
    pub columns: Option<Vec<(String, String)>>,
    /// Records that types are inferred from.
    pub sample_records: Option<usize>,
    /// Whether files may have columns that others have not.
    pub union_by_name: bool,
    /// The name of a column for the files' paths.
    pub filename: Option<String>,
    /// Whether there may be no file.
    pub allows_none: bool,
    /// Whether folders `name=value` are columns.
    pub hive_partitioning: Option<bool>,
    /// Whether they are texts.
    pub hive_texts: bool,
}

const ANY_FORMAT: [&str; 5] =
    ["allow_empty", "filename", "hive_partitioning", "hive_types_autocast", "union_by_name"];

const CSV: [&str; 36] = [
    "all_varchar",
    "auto_detect",
    "auto_type_candidates",
    "buffer_size",
    "columns",
    "comment",
    "compression",
    "dateformat",
    "delim",
    "delimiter",
    "dtypes",
    "encoding",
    "escape",
    "files_to_sniff",
    "force_not_null",
    "header",
    "ignore_errors",
    "max_line_size",
    "maximum_line_size",
    "names",
    "new_line",
    "normalize_names",
    "null",
    "null_padding",
    "nullstr",
    "parallel",
    "quote",
    "sample_size",
    "sep",
    "skip",
    "store_rejects",
    "strict_mode",
    "timestampformat",
    "types",
    "column_names",
    "column_types",
];

const JSON: [&str; 8] = [
    "auto_detect",
    "columns",
    "compression",
    "format",
    "ignore_errors",
    "maximum_object_size",
    "records",
    "sample_size",
];

const PARQUET: [&str; 5] =
    ["binary_as_string", "can_have_nan", "compression", "debug_use_openssl", "prefetch_strategy"];

impl Reading {
    /// Files by their names alone.
    pub(crate) fn of_names(names: &[&str]) -> Self {
        Reading { names: names.iter().map(|&name| name.to_owned()).collect(), ..Reading::default() }
    }

    /// What a function reads.
    pub(crate) fn of_call(call: &Call) -> Result<Self> {
        let format = match call.function {
            Function::Csv | Function::SniffCsv => Format::Csv,
            Function::Json | Function::JsonLines | Function::JsonArray => Format::Json,
            // Of files as they are, there is nothing to say.
            _ => Format::Parquet,
        };
        let json_lines = match call.function {
            Function::JsonLines => Some(true),
            Function::JsonArray => Some(false),
            _ => None,
        };
        let names = call.paths.clone();
        let mut reading = Reading { names, format: Some(format), json_lines, ..Reading::default() };
        let about = format!("{}(…)", call.name);
        for (option, value) in &call.options {
            reading.set(format, option, value, &about)?;
        }
        reading.check(&about)?;
        Ok(reading)
    }

    /// Refuses what does not go together.
    pub(crate) fn check(&self, about: &str) -> Result<()> {
        if self.csv.is_given && self.columns.is_none() {
            return Err(Error::setting(format!(
                "{about} without auto_detect needs columns = {{'name': 'TYPE', …}}"
            )));
        }
        Ok(())
    }

    /// Sets an option of files of a format, which the statement part `about` has.
    pub(crate) fn set(
        &mut self,
        format: Format,
        option: &str,
        value: &OptionValue,
        about: &str,
    ) -> Result<()> {
        let own: &[&str] = match format {
            Format::Csv => &CSV,
            Format::Json => &JSON,
            Format::Parquet => &PARQUET,
            Format::Arrow => &[],
        };
        let known = || own.iter().chain(&ANY_FORMAT).copied();
        // `date_format` is `dateformat`.
        let plain = |name: &str| name.to_lowercase().replace('_', "");
        let Some(name) = known().find(|name| plain(name) == plain(option)) else {
            return Err(unknown_option(about, option, known()));
        };
        let csv = &mut self.csv;
        match name {
            "filename" => {
                self.filename = match value {
                    OptionValue::Text(column) if !matches!(column.as_str(), "true" | "false") => {
                        Some(column.clone())
                    }
                    value => value.flag(name)?.then(|| name.to_owned()),
                };
            }
            "hive_partitioning" => self.hive_partitioning = Some(value.flag(name)?),
            "hive_types_autocast" => self.hive_texts = !value.flag(name)?,
            "union_by_name" => self.union_by_name = value.flag(name)?,
            "allow_empty" => self.allows_none = value.flag(name)?,
            // A column of bytes is read as one.
            "binary_as_string" if value.flag(name)? => {
                return Err(Error::unsupported(
                    "bytes are read as BLOB; cast the column to VARCHAR instead of binary_as_string",
                ));
            }
            "binary_as_string" => {}
            // How the file is read, which does not change what is.
            "can_have_nan" | "debug_use_openssl" => drop(value.flag(name)?),
            "prefetch_strategy" => drop(value.text(name)?),
            // Files are compressed inside, as they say themselves.
            "compression" if format == Format::Parquet => drop(value.text(name)?),
            "compression" => {
                let compression = value.text(name)?;
                if !compression.starts_with("auto") {
                    let known = compression_named(&compression);
                    self.compression =
                        Some(known.ok_or_else(|| value.refused(name, "none, gzip, zstd, bz2, xz or auto"))?);
                }
            }
            "columns" => self.columns = Some(value.named_texts(name)?),
            "sample_size" => self.sample_records = Some(value.count(name)?.unwrap_or(usize::MAX)),
            "format" => {
                self.json_lines = match value.text(name)?.as_str() {
                    "auto" => None,
                    "newline_delimited" | "nd" => Some(true),
                    "array" => Some(false),
                    _ => return Err(value.refused(name, "auto, newline_delimited or array")),
                };
            }
            "auto_detect" if format == Format::Json => {
                value.flag(name)?;
            }
            "ignore_errors" if format == Format::Json => {
                if value.flag(name)? {
                    return Err(Error::unsupported(
                        "JSON that cannot be read is an error; ignore_errors is of CSV",
                    ));
                }
            }
            "maximum_object_size" => drop(value.count(name)?),
            "records" => {
                let is_usual = matches!(value, OptionValue::Flag(true))
                    || value.text(name).is_ok_and(|text| matches!(text.as_str(), "auto" | "true"));
                if !is_usual {
                    return Err(value.refused(name, "auto or true: an object is a record"));
                }
            }
            // How much is read at once is decided by the memory limit, and all files are looked at.
            "buffer_size" => drop(crate::files::output::bytes(name, value)?),
            "files_to_sniff" => drop(value.count(name)?),
            "max_line_size" | "maximum_line_size" => {
                csv.most_record_bytes = Some(crate::files::output::bytes(name, value)?);
            }
            "auto_type_candidates" => csv.candidates = value.texts(name)?,
            "force_not_null" => {
                csv.never_null = match value {
                    OptionValue::All | OptionValue::Flag(true) => NeverNull::All,
                    OptionValue::Flag(false) => NeverNull::None,
                    value => NeverNull::Of(value.texts(name)?),
                };
            }
            "normalize_names" => csv.normalizes_names = value.flag(name)?,
            "store_rejects" => {
                if value.flag(name)? {
                    return Err(Error::unsupported(
                        "records that cannot be read are not kept in a table; ignore_errors = true leaves them out",
                    ));
                }
            }
            // What is not in the way of CSV is read as far as it can be, or refused with its line.
            "strict_mode" => drop(value.flag(name)?),
            "all_varchar" => csv.are_texts = value.flag(name)?,
            "auto_detect" => {
                csv.is_given = !value.flag(name)?;
                if csv.is_given {
                    csv.header.get_or_insert(false);
                    csv.delimiter.get_or_insert(b',');
                }
            }
            "comment" => csv.comment = value.byte(name)?,
            "dateformat" => csv.date_format = Some(value.text(name)?).filter(|format| format != "auto"),
            "timestampformat" => {
                csv.timestamp_format = Some(value.text(name)?).filter(|format| format != "auto");
            }
            "delim" | "delimiter" | "sep" => {
                let delimiter = value.byte(name)?;
                csv.delimiter =
                    Some(delimiter.ok_or_else(|| value.refused(name, "a single ASCII character"))?);
            }
            "types" | "dtypes" | "column_types" => match value {
                OptionValue::Map(_) => csv.types = value.named_texts(name)?,
                value => csv.first_types = value.texts(name)?,
            },
            "encoding" => {
                let encoding = Encoding::named(&value.text(name)?);
                csv.encoding =
                    encoding.ok_or_else(|| value.refused(name, "'utf-8', 'latin-1' or 'utf-16'"))?;
            }
            // A byte that text has not: nothing is quoted.
            "quote" => csv.quote = Some(value.byte(name)?.unwrap_or(0)),
            "escape" => csv.escape = value.byte(name)?,
            "header" => csv.header = Some(value.flag(name)?),
            "ignore_errors" => csv.ignores_errors = value.flag(name)?,
            "names" | "column_names" => csv.names = value.texts(name)?,
            // Ends of lines are recognised whichever they are, and files are read in parallel.
            "new_line" => {
                value.text(name)?;
            }
            "parallel" => {
                value.flag(name)?;
            }
            "null" | "nullstr" => csv.nulls = Some(value.texts(name)?),
            "null_padding" => csv.pads_with_nulls = value.flag(name)?,
            "skip" => csv.skipped_lines = value.count(name)?.unwrap_or(0),
            _ => unreachable!("the option {name} is listed, and not set"),
        }
        Ok(())
    }
}

/// An option that is none, with those that are.
pub(crate) fn unknown_option<'a>(about: &str, option: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let mut known: Vec<&str> = known.collect();
    known.sort_unstable();
    let hint = suggestion::phrase(option, known.iter().copied());
    Error::setting(format!("{about} has no option '{option}'{hint}; there are: {}", known.join(", ")))
}

/// The type that a name stands for.
pub(crate) fn type_named(state: &SessionState, name: &str) -> Result<DataType> {
    let unknown = |reason: String| Error::setting(format!("'{name}' is not a type ({reason})"));
    // The name is the user's: nothing but a type may stand in it.
    let parsed = syntax::data_type(name).map_err(|error| unknown(error.to_string()))?;
    let cast = state.create_logical_expr(&format!("CAST(NULL AS {parsed})"), &DFSchema::empty());
    let cast = cast.map_err(|error| unknown(Error::from(error).to_string()))?;
    Ok(cast.get_type(&DFSchema::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(text: &str) -> Result<Reading> {
        Reading::of_call(&Call::parse(text).unwrap().unwrap())
    }

    #[test]
    fn options_are_set() {
        let read =
            reading("read_csv('x.txt', header = 0, sep = '\\t', null_str = ['NA'], quote = '', Skip = 2)");
        let read = read.unwrap();
        assert_eq!(read.csv.header, Some(false));
        assert_eq!(read.csv.delimiter, Some(b'\t'));
        assert_eq!(read.csv.quote, Some(0));
        assert_eq!(read.csv.nulls, Some(vec!["NA".to_owned()]));
        assert_eq!(read.csv.skipped_lines, 2);
        assert_eq!(
            reading("read_parquet('x', filename = true)").unwrap().filename.as_deref(),
            Some("filename")
        );
        assert_eq!(reading("read_parquet('x', filename = 'f')").unwrap().filename.as_deref(), Some("f"));
    }

    #[test]
    fn every_option_that_is_listed_is_known() {
        for (format, options) in
            [(Format::Csv, CSV.as_slice()), (Format::Json, &JSON), (Format::Parquet, &PARQUET)]
        {
            for option in options.iter().chain(&ANY_FORMAT) {
                // Whatever the value: it does not panic.
                let _ = Reading::default().set(format, option, &OptionValue::All, "COPY");
            }
        }
    }

    #[test]
    fn unknown_options_have_a_nearest_one() {
        let message = reading("read_csv('x', hader = true)").unwrap_err().to_string();
        assert!(message.starts_with(
            "read_csv(…) has no option 'hader'; did you mean 'header'?; there are: all_varchar,"
        ));
        let message = reading("read_parquet('x', skip = 1)").unwrap_err().to_string();
        assert!(message.contains("there are: allow_empty, binary_as_string, can_have_nan, compression,"));
        let message = reading("read_csv('x', header = 'maybe')").unwrap_err().to_string();
        assert_eq!(message, "option 'header' is true or false, not 'maybe'");
    }
}
