//! Which partitions should a hybrid hash join spill first? Joins by destage policy and memory.
//!
//! ```text
//! cargo run --release -p nandina-bench --bin destage_bench -- --data <folder with lineitem.parquet and orders.parquet>
//! ```
//!
//! The build side is `orders` in all joins. Skew on the build side makes one partition large without any probe row
//! for it, as with a default value in a key column; skew on the probe side is invisible when the choice is made.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use datafusion::physical_plan::collect;
use datafusion::prelude::SessionConfig;
use nandina_bench::machine::Machine;
use nandina_bench::session::{register_files, session, sum};
use nandina_bench::table::Table;
use nandina_bench::{BenchError, Result, quantity, runner};
use nandina_exec::memory::MemoryGovernor;
use nandina_exec::spill::DestagePolicy;
use serde::Serialize;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Time joins by destage policy.
#[derive(Debug, Parser)]
#[command(name = "destage_bench")]
struct Arguments {
    /// Folder with lineitem.parquet and orders.parquet.
    #[arg(long)]
    data: PathBuf,
    /// Rounds; the median counts.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Memory limits.
    #[arg(long, value_delimiter = ',', default_value = "1GB,512MB,256MB", value_parser = quantity::parse_bytes)]
    limits: Vec<u64>,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Folder for temporary files, on the disk to be measured.
    #[arg(long, default_value = "/tmp/nandina-destage-bench")]
    work: PathBuf,
    /// Markdown file for the results.
    #[arg(long, default_value = "docs/benchmarks/destage.md")]
    out: PathBuf,
}

const POLICIES: [(DestagePolicy, &str); 4] = [
    (DestagePolicy::Largest, "largest first"),
    (DestagePolicy::Smallest, "smallest first"),
    (DestagePolicy::Numbered, "by number"),
    (DestagePolicy::All, "all at once (Grace)"),
];

const SELECT: &str = "SELECT count(*), sum(l_extendedprice), min(l_comment), max(o_comment) FROM";

/// Joins: title, build side's key, probe side's key.
const JOINS: [(&str, &str, &str); 3] = [
    ("No skew", "o_orderkey", "l_orderkey"),
    (
        "Half of the build rows have one key",
        "CASE WHEN o_orderkey % 2 = 0 THEN -1 ELSE o_orderkey END",
        "l_orderkey",
    ),
    (
        "Half of the probe rows have one key",
        "o_orderkey",
        "CASE WHEN l_orderkey % 2 = 0 THEN 1 ELSE l_orderkey END",
    ),
];

fn main() -> ExitCode {
    runner::main(|arguments| run(&arguments))
}

/// What one run gave.
#[derive(Clone, Debug, Serialize)]
struct Run {
    seconds: f64,
    spilled_partitions: usize,
    spilled_bytes: usize,
    #[serde(skip)]
    answer: String,
}

/// All runs of one join under one limit by one policy.
#[derive(Clone, Debug, Serialize)]
struct Cell {
    join: &'static str,
    policy: &'static str,
    limit_bytes: u64,
    runs: Vec<Run>,
}

impl Cell {
    fn median(&self) -> Option<&Run> {
        let mut runs: Vec<&Run> = self.runs.iter().collect();
        runs.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
        runs.get(runs.len() / 2).copied()
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let runtime = runner::runtime(arguments.threads)?;
    let mut cells = Vec::new();
    let mut page = head(arguments);
    for (join, build_key, probe_key) in JOINS {
        let sql = format!(
            "{SELECT} (SELECT {build_key} AS b, o_comment FROM orders) AS o \
             JOIN (SELECT {probe_key} AS p, l_extendedprice, l_comment FROM lineitem) AS l ON b = p"
        );
        let measured = measure(arguments, &runtime, join, &sql)?;
        let table = table(arguments, &measured);
        println!("{join}\n\n{}", table.to_text());
        page.push_str(&format!("\n## {join}\n\n```sql\n{sql}\n```\n\n{}", table.to_markdown()));
        cells.extend(measured);
    }
    runner::write_json(&arguments.out.with_extension("json"), &cells)?;
    runner::write(&arguments.out, page)
}

/// Runs a join under every limit; policies take turns, so that what disturbs the machine disturbs all.
fn measure(
    arguments: &Arguments,
    runtime: &tokio::runtime::Runtime,
    join: &'static str,
    sql: &str,
) -> Result<Vec<Cell>> {
    let mut cells: Vec<Cell> = Vec::new();
    let mut answer: Option<String> = None;
    for &limit_bytes in &arguments.limits {
        let mut turns = POLICIES.map(|(_, policy)| Cell { join, policy, limit_bytes, runs: Vec::new() });
        for _ in 0..arguments.runs.max(1) {
            for (cell, (policy, name)) in turns.iter_mut().zip(POLICIES) {
                let run = runtime
                    .block_on(one_run(arguments, policy, limit_bytes, sql))
                    .map_err(|error| BenchError::Setup(error.to_string()))?;
                if *answer.get_or_insert_with(|| run.answer.clone()) != run.answer {
                    return Err(BenchError::Setup(format!("'{join}', {name}: another result")));
                }
                cell.runs.push(run);
            }
        }
        cells.extend(turns);
    }
    Ok(cells)
}

fn table(arguments: &Arguments, cells: &[Cell]) -> Table {
    let mut header = vec!["policy".to_owned()];
    for &limit in &arguments.limits {
        header.extend([format!("{} (s)", quantity::bytes(limit)), "spilled".to_owned(), "GB".to_owned()]);
    }
    let mut table = Table::new(1, header);
    for (_, policy) in POLICIES {
        let mut row = vec![policy.to_owned()];
        for run in cells.iter().filter(|cell| cell.policy == policy).filter_map(Cell::median) {
            row.push(format!("{:.1}", run.seconds));
            row.push(run.spilled_partitions.to_string());
            row.push(format!("{:.2}", run.spilled_bytes as f64 / 1e9));
        }
        table.row(row);
    }
    table
}

fn head(arguments: &Arguments) -> String {
    format!(
        "# Which partitions to spill first\n\nMade by\n\n```sh\ncargo run --release -p nandina-bench --bin destage_bench \
         -- --data <TPC-H> --runs {} --threads {}\n```\n\non {}. `lineitem` and `orders` from Parquet files that were read \
         before, one process, medians; policies took turns. For each memory limit: seconds, partitions spilled, GB written.\n",
        arguments.runs,
        arguments.threads,
        Machine::this(&arguments.work).describe()
    )
}

async fn one_run(
    arguments: &Arguments,
    policy: DestagePolicy,
    limit: u64,
    sql: &str,
) -> std::result::Result<Run, Box<dyn std::error::Error>> {
    let governor = MemoryGovernor::new(Some(limit as usize));
    let config =
        SessionConfig::new().with_target_partitions(arguments.threads).with_extension(Arc::new(policy));
    let context = session(&arguments.work, config, governor)?;
    register_files(&context, &arguments.data, &["lineitem", "orders"]).await?;
    let plan = context.sql(sql).await?.create_physical_plan().await?;
    let start = Instant::now();
    let rows = collect(Arc::clone(&plan), context.task_ctx()).await?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Run {
        seconds,
        spilled_partitions: sum(&plan, "spilled_partitions"),
        spilled_bytes: sum(&plan, "spilled_bytes"),
        answer: format!("{rows:?}"),
    })
}
