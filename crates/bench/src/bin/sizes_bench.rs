//! Are the sizes and depths that follow from a device's profile as good as the best hand-picked ones?
//!
//! On the disk behind `--work` and on simulated drives: a quick calibration; then scans of a native table, fetches of
//! single rows and hash partitioning, each with the sizes of the profile and with a grid of hand-picked ones. Simulated
//! drives are timed in virtual time, in which computing takes none, so that only the device counts.
//!
//! Writes `sizes.md`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a program that is watched")]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use clap::Parser;
use nandina_bench::partition::trial::TrialOptions;
use nandina_bench::partition::{Algorithm, RingShape, Unit, Workbench};
use nandina_bench::runner;
use nandina_device::calibration::Calibration;
use nandina_device::profile::IoSizes;
use nandina_device::{Device, DeviceOptions};
use nandina_simulation::drive::DriveModel;
use nandina_simulation::{Contents, SimulationOptions};
use nandina_storage::{
    FetchOptions, IfExists, Mode, PageNumber, RowId, ScanOptions, Store, Table, TableDefinition, WriteOptions,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Parser)]
#[command(name = "sizes_bench")]
struct Arguments {
    /// Rows of 16 columns of 8 bytes in the scanned table, in millions.
    #[arg(long, default_value_t = 4)]
    million_rows: usize,
    /// TPC-H scale factor of ORDERS, which is partitioned.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Rounds on the real disk in which the best hand-picked sizes are found.
    #[arg(long, default_value_t = 3)]
    heats: usize,
    /// Rounds on the real disk in which they are compared with the profile's.
    #[arg(long, default_value_t = 11)]
    finals: usize,
    /// The file to write.
    #[arg(long, default_value = "docs/benchmarks/sizes.md")]
    out: PathBuf,
    /// Folder on the disk to be measured.
    #[arg(long, default_value = "/tmp/nandina-sizes-bench")]
    work: PathBuf,
}

const COLUMNS: usize = 16;
const DEVICES: [&str; 4] = ["real", "nvme", "p300", "disk"];
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn main() {
    let arguments = Arguments::parse();
    let mut page = String::from(
        "# Sizes from the profile beside hand-picked ones\n\n\
         `cargo run --release -p nandina-bench --bin sizes_bench`\n\n\
         Every line: the time with the sizes and depths that follow from a quick calibration, beside the best of a grid \
         of hand-picked ones. The target is to be within 5 % of the best. Simulated drives are in virtual time, in which \
         computing takes none. The real device is a shared virtual disk: the best is found in three rounds over the whole grid, \
         and then compared in eleven paired runs, of which the median time and the median ratio are shown.\n\n",
    );
    for name in DEVICES {
        std::fs::create_dir_all(&arguments.work).unwrap();
        one_device(name, &arguments, &mut page);
        std::fs::remove_dir_all(&arguments.work).unwrap();
        runner::write(&arguments.out, &page).unwrap();
    }
    println!("{page}");
}

fn one_device(name: &str, arguments: &Arguments, page: &mut String) {
    eprintln!("{name}");
    let device = match DriveModel::named(name) {
        None => Device::open(&arguments.work, DeviceOptions::default()).unwrap(),
        Some(model) => {
            let options = SimulationOptions { contents: Contents::Volatile, ..SimulationOptions::of(model) };
            let (device, simulation) = nandina_simulation::on_drive(options);
            simulation.fill_drive();
            device
        }
    };
    let profile = Calibration::quick().run(&device, &mut |_| true).unwrap();
    device.set_profile(profile);
    let sizes = device.sizes();
    let rounds = match name {
        "real" => Rounds { heats: arguments.heats, finals: arguments.finals },
        // Only where the arm happens to stand differs from time to time.
        _ => Rounds { heats: 1, finals: 3 },
    };
    writeln!(
        page,
        "## {name}\n\nProfile: reads of {} KiB, {} at once; gap {} KiB; writes of {} KiB, {} at once; pages of {} KiB.\n\n\
         | work | profile | best hand-picked | ratio | the best was |\n|---|--:|--:|--:|---|",
        sizes.read_bytes / KIB,
        sizes.read_depth,
        sizes.gap_bytes / KIB,
        sizes.write_bytes / KIB,
        sizes.write_depth,
        sizes.page_bytes / KIB
    )
    .unwrap();
    scans(&device, arguments, rounds, page);
    partitioning(&device, arguments, &sizes, rounds, page);
    page.push('\n');
}

