//! The buffer pool: pages in memory, as many as there are frames.
//!
//! ```text
//!   read, write ─► [page table] ─ has it ─► latch ─► PageRead, PageWrite
//!                        │ has not
//!                        ▼
//!   [free frames] ─► reads, many at once ─► frame ─► page table
//!        ▲
//!        └── victims ◄── replacement;  what was changed is written back first, many pages at once
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `frame` | memory for a page, its latch, whether it was changed |
//! | `table` | which frame has a page |
//! | `reads` | reads begun together, which any thread may end |
//! | `replacement` | which pages leave |
//! | `write_back` | changed pages, written together |
//!
//! Finding a page that is in memory takes no lock but its latch. A thread that holds latches may ask for further pages: it
//! waits for latches of others and for the device, never for a frame that another thread has latched in a place where it
//! needs none. Threads agree among each other in which order they latch pages.
//!
//! Invariants
//! - A page is in one frame at most, and is being read at most once.
//! - No page is written before the log is durable up to its last change.
//! - A page leaves memory only if it is on the device as it is in memory.

#![allow(clippy::indexing_slicing, reason = "frames are as many as when the pool was made")]

mod frame;
mod reads;
mod replacement;
mod table;
mod write_back;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nandina_device::Device;

use self::frame::Frame;
pub use self::frame::{PageRead, PageWrite};
use self::reads::Pending;
use self::replacement::Replacement;
use self::table::PageTable;
use crate::error::{Error, Result};
use crate::log::Log;
use crate::page::{self, PageId, PageKind};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, pause};
use crate::tier::{Access, PageTier};

/// The fewest frames with which an operation can latch all pages that it needs.
pub const FEWEST_FRAMES: usize = 16;
/// Pages that leave memory together. Their writes share three syncs: enough that these do not count, few enough that a thread
/// that waits for a frame does not wait long.
const MOST_VICTIMS: usize = 256;
/// Pages that are read ahead together.
const MOST_AHEAD: usize = 64;
/// So long, a thread waits for others to give pages up before it reports that the pool is too small.
const FRAME_PATIENCE: Duration = Duration::from_secs(10);

/// See the [module documentation](self).
pub struct BufferPool {
    device: Device,
    page_bytes: usize,
    tier: Arc<dyn PageTier>,
    log: Log,
    frames: Box<[Frame]>,
    table: PageTable,
    replacement: Mutex<Replacement>,
    free: Mutex<FreeFrames>,
    /// Reads that may not have ended, the oldest first.
    reading: Mutex<VecDeque<Arc<Pending>>>,
    writing: Mutex<()>,
    counters: Counters,
}

/// Frames without pages.
struct FreeFrames {
    free: Vec<u32>,
    /// Frames without memory, which come into use when the pool grows.
    spare: Vec<u32>,
    /// Frames in use, or free.
    live: usize,
    most_live: usize,
}

#[derive(Default)]
struct Counters {
    misses: AtomicU64,
    written: AtomicU64,
}

/// What a pool has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStatistics {
    /// Pages asked for that had to be read.
    pub misses: u64,
    /// Pages written back.
    pub written: u64,
}

impl BufferPool {
    /// A pool of `frames` frames, which can grow to `most_frames`. `device` gives them memory.
    pub fn new(device: Device, tier: Arc<dyn PageTier>, log: Log, frames: usize, most_frames: usize) -> Self {
        assert!(FEWEST_FRAMES <= frames && frames <= most_frames, "a pool has the fewest frames that work");
        assert!(
            u32::try_from(most_frames).is_ok_and(|most| most < u32::MAX),
            "frames are counted in 32 bits"
        );
        Self {
            page_bytes: tier.page_bytes(),
            frames: (0..most_frames).map(|_| Frame::new(device.buffer(0))).collect(),
            table: PageTable::new(most_frames),
            replacement: Mutex::default(),
            free: Mutex::new(FreeFrames {
                free: Vec::new(),
                spare: (0..most_frames as u32).rev().collect(),
                live: 0,
                most_live: frames,
            }),
            reading: Mutex::default(),
            writing: Mutex::default(),
            counters: Counters::default(),
            device,
            tier,
            log,
        }
    }

    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    pub(crate) fn tier(&self) -> &dyn PageTier {
        &*self.tier
    }

    /// Frames that may have memory.
    pub fn frames(&self) -> usize {
        self.free.lock().most_live
    }

    pub fn statistics(&self) -> PoolStatistics {
        PoolStatistics {
            misses: self.counters.misses.load(Ordering::Relaxed),
            written: self.counters.written.load(Ordering::Relaxed),
        }
    }

