//! What a process holds beside what its operators have reserved.
//!
//! Batches in flight, decoders, descriptions of files, code, and memory that the allocator keeps for later are not
//! reserved at all. Most of it follows from the query, not from the limit. Resident memory shows all of it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Resident memory is looked at so often: within this time two threads can accumulate some megabytes.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);
/// When the allocator had little to give back, it is left alone for so long.
const LEFT_ALONE: Duration = Duration::from_millis(5);
/// The share of the limit that is little.
const LITTLE_SHARE: usize = 64;
/// The share of the limit that operators do without at most for memory that is not theirs.
const MOST_SHARE: usize = 2;

/// How much memory of this process may be resident beyond the limit: for a program that has one session and does nothing
/// beside its queries.
#[derive(Clone, Copy, Debug)]
pub struct ResidentBound {
    /// Bytes beyond the limit that the program, and unreserved memory, should do with.
    pub allowed_bytes: usize,
    /// Bytes of this process that are resident now; `None` if the system does not report them.
    pub measure: fn() -> Option<u64>,
    /// Has the allocator give back what it keeps. Called when more is resident than should be.
    pub give_back: fn(),
}

/// Compares resident with reserved memory, now and then.
///
/// What the allocator keeps of memory that operators gave back is resident, too, until it is needed again or
/// returned to the system. Up to the bound it is not made to: returning all of it all the time costs more than the few rows
/// that have to be spilled for it.
#[derive(Debug)]
pub(crate) struct ResidentMeter {
    bound: ResidentBound,
    start: Instant,
    /// Since the start, in microseconds.
    next_look: AtomicU64,
    next_give_back: AtomicU64,
    pressure: AtomicUsize,
}

impl ResidentMeter {
    pub(crate) fn new(bound: ResidentBound) -> Self {
        let (next_look, next_give_back, pressure) = Default::default();
        Self { bound, start: Instant::now(), next_look, next_give_back, pressure }
    }

    /// Bytes by which more than is allowed is resident beside `used_bytes` of reservations, up to a share of the limit.
    pub(crate) fn pressure(&self, limit_bytes: usize, used_bytes: usize) -> usize {
        if self.is_due(&self.next_look, BETWEEN_LOOKS) {
            self.pressure.store(self.look(limit_bytes, used_bytes), Ordering::Relaxed);
        }
        self.pressure.load(Ordering::Relaxed).min(limit_bytes / MOST_SHARE)
    }

    /// Whether it is time to do something, which then is next done after `pause`. One of the late callers does it.
    fn is_due(&self, next: &AtomicU64, pause: Duration) -> bool {
        let now = self.start.elapsed().as_micros() as u64;
        let due = next.load(Ordering::Relaxed);
        let after = now + pause.as_micros() as u64;
        now >= due && next.compare_exchange(due, after, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn look(&self, limit_bytes: usize, used_bytes: usize) -> usize {
        let resident = || (self.bound.measure)().and_then(|bytes| usize::try_from(bytes).ok());
        let Some(mut resident_bytes) = resident() else { return 0 };
        let most_bytes = limit_bytes.saturating_add(self.bound.allowed_bytes);
        if resident_bytes > most_bytes && self.is_due(&self.next_give_back, LEFT_ALONE) {
            (self.bound.give_back)();
            let left_bytes = resident().unwrap_or(0);
            if resident_bytes.saturating_sub(left_bytes) > limit_bytes / LITTLE_SHARE {
                self.next_give_back.store(0, Ordering::Relaxed);
            }
            resident_bytes = left_bytes;
        }
        resident_bytes.saturating_sub(used_bytes).saturating_sub(self.bound.allowed_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn memory_is_given_back_first() {
        static RESIDENT: AtomicU64 = AtomicU64::new(700);
        let bound = ResidentBound {
            allowed_bytes: 100,
            measure: || Some(RESIDENT.load(Ordering::Relaxed)),
            give_back: || RESIDENT.store(450, Ordering::Relaxed),
        };
        // Beside 100 there are 350, 250 too many, of which half of 400 counts.
        assert_eq!(ResidentMeter::new(bound).pressure(400, 100), 200);
        assert_eq!(ResidentMeter::new(bound).pressure(400, 300), 50);
        assert_eq!(ResidentMeter::new(bound).pressure(400, 380), 0);
        RESIDENT.store(500, Ordering::Relaxed);
        assert_eq!(ResidentMeter::new(bound).pressure(400, 350), 50, "up to the bound nothing is given back");
        let unknown = ResidentBound { measure: || None, ..bound };
        assert_eq!(ResidentMeter::new(unknown).pressure(400, 0), 0);
    }

    #[test]
    fn an_allocator_with_little_to_give_is_left_alone() {
        static ASKED: AtomicU64 = AtomicU64::new(0);
        let give_back = || {
            ASKED.fetch_add(1, Ordering::Relaxed);
        };
        let meter = ResidentMeter::new(ResidentBound { allowed_bytes: 0, measure: || Some(900), give_back });
        meter.look(800, 700);
        meter.look(800, 700);
        assert_eq!(ASKED.load(Ordering::Relaxed), 1);
        meter.next_give_back.store(0, Ordering::Relaxed);
        meter.look(800, 700);
        assert_eq!(ASKED.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn what_was_found_counts_until_the_next_look() {
        let bound = ResidentBound { allowed_bytes: 0, measure: || Some(1500), give_back: || {} };
        let meter = ResidentMeter::new(bound);
        meter.next_look.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(meter.pressure(1000, 0), 0);
        meter.next_look.store(0, Ordering::Relaxed);
        assert_eq!(meter.pressure(1000, 1400), 100);
        // Whatever is reserved now.
        meter.next_look.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(meter.pressure(1000, 0), 100);
    }
}