/// Ways to do the same work; the first is the profile's.
struct Contest<'a> {
    work: String,
    names: Vec<String>,
    /// Does the work in one of the ways; seconds.
    run: Box<dyn FnMut(usize) -> f64 + 'a>,
}

impl Contest<'_> {
    /// Heats choose the best hand-picked way. It then meets the profile's way again and again, as the fastest of many
    /// noisy times would flatter it.
    fn line(&mut self, rounds: Rounds, page: &mut String) {
        let mut heats = vec![Vec::new(); self.names.len()];
        for _ in 0..rounds.heats {
            for (way, seconds) in heats.iter_mut().enumerate().skip(1) {
                seconds.push((self.run)(way));
            }
        }
        let medians: Vec<f64> = heats.into_iter().skip(1).map(median).collect();
        let best = 1 + (0..medians.len()).min_by(|&a, &b| medians[a].total_cmp(&medians[b])).unwrap();
        let (mut profile, mut picked) = (Vec::new(), Vec::new());
        for number in 0..rounds.finals {
            let order = if number % 2 == 0 { [0, best] } else { [best, 0] };
            for way in order {
                let seconds = (self.run)(way);
                if way == 0 { &mut profile } else { &mut picked }.push(seconds);
            }
        }
        let ratios: Vec<f64> =
            profile.iter().zip(&picked).map(|(profile, picked)| profile / picked).collect();
        writeln!(
            page,
            "| {} | {:.1} ms | {:.1} ms | {:.2} | {} |",
            self.work,
            median(profile) * 1e3,
            median(picked) * 1e3,
            median(ratios),
            self.names[best]
        )
        .unwrap();
    }
}

