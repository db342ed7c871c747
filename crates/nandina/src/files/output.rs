//! What `COPY … TO` says of the files that it writes and DataFusion's formats do not know.
//!
//! It travels as one more option of the format, in the way that options are written: `{'filename_pattern': 'part_{i}'}`.

use super::option_value::OptionValue;
use crate::byte_size;
use crate::error::{Error, Result};
use crate::planning::syntax;

/// The name of the option that holds all of it.
pub(crate) const OUTPUT: &str = "format.output";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Output {
    /// Whether files of names of their own are written into a folder.
    pub is_folder: bool,
    /// Whether several are written at a time.
    pub per_thread: bool,
    pub existing: Existing,
    /// Names of files in folders, without their extension.
    pub pattern: Option<String>,
    pub extension: Option<String>,
    /// What a file of a folder has at most, about.
    pub most_row_groups: Option<usize>,
    pub most_bytes: Option<usize>,
    /// Whether files of all values are in one folder.
    pub is_flat: bool,
    /// Whether a file without rows is not written.
    pub leaves_empty_out: bool,
    pub reports: Report,
    /// What stands in the footer of a Parquet file beside the columns.
    pub metadata: Vec<(String, String)>,
    pub text: TextOutput,
}

/// What becomes of the files that are in a folder already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Existing {
    /// They are an error.
    #[default]
    Refused,
    /// They stay, and names are different from theirs.
    Kept,
    /// Those of the same names are replaced.
    Replaced,
    /// They are removed.
    Removed,
}

/// The rows of the answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Report {
    /// How many rows were written.
    #[default]
    Count,
    /// And into which files.
    Files,
    /// A row for each file.
    Statistics,
}

/// How CSV and JSON are written, where DataFusion's options do not say it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TextOutput {
    /// In front of the first record, and behind the last.
    pub prefix: Option<String>,
    pub suffix: Option<String>,
    /// Whether JSON is one array.
    pub is_array: bool,
    /// Of more than one character.
    pub delimiter: Option<String>,
    /// Whether quotes inside of quoted values stay as they are.
    pub is_unescaped: bool,
    /// Columns whose values are quoted wherever they are not null.
    pub quoted_columns: Vec<String>,
    /// Of JSON.
    pub date_format: Option<String>,
    pub timestamp_format: Option<String>,
}

impl Output {
    /// What the options of a format say.
    pub(crate) fn of(text: Option<&String>) -> Result<Self> {
        let mut output = Output::default();
        let Some(text) = text else { return Ok(output) };
        match OptionValue::of(&syntax::expression(text)?) {
            Some(OptionValue::Map(options)) => {
                for (name, value) in &options {
                    output.set(name, value)?;
                }
                Ok(output)
            }
            _ => Err(Error::setting(format!("option '{OUTPUT}' is {{'name': value}}, not {text}"))),
        }
    }

