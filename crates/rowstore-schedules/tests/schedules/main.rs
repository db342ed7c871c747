//! Threads whose every step at a lock or an atomic number a scheduler decides.
//!
//! Each test runs some thousand schedules, half of them drawn step by step and half of them with a few changes of priorities
//! (Burckhardt et al., *A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs*, ASPLOS 2010): those find what needs one
//! thread to stand still for long. A schedule in which nobody can go on, or that does not end, fails; its message has the
//! schedule, which `shuttle::replay` repeats.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::sync::Arc;

use nandina_device::Device;
use nandina_simulation::{FaultPlan, Machine};
use scheduled_rowstore::log::LogOptions;
use scheduled_rowstore::{PageStore, RowStore, StoreOptions};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::thread::{self, JoinHandle};
use shuttle::{Config, MaxSteps, Runner};

mod pages;
mod transactions;
mod trees;

const STORE_ID: u64 = 0x57_0e;
pub const PAGE_BYTES: usize = 4096;
/// Schedules of each kind.
const SCHEDULES: usize = 500;
/// Steps after which a schedule counts as one that does not end.
const MOST_STEPS: usize = 400_000;
/// Times that priorities of threads change within a schedule, for those that are drawn so.
const CHANGES: usize = 4;

/// Tries a test with many schedules.
fn schedules(test: impl Fn() + Send + Sync + 'static) {
    let test = Arc::new(test);
    let run = |scheduler: Box<dyn Scheduler + Send>| {
        let mut config = Config::new();
        config.max_steps = MaxSteps::FailAfter(MOST_STEPS);
        config.stack_size = 1 << 20;
        let test = Arc::clone(&test);
        Runner::new(scheduler, config).run(move || test());
    };
    run(Box::new(RandomScheduler::new_from_seed(0x5eed, SCHEDULES)));
    run(Box::new(PctScheduler::new_from_seed(0x5eed, CHANGES, SCHEDULES)));
}

/// Runs threads at the same time, each of which gets its number.
fn together<T: Send + Sync + 'static>(
    shared: &Arc<T>,
    threads: usize,
    each: impl Fn(usize, &T) + Send + Sync + 'static,
) {
    let each = Arc::new(each);
    let begun: Vec<JoinHandle<()>> = (0..threads)
        .map(|number| {
            let (shared, each) = (Arc::clone(shared), Arc::clone(&each));
            thread::spawn(move || each(number, &shared))
        })
        .collect();
    begun.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Devices in memory: one for pages and one for the log.
struct Devices {
    pages: Device,
    log: Device,
}

impl Devices {
    fn new() -> Self {
        let machine = Machine::new();
        let (pages, _) = machine.memory("pages", FaultPlan::none());
        let (log, _) = machine.memory("log", FaultPlan::none());
        Self { pages, log }
    }

    fn page_store(&self, frames: usize) -> PageStore {
        PageStore::open(self.pages.clone(), self.log.clone(), STORE_ID, &options(frames)).unwrap()
    }

    fn row_store(&self, frames: usize) -> RowStore {
        RowStore::open(self.pages.clone(), self.log.clone(), STORE_ID, &options(frames)).unwrap()
    }
}

fn options(frames: usize) -> StoreOptions {
    StoreOptions {
        page_bytes: PAGE_BYTES,
        frames,
        most_frames: frames,
        log: LogOptions { file_bytes: 64 << 10, waiting_bytes: 32 << 10 },
        most_log_bytes: 128 << 10,
    }
}
