//! Whether compressing pays, from measurements.
//!
//! While pages are spilled, a query computes with all its workers and waits when the device does not keep up. Of every
//! interval it is known how long it took, how much of that the workers together computed, how long the device was busy
//! and with how many bytes. From samples it is known what packing a byte costs and to what it shrinks. That says what
//! the same interval would have taken the other way:
//!
//! ```text
//!              ├──────────── elapsed ────────────┤
//!   workers    ████████ computing ░░ waiting ░░░░░     plain → compressed: what the device saves shortens the waiting,
//!   device       ███████████ busy ████████████████     at most to nothing; packing and unpacking come on top
//!
//!   workers    ████ computing ██ packing ███░░░░░      compressed → plain: packing falls away, but the device has to
//!   device     ██████ busy ██████████                  move all bytes again, and no query is faster than its device
//! ```
//!
//! The first estimate assumes that nothing packs while something else waits, the second one that everything overlaps:
//! both err on the side of plain pages. Where no worker waits (the processor is the bottleneck) nothing can be saved.

/// The alternative must be expected to take at most this share of the time.
const WORTHWHILE_SHARE: f64 = 0.96;
/// Packing must be expected to pay even if it costs so many times what it is known to cost.
const CAUTION: f64 = 1.5;
/// So many intervals in a row have to say the same before anything changes.
const VOTES: u32 = 2;

/// Measurements of an interval in which pages were spilled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    pub(crate) elapsed_seconds: f64,
    /// Processor time of all threads, packing included.
    pub(crate) computed_seconds: f64,
    /// Threads that compute at once.
    pub(crate) workers: f64,
    /// Time in which the device had requests.
    pub(crate) busy_seconds: f64,
    /// Bytes that these moved, for any operator or query.
    pub(crate) moved_bytes: f64,
    /// Pages that were spilled: bytes in memory, and on the device.
    pub(crate) page_bytes: f64,
    pub(crate) stored_bytes: f64,
}

/// What compressing a byte comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cost {
    /// Packing and unpacking.
    pub(crate) seconds_per_byte: f64,
    /// Bytes that remain of one.
    pub(crate) ratio: f64,
}

impl Cost {
    /// Better than any codec: if this does not pay, nothing will.
    pub(crate) const LEAST: Cost = Cost { seconds_per_byte: 0.0, ratio: 0.1 };
}

impl Interval {
    /// What this interval, whose pages were plain, would have taken with compressed ones.
    pub(crate) fn seconds_if_compressed(&self, cost: Cost) -> f64 {
        let waited = (self.elapsed_seconds - self.computed_seconds / self.workers).max(0.0);
        let saved = self.device_seconds(self.page_bytes * (1.0 - cost.ratio));
        let added = self.page_bytes * cost.seconds_per_byte / self.workers;
        self.elapsed_seconds - saved.clamp(0.0, waited) + added
    }

    /// What this interval, whose pages were compressed, would have taken with plain ones.
    pub(crate) fn seconds_if_plain(&self, cost: Cost) -> f64 {
        let device = self.busy_seconds + self.device_seconds(self.page_bytes - self.stored_bytes);
        let without_packing = self.page_bytes * cost.seconds_per_byte / self.workers;
        device.max(self.elapsed_seconds - without_packing)
    }

    /// For how long the device would be busy with so many bytes.
    fn device_seconds(&self, bytes: f64) -> f64 {
        if self.moved_bytes > 0.0 { bytes * self.busy_seconds / self.moved_bytes } else { 0.0 }
    }
}

/// What has been decided, and what speaks for the opposite.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Policy {
    pub(crate) compresses: bool,
    /// Intervals in a row that did.
    against: u32,
}

impl Policy {
    /// Whether compressing might pay here with some codec and some data: then it is worth a sample.
    pub(crate) fn is_promising(self, interval: &Interval) -> bool {
        self.compresses || Self::begins(interval, Cost::LEAST)
    }

    /// The policy after another interval.
    pub(crate) fn after(self, interval: &Interval, cost: Cost) -> Self {
        let is_against = match self.compresses {
            false => Self::begins(interval, cost),
            true => interval.seconds_if_plain(cost) <= interval.elapsed_seconds * WORTHWHILE_SHARE,
        };
        match (is_against, self.against + 1) {
            (false, _) => Self { against: 0, ..self },
            (true, VOTES) => Self { compresses: !self.compresses, against: 0 },
            (true, against) => Self { against, ..self },
        }
    }

