//! Figures about the traffic: per class of file, and per query.
//!
//! Mean queue depth is time-weighted: the integral of requests in flight over time, divided by the time during
//! which at least one was in flight.
//!
//! ```text
//!  in flight  3 ┤    ┌──┐
//!             2 ┤ ┌──┘  └─┐         ┌───┐
//!             1 ┤─┘       └──┐   ┌──┘   └─       depth integral = area,  busy time = length of the base
//!             0 ┼────────────┴───┴─────────► t
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::clock::Clock;
use crate::flow::{FlowId, Priority};

/// What a file is for; counters are kept apart by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileClass {
    Table,
    Temp,
    Catalog,
    Log,
    Other,
}

impl FileClass {
    pub const ALL: [FileClass; 5] =
        [FileClass::Table, FileClass::Temp, FileClass::Catalog, FileClass::Log, FileClass::Other];
}

/// Bucket `i` counts latencies in `[2^i, 2^(i+1))` microseconds; bucket 0 also those below one.
pub const LATENCY_BUCKETS: usize = 32;

/// A copy of counters at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IoStatistics {
    pub read_requests: u64,
    pub write_requests: u64,
    pub sync_requests: u64,
    pub failed_requests: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Requests at the device now.
    pub in_flight: u64,
    /// Most requests that were at the device at once.
    pub peak_in_flight: u64,
    /// Integral of requests in flight over time, in request-nanoseconds.
    pub depth_integral_nanos: u128,
    /// Time with at least one request in flight.
    pub busy_nanos: u64,
    pub latency_histogram: [u64; LATENCY_BUCKETS],
}

impl IoStatistics {
    pub fn requests(&self) -> u64 {
        self.read_requests + self.write_requests + self.sync_requests
    }

    /// Time-weighted mean queue depth while busy; zero when never busy.
    pub fn mean_queue_depth(&self) -> f64 {
        if self.busy_nanos == 0 { 0.0 } else { self.depth_integral_nanos as f64 / self.busy_nanos as f64 }
    }

    /// Upper bound in microseconds of the bucket that holds the given share (0…1) of finished requests.
    pub fn latency_quantile_micros(&self, share: f64) -> u64 {
        let total: u64 = self.latency_histogram.iter().sum();
        let wanted = (total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.latency_histogram.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return 1 << (bucket + 1);
            }
        }
        0
    }

    /// Traffic since `earlier`, a snapshot of the same counters. Peaks and current depth stay as they are now.
    pub fn since(&self, earlier: &IoStatistics) -> IoStatistics {
        let mut difference = self.clone();
        difference.read_requests -= earlier.read_requests;
        difference.write_requests -= earlier.write_requests;
        difference.sync_requests -= earlier.sync_requests;
        difference.failed_requests -= earlier.failed_requests;
        difference.bytes_read -= earlier.bytes_read;
        difference.bytes_written -= earlier.bytes_written;
        difference.depth_integral_nanos -= earlier.depth_integral_nanos;
        difference.busy_nanos -= earlier.busy_nanos;
        for (count, before) in difference.latency_histogram.iter_mut().zip(&earlier.latency_histogram) {
            *count -= before;
        }
        difference
    }
}

/// What kind of traffic a finished request was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    Read,
    Write,
    Sync,
}

/// One set of counters. A lock held for a few additions keeps the depth integral exact, at about the price
/// of the atomics it replaces.
#[derive(Debug, Default)]
pub struct IoCounters {
    state: Mutex<CounterState>,
}

#[derive(Debug, Default)]
struct CounterState {
    statistics: IoStatistics,
    /// The clock of the device that was counted for first, and its time at the last change.
    time: Option<(Arc<dyn Clock>, Instant)>,
}

impl CounterState {
    fn advance_to(&mut self, now: Instant) {
        let Some((_, last_change)) = &mut self.time else { return };
        let elapsed = now.saturating_duration_since(*last_change).as_nanos() as u64;
        if self.statistics.in_flight > 0 {
            self.statistics.busy_nanos += elapsed;
            self.statistics.depth_integral_nanos +=
                u128::from(elapsed) * u128::from(self.statistics.in_flight);
        }
        *last_change = now.max(*last_change);
    }
}

impl IoCounters {
    pub fn snapshot(&self) -> IoStatistics {
        let mut state = self.state.lock();
        if let Some(now) = state.time.as_ref().map(|(clock, _)| clock.now()) {
            state.advance_to(now);
        }
        state.statistics.clone()
    }

