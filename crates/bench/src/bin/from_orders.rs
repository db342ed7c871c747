//! Is a query's answer the same in whatever order FROM names its tables?
//!
//! ```text
//! cargo run -p nandina-bench --bin from_orders -- --tpcds DATA
//! ```
//!
//! Queries of many joins over tables with the same column names, those of TPC-H, and, with a folder that
//! `peers/tpcds_files.py` has filled, those of TPC-DS: each in its written, its reversed and some random orders, on native
//! tables and Parquet files, without a limit and under a tiny one. Ends with 1 if an answer differs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use nandina_bench::orders::check::{Report, check};
use nandina_bench::orders::suites::{self, Suite};
use nandina_bench::random::Random;
use nandina_bench::table::Table;
use nandina_bench::{BenchError, Result, runner};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Compare the answers to queries whose FROM is in several orders.
#[derive(Debug, Parser)]
#[command(name = "from_orders")]
struct Arguments {
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Generated queries.
    #[arg(long, default_value_t = 100)]
    queries: usize,
    /// Random orders of each query.
    #[arg(long, default_value_t = 5)]
    orders: usize,
    /// The tiny limit.
    #[arg(long, default_value = "4MiB")]
    limit: String,
    /// Scale of TPC-H; 0: none of it.
    #[arg(long, default_value_t = 0.01)]
    scale: f64,
    /// Folder of the queries of TPC-H.
    #[arg(long, default_value = "crates/nandina/tests/tpch")]
    tpch: PathBuf,
    /// Folder with the files and queries of TPC-DS.
    #[arg(long)]
    tpcds: Option<PathBuf>,
    /// Seconds that a query may take.
    #[arg(long, default_value_t = 120)]
    timeout: u64,
    /// Folder for scripts of queries whose answers differ.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Scratch folder.
    #[arg(long, default_value = "/tmp/nandina-from-orders")]
    work: PathBuf,
}

fn main() -> ExitCode {
    runner::main(|arguments: Arguments| run(&arguments).map(runner::verdict))
}

fn run(arguments: &Arguments) -> Result<bool> {
    let mut random = Random::new(arguments.seed);
    let mut all = Vec::new();
    if arguments.queries > 0 {
        all.push(suites::generated(arguments.queries, arguments.orders, &mut random));
    }
    if arguments.scale > 0.0 {
        all.push(suites::tpch(&arguments.tpch, arguments.scale, arguments.orders, &mut random)?);
    }
    if let Some(folder) = &arguments.tpcds {
        all.push(suites::tpcds(folder, arguments.orders, &mut random)?);
    }
    let runtime = runner::runtime(runner::processors())?;
    let mut table = Table::new(1, ["suite", "queries", "runs", "wrong", "refused at the limit"]);
    let mut is_right = true;
    std::fs::remove_dir_all(&arguments.work).ok();
    for suite in &all {
        let timeout = Duration::from_secs(arguments.timeout);
        let report = runtime.block_on(check(suite, &arguments.limit, timeout, &arguments.work))?;
        let counts = [suite.queries.len(), report.runs, report.wrong.len(), report.refused_at_limit.len()];
        table.row(std::iter::once(suite.name.clone()).chain(counts.map(|count| count.to_string())));
        is_right &= report.wrong.is_empty();
        if let Some(out) = &arguments.out {
            write_scripts(suite, &report, out)?;
        }
        for (at, message) in &report.refused_at_limit {
            println!("refused: {at}: {message}");
        }
    }
    println!("\n{}", table.to_text());
    std::fs::remove_dir_all(&arguments.work).ok();
    Ok(is_right)
}

/// A script for each query that is answered in several ways, with its tables, and each order once.
fn write_scripts(suite: &Suite, report: &Report, out: &Path) -> Result<()> {
    std::fs::create_dir_all(out).map_err(BenchError::file(out))?;
    for query in &suite.queries {
        let own = |(at, ..): &&(String, String, String)| at.contains(&format!(": {},", query.name));
        let wrong: Vec<_> = report.wrong.iter().filter(own).collect();
        if wrong.is_empty() {
            continue;
        }
        let mut text: String = suite.tables.iter().map(|(_, make)| format!("{make};\n")).collect();
        for (order, sql) in &query.texts {
            let said = wrong.iter().filter(|(_, _, other)| other == sql);
            text += &said.map(|(at, detail, _)| format!("-- {at}: {detail}\n")).collect::<String>();
            text += &format!("-- {order}\n{sql};\n");
        }
        let path = out.join(format!("{}-{}.sql", suite.name, query.name.replace([' ', ','], "-")));
        runner::write(&path, text)?;
    }
    Ok(())
}
