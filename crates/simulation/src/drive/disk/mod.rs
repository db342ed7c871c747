//! A hard disk: an arm, a revolution, and an electronics that chooses which of the queued commands comes next.
//!
//! ```text
//!            waiting       command station        jobs for the arm           interface
//!   submit ─► in order ─► one after another ─► shortest positioning first ─► one after another ─► ended
//!             of arrival     │        ▲             ▲         │                   ▲
//!                            │        └ at most     │         ▼                   │
//!                            │          queue_depth │     read-ahead buffer ──────┤
//!                            │          from here   │                             │
//!                            └─ writes ─► write cache ────────────────────────────┘
//!                                        (if there is one)
//! ```
//!
//! After Ruemmler and Wilkes, "An introduction to disk drive modeling" (IEEE Computer, 1994): their section on
//! mechanics became [`geometry`], that on caching [`segment`]. Where the platters stand is known at every moment, so
//! what a command waits for the revolution follows from addresses and times and is not drawn by lot.
//!
//! Invariants
//! - A job continues without waiting where the one before it ended, if it was queued by then.
//! - A command that has been queued for `age_limit_nanos` is served before all that have not; the oldest goes first.
//! - Destaging of the write cache yields to commands that wait for the arm, unless a flush waits or the cache is full;
//!   then it takes its turns.
//! - A flush ends after all writes submitted before it are on the medium.
//! - Reading ahead delays no command: it lasts only until a job needs the arm.
//!
//! Left out: more than one read-ahead segment, errors and their repetition, reallocated sectors, thermal
//! recalibration, power saving.

mod cache;
mod geometry;
mod segment;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::cache::WriteCache;
use self::geometry::Geometry;
use self::segment::Segment;
use super::{Command, CommandKind, Drive, DriveFigures, Ended, Nanos};
use nandina_device::BLOCK_BYTES;

/// What a hard disk is like.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskParameters {
    pub name: String,
    pub capacity_bytes: u64,
    pub revolutions_per_minute: u64,
    /// Surfaces with a head each.
    pub heads: u64,
    /// Groups of cylinders whose tracks hold equally much, each with equally many cylinders.
    pub zones: u64,
    /// Sustained rate of long transfers in the outermost zone, which includes getting from track to track. The number
    /// of cylinders follows from capacity, heads and rates.
    pub outer_bytes_per_second: u64,
    /// The same in the innermost zone. Zones in between lie on a straight line.
    pub inner_bytes_per_second: u64,
    /// Seek over one cylinder, with settling for reading.
    pub track_to_track_seek_nanos: Nanos,
    /// Seek over one third of the cylinders.
    pub average_seek_nanos: Nanos,
    /// Seek over all cylinders.
    pub full_stroke_seek_nanos: Nanos,
    /// To another head of the same cylinder.
    pub head_switch_nanos: Nanos,
    /// What a write needs for settling beyond what a read does, after every movement.
    pub write_settle_nanos: Nanos,
    /// Host, controller and interface per command; one command after another.
    pub command_nanos: Nanos,
    pub interface_bytes_per_second: u64,
    /// Commands that the disk knows of. Further ones wait in the order of their submission.
    pub queue_depth: usize,
    /// How far the disk reads on after a read, and how much of what it has delivered it keeps.
    pub read_ahead_bytes: u64,
    /// Writes end as soon as the cache holds them.
    pub write_cache: bool,
    pub cache_bytes: u64,
    /// A command queued for so long goes before younger ones that are nearer.
    pub age_limit_nanos: Nanos,
}