    pub(crate) fn started(&self, requests: u64, now: Instant, clock: &Arc<dyn Clock>) {
        let mut state = self.state.lock();
        state.time.get_or_insert_with(|| (Arc::clone(clock), now));
        state.advance_to(now);
        state.statistics.in_flight += requests;
        state.statistics.peak_in_flight = state.statistics.peak_in_flight.max(state.statistics.in_flight);
    }

    pub(crate) fn finished(
        &self,
        traffic: Traffic,
        bytes: u64,
        failed: bool,
        latency: Duration,
        now: Instant,
    ) {
        let mut state = self.state.lock();
        state.advance_to(now);
        let statistics = &mut state.statistics;
        statistics.in_flight = statistics.in_flight.saturating_sub(1);
        match traffic {
            Traffic::Read => {
                statistics.read_requests += 1;
                statistics.bytes_read += bytes;
            }
            Traffic::Write => {
                statistics.write_requests += 1;
                statistics.bytes_written += bytes;
            }
            Traffic::Sync => statistics.sync_requests += 1,
        }
        statistics.failed_requests += u64::from(failed);
        let bucket = (latency.as_micros() as u64).max(1).ilog2() as usize;
        if let Some(count) = statistics.latency_histogram.get_mut(bucket.min(LATENCY_BUCKETS - 1)) {
            *count += 1;
        }
    }
}

/// Counters of one device.
#[derive(Debug, Default)]
pub struct Counters {
    total: IoCounters,
    table: IoCounters,
    temp: IoCounters,
    catalog: IoCounters,
    log: IoCounters,
    other: IoCounters,
}

impl Counters {
    pub fn total(&self) -> IoStatistics {
        self.total.snapshot()
    }

    pub fn of(&self, class: FileClass) -> IoStatistics {
        self.class(class).snapshot()
    }

    pub(crate) fn all(&self) -> &IoCounters {
        &self.total
    }

    pub(crate) fn class(&self, class: FileClass) -> &IoCounters {
        match class {
            FileClass::Table => &self.table,
            FileClass::Temp => &self.temp,
            FileClass::Catalog => &self.catalog,
            FileClass::Log => &self.log,
            FileClass::Other => &self.other,
        }
    }
}

/// Counters of one query or another unit of work: pass it with the requests.
#[derive(Debug, Default)]
pub struct IoAccount {
    pub(crate) counters: IoCounters,
    pub(crate) flow: FlowId,
    pub(crate) priority: Priority,
}

impl IoAccount {
    /// With a flow of its own.
    pub fn new() -> Arc<Self> {
        Self::of_flow(FlowId::unique(), Priority::default())
    }

    /// As a part of a flow.
    pub fn of_flow(flow: FlowId, priority: Priority) -> Arc<Self> {
        Arc::new(Self { counters: IoCounters::default(), flow, priority })
    }

    pub fn flow(&self) -> FlowId {
        self.flow
    }

    pub fn statistics(&self) -> IoStatistics {
        self.counters.snapshot()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    #[test]
    fn queue_depth_is_weighted_by_time() {
        let counters = IoCounters::default();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let start = Instant::now();
        let at = |micros| start + Duration::from_micros(micros);
        counters.started(2, at(0), &clock);
        counters.started(1, at(10), &clock);
        counters.finished(Traffic::Read, 4096, false, Duration::from_micros(20), at(20));
        counters.finished(Traffic::Read, 4096, false, Duration::from_micros(30), at(30));
        counters.finished(Traffic::Write, 8192, true, Duration::from_micros(40), at(50));
        // A pause without requests counts for nothing.
        counters.started(1, at(1000), &clock);
        counters.finished(Traffic::Sync, 0, false, Duration::from_micros(50), at(1050));

        let figures = counters.snapshot();
        assert_eq!((figures.read_requests, figures.write_requests, figures.sync_requests), (2, 1, 1));
        assert_eq!((figures.bytes_read, figures.bytes_written, figures.failed_requests), (8192, 8192, 1));
        assert_eq!((figures.in_flight, figures.peak_in_flight), (0, 3));
        assert_eq!(figures.busy_nanos, 100_000);
        // 2×10 + 3×10 + 2×10 + 1×20 + 1×50 request-microseconds
        assert_eq!(figures.depth_integral_nanos, 140_000);
        assert_eq!(figures.mean_queue_depth(), 1.4);
        assert_eq!(figures.latency_histogram[4], 2, "20 and 30 µs");
        assert_eq!(figures.latency_histogram[5], 2, "40 and 50 µs");
        assert_eq!(figures.latency_quantile_micros(0.5), 32);
        assert_eq!(figures.latency_quantile_micros(1.0), 64);
    }
}
