//! Functions that follow from a place and the number of rows of the partition: `ntile`, `percent_rank`, `cume_dist`.
//!
//! The place of a row is known as it comes, or when its last peer has come, and waits with it in the queue; the number of
//! rows is one value per partition. Nothing else has to be in memory. Definitions are those of the SQL standard (ISO/IEC 9075-2, window
//! functions).

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema, SchemaRef, UInt64Type};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::functions_window::cume_dist::cume_dist_udwf;
use datafusion::functions_window::ntile::ntile_udwf;
use datafusion::functions_window::rank::{percent_rank_udwf, rank_udwf};
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::{WindowFunctionDefinition, WindowUDF};
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_plan::windows::create_window_expr;

use super::cumulative::Cumulative;
use super::expression::standard_function;
use super::running::Running;

/// A function of the place of a row and of the number of rows.
#[derive(Clone, Debug)]
pub struct OfCount {
    /// Which running function computes the place.
    pub place: usize,
    formula: Formula,
}

#[derive(Clone, Copy, Debug)]
enum Formula {
    /// Of the row's number: which of so many buckets it falls into.
    Ntile(u64),
    /// Of the row's rank.
    PercentRank,
    /// Of the number of rows up to the last of the row's peers.
    CumeDist,
}

impl OfCount {
    /// If `expression` is such a function: that, and the running function, to be the `place`-th, of rows of `schema`.
    pub fn of(
        expression: &Arc<dyn WindowExpr>,
        place: usize,
        schema: &SchemaRef,
    ) -> Result<Option<(Self, Running)>> {
        let Some(function) = standard_function(expression.as_ref()) else { return Ok(None) };
        let (formula, running) = if **function == *ntile_udwf() {
            let Some(buckets) = buckets(expression.as_ref())? else { return Ok(None) };
            (
                Formula::Ntile(buckets),
                Running::Streamed(place_of(expression.as_ref(), row_number_udwf(), schema)?),
            )
        } else if expression.order_by().is_empty() {
            // All rows are peers: such functions are constants, and not worth a formula.
            return Ok(None);
        } else if **function == *percent_rank_udwf() {
            (Formula::PercentRank, Running::Streamed(place_of(expression.as_ref(), rank_udwf(), schema)?))
        } else if **function == *cume_dist_udwf() {
            (Formula::CumeDist, Running::Cumulative(Cumulative::rows_up_to_peers(expression.as_ref())))
        } else {
            return Ok(None);
        };
        Ok(Some((Self { place, formula }, running)))
    }

    /// The results of rows at `places` in partitions of `counts` rows.
    pub fn results(&self, places: &ArrayRef, counts: &ArrayRef) -> Result<ArrayRef> {
        let places = cast(places, &DataType::UInt64)?;
        let both = places.as_primitive::<UInt64Type>().values().iter().copied();
        let both = both.zip(counts.as_primitive::<UInt64Type>().values().iter().copied());
        Ok(match self.formula {
            Formula::Ntile(buckets) => Arc::new(UInt64Array::from_iter_values(
                both.map(|(number, count)| bucket(number.saturating_sub(1), count, buckets)),
            )),
            Formula::PercentRank => Arc::new(Float64Array::from_iter_values(
                both.map(|(rank, count)| (rank as f64 - 1.0) / (count as f64 - 1.0).max(1.0)),
            )),
            Formula::CumeDist => {
                Arc::new(Float64Array::from_iter_values(both.map(|(upto, count)| upto as f64 / count as f64)))
            }
        })
    }
}

/// The function that tells a row's place in the window of `expression`.
fn place_of(
    expression: &dyn WindowExpr,
    function: Arc<WindowUDF>,
    schema: &SchemaRef,
) -> Result<Arc<dyn WindowExpr>> {
    create_window_expr(
        &WindowFunctionDefinition::WindowUDF(function),
        format!("place of {}", expression.name()),
        &[],
        expression.partition_by(),
        expression.order_by(),
        Arc::clone(expression.get_window_frame()),
        Arc::clone(schema),
        false,
        false,
        None,
    )
}

/// Into which of `buckets` the row with `rows_before` it falls. The first ones have a row more if they cannot have
/// equally many.
fn bucket(rows_before: u64, count: u64, buckets: u64) -> u64 {
    let (least, larger) = (count / buckets, count % buckets);
    let rows_in_larger = larger * (least + 1);
    if rows_before < rows_in_larger {
        rows_before / (least + 1) + 1
    } else {
        larger + (rows_before - rows_in_larger) / least.max(1) + 1
    }
}

/// The number of buckets of `ntile`, if it is a constant.
fn buckets(expression: &dyn WindowExpr) -> Result<Option<u64>> {
    let Some(argument) = expression.expressions().into_iter().next() else { return Ok(None) };
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options)?;
    let Ok(value) = argument.evaluate(&row) else { return Ok(None) };
    let value = ScalarValue::try_from_array(value.into_array(1)?.as_ref(), 0)?;
    match value.cast_to(&DataType::UInt64) {
        Ok(ScalarValue::UInt64(buckets)) => Ok(buckets.filter(|buckets| *buckets > 0)),
        // The function itself has the message for it.
        Ok(_) | Err(DataFusionError::ArrowError(..)) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_differ_by_a_row_at_most() {
        for (count, buckets, sizes) in [(10, 4, vec![3, 3, 2, 2]), (3, 5, vec![1, 1, 1]), (8, 2, vec![4, 4])]
        {
            let mut found = vec![0; sizes.len()];
            for row in 0..count {
                found[bucket(row, count, buckets) as usize - 1] += 1;
            }
            assert_eq!(found, sizes, "{count} rows in {buckets} buckets");
        }
    }
}
