//! The rows of the last step, as input of the recursive term.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use crate::execution::meter::inherited;
use crate::spill::RowQueue;

/// The rows of one step. The one of a plan node is never filled, and only says which scans are the node's: every
/// execution has its own.
#[derive(Default)]
pub struct WorkTable(Mutex<Option<Rows>>);

enum Rows {
    /// To be read once.
    Once(Box<RowQueue>),
    /// To be read again and again.
    Kept(Arc<KeptRows>),
}

/// Rows that go back to the end of their queue when they have been read.
struct KeptRows {
    queue: AsyncMutex<RowQueue>,
    rows: usize,
    /// Readings begun. Only the last one may turn the queue: others have been given up, perhaps in tasks that do not
    /// know it yet.
    readings: AtomicU64,
}

/// Rows being read.
pub enum Reading {
    Once(Box<RowQueue>),
    Kept {
        kept: Arc<KeptReading>,
        /// Rows still to come.
        left: usize,
    },
}

/// One reading of kept rows.
pub struct KeptReading {
    rows: Arc<KeptRows>,
    number: u64,
}

impl WorkTable {
    /// Makes these its rows, whatever is left of those before.
    pub fn put(&self, rows: RowQueue) {
        let before = self.0.lock().replace(Rows::Once(Box::new(rows)));
        // Rows that were not read give their memory back without the lock.
        drop(before);
    }

    /// Begins to read the rows, which can be read again if the reader `keeps_rows`. `None` if they have been read.
    pub fn read(&self, keeps_rows: bool) -> Option<Reading> {
        let mut table = self.0.lock();
        let kept = match table.take()? {
            Rows::Once(queue) if !keeps_rows => return Some(Reading::Once(queue)),
            Rows::Once(queue) => {
                let rows = queue.rows();
                Arc::new(KeptRows { queue: AsyncMutex::new(*queue), rows, readings: AtomicU64::new(0) })
            }
            Rows::Kept(kept) => kept,
        };
        *table = Some(Rows::Kept(Arc::clone(&kept)));
        let (left, number) = (kept.rows, kept.readings.fetch_add(1, Ordering::AcqRel) + 1);
        Some(Reading::Kept { kept: Arc::new(KeptReading { rows: kept, number }), left })
    }
}

impl fmt::Debug for WorkTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkTable").finish_non_exhaustive()
    }
}

impl Reading {
    /// The next rows; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        match self {
            Self::Once(queue) => queue.pop(usize::MAX).await,
            Self::Kept { left: 0, .. } => Ok(None),
            Self::Kept { kept, left } => {
                // In a task of its own: a reader that is given up in the middle must not take rows with it.
                let (kept, rows) = (Arc::clone(kept), *left);
                let turned = tokio::spawn(inherited(async move { kept.turn(rows).await })).await;
                let batch = turned.map_err(|error| DataFusionError::External(Box::new(error)))??;
                *left -= batch.num_rows();
                Ok(Some(batch))
            }
        }
    }
}

impl KeptReading {
    /// Up to `rows` of the first rows, which are the last ones then.
    async fn turn(&self, rows: usize) -> Result<RecordBatch> {
        let mut queue = self.rows.queue.lock().await;
        let is_current = self.rows.readings.load(Ordering::Acquire) == self.number;
        let batch = if is_current { queue.pop(rows).await? } else { None };
        let batch = batch.ok_or_else(|| {
            DataFusionError::Internal("rows of a recursion are read by two at once".to_owned())
        })?;
        queue.push(batch.clone()).await?;
        Ok(batch)
    }
}

/// The same rows under another schema of the same types. Fails if a column has nulls that may not have any there.
pub fn with_schema(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if batch.schema_ref() == schema {
        return Ok(batch);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), batch.columns().to_vec(), &options)?)
}
