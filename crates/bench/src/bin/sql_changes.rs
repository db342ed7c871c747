//! Random statements that change rows, to which Nandina and SQLite have to say the same.
//!
//! ```text
//! cargo run -p nandina-bench --bin sql_changes -- --seed 1 --minutes 10 --sessions 3 --memory-limit 1MiB
//! ```
//!
//! Ends with the first difference, and prints a script that shows it. The same seed makes the same statements.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use nandina_bench::changes::run::{Plan, run};
use nandina_bench::{Result, quantity, runner};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Compare what random statements do to rows.
#[derive(Debug, Parser)]
#[command(name = "sql_changes")]
struct Arguments {
    /// Of the first tables; others have the next ones.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Statements at most.
    #[arg(long, default_value_t = 100_000)]
    statements: usize,
    /// Minutes at most.
    #[arg(long)]
    minutes: Option<f64>,
    /// Sessions that take turns. With several, some read older states.
    #[arg(long, default_value_t = 1)]
    sessions: usize,
    #[arg(long, value_parser = quantity::parse_bytes)]
    memory_limit: Option<u64>,
    /// Statements on the same tables.
    #[arg(long, default_value_t = 400)]
    on_tables: usize,
    /// Seconds in which a script is made shorter.
    #[arg(long, default_value_t = 120)]
    shrinking: u64,
    /// Scratch folder.
    #[arg(long, default_value = "/tmp/nandina-sql-changes")]
    work: PathBuf,
}

fn main() -> ExitCode {
    runner::main(|arguments| changes(arguments).map(runner::verdict))
}

fn changes(arguments: Arguments) -> Result<bool> {
    let plan = Plan {
        seed: arguments.seed,
        statements: arguments.statements,
        duration: arguments.minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0)),
        sessions: arguments.sessions,
        memory_limit: arguments.memory_limit,
        steps_of_tables: arguments.on_tables,
        shrinking: Duration::from_secs(arguments.shrinking),
        work: arguments.work,
    };
    let runtime = runner::runtime(runner::processors().max(2))?;
    let summary = runtime.block_on(run(&plan))?;
    // A statement that has been given up may work on.
    runtime.shutdown_background();
    println!("{}", summary.render());
    Ok(summary.difference.is_none())
}
