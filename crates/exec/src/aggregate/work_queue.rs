//! The work that remains when all input has been consumed, shared by all outputs.
//!
//! A consumer may poll the outputs one after the other. An output therefore waits for others only as long as any of
//! them makes progress; otherwise it leaves, and the output that splits a partition merges the pieces.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::groups::Results;
use super::stored_partition::StoredPartition;
use crate::execution::Progress;
use crate::memory::HeldMemory;

/// A piece of the remaining work.
pub enum Work {
    /// Results that only have to be emitted, and their memory.
    Results(Results, HeldMemory),
    Merge(Merge),
}

/// Partitions whose groups are to be merged in one table.
pub struct Merge {
    pub partitions: Vec<StoredPartition>,
    /// Bits of the hash, from the top, by which their groups have been scattered.
    pub used_bits: u32,
}

impl Merge {
    fn resident_bytes(&self) -> usize {
        self.partitions.iter().map(|partition| partition.memory.bytes()).sum()
    }
}

/// The work that no output has taken yet.
#[derive(Default)]
pub struct WorkQueue {
    queue: Mutex<Queue>,
    changed: Notify,
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    /// Pieces that outputs have taken and may split.
    busy: usize,
    /// Pieces that are being written to the device and will be back.
    away: usize,
}

impl WorkQueue {
    /// Adds work, which is taken before the work queued so far: it is of deeper levels, and smaller.
    pub fn add(&self, work: Vec<Work>) {
        let mut queue = self.queue.lock();
        for piece in work.into_iter().rev() {
            queue.work.push_front(piece);
        }
        drop(queue);
        self.changed.notify_waiters();
    }

    /// The next piece of work; waits while another output may still split one into several.
    pub async fn take(self: &Arc<Self>, progress: &Progress) -> Option<(Work, Busy)> {
        loop {
            let changed = self.changed.notified();
            let away = {
                let mut queue = self.queue.lock();
                if let Some(work) = queue.work.pop_front() {
                    queue.busy += 1;
                    return Some((work, Busy(Arc::clone(self))));
                }
                if queue.busy + queue.away == 0 {
                    return None;
                }
                queue.away > 0
            };
            if away {
                changed.await;
            } else if !progress.wait_for(changed).await {
                return None;
            }
        }
    }

    /// Bytes of resident pages that no output works on.
    pub fn resident_bytes(&self) -> usize {
        let Some(queue) = self.queue.try_lock() else { return 0 };
        queue.merges().map(|(_, bytes)| bytes).sum()
    }

    /// Takes out the piece of work with most resident pages, to be put back.
    pub fn take_largest(&self) -> Option<Merge> {
        let mut queue = self.queue.lock();
        let (at, _) = queue.merges().filter(|(_, bytes)| *bytes > 0).max_by_key(|(_, bytes)| *bytes)?;
        match queue.work.remove(at)? {
            Work::Merge(merge) => {
                queue.away += 1;
                Some(merge)
            }
            other @ Work::Results(..) => {
                queue.work.push_front(other);
                None
            }
        }
    }

    /// Puts back, behind all other work, what [`WorkQueue::take_largest`] took out.
    pub fn put_back(&self, merge: Merge) {
        let mut queue = self.queue.lock();
        queue.away -= 1;
        queue.work.push_back(Work::Merge(merge));
        drop(queue);
        self.changed.notify_waiters();
    }
}

impl Queue {
    /// Where partitions to be merged stand, and the bytes of their resident pages.
    fn merges(&self) -> impl Iterator<Item = (usize, usize)> {
        self.work.iter().enumerate().filter_map(|(at, work)| match work {
            Work::Merge(merge) => Some((at, merge.resident_bytes())),
            Work::Results(..) => None,
        })
    }
}

/// Marks a piece of work as being worked on.
pub struct Busy(Arc<WorkQueue>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.queue.lock().busy -= 1;
        self.0.changed.notify_waiters();
    }
}
