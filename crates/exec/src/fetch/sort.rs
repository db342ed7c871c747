//! The rest of an input in the order of its row ids.

use std::sync::Arc;

use arrow::compute::SortOptions;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt as _;

use super::exec::FetchedTable;
use crate::sort::{SortMetrics, SortSpec, SortState, sorted};
use crate::spill::operator_space;

/// Reads of pages by all partitions, in multiples of the table's, after which the rest is sorted. Ids that come in the order of
/// the table read each page once, and some of them twice where windows meet.
const MOST_READS: f64 = 1.5;
/// Reads that are too few to say anything.
const LEAST_READS: f64 = 256.0;

/// Sorts what is left of an input once pages of a table have been read too often.
pub(super) struct SortByRowId {
    column: usize,
    table_pages: f64,
    context: Arc<TaskContext>,
    metrics: ExecutionPlanMetricsSet,
    partition: usize,
    sorts: Count,
}

impl SortByRowId {
    pub fn new(
        tables: &[FetchedTable],
        metrics: &ExecutionPlanMetricsSet,
        partition: usize,
        context: &Arc<TaskContext>,
    ) -> Result<Self> {
        let [fetched] = tables else { return internal_err!("rows can be in the order of one table") };
        Ok(Self {
            column: fetched.row_ids,
            table_pages: fetched.table.pages() as f64,
            context: Arc::clone(context),
            metrics: metrics.clone(),
            partition,
            sorts: MetricBuilder::new(metrics).counter("sorts_by_row_id", partition),
        })
    }

    /// Whether so many reads of pages are more than sorting would have made.
    pub fn pays_after(&self, page_reads: u64) -> bool {
        page_reads as f64 > (self.table_pages * MOST_READS).max(LEAST_READS)
    }

    /// `rest` in the order of the row ids; as it is if it has columns that cannot be spilled.
    pub fn sorted(&self, rest: SendableRecordBatchStream) -> Result<SendableRecordBatchStream> {
        let schema = rest.schema();
        let row_ids = Arc::new(Column::new(schema.field(self.column).name(), self.column));
        let Some(order) = LexOrdering::new([PhysicalSortExpr::new(row_ids, SortOptions::default())]) else {
            return internal_err!("an order by nothing");
        };
        let batch_rows = self.context.session_config().batch_size();
        let spec = match SortSpec::try_new(order, Arc::clone(&schema), batch_rows, None) {
            Ok(spec) => Arc::new(spec),
            Err(reason) => {
                log::debug!("row ids are fetched as they come: {reason}");
                return Ok(rest);
            }
        };
        self.sorts.add(1);
        let space = operator_space(&self.context, "fetch")?;
        // Its rows are counted when they have been fetched for.
        let metrics = SortMetrics::without_rows(&self.metrics, self.partition);
        let state = SortState::new(spec, self.context.memory_pool(), space, None, metrics);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, sorted(state, vec![rest]).boxed())))
    }
}
