//! Builds the hash table of a join on the side that takes less memory.

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use nandina_exec::join::TABLE_BYTES_PER_ROW;

/// Bytes of a value whose type does not say.
const ASSUMED_VALUE_BYTES: usize = 32;

/// A side is worth changing to if it takes less than this many percent of the other.
const WORTH_PERCENT: usize = 80;

/// Exchanges the sides of a `HashJoinExec` whose right side would make the smaller table.
///
/// DataFusion compares the bytes of both inputs. A hash table has an entry for each row besides, which decides where
/// many narrow rows meet few wide ones.
#[derive(Debug)]
pub struct ChooseBuildSide;

impl PhysicalOptimizerRule for ChooseBuildSide {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let choose = |node: Arc<dyn ExecutionPlan>| match node.downcast_ref::<HashJoinExec>() {
            Some(join) if is_better_swapped(join) => {
                Ok(Transformed::yes(join.swap_inputs(PartitionMode::Auto)?))
            }
            _ => Ok(Transformed::no(node)),
        };
        plan.transform_up(choose).data()
    }

    fn name(&self) -> &str {
        "choose_build_side"
    }

    fn schema_check(&self) -> bool {
        true
    }
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
