//! A running statement: its result rows as a stream, and what can be learned about it while it runs.

use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray as _, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::memory::MemoryStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{Stream, TryStreamExt as _};
use tokio::time::Sleep;

use crate::cast_errors;
use crate::error::{Error, Result};
use crate::planning::output_names;
use crate::profile::Profile;
use crate::progress::{ProgressMeter, ToldShare};
use crate::tables::Stay;

/// What the rows of a result are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Rows of a query.
    Rows,
    /// One row: how many rows a statement wrote.
    RowsWritten,
    /// Lines of text: a plan.
    Text,
    /// A statement without a result.
    Nothing,
}

/// The result of one statement.
///
/// The statement runs as this stream is polled: rows of a query come as they are computed, and `INSERT`,
/// `CREATE TABLE … AS`, `COPY` and `EXPLAIN ANALYZE` do their work then, too. Dropping it cancels the
/// statement, undoes what it did, and frees its memory and temporary space.
#[must_use = "a statement does nothing until its result is read"]
pub struct Query {
    answer: Answer,
    schema: SchemaRef,
    /// None after an error: nothing computes on behind one.
    stream: Option<SendableRecordBatchStream>,
    plan: Option<Arc<dyn ExecutionPlan>>,
    told: Option<ToldShare>,
    alarm: Option<(Deadline, Pin<Box<Sleep>>)>,
    /// Of the table in memory that rows are inserted into.
    stay: Option<Stay>,
}

/// When a statement is cancelled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    pub at: Instant,
    /// The setting that it follows from.
    pub timeout: Duration,
}

impl Deadline {
    pub fn from_now(timeout: Duration) -> Option<Self> {
        // One that is beyond the clock never comes.
        Some(Deadline { at: Instant::now().checked_add(timeout)?, timeout })
    }

    /// Waits for `work`, but not beyond the deadline.
    pub async fn limit<T>(self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let ended = tokio::time::timeout_at(self.at.into(), work).await;
        ended.unwrap_or(Err(Error::TimedOut(self.timeout)))
    }
}

impl Query {
    pub(crate) fn running(
        answer: Answer,
        plan: Arc<dyn ExecutionPlan>,
        stream: SendableRecordBatchStream,
    ) -> Self {
        Query {
            answer,
            schema: output_names::without_marks(stream.schema()),
            stream: Some(stream),
            plan: Some(plan),
            told: None,
            alarm: None,
            stay: None,
        }
    }

    /// A result that is already known.
    pub(crate) fn finished(answer: Answer, batch: RecordBatch) -> Result<Self> {
        let schema = batch.schema();
        let stream = Box::pin(MemoryStream::try_new(vec![batch], Arc::clone(&schema), None)?);
        Ok(Query { answer, schema, stream: Some(stream), plan: None, told: None, alarm: None, stay: None })
    }

    /// A result that is already known, given as named columns.
    pub(crate) fn columns(answer: Answer, columns: Vec<(&str, ArrayRef)>) -> Result<Self> {
        Self::finished(answer, RecordBatch::try_from_iter(columns)?)
    }

