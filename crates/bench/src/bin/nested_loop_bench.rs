//! Joins without equality keys: ours beside DataFusion's in memory, and ours beyond it.
//!
//! ```text
//! cargo run --release -p nandina-bench --bin nested_loop_bench
//! ```
//!
//! All engines run in this process, in turn; the answers are compared. DataFusion has no limit.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use arrow::util::pretty::pretty_format_batches;
use clap::Parser;
use datafusion::prelude::{SessionConfig, SessionContext};
use nandina_bench::machine::Machine;
use nandina_bench::session::{failed, session};
use nandina_bench::table::Table;
use nandina_bench::{BenchError, Result, quantity, runner};
use nandina_exec::memory::MemoryGovernor;
use serde::Serialize;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Time joins without equality keys.
#[derive(Debug, Parser)]
#[command(name = "nested_loop_bench")]
struct Arguments {
    /// Rounds; the median counts.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Limit for our join beyond memory.
    #[arg(long, default_value = "2MB", value_parser = quantity::parse_bytes)]
    limit: u64,
    /// Folder for temporary files, on the disk to be measured.
    #[arg(long, default_value = "/tmp/nandina-nested-loop-bench")]
    work: PathBuf,
    /// Markdown file for the results.
    #[arg(long, default_value = "docs/benchmarks/nested-loops.md")]
    out: PathBuf,
}

/// Tables of numbers and texts: `a` and `b` of 30,000 rows, `s` of 40, `l` of 2,000,000.
const TABLES: [(&str, u32); 4] = [("a", 30_000), ("b", 30_000), ("s", 40), ("l", 2_000_000)];

const COLUMNS: &str = "value AS i, value * 7919 % 10007 AS x, value * 104729 % 20011 AS y, value % 1013 AS z, \
                       'text number ' || (value * 31 % 5003) || repeat('.', 60) AS t";

/// Title and query.
const JOINS: [(&str, &str); 7] = [
    (
        "inequality and arithmetic, 30,000 × 30,000",
        "SELECT count(*), sum(a.i + b.i) FROM a JOIN b ON a.x < b.y AND (a.z + b.z) % 7 = 3",
    ),
    (
        "inequality, one side's arithmetic, 30,000 × 30,000",
        "SELECT count(*), sum(a.i) FROM a JOIN b ON a.x < b.y AND a.z + b.z % 7 = 3",
    ),
    ("cross join with a filter", "SELECT count(*), max(a.i) FROM a, b WHERE a.x + b.y > 30000"),
    ("cross join", "SELECT sum(a.x * b.y) FROM (SELECT x FROM a WHERE i < 6000) a CROSS JOIN b"),
    (
        "full join, texts",
        "SELECT count(*), count(a.i), count(b.i) FROM a FULL JOIN b ON a.t < b.t AND b.x < 40",
    ),
    (
        "not exists",
        "SELECT count(*) FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.y < a.x AND b.z > a.z + 900)",
    ),
    ("small × large", "SELECT count(*), sum(l.i) FROM s JOIN l ON s.x < l.x AND s.z > l.z"),
];

/// Engines, in the order of the columns.
const ENGINES: [&str; 3] = ["DataFusion", "Nandina", "Nandina, limited"];

#[derive(Debug, Serialize)]
struct Cell {
    join: &'static str,
    engine: &'static str,
    seconds: Vec<f64>,
}

fn main() -> ExitCode {
    runner::main(|arguments| run(&arguments))
}

fn run(arguments: &Arguments) -> Result<()> {
    let runtime = runner::runtime(arguments.threads)?;
    let cells = runtime.block_on(measure(arguments))?;
    let table = report(&cells);
    println!("{}", table.to_text());
    let page = format!(
        "# Joins without equality keys\n\n\
         ```sh\ncargo run --release -p nandina-bench --bin nested_loop_bench -- --runs {} --limit {}\n```\n\n\
         {}\n\nSeconds, medians of {} alternating runs with {} threads; ratios are medians of paired runs. Tables are in \
         memory. The limited runs may use {} beside them. Figures of all runs: `nested-loops.json`.\n\n{}",
        arguments.runs,
        arguments.limit,
        Machine::this(&arguments.work).describe(),
        arguments.runs,
        arguments.threads,
        quantity::bytes(arguments.limit),
        table.to_markdown(),
    );
    runner::write(&arguments.out, page)?;
    runner::write_json(&arguments.out.with_extension("json"), &cells)
}

