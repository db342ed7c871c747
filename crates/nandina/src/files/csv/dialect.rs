//! How CSV files are written, as far as their beginning tells.

use std::io::Read as _;
use std::path::PathBuf;

use arrow::csv::reader::Format;
use arrow::datatypes::{DataType, Fields};
use datafusion::common::config::CsvOptions;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;

use super::columns::by_name;
use super::encoding::Encoding;
use super::infer::format_of;
use super::records::{RecordEnds, Syntax};
use super::sniff::sniff;
use crate::files::reading::Reading;

/// How CSV files of one table are written; `None` is found out from the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CsvDialect {
    pub delimiter: Option<u8>,
    pub header: Option<bool>,
    pub quote: Option<u8>,
    pub escape: Option<u8>,
    /// The columns that the files are read for, if they are known; a first line of other texts than these is not a header
    /// for that alone.
    pub columns: Option<Vec<String>>,
    pub comment: Option<u8>,
    pub encoding: Encoding,
    /// Texts that stand for null, in place of the empty one.
    pub nulls: Option<Vec<String>>,
    /// Lines in front of the records.
    pub skipped_lines: usize,
    /// Whether records that cannot be read are left out.
    pub ignores_errors: bool,
    /// Whether records may have fewer fields than there are columns.
    pub pads_with_nulls: bool,
    /// Whether all columns are texts.
    pub are_texts: bool,
    /// Whether nothing is found out.
    pub is_given: bool,
    pub date_format: Option<String>,
    pub timestamp_format: Option<String>,
    /// Names of the first columns.
    pub names: Vec<String>,
    /// Types of columns by their names, and of the first ones.
    pub types: Vec<(String, String)>,
    pub first_types: Vec<String>,
    /// Names of the types that columns may be found to have; empty: all.
    pub candidates: Vec<String>,
    /// Columns whose empty texts are texts.
    pub never_null: NeverNull,
    /// Whether names of columns become words in small letters.
    pub normalizes_names: bool,
    /// The longest record.
    pub most_record_bytes: Option<usize>,
}

/// Columns by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NeverNull {
    #[default]
    None,
    Of(Vec<String>),
    All,
}

impl NeverNull {
    pub(super) fn has(&self, column: &str) -> bool {
        match self {
            NeverNull::None => false,
            NeverNull::Of(columns) => columns.iter().any(|name| name.eq_ignore_ascii_case(column)),
            NeverNull::All => true,
        }
    }
}

/// Bytes of a file that are looked at.
const SAMPLE_BYTES: u64 = 64 << 10;

/// The options for files, of which the first is looked at, and the lines in front of their records.
pub(crate) fn likely_options(
    defaults: CsvOptions,
    compression: FileCompressionType,
    files: &[PathBuf],
    reading: &Reading,
) -> (CsvOptions, usize) {
    let expected =
        reading.columns.as_ref().map(|columns| columns.iter().map(|(name, _)| name.clone()).collect());
    let columns = expected.or_else(|| reading.csv.columns.clone());
    let dialect = &CsvDialect { columns, ..reading.csv.clone() };
    let quote = dialect.quote.unwrap_or(defaults.quote);
    let mut options = CsvOptions {
        quote,
        // A quote that is escaped by itself is doubled.
        escape: dialect.escape.filter(|escape| *escape != quote),
        comment: dialect.comment,
        null_regex: dialect.nulls.as_deref().map(pattern_of_nulls),
        date_format: dialect.date_format.clone(),
        timestamp_format: dialect.timestamp_format.clone(),
        ..defaults
    };
    options.truncated_rows = dialect.pads_with_nulls.then_some(true).or(options.truncated_rows);
    options.schema_infer_max_rec = match dialect.are_texts {
        true => Some(0),
        false => reading.sample_records.or(options.schema_infer_max_rec),
    };
    options.compression = compression.into();
    let encoding = dialect.encoding;
    let mut sample = files.first().map(|file| Sample::of(file, compression, encoding)).unwrap_or_default();
    sample.skip_lines(dialect.skipped_lines);
    let written = sniff(&sample.text, sample.is_cut, dialect, Syntax::of(&options), files);
    sample.skip_lines(written.skipped_lines.saturating_sub(dialect.skipped_lines));
    let Syntax { delimiter, quote, escape, comment, .. } = written.syntax;
    options = CsvOptions { delimiter, quote, escape, comment, ..options };
    sample.skip_comments(comment);
    sample.cut_to_records(written.syntax);
    let has_header = dialect.header.unwrap_or_else(|| sample.has_header(&options, dialect));
    (options.with_has_header(has_header), written.skipped_lines)
}

/// A pattern that matches the texts that stand for null.
fn pattern_of_nulls(nulls: &[String]) -> String {
    let texts: Vec<String> = nulls.iter().map(|text| regex::escape(text)).collect();
    format!("^(?:{})$", texts.join("|"))
}

/// The beginning of a file.
#[derive(Debug, Default)]
struct Sample {
    /// Empty when it cannot be read.
    text: String,
    /// Whether the file goes on.
    is_cut: bool,
}

