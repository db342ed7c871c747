//! A volume of a cloud's block storage: fast enough everywhere, and limited by what was paid for.
//!
//! ```text
//!             waiting          ┌ bucket of requests ┐
//!   submit ─► in order ─► slot ┤                    ├─► both allow it ─► network and storage ─► ended
//!             of arrival       └ bucket of bytes ───┘                    latency + jitter
//! ```
//!
//! The buckets are token buckets, kept as the time at which each would be full again ("virtual scheduling", ITU-T
//! I.371, generic cell rate algorithm). A request starts when no bucket is in debt, and may put it there: so requests
//! larger than a bucket pass too, and the mean rate holds.
//!
//! Invariants
//! - Requests start in the order of their submission; they may end in another.
//! - No more than `queue_depth` requests are between start of waiting for the buckets and end.
//! - Over any span, no more starts than the rate allows, and the burst.

use std::collections::{BTreeMap, VecDeque};

use super::{Command, CommandKind, Drive, DriveFigures, Ended, Nanos};

/// What a volume is like.
#[derive(Debug, Clone, PartialEq)]
pub struct VolumeParameters {
    pub name: String,
    pub capacity_bytes: u64,
    pub requests_per_second: u64,
    pub bytes_per_second: u64,
    /// A longer request counts as several of this size.
    pub request_unit_bytes: u64,
    /// After a pause, as much as this time's share may start at once.
    pub burst_nanos: Nanos,
    /// From start to end of a request at the least, its transfer apart.
    pub latency_nanos: Nanos,
    /// Mean of what comes on top by chance; the tail falls like that of an exponential distribution.
    pub jitter_nanos: Nanos,
    /// Rate of the network that one request's bytes travel at.
    pub link_bytes_per_second: u64,
    /// Requests under way. Further ones wait in the order of their submission.
    pub queue_depth: usize,
}

impl VolumeParameters {
    /// The baseline of AWS EBS gp3, after "Amazon EBS volume types" in the EBS user guide: 3,000 requests per second,
    /// where a request counts as one up to 256 KiB, and 125 MB/s whatever the size of the volume (the guide says
    /// MiB/s, 5 % more), with latencies of "single-digit milliseconds" promised. The 0.6 ms and their tail are what
    /// published measurements of small requests at light load commonly show; the guide states no mean.
    pub fn cloud_volume() -> Self {
        Self {
            name: "cloud volume, 3000 requests/s, 125 MB/s".to_owned(),
            capacity_bytes: 500 << 30,
            requests_per_second: 3000,
            bytes_per_second: 125_000_000,
            request_unit_bytes: 256 << 10,
            burst_nanos: 1_000_000,
            latency_nanos: 500_000,
            jitter_nanos: 100_000,
            link_bytes_per_second: 1_250_000_000,
            queue_depth: 64,
        }
    }
}

/// A bucket that gains tokens at a rate. Fractions of nanoseconds per token are kept.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens_per_second: u64,
    burst_nanos: Nanos,
    /// When it will be full if nothing more is taken, in units of 1 / tokens_per_second nanoseconds.
    full_at: u128,
}

impl Bucket {
    fn new(tokens_per_second: u64, burst_nanos: Nanos) -> Self {
        Self { tokens_per_second: tokens_per_second.max(1), burst_nanos, full_at: 0 }
    }

    /// When it is out of debt.
    fn ready_at(&self) -> Nanos {
        let full_at = self.full_at.div_ceil(u128::from(self.tokens_per_second)) as Nanos;
        full_at.saturating_sub(self.burst_nanos)
    }

    fn take(&mut self, now: Nanos, tokens: u64) {
        let now = u128::from(now) * u128::from(self.tokens_per_second);
        self.full_at = self.full_at.max(now) + u128::from(tokens) * 1_000_000_000;
    }
}

/// A model of a cloud volume. See the [module documentation](self).
pub struct NetworkVolume {
    parameters: VolumeParameters,
    requests: Bucket,
    bytes: Bucket,
    waiting: VecDeque<Command>,
    /// Requests that have a slot, by the time of their end and the order of their start.
    under_way: BTreeMap<(Nanos, u64), u64>,
    started: u64,
    /// When the last of the writes that have started will have ended.
    writes_safe_at: Nanos,
    random: u64,
    now: Nanos,
    ended: Vec<Ended>,
    figures: DriveFigures,
}

impl NetworkVolume {
    pub fn new(parameters: VolumeParameters, seed: u64) -> Self {
        Self {
            requests: Bucket::new(parameters.requests_per_second, parameters.burst_nanos),
            bytes: Bucket::new(parameters.bytes_per_second, parameters.burst_nanos),
            waiting: VecDeque::new(),
            under_way: BTreeMap::new(),
            started: 0,
            writes_safe_at: 0,
            random: seed,
            now: 0,
            ended: Vec::new(),
            figures: DriveFigures::default(),
            parameters,
        }
    }