    /// Latches a page to read it.
    pub fn read(&self, page: PageId, access: Access) -> Result<PageRead<'_>> {
        self.latched(page, access, |frame| frame.read(page))
    }

    /// Latches a page to change it.
    pub fn write(&self, page: PageId, access: Access) -> Result<PageWrite<'_>> {
        self.latched(page, access, |frame| frame.write(page))
    }

    fn latched<'a, T>(
        &'a self,
        page: PageId,
        access: Access,
        latch: impl Fn(&'a Frame) -> Option<T>,
    ) -> Result<T> {
        loop {
            match self.table.find(&self.frames, page) {
                Some(number) => {
                    let frame = &self.frames[number as usize];
                    if let Some(latched) = latch(frame) {
                        frame.accessed(access);
                        return Ok(latched);
                    }
                }
                None => {
                    // Where others change the chain, it may be found only with the lock.
                    let frame = self.bring(page, access)?;
                    if let Some(latched) = frame.and_then(|number| latch(&self.frames[number as usize])) {
                        return Ok(latched);
                    }
                }
            }
        }
    }

    /// Latches a page that is about to be used for something new, whatever is in it; whether it was not in memory, and is
    /// empty.
    pub fn create(&self, page: PageId, kind: PageKind) -> Result<(PageWrite<'_>, bool)> {
        loop {
            let there = self.table.find_locked(&self.frames, &self.table.lock(page), page);
            if let Some(frame) = there {
                if let Some(latched) = self.frames[frame as usize].write(page) {
                    return Ok((latched, false));
                }
                continue;
            }
            let Some(number) = self.take_frames(1)?.pop() else { unreachable!("one frame was taken") };
            let frame = &self.frames[number as usize];
            let mut content = frame.take();
            let shard = self.table.lock(page);
            let pending = shard.pending.get(&page).cloned();
            if pending.is_some() || self.table.find_locked(&self.frames, &shard, page).is_some() {
                drop((shard, content));
                self.free_frames(vec![number]);
                if let Some(pending) = pending {
                    // What was there before may be anything.
                    let _ = self.end_reads(&pending, page);
                }
                continue;
            }
            content.bytes = content.take_bytes(&self.device, self.page_bytes);
            content.bytes.fill(0);
            page::format(&mut content.bytes, page, kind);
            let latched = frame.set(content, page, Access::Random);
            self.table.insert(&self.frames, &shard, page, number);
            drop(shard);
            self.replacement.lock().admit(number, page);
            return Ok((latched, true));
        }
    }

    /// Takes a page out of memory that was created and is not to be.
    pub(crate) fn discard(&self, page: PageWrite<'_>) {
        let id = page.id();
        let frame = page.frame();
        let mut content = page.into_content();
        let shard = self.table.lock(id);
        let Some(number) = self.table.find_locked(&self.frames, &shard, id) else {
            unreachable!("a page that is latched is in memory")
        };
        self.table.remove(&self.frames, &shard, id, number);
        // The frame is free as soon as its turn to leave has come.
        frame.clear(&mut content);
    }

    /// Begins to read pages that will be wanted, all at once, as far as there are frames for them that nobody has to be waited
    /// for.
    pub fn prefetch(&self, pages: &[PageId], access: Access) {
        if !self.tier.reads_many() {
            return;
        }
        let missing: Vec<PageId> =
            pages.iter().copied().filter(|page| self.table.find(&self.frames, *page).is_none()).collect();
        let most = (self.frames() / 4).max(1);
        for pages in missing.chunks(most.min(MOST_AHEAD)) {
            let frames = self.take_clean_frames(pages.len());
            let pages = &pages[..frames.len()];
            self.counters.misses.fetch_add(pages.len() as u64, Ordering::Relaxed);
            let pending = self.begin_reads(pages, access, frames);
            self.remember(pending);
        }
    }

    fn remember(&self, pending: Arc<Pending>) {
        // Pages that nobody has asked for since come into memory now, and can leave it again.
        let mut reading = self.reading.lock();
        while reading.front().is_some_and(|oldest| self.has_ended(oldest)) {
            reading.pop_front();
        }
        reading.push_back(pending);
    }

    /// Has a page read, by this thread or another one; its frame, if it is in memory already.
    fn bring(&self, page: PageId, access: Access) -> Result<Option<u32>> {
        let pending = {
            let shard = self.table.lock(page);
            let there = self.table.find_locked(&self.frames, &shard, page);
            if there.is_some() {
                return Ok(there);
            }
            shard.pending.get(&page).cloned()
        };
        match pending {
            Some(pending) => self.end_reads(&pending, page)?,
            None => {
                self.counters.misses.fetch_add(1, Ordering::Relaxed);
                let Some(frame) = self.take_frames(1)?.pop() else { unreachable!("one frame was taken") };
                self.read_one(page, access, frame)?;
            }
        }
        Ok(None)
    }

    /// Takes frames that have no page or one that need not be written: up to so many.
    fn take_clean_frames(&self, most: usize) -> Vec<u32> {
        let mut taken = self.free.lock().take_some(most);
        if taken.len() < most {
            let victims = self.replacement.lock().victims(&self.frames, most - taken.len(), false);
            self.drop_clean(victims);
            taken.extend(self.free.lock().take_some(most - taken.len()));
        }
        taken
    }

    /// Takes frames that have no page; pages leave memory for it.
    fn take_frames(&self, wanted: usize) -> Result<Vec<u32>> {
        let mut taken = Vec::with_capacity(wanted);
        let mut since = None;
        loop {
            taken.extend(self.free.lock().take_some(wanted - taken.len()));
            let missing = wanted - taken.len();
            if missing == 0 {
                return Ok(taken);
            }
            let freed = self
                .evict(missing, since.is_some())
                .inspect_err(|_| self.free_frames(std::mem::take(&mut taken)))?;
            if freed == 0 {
                self.wait_for_others(&mut since)
                    .inspect_err(|_| self.free_frames(std::mem::take(&mut taken)))?;
            } else {
                since = None;
            }
        }
    }

    /// All pages are latched or being read.
    fn wait_for_others(&self, since: &mut Option<Instant>) -> Result<()> {
        let oldest = self.reading.lock().pop_front();
        if let Some(oldest) = oldest {
            self.end_all_reads(&oldest);
            return Ok(());
        }
        if since.get_or_insert_with(Instant::now).elapsed() > FRAME_PATIENCE {
            return Err(Error::PoolTooSmall { frames: self.frames() });
        }
        pause();
        Ok(())
    }

    /// Gives frames back that have no page.
    fn free_frames(&self, frames: Vec<u32>) {
        let mut free = self.free.lock();
        for number in frames {
            if free.live > free.most_live {
                self.frames[number as usize].take().bytes = self.device.buffer(0);
                free.live -= 1;
                free.spare.push(number);
            } else {
                free.free.push(number);
            }
        }
    }

    /// Has some pages leave memory, whichever it is where those that should were in use; how many did.
    ///
    /// Those leave first that need not be written. Once there are none among the next ones, all of these are written together.
    fn evict(&self, wanted: usize, any: bool) -> Result<usize> {
        let some = wanted.max(self.frames() / 8).min(MOST_VICTIMS);
        let victims = self.replacement.lock().victims(&self.frames, some, any);
        let (dirty, clean): (Vec<u32>, Vec<u32>) =
            victims.into_iter().partition(|frame| self.frames[*frame as usize].is_dirty());
        let freed = self.drop_clean(clean);
        if freed > 0 || dirty.is_empty() {
            self.put_back(dirty);
            return Ok(freed);
        }
        let written = self.write_victims(&dirty);
        let freed = self.drop_clean(dirty);
        // A page that cannot be written is in nobody's way as long as others can leave.
        if freed == 0 { written.map(|()| 0) } else { Ok(freed) }
    }

    /// Frees the frames of pages that are not dirty and in nobody's use, and keeps the others; how many it freed.
    fn drop_clean(&self, victims: Vec<u32>) -> usize {
        let (freed, kept): (Vec<u32>, Vec<u32>) =
            victims.into_iter().partition(|number| self.drop_page(*number));
        let count = freed.len();
        self.put_back(kept);
        self.free_frames(freed);
        count
    }

    fn put_back(&self, kept: Vec<u32>) {
        let mut replacement = self.replacement.lock();
        kept.into_iter().for_each(|frame| replacement.put_back(frame));
    }

    /// Takes a page out of its frame, unless it is in use or has been changed.
    fn drop_page(&self, number: u32) -> bool {
        let frame = &self.frames[number as usize];
        let Some(mut content) = frame.try_take() else { return false };
        if frame.is_dirty() {
            return false;
        }
        let page = content.page;
        if page == PageId::NONE {
            // It was discarded.
            return true;
        }
        self.tier.evicted(page, &content.bytes, frame.access());
        let shard = self.table.lock(page);
        self.table.remove(&self.frames, &shard, page, number);
        frame.clear(&mut content);
        drop((shard, content));
        self.replacement.lock().left(page);
        true
    }

    /// Grows or shrinks the pool; pages leave memory where they have to. It may keep more frames for a while where pages are in
    /// use.
    pub fn resize(&self, frames: usize) -> Result<()> {
        let frames = frames.clamp(FEWEST_FRAMES, self.frames.len());
        let excess = {
            let mut free = self.free.lock();
            free.most_live = frames;
            free.live.saturating_sub(frames)
        };
        let idle = {
            let mut free = self.free.lock();
            let at = free.free.len().saturating_sub(excess);
            free.free.split_off(at)
        };
        let mut excess = excess - idle.len();
        self.free_frames(idle);
        while excess > 0 {
            let freed = self.evict(excess, false)?;
            if freed == 0 {
                break;
            }
            excess = excess.saturating_sub(freed);
        }
        Ok(())
    }
}

impl FreeFrames {
    fn take_some(&mut self, most: usize) -> Vec<u32> {
        std::iter::from_fn(|| self.take()).take(most).collect()
    }

    fn take(&mut self) -> Option<u32> {
        if let Some(frame) = self.free.pop() {
            return Some(frame);
        }
        if self.live < self.most_live
            && let Some(frame) = self.spare.pop()
        {
            self.live += 1;
            return Some(frame);
        }
        None
    }
}

impl std::fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BufferPool")
            .field("frames", &self.frames())
            .field("page_bytes", &self.page_bytes)
            .finish_non_exhaustive()
    }
}
