//! How long is a statement planned?
//!
//! ```text
//! cargo run --release -p nandina-bench --bin planning_bench -- --tpcds DATA
//! ```
//!
//! A query by key, joins of many tables, long IN lists, the queries of TPC-H and, with a folder that
//! `peers/tpcds_files.py` has filled, those of TPC-DS: the time from the text to a query that can be asked for rows; beside
//! it DataFusion's own planner over empty tables with the same columns, and PREPARE of DuckDB over its own tables. Every
//! statement is planned once unmeasured and then `--runs` times, and the median counts.
//!
//! Writes `planning.md`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use nandina::{Database, Options, Session};
use nandina_bench::machine::Machine;
use nandina_bench::orders::suites::{self, Suite};
use nandina_bench::random::Random;
use nandina_bench::session::failed;
use nandina_bench::table::Table;
use nandina_bench::{BenchError, Result, runner};
use serde_json::json;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Time the planning of statements, beside DataFusion and DuckDB.
#[derive(Debug, Parser)]
#[command(name = "planning_bench")]
struct Arguments {
    /// Measured runs per statement.
    #[arg(long, default_value_t = 9)]
    runs: usize,
    /// Folder of the queries of TPC-H.
    #[arg(long, default_value = "crates/nandina/tests/tpch")]
    tpch: PathBuf,
    /// Folder with the files and queries of TPC-DS.
    #[arg(long)]
    tpcds: Option<PathBuf>,
    /// A Python interpreter that has the package duckdb; without it DuckDB is left out.
    #[arg(long, default_value = "python3")]
    python: String,
    /// The file to write.
    #[arg(long, default_value = "docs/benchmarks/planning.md")]
    out: PathBuf,
    /// Scratch folder.
    #[arg(long, default_value = "/tmp/nandina-planning-bench")]
    work: PathBuf,
}

/// Scale of the tables: statistics count, rows do not.
const SCALE: f64 = 0.01;

/// Statements that are shown as one line: the median of their times, and the longest.
struct Group {
    name: String,
    statements: Vec<(String, String)>,
}

/// Statements over the same tables.
struct Chapter {
    /// Names of tables, and the statements that make them in Nandina.
    tables: Vec<(String, String)>,
    groups: Vec<Group>,
}

fn main() -> ExitCode {
    runner::main(|arguments: Arguments| run(&arguments))
}

fn run(arguments: &Arguments) -> Result<()> {
    let mut table =
        Table::new(1, ["statements", "number", "Nandina", "DataFusion", "DuckDB", "longest of Nandina"]);
    let runtime = runner::runtime(runner::processors())?;
    for chapter in chapters(arguments)? {
        std::fs::remove_dir_all(&arguments.work).ok();
        std::fs::create_dir_all(&arguments.work).map_err(BenchError::file(&arguments.work))?;
        let database = Database::open(arguments.work.join("database"), Options::default()).map_err(said)?;
        let session = database.session().map_err(said)?;
        let ours = runtime.block_on(nandina(&session, &chapter, arguments.runs))?;
        let datafusion = runtime.block_on(datafusion(&session, &chapter, arguments.runs))?;
        let duckdb =
            duckdb(&runtime.block_on(files(&session, &chapter, &arguments.work))?, &chapter, arguments)?;
        for group in &chapter.groups {
            let timed = group.statements.iter().filter_map(|(name, _)| Some((name, *ours.get(name)?)));
            let longest = timed.max_by(|(_, one), (_, other)| one.total_cmp(other));
            let longest = longest.map_or_else(String::new, |(name, time)| format!("{name}, {time:.1} ms"));
            table.row([
                group.name.clone(),
                group.statements.len().to_string(),
                shown(group, &ours),
                shown(group, &datafusion),
                shown(group, &duckdb),
                if group.statements.len() > 1 { longest } else { String::new() },
            ]);
        }
    }
    std::fs::remove_dir_all(&arguments.work).ok();
    let page = format!(
        "# How long statements are planned\n\n\
         `cargo run --release -p nandina-bench --bin planning_bench{}`\n\n\
         {}\n\n\
         Milliseconds: of a group of queries the median, and the most. Nandina: from the text to a query that can be asked for \
         rows, over native tables of scale {SCALE}, samples of filters included. DuckDB: PREPARE over its own tables. DataFusion: its own parser, planner and optimizer, over empty tables with the same \
         columns. Every statement is planned once unmeasured, and then {} times. A join of n tables is a chain of \
         JOIN … ON, or a star in FROM and WHERE; \"–\" is a statement that an engine refuses or plans for more than a minute.\n\n{}",
        if arguments.tpcds.is_some() { " -- --tpcds DATA" } else { "" },
        Machine::this(&arguments.work).describe(),
        arguments.runs,
        table.to_markdown(),
    );
    println!("{}", table.to_text());
    runner::write(&arguments.out, page)
}