    pub fn parameters(&self) -> &VolumeParameters {
        &self.parameters
    }

    fn run(&mut self, until: Nanos) {
        while let Some(entry) = self.under_way.first_entry() {
            if entry.key().0 > until {
                break;
            }
            let ((at, _), tag) = entry.remove_entry();
            self.now = at;
            self.ended.push(Ended { at, tag });
            self.admit_waiting();
        }
        self.now = self.now.max(until);
    }

    fn admit_waiting(&mut self) {
        while self.under_way.len() < self.parameters.queue_depth.max(1) {
            let Some(command) = self.waiting.pop_front() else { break };
            let ends_at = self.start(&command);
            self.started += 1;
            self.under_way.insert((ends_at, self.started), command.tag);
        }
    }

    /// Takes the request's tokens and tells when it will end.
    fn start(&mut self, command: &Command) -> Nanos {
        let latency = self.parameters.latency_nanos + self.jitter();
        if command.kind == CommandKind::Flush {
            return (self.now + latency).max(self.writes_safe_at);
        }
        let starts_at = self.now.max(self.requests.ready_at()).max(self.bytes.ready_at());
        let count = command.bytes.div_ceil(self.parameters.request_unit_bytes.max(1)).max(1);
        self.requests.take(starts_at, count);
        self.bytes.take(starts_at, command.bytes);
        let rate = self.parameters.link_bytes_per_second.max(1);
        let ends_at = starts_at + latency + command.bytes.saturating_mul(1_000_000_000) / rate;
        if command.kind == CommandKind::Write {
            self.writes_safe_at = self.writes_safe_at.max(ends_at);
        }
        ends_at
    }