impl DiskParameters {
    /// A 500 GB disk for desktop computers of about 2011 with one platter, as in the measurements of QDTT (there a
    /// Western Digital of 500 GB with SATA at 6 Gb/s).
    ///
    /// - Average read seek 8.5 ms, which over random distances comes from 9.1 ms over a third of them, since short seeks
    ///   are quick; and 1 ms more for writes: Hitachi Deskstar 7K1000.C, specification, table 9; the
    ///   Seagate Barracuda 7200.12 and the WD Caviar Blue families are the same class. Write settling takes only the
    ///   part of that millisecond which is common to all distances.
    /// - Track to track 0.7 ms (such families state 0.6 to 1.0 ms) and full stroke 16.5 ms (16 to 18 ms).
    /// - 130 MB/s outside and 65 MB/s inside: sustained rates of platters of 500 GB, and the usual relation of the
    ///   radii. With two surfaces this gives about 272,000 cylinders.
    /// - A revolution at 7,200 rpm is 8.33 ms, half of it 4.17 ms.
    /// - `command_nanos` is fitted: QDTT measured sequential pages of 4 KiB, one at a time, at 1/115 of the cost of
    ///   random ones, which leaves about 0.11 ms per page.
    /// - A queue of 32 makes random pages 2.5 times cheaper by this; QDTT measured up to 2.7. `age_limit_nanos` is far
    ///   above what a command in such a queue waits (about 170 ms), or it would turn the queue into a plain one.
    pub fn disk_7200_rpm() -> Self {
        Self {
            name: "disk, 7200 rpm, 500 GB".to_owned(),
            capacity_bytes: 500_107_862_016,
            revolutions_per_minute: 7200,
            heads: 2,
            zones: 24,
            outer_bytes_per_second: 130_000_000,
            inner_bytes_per_second: 65_000_000,
            track_to_track_seek_nanos: 700_000,
            average_seek_nanos: 9_100_000,
            full_stroke_seek_nanos: 16_500_000,
            head_switch_nanos: 700_000,
            write_settle_nanos: 400_000,
            command_nanos: 95_000,
            interface_bytes_per_second: 300_000_000,
            queue_depth: 32,
            read_ahead_bytes: 512 << 10,
            write_cache: false,
            cache_bytes: 16 << 20,
            age_limit_nanos: 1_000_000_000,
        }
    }
}

/// A model of a hard disk. See the [module documentation](self).
pub struct HardDisk {
    parameters: DiskParameters,
    geometry: Geometry,
    /// Not yet known to the disk.
    waiting: VecDeque<Accepted>,
    /// Known to the disk and not ended.
    queued: usize,
    station_free_at: Nanos,
    interface_free_at: Nanos,
    /// What waits for the arm.
    jobs: Vec<Job>,
    in_service: Option<InService>,
    segment: Option<Segment>,
    /// Where the arm is, unless a live segment says so.
    track: u64,
    cache: WriteCache,
    flushes: Vec<Accepted>,
    /// Since when a command waits for the cache to become emptier.
    pressed_since: Option<Nanos>,
    /// Sequence numbers of writes that are not on the medium.
    unsafe_writes: BTreeSet<u64>,
    events: BTreeMap<(Nanos, u64), Event>,
    /// Commands and events so far; orders what happens at the same time.
    sequence: u64,
    now: Nanos,
    ended: Vec<Ended>,
    figures: DriveFigures,
}

/// A command with its place in the order of submissions.
#[derive(Debug, Clone, Copy)]
struct Accepted {
    sequence: u64,
    command: Command,
}

impl Accepted {
    fn end(&self) -> u64 {
        self.command.address.saturating_add(self.command.bytes)
    }
}

#[derive(Debug, Clone, Copy)]
enum Event {
    /// The command station is done with it.
    Understood(Accepted),
    /// The data of a write have arrived.
    Received(Accepted),
    /// The arm has finished its job.
    Transferred,
    Ends(u64),
}

/// Who waits for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Host,
    Cache,
}

/// A range to be read or written by the arm.
#[derive(Debug, Clone, Copy)]
struct Job {
    origin: Origin,
    accepted: Accepted,
    queued_at: Nanos,
}

impl Job {
    fn is_write(&self) -> bool {
        self.accepted.command.kind == CommandKind::Write
    }
}

#[derive(Debug, Clone, Copy)]
struct InService {
    job: Job,
    /// When the first of its data passes under the head.
    data_from: Nanos,
}

/// How a job would be executed if it came next.
#[derive(Debug, Clone, Copy)]
struct Plan {
    cylinders: u64,
    seek_nanos: Nanos,
    data_from: Nanos,
    done_at: Nanos,
    /// The segment after it.
    segment: Option<Segment>,
}

