//! What the options of `COPY … TO` mean: some are those of DataFusion's formats under other names, others are for what
//! writes the files ([`Output`]).

use std::path::Path;

use datafusion::sql::parser::{CopyToSource, CopyToStatement, Statement};
use datafusion::sql::sqlparser::ast::{Query, Value};

use super::copy_statement::CopyOption;
use crate::error::{Error, Result};
use crate::files::names::{Format, absolute_path, compression_of};
use crate::files::option_value::OptionValue;
use crate::files::output::{Existing, OUTPUT, Output, bytes};
use crate::files::reading::unknown_option;
use crate::planning::syntax;

/// Options of all formats.
const ANY_FORMAT: [&str; 16] = [
    "append",
    "file_extension",
    "file_size_bytes",
    "filename_pattern",
    "format",
    "hive_file_pattern",
    "order_by",
    "overwrite",
    "overwrite_or_ignore",
    "partition_by",
    "per_thread_output",
    "return_files",
    "return_stats",
    "row_groups_per_file",
    "write_empty_file",
    "write_partition_columns",
];
const CSV: [&str; 13] = [
    "compression",
    "dateformat",
    "delim",
    "delimiter",
    "escape",
    "force_quote",
    "header",
    "null",
    "nullstr",
    "prefix",
    "quote",
    "suffix",
    "timestampformat",
];
const JSON: [&str; 4] = ["array", "compression", "dateformat", "timestampformat"];
const PARQUET: [&str; 15] = [
    "bloom_filter_false_positive_ratio",
    "codec",
    "compression",
    "compression_level",
    "data_page_size_limit",
    "debug_use_openssl",
    "dictionary_size_limit",
    "kv_metadata",
    "parquet_version",
    "row_group_size",
    "row_group_size_bytes",
    "string_dictionary_page_size_limit",
    "timestamp_is_adjusted_to_utc",
    "write_bloom_filter",
    "write_timestamp_as_int96",
];

/// Gives the options to the `COPY … TO` in a statement.
pub(crate) fn give(statement: &mut Statement, options: Vec<CopyOption>) -> Result<()> {
    match statement {
        Statement::Explain(explain) => give(&mut explain.statement, options),
        Statement::CopyTo(copy) => give_to(copy, options),
        _ => Ok(()),
    }
}

fn give_to(copy: &mut CopyToStatement, options: Vec<CopyOption>) -> Result<()> {
    let said = options.iter().find(|(name, _)| name == "format");
    let format = match said {
        Some((_, value)) => value.text("format")?.to_lowercase(),
        None => match Format::of_name(&copy.target) {
            Some(format) => format.keyword().to_owned(),
            // It is refused with all formats that there are.
            None if options.is_empty() => return Ok(()),
            None => "csv".to_owned(),
        },
    };
    let Some(format) = Format::named(&format) else {
        copy.stored_as = Some(format);
        return Ok(());
    };
    copy.stored_as = Some(format.keyword().to_owned());
    let about = format!("COPY … TO '{}'", copy.target);
    let mut given = Given {
        format,
        compression: compression_of(&copy.target).map(str::to_owned),
        output: Vec::new(),
        copy,
    };
    for (option, value) in options {
        given.set(&about, &option, &value)?;
    }
    given.settle()
}

struct Given<'a> {
    copy: &'a mut CopyToStatement,
    format: Format,
    /// How text is compressed.
    compression: Option<String>,
    /// What is for [`Output`].
    output: Vec<CopyOption>,
}

