//! How many commits a second does the log make last, by how many threads, and how fast is it read after a crash?
//!
//! ```text
//! cargo run --release -p nandina-bench --bin log_bench
//! ```
//!
//! Beside it what the device can do, one write and sync after the other, and SQLite with a row for each commit.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use nandina_bench::machine::Machine;
use nandina_bench::plot::{Panel, Series, write_svg};
use nandina_bench::table::Table;
use nandina_bench::{BenchError, Result, quantity, runner};
use nandina_device::{Device, DeviceOptions, FileClass, block_on};
use nandina_rowstore::log::{Log, LogOptions, Lsn};
use serde::{Deserialize, Serialize};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Time commits through the log.
#[derive(Debug, Parser)]
#[command(name = "log_bench")]
struct Arguments {
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64")]
    threads: Vec<usize>,
    /// Of each measurement.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Bytes of a record.
    #[arg(long, default_value_t = 120)]
    record_bytes: usize,
    /// Bytes of records that are read again.
    #[arg(long, value_parser = quantity::parse_bytes, default_value = "256MiB")]
    recovery_bytes: u64,
    /// Folder for the logs, on the disk to be measured.
    #[arg(long, default_value_os_t = std::env::temp_dir().join("log-bench"))]
    work: PathBuf,
    /// Markdown file for the results; JSON and SVG go beside it.
    #[arg(long, default_value = "docs/benchmarks/log.md")]
    out: PathBuf,
}

const LOG_ID: u64 = 1;
const BLOCK_BYTES: usize = 4096;
const SQLITE: &str = include_str!("../../peers/sqlite_commits.py");

#[derive(Debug, Serialize)]
struct Figures {
    machine: Machine,
    /// Writes of a block that are synced, one after the other.
    device_syncs_per_second: f64,
    commits: Vec<Commits>,
    recovery: Recovery,
}

