//! A run: one schema after the other, some queries on each.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::duckdb::DuckDb;
use super::engines::{Engines, Storage};
use super::generate::{Avoid, Generator};
use super::oracle::{Case, Failure, FailureKind, Judge, Oracle, Verdict};
use super::schema::{Palette, random_schema};
use super::script::script;
use super::shrink::shrink;
use super::summary::Summary;
use super::types::Dialect;
use crate::error::{BenchError, Result};
use crate::random::Random;

/// What is run, and for how long.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub queries: usize,
    pub duration: Option<Duration>,
    pub oracles: Vec<Oracle>,
    /// The Python that has DuckDB.
    pub duckdb: Option<String>,
    /// None: one schema so, the next the other way.
    pub storage: Option<Storage>,
    pub has_nested: bool,
    pub has_odd_floats: bool,
    pub avoid: Vec<Avoid>,
    /// Statements that are run in every session of ours first.
    pub settings: Vec<String>,
    /// Scratch space.
    pub work: PathBuf,
    /// Where scripts of failing cases go, beside being printed.
    pub out: Option<PathBuf>,
    pub most_failures: usize,
    /// Whether a query that DuckDB answers and we refuse is a failure too, once for each reason.
    pub reports_refusals: bool,
    /// Whether failing cases are cut down.
    pub shrinks: bool,
}

/// Queries for each schema: making tables costs more than a query.
const QUERIES_PER_SCHEMA: usize = 20;

/// Runs, and prints what fails.
pub async fn run(plan: &Plan) -> Result<Summary> {
    let started = Instant::now();
    let mut summary = Summary::default();
    let mut failures = 0;
    for schema in 0.. {
        let seed = plan.seed + schema;
        let is_over = plan.duration.is_some_and(|duration| started.elapsed() > duration);
        if is_over || summary.queries() >= plan.queries || failures >= plan.most_failures {
            break;
        }
        let folder = plan.work.join(format!("seed-{seed}"));
        std::fs::create_dir_all(&folder).map_err(BenchError::file(&folder))?;
        let least = QUERIES_PER_SCHEMA.min(plan.queries - summary.queries());
        run_schema(plan, seed, least, &folder, &mut summary, &mut failures).await?;
        std::fs::remove_dir_all(&folder).ok();
    }
    Ok(summary)
}

async fn run_schema(
    plan: &Plan,
    seed: u64,
    queries: usize,
    folder: &Path,
    summary: &mut Summary,
    failures: &mut usize,
) -> Result<()> {
    let mut random = Random::new(seed);
    let palette = Palette {
        has_nested: plan.has_nested && random.chance(40),
        has_odd_floats: plan.has_odd_floats && random.chance(15),
        has_extremes: random.chance(30),
    };
    let drawn = random.one_of([Storage::Native, Storage::Parquet]);
    let storage = plan.storage.unwrap_or(drawn);
    let tables = random_schema(&mut random, palette);
    let duckdb = plan.duckdb.as_deref().map(DuckDb::start).transpose()?;
    let mut judge = Judge {
        engines: Engines::open(folder, &plan.settings).await?,
        duckdb,
        oracles: plan.oracles.clone(),
        sizes: Default::default(),
        has_nested: false,
    };
    judge.load(&tables, storage).await?;
    let mut generator = Generator::new(Random::new(random.number()), &tables, &plan.avoid);
    for number in 0..queries {
        let wants_partitions = plan.oracles.contains(&Oracle::Partitions)
            && (number % 4 == 3 || plan.oracles == [Oracle::Partitions]);
        let case = if wants_partitions {
            Case::Partitioned(generator.partitioned())
        } else {
            Case::Query(generator.whole())
        };
        let sql = case.queries().first().map(|query| query.sql(Dialect::Nandina)).unwrap_or_default();
        // Tells which query ran if the process is killed.
        let running = folder.join("running.sql");
        std::fs::write(&running, format!("{sql};\n")).map_err(BenchError::file(&running))?;
        let verdict = judge.judge(&case).await;
        summary.add(&sql, &verdict);
        let failure = match verdict {
            Verdict::Wrong(failure) => failure,
            Verdict::Refused { message, is_valid: true }
                if plan.reports_refusals && summary.is_new(&message) =>
            {
                Box::new(Failure { kind: FailureKind::Refused, detail: message, answers: Vec::new() })
            }
            _ => continue,
        };
        *failures += 1;
        let name = format!("{}-{seed}-{number}", failure.kind.name());
        let origin = format!("seed {seed}, query {number}, {storage:?}");
        let mut shrunk =
            super::shrink::Shrunk { case, tables: tables.clone(), failure: failure.as_ref().clone() };
        if plan.shrinks {
            shrunk = shrink(&mut judge, shrunk.case, shrunk.tables, *failure, storage).await?;
            judge.load(&tables, storage).await?;
        }
        let text = script(&shrunk, &origin);
        println!("{text}");
        if let Some(out) = &plan.out {
            std::fs::create_dir_all(out).map_err(BenchError::file(out))?;
            let path = out.join(format!("{name}.sql"));
            std::fs::write(&path, text).map_err(BenchError::file(&path))?;
        }
        if *failures >= plan.most_failures {
            break;
        }
    }
    Ok(())
}
