//! Writing changed pages back, many at once.
//!
//! Pages are copied and then written without being latched: they may be read and changed meanwhile. Of a page that was, the
//! changes since the copy count as missing on the device afterwards.

#![allow(
    clippy::indexing_slicing,
    reason = "frames are as many as when the pool was made, and images as many as copies"
)]

use super::BufferPool;
use super::frame::Copied;
use crate::error::Result;
use crate::log::Lsn;
use crate::page;
use crate::sync::atomic::Ordering;
use crate::tier::{WriteReason, WrittenPage};

/// Pages that a checkpoint writes together.
const CHECKPOINT_PAGES: usize = 256;
/// How often a checkpoint comes back to a page that somebody is changing.
const MOST_ATTEMPTS: usize = 20;

impl BufferPool {
    pub(super) fn write_victims(&self, frames: &[u32]) -> Result<()> {
        self.write_back(frames, WriteReason::Eviction).map(drop)
    }

    /// Writes all pages that were changed before `end`, by a thread that has none latched. The LSN before which no change is missing on the device then: it may
    /// be lower where pages are being changed.
    pub fn checkpoint(&self, end: Lsn) -> Result<Lsn> {
        let mut old: Vec<u32> = (0..self.frames.len() as u32)
            .filter(|frame| self.frames[*frame as usize].dirty_since().is_some_and(|since| since < end))
            .collect();
        // Neighbours are written together. A frame may get another page meanwhile: each is asked once.
        old.sort_by_cached_key(|frame| self.frames[*frame as usize].page());
        for frames in old.chunks(CHECKPOINT_PAGES) {
            let mut left = self.write_back(frames, WriteReason::Checkpoint)?;
            // Others may latch a page again and again; the next checkpoint has it then.
            for _ in 0..MOST_ATTEMPTS {
                if left.is_empty() {
                    break;
                }
                left.iter().for_each(|frame| self.frames[*frame as usize].wait_for_writer());
                left = self.write_back(&left, WriteReason::Checkpoint)?;
            }
        }
        Ok(self.durable_before())
    }

    /// The LSN before which no change of any page is missing on the device.
    pub fn durable_before(&self) -> Lsn {
        // A change marks its pages before it is appended: what comes from now on may be missed, what is before it not.
        let next = self.log.next();
        let oldest = self.frames.iter().filter_map(|frame| frame.dirty_since()).min();
        oldest.map_or(next, |oldest| oldest.min(next))
    }

    /// Writes the pages of these frames, as far as they were changed and nobody is changing them; the frames of those that
    /// somebody is.
    fn write_back(&self, frames: &[u32], reason: WriteReason) -> Result<Vec<u32>> {
        let _writing = self.writing.lock();
        let mut images = self.device.buffer(frames.len() * self.page_bytes);
        let mut pages: Vec<(u32, WrittenPage)> = Vec::with_capacity(frames.len());
        let mut latched = Vec::new();
        let mut last = Lsn::default();
        for &number in frames {
            let frame = &self.frames[number as usize];
            let at = pages.len() * self.page_bytes;
            let image = &mut images[at..at + self.page_bytes];
            match frame.copy_dirty(image) {
                Copied::Done { page, is_in_log } => {
                    last = last.max(page::lsn(image));
                    page::seal(image);
                    pages.push((number, WrittenPage { page, access: frame.access(), is_in_log }));
                }
                Copied::Clean => {}
                Copied::Latched => latched.push(number),
            }
        }
        if pages.is_empty() {
            return Ok(latched);
        }
        images.truncate(pages.len() * self.page_bytes);
        let written: Vec<WrittenPage> = pages.iter().map(|(_, page)| *page).collect();
        let outcome = self.log_until(last).and_then(|()| self.tier.write(&written, images, reason));
        for (number, _) in &pages {
            self.frames[*number as usize].written(outcome.is_ok());
        }
        outcome?;
        self.counters.written.fetch_add(pages.len() as u64, Ordering::Relaxed);
        Ok(latched)
    }

    /// Waits until the change at `lsn` is durable. Of pages that were never changed, there is none.
    fn log_until(&self, lsn: Lsn) -> Result<()> {
        if lsn == Lsn::default() { Ok(()) } else { self.log.wait_until_durable(lsn) }
    }
}