#[derive(Debug, Serialize)]
struct Commits {
    threads: usize,
    per_second: f64,
    syncs_per_second: f64,
    sqlite_per_second: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Recovery {
    records: u64,
    write_seconds: f64,
    read_seconds: f64,
    log_bytes: u64,
}

fn main() -> ExitCode {
    runner::main(|arguments| run(&arguments))
}

fn run(arguments: &Arguments) -> Result<()> {
    std::fs::create_dir_all(&arguments.work).map_err(BenchError::file(&arguments.work))?;
    let device_syncs_per_second = device_syncs(arguments)?;
    println!("the device: {device_syncs_per_second:.0} syncs/s");
    let mut commits = Vec::new();
    for &threads in &arguments.threads {
        let measured = commits_of(arguments, threads)?;
        println!(
            "{threads:3} threads: {:.0} commits/s, {:.0} syncs/s, SQLite {:.0} commits/s",
            measured.per_second,
            measured.syncs_per_second,
            measured.sqlite_per_second.unwrap_or(f64::NAN)
        );
        commits.push(measured);
    }
    let recovery = recovery(arguments)?;
    let machine = Machine::this(&arguments.work);
    let figures = Figures { machine, device_syncs_per_second, commits, recovery };
    runner::write_json(&arguments.out.with_extension("json"), &figures)?;
    plot(&arguments.out.with_extension("svg"), &figures)?;
    runner::write(&arguments.out, page(arguments, &figures))
}

/// An empty folder on the disk.
fn device(arguments: &Arguments, name: &str) -> Result<Device> {
    let folder = arguments.work.join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(BenchError::file(&folder))?;
    Device::open(&folder, DeviceOptions::default()).map_err(setup)
}

fn setup(error: impl std::fmt::Display) -> BenchError {
    BenchError::Setup(error.to_string())
}

fn open(device: &Device, take: impl FnMut(Lsn, &[u8])) -> Result<Log> {
    let mut take = take;
    let log = Log::open(device.clone(), LOG_ID, LogOptions::default(), Lsn::default(), |lsn, record| {
        take(lsn, record);
        Ok(())
    });
    log.map_err(setup)
}

fn device_syncs(arguments: &Arguments) -> Result<f64> {
    const FILE_BYTES: u64 = 16 << 20;
    let device = device(arguments, "device")?;
    let file = device.create("blocks", FileClass::Log).map_err(setup)?;
    for offset in (0..FILE_BYTES).step_by(1 << 20) {
        file.write_blocking(offset, device.buffer(1 << 20)).map_err(setup)?;
    }
    file.sync().map_err(setup)?;
    let begun = Instant::now();
    let mut syncs = 0u64;
    while begun.elapsed().as_secs_f64() < arguments.seconds {
        let offset = syncs * BLOCK_BYTES as u64 % FILE_BYTES;
        file.write_blocking(offset, device.buffer(BLOCK_BYTES)).map_err(setup)?;
        file.sync().map_err(setup)?;
        syncs += 1;
    }
    Ok(syncs as f64 / begun.elapsed().as_secs_f64())
}

fn commits_of(arguments: &Arguments, threads: usize) -> Result<Commits> {
    let device = device(arguments, "log")?;
    let log = open(&device, |_, _| {})?;
    let before = device.counters().of(FileClass::Log);
    let (commits, released) = (AtomicU64::new(0), AtomicU64::new(0));
    let record = vec![7; arguments.record_bytes];
    let begun = Instant::now();
    let end = begun + Duration::from_secs_f64(arguments.seconds);
    let work = || -> Result<()> {
        while Instant::now() < end {
            let lsn = log.append(&record).map_err(setup)?;
            log.wait_until_durable(lsn).map_err(setup)?;
            commits.fetch_add(1, Ordering::Relaxed);
            // Files are used again, as behind a checkpoint.
            let old = released.load(Ordering::Relaxed);
            let is_due = lsn.0 > old + LogOptions::default().file_bytes;
            if is_due && released.compare_exchange(old, lsn.0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                log.release_before(lsn).map_err(setup)?;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().try_for_each(|thread| match thread.join() {
            Ok(ended) => ended,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let io = device.counters().of(FileClass::Log).since(&before);
    let commits = commits.into_inner() as f64;
    Ok(Commits {
        threads,
        per_second: commits / seconds,
        syncs_per_second: io.sync_requests as f64 / seconds,
        sqlite_per_second: sqlite(arguments, threads)?,
    })
}

/// The same through SQLite; `None` without Python.
fn sqlite(arguments: &Arguments, threads: usize) -> Result<Option<f64>> {
    #[derive(Deserialize)]
    struct Said {
        commits: u64,
        seconds: f64,
    }
    let script = arguments.work.join("sqlite_commits.py");
    runner::write(&script, SQLITE)?;
    let mut command = Command::new("python3");
    command.arg(&script).arg("--folder").arg(&arguments.work);
    command.args(["--threads", &threads.to_string(), "--seconds", &arguments.seconds.to_string()]);
    command.args(["--bytes", &arguments.record_bytes.to_string()]);
    let Ok(output) = command.output() else { return Ok(None) };
    let said: Said = serde_json::from_slice(&output.stdout)
        .map_err(|_| BenchError::Setup(String::from_utf8_lossy(&output.stderr).into_owned()))?;
    Ok(Some(said.commits as f64 / said.seconds))
}

fn recovery(arguments: &Arguments) -> Result<Recovery> {
    let device = device(arguments, "recovery")?;
    let log = open(&device, |_, _| {})?;
    let records = arguments.recovery_bytes / arguments.record_bytes as u64;
    let begun = Instant::now();
    let mut last = Lsn::default();
    for number in 0..records {
        let mut record = vec![0; arguments.record_bytes];
        record.iter_mut().zip(number.to_le_bytes()).for_each(|(to, from)| *to = from);
        last = log.append(&record).map_err(setup)?;
        block_on(log.throttle()).map_err(setup)?;
    }
    log.wait_until_durable(last).map_err(setup)?;
    let write_seconds = begun.elapsed().as_secs_f64();
    let log_bytes = log.end().0;
    drop(log);
    let begun = Instant::now();
    let mut read = 0;
    let _log = open(&device, |_, _| read += 1)?;
    if read != records {
        return Err(BenchError::Setup(format!("{read} of {records} records are found again")));
    }
    Ok(Recovery { records, write_seconds, read_seconds: begun.elapsed().as_secs_f64(), log_bytes })
}

fn plot(path: &Path, figures: &Figures) -> Result<()> {
    let rates = |rate: fn(&Commits) -> Option<f64>| figures.commits.iter().map(rate).collect();
    let panel = Panel {
        title: "durable commits".into(),
        x_label: "threads".into(),
        y_label: "commits a second".into(),
        categories: figures.commits.iter().map(|commits| commits.threads.to_string()).collect(),
        series: vec![
            Series::new("Nandina's log", rates(|commits| Some(commits.per_second))),
            Series::new("syncs of it", rates(|commits| Some(commits.syncs_per_second))),
            Series::new("SQLite", rates(|commits| commits.sqlite_per_second)),
        ],
        bound: Some(figures.device_syncs_per_second),
        is_logarithmic: true,
    };
    write_svg(path, "Commits that last", &[panel], 1)
}

fn page(arguments: &Arguments, figures: &Figures) -> String {
    let Recovery { records, write_seconds, read_seconds, log_bytes } = figures.recovery;
    let rate = |seconds: f64| quantity::bytes((log_bytes as f64 / seconds) as u64);
    let mut table =
        Table::new(0, ["threads", "commits/s", "syncs/s", "commits per sync", "SQLite", "÷ SQLite"]);
    for commits in &figures.commits {
        let sqlite = commits.sqlite_per_second;
        table.row([
            commits.threads.to_string(),
            format!("{:.0}", commits.per_second),
            format!("{:.0}", commits.syncs_per_second),
            format!("{:.1}", commits.per_second / commits.syncs_per_second),
            sqlite.map_or_else(|| "–".to_owned(), |rate| format!("{rate:.0}")),
            sqlite.map_or_else(|| "–".to_owned(), |rate| format!("{:.1}", commits.per_second / rate)),
        ]);
    }
    let file = arguments.out.with_extension("svg");
    let file = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    format!(
        "# Commits through the log\n\nMade by\n\n```sh\ncargo run --release -p nandina-bench --bin log_bench -- --seconds {} \
         --record-bytes {} --recovery-bytes {}\n```\n\non {}.\n\nEvery thread appends a record and waits until it is durable, again and \
         again. A block of 4 KiB that is written and synced by itself, one after the other, gets to {:.0} a second here (the line in \
         the plot). SQLite inserts a row of as many bytes with each commit, with a write-ahead log that is synced, through Python: it \
         does more for a commit than a log alone, and a connection that finds it locked sleeps before it tries again.\n\n![commits a second by threads](log.svg)\n\n{}\n## Reading it again\n\n{} records, {} of \
         log: written in {} s with the files for it ({}/s), read and checked in {} s ({}/s, {:.1} million records a second).\n",
        arguments.seconds,
        arguments.record_bytes,
        quantity::bytes(arguments.recovery_bytes).replace(' ', ""),
        figures.machine.describe(),
        figures.device_syncs_per_second,
        table.to_markdown(),
        records,
        quantity::bytes(log_bytes),
        quantity::seconds(write_seconds),
        rate(write_seconds),
        quantity::seconds(read_seconds),
        rate(read_seconds),
        records as f64 / read_seconds / 1e6,
    )
    .replace("(log.svg)", &format!("({file})"))
}
