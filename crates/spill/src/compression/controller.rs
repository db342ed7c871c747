//! What decides for all of a temporary space whether its pages are packed: measures, and asks the policy.
//!
//! Packing is counted whenever it happens. While pages are written plain, one of them is packed and unpacked again
//! every interval, and forgotten; but only where the policy sees that compressing could pay at all. That is at most
//! half a millisecond out of a hundred.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nandina_device::{AlignedBuffer, Device, processor_time};
use parking_lot::Mutex;

use super::Compression;
use super::packed::{Group, PackedPage};
use super::policy::{Cost, Interval, Policy};
use crate::error::Result;
use crate::sealed_page::SealedPage;

/// The decision is reviewed after this time and this many bytes of pages.
const INTERVAL: Duration = Duration::from_millis(100);
const LEAST_PAGE_BYTES: u64 = 1 << 20;
/// Nothing has been spilled for so long: the measurements are not about spilling.
const PAUSE: Duration = Duration::from_secs(1);

/// See the [module documentation](self).
#[derive(Debug)]
pub(crate) struct Controller {
    device: Device,
    setting: AtomicU8,
    workers: AtomicUsize,
    /// What the policy says.
    compresses: AtomicBool,
    wants_sample: AtomicBool,
    counts: Counts,
    state: Mutex<State>,
}

/// Since the space was opened.
#[derive(Debug, Default)]
struct Counts {
    page_bytes: AtomicU64,
    stored_bytes: AtomicU64,
    packing: Work,
    unpacking: Work,
}

/// Bytes of pages that were packed or unpacked, what packing left of them, and the time it took.
#[derive(Debug, Default)]
struct Work {
    page_bytes: AtomicU64,
    packed_bytes: AtomicU64,
    nanos: AtomicU64,
}

/// What has been measured and decided so far.
#[derive(Debug)]
struct State {
    policy: Policy,
    cost: Option<Cost>,
    interval_began: Totals,
    last_page: Instant,
}

/// All counts at one moment.
#[derive(Clone, Copy, Debug)]
struct Totals {
    at: Instant,
    computed: Duration,
    busy_nanos: u64,
    moved_bytes: u64,
    page_bytes: u64,
    stored_bytes: u64,
    packing: WorkTotals,
    unpacking: WorkTotals,
}

#[derive(Clone, Copy, Debug)]
struct WorkTotals {
    page_bytes: u64,
    packed_bytes: u64,
    nanos: u64,
}

impl Controller {
    pub(crate) fn new(device: Device, compression: Compression, workers: usize) -> Self {
        let counts = Counts::default();
        let interval_began = Totals::now(&device, &counts);
        let state =
            State { policy: Policy::default(), cost: None, interval_began, last_page: interval_began.at };
        let controller = Self {
            device,
            setting: AtomicU8::new(0),
            workers: AtomicUsize::new(0),
            compresses: AtomicBool::new(false),
            wants_sample: AtomicBool::new(false),
            counts,
            state: Mutex::new(state),
        };
        controller.set(compression, workers);
        controller
    }

    /// Changes the setting, and how many threads spill at once, for pages from now on.
    pub(crate) fn set(&self, compression: Compression, workers: usize) {
        let number = Compression::ALL.iter().position(|&other| other == compression).unwrap_or(0);
        self.setting.store(number as u8, Ordering::Relaxed);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        self.workers.store(workers.clamp(1, processors), Ordering::Relaxed);
    }

    /// Whether pages are packed at the moment.
    fn compresses(&self) -> bool {
        match self.setting() {
            Compression::Auto => self.compresses.load(Ordering::Relaxed),
            Compression::On => true,
            Compression::Off => false,
        }
    }

    fn setting(&self) -> Compression {
        let number = usize::from(self.setting.load(Ordering::Relaxed));
        Compression::ALL.get(number).copied().unwrap_or_default()
    }

    /// The page in packed form, if it is to be written so.
    pub(crate) fn pack(&self, page: &SealedPage) -> Option<PackedPage> {
        let is_automatic = self.setting() == Compression::Auto && !self.device.is_simulated();
        if is_automatic {
            self.look();
            if self.wants_sample.swap(false, Ordering::Relaxed) && !self.compresses() {
                self.take_sample(page);
            }
        }
        let packed = if self.compresses() { self.pack_now(page) } else { None };
        let stored_bytes = packed.as_ref().map_or(page.len_bytes(), PackedPage::len_bytes);
        self.counts.page_bytes.fetch_add(page.len_bytes() as u64, Ordering::Relaxed);
        self.counts.stored_bytes.fetch_add(stored_bytes as u64, Ordering::Relaxed);
        packed
    }

    fn pack_now(&self, page: &SealedPage) -> Option<PackedPage> {
        let began = Instant::now();
        let packed = PackedPage::try_new(page, &self.device);
        let packed_bytes = packed.as_ref().map_or(page.len_bytes(), PackedPage::len_bytes);
        self.counts.packing.note(page.len_bytes(), packed_bytes, began);
        packed
    }

    fn take_sample(&self, page: &SealedPage) {
        let Some(packed) = self.pack_now(page) else { return };
        let began = Instant::now();
        // A page packed a moment ago unpacks; if not, no page will be lost, and reading would say so.
        if packed.unpack(&self.device).is_ok() {
            self.counts.unpacking.note(page.len_bytes(), packed.len_bytes(), began);
        }
    }