/// Milliseconds by the name of a statement. Not a number: refused.
type Times = BTreeMap<String, f64>;

fn shown(group: &Group, times: &Times) -> String {
    let mut own: Vec<f64> = group
        .statements
        .iter()
        .filter_map(|(name, _)| times.get(name).copied())
        .filter(|time| time.is_finite())
        .collect();
    own.sort_by(f64::total_cmp);
    match (own.as_slice(), group.statements.len()) {
        ([], _) => "–".to_owned(),
        ([time], 1) => format!("{time:.2}"),
        (times, all) => {
            let refused =
                if times.len() < all { format!(" ({} refused)", all - times.len()) } else { String::new() };
            format!("{:.1}, {:.1}{refused}", median(times), times.last().copied().unwrap_or(f64::NAN))
        }
    }
}

fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn chapters(arguments: &Arguments) -> Result<Vec<Chapter>> {
    let mut random = Random::new(1);
    let tpch = suites::tpch(&arguments.tpch, SCALE, 0, &mut random)?;
    let mut groups = vec![
        one("a row by its key", "SELECT * FROM orders WHERE o_orderkey = 7"),
        Group { name: "TPC-H".to_owned(), statements: texts(&tpch) },
    ];
    for number in [10, 20, 40, 60] {
        groups.push(one(&format!("chain of {number} tables"), &chain(number)));
        groups.push(one(&format!("star of {number} tables"), &star(number)));
    }
    for number in [100, 1000, 5000] {
        let terms: Vec<String> = (0..number).map(|term| (7 * term).to_string()).collect();
        let list = format!("SELECT count(*) FROM orders WHERE o_orderkey IN ({})", terms.join(", "));
        groups.push(one(&format!("IN with {number} terms"), &list));
    }
    let mut chapters = vec![Chapter { tables: tpch.tables, groups }];
    if let Some(folder) = &arguments.tpcds {
        let suite = suites::tpcds(folder, 0, &mut random)?;
        let groups = vec![Group { name: suite.name.clone(), statements: texts(&suite) }];
        chapters.push(Chapter { tables: suite.tables, groups });
    }
    Ok(chapters)
}

fn one(name: &str, sql: &str) -> Group {
    Group { name: name.to_owned(), statements: vec![(name.to_owned(), sql.to_owned())] }
}

/// The queries of a suite as they are written.
fn texts(suite: &Suite) -> Vec<(String, String)> {
    let query = |query: &nandina_bench::orders::Variants| {
        let (_, text) = query.texts.first()?;
        Some((query.name.clone(), text.trim().trim_end_matches(';').to_owned()))
    };
    suite.queries.iter().filter_map(query).collect()
}

/// `orders` joined to itself again and again by its key.
fn chain(tables: usize) -> String {
    let next =
        |number| format!(" JOIN orders t{number} ON t{number}.o_orderkey = t{}.o_orderkey", number - 1);
    format!("SELECT count(*) FROM orders t0{}", (1..tables).map(next).collect::<String>())
}