impl HardDisk {
    /// `seed` decides how the platters stand at time 0.
    pub fn new(parameters: DiskParameters, seed: u64) -> Self {
        let cache_bytes = if parameters.write_cache { parameters.cache_bytes } else { 0 };
        Self {
            geometry: Geometry::new(&parameters, seed),
            waiting: VecDeque::new(),
            queued: 0,
            station_free_at: 0,
            interface_free_at: 0,
            jobs: Vec::new(),
            in_service: None,
            segment: None,
            track: 0,
            cache: WriteCache::new(cache_bytes),
            flushes: Vec::new(),
            pressed_since: None,
            unsafe_writes: BTreeSet::new(),
            events: BTreeMap::new(),
            sequence: 0,
            now: 0,
            ended: Vec::new(),
            figures: DriveFigures::default(),
            parameters,
        }
    }

    pub fn parameters(&self) -> &DiskParameters {
        &self.parameters
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn schedule(&mut self, at: Nanos, event: Event) {
        let sequence = self.next_sequence();
        self.events.insert((at, sequence), event);
    }

    fn run(&mut self, until: Nanos) {
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > until {
                break;
            }
            let ((now, _), event) = entry.remove_entry();
            self.now = now;
            match event {
                Event::Understood(accepted) => self.understood(accepted),
                Event::Received(accepted) => self.received(accepted),
                Event::Transferred => self.transferred(),
                Event::Ends(tag) => {
                    self.ended.push(Ended { at: now, tag });
                    self.queued = self.queued.saturating_sub(1);
                    self.admit();
                }
            }
            self.start_next_job();
        }
        self.now = self.now.max(until);
    }

    /// Lets waiting commands into the queue of the disk, as far as it has room.
    fn admit(&mut self) {
        while self.queued < self.parameters.queue_depth.max(1) {
            let Some(accepted) = self.waiting.pop_front() else { break };
            self.queued += 1;
            self.station_free_at = self.station_free_at.max(self.now) + self.parameters.command_nanos;
            self.schedule(self.station_free_at, Event::Understood(accepted));
        }
    }

    fn understood(&mut self, accepted: Accepted) {
        match accepted.command.kind {
            CommandKind::Read if accepted.command.bytes > 0 => {
                let job = Job { origin: Origin::Host, accepted, queued_at: self.now };
                if !self.serve_from_buffers(&job) {
                    self.jobs.push(job);
                }
            }
            CommandKind::Write if accepted.command.bytes > 0 => {
                let received_at = self.occupy_interface(accepted.command.bytes, self.now);
                self.schedule(received_at, Event::Received(accepted));
            }
            CommandKind::Flush => {
                self.flushes.push(accepted);
                self.end_flushes();
            }
            CommandKind::Read | CommandKind::Write | CommandKind::Trim => {
                self.unsafe_writes.remove(&accepted.sequence);
                self.schedule(self.now, Event::Ends(accepted.command.tag));
            }
        }
    }

    /// Takes `bytes` over the interface as they pass under the head from `data_from` on, the last of them now. Returns
    /// when they have arrived.
    fn occupy_interface(&mut self, bytes: u64, data_from: Nanos) -> Nanos {
        let rate = self.parameters.interface_bytes_per_second.max(1);
        let nanos = |bytes: u64| bytes.saturating_mul(1_000_000_000).div_ceil(rate);
        let after_the_last = self.now + nanos(bytes.min(BLOCK_BYTES as u64));
        let without_pause = self.interface_free_at.max(data_from) + nanos(bytes);
        self.interface_free_at = after_the_last.max(without_pause);
        self.interface_free_at
    }

    /// Ends a read whose data are in memory; false if they are not.
    fn serve_from_buffers(&mut self, job: &Job) -> bool {
        let Command { address, bytes, tag, .. } = job.accepted.command;
        let end = job.accepted.end();
        let mut held = self.cache.holds(address, end);
        if let Some(segment) = &mut self.segment
            && segment.contains(&self.geometry, self.now, address, end)
        {
            let ahead = self.parameters.read_ahead_bytes;
            let limit = (end + ahead).min(self.parameters.capacity_bytes);
            segment.extend(&self.geometry, self.now, address.saturating_sub(ahead), limit);
            held = true;
        }
        if held {
            let ends_at = self.occupy_interface(bytes, self.now);
            self.schedule(ends_at, Event::Ends(tag));
        }
        held
    }

