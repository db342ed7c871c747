//! Writes that have ended for the host and are not on the medium.
//!
//! ```text
//!   received ─► for room ─► dirty ─► being written (jobs of the arm) ─► on the medium
//!                  in order   │
//!                             └ a write inside a dirty one takes no room and no turn of its own
//! ```
//!
//! Invariant: dirty and being written together are never more than the cache holds.

use std::collections::VecDeque;

use super::Accepted;

#[derive(Debug)]
pub(super) struct WriteCache {
    capacity_bytes: u64,
    used_bytes: u64,
    for_room: VecDeque<Accepted>,
    dirty: VecDeque<Accepted>,
    being_written: Vec<Accepted>,
}

impl WriteCache {
    /// Without capacity nothing is to be queued.
    pub(super) fn new(capacity_bytes: u64) -> Self {
        Self {
            capacity_bytes,
            used_bytes: 0,
            for_room: VecDeque::new(),
            dirty: VecDeque::new(),
            being_written: Vec::new(),
        }
    }

    pub(super) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    #[cfg(test)]
    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Whether a write waits for room.
    pub(super) fn is_full(&self) -> bool {
        !self.for_room.is_empty()
    }

    pub(super) fn queue(&mut self, accepted: Accepted) {
        self.for_room.push_back(accepted);
    }

    /// Admits the write that has waited longest, if there is room, and tells whether a dirty one absorbed it.
    pub(super) fn admit(&mut self) -> Option<(Accepted, bool)> {
        let accepted = *self.for_room.front()?;
        let inside = |dirty: &Accepted| {
            dirty.command.address <= accepted.command.address && accepted.end() <= dirty.end()
        };
        let absorbed = self.dirty.iter().any(inside);
        if !absorbed {
            if self.used_bytes + accepted.command.bytes > self.capacity_bytes {
                return None;
            }
            self.used_bytes += accepted.command.bytes;
            self.dirty.push_back(accepted);
        }
        self.for_room.pop_front();
        Some((accepted, absorbed))
    }

    /// The oldest dirty write, which the arm now takes over.
    pub(super) fn next_to_write(&mut self) -> Option<Accepted> {
        let accepted = self.dirty.pop_front()?;
        self.being_written.push(accepted);
        Some(accepted)
    }

    /// It is on the medium.
    pub(super) fn written(&mut self, accepted: &Accepted) {
        self.being_written.retain(|written| written.sequence != accepted.sequence);
        self.used_bytes = self.used_bytes.saturating_sub(accepted.command.bytes);
    }

    /// Whether one write holds the whole range.
    pub(super) fn holds(&self, address: u64, end: u64) -> bool {
        let mut writes = self.dirty.iter().chain(&self.being_written);
        writes.any(|held| held.command.address <= address && end <= held.end())
    }
}
