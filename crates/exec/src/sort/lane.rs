//! Consuming one input: its rows are kept with their keys until the input ends, or until others need the memory.
//!
//! ```text
//!   batch ─► behind the threshold? ─► keys ─► room? ─► open chunk ─► sorted chunks
//!                  dropped                      │ no
//!                                               ▼
//!                              all chunks, sorted, as one run on the device
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use nandina_device::block_on;
use parking_lot::Mutex;

use super::chunk::{Chunk, key_bytes, sorted_if_wide};
use super::run_sink::write_run;
use super::state::SortState;
use crate::batch::compact;
use crate::memory::{HeldMemory, MemoryGovernor, Reclaim, ReclaimHandle, portion_rows};

/// Rows of a chunk: sorting as many takes a fraction of a second, which is how long a query that is cancelled may go on.
const CHUNK_ROWS: usize = 4 << 20;
/// Up to so many wanted rows, the best are found again with every batch. If more are wanted, when half as many others
/// have come.
const FEW_ROWS: usize = 8 << 10;

/// The rows of one input.
pub struct Lane {
    state: Arc<SortState>,
    held: Mutex<Held>,
    memory: HeldMemory,
    /// Bytes of all chunks, readable without the lock.
    held_bytes: AtomicUsize,
    reclaim: Mutex<Option<ReclaimHandle>>,
    /// Held while another thread writes rows of this lane, which goes on with its input meanwhile.
    reclaiming: Mutex<()>,
}

/// Rows in memory.
#[derive(Default)]
struct Held {
    sorted: Vec<Arc<Chunk>>,
    open: Chunk,
}

impl Lane {
    /// An empty lane, which gives memory back when others ask for it.
    pub fn new(state: &Arc<SortState>) -> Arc<Self> {
        let lane = Arc::new(Self {
            state: Arc::clone(state),
            held: Mutex::default(),
            memory: state.another_reservation(),
            held_bytes: AtomicUsize::new(0),
            reclaim: Mutex::new(None),
            reclaiming: Mutex::new(()),
        });
        *lane.reclaim.lock() = MemoryGovernor::register_reclaimer(&state.pool, Arc::<Self>::downgrade(&lane));
        lane
    }

    /// Consumes all rows that may be wanted.
    pub async fn consume(&self, mut input: SendableRecordBatchStream) -> Result<()> {
        while let Some(batch) = input.next().await {
            let batch = self.state.spec.volatile.add(batch?)?;
            let portion_rows = portion_rows(&batch, self.state.memory_limit);
            for first in (0..batch.num_rows()).step_by(portion_rows) {
                let portion = batch.slice(first, portion_rows.min(batch.num_rows() - first));
                self.take_portion(portion).await?;
            }
            if let Some(threshold) = &self.state.threshold
                && threshold.ends_behind(&batch)?
            {
                break;
            }
        }
        drop(input);
        let _timer = self.state.metrics.baseline.elapsed_compute().timer();
        self.sort_open(&mut self.held.lock())
    }

    async fn take_portion(&self, portion: RecordBatch) -> Result<()> {
        let timer = self.state.metrics.baseline.elapsed_compute().timer();
        let (rows, keys) = match &self.state.threshold {
            Some(threshold) => threshold.candidates(portion)?,
            None => {
                let keys = self.state.spec.keys(&portion)?;
                (portion, keys)
            }
        };
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let (rows, keys) = sorted_if_wide(rows, keys, &self.state.spec)?;
        let (rows, bytes) = compact(rows)?;
        let keys = self.state.spec.keys_of_copy(keys, &rows)?;
        drop(timer);
        let has_room = self.make_room(bytes + key_bytes(&keys)).await?;
        let is_full = {
            let mut held = self.held.lock();
            held.open.push(rows, bytes, keys);
            self.held_bytes.store(held.bytes(), Ordering::Relaxed);
            let most_rows = match self.state.spec.fetch {
                Some(wanted) if wanted <= FEW_ROWS => wanted,
                Some(wanted) => wanted.saturating_add(wanted / 2),
                None => CHUNK_ROWS,
            };
            held.open.len() > most_rows
        };
        if !has_room {
            return self.spill().await;
        }
        match self.state.spec.fetch {
            Some(wanted) if is_full => self.keep_best(wanted).await,
            None if is_full => {
                let _timer = self.state.metrics.baseline.elapsed_compute().timer();
                self.sort_open(&mut self.held.lock())
            }
            _ => Ok(()),
        }
    }