    /// The next page of a group, unpacked.
    pub(crate) fn unpack(&self, group: &mut Group) -> Result<Option<AlignedBuffer>> {
        let began = Instant::now();
        let page = group.next_page(&self.device)?;
        if let Some(page) = &page {
            self.counts.unpacking.note(page.len(), 0, began);
        }
        Ok(page)
    }

    /// Asks the policy, if there is something new to ask it.
    fn look(&self) {
        // The thread that is looking at the moment sees nearly the same.
        let Some(mut state) = self.state.try_lock() else { return };
        let now = Instant::now();
        let paused = now.saturating_duration_since(state.last_page) > PAUSE;
        state.last_page = now;
        let began = state.interval_began;
        if paused {
            state.interval_began = Totals::now(&self.device, &self.counts);
            return;
        }
        let page_bytes = self.counts.page_bytes.load(Ordering::Relaxed) - began.page_bytes;
        if now.saturating_duration_since(began.at) < INTERVAL || page_bytes < LEAST_PAGE_BYTES {
            return;
        }
        let totals = Totals::now(&self.device, &self.counts);
        state.interval_began = totals;
        let interval = totals.since(&began, self.workers.load(Ordering::Relaxed));
        state.learn(&totals, &began);
        if !state.policy.is_promising(&interval) {
            state.policy = Policy::default();
        } else if let Some(cost) = state.cost {
            state.policy = state.policy.after(&interval, cost);
        }
        let compresses = state.policy.compresses;
        if self.compresses.swap(compresses, Ordering::Relaxed) != compresses {
            let now = if compresses { "compressed" } else { "written as they are" };
            log::debug!("spilled pages are {now}: {interval:?}, {:?}", state.cost);
        }
        self.wants_sample.store(!compresses && state.policy.is_promising(&interval), Ordering::Relaxed);
    }
}

impl State {
    /// Updates the cost of packing and unpacking from an interval in which they were done: the mean of the old and new
    /// figures.
    fn learn(&mut self, now: &Totals, began: &Totals) {
        let (packing, unpacking) = (now.packing.since(began.packing), now.unpacking.since(began.unpacking));
        let Some(seconds_to_pack) = packing.seconds_per_byte() else { return };
        let seen = Cost {
            seconds_per_byte: seconds_to_pack + unpacking.seconds_per_byte().unwrap_or(seconds_to_pack / 3.0),
            ratio: packing.packed_bytes as f64 / packing.page_bytes as f64,
        };
        self.cost = Some(self.cost.map_or(seen, |known| Cost {
            seconds_per_byte: f64::midpoint(known.seconds_per_byte, seen.seconds_per_byte),
            ratio: f64::midpoint(known.ratio, seen.ratio),
        }));
    }
}

impl Totals {
    fn now(device: &Device, counts: &Counts) -> Self {
        let io = device.counters().total();
        Self {
            at: Instant::now(),
            computed: processor_time(),
            busy_nanos: io.busy_nanos,
            moved_bytes: io.bytes_read + io.bytes_written,
            page_bytes: counts.page_bytes.load(Ordering::Relaxed),
            stored_bytes: counts.stored_bytes.load(Ordering::Relaxed),
            packing: counts.packing.totals(),
            unpacking: counts.unpacking.totals(),
        }
    }

    fn since(&self, earlier: &Self, workers: usize) -> Interval {
        Interval {
            elapsed_seconds: self.at.saturating_duration_since(earlier.at).as_secs_f64(),
            computed_seconds: self.computed.saturating_sub(earlier.computed).as_secs_f64(),
            workers: workers as f64,
            busy_seconds: (self.busy_nanos - earlier.busy_nanos) as f64 / 1e9,
            moved_bytes: (self.moved_bytes - earlier.moved_bytes) as f64,
            page_bytes: (self.page_bytes - earlier.page_bytes) as f64,
            stored_bytes: (self.stored_bytes - earlier.stored_bytes) as f64,
        }
    }
}

impl Work {
    fn note(&self, page_bytes: usize, packed_bytes: usize, began: Instant) {
        self.page_bytes.fetch_add(page_bytes as u64, Ordering::Relaxed);
        self.packed_bytes.fetch_add(packed_bytes as u64, Ordering::Relaxed);
        self.nanos.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }

    fn totals(&self) -> WorkTotals {
        WorkTotals {
            page_bytes: self.page_bytes.load(Ordering::Relaxed),
            packed_bytes: self.packed_bytes.load(Ordering::Relaxed),
            nanos: self.nanos.load(Ordering::Relaxed),
        }
    }
}

impl WorkTotals {
    fn since(self, earlier: Self) -> Self {
        Self {
            page_bytes: self.page_bytes - earlier.page_bytes,
            packed_bytes: self.packed_bytes - earlier.packed_bytes,
            nanos: self.nanos - earlier.nanos,
        }
    }

    fn seconds_per_byte(self) -> Option<f64> {
        (self.page_bytes > 0).then(|| self.nanos as f64 / 1e9 / self.page_bytes as f64)
    }
}