impl Given<'_> {
    fn set(&mut self, about: &str, option: &str, value: &OptionValue) -> Result<()> {
        if option.contains('.') {
            // One of DataFusion's.
            let text = value.text(option).unwrap_or_else(|_| value.to_string());
            self.copy.options.push((option.to_owned(), Value::SingleQuotedString(text)));
            return Ok(());
        }
        let own: &[&str] = match self.format {
            Format::Csv => &CSV,
            Format::Json => &JSON,
            Format::Parquet => &PARQUET,
            Format::Arrow => &[],
        };
        let plain = |name: &str| name.replace('_', "");
        let listed = || own.iter().chain(&ANY_FORMAT).copied();
        let Some(name) =
            listed().find(|name| plain(name) == plain(option) || (*name == "delim" && option == "sep"))
        else {
            return Err(unknown_option(about, option, listed()));
        };
        let is_csv = self.format == Format::Csv;
        match name {
            "format" => {}
            "partition_by" => {
                self.copy.partitioned_by = match value {
                    OptionValue::All => return Err(value.refused(name, "a list of columns")),
                    value => value.texts(name)?,
                };
            }
            "order_by" => order(self.copy, &value.texts(name)?)?,
            "write_partition_columns" => self.copy.options.push((
                "execution.keep_partition_by_columns".to_owned(),
                Value::SingleQuotedString(value.flag(name)?.to_string()),
            )),
            "header" => self.of_format("has_header", value.flag(name)?),
            "delim" | "delimiter" => match value.text(name)? {
                text if text.is_empty() => return Err(value.refused(name, "a character or several")),
                text if text == "\\t" || text.len() == 1 => {
                    self.of_format("delimiter", one_byte(name, value)?)
                }
                _ => self.of_output("delimiter", value.clone())?,
            },
            "quote" => match value.byte(name)? {
                Some(_) => self.of_format("quote", one_byte(name, value)?),
                None => self.of_format("quote_style", "Never"),
            },
            "escape" => match value.byte(name)? {
                // A quote that is escaped by itself is doubled, which is usual.
                Some(b'"') => {}
                Some(_) => {
                    self.of_format("escape", one_byte(name, value)?);
                    self.of_format("double_quote", false);
                }
                None => self.of_output("unescaped", OptionValue::Flag(true))?,
            },
            "null" | "nullstr" => self.of_format("null_value", value.text(name)?),
            "force_quote" => match value {
                OptionValue::All | OptionValue::Flag(true) => self.of_format("quote_style", "Always"),
                value => self.of_output(name, value.clone())?,
            },
            "dateformat" if is_csv => self.of_format("date_format", value.text(name)?),
            "timestampformat" if is_csv => {
                self.of_format("timestamp_format", value.text(name)?);
                self.of_format("timestamp_tz_format", value.text(name)?);
            }
            "compression" | "codec" if self.format == Format::Parquet => {
                self.of_format("compression", value.text(name)?.to_lowercase());
            }
            "compression" => self.compression = Some(value.text(name)?.to_lowercase()),
            "row_group_size" => self.of_format("max_row_group_size", count(name, value)?),
            "row_group_size_bytes" => self.of_format("max_row_group_bytes", bytes(name, value)?),
            "compression_level" => {
                let level = match value {
                    OptionValue::Number(digits) => digits.clone(),
                    value => value.text(name)?,
                };
                self.of_format("compression_level", level);
            }
            "parquet_version" => match value.text(name)?.to_lowercase().as_str() {
                "v1" => self.of_format("writer_version", "1.0"),
                "v2" => self.of_format("writer_version", "2.0"),
                _ => return Err(value.refused(name, "V1 or V2")),
            },
            "data_page_size_limit" => self.of_format("data_pagesize_limit", bytes(name, value)?),
            "string_dictionary_page_size_limit" => {
                self.of_format("dictionary_page_size_limit", bytes(name, value)?);
            }
            // In values; here the bytes of a dictionary decide when it is given up.
            "dictionary_size_limit" if count(name, value)? == 0 => {
                self.of_format("dictionary_enabled", false)
            }
            "dictionary_size_limit" => {}
            "write_bloom_filter" => self.of_format("bloom_filter_on_write", value.flag(name)?),
            "bloom_filter_false_positive_ratio" => match value {
                OptionValue::Number(ratio)
                    if ratio.parse::<f64>().is_ok_and(|ratio| ratio > 0.0 && ratio < 1.0) =>
                {
                    self.of_format("bloom_filter_fpp", ratio);
                }
                value => return Err(value.refused(name, "a number between 0 and 1")),
            },
            // Which library would encrypt; nothing is encrypted.
            "debug_use_openssl" => drop(value.flag(name)?),
            "write_timestamp_as_int96" if value.flag(name)? => {
                return Err(Error::unsupported("timestamps are written to Parquet in 64 bits, not as INT96"));
            }
            "write_timestamp_as_int96" => {}
            "timestamp_is_adjusted_to_utc" => match value.text(name)?.to_lowercase().as_str() {
                "auto" => {}
                _ => {
                    return Err(Error::unsupported(
                        "timestamps are written as their type is (timestamp_is_adjusted_to_utc AUTO); cast them to \
                         TIMESTAMP or TIMESTAMP WITH TIME ZONE",
                    ));
                }
            },
            name => self.of_output(name, value.clone())?,
        }
        Ok(())
    }

    /// Sets an option of DataFusion's format.
    fn of_format(&mut self, name: &str, value: impl ToString) {
        self.copy.options.push((format!("format.{name}"), Value::SingleQuotedString(value.to_string())));
    }

    fn of_output(&mut self, name: &str, value: OptionValue) -> Result<()> {
        // It is checked where the statement is read.
        Output::default().set(name, &value)?;
        self.output.push((name.to_owned(), value));
        Ok(())
    }

    fn settle(mut self) -> Result<()> {
        if self.format == Format::Parquet {
            settle_parquet_compression(self.copy)?;
        } else if let Some(compression) = self.compression.take().filter(|_| self.format != Format::Arrow) {
            let name = match compression.as_str() {
                "none" | "uncompressed" | "auto" => "uncompressed",
                "gz" => "gzip",
                "zst" => "zstd",
                "bz2" => "bzip2",
                other => other,
            };
            self.of_format("compression", name);
        }
        let mut output = Output::default();
        for (name, value) in &self.output {
            output.set(name, value)?;
        }
        output.check()?;
        let is_partitioned = !self.copy.partitioned_by.is_empty();
        let has_pattern = output.pattern.is_some() && Path::new(&self.copy.target).extension().is_none();
        if is_partitioned || output.is_folder || has_pattern {
            refuse_filled_folder(&self.copy.target, output.existing)?;
            self.of_folder();
            if self.format == Format::Arrow {
                // Its folders are DataFusion's, whose files have names of their own.
                let may_be = output.existing == Existing::Refused || output.existing == Existing::Kept;
                if !may_be || output.is_folder || output.pattern.is_some() || output.is_flat {
                    return Err(Error::unsupported(
                        "a folder of Arrow files has PARTITION_BY and APPEND only; write Parquet",
                    ));
                }
                return Ok(());
            }
            self.of_output("folder", OptionValue::Flag(true))?;
        } else if !self.copy.target.ends_with('/') && Path::new(&self.copy.target).extension().is_none() {
            self.of_format("single_file_output", true);
        }
        if !self.output.is_empty() {
            let value = OptionValue::Map(self.output).to_string();
            self.copy.options.push((OUTPUT.to_owned(), Value::SingleQuotedString(value)));
        }
        Ok(())
    }

    /// The target is a folder, whatever its name is.
    fn of_folder(&mut self) {
        if !self.copy.target.ends_with('/') {
            self.copy.target.push('/');
        }
    }
}

