//! On which side a join builds its hash table: where that takes less memory.

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use nandina_exec::join::TABLE_BYTES_PER_ROW;

/// Bytes of a value whose type does not say.
const ASSUMED_VALUE_BYTES: usize = 32;

/// A side is worth changing to if it takes less than this many percent of the other.
const WORTH_PERCENT: usize = 80;

/// The join with its sides exchanged, if the table over its right side would be the smaller one; a projection may have
/// to put the columns back in order.
///
/// DataFusion compares the bytes of both inputs. A hash table has an entry for each row besides, which decides where
/// many narrow rows meet few wide ones.
pub(crate) fn with_better_build_side(join: &HashJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if !is_better_swapped(join) {
        return Ok(None);
    }
    join.swap_inputs(PartitionMode::Auto).map(Some)
}

fn is_better_swapped(join: &HashJoinExec) -> bool {
    if !join.join_type().supports_swap() || join.null_aware {
        return false;
    }
    match (table_bytes(join.left()), table_bytes(join.right())) {
        (Some(left), Some(right)) => right < left / 100 * WORTH_PERCENT,
        _ => false,
    }
}

/// What the hash table over a side takes, if its number of rows can be told.
fn table_bytes(side: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    let statistics = StatisticsContext::new().compute(side.as_ref(), &StatisticsArgs::new()).ok()?;
    let rows = *statistics.num_rows.get_value()?;
    Some(rows.saturating_mul(row_bytes(&side.schema()) + TABLE_BYTES_PER_ROW))
}

fn row_bytes(schema: &Schema) -> usize {
    let width = |width: Option<usize>| width.unwrap_or(ASSUMED_VALUE_BYTES);
    schema.fields().iter().map(|field| width(field.data_type().primitive_width())).sum()
}
