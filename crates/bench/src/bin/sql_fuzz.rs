//! Random SQL whose answers several engines have to agree on.
//!
//! ```text
//! cargo run -p nandina-bench --bin sql_fuzz -- --seed 1 --minutes 10 --duckdb python3
//! ```
//!
//! Prints a script for each query that is answered wrongly, cut down to what matters, and a summary. The same seed makes
//! the same tables and queries.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use nandina_bench::fuzz::engines::Storage;
use nandina_bench::fuzz::generate::Avoid;
use nandina_bench::fuzz::oracle::Oracle;
use nandina_bench::fuzz::run::{Plan, run};
use nandina_bench::{Result, runner};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Compare answers to random queries.
#[derive(Debug, Parser)]
#[command(name = "sql_fuzz")]
struct Arguments {
    /// The first seed; every schema has the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Queries at most.
    #[arg(long, default_value_t = usize::MAX)]
    queries: usize,
    /// Minutes at most.
    #[arg(long)]
    minutes: Option<f64>,
    /// What answers are compared with; all unless told.
    #[arg(long, value_enum, value_delimiter = ',')]
    oracle: Vec<Oracle>,
    /// A Python that has the package duckdb.
    #[arg(long)]
    duckdb: Option<String>,
    /// Where tables lie; alternating unless told.
    #[arg(long, value_enum)]
    storage: Option<Storage>,
    /// Without lists and structs.
    #[arg(long)]
    flat: bool,
    /// Without NaN, infinities and negative zero.
    #[arg(long)]
    no_odd_floats: bool,
    /// What to leave out while it is known to be wrong.
    #[arg(long, value_enum, value_delimiter = ',')]
    avoid: Vec<Avoid>,
    /// A statement to run in every session first, as `SET datafusion.optimizer.… = false`.
    #[arg(long)]
    set: Vec<String>,
    /// Failures after which to stop.
    #[arg(long, default_value_t = 100)]
    failures: usize,
    /// Queries that DuckDB answers and we refuse are failures too, one for each reason.
    #[arg(long)]
    refusals: bool,
    /// Failing queries as they were made.
    #[arg(long)]
    no_shrinking: bool,
    /// Scratch folder.
    #[arg(long, default_value = "/tmp/nandina-sql-fuzz")]
    work: PathBuf,
    /// Folder for scripts of failing queries.
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    runner::main(|arguments| fuzz(arguments).map(runner::verdict))
}

fn fuzz(arguments: Arguments) -> Result<bool> {
    let all = vec![Oracle::Duckdb, Oracle::Naive, Oracle::Tiny, Oracle::Partitions];
    let plan = Plan {
        seed: arguments.seed,
        queries: arguments.queries,
        duration: arguments.minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0)),
        oracles: if arguments.oracle.is_empty() { all } else { arguments.oracle },
        duckdb: arguments.duckdb,
        storage: arguments.storage,
        has_nested: !arguments.flat,
        has_odd_floats: !arguments.no_odd_floats,
        avoid: arguments.avoid,
        settings: arguments.set,
        work: arguments.work,
        out: arguments.out,
        most_failures: arguments.failures,
        reports_refusals: arguments.refusals,
        shrinks: !arguments.no_shrinking,
    };
    let runtime = runner::runtime(runner::processors())?;
    let summary = runtime.block_on(run(&plan))?;
    // A query that has been given up may compute on.
    runtime.shutdown_background();
    println!("{}", summary.render());
    Ok(summary.wrong() == 0)
}