/// Rows are written in this order: by the values of folders, and within them by this.
fn order(copy: &mut CopyToStatement, by: &[String]) -> Result<()> {
    if let Some(text) = by.iter().find(|key| key.starts_with('\'')) {
        return Err(Error::unsupported(format!(
            "ORDER_BY {text}: write columns without quotes, or with double ones, as in ORDER_BY (day, id DESC)"
        )));
    }
    let source = match &copy.source {
        CopyToSource::Query(query) => format!("({query}) AS \"rows\""),
        CopyToSource::Relation(table) => table.to_string(),
    };
    let query: Query = syntax::query(&format!("SELECT * FROM {source} ORDER BY {}", by.join(", ")))?;
    copy.source = CopyToSource::Query(Box::new(query));
    Ok(())
}

fn count(name: &str, value: &OptionValue) -> Result<usize> {
    value.count(name)?.ok_or_else(|| value.refused(name, "a count"))
}

fn one_byte(name: &str, value: &OptionValue) -> Result<String> {
    let byte = value.byte(name)?.ok_or_else(|| value.refused(name, "a single ASCII character"))?;
    Ok(char::from(byte).to_string())
}

/// Writes the way of compressing and its level as DataFusion does: `zstd(3)`.
fn settle_parquet_compression(copy: &mut CopyToStatement) -> Result<()> {
    let mut take = |name: &str| {
        let at = copy.options.iter().position(|(option, _)| option == name)?;
        match copy.options.remove(at).1 {
            Value::SingleQuotedString(text) => Some(text),
            _ => None,
        }
    };
    let level = take("format.compression_level");
    let compression = take("format.compression").or_else(|| level.is_some().then(|| "zstd".to_owned()));
    let Some(compression) = compression else { return Ok(()) };
    let level = level.map(|level| settled_level(&compression, &level)).transpose()?;
    let written = match (compression.as_str(), level) {
        ("none" | "uncompressed", _) => "uncompressed".to_owned(),
        ("lz4", _) => "lz4_raw".to_owned(),
        ("zstd", level) => format!("zstd({})", level.unwrap_or(3)),
        ("gzip", level) => format!("gzip({})", level.unwrap_or(6)),
        ("brotli", level) => format!("brotli({})", level.unwrap_or(3)),
        (other, _) => other.to_owned(),
    };
    copy.options.push(("format.compression".to_owned(), Value::SingleQuotedString(written)));
    Ok(())
}