/// How often work is done.
#[derive(Clone, Copy)]
struct Rounds {
    heats: usize,
    finals: usize,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn scans(device: &Device, arguments: &Arguments, rounds: Rounds, page: &mut String) {
    device.create_directory("database").unwrap();
    let store = Store::open(device.subdirectory("database").unwrap(), Mode::Write).unwrap();
    // One page size for all, the one that the profile chose.
    let table = import(&store, arguments.million_rows * 1_000_000);
    let mut grid: Vec<(Option<usize>, Option<u64>, Option<u64>)> = vec![(None, None, None)];
    for request in [64, 256, 1024] {
        for window in [1, 2, 4, 8] {
            for gap in [0, 16, 64, 256, 1024] {
                grid.push((Some(window * MIB), Some(request << 10), Some(gap << 10)));
            }
        }
    }
    let names: Vec<String> = grid
        .iter()
        .map(|(window, request, gap)| match (window, request, gap) {
            (Some(window), Some(request), Some(gap)) => format!(
                "requests of {} KiB, window {} MiB, gap {} KiB",
                request >> 10,
                window / MIB,
                gap >> 10
            ),
            _ => "profile".to_owned(),
        })
        .collect();
    for columns in [vec![0], vec![0, 4, 8, 12], (0..COLUMNS).collect::<Vec<_>>()] {
        let work = format!("scan of {} of {COLUMNS} columns", columns.len());
        let run = |way: usize| {
            let (window_bytes, request_bytes, merge_gap_bytes) = grid[way];
            let options = ScanOptions {
                projection: Some(columns.clone()),
                window_bytes,
                request_bytes,
                merge_gap_bytes,
                ..ScanOptions::default()
            };
            scan(device, &table, options)
        };
        Contest { work, names: names.clone(), run: Box::new(run) }.line(rounds, page);
    }
    fetches(device, &table, rounds, page);
    drop(table);
    store.drop_table("t").unwrap();
}

fn scan(device: &Device, table: &Table, options: ScanOptions) -> f64 {
    let started = device.now();
    let scan = table.scan(options).unwrap();
    let mut reader = scan.reader();
    let mut rows = 0;
    while let Some(batch) = reader.next_blocking() {
        rows += batch.unwrap().num_rows() as u64;
    }
    assert_eq!(rows, table.rows());
    (device.now() - started).as_secs_f64()
}

fn fetches(device: &Device, table: &Table, rounds: Rounds, page: &mut String) {
    let pages = table.file_bytes() / table.page_bytes() as u64;
    let ids: Vec<RowId> = (0..2000)
        .map(|number: u64| PageNumber(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (pages / 2)))
        .map(|page| RowId::new(page, 0))
        .collect();
    let windows =
        [None, Some(256 * KIB), Some(MIB), Some(2 * MIB), Some(4 * MIB), Some(8 * MIB), Some(16 * MIB)];
    let name = |window: &Option<usize>| match window {
        Some(window) => format!("window {} KiB", window / KIB),
        None => "profile".to_owned(),
    };
    let run = |way: usize| {
        let started = device.now();
        let options = FetchOptions { window_bytes: windows[way], ..Default::default() };
        let rows = table.fetch_blocking(&ids, &[0, 7], &options).unwrap();
        assert_eq!(rows.num_rows(), ids.len());
        (device.now() - started).as_secs_f64()
    };
    let work = "fetch of 2,000 rows of random pages".to_owned();
    Contest { work, names: windows.iter().map(name).collect(), run: Box::new(run) }.line(rounds, page);
}

fn import(store: &Store, rows: usize) -> Table {
    let fields: Vec<Field> =
        (0..COLUMNS).map(|column| Field::new(format!("c{column}"), DataType::Int64, false)).collect();
    let schema = Arc::new(Schema::new(fields));
    let definition = TableDefinition::new("t", Arc::clone(&schema));
    let writer =
        store.create_table_with_rows(definition, IfExists::Replace, WriteOptions::default()).unwrap();
    let mut lane = writer.lane();
    for first in (0..rows).step_by(8192) {
        let until = rows.min(first + 8192);
        let column = |column: usize| {
            let values = (first..until).map(|row| (row * COLUMNS + column) as i64 * 0x9E37_79B9);
            Arc::new(values.collect::<Int64Array>()) as ArrayRef
        };
        let batch = RecordBatch::try_new(Arc::clone(&schema), (0..COLUMNS).map(column).collect()).unwrap();
        lane.append_blocking(&batch).unwrap();
    }
    lane.finish_blocking().unwrap();
    writer.commit_blocking().unwrap();
    store.table("t").unwrap()
}

fn partitioning(device: &Device, arguments: &Arguments, sizes: &IoSizes, rounds: Rounds, page: &mut String) {
    let bench = Workbench::open(device, arguments.scale, None).unwrap();
    for algorithm in [Algorithm::NHash, Algorithm::OverlappedNHash] {
        for (partitions, memory) in [(32, 4 * MIB), (32, 32 * MIB), (128, 8 * MIB), (128, 64 * MIB)] {
            let budget = memory / partitions;
            let picked = [4, 8, 16, 32, 64, 128, 256, 512].map(|kib| kib * KIB);
            let shape = |blocked_bytes| RingShape::of(algorithm, Unit::Blocked, budget, blocked_bytes);
            let mut names = vec!["profile".to_owned()];
            // As many to a ring as joins have.
            let blocked_bytes = sizes.write_bytes.min(budget / sizes.ring_writes).max(4 * KIB);
            let mut rings = vec![shape(blocked_bytes).unwrap()];
            for blocked_bytes in picked {
                let ring = shape(blocked_bytes).unwrap();
                // Sizes that the memory cuts down to the same ring are one contender.
                if !rings[1..].contains(&ring) {
                    names.push(format!("sub-buffers of {} KiB", ring.sub_buffer_bytes / KIB));
                    rings.push(ring);
                }
            }
            let work = format!("{}, {partitions} partitions in {} MiB", algorithm.name(), memory / MIB);
            let run = |way: usize| {
                let trial = bench.run(&TrialOptions {
                    algorithm,
                    unit: Unit::Blocked,
                    partitions,
                    ring: rings[way],
                    input_buffer_bytes: 4 * MIB,
                    verify: false,
                });
                trial.unwrap().elapsed_s
            };
            Contest { work, names, run: Box::new(run) }.line(rounds, page);
        }
    }
}
