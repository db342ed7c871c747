//! A page store in memory, with a device for pages and one for the log, which lose power together.

use nandina_device::Device;
use nandina_rowstore::log::LogOptions;
use nandina_rowstore::page::PageKind;
use nandina_rowstore::{PageStore, Result, StoreOptions};
use nandina_simulation::{CrashOutcome, FaultPlan, Machine, Simulation};

pub const STORE_ID: u64 = 0x57_0e;
pub const PAGE_BYTES: usize = 4096;
pub const CELLS: PageKind = PageKind(100);

pub struct Devices {
    pub machine: Machine,
    pub pages: Device,
    pub log: Device,
    pub of_pages: Simulation,
    pub of_log: Simulation,
}

impl Devices {
    pub fn new() -> Self {
        let machine = Machine::new();
        let (pages, of_pages) = machine.memory("pages", FaultPlan::none());
        let (log, of_log) = machine.memory("log", FaultPlan::none());
        Self { machine, pages, log, of_pages, of_log }
    }

    pub fn open(&self) -> Result<PageStore> {
        self.open_with(&options())
    }

    pub fn open_with(&self, options: &StoreOptions) -> Result<PageStore> {
        PageStore::open(self.pages.clone(), self.log.clone(), STORE_ID, options)
    }

    /// The power fails: each device keeps what `outcome` says, random parts of their own.
    pub fn crash(&self, outcome: CrashOutcome) {
        self.machine.crash(|root| match outcome {
            CrashOutcome::Random { seed } => CrashOutcome::Random { seed: seed ^ root.len() as u64 },
            other => other,
        });
    }
}

/// As few frames as can be, and log files that are used again soon.
pub fn options() -> StoreOptions {
    StoreOptions {
        page_bytes: PAGE_BYTES,
        frames: 16,
        most_frames: 64,
        log: LogOptions { file_bytes: 64 << 10, waiting_bytes: 32 << 10 },
        most_log_bytes: 128 << 10,
    }
}

/// The same numbers each time.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}
