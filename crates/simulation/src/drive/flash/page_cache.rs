//! Pages that the controller remembers of sequential runs of reads, so that small reads sense each page once.
//!
//! Invariant: a page that is being sensed is in the list as well, not `here` yet, and reads may wait for it.

use std::collections::VecDeque;

/// Runs told apart. Drives follow a handful.
const RUNS: usize = 8;

pub(super) struct PageCache {
    limit: usize,
    /// Last used first.
    pages: VecDeque<Cached>,
    /// Reads that wait for a page: page, slot, bytes.
    joined: Vec<(u32, u32, u64)>,
    /// Sectors at which runs would go on, last used first.
    runs: VecDeque<u32>,
}

#[derive(Clone, Copy)]
struct Cached {
    page: u32,
    here: bool,
}

pub(super) enum Lookup {
    Here,
    Coming,
    Missing,
}

impl PageCache {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, pages: VecDeque::new(), joined: Vec::new(), runs: VecDeque::new() }
    }

    pub(super) fn is_used(&self) -> bool {
        self.limit > 0
    }

    /// Notes a read and says whether it continues another.
    pub(super) fn continues_run(&mut self, first: u32, end: u32) -> bool {
        if !self.is_used() {
            return false;
        }
        let run = self.runs.iter().position(|&next| next == first);
        if let Some(run) = run {
            self.runs.remove(run);
        } else {
            self.runs.truncate(RUNS - 1);
        }
        self.runs.push_front(end);
        run.is_some()
    }

    pub(super) fn look_up(&mut self, page: u32) -> Lookup {
        let Some(at) = self.pages.iter().position(|cached| cached.page == page) else {
            return Lookup::Missing;
        };
        let Some(cached) = self.pages.remove(at) else { return Lookup::Missing };
        self.pages.push_front(cached);
        if cached.here { Lookup::Here } else { Lookup::Coming }
    }

    pub(super) fn contains(&self, page: u32) -> bool {
        self.pages.iter().any(|cached| cached.page == page)
    }

    /// The page is about to be sensed.
    pub(super) fn expect(&mut self, page: u32) {
        self.pages.truncate(self.limit.saturating_sub(1));
        self.pages.push_front(Cached { page, here: false });
    }

    pub(super) fn join(&mut self, page: u32, slot: u32, bytes: u64) {
        self.joined.push((page, slot, bytes));
    }

    /// The page has been sensed; the reads that waited for it are added to `joined` as slot and bytes.
    pub(super) fn arrive(&mut self, page: u32, joined: &mut Vec<(u32, u64)>) {
        if let Some(cached) = self.pages.iter_mut().find(|cached| cached.page == page) {
            cached.here = true;
        }
        self.joined.retain(|&(of, slot, bytes)| {
            if of == page {
                joined.push((slot, bytes));
            }
            of != page
        });
    }

    /// Other sectors come to lie in the page.
    pub(super) fn forget(&mut self, page: u32) {
        self.pages.retain(|cached| cached.page != page || !cached.here);
    }
}