    /// With probability 1/2 in the first of equally wide steps, 1/4 in the second, and so on; evenly within a step.
    /// That is nearly exponential, and needs no function that differs between platforms.
    fn jitter(&mut self) -> Nanos {
        let (step, inside) = (self.random().trailing_zeros(), self.random() >> 44);
        // In units of 2^-20 steps; the mean is one step for the geometric part and half a step inside.
        let position = (u64::from(step) << 20) + inside;
        let width = u128::from(self.parameters.jitter_nanos) * 2 / 3;
        ((width * u128::from(position)) >> 20) as Nanos
    }

    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Drive for NetworkVolume {
    fn capacity_bytes(&self) -> u64 {
        self.parameters.capacity_bytes
    }

    fn submit(&mut self, now: Nanos, command: Command) {
        self.run(now);
        self.figures.count(command.kind, command.bytes);
        if command.kind == CommandKind::Trim {
            // The storage service notes it down; nothing waits for anything.
            self.ended.push(Ended { at: now, tag: command.tag });
            return;
        }
        self.waiting.push_back(command);
        self.admit_waiting();
    }

    fn next_event(&self) -> Option<Nanos> {
        let told = self.ended.first().map(|ended| ended.at);
        told.or_else(|| self.under_way.first_key_value().map(|((at, _), _)| *at))
    }

    fn advance(&mut self, until: Nanos, ended: &mut Vec<Ended>) {
        self.run(until);
        ended.append(&mut self.ended);
    }

    fn figures(&self) -> DriveFigures {
        self.figures.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Nanos = 1_000_000_000;

    fn command(tag: u64, kind: CommandKind, bytes: u64) -> Command {
        Command { tag, kind, address: 0, bytes }
    }

    /// Requests ended between the first and the sixth second, with `depth` of them always outstanding.
    fn ended_in_five_seconds(bytes: u64, depth: u64) -> u64 {
        let mut volume = NetworkVolume::new(VolumeParameters::cloud_volume(), 3);
        (0..depth).for_each(|tag| volume.submit(0, command(tag, CommandKind::Read, bytes)));
        let (mut ended, mut counted) = (Vec::new(), 0);
        while let Some(at) = volume.next_event().filter(|at| *at < 6 * SECOND) {
            volume.advance(at, &mut ended);
            for Ended { at, tag } in ended.drain(..) {
                counted += u64::from(at >= SECOND);
                volume.submit(at, command(tag, CommandKind::Read, bytes));
            }
        }
        counted
    }

    fn assert_within(value: f64, target: f64, share: f64) {
        assert!((value / target - 1.0).abs() <= share, "{value} is not within {share} of {target}");
    }

    #[test]
    fn small_requests_are_limited_in_number() {
        assert_within(ended_in_five_seconds(4096, 32) as f64 / 5.0, 3000.0, 0.02);
    }

    #[test]
    fn large_requests_are_limited_in_bytes() {
        for bytes in [256 << 10, 1 << 20] {
            assert_within((ended_in_five_seconds(bytes, 32) * bytes) as f64 / 5.0, 125e6, 0.02);
        }
    }

    #[test]
    fn one_request_at_a_time_is_limited_by_latency() {
        // 0.6 ms and 3 µs for the transfer
        assert_within(ended_in_five_seconds(4096, 1) as f64 / 5.0, 1e9 / 603_300.0, 0.02);
    }

    #[test]
    fn a_long_request_counts_as_several() {
        let parameters = VolumeParameters {
            requests_per_second: 100,
            bytes_per_second: 1_000_000_000,
            burst_nanos: 0,
            jitter_nanos: 0,
            latency_nanos: 1000,
            link_bytes_per_second: u64::MAX,
            ..VolumeParameters::cloud_volume()
        };
        let mut volume = NetworkVolume::new(parameters, 1);
        for (tag, bytes) in [(0, 256 << 10), (1, 1 << 20), (2, 4096)] {
            volume.submit(0, command(tag, CommandKind::Write, bytes));
        }
        volume.submit(0, command(3, CommandKind::Flush, 0));
        volume.submit(0, command(4, CommandKind::Trim, 1 << 20));
        assert_eq!(volume.next_event(), Some(0), "the trim has ended");
        let mut ended = Vec::new();
        volume.advance(SECOND, &mut ended);
        let ended: Vec<_> = ended.iter().map(|ended| (ended.tag, ended.at)).collect();
        // One unit is 10 ms: the second request waits for one, the third for one and four.
        assert_eq!(ended, [(4, 0), (0, 1000), (1, 10_001_000), (2, 50_001_000), (3, 50_001_000)]);
        assert_eq!(volume.next_event(), None);
    }

    #[test]
    fn slots_are_limited() {
        let parameters = VolumeParameters {
            requests_per_second: 1_000_000,
            jitter_nanos: 0,
            latency_nanos: 1_000_000,
            link_bytes_per_second: u64::MAX,
            queue_depth: 4,
            ..VolumeParameters::cloud_volume()
        };
        let mut volume = NetworkVolume::new(parameters, 1);
        (0..12).for_each(|tag| volume.submit(0, command(tag, CommandKind::Read, 4096)));
        let mut ended = Vec::new();
        volume.advance(SECOND, &mut ended);
        let times: Vec<_> = ended.iter().map(|ended| ended.at).collect();
        assert_eq!(times, [[1_000_000; 4], [2_000_000; 4], [3_000_000; 4]].concat());
    }

    #[test]
    fn jitter_has_the_stated_mean_and_a_tail() {
        let mut volume = NetworkVolume::new(VolumeParameters::cloud_volume(), 5);
        let values: Vec<Nanos> = (0..100_000).map(|_| volume.jitter()).collect();
        assert_within(values.iter().sum::<u64>() as f64 / 1e5, 100_000.0, 0.01);
        let beyond = values.iter().filter(|value| **value > 300_000).count();
        assert!((3_000..6_000).contains(&beyond), "{beyond} of 100,000 are beyond three means");
    }

    proptest! {
        #[test]
        fn every_request_ends_once_in_order_of_time_and_the_same_way_again(
            commands in prop::collection::vec((0..4u8, 0..600u64, 0..2_000_000u64), 1..200),
            seed: u64,
            often: bool,
        ) {
            let run = |often: bool| {
                let mut volume = NetworkVolume::new(VolumeParameters::cloud_volume(), seed);
                let (mut now, mut ended) = (0, Vec::new());
                for (tag, (kind, blocks, pause)) in commands.iter().enumerate() {
                    let kind = [CommandKind::Read, CommandKind::Write, CommandKind::Flush, CommandKind::Trim][*kind as usize];
                    let bytes = if kind == CommandKind::Flush { 0 } else { blocks * 4096 };
                    now += pause;
                    if often {
                        volume.advance(now, &mut ended);
                    }
                    volume.submit(now, command(tag as u64, kind, bytes));
                }
                volume.advance(1000 * SECOND, &mut ended);
                assert_eq!(volume.next_event(), None);
                ended
            };
            let ended = run(often);
            prop_assert!(ended.is_sorted_by_key(|ended| ended.at));
            let mut tags: Vec<u64> = ended.iter().map(|ended| ended.tag).collect();
            tags.sort_unstable();
            prop_assert_eq!(tags, (0..commands.len() as u64).collect::<Vec<_>>());
            prop_assert_eq!(run(!often), ended);
        }
    }
}
