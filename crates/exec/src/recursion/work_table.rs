//! The rows of the last step on their way to the recursive term.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use parking_lot::Mutex;

use crate::row_queue::RowQueue;

/// The rows of one step. The one of a plan node is never filled, and only says which scans are the node's: every
/// execution has its own.
#[derive(Default)]
pub struct WorkTable(Mutex<Option<VecDeque<RowQueue>>>);

/// Rows being read.
pub struct Reading {
    queues: VecDeque<RowQueue>,
    again: Option<Again>,
}

/// Where rows that were read wait to be read again, and the table to which all of them go back then.
struct Again {
    rows: RowQueue,
    table: Arc<WorkTable>,
}

impl WorkTable {
    /// Makes these its rows, whatever is left of those before.
    pub fn put(&self, rows: RowQueue) {
        self.put_all(VecDeque::from([rows]));
    }

    fn put_all(&self, rows: VecDeque<RowQueue>) {
        let before = self.0.lock().replace(rows);
        // What nobody has read gives its memory back without the lock.
        drop(before);
    }

    /// Begins to read the rows, which can be read again afterwards if the reader `keeps_rows`. `None` if somebody has
    /// read them.
    pub fn read(self: &Arc<Self>, keeps_rows: bool) -> Option<Reading> {
        let queues = self.0.lock().take()?;
        let first = queues.front().filter(|_| keeps_rows);
        let again = first.map(|first| Again { rows: first.another(), table: Arc::clone(self) });
        Some(Reading { queues, again })
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
        while let Some(first) = self.queues.front_mut() {
            let Some(batch) = first.pop(usize::MAX).await? else {
                self.queues.pop_front();
                continue;
            };
            if let Some(again) = &mut self.again {
                again.rows.push(batch.clone()).await?;
            }
            return Ok(Some(batch));
        }
        Ok(None)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Some(Again { rows, table }) = self.again.take() {
            // Whoever stops early leaves some that were not read.
            table.put_all(std::iter::once(rows).chain(self.queues.drain(..)).collect());
        }
    }
}