    fn received(&mut self, accepted: Accepted) {
        if accepted.command.bytes > self.cache.capacity_bytes() {
            self.jobs.push(Job { origin: Origin::Host, accepted, queued_at: self.now });
        } else {
            self.cache.queue(accepted);
            self.fill_cache();
        }
    }

    /// Takes writes into the cache in the order of their arrival, as far as it has room.
    fn fill_cache(&mut self) {
        while let Some((accepted, absorbed)) = self.cache.admit() {
            if absorbed {
                self.unsafe_writes.remove(&accepted.sequence);
            }
            self.forget_read(accepted.command.address, accepted.end());
            self.schedule(self.now, Event::Ends(accepted.command.tag));
        }
        self.note_pressure();
    }

    /// Drops the read-ahead segment if it overlaps: its data are out of date.
    fn forget_read(&mut self, address: u64, end: u64) {
        if self.segment.is_some_and(|segment| segment.overlaps(address, end)) {
            // A job in service has already said where it leaves the arm.
            if self.in_service.is_none() {
                self.leave_segment();
            }
            self.segment = None;
        }
    }

    fn note_pressure(&mut self) {
        let pressed = self.cache.is_full() || !self.flushes.is_empty();
        self.pressed_since = if pressed { self.pressed_since.or(Some(self.now)) } else { None };
    }

    fn end_flushes(&mut self) {
        let first_unsafe = self.unsafe_writes.first().copied().unwrap_or(u64::MAX);
        let (safe, waiting): (Vec<_>, Vec<_>) =
            self.flushes.drain(..).partition(|flush| flush.sequence < first_unsafe);
        self.flushes = waiting;
        for flush in safe {
            self.schedule(self.now, Event::Ends(flush.command.tag));
        }
        self.note_pressure();
    }

    fn transferred(&mut self) {
        let Some(InService { job, data_from }) = self.in_service.take() else { return };
        let Command { bytes, tag, .. } = job.accepted.command;
        if !job.is_write() {
            let ends_at = self.occupy_interface(bytes, data_from);
            self.schedule(ends_at, Event::Ends(tag));
            return;
        }
        self.unsafe_writes.remove(&job.accepted.sequence);
        match job.origin {
            Origin::Host => self.schedule(self.now, Event::Ends(tag)),
            Origin::Cache => {
                self.cache.written(&job.accepted);
                self.fill_cache();
            }
        }
        self.end_flushes();
    }

    fn start_next_job(&mut self) {
        if self.in_service.is_some() {
            return;
        }
        // Reading ahead may have brought data that were not there when the command came.
        let mut jobs = std::mem::take(&mut self.jobs);
        jobs.retain(|job| job.is_write() || !self.serve_from_buffers(job));
        self.jobs = jobs;
        let destaging = self.jobs.iter().filter(|job| job.origin == Origin::Cache).count();
        for _ in destaging..self.parameters.queue_depth.max(1) {
            let Some(accepted) = self.cache.next_to_write() else { break };
            self.jobs.push(Job { origin: Origin::Cache, accepted, queued_at: self.now });
        }

        let Some((index, plan)) = self.choose() else { return };
        let job = self.jobs.swap_remove(index);
        self.figures.seek_tracks += plan.cylinders;
        self.figures.seek_nanos += plan.seek_nanos;
        self.leave_segment();
        self.segment = plan.segment;
        self.track = self.geometry.track(job.accepted.end().saturating_sub(1));
        self.in_service = Some(InService { job, data_from: plan.data_from });
        self.schedule(plan.done_at, Event::Transferred);
    }