/// The level of a way of compressing. The faster ones of zstd, below 1, are its fastest here.
fn settled_level(compression: &str, level: &str) -> Result<i64> {
    let (least, greatest) = match compression {
        "zstd" => (-131_072, 22),
        "gzip" => (0, 9),
        "brotli" => (0, 11),
        other => {
            return Err(Error::setting(format!(
                "{other} has no compression_level; zstd, gzip and brotli have"
            )));
        }
    };
    let number = level.parse().ok().filter(|level| (least..=greatest).contains(level));
    let number: i64 = number.ok_or_else(|| {
        Error::setting(format!(
            "the compression_level of {compression} is {least} to {greatest}, not {level}"
        ))
    })?;
    Ok(if compression == "zstd" { number.max(1) } else { number })
}

/// Files that are written into a folder are added to those that are there, which would be read with them.
fn refuse_filled_folder(target: &str, existing: Existing) -> Result<()> {
    let path = absolute_path(target)?;
    let is_filled = std::fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_some());
    if is_filled && existing == Existing::Refused {
        let message = "the folder is not empty; remove it, write to another one, say OVERWRITE to remove its files, \
                       OVERWRITE_OR_IGNORE to replace those of the same names, or APPEND to add files";
        return Err(Error::file(target, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::copy_statement::CopyText;
    use super::*;
    use datafusion::sql::parser::DFParserBuilder;

    fn written(text: &str) -> Result<String> {
        let copy = CopyText::of(text).unwrap();
        let head = copy.head_to_parse();
        let mut statement = DFParserBuilder::new(head.as_str()).build().unwrap().parse_statement().unwrap();
        give(&mut statement, copy.options().unwrap().unwrap())?;
        Ok(statement.to_string())
    }

    #[test]
    fn options_become_those_of_datafusion() {
        let copy = written("EXPLAIN COPY t (a, b) TO 'x.csv.gz' (HEADER 0)").unwrap();
        assert!(copy.contains("COPY (SELECT a, b FROM t) TO x.csv.gz STORED AS csv OPTIONS"), "{copy}");
        assert!(
            copy.contains("'format.has_header' 'false'") && copy.contains("'format.compression' 'gzip'"),
            "{copy}"
        );
        let copy = written(
            "COPY t TO 'd' (FORMAT parquet, PARTITION_BY (a, b), COMPRESSION zstd, ROW_GROUP_SIZE 1000, PARQUET_VERSION v2)",
        );
        let copy = copy.unwrap();
        assert!(copy.contains("STORED AS parquet"), "{copy}");
        assert!(copy.contains("'format.compression' 'zstd(3)'"), "{copy}");
        assert!(copy.contains("'format.max_row_group_size' '1000'"), "{copy}");
        assert!(copy.contains("'format.writer_version' '2.0'"), "{copy}");
    }

    #[test]
    fn every_option_that_is_listed_is_known() {
        for (format, options) in
            [("csv", CSV.as_slice()), ("json", &JSON), ("parquet", &PARQUET), ("arrow", &[])]
        {
            for option in options.iter().chain(&ANY_FORMAT).filter(|name| **name != "order_by") {
                let message = written(&format!("COPY t TO 'no/x' (FORMAT {format}, {option} '1')"));
                let message = message.unwrap_or_else(|error| error.to_string());
                assert!(!message.contains("there is no option"), "{option}: {message}");
            }
        }
    }

    #[test]
    fn unknown_options_are_refused() {
        let message = written("COPY t TO 'x.csv' (HAEDER)").unwrap_err().to_string();
        assert!(
            message.starts_with("COPY … TO 'x.csv' has no option 'haeder'; did you mean 'header'?"),
            "{message}"
        );
        let broken = CopyText::of("COPY t TO 'x.csv' (HEADER true false)").unwrap().options();
        assert!(broken.unwrap_err().to_string().contains("the options of COPY: expected"));
    }
}
