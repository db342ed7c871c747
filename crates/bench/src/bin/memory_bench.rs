//! Whose memory should go when several hungry operators share one small limit? Plans by reclaim order and memory.
//!
//! ```text
//! cargo run --release -p nandina-bench --bin memory_bench -- --data <folder with TPC-H Parquet files>
//! ```
//!
//! Each plan has eight and more operators that hold what they have seen. Bytes of I/O are what a good choice saves; the
//! answers under all limits and orders are compared.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use arrow::util::pretty::pretty_format_batches;
use clap::Parser;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionConfig;
use nandina_bench::machine::Machine;
use nandina_bench::plot::{self, Panel, Series};
use nandina_bench::session::{failed, register_files, session, sum};
use nandina_bench::table::Table;
use nandina_bench::{BenchError, Result, quantity, runner};
use nandina_exec::memory::{MemoryGovernor, ReclaimOrder};
use serde::Serialize;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Run plans of many joins by whom the governor asks for memory.
#[derive(Debug, Parser)]
#[command(name = "memory_bench")]
struct Arguments {
    /// Folder with TPC-H's Parquet files.
    #[arg(long)]
    data: PathBuf,
    /// Rounds; the median counts.
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// Memory limits.
    #[arg(long, value_delimiter = ',', default_value = "512MB,256MB,128MB,64MB,32MB", value_parser = quantity::parse_bytes)]
    limits: Vec<u64>,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Folder for temporary files, on the disk to be measured.
    #[arg(long, default_value = "/tmp/nandina-memory-bench")]
    work: PathBuf,
    /// Markdown file for the results.
    #[arg(long, default_value = "docs/benchmarks/memory.md")]
    out: PathBuf,
}

const ORDERS: [(ReclaimOrder, &str); 2] =
    [(ReclaimOrder::LeastIo, "least I/O first"), (ReclaimOrder::Largest, "largest first")];

const TABLES: [&str; 8] =
    ["lineitem", "orders", "customer", "part", "partsupp", "supplier", "nation", "region"];

/// Title, what is in it, and the statement.
const PLANS: [(&str, &str, &str); 2] = [
    (
        "Six joins, groups, order",
        "Builds of 15, 8, 2 and 1.5 million rows (at scale 10) are held while `lineitem` streams past; above them as many \
         groups as orders, and a sort of those.",
        "SELECT count(*), sum(place * (o_orderkey % 7)), max(profit) FROM (
  SELECT o_orderkey, profit, row_number() OVER (ORDER BY profit, o_orderkey) AS place FROM (
    SELECT o_orderkey, c_name, max(n_name) AS nation, max(p_name) AS part,
           sum(l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity) AS profit
    FROM lineitem JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey
    JOIN part ON l_partkey = p_partkey
    JOIN partsupp ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey
    JOIN supplier ON l_suppkey = s_suppkey JOIN nation ON s_nationkey = n_nationkey
    GROUP BY o_orderkey, c_name))",
    ),
    (
        "Joins of aggregates",
        "Three aggregations with millions of groups, of which two are joined with each other and with what they were made \
         from.",
        "SELECT count(*), sum(quantity), max(spent), min(o_comment) FROM (
  SELECT l_orderkey, sum(l_quantity) AS quantity, count(DISTINCT l_suppkey) AS suppliers
  FROM lineitem GROUP BY l_orderkey) AS per_order
JOIN orders ON l_orderkey = o_orderkey
JOIN (SELECT o_custkey AS customer, sum(o_totalprice) AS spent FROM orders GROUP BY o_custkey) AS per_customer
  ON o_custkey = customer
JOIN customer ON customer = c_custkey
JOIN (SELECT ps_suppkey % 25 AS n, count(DISTINCT ps_comment) AS comments FROM partsupp GROUP BY 1) AS per_nation
  ON c_nationkey = n
WHERE suppliers > 1",
    ),
];

