//! Does the program hold under what may happen to it: kills, power losses, damage, odd inputs, signals, full disks, limits?
//!
//! ```text
//! cargo build --release && cargo run --release -p nandina-bench --bin torture -- --minutes 30 --work /tmp/torture --out broken
//! ```
//!
//! Prints a table of tries and failures. As root it tries power losses and full disks, too, on loop devices.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use nandina_bench::machine::Machine;
use nandina_bench::program::Program;
use nandina_bench::torture::{Plan, names, run};
use nandina_bench::{BenchError, Result, runner};

/// Try to break the program.
#[derive(Debug, Parser)]
#[command(name = "torture")]
struct Arguments {
    /// The program; the one beside this unless told.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Minutes.
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// The first seed; every round has the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Rounds at most.
    #[arg(long, default_value_t = u64::MAX)]
    rounds: u64,
    /// Only these trials.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Scratch folder, on the device to be used.
    #[arg(long, default_value = "/tmp/nandina-torture")]
    work: PathBuf,
    /// Folder for what broke.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Markdown file for the table.
    #[arg(long)]
    page: Option<PathBuf>,
}

fn main() -> ExitCode {
    runner::main(|arguments: Arguments| torture(arguments).map(runner::verdict))
}

fn torture(arguments: Arguments) -> Result<bool> {
    if let Some(name) = arguments.only.iter().find(|name| !names().contains(&name.as_str())) {
        return Err(BenchError::Setup(format!("there is no trial '{name}': {}", names().join(", "))));
    }
    std::fs::create_dir_all(&arguments.work).map_err(BenchError::file(&arguments.work))?;
    let work = arguments.work.canonicalize().map_err(BenchError::file(&arguments.work))?;
    let machine = Machine::this(&work).describe();
    let plan = Plan {
        program: Program::beside(arguments.program.as_deref())?,
        work,
        out: arguments.out,
        seed: arguments.seed,
        duration: Duration::from_secs_f64(arguments.minutes * 60.0),
        attempts: arguments.rounds,
        only: arguments.only,
    };
    let report = run(&plan)?;
    println!("{}\n{} tries, {} broke", report.table().to_text(), report.attempts(), report.broke());
    if let Some(page) = &arguments.page {
        runner::write(page, format!("On {machine}.\n\n{}", report.to_markdown()))?;
    }
    Ok(report.broke() == 0)
}
