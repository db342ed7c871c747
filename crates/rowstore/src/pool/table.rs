//! Which frame has a page.
//!
//! A bucket is a chain of frames. A lookup takes no lock: a thread that follows a chain while it is changed may end in
//! another one and find nothing, and then looks again with the lock of the bucket, or may find a frame that has just got
//! another page, which the latch tells.

#![allow(clippy::indexing_slicing, reason = "frames and buckets are as many as when the table was made")]

use std::collections::HashMap;
use std::sync::Arc;

use super::frame::{Frame, NO_FRAME};
use super::reads::Pending;
use crate::page::PageId;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Mutex, MutexGuard};

const SHARDS: usize = 64;
/// So far a chain is followed without its lock: buckets are twice as many as frames, so that a longer one is rare, and
/// probably one that is being changed.
const MOST_STEPS: usize = 16;

pub struct PageTable {
    buckets: Box<[AtomicU32]>,
    shards: Box<[Mutex<Shard>]>,
    shift: u32,
}

/// What the lock of some buckets guards beside these: pages that are being read.
#[derive(Default)]
pub struct Shard {
    pub pending: HashMap<PageId, Arc<Pending>>,
}

impl PageTable {
    pub fn new(frames: usize) -> Self {
        let buckets = (2 * frames).next_power_of_two().max(SHARDS);
        Self {
            buckets: (0..buckets).map(|_| AtomicU32::new(NO_FRAME)).collect(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            shift: u64::BITS - buckets.ilog2(),
        }
    }

    fn bucket(&self, page: PageId) -> usize {
        // Fibonacci hashing: neighbours go to buckets far apart.
        (page.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    pub fn lock(&self, page: PageId) -> MutexGuard<'_, Shard> {
        self.shards[self.bucket(page) % SHARDS].lock()
    }

    /// The frame that has a page, as far as can be seen without the lock.
    pub fn find(&self, frames: &[Frame], page: PageId) -> Option<u32> {
        self.follow(frames, page, MOST_STEPS)
    }

    /// The frame that has a page.
    pub fn find_locked(&self, frames: &[Frame], _lock: &MutexGuard<'_, Shard>, page: PageId) -> Option<u32> {
        self.follow(frames, page, usize::MAX)
    }

    fn follow(&self, frames: &[Frame], page: PageId, most_steps: usize) -> Option<u32> {
        let mut next = self.buckets[self.bucket(page)].load(Ordering::Acquire);
        for _ in 0..most_steps {
            if next == NO_FRAME {
                break;
            }
            let frame = &frames[next as usize];
            if frame.page() == page {
                return Some(next);
            }
            next = frame.next.load(Ordering::Acquire);
        }
        None
    }

    /// Adds a frame, whose page no other frame has.
    pub fn insert(&self, frames: &[Frame], _lock: &MutexGuard<'_, Shard>, page: PageId, frame: u32) {
        let bucket = &self.buckets[self.bucket(page)];
        frames[frame as usize].next.store(bucket.load(Ordering::Relaxed), Ordering::Release);
        bucket.store(frame, Ordering::Release);
    }

    pub fn remove(&self, frames: &[Frame], _lock: &MutexGuard<'_, Shard>, page: PageId, frame: u32) {
        let mut link = &self.buckets[self.bucket(page)];
        loop {
            let next = link.load(Ordering::Relaxed);
            assert!(next != NO_FRAME, "a frame with a page is in its chain");
            if next == frame {
                link.store(frames[next as usize].next.load(Ordering::Relaxed), Ordering::Release);
                return;
            }
            link = &frames[next as usize].next;
        }
    }
}