fn main() -> ExitCode {
    runner::main(|arguments| run(&arguments))
}

/// What one run gave.
#[derive(Clone, Debug, Serialize)]
struct Run {
    seconds: f64,
    written_bytes: usize,
    read_bytes: usize,
    peak_reserved_bytes: usize,
    /// Operators from the top down, with the bytes that each has written.
    operators: Vec<(String, usize)>,
    #[serde(skip)]
    answer: String,
}

/// All runs of one plan under one limit in one order.
#[derive(Clone, Debug, Serialize)]
struct Cell {
    plan: &'static str,
    order: &'static str,
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
    let mut page = head(arguments);
    let (mut cells, mut panels) = (Vec::new(), Vec::new());
    for (plan, about, sql) in PLANS {
        let measured = measure(arguments, &runtime, plan, sql)?;
        let (by_limit, by_operator) = (table(&measured), operators(&measured));
        println!("{plan}\n\n{}\n{}", by_limit.to_text(), by_operator.to_text());
        page.push_str(&format!(
            "\n## {plan}\n\n{about}\n\n```sql\n{sql}\n```\n\n{}\nBytes written by operator at the smallest limit, from the top \
             of the plan down:\n\n{}",
            by_limit.to_markdown(),
            by_operator.to_markdown()
        ));
        panels.push(panel(arguments, plan, &measured));
        cells.extend(measured);
    }
    plot::write_svg(&arguments.out.with_extension("svg"), "Spilled bytes by memory limit", &panels, 2)?;
    runner::write_json(&arguments.out.with_extension("json"), &cells)?;
    runner::write(&arguments.out, page)
}

/// Runs a plan under every limit; orders take turns, so that what disturbs the machine disturbs both.
fn measure(
    arguments: &Arguments,
    runtime: &tokio::runtime::Runtime,
    plan: &'static str,
    sql: &str,
) -> Result<Vec<Cell>> {
    let mut cells: Vec<Cell> = Vec::new();
    let mut answer: Option<String> = None;
    for &limit_bytes in &arguments.limits {
        let mut turns = ORDERS.map(|(_, order)| Cell { plan, order, limit_bytes, runs: Vec::new() });
        for _ in 0..arguments.runs.max(1) {
            for (cell, (order, name)) in turns.iter_mut().zip(ORDERS) {
                let run = runtime.block_on(one_run(arguments, order, limit_bytes, sql))?;
                eprintln!("{plan}, {}, {name}: {:.1} s", quantity::bytes(limit_bytes), run.seconds);
                if *answer.get_or_insert_with(|| run.answer.clone()) != run.answer {
                    return Err(BenchError::Setup(format!("'{plan}', {name}: another result")));
                }
                cell.runs.push(run);
            }
        }
        cells.extend(turns);
    }
    Ok(cells)
}

async fn one_run(arguments: &Arguments, order: ReclaimOrder, limit: u64, sql: &str) -> Result<Run> {
    let governor = MemoryGovernor::new(Some(limit as usize)).with_order(order);
    let config = SessionConfig::new().with_target_partitions(arguments.threads);
    let context = session(&arguments.work, config, governor)?;
    register_files(&context, &arguments.data, &TABLES).await?;
    let frame = context.sql(sql).await.map_err(failed)?;
    let plan = frame.create_physical_plan().await.map_err(failed)?;
    let start = Instant::now();
    let rows = collect(Arc::clone(&plan), context.task_ctx()).await.map_err(failed)?;
    let seconds = start.elapsed().as_secs_f64();
    let pool = Arc::clone(&context.runtime_env().memory_pool);
    let mut operators = Vec::new();
    hungry(&plan, &mut operators);
    Ok(Run {
        seconds,
        written_bytes: sum(&plan, "spilled_bytes"),
        read_bytes: sum(&plan, "spill_read_bytes"),
        peak_reserved_bytes: pool.downcast_ref::<MemoryGovernor>().map_or(0, MemoryGovernor::peak_bytes),
        operators,
        answer: pretty_format_batches(&rows)?.to_string(),
    })
}

