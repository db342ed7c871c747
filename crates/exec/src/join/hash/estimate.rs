//! What statistics say about a join: how many rows an inner one gives, where DataFusion's estimate is far too high, and
//! which keys it can have.

use arrow::datatypes::DataType;
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, ScalarValue, Statistics};
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::joins::{HashJoinExec, JoinOn};

use super::key_bitmap::{KeyRange, has_bitmaps};

/// What the planner believed when it chose the build side.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuildEstimate {
    pub build_rows: Option<usize>,
    pub probe_rows: Option<usize>,
}

/// Rows of an inner join on several keys: both sides' product, divided by the number of different keys on the side that
/// has more (Selinger et al., SIGMOD 1979, with one selectivity for all keys together). `None` for a single key, or if
/// too little is known.
///
/// DataFusion divides by the different values of one key column only, as if the others told nothing: between `lineitem`
/// and `partsupp` of TPC-H it expects four rows for each that comes.
pub(super) fn most_inner_rows(left: &Statistics, right: &Statistics, on: &JoinOn) -> Option<usize> {
    if on.len() < 2 {
        return None;
    }
    let (left_keys, right_keys): (Vec<_>, Vec<_>) = on.iter().cloned().unzip();
    let (left_rows, right_rows) = (*left.num_rows.get_value()?, *right.num_rows.get_value()?);
    let keys = different_keys(left, &left_keys)?.max(different_keys(right, &right_keys)?).max(1.0);
    Some((left_rows as f64 * right_rows as f64 / keys).ceil() as usize)
}

/// Different combinations of keys on a side: no more than of their values, nor than rows.
fn different_keys(side: &Statistics, keys: &[PhysicalExprRef]) -> Option<f64> {
    let rows = *side.num_rows.get_value()? as f64;
    let mut combinations = 1.0;
    for key in keys {
        let column = key.downcast_ref::<Column>()?;
        combinations *= different_values(side.column_statistics.get(column.index())?, rows);
    }
    Some(combinations.min(rows))
}

/// Different values of a column: as many as are counted, as its range has integers, or as there are rows.
fn different_values(column: &ColumnStatistics, rows: f64) -> f64 {
    if let Some(&distinct) = column.distinct_count.get_value() {
        return distinct as f64;
    }
    let integer = |bound: &Precision<_>| bound.get_value().and_then(as_integer);
    match (integer(&column.min_value), integer(&column.max_value)) {
        (Some(min), Some(max)) => ((max - min) as f64 + 1.0).clamp(1.0, rows.max(1.0)),
        _ => rows,
    }
}

/// The ranges of the build side's keys, as far as its statistics tell, of those that may have a bitmap.
pub(super) fn key_ranges(join: &HashJoinExec, build: Option<&Statistics>) -> Vec<Option<KeyRange>> {
    let range = |key: &PhysicalExprRef| {
        let column = key.downcast_ref::<Column>()?;
        let data_type = key.data_type(&join.left.schema()).ok()?;
        let column = build?.column_statistics.get(column.index())?;
        let bound = |bound: &Precision<_>| bound.get_value().and_then(as_i64);
        let range = KeyRange { least: bound(&column.min_value)?, greatest: bound(&column.max_value)? };
        has_bitmaps(&data_type).then_some(range)
    };
    join.on.iter().map(|(key, _)| range(key)).collect()
}

fn as_i64(value: &ScalarValue) -> Option<i64> {
    match value.cast_to(&DataType::Int64).ok()? {
        ScalarValue::Int64(value) => value,
        _ => None,
    }
}

fn as_integer(value: &ScalarValue) -> Option<i128> {
    as_i64(value).filter(|_| value.data_type().is_integer()).map(i128::from)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn side(rows: usize, greatest: &[i64]) -> Statistics {
        let column = |&greatest: &i64| {
            ColumnStatistics::new_unknown()
                .with_min_value(Precision::Exact(ScalarValue::Int64(Some(1))))
                .with_max_value(Precision::Exact(ScalarValue::Int64(Some(greatest))))
        };
        Statistics {
            num_rows: Precision::Inexact(rows),
            total_byte_size: Precision::Absent,
            column_statistics: greatest.iter().map(column).collect(),
        }
    }

    fn on(keys: usize) -> JoinOn {
        let key = |index| Arc::new(Column::new("k", index)) as PhysicalExprRef;
        (0..keys).map(|index| (key(index), key(index))).collect()
    }

    #[test]
    fn two_keys_tell_more_than_one() {
        // Of TPC-H at scale 10, with one part in twenty.
        let (lines, supplies) =
            (side(3_000_000, &[2_000_000, 100_000]), side(8_000_000, &[2_000_000, 100_000]));
        assert_eq!(most_inner_rows(&lines, &supplies, &on(2)), Some(3_000_000));
        assert_eq!(most_inner_rows(&lines, &supplies, &on(1)), None);
    }

    #[test]
    fn few_values_have_few_combinations() {
        let (left, right) = (side(1000, &[10, 5]), side(2000, &[10, 5]));
        assert_eq!(most_inner_rows(&left, &right, &on(2)), Some(1000 * 2000 / 50));
        assert_eq!(most_inner_rows(&side(0, &[10, 5]), &right, &on(2)), Some(0));
    }
}
