//! How fast are rows found, changed and added by key, in memory and far beyond it, by one thread and by many?
//!
//! ```text
//! cargo run --release -p nandina-bench --bin store_bench
//! ```
//!
//! Beside SQLite and redb, which are linked into this program; every measurement is a process of its own below a hard cap of memory.

mod page;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use nandina_bench::capped::{self, Capping, Usage};
use nandina_bench::fio::Job;
use nandina_bench::machine::Machine;
use nandina_bench::row_stores::{Engine, Outcome, Task, Work, run};
use nandina_bench::{BenchError, Result, quantity, runner};
use serde::{Deserialize, Serialize};

/// Time stores of rows by key.
#[derive(Debug, Parser)]
#[command(name = "store_bench")]
struct Arguments {
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Engine::ALL)]
    engines: Vec<Engine>,
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    threads: Vec<usize>,
    /// Of each measurement.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Memory of a process where data does not fit. A store's own cache has half of it.
    #[arg(long, value_parser = quantity::parse_bytes, default_value = "64MiB")]
    cap: u64,
    /// How many times as many bytes the rows have; 0 is in memory.
    #[arg(long, value_delimiter = ',', default_value = "0,10,50")]
    times: Vec<u64>,
    /// Rows where they fit.
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    #[arg(long, value_delimiter = ',', value_parser = quantity::parse_bytes, default_value = "4KiB,8KiB,16KiB,32KiB")]
    page_sizes: Vec<u64>,
    /// Page size of all else.
    #[arg(long, value_parser = quantity::parse_bytes, default_value = "8KiB")]
    page_size: u64,
    #[arg(long, value_delimiter = ',', value_parser = quantity::parse_bytes, default_value = "64MiB,256MiB,1GiB")]
    logs: Vec<u64>,
    /// Parts of the whole that are measured.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Rows, Part::Pages, Part::Recovery])]
    parts: Vec<Part>,
    /// A program that caps a command, with the options and the report of peers/capped.py.
    #[arg(long)]
    capped: Option<PathBuf>,
    /// Folder for the stores, on the disk to be measured.
    #[arg(long, default_value_os_t = std::env::temp_dir().join("store-bench"))]
    work: PathBuf,
    /// Markdown file for the results; JSON and SVG go beside it.
    #[arg(long, default_value = "docs/benchmarks/page-store.md")]
    out: PathBuf,
    /// One measurement, for this program itself.
    #[arg(long, hide = true)]
    task: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Rows,
    Pages,
    Recovery,
}

/// Where the rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    /// How many times as many bytes as the cap they have; 0 is in memory.
    times: u64,
    rows: u64,
    cap_bytes: u64,
    cache_bytes: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Cell {
    place: Place,
    engine: Engine,
    work: Work,
    threads: usize,
    /// `None` where the process did not end well: killed at the cap, mostly.
    outcome: Option<Outcome>,
    usage: Usage,
}