    /// Reserves `bytes`, spilling if need be. False if that did not make enough room: the bytes reserved beyond it are
    /// in memory as part of a batch already, and go to the device next.
    async fn make_room(&self, bytes: usize) -> Result<bool> {
        if self.memory.try_grow(bytes) {
            return Ok(true);
        }
        if self.reclaiming.try_lock().is_none() {
            // Most of this lane's memory is about to be free: a run of the few rows since then would be too short.
            drop(self.reclaiming.lock());
            if self.memory.try_grow(bytes) {
                return Ok(true);
            }
        }
        self.spill().await?;
        let has_room = self.memory.try_grow(bytes);
        if !has_room {
            self.memory.grow(bytes);
        }
        Ok(has_room)
    }

    /// Ends the open chunk. If it has as many rows as are wanted, nothing behind them is any more.
    fn sort_open(&self, held: &mut Held) -> Result<()> {
        let wanted = self.state.spec.fetch;
        held.open.sort(wanted);
        let chunk = std::mem::take(&mut held.open);
        if chunk.is_empty() {
            return Ok(());
        }
        let chunk = Arc::new(chunk);
        held.sorted.push(Arc::clone(&chunk));
        match (&self.state.threshold, wanted) {
            (Some(threshold), Some(wanted)) => threshold.note(&chunk, wanted),
            _ => Ok(()),
        }
    }

    /// Copies the best rows of the open chunk and drops the others.
    async fn keep_best(&self, wanted: usize) -> Result<()> {
        let copy_bytes = {
            let held = self.held.lock();
            (held.open.bytes() as u128 * wanted as u128 / held.open.len().max(1) as u128) as usize
        };
        if !self.memory.try_grow(copy_bytes) {
            // If the governor asked this lane, nothing is left to be copied.
            return self.spill().await;
        }
        let _timer = self.state.metrics.baseline.elapsed_compute().timer();
        let mut held = self.held.lock();
        let all_bytes = held.open.bytes();
        held.open.sort(Some(wanted));
        if let Some(threshold) = &self.state.threshold {
            threshold.note(&held.open, wanted)?;
        }
        let rows = held.open.len();
        let spec = &self.state.spec;
        let best = match rows {
            0 => Chunk::default(),
            _ => held.open.copied(0, rows, spec)?,
        };
        self.memory.resize((self.memory.bytes() + best.bytes()).saturating_sub(all_bytes + copy_bytes));
        held.open = best;
        self.held_bytes.store(held.bytes(), Ordering::Relaxed);
        Ok(())
    }

    /// Writes all rows to the device.
    async fn spill(&self) -> Result<()> {
        let chunks = {
            let mut held = self.held.lock();
            self.sort_open(&mut held)?;
            self.held_bytes.store(0, Ordering::Relaxed);
            std::mem::take(&mut held.sorted)
        };
        if chunks.is_empty() {
            return Ok(());
        }
        self.state.keep_run(write_run(&self.state, &from_the_start(&chunks)).await?);
        self.memory.shrink(chunks.iter().map(|chunk| chunk.bytes()).sum());
        Ok(())
    }

    /// The chunks that are in memory, each with its memory. Nothing is given back from now on.
    pub fn finish(&self) -> Vec<(Arc<Chunk>, HeldMemory)> {
        self.reclaim.lock().take();
        // What is being written is neither here nor a run yet, and who has begun to ask must find nothing.
        let _none = self.reclaiming.lock();
        let chunks = std::mem::take(&mut self.held.lock().sorted);
        chunks.into_iter().map(|chunk| (Arc::clone(&chunk), self.memory.split(chunk.bytes()))).collect()
    }
}

fn from_the_start(chunks: &[Arc<Chunk>]) -> Vec<(Arc<Chunk>, usize)> {
    chunks.iter().map(|chunk| (Arc::clone(chunk), 0)).collect()
}

impl Held {
    fn bytes(&self) -> usize {
        self.open.bytes() + self.sorted.iter().map(|chunk| chunk.bytes()).sum::<usize>()
    }
}

impl Reclaim for Lane {
    fn reclaimable_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// The lane goes on meanwhile. If it needs memory itself, it has another lane write, or does so with the rows that have come
    /// since: all processors are busy.
    fn reclaim(&self, _bytes: usize) -> usize {
        let _reclaiming = self.reclaiming.lock();
        let mut taken = {
            let mut held = self.held.lock();
            self.held_bytes.store(0, Ordering::Relaxed);
            std::mem::take(&mut *held)
        };
        let written = self
            .sort_open(&mut taken)
            .and_then(|()| block_on(write_run(&self.state, &from_the_start(&taken.sorted))));
        match written {
            Ok(run) => {
                let bytes = taken.bytes();
                self.state.keep_run(run);
                self.memory.shrink(bytes);
                bytes
            }
            Err(error) => {
                log::warn!("a sort could not give memory back: {error}");
                let mut held = self.held.lock();
                assert!(taken.open.is_empty(), "the open chunk is sorted before it is written");
                held.sorted.append(&mut taken.sorted);
                self.held_bytes.store(held.bytes(), Ordering::Relaxed);
                0
            }
        }
    }
}
