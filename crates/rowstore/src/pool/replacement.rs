//! Which pages leave memory: S3-FIFO (Yang et al., *FIFO Queues are All You Need for Cache Eviction*, SOSP 2023).
//!
//! ```text
//!   new ──► small (a tenth) ── used again ──► main ── used since: once more round ──┐
//!              │ not used                       ▲ ▲                                 │
//!              ▼                                │ └─────────────────────────────────┘
//!           [ghosts: which pages these were] ───┘ read again soon                   └─ not used: out
//! ```
//!
//! Pages of a scan pass through the small queue and leave the main one as it is. A use only counts in the frame: queues
//! change where pages come and go.

#![allow(clippy::indexing_slicing, reason = "frames are as many as when the pool was made")]

use std::collections::{HashSet, VecDeque};

use super::frame::Frame;
use crate::page::PageId;

/// One part in so many is for pages that were read once.
const SMALL_PART: usize = 10;

#[derive(Debug, Default)]
pub struct Replacement {
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    ghosts: Ghosts,
}

impl Replacement {
    /// A page has come into a frame.
    pub fn admit(&mut self, frame: u32, page: PageId) {
        if self.ghosts.remove(page) {
            self.main.push_back(frame);
        } else {
            self.small.push_back(frame);
        }
    }

    /// A frame whose page did not leave, since it is being used.
    pub fn put_back(&mut self, frame: u32) {
        self.main.push_back(frame);
    }

    /// Takes up to so many frames out whose pages are to leave, where `any` will do from the small queue first.
    pub fn victims(&mut self, frames: &[Frame], wanted: usize, any: bool) -> Vec<u32> {
        let mut victims = Vec::new();
        // Each page goes round as often as it was used, at most.
        let mut looks = 4 * (self.small.len() + self.main.len());
        while victims.len() < wanted && looks > 0 {
            looks -= 1;
            let is_small_full = self.small.len() * SMALL_PART >= self.small.len() + self.main.len();
            let is_from_small = is_small_full || any || self.main.is_empty();
            let from_small = if is_from_small { self.small.pop_front() } else { None };
            let (Some(frame), is_small) =
                (from_small.or_else(|| self.main.pop_front()), from_small.is_some())
            else {
                break;
            };
            match (frames[frame as usize].uses(), is_small) {
                (0, _) => victims.push(frame),
                (_, true) => {
                    frames[frame as usize].forget_uses();
                    self.main.push_back(frame);
                }
                (_, false) => {
                    frames[frame as usize].age();
                    self.main.push_back(frame);
                }
            }
        }
        victims
    }

    /// A page has left.
    pub fn left(&mut self, page: PageId) {
        self.ghosts.add(page, self.small.len() + self.main.len());
    }
}

/// Pages that were in memory not long ago.
#[derive(Debug, Default)]
struct Ghosts {
    order: VecDeque<PageId>,
    pages: HashSet<PageId>,
}

impl Ghosts {
    fn add(&mut self, page: PageId, most: usize) {
        if self.pages.insert(page) {
            self.order.push_back(page);
        }
        while self.order.len() > most.max(1) {
            if let Some(oldest) = self.order.pop_front() {
                self.pages.remove(&oldest);
            }
        }
    }

    /// Its place in the order stays: a page that comes again leaves a little earlier.
    fn remove(&mut self, page: PageId) -> bool {
        self.pages.remove(&page)
    }
}