    fn begins(interval: &Interval, cost: Cost) -> bool {
        let cost = Cost { seconds_per_byte: cost.seconds_per_byte * CAUTION, ..cost };
        interval.seconds_if_compressed(cost) <= interval.elapsed_seconds * WORTHWHILE_SHARE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1e6;
    const WORKERS: f64 = 2.0;
    /// LZ4 on pages of a TPC-H table.
    const LZ4: Cost = Cost { seconds_per_byte: 1.0 / 770e6 + 1.0 / 3200e6, ratio: 0.45 };

    /// A steady pipeline that overlaps what it can: so many processor seconds per MB of pages before compressing them,
    /// on a device of so many bytes per second, which moves `beside` other bytes for every byte of pages.
    fn steady(compute_per_mb: f64, device_rate: f64, beside: f64, cost: Option<Cost>) -> Interval {
        let page_bytes = 100.0 * MB;
        let Cost { seconds_per_byte, ratio } = cost.unwrap_or(Cost { seconds_per_byte: 0.0, ratio: 1.0 });
        let computed_seconds = 100.0 * compute_per_mb + page_bytes * seconds_per_byte;
        let moved_bytes = page_bytes * (ratio + beside);
        let busy_seconds = moved_bytes / device_rate;
        Interval {
            elapsed_seconds: busy_seconds.max(computed_seconds / WORKERS),
            computed_seconds,
            workers: WORKERS,
            busy_seconds,
            moved_bytes,
            page_bytes,
            stored_bytes: page_bytes * ratio,
        }
    }

    /// Where the policy settles, having begun with `compresses`, and how often it changed its mind.
    fn settles(
        compute_per_mb: f64,
        device_rate: f64,
        beside: f64,
        cost: Cost,
        compresses: bool,
    ) -> (bool, u32) {
        let mut policy = Policy { compresses, against: 0 };
        let mut changes = 0;
        for _ in 0..20 {
            let seen = steady(compute_per_mb, device_rate, beside, policy.compresses.then_some(cost));
            let next = policy.after(&seen, cost);
            changes += u32::from(next.compresses != policy.compresses);
            policy = next;
        }
        (policy.compresses, changes)
    }

    #[test]
    fn a_slow_volume_is_worth_compressing_for() {
        for beside in [0.0, 1.0, 4.0] {
            assert_eq!(settles(0.003, 125e6, beside, LZ4, false), (true, 1), "{beside}");
            assert_eq!(settles(0.003, 125e6, beside, LZ4, true), (true, 0), "{beside}");
        }
    }

    #[test]
    fn a_fast_disk_is_not() {
        for device_rate in [1.7e9, 3e9] {
            assert_eq!(settles(0.003, device_rate, 1.0, LZ4, false), (false, 0), "{device_rate}");
            assert_eq!(settles(0.003, device_rate, 1.0, LZ4, true), (false, 1), "{device_rate}");
        }
        // Even where the disk is the bottleneck: packing takes longer than writing.
        assert_eq!(settles(0.0002, 1.7e9, 0.0, LZ4, false), (false, 0));
    }

    #[test]
    fn a_processor_that_has_no_time_left_does_not_compress() {
        // The device is busy for most of the time, and still no worker waits for it.
        let seen = steady(0.02, 125e6, 0.0, None);
        assert!(seen.busy_seconds > 0.75 * seen.elapsed_seconds);
        assert!(seen.seconds_if_compressed(LZ4) > seen.elapsed_seconds);
        assert!(!Policy::default().is_promising(&seen));
        assert_eq!(settles(0.02, 125e6, 0.0, LZ4, false), (false, 0));
        assert_eq!(settles(0.02, 125e6, 0.0, LZ4, true), (false, 1));
    }

    #[test]
    fn data_that_does_not_shrink_is_left_alone() {
        let random = Cost { ratio: 1.0, ..LZ4 };
        assert!(Policy::default().is_promising(&steady(0.003, 125e6, 0.0, None)));
        assert_eq!(settles(0.003, 125e6, 0.0, random, false), (false, 0));
    }

    #[test]
    fn the_choice_is_never_much_worse_than_the_better_one() {
        let mut worst: f64 = 1.0;
        for compute_per_mb in [0.0005, 0.001, 0.002, 0.004, 0.008, 0.016] {
            for device_rate in [30e6, 60e6, 125e6, 250e6, 500e6, 1e9, 2e9, 4e9] {
                for beside in [0.0, 0.5, 2.0] {
                    for ratio in [0.2, 0.45, 0.8, 1.0] {
                        let cost = Cost { ratio, ..LZ4 };
                        let took = |cost| steady(compute_per_mb, device_rate, beside, cost).elapsed_seconds;
                        let (plain, compressed) = (took(None), took(Some(cost)));
                        for begins in [false, true] {
                            let (settled, changes) =
                                settles(compute_per_mb, device_rate, beside, cost, begins);
                            let what = format!("{compute_per_mb} {device_rate} {beside} {ratio}");
                            assert!(changes <= 1, "{what}: {changes} changes");
                            let chosen = if settled { compressed } else { plain };
                            assert!(!settled || begins || chosen <= plain, "{what}: worse than off");
                            assert!(chosen <= 1.06 * plain, "{what}: {chosen} instead of {plain}");
                            worst = worst.max(chosen / plain.min(compressed));
                        }
                    }
                }
            }
        }
        assert!(worst < 2.5, "{worst}");
    }

    #[test]
    fn one_odd_interval_changes_nothing() {
        let slow = steady(0.003, 125e6, 0.0, None);
        let fast = steady(0.003, 3e9, 0.0, None);
        let mut policy = Policy::default();
        for seen in [&slow, &fast, &slow, &fast] {
            policy = policy.after(seen, LZ4);
            assert!(!policy.compresses);
        }
        assert!(policy.after(&slow, LZ4).after(&slow, LZ4).compresses);
    }

    #[test]
    fn waiting_for_something_else_saves_nothing() {
        // No worker computes and the device is idle: another device, or a consumer that does not come.
        let idle = Interval { busy_seconds: 0.02, ..steady(0.003, 125e6, 0.0, None) };
        assert!(!Policy::default().is_promising(&idle));
        let nothing_moved = Interval { moved_bytes: 0.0, ..idle };
        assert_eq!(nothing_moved.seconds_if_compressed(Cost::LEAST), nothing_moved.elapsed_seconds);
    }
}