/// Pages through the pool beside what the device can do.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct PageCell {
    page_bytes: u64,
    threads: usize,
    /// `None` here and below where the process did not end well.
    outcome: Option<Outcome>,
    /// Random reads of this size and depth a second; `None` without fio.
    fio_per_second: Option<f64>,
    row_reads: Option<Outcome>,
    row_updates: Option<Outcome>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct WriteBack {
    outcome: Outcome,
    /// Writes of 1 MiB behind each other, bytes a second.
    fio_bytes_per_second: Option<f64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Figures {
    machine: Machine,
    cells: Vec<Cell>,
    pages: Vec<PageCell>,
    write_back: Option<WriteBack>,
    recoveries: Vec<Outcome>,
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

/// The cap where rows fit into memory.
const AMPLE_BYTES: u64 = 2 << 30;

impl Bench {
    fn run(&self) -> Result<()> {
        let arguments = &self.arguments;
        let has = |part| arguments.parts.contains(&part);
        let mut figures = Figures {
            machine: Machine::this(&arguments.work),
            cells: Vec::new(),
            pages: Vec::new(),
            write_back: None,
            recoveries: Vec::new(),
        };
        if has(Part::Rows) {
            for &times in &arguments.times {
                self.rows(self.place(times), &mut figures)?;
            }
        }
        if has(Part::Pages) {
            self.pages(&mut figures)?;
        }
        if has(Part::Recovery) {
            figures.recoveries = self.recoveries()?;
        }
        runner::write_json(&arguments.out.with_extension("json"), &figures)?;
        page::plot(&arguments.out.with_extension("svg"), &figures)?;
        runner::write(&arguments.out, page::page(arguments, &figures))
    }

    fn place(&self, times: u64) -> Place {
        let Arguments { cap, rows, .. } = self.arguments;
        let row_bytes = nandina_bench::row_stores::ROW_BYTES as u64;
        match times {
            0 => Place { times, rows, cap_bytes: AMPLE_BYTES, cache_bytes: AMPLE_BYTES / 4 },
            times => Place { times, rows: cap * times / row_bytes, cap_bytes: cap, cache_bytes: cap / 2 },
        }
    }

    fn rows(&self, place: Place, figures: &mut Figures) -> Result<()> {
        let mut works = vec![Work::Read, Work::Range, Work::Update, Work::Insert];
        if place.times == 0 {
            works.insert(2, Work::RelaxedUpdate);
        }
        for &engine in &self.arguments.engines {
            let task = self.empty(engine, place, self.arguments.page_size)?;
            figures.cells.push(self.cell(place, &task)?);
            for &work in &works {
                for &threads in &self.arguments.threads {
                    let task = Task { work, threads, ..task.clone() };
                    figures.cells.push(self.cell(place, &task)?);
                }
            }
            remove(&task.folder)?;
        }
        Ok(())
    }

    /// What loads the rows, into a new folder.
    fn empty(&self, engine: Engine, place: Place, page_bytes: u64) -> Result<Task> {
        let folder = self.arguments.work.join("store");
        remove(&folder)?;
        std::fs::create_dir_all(&folder).map_err(BenchError::file(&folder))?;
        Ok(Task {
            engine,
            folder,
            cache_bytes: place.cache_bytes,
            page_bytes: page_bytes as usize,
            rows: place.rows,
            threads: 1,
            seconds: self.arguments.seconds,
            is_warm: place.times == 0,
            work: Work::Load,
        })
    }

    fn cell(&self, place: Place, task: &Task) -> Result<Cell> {
        let (outcome, usage) = self.capping.attempt::<Outcome>(task, place.cap_bytes)?;
        let Task { engine, work, threads, .. } = *task;
        let head = format!("{:>3} × {:8} {work:<14?} {threads:3} threads:", place.times, engine.name());
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
        let outcome = outcome.ok();
        Ok(Cell { place, engine, work, threads, outcome, usage })
    }

    fn pages(&self, figures: &mut Figures) -> Result<()> {
        const FIO_BYTES: u64 = 512 << 20;
        let place = self.place(10);
        for &page_bytes in &self.arguments.page_sizes {
            let task = self.empty(Engine::Nandina, place, page_bytes)?;
            self.cell(place, &task)?;
            let file = page_file(&task.folder)?;
            let file_bytes = std::fs::metadata(&file).map_err(BenchError::file(&file))?.len();
            for &threads in &self.arguments.threads {
                let measured = |work| -> Result<Option<Outcome>> {
                    Ok(self
                        .capping
                        .attempt::<Outcome>(&Task { work, threads, ..task.clone() }, place.cap_bytes)?
                        .0
                        .ok())
                };
                let outcome = measured(Work::Pages)?;
                let fio = Job {
                    file: &file,
                    pattern: "randread",
                    file_bytes: file_bytes - file_bytes % page_bytes,
                    request_bytes: page_bytes,
                    depth: threads,
                    ramp_seconds: 0.5,
                    seconds: self.arguments.seconds,
                };
                let cell = PageCell {
                    page_bytes,
                    threads,
                    outcome,
                    fio_per_second: fio.run(),
                    row_reads: measured(Work::Read)?,
                    row_updates: measured(Work::Update)?,
                };
                println!("{}", page::page_line(&cell).join("  "));
                figures.pages.push(cell);
            }
            if page_bytes == self.arguments.page_size {
                let outcome =
                    self.measure(&Task { work: Work::WriteBack, ..task.clone() }, place.cap_bytes)?;
                let scratch = self.arguments.work.join("fio");
                let fio = Job {
                    file: &scratch,
                    pattern: "write",
                    file_bytes: FIO_BYTES,
                    request_bytes: 1 << 20,
                    depth: 8,
                    ramp_seconds: 0.5,
                    seconds: self.arguments.seconds,
                };
                let fio_bytes_per_second = fio.run().map(|requests| requests * (1 << 20) as f64);
                let _ = std::fs::remove_file(&scratch);
                println!(
                    "write-back: {:.0} pages/s, {}/s written, fio {}/s",
                    outcome.per_second(),
                    quantity::bytes((outcome.written_bytes as f64 / outcome.seconds) as u64),
                    quantity::bytes(fio_bytes_per_second.unwrap_or(0.0) as u64)
                );
                figures.write_back = Some(WriteBack { outcome, fio_bytes_per_second });
            }
            remove(&task.folder)?;
        }
        Ok(())
    }

    fn recoveries(&self) -> Result<Vec<Outcome>> {
        let place = self.place(10);
        let task = self.empty(Engine::Nandina, place, self.arguments.page_size)?;
        self.cell(place, &task)?;
        let mut recoveries = Vec::new();
        for &log_bytes in &self.arguments.logs {
            let task = Task { work: Work::Recovery { log_bytes }, ..task.clone() };
            let outcome = self.measure(&task, place.cap_bytes)?;
            println!(
                "recovery from {} of log ({} updates): {}",
                quantity::bytes(outcome.log_bytes),
                outcome.operations,
                quantity::seconds(outcome.seconds)
            );
            recoveries.push(outcome);
        }
        remove(&task.folder)?;
        Ok(recoveries)
    }

    /// Runs a task below a cap.
    fn measure(&self, task: &Task, cap_bytes: u64) -> Result<Outcome> {
        let (outcome, usage) = self.capping.attempt::<Outcome>(task, cap_bytes)?;
        outcome
            .map_err(|message| BenchError::Setup(format!("{task:?} ended with {}: {message}", usage.status)))
    }
}

/// The file with the pages of a store.
fn page_file(folder: &Path) -> Result<PathBuf> {
    let pages = folder.join("pages");
    let entries = std::fs::read_dir(&pages).map_err(BenchError::file(&pages))?;
    let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |file| file.len());
    let largest = entries.flatten().map(|entry| entry.path()).max_by_key(size);
    largest.ok_or_else(|| BenchError::Setup(format!("{} has no files", pages.display())))
}

fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(BenchError::file(folder)(error)),
        _ => Ok(()),
    }
}
