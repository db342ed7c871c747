//! Temporary files of hash joins on SSDs: every combination of preallocation and discard, on models of drives that are
//! nearly full, and on a real directory. After Kim and Lee, *Block Allocation Method for Efficiently Managing Temporary
//! Files of Hash Joins on SSDs* (2022).
//!
//! ```text
//! cargo run --release -p nandina-bench --bin temp_files_bench -- --directory <on the disk>
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a program for measuring"
)]

mod plot;
mod real;
mod report;
mod simulated;
mod workload;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Parser;
use nandina_bench::runner;
use simulated::{Combination, Outcome, Setting};
use workload::Workload;

const DRIVES: [&str; 5] = ["iodrive", "p300", "vertex3", "sata-ssd", "nvme"];
/// Drives that all numbers of partitions and shares of other data are tried on.
const SWEPT: [&str; 2] = ["sata-ssd", "nvme"];

/// Time temporary files of joins, by how their space is managed.
#[derive(Debug, Parser)]
#[command(name = "temp_files_bench")]
struct Arguments {
    /// A folder to make and to remove, on the disk to be measured.
    #[arg(long, default_value_os_t = std::env::temp_dir().join("temp-files-bench"))]
    directory: PathBuf,
    /// Rounds on the disk.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// One of simulated and real.
    #[arg(long)]
    only: Option<String>,
    /// Markdown file for the results.
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// SVG file for the plot.
    #[arg(long)]
    svg: Option<PathBuf>,
}

/// What was run on a model, and what came of it.
pub struct Measured {
    pub setting: Setting,
    pub combination: Combination,
    pub outcome: Outcome,
}

fn main() {
    let arguments = Arguments::parse();
    let does = |what: &str| arguments.only.as_deref().is_none_or(|only| only == what);
    let mut page = String::new();
    if does("simulated") {
        let mut jobs = Vec::new();
        for setting in DRIVES.map(|drive| Setting::new(drive, 80, 128, 3)) {
            jobs.extend(Combination::all().map(|combination| (setting, combination)));
        }
        let mut measured = simulate(&jobs);
        if let Some(path) = &arguments.svg {
            plot::draw(path, &measured, &DRIVES);
        }
        jobs.clear();
        for drive in SWEPT {
            let sweep =
                [32, 128, 512].into_iter().flat_map(|partitions| [70, 90].map(|full| (full, partitions, 3)));
            for (full, partitions, joins_at_once) in sweep.chain([(80, 128, 1)]) {
                let setting = Setting::new(drive, full, partitions, joins_at_once);
                jobs.extend(Combination::compared().map(|combination| (setting, combination)));
            }
        }
        measured.extend(simulate(&jobs));
        page += &report::simulated(&measured, DRIVES.len());
    }
    if does("real") {
        let workload = Workload { partitions: 64, joins_at_once: 2, joins_each: 1, join_bytes: 192 << 20 };
        let (runs, device) = real::run(&arguments.directory, &workload, arguments.rounds);
        let (giving_back, writing) = real::giving_back(&arguments.directory, arguments.rounds.min(5));
        std::fs::remove_dir_all(&arguments.directory).unwrap();
        page += &report::real(&runs, &device, &workload, &giving_back, &writing);
    }
    println!("{page}");
    if let Some(path) = &arguments.markdown {
        runner::write(path, page).unwrap();
    }
}

/// Runs all, on as many threads as there are processors: virtual time does not mind.
fn simulate(jobs: &[(Setting, Combination)]) -> Vec<Measured> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Measured)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..runner::processors() {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&(setting, combination)) = jobs.get(at) else { break };
                    let outcome = setting.run(combination);
                    eprintln!("{setting:?} {combination:?}\n    {outcome:?}");
                    results.lock().unwrap().push((at, Measured { setting, combination, outcome }));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap();
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, measured)| measured).collect()
}
