//! Reading pages: one by the thread that wants it, or several, begun together, which any thread that wants one of them may end.
//!
//! Frames are taken before the reads begin and belong to no page until these end: nobody waits with a latch for the device.

#![allow(clippy::indexing_slicing, reason = "a batch has the requests that were submitted")]

use std::sync::Arc;

use nandina_device::{AlignedBuffer, Batch, Completion};

use super::BufferPool;
use crate::error::Result;
use crate::page::{self, PageId};
use crate::shape;
use crate::sync::Mutex;
use crate::tier::Access;

/// Reads that were begun together.
pub struct Pending {
    reads: Mutex<Reads>,
}

struct Reads {
    /// `None` once all have ended.
    batch: Option<Batch>,
    /// In the order of the batch's requests; `None` where a read has ended.
    pages: Vec<Option<(PageId, u32)>>,
    access: Access,
}

impl BufferPool {
    /// Begins to read those of the pages that are neither in memory nor being read, into frames that nobody uses.
    pub(super) fn begin_reads(&self, pages: &[PageId], access: Access, mut frames: Vec<u32>) -> Arc<Pending> {
        let reads = Reads { batch: None, pages: Vec::new(), access };
        let pending = Arc::new(Pending { reads: Mutex::new(reads) });
        // A thread that finds one of these pages pending waits for this lock until the reads have begun.
        let mut reads = pending.reads.lock();
        let mut requests = Vec::with_capacity(pages.len());
        for &page in pages {
            let mut shard = self.table.lock(page);
            let is_there = self.table.find_locked(&self.frames, &shard, page).is_some()
                || shard.pending.contains_key(&page);
            if is_there {
                continue;
            }
            let Some(frame) = frames.pop() else { unreachable!("there is a frame for each page") };
            shard.pending.insert(page, Arc::clone(&pending));
            drop(shard);
            let buffer = self.frames[frame as usize].take().take_bytes(&self.device, self.page_bytes);
            reads.pages.push(Some((page, frame)));
            requests.push((page, buffer));
        }
        self.free_frames(frames);
        if !requests.is_empty() {
            reads.batch = Some(self.tier.read(requests));
        }
        drop(reads);
        pending
    }

    /// Reads a page into a frame that nobody uses, unless it is in memory or being read already.
    pub(super) fn read_one(&self, page: PageId, access: Access, frame: u32) -> Result<()> {
        let pages = vec![Some((page, frame))];
        let pending = Arc::new(Pending { reads: Mutex::new(Reads { batch: None, pages, access }) });
        // Threads that find the page pending wait for this lock until it has been read.
        let mut reads = pending.reads.lock();
        let mut shard = self.table.lock(page);
        if self.table.find_locked(&self.frames, &shard, page).is_some() || shard.pending.contains_key(&page) {
            drop(shard);
            self.free_frames(vec![frame]);
            return Ok(());
        }
        shard.pending.insert(page, Arc::clone(&pending));
        drop(shard);
        let buffer = self.frames[frame as usize].take().take_bytes(&self.device, self.page_bytes);
        match self.tier.read_one(page, buffer) {
            Ok(buffer) => self.take_in(&mut reads, 0, buffer),
            Err(source) => {
                self.give_up(&mut reads);
                Err(self.tier.read_error(source))
            }
        }
    }

    /// Waits for one page, if it is among these reads, and takes in whatever has ended.
    pub(super) fn end_reads(&self, pending: &Pending, wanted: PageId) -> Result<()> {
        let mut reads = pending.reads.lock();
        let is_alone = reads.pages.len() == 1;
        let has = |reads: &Reads| reads.pages.iter().flatten().any(|(page, _)| *page == wanted);
        while has(&reads) {
            let Some(ended) = reads.batch.as_mut().and_then(Batch::next_blocking) else {
                unreachable!("every page has a read")
            };
            let (index, completion) = match ended {
                Ok(ended) => ended,
                // Which one failed is not told. Each who wants one of them reads it again, alone.
                Err(source) => {
                    self.give_up(&mut reads);
                    return if is_alone { Err(self.tier.read_error(source)) } else { Ok(()) };
                }
            };
            let taken = self.take_in(&mut reads, index, read_buffer(completion));
            if is_alone {
                taken?;
            }
        }
        self.take_in_ended(&mut reads);
        Ok(())
    }

    /// Takes in what has ended, without waiting.
    fn take_in_ended(&self, reads: &mut Reads) {
        while let Some(ended) = reads.batch.as_mut().and_then(Batch::try_next) {
            match ended {
                // A damaged page is reported to those who want it.
                Ok((index, completion)) => drop(self.take_in(reads, index, read_buffer(completion))),
                Err(_) => self.give_up(reads),
            }
        }
    }

    /// Whether all of these reads have ended; takes in those that have.
    pub(super) fn has_ended(&self, pending: &Pending) -> bool {
        pending.reads.try_lock().is_some_and(|mut reads| {
            self.take_in_ended(&mut reads);
            reads.pages.iter().all(Option::is_none)
        })
    }

    /// Waits for all of these reads.
    pub(super) fn end_all_reads(&self, pending: &Pending) {
        let mut reads = pending.reads.lock();
        while let Some(ended) = reads.batch.as_mut().and_then(Batch::next_blocking) {
            match ended {
                Ok((index, completion)) => drop(self.take_in(&mut reads, index, read_buffer(completion))),
                Err(_) => return self.give_up(&mut reads),
            }
        }
        reads.batch = None;
    }

    /// Puts a page that was read into its frame.
    fn take_in(&self, reads: &mut Reads, index: usize, buffer: AlignedBuffer) -> Result<()> {
        let ended = reads.pages.get_mut(index).and_then(Option::take);
        let Some((page, number)) = ended else { unreachable!("a read ends once") };
        let frame = &self.frames[number as usize];
        let mut content = frame.take();
        let found = page::verify(&buffer);
        let fault = found.and_then(|_| shape::fault(&buffer));
        content.bytes = buffer;
        let mut shard = self.table.lock(page);
        shard.pending.remove(&page);
        if found != Some(page) || fault.is_some() {
            drop((shard, content));
            self.free_frames(vec![number]);
            let reason = match (found, fault) {
                (None, _) => "its checksum is not that of its content",
                (_, Some(fault)) => fault,
                _ => "another page is in its place",
            };
            return Err(self.tier.damaged(page, reason));
        }
        let latched = frame.set(content, page, reads.access);
        self.table.insert(&self.frames, &shard, page, number);
        drop((shard, latched));
        self.replacement.lock().admit(number, page);
        Ok(())
    }

    fn give_up(&self, reads: &mut Reads) {
        // Dropping the batch leaves the buffers of reads in flight to the device; the frames get others.
        reads.batch = None;
        let mut frames = Vec::new();
        for (page, frame) in reads.pages.drain(..).flatten() {
            self.table.lock(page).pending.remove(&page);
            frames.push(frame);
        }
        self.free_frames(frames);
    }
}

fn read_buffer(completion: Completion) -> AlignedBuffer {
    let Some(buffer) = completion.into_buffer() else { unreachable!("a read ends with its buffer") };
    buffer
}