    pub(crate) fn set(&mut self, name: &str, value: &OptionValue) -> Result<()> {
        let is_on = || value.flag(name);
        let mut existing = |to: Existing| {
            if value.flag(name)? {
                if self.existing != Existing::Refused && self.existing != to {
                    return Err(Error::setting(
                        "of the options append, overwrite and overwrite_or_ignore only one can be on",
                    ));
                }
                self.existing = to;
            }
            Ok(())
        };
        match name {
            "folder" => self.is_folder = is_on()?,
            "append" => existing(Existing::Kept)?,
            "overwrite" => existing(Existing::Removed)?,
            "overwrite_or_ignore" => existing(Existing::Replaced)?,
            "per_thread_output" => {
                self.per_thread = is_on()?;
                self.is_folder |= self.per_thread;
            }
            "filename_pattern" => {
                let pattern = value.text(name)?;
                if pattern.contains('/') {
                    return Err(value.refused(name, "the name of a file, without folders"));
                }
                self.pattern = Some(pattern);
            }
            "file_extension" => {
                let extension = value.text(name)?;
                if extension.contains('/') {
                    return Err(value.refused(name, "the end of a name, without folders"));
                }
                self.extension = Some(extension);
            }
            "row_groups_per_file" => {
                self.most_row_groups = Some(at_least_one(name, value)?);
                self.is_folder = true;
            }
            "file_size_bytes" => {
                self.most_bytes = Some(bytes(name, value)?.max(1));
                self.is_folder = true;
            }
            "hive_file_pattern" => self.is_flat = !is_on()?,
            "write_empty_file" => self.leaves_empty_out = !is_on()?,
            "return_files" if is_on()? => self.reports = Report::Files,
            "return_stats" if is_on()? => self.reports = Report::Statistics,
            "return_files" | "return_stats" => {}
            "kv_metadata" => self.metadata = value.named_values(name)?,
            "prefix" => self.text.prefix = Some(value.text(name)?),
            "suffix" => self.text.suffix = Some(value.text(name)?),
            "array" => self.text.is_array = is_on()?,
            "delimiter" => self.text.delimiter = Some(value.text(name)?),
            "unescaped" => self.text.is_unescaped = is_on()?,
            "force_quote" => self.text.quoted_columns = value.texts(name)?,
            "dateformat" => self.text.date_format = Some(value.text(name)?),
            "timestampformat" => self.text.timestamp_format = Some(value.text(name)?),
            other => return Err(Error::setting(format!("there is no option '{other}' of files"))),
        }
        Ok(())
    }

    /// Refuses what does not go together.
    pub(crate) fn check(&self) -> Result<()> {
        let text = &self.text;
        if text.prefix.is_some() != text.suffix.is_some() {
            return Err(Error::setting("COPY … TO has either both a prefix and a suffix or none of them"));
        }
        let has_numbers = self.pattern.as_ref().is_some_and(|pattern| !pattern.contains("{uuid"));
        if self.existing == Existing::Kept && has_numbers {
            return Err(Error::setting("a filename_pattern has {uuid} where files are appended"));
        }
        Ok(())
    }
}

fn at_least_one(name: &str, value: &OptionValue) -> Result<usize> {
    let count = value.count(name)?.filter(|count| *count > 0);
    count.ok_or_else(|| value.refused(name, "a count, at least 1"))
}

/// A number of bytes, with or without a unit.
pub(crate) fn bytes(name: &str, value: &OptionValue) -> Result<usize> {
    let text = match value {
        OptionValue::Number(bytes) => bytes.clone(),
        value => value.text(name)?,
    };
    let bytes = byte_size::parse(&text, u64::MAX).ok().and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| value.refused(name, "a number of bytes, as '64MB'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_back_from_their_text() {
        let map = OptionValue::Map(vec![
            ("filename_pattern".to_owned(), OptionValue::Text("it's_{i}".to_owned())),
            ("file_size_bytes".to_owned(), OptionValue::Text("1kb".to_owned())),
            (
                "kv_metadata".to_owned(),
                OptionValue::Map(vec![("A b".to_owned(), OptionValue::Text("c".to_owned()))]),
            ),
        ]);
        let output = Output::of(Some(&map.to_string())).unwrap();
        assert_eq!(output.pattern.as_deref(), Some("it's_{i}"));
        assert_eq!(output.most_bytes, Some(1024));
        assert!(output.is_folder);
        assert_eq!(output.metadata, [("A b".to_owned(), "c".to_owned())]);
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let mut output = Output::default();
        output.set("append", &OptionValue::Flag(true)).unwrap();
        assert!(output.set("overwrite", &OptionValue::Flag(true)).is_err());
        output.set("filename_pattern", &OptionValue::Text("x_{i}".to_owned())).unwrap();
        assert!(output.check().is_err());
        let prefix = TextOutput { prefix: Some("[".to_owned()), ..TextOutput::default() };
        assert!(Output { text: prefix, ..Output::default() }.check().is_err());
    }
}
