//! In which formats dates and times are written that are not written as ISO 8601 has it.
//!
//! A column of texts is one of dates if one of these formats fits all texts of the sample. Of several that fit, the one that
//! DuckDB prefers is taken: the year first, then the day first. Which separator stands between the numbers does not matter.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, StringArray};
use arrow::csv::ReaderBuilder;
use arrow::csv::reader::Format;
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::error::ArrowError;
use datafusion::common::config::CsvOptions;
use parking_lot::Mutex;

use super::convert::{USUAL, date, timestamp};

/// The formats of columns, by their names.
pub(super) type FoundFormats = Mutex<HashMap<String, String>>;

const DATES: [&str; 6] = ["%Y-%m-%d", "%d-%m-%Y", "%m-%d-%Y", "%y-%m-%d", "%d-%m-%y", "%m-%d-%y"];
const TIMES: [&str; 3] = ["%Y-%m-%d %H:%M:%S", "%d-%m-%Y %H:%M:%S", "%m-%d-%Y %I:%M:%S %p"];

/// Where a field keeps the formats that fit so far, until all of the sample has been seen.
const KEY: &str = "formats";

/// The formats that fit all texts of a column so far.
#[derive(Debug, Clone)]
struct Fitting {
    dates: Vec<String>,
    times: Vec<String>,
}

impl Fitting {
    /// Those that may fit a text.
    fn of(text: &str, options: &CsvOptions) -> Option<Self> {
        let separator = text.chars().find(|letter| matches!(letter, '-' | '/' | '.' | ' '));
        let written = |formats: &[&str], given: &Option<String>| match (given, separator) {
            (Some(given), _) => vec![given.clone(), USUAL.to_owned()],
            (None, Some(separator)) => {
                let separator = separator.to_string();
                formats.iter().map(|format| format.replace('-', &separator)).collect()
            }
            (None, None) => Vec::new(),
        };
        let fitting = Fitting {
            dates: written(&DATES, &options.date_format),
            times: written(&TIMES, &options.timestamp_format),
        };
        (text.contains(|letter: char| letter.is_ascii_digit()) && !fitting.is_empty()).then_some(fitting)
    }

    fn is_empty(&self) -> bool {
        self.dates.is_empty() && self.times.is_empty()
    }

    fn retain(&mut self, text: &str) {
        self.dates.retain(|format| has_its_year(text, format) && is_date(text, format));
        self.times.retain(|format| has_its_year(text, format) && is_time(text, format));
    }
}

fn is_date(text: &str, format: &str) -> bool {
    date(text, if format == USUAL { "%Y-%m-%d" } else { format }).is_some()
}

fn is_time(text: &str, format: &str) -> bool {
    match format {
        USUAL => ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f"]
            .iter()
            .any(|usual| timestamp(text, usual).is_some()),
        format => timestamp(text, format).is_some(),
    }
}

/// Whether years are written with as many digits as in a format, which would take fewer.
fn has_its_year(text: &str, format: &str) -> bool {
    if format == USUAL {
        return text.as_bytes().get(4) == Some(&b'-');
    }
    let runs = text.split(|letter: char| !letter.is_ascii_digit()).map(str::len);
    let longest = runs.max().unwrap_or_default();
    match () {
        () if format.contains("%Y") => longest == 4,
        () if format.contains("%y") => longest == 2,
        () => true,
    }
}

/// The fields with the types of dates and times where a format fits the texts of a sample.
pub(super) fn with_formats(
    fields: &Schema,
    text: &[u8],
    format: Format,
    most_records: usize,
    options: &CsvOptions,
) -> Result<Vec<Field>, ArrowError> {
    let is_sought = |field: &Field| match field.data_type() {
        DataType::Utf8 => true,
        DataType::Date32 => options.date_format.is_some(),
        DataType::Timestamp(_, None) => options.timestamp_format.is_some(),
        _ => false,
    };
    let sought: Vec<usize> = fields
        .fields()
        .iter()
        .enumerate()
        .filter_map(|(place, field)| is_sought(field).then_some(place))
        .collect();
    let mut found: HashMap<usize, Option<Fitting>> = HashMap::new();
    let texts: Vec<Field> =
        fields.fields().iter().map(|field| Field::new(field.name(), DataType::Utf8, true)).collect();
    let reader = ReaderBuilder::new(Arc::new(Schema::new(texts)))
        .with_format(format)
        .with_projection(sought.clone())
        .with_batch_size(1024)
        .build(text)?;
    let mut seen = 0;
    // Records that cannot be read are for the scan to refuse.
    for batch in reader.map_while(Result::ok) {
        let rows = batch.num_rows().min(most_records.saturating_sub(seen));
        seen += rows;
        for (place, column) in sought.iter().zip(batch.columns()) {
            narrow(&mut found, *place, &column.slice(0, rows).as_string::<i32>().clone(), options);
        }
        let is_open = |place: &usize| !matches!(found.get(place), Some(None));
        if rows == 0 || !sought.iter().any(is_open) {
            break;
        }
    }
    let typed = |(place, field): (usize, &Arc<Field>)| match found.remove(&place).flatten() {
        Some(Fitting { dates, .. }) if !dates.is_empty() => with(field, DataType::Date32, &dates),
        Some(Fitting { times, .. }) => with(field, DataType::Timestamp(TimeUnit::Nanosecond, None), &times),
        None => field.as_ref().clone(),
    };
    Ok(fields.fields().iter().enumerate().map(typed).collect())
}