    /// The job that comes next, and how.
    fn choose(&self) -> Option<(usize, Plan)> {
        let host_waits = self.jobs.iter().any(|job| job.origin == Origin::Host);
        let candidates = || {
            let may_come =
                |job: &Job| job.origin == Origin::Host || !host_waits || self.pressed_since.is_some();
            self.jobs.iter().enumerate().filter(move |(_, job)| may_come(job))
        };
        let overdue = candidates()
            .map(|(index, job)| (self.due(job), job.accepted.sequence, index, job))
            .filter(|(due, ..)| *due <= self.now)
            .min_by_key(|(due, sequence, ..)| (*due, *sequence));
        if let Some((.., index, job)) = overdue {
            return Some((index, self.plan(job)));
        }
        candidates()
            .map(|(index, job)| (index, job.accepted.sequence, self.plan(job)))
            .min_by_key(|(_, sequence, plan)| (plan.data_from, *sequence))
            .map(|(index, _, plan)| (index, plan))
    }

    /// From when on a job goes before those that are not due.
    fn due(&self, job: &Job) -> Nanos {
        let since = match job.origin {
            Origin::Host => job.queued_at,
            // Nothing waits for it before a write waits for room or a flush for safety.
            Origin::Cache => self.pressed_since.map_or(Nanos::MAX, |since| since.max(job.queued_at)),
        };
        since.saturating_add(self.parameters.age_limit_nanos)
    }

    fn plan(&self, job: &Job) -> Plan {
        let (geometry, now) = (&self.geometry, self.now);
        let (address, end) = (job.accepted.command.address, job.accepted.end());
        let ahead = self.parameters.read_ahead_bytes;
        let limit = (end + ahead).min(self.parameters.capacity_bytes).max(end);

        if let Some(mut segment) = self.segment
            && !job.is_write()
            && segment.continues_to(geometry, now, address)
        {
            segment.extend(geometry, now, address.saturating_sub(ahead), limit);
            return Plan {
                cylinders: 0,
                seek_nanos: 0,
                data_from: segment.base_time().max(now),
                done_at: segment.reaches(geometry, end).max(now),
                segment: Some(segment),
            };
        }

        let (cylinders, mut seek_nanos) = geometry.seek(self.track_now(), geometry.track(address));
        if job.is_write() && seek_nanos > 0 {
            seek_nanos += self.parameters.write_settle_nanos;
        }
        let clock = geometry.clock(address);
        let data_from = now + seek_nanos + geometry.rotational_wait(now + seek_nanos, clock);
        let done_at = data_from + geometry.clock_at_end(end).saturating_sub(clock);
        let segment = if job.is_write() {
            self.segment.filter(|segment| !segment.overlaps(address, end)).map(|mut segment| {
                segment.stop(geometry, now);
                segment
            })
        } else {
            Some(Segment::new(address, data_from, limit))
        };
        Plan { cylinders, seek_nanos, data_from, done_at, segment }
    }

    /// Where the arm is.
    fn track_now(&self) -> u64 {
        match &self.segment {
            Some(segment) if segment.is_live() => {
                let last = self.parameters.capacity_bytes.saturating_sub(1);
                self.geometry.track(segment.position(&self.geometry, self.now).min(last))
            }
            _ => self.track,
        }
    }

    /// Remembers where the arm is, before the segment that tells it goes.
    fn leave_segment(&mut self) {
        self.track = self.track_now();
    }
}

impl Drive for HardDisk {
    fn capacity_bytes(&self) -> u64 {
        self.parameters.capacity_bytes
    }

    fn submit(&mut self, now: Nanos, command: Command) {
        self.run(now);
        self.figures.count(command.kind, command.bytes);
        let accepted = Accepted { sequence: self.next_sequence(), command };
        if command.kind == CommandKind::Write {
            self.unsafe_writes.insert(accepted.sequence);
        }
        self.waiting.push_back(accepted);
        self.admit();
    }

    fn next_event(&self) -> Option<Nanos> {
        let told = self.ended.first().map(|ended| ended.at);
        told.or_else(|| self.events.first_key_value().map(|((at, _), _)| *at))
    }

    fn advance(&mut self, until: Nanos, ended: &mut Vec<Ended>) {
        self.run(until);
        ended.append(&mut self.ended);
    }

    fn figures(&self) -> DriveFigures {
        self.figures.clone()
    }
}