/// The operators that can spill, with what they wrote; joins with what they join on.
fn hungry(plan: &Arc<dyn ExecutionPlan>, found: &mut Vec<(String, usize)>) {
    if let Some(bytes) = plan.metrics().and_then(|metrics| metrics.sum_by_name("spilled_bytes")) {
        let name = match plan.downcast_ref::<nandina_exec::join::HybridHashJoinExec>() {
            Some(join) => {
                let keys: Vec<String> = join.on().iter().map(|(build, _)| build.to_string()).collect();
                format!("{} on {}", plan.name(), keys.join(", "))
            }
            None => plan.name().to_owned(),
        };
        found.push((name, bytes.as_usize()));
    }
    for child in plan.children() {
        hungry(child, found);
    }
}

fn table(cells: &[Cell]) -> Table {
    let header = ["limit", "asked first", "s", "GB written", "GB read", "peak reserved"];
    let mut table = Table::new(2, header);
    for cell in cells {
        let Some(run) = cell.median() else { continue };
        table.row([
            quantity::bytes(cell.limit_bytes),
            cell.order.to_owned(),
            format!("{:.1}", run.seconds),
            format!("{:.2}", run.written_bytes as f64 / 1e9),
            format!("{:.2}", run.read_bytes as f64 / 1e9),
            quantity::bytes(run.peak_reserved_bytes as u64),
        ]);
    }
    table
}

/// Who wrote what at the smallest limit.
fn operators(cells: &[Cell]) -> Table {
    let smallest = cells.iter().map(|cell| cell.limit_bytes).min();
    let of = |order: &str| {
        let mut cells = cells.iter().filter(|cell| cell.order == order && Some(cell.limit_bytes) == smallest);
        cells.next().and_then(Cell::median).map_or(&[][..], |run| &run.operators)
    };
    let mut table = Table::new(1, std::iter::once("operator").chain(ORDERS.map(|(_, name)| name)));
    let [first, second] = ORDERS.map(|(_, name)| of(name));
    for ((operator, one), (_, other)) in first.iter().zip(second) {
        let gigabytes = |bytes: &usize| format!("{:.2} GB", *bytes as f64 / 1e9);
        table.row([operator.clone(), gigabytes(one), gigabytes(other)]);
    }
    table
}

fn panel(arguments: &Arguments, plan: &str, cells: &[Cell]) -> Panel {
    let series = ORDERS.map(|(_, order)| {
        let written = arguments.limits.iter().map(|limit| {
            let cell = cells.iter().find(|cell| cell.order == order && cell.limit_bytes == *limit);
            cell.and_then(Cell::median).map(|run| run.written_bytes as f64 / 1e9)
        });
        Series::new(order, written.collect())
    });
    Panel {
        title: plan.to_owned(),
        x_label: "memory limit".to_owned(),
        y_label: "GB written".to_owned(),
        categories: arguments.limits.iter().map(|limit| quantity::bytes(*limit)).collect(),
        series: series.into(),
        bound: None,
        is_logarithmic: false,
    }
}

fn head(arguments: &Arguments) -> String {
    format!(
        "# Whose memory goes first\n\nMade by\n\n```sh\ncargo run --release -p nandina-bench --bin memory_bench -- --data \
         <TPC-H> --runs {} --threads {}\n```\n\non {}. TPC-H from Parquet files that were read before, one process; \
         both orders took turns. *Least I/O first* asks the operator whose memory costs fewest bytes written and read \
         to do without, as long as it holds more than a quarter of an equal share; *largest first* asks the largest \
         holder.\n\n![spilled bytes by limit](memory.svg)\n",
        arguments.runs,
        arguments.threads,
        Machine::this(&arguments.work).describe()
    )
}
