//! One execution of a recursion: from the rows of one step to the next one.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::metrics::Count;

use super::distinct::Distinct;
use super::work_table::{WorkTable, with_schema};
use crate::spill::RowQueue;

/// A recursion that runs.
pub struct Run {
    /// The recursive term, which reads `table`.
    pub term: Arc<dyn ExecutionPlan>,
    pub table: Arc<WorkTable>,
    /// The rows that this step has found, for the next one.
    pub found: RowQueue,
    pub distinct: Option<Distinct>,
    pub schema: SchemaRef,
    pub steps: Count,
    pub context: Arc<TaskContext>,
    pub is_over: bool,
}

impl Run {
    /// Consumes rows of a term, and returns those that are rows of the recursion.
    pub async fn push(&mut self, batch: RecordBatch) -> Result<Option<RecordBatch>> {
        let batch = with_schema(batch, &self.schema)?;
        let rows = match &mut self.distinct {
            Some(distinct) => distinct.push(batch).await?,
            None => Some(batch),
        };
        self.keep(rows).await
    }

    /// Rows that turn out to be new when the step has no more; `None` if there are no more of them either.
    pub async fn next_checked(&mut self) -> Result<Option<RecordBatch>> {
        let Some(distinct) = &mut self.distinct else { return Ok(None) };
        let rows = distinct.next_checked().await?;
        self.keep(rows).await
    }

    async fn keep(&mut self, rows: Option<RecordBatch>) -> Result<Option<RecordBatch>> {
        let Some(rows) = rows.filter(|rows| rows.num_rows() > 0) else { return Ok(None) };
        self.is_over = false;
        self.found.push(rows.clone()).await?;
        Ok(Some(rows))
    }

    /// Begins the next step; `None` if the last one has found nothing.
    pub fn next_step(&mut self) -> Result<Option<SendableRecordBatchStream>> {
        if std::mem::replace(&mut self.is_over, true) {
            return Ok(None);
        }
        let next = self.found.another();
        self.table.put(std::mem::replace(&mut self.found, next));
        self.steps.add(1);
        let term = reset_plan_states(Arc::clone(&self.term))?;
        term.execute(0, Arc::clone(&self.context)).map(Some)
    }
}
