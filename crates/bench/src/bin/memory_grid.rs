//! How far above its memory limit is the program, by shape of rows and by operator?
//!
//! ```text
//! cargo build --release && cargo run --release -p nandina-bench --bin memory_grid
//! ```
//!
//! Every cell is a run of the program in a process of its own, over 160 MB of rows; the most that was resident counts.
//! The program promises the limit plus 64 MB from 32 MB up.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use nandina_bench::machine::Machine;
use nandina_bench::program::Program;
use nandina_bench::table::Table;
use nandina_bench::torture::memory::{Cell, Operation, PROMISED_BYTES, Shape, is_refused, make, measure};
use nandina_bench::{BenchError, Result, quantity, runner};

/// Measure what is resident under a memory limit.
#[derive(Debug, Parser)]
#[command(name = "memory_grid")]
struct Arguments {
    /// The program; the one beside this unless told.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Memory limits.
    #[arg(long, value_delimiter = ',', default_value = "32MB,128MB", value_parser = quantity::parse_bytes)]
    limits: Vec<u64>,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Only rows of so many columns.
    #[arg(long, value_delimiter = ',')]
    columns: Vec<usize>,
    /// Only these operations.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Scratch folder, on the device to be used.
    #[arg(long, default_value = "/tmp/nandina-memory-grid")]
    work: PathBuf,
    /// Markdown file for the results.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// One cell, and what was seen.
struct Measured {
    cell: Cell,
    /// Bytes that were resident at most; none where the query was refused.
    peak_bytes: Option<u64>,
    seconds: f64,
}

impl Measured {
    /// Bytes above the limit.
    fn beyond(&self) -> Option<u64> {
        Some(self.peak_bytes?.saturating_sub(self.cell.limit_bytes))
    }
}

fn main() -> ExitCode {
    runner::main(|arguments| run(&arguments))
}

fn run(arguments: &Arguments) -> Result<()> {
    let operations: Vec<Operation> = Operation::ALL
        .into_iter()
        .filter(|operation| {
            arguments.only.is_empty() || arguments.only.iter().any(|name| name == operation.name())
        })
        .collect();
    let program = Program::beside(arguments.program.as_deref())?;
    let mut measured = Vec::new();
    for (number, shape) in Shape::ALL.into_iter().enumerate() {
        if !arguments.columns.is_empty() && !arguments.columns.contains(&shape.columns) {
            continue;
        }
        let folder = arguments.work.join(number.to_string());
        // What an interrupted run has left.
        if folder.exists() {
            std::fs::remove_dir_all(&folder).map_err(BenchError::file(&folder))?;
        }
        std::fs::create_dir_all(&folder).map_err(BenchError::file(&folder))?;
        make(&program, &folder, &shape)?;
        for &operation in &operations {
            for is_file in [false, true] {
                for &limit_bytes in &arguments.limits {
                    let cell = Cell { shape, is_file, operation, limit_bytes, threads: arguments.threads };
                    let ran = measure(&program, &folder, &cell)?;
                    let is_refused = is_refused(&ran);
                    if let Some(mistake) = ran.mistake() {
                        return Err(BenchError::Setup(mistake));
                    }
                    if !ran.is_ok() && !is_refused {
                        return Err(BenchError::Setup(ran.describe(&format!("{cell:?}"))));
                    }
                    let peak_bytes = (!is_refused).then_some(ran.peak_bytes);
                    let one = Measured { cell, peak_bytes, seconds: ran.seconds };
                    eprintln!(
                        "{shape}, {}, {}, {}: {} in {:.1} s",
                        operation.name(),
                        source(is_file),
                        quantity::bytes(limit_bytes),
                        one.beyond()
                            .map_or("refused".to_owned(), |bytes| format!("+ {}", quantity::bytes(bytes))),
                        one.seconds
                    );
                    measured.push(one);
                }
            }
        }
        std::fs::remove_dir_all(&folder).map_err(BenchError::file(&folder))?;
    }
    let mut page = head(arguments);
    for is_file in [false, true] {
        let table = table(&measured, &operations, is_file);
        println!("{}\n\n{}", source(is_file), table.to_text());
        page.push_str(&format!("\n## From a {}\n\n{}", source(is_file), table.to_markdown()));
    }
    let kept = measured.iter().filter(|one| one.beyond().is_none_or(|bytes| bytes <= PROMISED_BYTES)).count();
    let summary = format!("{kept} of {} runs kept the limit plus 64 MB.\n", measured.len());
    print!("{summary}");
    page.push_str(&format!("\n{summary}"));
    match &arguments.out {
        Some(out) => runner::write(out, page),
        None => Ok(()),
    }
}

fn source(is_file: bool) -> &'static str {
    if is_file { "Parquet file" } else { "table" }
}

/// Megabytes above the limit by shape and operation: the most of all limits.
fn table(measured: &[Measured], operations: &[Operation], is_file: bool) -> Table {
    let names = operations.iter().map(|operation| operation.name());
    let mut table = Table::new(1, std::iter::once("rows").chain(names));
    for shape in Shape::ALL {
        let of = |operation: &Operation| {
            let mut cells = measured
                .iter()
                .filter(|one| {
                    one.cell.shape == shape && one.cell.operation == *operation && one.cell.is_file == is_file
                })
                .peekable();
            cells.peek()?;
            Some(match cells.filter_map(Measured::beyond).max() {
                Some(bytes) if bytes > PROMISED_BYTES => format!("**{}**", bytes >> 20),
                Some(bytes) => (bytes >> 20).to_string(),
                None => "refused".to_owned(),
            })
        };
        let cells: Vec<Option<String>> = operations.iter().map(of).collect();
        if cells.iter().any(Option::is_some) {
            let cells = cells.into_iter().map(Option::unwrap_or_default);
            table.row(std::iter::once(shape.to_string()).chain(cells));
        }
    }
    table
}

fn head(arguments: &Arguments) -> String {
    let limits: Vec<String> = arguments.limits.iter().map(|limit| quantity::bytes(*limit)).collect();
    let only = match arguments.only.join(",") {
        all if all.is_empty() => String::new(),
        some => format!(" --only \"{some}\""),
    };
    format!(
        "# Resident memory above the limit\n\nMade by\n\n```sh\ncargo build --release && cargo run --release -p nandina-bench \
         --bin memory_grid -- --threads {} --limits {}{only}\n```\n\non {}. Every cell is the program in a process of its own over \
         160 MB of rows (20 MB of the first shape): the most that was resident, in MB above the limit, and the most of all \
         limits. 64 are promised; what exceeds them is bold.\n",
        arguments.threads,
        limits.join(",").replace(' ', ""),
        Machine::this(&arguments.work).describe()
    )
}
