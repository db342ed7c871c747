//! What has the disk read without being asked?
//!
//! After a read the head stays where it is and reads on into a buffer. The buffer needs no events: what it holds
//! follows from the time at which the head began.
//!
//! ```text
//!     from            base ─── read at base_time ──►  position(now)            limit
//!   ───┬────────────────┬──────────────────────────────────┬─────────────────────┬───► addresses
//!      └──────────────── in the buffer ────────────────────┘  comes unless stopped┘
//! ```

use super::Nanos;
use super::geometry::Geometry;

#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    from: u64,
    base: u64,
    base_time: Nanos,
    limit: u64,
    stopped: bool,
}

impl Segment {
    /// The head arrives at `from` at `base_time` and reads until `limit`.
    pub(super) fn new(from: u64, base_time: Nanos, limit: u64) -> Self {
        Self { from, base: from, base_time, limit, stopped: false }
    }

    /// Whether the head still belongs to this segment.
    pub(super) fn is_live(&self) -> bool {
        !self.stopped
    }

    /// End of the range that has been read at `now`.
    pub(super) fn position(&self, geometry: &Geometry, now: Nanos) -> u64 {
        if self.stopped || now <= self.base_time {
            return self.base;
        }
        geometry.address_at(geometry.clock(self.base) + (now - self.base_time)).clamp(self.base, self.limit)
    }

    /// When everything before `end` has been read, if the head is left alone.
    pub(super) fn reaches(&self, geometry: &Geometry, end: u64) -> Nanos {
        self.base_time + geometry.clock_at_end(end).saturating_sub(geometry.clock(self.base))
    }

    pub(super) fn contains(&self, geometry: &Geometry, now: Nanos, address: u64, end: u64) -> bool {
        self.from <= address && end <= self.position(geometry, now)
    }

    /// Whether reading on leads through `address` without anything being left out.
    pub(super) fn continues_to(&self, geometry: &Geometry, now: Nanos, address: u64) -> bool {
        self.is_live() && self.from <= address && address <= self.position(geometry, now)
    }

    pub(super) fn overlaps(&self, address: u64, end: u64) -> bool {
        address < self.limit && self.from < end
    }

    /// Lets the head read on until `limit`, and forgets what lies before `from`. A head that had come to rest at the
    /// old limit waits until that place passes again.
    pub(super) fn extend(&mut self, geometry: &Geometry, now: Nanos, from: u64, limit: u64) {
        self.from = self.from.max(from);
        if self.stopped || limit <= self.limit {
            return;
        }
        if self.reaches(geometry, self.limit) < now {
            let before = geometry.track(self.limit.saturating_sub(1));
            let (_, switch_nanos) = geometry.seek(before, geometry.track(self.limit));
            let ready = now + switch_nanos;
            self.base = self.limit;
            self.base_time = ready + geometry.rotational_wait(ready, geometry.clock(self.limit));
        }
        self.limit = limit;
    }

    /// The head is needed elsewhere.
    pub(super) fn stop(&mut self, geometry: &Geometry, now: Nanos) {
        self.base = self.position(geometry, now);
        self.limit = self.base;
        self.stopped = true;
    }

    /// When the head begins, or began, to read on.
    pub(super) fn base_time(&self) -> Nanos {
        self.base_time
    }
}
