//! Rows as CSV: values are what casts to texts make of them, and quoted where they would be read as something else.
//!
//! An empty text is quoted, as nothing at all is a null; so is a text that is the one for nulls.

use std::borrow::Cow;

use arrow::array::{Array as _, AsArray as _, RecordBatch, StringViewArray};
use arrow::csv::{QuoteStyle, WriterBuilder};
use arrow::datatypes::{DataType, Field};
use bytes::Bytes;
use datafusion::common::Result;
use datafusion::datasource::file_format::write::BatchSerializer;
use nandina_functions::{Failed, TimeFormats, cast_array};

use crate::files::output::TextOutput;

/// Writes rows as lines.
#[derive(Debug)]
pub(super) struct CsvText {
    has_header: bool,
    delimiter: String,
    quote: char,
    quotes: Quotes,
    /// What stands in front of a quote inside of quotes; none: nothing.
    escape: Option<char>,
    null: String,
    formats: TimeFormats,
    forced: Vec<String>,
    /// Whether blanks are left out in front of values, and behind them.
    trims: (bool, bool),
    /// In front of the first line, and behind the last, where line breaks stand between lines only.
    frame: Option<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quotes {
    WhereNeeded,
    Always,
    NotNumbers,
    Never,
}

impl CsvText {
    pub fn new(options: &WriterBuilder, output: &TextOutput) -> Self {
        let escape = match (output.is_unescaped, options.double_quote()) {
            (true, _) => None,
            (false, true) => Some(options.quote()),
            (false, false) => Some(options.escape()),
        };
        CsvText {
            has_header: options.header(),
            delimiter: output
                .delimiter
                .clone()
                .unwrap_or_else(|| char::from(options.delimiter()).to_string()),
            quote: char::from(options.quote()),
            quotes: match options.quote_style() {
                QuoteStyle::Always => Quotes::Always,
                QuoteStyle::NonNumeric => Quotes::NotNumbers,
                QuoteStyle::Never => Quotes::Never,
                _ => Quotes::WhereNeeded,
            },
            escape: escape.map(char::from),
            null: options.null().to_owned(),
            formats: TimeFormats {
                date: options.date_format().map(str::to_owned),
                timestamp: options.timestamp_format().map(str::to_owned),
                timestamp_in_zone: options.timestamp_tz_format().map(str::to_owned),
                time: options.time_format().map(str::to_owned),
            },
            trims: (options.ignore_leading_whitespace(), options.ignore_trailing_whitespace()),
            forced: output.quoted_columns.clone(),
            frame: output.prefix.clone().zip(output.suffix.clone()),
        }
    }

    fn is_forced(&self, column: &Field) -> bool {
        match self.quotes {
            Quotes::Always => true,
            Quotes::NotNumbers if !column.data_type().is_numeric() => true,
            _ => self.forced.iter().any(|name| name.eq_ignore_ascii_case(column.name())),
        }
    }

    fn write(&self, text: &str, is_forced: bool, out: &mut String) {
        let text = if self.trims.0 { text.trim_start() } else { text };
        let text = if self.trims.1 { text.trim_end() } else { text };
        let needs_quotes = || {
            text == self.null
                || text.starts_with('#')
                || text.contains([self.quote, '\n', '\r'])
                || self.delimiter.chars().next().is_some_and(|first| text.contains(first))
        };
        if self.quotes == Quotes::Never || !is_forced && !needs_quotes() {
            out.push_str(text);
            return;
        }
        out.push(self.quote);
        match self.escape {
            Some(escape) if text.contains([self.quote, escape]) => {
                for letter in text.chars() {
                    if letter == self.quote || letter == escape {
                        out.push(escape);
                    }
                    out.push(letter);
                }
            }
            _ => out.push_str(text),
        }
        out.push(self.quote);
    }

    fn header(&self, rows: &RecordBatch) -> String {
        let mut out = String::new();
        for (place, field) in rows.schema().fields().iter().enumerate() {
            out.push_str(if place > 0 { &self.delimiter } else { "" });
            self.write(field.name(), self.is_forced(field), &mut out);
        }
        out
    }

    fn rows(&self, rows: &RecordBatch) -> Result<String> {
        let texts = rows.columns().iter().map(|column| {
            Ok(match self.formats.texts(column)? {
                Some(texts) => texts,
                None => {
                    let texts = cast_array(column, &DataType::Utf8View, Failed::IsError)?;
                    texts.as_string_view().clone()
                }
            })
        });
        let texts: Vec<StringViewArray> = texts.collect::<Result<_>>()?;
        let forced: Vec<bool> = rows.schema().fields().iter().map(|field| self.is_forced(field)).collect();
        let is_alone = texts.len() == 1;
        let mut out = String::new();
        for row in 0..rows.num_rows() {
            out.push_str(if self.frame.is_some() { "\n" } else { "" });
            for (place, (texts, is_forced)) in texts.iter().zip(&forced).enumerate() {
                out.push_str(if place > 0 { &self.delimiter } else { "" });
                match texts.is_valid(row) {
                    true => self.write(texts.value(row), *is_forced, &mut out),
                    // An empty line is no record.
                    false if is_alone && self.null.is_empty() => out.extend([self.quote, self.quote]),
                    false => out.push_str(&self.null),
                }
            }
            out.push_str(if self.frame.is_some() { "" } else { "\n" });
        }
        Ok(out)
    }

    /// What stands in front of all rows.
    pub fn head(&self, rows: &RecordBatch) -> String {
        let mut head = String::new();
        if let Some((prefix, _)) = &self.frame {
            head.push_str(prefix);
        }
        if self.has_header {
            head.push_str(&self.header(rows));
            head.push_str(if self.frame.is_some() { "" } else { "\n" });
        }
        head
    }

    /// Bytes in front of the first row that are not written: a line break between lines in a frame.
    pub fn left_out(&self) -> usize {
        usize::from(self.frame.is_some() && !self.has_header)
    }

    /// What stands behind all rows.
    pub fn tail(&self) -> Cow<'static, str> {
        self.frame.as_ref().map_or(Cow::Borrowed(""), |(_, suffix)| Cow::Owned(suffix.clone()))
    }
}

impl BatchSerializer for CsvText {
    fn serialize(&self, rows: RecordBatch, _is_first: bool) -> Result<Bytes> {
        Ok(self.rows(&rows)?.into())
    }
}