/// Leaves those formats that fit more texts of a column, too.
fn narrow(
    found: &mut HashMap<usize, Option<Fitting>>,
    place: usize,
    texts: &StringArray,
    options: &CsvOptions,
) {
    for text in texts.iter().flatten().map(str::trim) {
        let fitting = found.entry(place).or_insert_with(|| Fitting::of(text, options));
        let Some(formats) = fitting else { return };
        formats.retain(text);
        if formats.is_empty() {
            *fitting = None;
            return;
        }
    }
}

fn with(field: &Field, of: DataType, formats: &[String]) -> Field {
    let kept = HashMap::from([(KEY.to_owned(), formats.join("\n"))]);
    field.clone().with_data_type(of).with_metadata(kept)
}

/// The formats that a field of one part of the sample and of another have in common; none if there are none, though both
/// are of a type that has them.
pub(super) fn common_formats(one: &Field, other: &Field) -> Option<Option<String>> {
    let formats = |field: &Field| field.metadata().get(KEY).cloned();
    match (formats(one), formats(other)) {
        (None, None) => Some(None),
        (Some(known), None) if other.data_type().is_null() => Some(Some(known)),
        (None, Some(known)) if one.data_type().is_null() => Some(Some(known)),
        (Some(one), Some(other)) => {
            let others: Vec<&str> = other.split('\n').collect();
            let both: Vec<&str> = one.split('\n').filter(|format| others.contains(format)).collect();
            (!both.is_empty()).then(|| Some(both.join("\n")))
        }
        _ => None,
    }
}

/// A field with the formats that fit so far.
pub(super) fn with_kept(field: Field, formats: Option<String>) -> Field {
    let kept = formats.map(|formats| (KEY.to_owned(), formats));
    field.with_metadata(kept.into_iter().collect())
}

/// The format of a field, which it no longer keeps.
pub(super) fn take(field: &mut Field) -> Option<String> {
    let formats = field.metadata().get(KEY)?.clone();
    field.set_metadata(HashMap::new());
    formats.split('\n').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(texts: &[&str]) -> Option<(DataType, String)> {
        let schema = Schema::new(vec![Field::new("d", DataType::Utf8, true)]);
        let text = texts.join("\n");
        let options = CsvOptions::default();
        let mut fields = with_formats(&schema, text.as_bytes(), Format::default(), 100, &options).unwrap();
        let of = fields[0].data_type().clone();
        take(&mut fields[0]).map(|format| (of, format))
    }

    #[test]
    fn dates_are_recognised() {
        let timestamp = DataType::Timestamp(TimeUnit::Nanosecond, None);
        for (texts, format) in [
            (["01/02/2021", "31/12/2020"], Some((DataType::Date32, "%d/%m/%Y"))),
            (["01/02/2021", "12/31/2020"], Some((DataType::Date32, "%m/%d/%Y"))),
            (["1.2.2021", "3.4.2021"], Some((DataType::Date32, "%d.%m.%Y"))),
            (["2021/02/01", "2021/12/31"], Some((DataType::Date32, "%Y/%m/%d"))),
            (["01-02-21", "31-12-20"], Some((DataType::Date32, "%y-%m-%d"))),
            (["01-02-99", "31-12-20"], Some((DataType::Date32, "%d-%m-%y"))),
            (["31/12/2020 10:00:00", "01/02/2021 11:30:00"], Some((timestamp.clone(), "%d/%m/%Y %H:%M:%S"))),
            (["12/31/2021 01:02:03 PM", "01/02/2021 11:30:00 AM"], Some((timestamp, "%m/%d/%Y %I:%M:%S %p"))),
            (["31/12/2020", "12/31/2020"], None),
            (["31/12/2020", "x"], None),
            (["a", "b"], None),
            (["01/02/21", "2020-12-31"], None),
            (["1", "22"], None),
        ] {
            let expected = format.map(|(of, format)| (of, format.to_owned()));
            assert_eq!(found(&texts), expected, "{texts:?}");
        }
    }

    #[test]
    fn parts_of_a_sample_agree_or_are_texts() {
        let field = |formats: &[&str]| {
            let formats: Vec<String> = formats.iter().map(|&format| format.to_owned()).collect();
            with(&Field::new("d", DataType::Utf8, true), DataType::Date32, &formats)
        };
        let usual = Field::new("d", DataType::Date32, true);
        assert_eq!(common_formats(&field(&["a", "b"]), &field(&["b", "c"])), Some(Some("b".to_owned())));
        assert_eq!(common_formats(&field(&["a"]), &field(&["b"])), None);
        assert_eq!(common_formats(&field(&["a"]), &usual), None);
        assert_eq!(common_formats(&usual, &usual), Some(None));
        let empty = Field::new("d", DataType::Null, true);
        assert_eq!(common_formats(&empty, &field(&["a"])), Some(Some("a".to_owned())));
    }
}