/// Customers around `orders`.
fn star(tables: usize) -> String {
    let name = |number| format!(", customer t{number}");
    let condition = |number| format!("t0.o_custkey = t{number}.c_custkey");
    let names: String = (1..tables).map(name).collect();
    let conditions: Vec<String> = (1..tables).map(condition).collect();
    format!("SELECT count(*) FROM orders t0{names} WHERE {}", conditions.join(" AND "))
}

async fn nandina(session: &Session, chapter: &Chapter, runs: usize) -> Result<Times> {
    for (_, make) in &chapter.tables {
        session.run(make).await.map_err(said)?;
    }
    let mut times = Times::new();
    for (name, sql) in chapter.groups.iter().flat_map(|group| &group.statements) {
        let mut all = Vec::new();
        for _ in 0..=runs {
            let start = Instant::now();
            let query = session.execute(sql).await.map_err(said)?;
            all.push(milliseconds(start));
            drop(query);
        }
        times.insert(name.clone(), median_of_measured(all));
    }
    Ok(times)
}

async fn datafusion(session: &Session, chapter: &Chapter, runs: usize) -> Result<Times> {
    let context = SessionContext::new_with_config(SessionConfig::new());
    for (name, _) in &chapter.tables {
        let schema = session.table(name).await.map_err(said)?.schema();
        let empty = MemTable::try_new(schema, vec![Vec::new()]).map_err(failed)?;
        context.register_table(name.as_str(), Arc::new(empty)).map_err(failed)?;
    }
    let mut times = Times::new();
    for (name, sql) in chapter.groups.iter().flat_map(|group| &group.statements) {
        let mut all = Vec::new();
        for _ in 0..=runs {
            let (start, state) = (Instant::now(), context.state());
            let Ok(plan) = state.create_logical_plan(sql).await else { break };
            if state.create_physical_plan(&plan).await.is_err() {
                all.clear();
                break;
            }
            all.push(milliseconds(start));
        }
        times.insert(name.clone(), median_of_measured(all));
    }
    Ok(times)
}

/// The tables of a chapter as Parquet files.
async fn files(session: &Session, chapter: &Chapter, work: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    for (name, _) in &chapter.tables {
        let path = work.join(format!("{name}.parquet"));
        session.run(&format!("COPY {name} TO '{}'", path.display())).await.map_err(said)?;
        files.push((name.clone(), path));
    }
    Ok(files)
}

fn duckdb(files: &[(String, PathBuf)], chapter: &Chapter, arguments: &Arguments) -> Result<Times> {
    let tables: BTreeMap<_, _> =
        files.iter().map(|(name, path)| (name, path.display().to_string())).collect();
    let statements: BTreeMap<_, _> =
        chapter.groups.iter().flat_map(|group| &group.statements).map(|(name, sql)| (name, sql)).collect();
    let task = arguments.work.join("statements.json");
    runner::write_json(&task, &json!({"tables": tables, "statements": statements, "runs": arguments.runs}))?;
    let peer = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/duckdb_planning.py");
    let output = Command::new(&arguments.python).arg(peer).arg(&task).output();
    let output = match output {
        Ok(output) if output.status.success() => output.stdout,
        _ => {
            eprintln!("{} could not ask DuckDB, which is left out", arguments.python);
            return Ok(Times::new());
        }
    };
    let times: BTreeMap<String, Option<f64>> = serde_json::from_slice(&output)
        .map_err(|error| BenchError::Setup(format!("DuckDB's times cannot be read: {error}")))?;
    Ok(times.into_iter().map(|(name, time)| (name, time.unwrap_or(f64::NAN))).collect())
}

fn milliseconds(start: Instant) -> f64 {
    1e3 * start.elapsed().as_secs_f64()
}

/// The first run, which fills caches, does not count.
fn median_of_measured(all: Vec<f64>) -> f64 {
    let mut measured: Vec<f64> = all.into_iter().skip(1).collect();
    measured.sort_by(f64::total_cmp);
    median(&measured)
}

fn said(error: nandina::Error) -> BenchError {
    BenchError::Setup(error.to_string())
}
