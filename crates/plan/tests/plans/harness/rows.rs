//! Results as sorted multisets of rows in text form.

use std::hash::{DefaultHasher, Hash, Hasher};

use arrow::array::{Array, RecordBatch};
use arrow::util::display::{ArrayFormatter, FormatOptions};

/// Every row as text, in sorted order.
pub fn rows(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default().with_null("∅");
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<ArrayFormatter> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).expect("a formatter"))
            .collect();
        for row in 0..batch.num_rows() {
            let values: Vec<String> =
                columns.iter().map(|column| abridged(column.value(row).to_string())).collect();
            rows.push(values.join("│"));
        }
    }
    rows.sort_unstable();
    rows
}

/// The text itself, or of a long one its start, its length and a hash.
fn abridged(text: String) -> String {
    if text.len() <= 200 {
        return text;
    }
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let start: String = text.chars().take(20).collect();
    format!("{start}… {} bytes {:x}", text.len(), hasher.finish())
}

pub fn row_count(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

/// Fails, showing a few of the rows that differ, unless both results hold the same rows equally often.
pub fn assert_same_rows(ours: &[RecordBatch], right: &[RecordBatch], what: &str) {
    if let Err(difference) = same_rows(ours, right) {
        panic!("{what}: {difference}");
    }
}

/// Whether both results hold the same rows equally often; otherwise a few of the rows that differ.
pub fn same_rows(ours: &[RecordBatch], right: &[RecordBatch]) -> Result<(), String> {
    let (ours, right) = (rows(ours), rows(right));
    if ours == right {
        return Ok(());
    }
    let only_in = |these: &[String], those: &[String]| {
        let mut missing = Vec::new();
        let mut others = those.iter().peekable();
        for row in these {
            while others.next_if(|other| *other < row).is_some() {}
            if others.next_if(|other| *other == row).is_none() {
                missing.push(row.chars().take(200).collect::<String>());
            }
        }
        missing
    };
    let (surplus, lost) = (only_in(&ours, &right), only_in(&right, &ours));
    Err(format!(
        "{} rows instead of {}; {} too many, such as {:#?}; {} lost, such as {:#?}",
        ours.len(),
        right.len(),
        surplus.len(),
        surplus.iter().take(3).collect::<Vec<_>>(),
        lost.len(),
        lost.iter().take(3).collect::<Vec<_>>(),
    ))
}

/// The values of a column of 64-bit integers, null as `None`.
pub fn integers(batches: &[RecordBatch], column: usize) -> Vec<Option<i64>> {
    let mut values = Vec::new();
    for batch in batches {
        let array =
            arrow::compute::cast(batch.column(column), &arrow::datatypes::DataType::Int64).expect("a cast");
        let array = arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(&array).clone();
        values.extend((0..array.len()).map(|row| array.is_valid(row).then(|| array.value(row))));
    }
    values
}
