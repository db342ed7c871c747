//! How far a table is in the order of one of its columns.

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::compute::kernels::rank::rank;
use datafusion::arrow::compute::{cast, concat, filter, is_not_null};
use datafusion::arrow::datatypes::DataType;
use nandina_storage::{PageRanges, Table};

/// Stripes whose pages are looked at.
const SAMPLED_STRIPES: usize = 8;

/// How many pages may have a value of a column, by their bounds: one if the table is in its order, nearly all if it is in none.
/// (Snowflake calls this the clustering depth.) `None` if nothing is known.
///
/// Stripes are all compared with each other, and pages with the others of their stripe, in some stripes.
pub(super) fn pages_of_a_value(table: &Table, column: usize) -> Option<f64> {
    let stripes = table.stripe_ranges(&[column]).ok()?;
    let pages = table.sampled_page_ranges(&[column], SAMPLED_STRIPES).ok()?;
    let of_stripes = overlapping(&stripes, column)?;
    let of_pages: Vec<f64> =
        pages.iter().filter_map(|pages| overlapping(std::slice::from_ref(pages), column)).collect();
    if of_pages.is_empty() {
        return None;
    }
    Some(of_stripes * of_pages.iter().sum::<f64>() / of_pages.len() as f64)
}

/// With how many containers the range of one of them overlaps, itself included, in the mean.
fn overlapping(groups: &[PageRanges], column: usize) -> Option<f64> {
    let bounds_of = |bound: fn(&PageRanges, usize) -> Option<ArrayRef>| -> Option<ArrayRef> {
        let arrays = groups.iter().map(|group| bound(group, column)).collect::<Option<Vec<_>>>()?;
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        let all = concat(&arrays).ok()?;
        let all = match all.data_type() {
            DataType::Utf8View => cast(&all, &DataType::Utf8).ok()?,
            DataType::BinaryView => cast(&all, &DataType::Binary).ok()?,
            _ => all,
        };
        // Containers of nulls alone have no bounds.
        filter(&all, &is_not_null(&all).ok()?).ok()
    };
    let mins = bounds_of(|group, column| Some(group.column(column)?.min.clone()))?;
    let maxes = bounds_of(|group, column| Some(group.column(column)?.max.clone()))?;
    let count = mins.len();
    if count == 0 || maxes.len() != count {
        return None;
    }
    // Where bounds are equal, both have the greatest of their ranks.
    let ranks = rank(&concat(&[&mins, &maxes]).ok()?, None).ok()?;
    let (of_mins, of_maxes) = ranks.split_at(count);
    let sorted = |ranks: &[u32]| {
        let mut sorted = ranks.to_vec();
        sorted.sort_unstable();
        sorted
    };
    let (all_mins, all_maxes) = (sorted(of_mins), sorted(of_maxes));
    let overlaps = of_mins.iter().zip(of_maxes).map(|(min, max)| {
        let begun = all_mins.partition_point(|other| other <= max);
        let ended = all_maxes.partition_point(|other| other < min);
        (begun - ended) as f64
    });
    Some(overlaps.sum::<f64>() / count as f64)
}