    /// A statement whose work is done when the result is polled, watched through `plan`.
    pub(crate) fn working(
        answer: Answer,
        schema: SchemaRef,
        plan: Option<Arc<dyn ExecutionPlan>>,
        work: impl Future<Output = Result<RecordBatch>> + Send + 'static,
    ) -> Self {
        let rows = futures::stream::once(async move { work.await.map_err(Into::into) });
        let stream = Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), rows));
        Query { answer, schema, stream: Some(stream), plan, told: None, alarm: None, stay: None }
    }

    /// As long as it is there, tables in memory stay where they are.
    pub(crate) fn staying(self, stay: Option<Stay>) -> Self {
        Query { stay, ..self }
    }

    /// Its work tells how far it has come.
    pub(crate) fn telling(self, told: ToldShare) -> Self {
        Query { told: Some(told), ..self }
    }

    /// It ends with an error if it has not ended by then.
    pub(crate) fn ending_at(self, deadline: Option<Deadline>) -> Self {
        let alarm =
            deadline.map(|deadline| (deadline, Box::pin(tokio::time::sleep_until(deadline.at.into()))));
        Query { alarm, ..self }
    }

    pub(crate) fn nothing() -> Result<Self> {
        Self::finished(Answer::Nothing, RecordBatch::new_empty(Arc::new(arrow::datatypes::Schema::empty())))
    }

    /// What the rows of the result are.
    pub fn answer(&self) -> Answer {
        self.answer
    }

    /// The columns of the result.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// How far the statement has come; can be asked from another thread while the stream is polled.
    pub fn progress_meter(&self) -> ProgressMeter {
        ProgressMeter::new(self.plan.as_ref(), self.told.clone())
    }

    /// What each operator did so far.
    pub fn profile(&self) -> Option<Profile> {
        self.plan.as_ref().map(Profile::of)
    }

    /// The plan that runs, for reading its metrics after the stream is gone.
    pub fn plan(&self) -> Option<Arc<dyn ExecutionPlan>> {
        self.plan.clone()
    }

    /// Runs to the end and returns all rows. Mind the memory: nothing limits what the caller collects.
    pub async fn collect(self) -> Result<Vec<RecordBatch>> {
        self.try_collect().await
    }

    /// Runs to the end and drops the rows.
    pub async fn drain(mut self) -> Result<()> {
        while self.try_next().await?.is_some() {}
        Ok(())
    }
}

impl Stream for Query {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let query = &mut *self;
        let Some(stream) = &mut query.stream else { return Poll::Ready(None) };
        let polled = panic::catch_unwind(AssertUnwindSafe(|| stream.as_mut().poll_next(context)));
        let item = match (polled, &mut query.alarm) {
            (Err(panic), _) => Some(Err(Error::panicked(&*panic))),
            (Ok(Poll::Pending), None) => return Poll::Pending,
            (Ok(Poll::Pending), Some((deadline, sleep))) => match sleep.as_mut().poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) => Some(Err(Error::TimedOut(deadline.timeout))),
            },
            // Rows that keep coming may come for too long. Any other answer says that something has been done.
            (Ok(Poll::Ready(Some(Ok(_)))), Some((deadline, _)))
                if query.answer == Answer::Rows && Instant::now() >= deadline.at =>
            {
                Some(Err(Error::TimedOut(deadline.timeout)))
            }
            (Ok(Poll::Ready(item)), _) => item.map(|batch| {
                let batch = batch.and_then(named);
                batch.map_err(|error| cast_errors::with_columns(error.into(), query.plan.as_ref()))
            }),
        };
        if !matches!(item, Some(Ok(_))) {
            query.stream = None;
            query.stay = None;
        }
        Poll::Ready(item)
    }
}

/// A batch with the names that the columns of the result have.
fn named(batch: RecordBatch) -> datafusion::common::Result<RecordBatch> {
    let schema = output_names::without_marks(batch.schema());
    if Arc::ptr_eq(batch.schema_ref(), &schema) {
        return Ok(batch);
    }
    let (_, columns, rows) = batch.into_parts();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
}

/// The schema of [`Answer::RowsWritten`].
pub(crate) fn count_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("count", DataType::UInt64, false)]))
}

/// The row of [`Answer::RowsWritten`].
pub(crate) fn count_row(rows: u64) -> Result<RecordBatch> {
    Ok(RecordBatch::try_new(count_schema(), vec![Arc::new(UInt64Array::from(vec![rows]))])?)
}

/// The number in a batch of [`Answer::RowsWritten`].
pub(crate) fn rows_written(batch: &RecordBatch) -> u64 {
    batch.column(0).as_primitive::<UInt64Type>().values().iter().sum()
}
