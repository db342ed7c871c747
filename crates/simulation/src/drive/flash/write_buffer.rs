//! Sectors between the host and flash, first come first served.
//!
//! ```text
//!   link ──► waiting: sector, sector, … ──► a page of them being programmed ──► forgotten
//!               ▲ written again: takes the place of the older one
//! ```
//!
//! Flushes divide what arrives into epochs. A flush has ended when nothing of its epoch and of those before is left.
//!
//! Invariants
//! - A sector waits at most once; `used` counts what waits, is being programmed or has been promised room.
//! - `epochs` counts, from the oldest on, the sectors of each epoch that have not been programmed; the last one is
//!   that of the sectors to come.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// A sector that has arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) sector: u32,
    /// Whose write it belongs to, by its slot.
    pub(super) slot: u32,
    /// Entries are numbered as they arrive.
    number: u64,
    epoch: u64,
}

/// Numbers of sectors spread well enough over a table by one multiplication.
#[derive(Default)]
pub(super) struct SectorHasher(u64);

impl Hasher for SectorHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(byte.into());
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }
}

/// What the buffer has of a sector.
#[derive(Default)]
struct Held {
    /// The number of the entry that waits.
    waiting: Option<u64>,
    programming: u32,
}

pub(super) struct WriteBuffer {
    /// `None`: without limit, because writes end in flash.
    capacity_sectors: Option<u64>,
    used: u64,
    waiting: usize,
    queue: VecDeque<Entry>,
    held: HashMap<u32, Held, BuildHasherDefault<SectorHasher>>,
    arrived: u64,
    /// Entries below this number are programmed even if they do not fill a page.
    urgent_below: u64,
    epochs: VecDeque<u64>,
    first_epoch: u64,
    /// Flushes that wait, with the epoch each of them ends.
    flushes: VecDeque<(u64, u32)>,
}

impl WriteBuffer {
    pub(super) fn new(capacity_sectors: Option<u64>) -> Self {
        Self {
            capacity_sectors,
            used: 0,
            waiting: 0,
            queue: VecDeque::new(),
            held: HashMap::default(),
            arrived: 0,
            urgent_below: 0,
            epochs: VecDeque::from([0]),
            first_epoch: 0,
            flushes: VecDeque::new(),
        }
    }

    pub(super) fn ends_in_flash(&self) -> bool {
        self.capacity_sectors.is_none()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Promises room for sectors that will arrive.
    pub(super) fn reserve(&mut self, sectors: u64) -> bool {
        let fits = self.capacity_sectors.is_none_or(|capacity| self.used + sectors <= capacity);
        if fits {
            self.used += sectors;
        }
        fits
    }

    /// A sector that room was promised for is here.
    pub(super) fn arrive(&mut self, sector: u32, slot: u32) {
        self.arrived += 1;
        let held = self.held.entry(sector).or_default();
        // A write that ends in flash must be there itself: the older one goes on ahead of it.
        if held.waiting.is_some() && self.capacity_sectors.is_some() {
            self.used -= 1;
            return;
        }
        if held.waiting.replace(self.arrived).is_none() {
            self.waiting += 1;
        }
        let epoch = self.first_epoch + self.epochs.len() as u64 - 1;
        self.queue.push_back(Entry { sector, slot, number: self.arrived, epoch });
        if let Some(count) = self.epochs.back_mut() {
            *count += 1;
        }
    }

    /// Sectors that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether there are sectors that wait, or did until they were trimmed.
    pub(super) fn has_entries(&self) -> bool {
        !self.queue.is_empty()
    }

    /// What waits now is not to wait for more.
    pub(super) fn hurry(&mut self) {
        self.urgent_below = self.arrived + 1;
    }

    /// Whether the next page may be programmed although it is not full.
    pub(super) fn is_urgent(&self) -> bool {
        self.queue.front().is_some_and(|entry| entry.number < self.urgent_below)
    }

    /// Takes up to a page of sectors out to be programmed. Entries that were superseded or trimmed go to `dropped`.
    pub(super) fn take(&mut self, sectors: usize, page: &mut Vec<Entry>, dropped: &mut Vec<Entry>) {
        while page.len() < sectors
            && let Some(entry) = self.queue.pop_front()
        {
            match self.held.get_mut(&entry.sector) {
                Some(held) if held.waiting == Some(entry.number) => {
                    held.waiting = None;
                    held.programming += 1;
                    self.waiting -= 1;
                    page.push(entry);
                }
                _ => {
                    self.release(entry);
                    dropped.push(entry);
                }
            }
        }
    }

    pub(super) fn programmed(&mut self, entry: Entry) {
        if let Some(held) = self.held.get_mut(&entry.sector) {
            held.programming = held.programming.saturating_sub(1);
            if held.programming == 0 && held.waiting.is_none() {
                self.held.remove(&entry.sector);
            }
        }
        self.release(entry);
    }

    fn release(&mut self, entry: Entry) {
        self.used -= 1;
        if let Some(count) = self.epochs.get_mut((entry.epoch - self.first_epoch) as usize) {
            *count -= 1;
        }
    }

    pub(super) fn holds(&self, sector: u32) -> bool {
        !self.held.is_empty() && self.held.contains_key(&sector)
    }

    /// The sector holds nothing any more.
    pub(super) fn trim(&mut self, sector: u32) {
        if self.held.is_empty() {
            return;
        }
        if let Some(held) = self.held.get_mut(&sector)
            && held.waiting.take().is_some()
        {
            self.waiting -= 1;
            if held.programming == 0 {
                self.held.remove(&sector);
            }
        }
    }

    /// A flush begins to wait; [`Self::next_flushed`] says when it has ended.
    pub(super) fn flush(&mut self, slot: u32) {
        self.flushes.push_back((self.first_epoch + self.epochs.len() as u64 - 1, slot));
        self.epochs.push_back(0);
        self.hurry();
    }

    pub(super) fn next_flushed(&mut self) -> Option<u32> {
        let &(epoch, slot) = self.flushes.front()?;
        while self.first_epoch <= epoch && self.epochs.front() == Some(&0) {
            self.epochs.pop_front();
            self.first_epoch += 1;
        }
        if self.first_epoch <= epoch {
            return None;
        }
        self.flushes.pop_front();
        Some(slot)
    }
}
