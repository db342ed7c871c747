//! Parts of texts, counted in what people take for letters (Unicode Standard Annex 29).
#![allow(clippy::indexing_slicing, reason = "letters are numbered here, within their text")]

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, StringViewArray};
use arrow::datatypes::DataType;
use datafusion::common::cast::{as_int64_array, as_string_view_array};
use datafusion::common::{Result, exec_err};
use unicode_segmentation::UnicodeSegmentation as _;

use crate::function::Kernel;
use crate::function::Kind::{Integer, Text};

pub(crate) static FUNCTIONS: &[Kernel] = &[
    Kernel::new(&["substring_grapheme"], &[&[Text, Integer], &[Text, Integer, Integer]], text, |given, _| {
        parts(given, range)
    }),
    Kernel::new(&["left_grapheme"], &[&[Text, Integer]], text, |given, _| {
        parts(given, |letters, count, _| match count {
            0.. => 0..count.min(letters),
            _ => 0..(letters + count).max(0),
        })
    }),
    Kernel::new(&["right_grapheme"], &[&[Text, Integer]], text, |given, _| {
        parts(given, |letters, count, _| match count {
            0.. => (letters - count).max(0)..letters,
            _ => count.saturating_neg().min(letters)..letters,
        })
    }),
];

fn text(_: &[DataType]) -> Result<DataType> {
    Ok(DataType::Utf8View)
}

/// The letters from a place on, counted from 1, or from the end if it is negative; backwards if their number is.
fn range(letters: i64, from: i64, length: Option<i64>) -> std::ops::Range<i64> {
    let from = if from < 0 { (letters + from).max(-letters - 1) } else { from - 1 };
    let end = match length {
        Some(length) => from.saturating_add(length),
        None => letters,
    };
    let (start, end) = if end < from { (end, from) } else { (from, end) };
    start.clamp(0, letters)..end.clamp(0, letters)
}

/// The letters of each text that a range of their number, and of what else a call says, has.
fn parts(
    given: &[ArrayRef],
    range: impl Fn(i64, i64, Option<i64>) -> std::ops::Range<i64>,
) -> Result<ArrayRef> {
    let [texts, numbers, lengths @ ..] = given else { return exec_err!("two arguments are needed") };
    let (texts, numbers) = (as_string_view_array(texts)?, as_int64_array(numbers)?);
    let lengths = lengths.first().map(|lengths| as_int64_array(lengths)).transpose()?;
    let is_far = |number: i64| number.unsigned_abs() > u64::from(u32::MAX);
    if lengths.is_some()
        && numbers.iter().chain(lengths.iter().flat_map(|lengths| lengths.iter())).flatten().any(is_far)
    {
        return exec_err!("substring_grapheme counts up to {} letters", u32::MAX);
    }
    let part = |(row, (text, number)): (usize, (Option<&str>, Option<i64>))| {
        let (text, number) = (text?, number?);
        let length = match lengths {
            Some(lengths) => Some(lengths.is_valid(row).then(|| lengths.value(row))?),
            None => None,
        };
        let starts: Vec<usize> =
            text.grapheme_indices(true).map(|(start, _)| start).chain([text.len()]).collect();
        let range = range(starts.len() as i64 - 1, number, length);
        Some(text[starts[range.start as usize]..starts[range.end.max(range.start) as usize]].to_owned())
    };
    Ok(Arc::new(texts.iter().zip(numbers.iter()).enumerate().map(part).collect::<StringViewArray>()))
}
