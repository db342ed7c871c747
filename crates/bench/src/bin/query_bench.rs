//! Queries at shrinking memory limits: Nandina, DuckDB, DataFusion and Polars under the same hard cap. See
//! [`nandina_bench::query`].
//!
//! Writes, for the suite `joins`, `joins.json`, `joins.md` and `joins.svg`. Needs root (for the control group) and Python 3.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use nandina_bench::machine::Machine;
use nandina_bench::query::{Cell, Engine, Outcome, Query, Results, Suite, Workshop, cap_bytes, report};
use nandina_bench::{BenchError, Result, quantity, runner};

/// Time queries under memory limits, beside other engines.
#[derive(Debug, Parser)]
#[command(name = "query_bench")]
struct Arguments {
    /// What is asked: joins, aggregation, h2o, tpch, tpch-tables, first-rows, wide-joins, wide-sorts or wide-rows.
    #[arg(long, default_value = "joins")]
    suite: String,
    /// TPC-H scale factor, or ten million rows of the h2o suite.
    #[arg(long, default_value_t = 10.0)]
    scale: f64,
    /// Runs per setting; the median counts. Settings that fail are run once.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Only these engines.
    #[arg(long, value_enum, value_delimiter = ',')]
    engines: Vec<Engine>,
    /// Only these queries, such as J1.
    #[arg(long, value_delimiter = ',')]
    queries: Vec<String>,
    /// Memory limits, with 'none' for no limit.
    #[arg(long, value_delimiter = ',', default_value = "none,2GB,1GB,512MB,256MB,128MB,64MB", value_parser = quantity::parse_limit)]
    limits: Vec<Option<u64>>,
    /// Measure only what the JSON file does not have yet.
    #[arg(long)]
    only_missing: bool,
    /// Measure nothing; write the table and the plot from the JSON file.
    #[arg(long)]
    report_only: bool,
    /// Threads per engine.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Seconds after which a run is given up.
    #[arg(long, default_value_t = 600)]
    timeout: u64,
    /// Folder for the results.
    #[arg(long, default_value = "docs/benchmarks")]
    out: PathBuf,
    /// Folder for drivers, the Python environment and temporary files.
    #[arg(long, default_value = "/tmp/nandina-query-bench")]
    work: PathBuf,
    /// Folder of the Parquet files [default: below the work folder; made if missing].
    #[arg(long)]
    data: Option<PathBuf>,
    /// The program to measure [default: the one beside this program].
    #[arg(long)]
    nandina: Option<PathBuf>,
    /// A program that caps a command, with the options and the report of peers/capped.py.
    #[arg(long)]
    capped: Option<PathBuf>,
}

fn main() -> ExitCode {
    runner::main(|arguments: Arguments| run(&arguments).map(runner::verdict))
}

/// What to measure, checked.
struct Plan {
    engines: Vec<Engine>,
    queries: Vec<&'static Query>,
    limits: Vec<Option<u64>>,
}

impl Arguments {
    fn suite(&self) -> Result<&'static Suite> {
        Suite::named(&self.suite).ok_or_else(|| {
            BenchError::Setup(format!("there is no suite '{}', only {}", self.suite, Suite::names()))
        })
    }

    fn plan(&self) -> Result<Plan> {
        let suite = self.suite()?;
        let query = |name: &String| {
            suite.query(name).ok_or_else(|| {
                let names: Vec<&str> = suite.queries.iter().map(|query| query.name).collect();
                BenchError::Setup(format!("there is no query '{name}', only {}", names.join(", ")))
            })
        };
        Ok(Plan {
            engines: if self.engines.is_empty() { suite.engines.to_vec() } else { self.engines.clone() },
            queries: match self.queries.as_slice() {
                [] => suite.queries.iter().collect(),
                names => names.iter().map(query).collect::<Result<_>>()?,
            },
            limits: self.limits.clone(),
        })
    }

    fn workshop(&self) -> Result<Workshop> {
        let suite = self.suite()?;
        let absolute = |path: &Path| std::path::absolute(path).map_err(BenchError::file(path));
        let work = absolute(&self.work)?;
        let beside_this = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.join("nandina")));
        let data = match &self.data {
            Some(data) => absolute(data)?,
            None => work.join(format!("{:?}-{}", suite.data, self.scale).to_lowercase()),
        };
        Ok(Workshop {
            suite,
            nandina: self.nandina.clone().or(beside_this).unwrap_or_else(|| PathBuf::from("nandina")),
            capped: self.capped.clone(),
            threads: self.threads,
            timeout_seconds: self.timeout,
            work,
            data,
        })
    }

    /// The call as others would repeat it: without places of this machine, and without what only continues.
    fn command(&self) -> String {
        let mut words = vec!["cargo run --release -p nandina-bench --bin query_bench --".to_owned()];
        words.push(format!("--suite {}", self.suite));
        words.push(format!("--scale {} --runs {} --threads {}", self.scale, self.runs, self.threads));
        let limit = |limit: &Option<u64>| {
            limit.map_or_else(|| "none".to_owned(), |bytes| quantity::bytes(bytes).replace(' ', ""))
        };
        let limits: Vec<String> = self.limits.iter().map(limit).collect();
        words.push(format!("--limits {}", limits.join(",")));
        let engines = self.engines.iter().filter_map(ValueEnum::to_possible_value);
        let engines: Vec<String> = engines.map(|engine| engine.get_name().to_owned()).collect();
        for (option, chosen) in [("--engines", engines), ("--queries", self.queries.clone())] {
            if !chosen.is_empty() {
                words.push(format!("{option} {}", chosen.join(",")));
            }
        }
        words.join(" ")
    }

    fn results(&self, path: &Path, workshop: &Workshop) -> Result<Results> {
        let fresh = || Results {
            machine: Machine::this(&workshop.work),
            scale: self.scale,
            threads: self.threads,
            timeout_seconds: self.timeout,
            command: self.command(),
            versions: Default::default(),
            answers: Default::default(),
            cells: Vec::new(),
        };
        match Results::load(path)? {
            None => Ok(fresh()),
            Some(earlier) if earlier.scale == self.scale && earlier.threads == self.threads => {
                Ok(Results { command: self.command(), machine: Machine::this(&workshop.work), ..earlier })
            }
            Some(earlier) => Err(BenchError::Setup(format!(
                "{} has results at scale {} with {} threads: choose another folder with --out, or remove it",
                path.display(),
                earlier.scale,
                earlier.threads
            ))),
        }
    }
}

