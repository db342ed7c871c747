//! Chooses batches that are small against the memory limit, also where rows are wide.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::datasource::physical_plan::{FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _};
use nandina_exec::batch::BatchRowsExec;
use nandina_exec::batch::row_width::{TEXT_BYTES, row_bytes, text_bytes};

use crate::spools::replace_operators;

/// The share of the memory limit that a batch may take. Half a dozen are in flight in every lane.
const BATCH_SHARE: usize = 32;

/// More bytes in a batch save nothing.
const MOST_BATCH_BYTES: usize = 64 << 20;

/// What the batches of all lanes, one of each, may take below a limit, however large it is: they are not reserved.
const MOST_UNRESERVED_BYTES: usize = 8 << 20;

/// Fewer rows at a time cost more than their memory is worth.
const LEAST_ROWS: usize = 16;

/// `plan`, whose operators make batches of `batch_rows` rows, with smaller ones if its widest rows ask for it.
pub fn fit_batches(
    plan: Arc<dyn ExecutionPlan>,
    batch_rows: usize,
    limit: &MemoryLimit,
) -> Result<Arc<dyn ExecutionPlan>> {
    let most_bytes = match limit {
        MemoryLimit::Finite(limit_bytes) => {
            (limit_bytes / BATCH_SHARE).min(MOST_UNRESERVED_BYTES / most_lanes(&plan)?)
        }
        _ => MOST_BATCH_BYTES,
    };
    let rows = (most_bytes / widest_row_bytes(&plan)?.max(1)).max(LEAST_ROWS);
    if rows >= batch_rows {
        return Ok(plan);
    }
    let plan = replace_operators(plan, &mut |node| with_batch_rows(node, rows))?;
    Ok(Arc::new(BatchRowsExec::new(plan, rows)))
}

/// Operators that were given a size when they were planned.
fn with_batch_rows(node: Arc<dyn ExecutionPlan>, rows: usize) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        let rows = rows.min(filter.batch_size());
        let filter = FilterExecBuilder::from(filter).with_batch_size(rows).build()?;
        return Ok(Arc::new(filter));
    }
    let scan = node.downcast_ref::<DataSourceExec>();
    let Some(config) = scan.and_then(|scan| scan.data_source().downcast_ref::<FileScanConfig>()) else {
        return Ok(node);
    };
    let rows = rows.min(config.batch_size.unwrap_or(usize::MAX));
    let config = FileScanConfigBuilder::from(config.clone()).with_batch_size(Some(rows)).build();
    Ok(DataSourceExec::from_data_source(config))
}

/// In how many partitions rows go side by side.
fn most_lanes(plan: &Arc<dyn ExecutionPlan>) -> Result<usize> {
    let mut lanes = 1;
    plan.apply(|node| {
        lanes = lanes.max(node.output_partitioning().partition_count());
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(lanes)
}

/// Bytes of the widest rows between two operators of `plan`. Texts are as long as the mean of those in the input whose
/// texts are longest: which of them a column above holds, no operator tells.
fn widest_row_bytes(plan: &Arc<dyn ExecutionPlan>) -> Result<usize> {
    let mut longest = None;
    let mut schemas = Vec::new();
    plan.apply(|node| {
        schemas.push(node.schema());
        if node.children().is_empty() {
            longest = longest.max(text_bytes_of_input(node)?);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let text_bytes = longest.unwrap_or(TEXT_BYTES);
    Ok(schemas.iter().map(|schema| row_bytes(schema, text_bytes)).max().unwrap_or(0))
}

fn text_bytes_of_input(node: &Arc<dyn ExecutionPlan>) -> Result<Option<usize>> {
    let known = StatisticsContext::new().compute(node.as_ref(), &StatisticsArgs::new())?;
    // Of files, often only the columns are known.
    let of_columns = || known.column_statistics.iter().map(|column| column.byte_size.get_value()).sum();
    let bytes: Option<usize> = known.total_byte_size.get_value().copied().or_else(of_columns);
    let (Some(&rows @ 1..), Some(bytes)) = (known.num_rows.get_value(), bytes) else { return Ok(None) };
    Ok(text_bytes(&node.schema(), bytes / rows))
}
