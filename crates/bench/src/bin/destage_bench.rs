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
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use nandina_bench::machine::Machine;
use nandina_bench::table::Table;
use nandina_bench::{BenchError, Result, quantity};
use nandina_device::{Device, DeviceOptions};
use nandina_exec::join::DestagePolicy;
use nandina_exec::memory::MemoryGovernor;
use nandina_exec::temp::SessionTempSpace;
use nandina_spill::{TempOptions, TempSpace};

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
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("destage_bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What one run gave.
#[derive(Clone, Debug)]
struct Run {
    seconds: f64,
    spilled_partitions: usize,
    spilled_bytes: usize,
    answer: String,
}

fn run(arguments: &Arguments) -> Result<()> {
    std::fs::create_dir_all(&arguments.work).map_err(BenchError::file(&arguments.work))?;
    let setup = |error: &dyn std::fmt::Display| BenchError::Setup(error.to_string());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(arguments.threads)
        .enable_all()
        .build()
        .map_err(|error| setup(&error))?;
    let mut page = head(arguments);
    for (title, build_key, probe_key) in JOINS {
        let sql = format!(
            "{SELECT} (SELECT {build_key} AS b, o_comment FROM orders) AS o \
             JOIN (SELECT {probe_key} AS p, l_extendedprice, l_comment FROM lineitem) AS l ON b = p"
        );
        let mut table = Table::new(1, header(arguments));
        let mut answer: Option<String> = None;
        for (policy, name) in POLICIES {
            let mut cells = vec![name.to_owned()];
            for &limit in &arguments.limits {
                let mut runs = Vec::new();
                for _ in 0..arguments.runs.max(1) {
                    let run = runtime
                        .block_on(one_run(arguments, policy, limit, &sql))
                        .map_err(|error| setup(&error))?;
                    if *answer.get_or_insert_with(|| run.answer.clone()) != run.answer {
                        return Err(BenchError::Setup(format!("'{title}', {name}: another result")));
                    }
                    runs.push(run);
                }
                runs.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
                let Some(median) = runs.get(runs.len() / 2) else { continue };
                println!("{title}, {name}, {}: {median:?}", quantity::bytes(limit));
                cells.push(format!("{:.1}", median.seconds));
                cells.push(median.spilled_partitions.to_string());
                cells.push(format!("{:.2}", median.spilled_bytes as f64 / 1e9));
            }
            table.row(cells);
        }
        page.push_str(&format!("\n## {title}\n\n```sql\n{sql}\n```\n\n{}", table.to_markdown()));
    }
    std::fs::write(&arguments.out, page).map_err(BenchError::file(&arguments.out))
}

fn head(arguments: &Arguments) -> String {
    format!(
        "# Which partitions to spill first\n\nMade by\n\n```sh\ncargo run --release -p nandina-bench --bin destage_bench \
         -- --data <TPC-H at scale 10> --runs {} --threads {}\n```\n\non {}. Parquet files in the page cache, one \
         process, medians. Per limit: seconds, partitions spilled of 64, GB written.\n",
        arguments.runs,
        arguments.threads,
        Machine::this(&arguments.work).describe()
    )
}

fn header(arguments: &Arguments) -> Vec<String> {
    let mut header = vec!["policy".to_owned()];
    for &limit in &arguments.limits {
        header.extend([quantity::bytes(limit), "spilled".to_owned(), "GB".to_owned()]);
    }
    header
}

async fn one_run(
    arguments: &Arguments,
    policy: DestagePolicy,
    limit: u64,
    sql: &str,
) -> std::result::Result<Run, Box<dyn std::error::Error>> {
    let device = Device::open(&arguments.work, DeviceOptions::default())?;
    let space = TempSpace::open(device, TempOptions::default())?;
    let pool = Arc::new(MemoryGovernor::new(Some(limit as usize))) as Arc<dyn MemoryPool>;
    let config = SessionConfig::new()
        .with_target_partitions(arguments.threads)
        .with_extension(Arc::new(SessionTempSpace(space)))
        .with_extension(Arc::new(policy));
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc()?)
        .with_default_features()
        .with_physical_optimizer_rules(nandina_plan::physical_optimizer_rules())
        .build();
    let context = SessionContext::new_with_state(state);
    for name in ["lineitem", "orders"] {
        let path = arguments.data.join(format!("{name}.parquet"));
        context.register_parquet(name, path.to_string_lossy(), ParquetReadOptions::default()).await?;
    }
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

/// The sum of a counter over all operators of a plan.
fn sum(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
    let own =
        plan.metrics().and_then(|metrics| metrics.sum_by_name(name)).map_or(0, |value| value.as_usize());
    own + plan.children().into_iter().map(|child| sum(child, name)).sum::<usize>()
}