/// Whether all engines that answered agree.
fn run(arguments: &Arguments) -> Result<bool> {
    let suite = arguments.suite()?;
    let json = arguments.out.join(suite.name).with_extension("json");
    std::fs::create_dir_all(&arguments.out).map_err(BenchError::file(&arguments.out))?;
    if arguments.report_only {
        let results = Results::load(&json)?
            .ok_or_else(|| BenchError::Setup(format!("there is no {}: measure first", json.display())))?;
        report::write(suite, &results, &arguments.out)?;
        return Ok(agree(&results));
    }
    let (plan, workshop) = (arguments.plan()?, arguments.workshop()?);
    std::fs::create_dir_all(&workshop.work).map_err(BenchError::file(&workshop.work))?;
    let mut results = arguments.results(&json, &workshop)?;
    workshop.prepare(&plan.engines, arguments.scale)?;
    if plan.engines.contains(&Engine::Nandina) {
        results.versions.insert(Engine::Nandina.name().to_owned(), workshop.nandina_version()?);
    }
    for query in &plan.queries {
        println!("{}: {}", query.name, query.title);
        for &limit in &plan.limits {
            let wanted = |engine: &Engine| {
                !arguments.only_missing || results.cell(query.name, engine.name(), limit).is_none()
            };
            let engines: Vec<Engine> = plan.engines.iter().copied().filter(wanted).collect();
            for cell in measure(&workshop, &mut results, query, limit, &engines, arguments.runs)? {
                results.put(cell);
            }
            results.save(&json)?;
        }
        println!("\n{}", report::times_table(&results, query).to_text());
    }
    report::write(suite, &results, &arguments.out)?;
    Ok(agree(&results))
}

/// All engines at one limit, taking turns, so that what disturbs the machine for a while disturbs all.
fn measure(
    workshop: &Workshop,
    results: &mut Results,
    query: &Query,
    limit_bytes: Option<u64>,
    engines: &[Engine],
    runs: usize,
) -> Result<Vec<Cell>> {
    let cap = limit_bytes.map(cap_bytes);
    let new_cell = |engine: &Engine| Cell {
        query: query.name.to_owned(),
        engine: engine.name().to_owned(),
        limit_bytes,
        cap_bytes: cap,
        outcome: Outcome::Ok,
        message: None,
        runs: Vec::new(),
    };
    let mut cells: Vec<Cell> = engines.iter().map(new_cell).collect();
    for _ in 0..runs.max(1) {
        for (engine, cell) in engines.iter().zip(&mut cells) {
            if cell.outcome != Outcome::Ok {
                continue;
            }
            let attempt = workshop.attempt(*engine, query, limit_bytes, cap)?;
            (cell.outcome, cell.message) = (attempt.outcome, attempt.message);
            if attempt.outcome == Outcome::Ok
                && let Some(difference) =
                    results.check(query.name, engine.name(), &attempt.row, workshop.suite.is_exact)
            {
                eprintln!("  {} differs: {difference}", engine.name());
                (cell.outcome, cell.message) = (Outcome::Mismatch, Some(difference));
            }
            if let Some(version) = attempt.version {
                results.versions.insert(engine.name().to_owned(), version);
            }
            let outcome = match cell.outcome {
                Outcome::Ok => quantity::seconds(attempt.run.seconds) + " s",
                other => format!(
                    "{other:?} after {} s {}",
                    quantity::seconds(attempt.run.usage.wall_s),
                    cell.message.as_deref().unwrap_or("")
                ),
            };
            println!("  {:<9} {:<22} {outcome}", quantity::limit(limit_bytes), engine.name());
            cell.runs.push(attempt.run);
        }
    }
    Ok(cells)
}

fn agree(results: &Results) -> bool {
    let wrong: Vec<&Cell> = results.cells.iter().filter(|cell| cell.outcome == Outcome::Mismatch).collect();
    for cell in &wrong {
        let said = cell.message.as_deref().unwrap_or("");
        eprintln!("{} {} at {}: {said}", cell.query, cell.engine, quantity::limit(cell.limit_bytes));
    }
    wrong.is_empty()
}