/// An engine with the tables in it.
async fn engine(arguments: &Arguments, ours: bool, limit: Option<u64>) -> Result<SessionContext> {
    let config = SessionConfig::new().with_target_partitions(arguments.threads);
    if !ours {
        return with_tables(SessionContext::new_with_config(config)).await;
    }
    let governor = MemoryGovernor::new(limit.map(|limit| limit as usize));
    with_tables(session(&arguments.work, config, governor)?).await
}

async fn with_tables(context: SessionContext) -> Result<SessionContext> {
    for (name, rows) in TABLES {
        // Not as a statement: that would keep the tables in the limited memory.
        let make = SessionContext::new();
        let sql = format!("SELECT {COLUMNS} FROM generate_series(1, {rows})");
        let batches = make.sql(&sql).await.map_err(failed)?.collect().await.map_err(failed)?;
        if let Some(first) = batches.first() {
            let table =
                datafusion::datasource::MemTable::try_new(first.schema(), vec![batches]).map_err(failed)?;
            context.register_table(name, Arc::new(table)).map_err(failed)?;
        }
    }
    Ok(context)
}

async fn measure(arguments: &Arguments) -> Result<Vec<Cell>> {
    let contexts = [
        engine(arguments, false, None).await?,
        engine(arguments, true, None).await?,
        engine(arguments, true, Some(arguments.limit)).await?,
    ];
    let mut cells = Vec::new();
    for (join, sql) in JOINS {
        let mut seconds = ENGINES.map(|_| Vec::new());
        for round in 0..=arguments.runs {
            let mut answers = Vec::new();
            for (context, seconds) in contexts.iter().zip(&mut seconds) {
                let begun = Instant::now();
                let rows = context.sql(sql).await.map_err(failed)?.collect().await.map_err(failed)?;
                let took = begun.elapsed().as_secs_f64();
                // The first round warms up.
                if round > 0 {
                    seconds.push(took);
                }
                answers.push(pretty_format_batches(&rows)?.to_string());
            }
            if answers.windows(2).any(|pair| matches!(pair, [one, other] if one != other)) {
                return Err(BenchError::Setup(format!("{join}: different answers: {answers:?}")));
            }
        }
        eprintln!("{join}: {seconds:.3?}");
        for (engine, seconds) in ENGINES.into_iter().zip(seconds) {
            cells.push(Cell { join, engine, seconds });
        }
    }
    Ok(cells)
}

fn report(cells: &[Cell]) -> Table {
    let mut table = Table::new(
        1,
        ["join", ENGINES[0], ENGINES[1], ENGINES[2], "Nandina ÷ DataFusion", "limited ÷ in memory"],
    );
    for (join, _) in JOINS {
        let of = |engine: &str| {
            let cell = cells.iter().find(|cell| cell.join == join && cell.engine == engine);
            cell.map_or(&[][..], |cell| &cell.seconds)
        };
        let [theirs, ours, limited] = ENGINES.map(of);
        let time = |seconds: &[f64]| {
            quantity::median(seconds.iter().copied()).map_or_else(String::new, quantity::seconds)
        };
        let ratio = |one: &[f64], other: &[f64]| {
            let ratios = one.iter().zip(other).map(|(one, other)| one / other);
            quantity::median(ratios).map_or_else(String::new, |ratio| format!("{ratio:.2}"))
        };
        table.row([
            join.to_owned(),
            time(theirs),
            time(ours),
            time(limited),
            ratio(ours, theirs),
            ratio(limited, ours),
        ]);
    }
    table
}