impl Sample {
    fn of(file: &PathBuf, compression: FileCompressionType, encoding: Encoding) -> Self {
        let mut start = Vec::new();
        let opened = std::fs::File::open(file).map_err(datafusion::error::DataFusionError::from);
        let plain = opened.and_then(|file| compression.convert_read(file));
        let read =
            plain.and_then(|plain| Ok(encoding.decoded(plain).take(SAMPLE_BYTES).read_to_end(&mut start)?));
        if read.is_err() {
            // The scan of the file reports the error.
            return Sample::default();
        }
        let text = String::from_utf8_lossy(&start).trim_start_matches('\u{feff}').to_owned();
        Sample { text, is_cut: start.len() as u64 == SAMPLE_BYTES }
    }

    fn skip_lines(&mut self, lines: usize) {
        let skipped: usize = self.text.split_inclusive('\n').take(lines).map(str::len).sum();
        self.text.drain(..skipped);
    }

    /// Leaves comments in front of the first record out.
    fn skip_comments(&mut self, comment: Option<u8>) {
        let Some(comment) = comment.map(char::from) else { return };
        let lines = self.text.split_inclusive('\n').take_while(|line| line.starts_with(comment)).count();
        self.skip_lines(lines);
    }

    /// Leaves the last record out, which may go on behind the sample, if there is another one.
    fn cut_to_records(&mut self, syntax: Syntax) {
        if self.is_cut
            && let Some(found) = RecordEnds::new(syntax).find(self.text.as_bytes())
        {
            self.text.truncate(found.last_end);
        }
    }

    /// Whether the first line names the columns, rather than being a row of them.
    ///
    /// It does if it holds a text where all other rows hold something else; or, where all columns are texts, if its fields
    /// are the columns that are expected. Where none are, a line of texts is taken for a header, as in DuckDB.
    fn has_header(&self, options: &CsvOptions, dialect: &CsvDialect) -> bool {
        // Options that nothing can be read with are refused by the scan.
        let Ok(format) = format_of(options, false) else { return true };
        let format = format.with_truncated_rows(true);
        let types = |format: &Format, rows| {
            format.infer_schema(self.text.as_bytes(), rows).ok().map(|(schema, rows)| (schema.fields, rows))
        };
        let with_names = format.clone().with_header(true);
        let Some((first, 1..)) = types(&format, Some(1)) else { return true };
        // Rows further on may be broken; the next one alone says enough then.
        let Some((others, rows)) = types(&with_names, None).or_else(|| types(&with_names, Some(1))) else {
            return true;
        };
        let is_text = |field: &DataType| matches!(field, DataType::Utf8);
        let all_texts = |fields: &Fields| fields.iter().all(|field| is_text(field.data_type()));
        let deviates = first.iter().zip(&others).any(|(first, other)| {
            is_text(first.data_type()) && !is_text(other.data_type()) && !other.data_type().is_null()
        });
        if rows > 0 && deviates {
            return true;
        }
        if !all_texts(&first) {
            return false;
        }
        match &dialect.columns {
            // The names of the inferred fields are those in the first line.
            Some(columns) => {
                let names: Vec<&str> = others.iter().map(|field| field.name().as_str()).collect();
                by_name(columns, &names).is_some()
            }
            None => rows == 0 || all_texts_or_nulls(&others),
        }
    }
}

fn all_texts_or_nulls(fields: &Fields) -> bool {
    fields.iter().all(|field| matches!(field.data_type(), DataType::Utf8 | DataType::Null))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_header(text: &str, columns: Option<&[&str]>) -> bool {
        let columns = columns.map(|columns| columns.iter().map(|&name| name.to_owned()).collect());
        let dialect = CsvDialect { columns, ..CsvDialect::default() };
        Sample { text: text.to_owned(), is_cut: false }.has_header(&CsvOptions::default(), &dialect)
    }

    #[test]
    fn a_header_is_told_from_a_row() {
        for (text, header) in [
            ("id,name\n1,a\n2,b\n", true),
            ("1,a\n2,b\n", false),
            ("1,2\n3,4\n", false),
            ("1.5,2020-01-01\n2,2020-01-02\n", false),
            ("name,city\nada,london\n", true),
            ("name,city\n", true),
            ("1,london\n", false),
            ("id,name\n,\n", true),
            ("year,2020,2021\nprofit,1,2\n", false),
            ("id,name\n1,a,surplus\n", true),
            ("id,\"na\nme\"\n1,a\n", true),
            ("a,1\nb,2\n", false),
            ("flag\ntrue\nfalse\n", true),
            ("\n", true),
        ] {
            assert_eq!(has_header(text, None), header, "{text:?}");
        }
    }

    #[test]
    fn texts_for_a_table_are_a_header_only_if_they_are_its_columns() {
        let columns = Some(["name", "city"].as_slice());
        assert!(has_header("Name,city\nada,london\n", columns));
        assert!(has_header("City,name\nlondon,ada\n", columns));
        assert!(!has_header("ada,london\ngrace,new york\n", columns));
        assert!(!has_header("ada,london\n", columns));
        assert!(has_header("id,n\n1,2\n", columns));
        assert!(!has_header("1,2\n3,4\n", columns));
    }
}
