//! What happens next inside a drive: a queue of events in the order of their times.
//!
//! Invariant: events at the same time happen in the order in which they were scheduled, so that a run repeats exactly.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::drive::Nanos;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A controller has dealt with the command in this slot.
    CommandTaken(u32),
    /// The transfer on this link has ended.
    LinkFree(u32),
    ChannelFree(u32),
    /// A die has sensed, programmed or erased.
    DieReady(u32),
    /// The command in this slot ends.
    CommandEnded(u32),
    /// Nothing may have been written for a while.
    WritesPaused,
}

pub(super) struct Events {
    queue: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    scheduled: u64,
    now: Nanos,
}

impl Events {
    pub(super) fn new() -> Self {
        Self { queue: BinaryHeap::new(), scheduled: 0, now: 0 }
    }

    pub(super) fn now(&self) -> Nanos {
        self.now
    }

    pub(super) fn schedule(&mut self, after: Nanos, event: Event) {
        self.scheduled += 1;
        self.queue.push(Reverse((self.now.saturating_add(after), self.scheduled, event)));
    }

    pub(super) fn next_at(&self) -> Option<Nanos> {
        self.queue.peek().map(|Reverse((at, ..))| *at)
    }

    /// Goes on to the next event that is no later than `until`.
    pub(super) fn next(&mut self, until: Nanos) -> Option<Event> {
        if self.next_at()? > until {
            return None;
        }
        let Reverse((at, _, event)) = self.queue.pop()?;
        self.now = at;
        Some(event)
    }

    /// Lets time pass in which nothing happens.
    pub(super) fn pass(&mut self, until: Nanos) {
        self.now = self.now.max(until);
    }
}
