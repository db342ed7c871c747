//! Inputs that do as they are told: end, fail or wait in the middle.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::StreamExt;
use tokio::sync::Semaphore;

use super::tables::Table;

/// How the stream of a [`ScriptedInput`] ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// As streams do.
    Complete,
    /// With this error.
    Error(&'static str),
}

/// Counts what an input has given, and holds it back.
#[derive(Debug)]
pub struct Tap {
    /// Batches that may pass.
    pub allowed: Semaphore,
    /// Batches that were asked for, the one being waited for included.
    pub asked: AtomicUsize,
}

impl Tap {
    /// A tap through which everything flows.
    pub fn open() -> Arc<Self> {
        Self::after(Semaphore::MAX_PERMITS)
    }

    /// A tap that closes after so many batches.
    pub fn after(batches: usize) -> Arc<Self> {
        Arc::new(Self { allowed: Semaphore::new(batches), asked: AtomicUsize::new(0) })
    }

    /// Lets all others through.
    pub fn release(&self) {
        self.allowed.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    /// Waits until all batches that may pass have passed and been worked on: another is asked for, and for a
    /// while nothing else is.
    pub async fn runs_dry(&self) {
        let asked = || self.asked.load(Ordering::SeqCst);
        loop {
            let before = asked();
            tokio::time::sleep(Duration::from_millis(20)).await;
            if before > 0 && asked() == before && self.allowed.available_permits() == 0 {
                return;
            }
        }
    }
}

/// One partition of an input that follows a script.
struct ScriptedInput {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    ending: Ending,
    tap: Arc<Tap>,
}

impl fmt::Debug for ScriptedInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedInput").field("ending", &self.ending).finish_non_exhaustive()
    }
}

impl PartitionStream for ScriptedInput {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let tap = Arc::clone(&self.tap);
        let batches = futures::stream::iter(self.batches.clone()).then(move |batch| {
            let tap = Arc::clone(&tap);
            async move {
                tap.asked.fetch_add(1, Ordering::SeqCst);
                tap.allowed.acquire().await.expect("an open tap").forget();
                // Inputs that are always ready would never let other tasks of the same thread run.
                tokio::task::yield_now().await;
                Ok(batch)
            }
        });
        let ending = self.ending;
        let end = futures::stream::once(async move {
            match ending {
                Ending::Complete => None,
                Ending::Error(message) => Some(Err(DataFusionError::Execution(message.to_owned()))),
            }
        });
        let stream = batches.map(Some).chain(end).filter_map(std::future::ready);
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), stream))
    }
}

/// A scan of `table` dealt to `partitions`, each of which ends as `ending` says; `tap` serves all of them.
pub fn scripted(table: &Table, partitions: usize, ending: Ending, tap: &Arc<Tap>) -> Arc<dyn ExecutionPlan> {
    scan(table, partitions, ending, tap, None)
}

/// A scan of `table` in one partition, whose rows come in an order that is known.
pub fn in_order(table: &Table, ordering: LexOrdering, tap: &Arc<Tap>) -> Arc<dyn ExecutionPlan> {
    sorted(table, 1, ordering, Ending::Complete, tap)
}

/// A scan of `table` dealt to `partitions`, of which each is known to be in order.
pub fn sorted(
    table: &Table,
    partitions: usize,
    ordering: LexOrdering,
    ending: Ending,
    tap: &Arc<Tap>,
) -> Arc<dyn ExecutionPlan> {
    scan(table, partitions, ending, tap, Some(ordering))
}

fn scan(
    table: &Table,
    partitions: usize,
    ending: Ending,
    tap: &Arc<Tap>,
    ordering: Option<LexOrdering>,
) -> Arc<dyn ExecutionPlan> {
    let streams: Vec<Arc<dyn PartitionStream>> = table
        .deal(partitions)
        .into_iter()
        .map(|batches| {
            let schema = Arc::clone(&table.schema);
            Arc::new(ScriptedInput { schema, batches, ending, tap: Arc::clone(tap) })
                as Arc<dyn PartitionStream>
        })
        .collect();
    let scan = StreamingTableExec::try_new(Arc::clone(&table.schema), streams, None, ordering, false, None);
    Arc::new(scan.expect("a scan"))
}
