//! How fast are statements of SQL that find, change and add a few rows, in memory and far beyond it, in one session and in many?
//!
//! ```text
//! cargo run --release -p nandina-bench --bin changes_bench
//! ```
//!
//! Beside SQLite, which is linked into this program; every measurement is a process of its own below a hard cap of memory.
//! `store_bench` has the same of the row store below SQL.

mod page;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use nandina_bench::capped::{self, Capping, Usage};
use nandina_bench::machine::Machine;
use nandina_bench::row_stores::Outcome;
use nandina_bench::sql_rows::{Contender, RANGE_ROWS, ROW_BYTES, Task, Work, run};
use nandina_bench::{BenchError, Result, quantity, runner};
use serde::{Deserialize, Serialize};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Time short statements.
#[derive(Debug, Parser)]
#[command(name = "changes_bench")]
struct Arguments {
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Contender::ALL)]
    contenders: Vec<Contender>,
    #[arg(long, value_delimiter = ',', default_value = "1,4,16")]
    sessions: Vec<usize>,
    /// Of each measurement.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// The memory limit where rows do not fit, which is also SQLite's cache.
    #[arg(long, value_parser = quantity::parse_bytes, default_value = "64MiB")]
    limit: u64,
    /// What a process may use beyond its limit, the page cache included.
    #[arg(long, value_parser = quantity::parse_bytes, default_value = "128MiB")]
    margin: u64,
    /// How many times as many bytes as the limit the rows have; 0 is in memory.
    #[arg(long, value_delimiter = ',', default_value = "0,10")]
    times: Vec<u64>,
    /// Rows where they fit.
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// A program that caps a command, with the options and the report of peers/capped.py.
    #[arg(long)]
    capped: Option<PathBuf>,
    /// Folder for the databases, on the disk to be measured.
    #[arg(long, default_value_os_t = std::env::temp_dir().join("changes-bench"))]
    work: PathBuf,
    /// Markdown file for the results; JSON and SVG go beside it.
    #[arg(long, default_value = "docs/benchmarks/changes.md")]
    out: PathBuf,
    /// One measurement, for this program itself.
    #[arg(long, hide = true)]
    task: Option<String>,
}

/// Where the rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    /// How many times as many bytes as the limit they have; 0 is in memory.
    times: u64,
    rows: u64,
    limit_bytes: u64,
    cap_bytes: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Cell {
    place: Place,
    contender: Contender,
    work: Work,
    sessions: usize,
    /// `None` where the process did not end well: killed at the cap, mostly.
    outcome: Option<Outcome>,
    usage: Usage,
}

#[derive(Debug, Serialize, Deserialize)]
struct Figures {
    machine: Machine,
    cells: Vec<Cell>,
}

fn main() -> ExitCode {
    runner::main(|arguments: Arguments| match &arguments.task {
        Some(task) => capped::answer(task, run),
        None => {
            let capping = Capping::new(&arguments.work, arguments.capped.as_deref())?;
            Bench { arguments, capping }.run()
        }
    })
}

struct Bench {
    arguments: Arguments,
    capping: Capping,
}

/// The limit where rows fit into memory, of which Nandina's buffer pool has a quarter.
const AMPLE_BYTES: u64 = 2 << 30;

impl Bench {
    fn run(&self) -> Result<()> {
        let arguments = &self.arguments;
        let mut figures = Figures { machine: Machine::this(&arguments.work), cells: Vec::new() };
        for &times in &arguments.times {
            let place = self.place(times);
            // An engine's statements, as texts and prepared, are about one database.
            for is_nandina in [true, false] {
                let contenders = arguments.contenders.iter().copied();
                let contenders: Vec<Contender> =
                    contenders.filter(|contender| contender.is_nandina() == is_nandina).collect();
                self.statements(place, &contenders, &mut figures)?;
            }
        }
        runner::write_json(&arguments.out.with_extension("json"), &figures)?;
        page::plot(&arguments.out.with_extension("svg"), &figures)?;
        runner::write(&arguments.out, page::page(arguments, &figures))
    }

    fn place(&self, times: u64) -> Place {
        let Arguments { limit, margin, rows, .. } = self.arguments;
        // Whole ranges, and whole groups.
        let whole = |rows: u64| (rows / RANGE_ROWS).max(1) * RANGE_ROWS;
        match times {
            0 => {
                Place { times, rows: whole(rows), limit_bytes: AMPLE_BYTES, cap_bytes: AMPLE_BYTES + margin }
            }
            times => Place {
                times,
                rows: whole(limit * times / ROW_BYTES as u64),
                limit_bytes: limit,
                cap_bytes: limit + margin,
            },
        }
    }

    fn statements(&self, place: Place, contenders: &[Contender], figures: &mut Figures) -> Result<()> {
        let Some(&first) = contenders.first() else { return Ok(()) };
        let works = [
            Work::Read,
            Work::Group,
            Work::Range,
            Work::Groups,
            Work::RelaxedUpdate,
            Work::Update,
            Work::RelaxedInsert,
            Work::Insert,
        ];
        let folder = self.arguments.work.join("database");
        remove(&folder)?;
        std::fs::create_dir_all(&folder).map_err(BenchError::file(&folder))?;
        let load = Task {
            contender: first,
            folder,
            limit_bytes: place.limit_bytes,
            rows: place.rows,
            sessions: 1,
            seconds: self.arguments.seconds,
            is_warm: place.times == 0,
            work: Work::Load,
        };
        figures.cells.push(self.cell(place, &load)?);
        for work in works {
            for &contender in contenders {
                for &sessions in &self.arguments.sessions {
                    let task = Task { contender, work, sessions, ..load.clone() };
                    figures.cells.push(self.cell(place, &task)?);
                }
            }
        }
        remove(&load.folder)
    }

    fn cell(&self, place: Place, task: &Task) -> Result<Cell> {
        let (outcome, usage) = self.capping.attempt::<Outcome>(task, place.cap_bytes)?;
        let Task { contender, work, sessions, .. } = *task;
        let head = format!("{:>3} × {:17} {work:<13?} {sessions:3} sessions:", place.times, contender.name());
        let resident = quantity::bytes(usage.peak_rss);
        match &outcome {
            Ok(outcome) => println!(
                "{head} {:9.0}/s, median {}, 99 % {}, {:.1} KiB read each, {resident}",
                outcome.per_second(),
                quantity::short_time(outcome.median_seconds),
                quantity::short_time(outcome.slow_seconds),
                outcome.read_bytes as f64 / 1024.0 / outcome.operations as f64,
            ),
            Err(message) => println!("{head} ended with {}, {resident}: {}", usage.status, message.trim()),
        }
        Ok(Cell { place, contender, work, sessions, outcome: outcome.ok(), usage })
    }
}

fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(BenchError::file(folder)(error)),
        _ => Ok(()),
    }
}
