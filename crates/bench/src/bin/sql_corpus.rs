//! Runs sqllogictest corpora of SQLite and DuckDB against Nandina, and says what each record came to. See
//! [`nandina_bench::corpus`].
//!
//! ```text
//! cargo run --release -p nandina-bench --bin sql_corpus -- --arbiter --limits none,16MB,4MB \
//!     --details wrong.txt --refusals 40 <sqlite>/test <duckdb>/test/sql
//! ```
//!
//! Corpora are not part of this project: SQLite's is at sqlite.org/sqllogictest, DuckDB's is the folder `test/sql` of
//! its sources. With `--arbiter`, DuckDB itself (`pip install duckdb`) decides where an answer is not the recorded
//! one, or may not be because something before it was refused. The program fails if any answer is wrong, changes
//! with the memory limit, panics or hangs.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Parser;
use nandina_bench::corpus::children::{FileRun, Supervision, run_all};
use nandina_bench::corpus::outcome::Class;
use nandina_bench::corpus::run_file::{self, Assignment};
use nandina_bench::corpus::{files, report};
use nandina_bench::{Result, quantity, runner};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Run SQL that others wrote, and compare the answers.
#[derive(Debug, Parser)]
#[command(name = "sql_corpus")]
struct Arguments {
    /// Folders with *.test files, or such files.
    places: Vec<PathBuf>,
    /// Memory limits, with 'none' for no limit.
    #[arg(long, value_delimiter = ',', default_value = "none,16MB,4MB", value_parser = quantity::parse_limit)]
    limits: Vec<Option<u64>>,
    /// Files that are run at the same time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Workers per operator.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Seconds after which a statement counts as a hang.
    #[arg(long, default_value_t = 20)]
    statement_seconds: u64,
    /// Seconds after which the rest of a file is skipped.
    #[arg(long, default_value_t = 300)]
    file_seconds: u64,
    /// A process that holds more is ended.
    #[arg(long, default_value = "4GB", value_parser = quantity::parse_bytes)]
    most_resident: u64,
    /// How often a file is run when its process ends in the middle.
    #[arg(long, default_value_t = 5)]
    attempts: usize,
    /// Let DuckDB decide where recorded answers cannot.
    #[arg(long)]
    arbiter: bool,
    /// A Python interpreter that has the package duckdb.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// How many reasons for refusals are listed.
    #[arg(long, default_value_t = 20)]
    refusals: usize,
    /// Writes every record that is wrong, panics, hangs, was answered or is undecided.
    #[arg(long)]
    details: Option<PathBuf>,
    /// Writes everything that does not agree.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Runs this file in this process, and tells what comes of it.
    #[arg(long, hide = true, requires = "folder")]
    child: Option<PathBuf>,
    #[arg(long, hide = true)]
    folder: Option<PathBuf>,
    #[arg(long, hide = true)]
    leave_out: Vec<usize>,
}

fn main() -> ExitCode {
    runner::main(|arguments: Arguments| match (&arguments.child, &arguments.folder) {
        (Some(file), Some(folder)) => {
            child(&arguments, file.clone(), folder.clone()).map(|()| runner::verdict(true))
        }
        _ => run(&arguments).map(runner::verdict),
    })
}

fn child(arguments: &Arguments, file: PathBuf, folder: PathBuf) -> Result<()> {
    run_file::run(&Assignment {
        file,
        folder,
        memory_limit: arguments.limits.first().copied().flatten(),
        threads: arguments.threads,
        statement_time: Duration::from_secs(arguments.statement_seconds),
        file_time: Duration::from_secs(arguments.file_seconds),
        leave_out: arguments.leave_out.clone(),
        arbiter: arguments.arbiter.then(|| arguments.python.clone()),
    })
}

/// Whether nothing is wrong.
fn run(arguments: &Arguments) -> Result<bool> {
    let (files, limits) = (files::find(&arguments.places)?, &arguments.limits);
    let supervision = Supervision {
        threads: arguments.threads,
        jobs: arguments.jobs,
        statement_time: Duration::from_secs(arguments.statement_seconds),
        file_time: Duration::from_secs(arguments.file_seconds),
        most_resident_bytes: arguments.most_resident,
        attempts: arguments.attempts,
        arbiter: arguments.arbiter.then(|| arguments.python.clone()),
    };
    let (through, all) = (AtomicUsize::new(0), files.len() * limits.len());
    let runs = run_all(&files, limits, &supervision, |run| {
        let through = through.fetch_add(1, Ordering::Relaxed) + 1;
        tell(run, through, all);
    })?;
    let (differences, for_memory) = report::limit_differences(&runs);
    for limit in report::limits(&runs) {
        println!("\n{}\n\n{}", quantity::limit(limit), report::folders(&runs, limit).to_text());
        for (class, most) in [
            (Class::Refused, arguments.refusals),
            (Class::Skipped, arguments.refusals),
            (Class::Wrong, arguments.refusals),
            (Class::Panic, arguments.refusals),
            (Class::Hang, arguments.refusals),
        ] {
            let table = report::reasons(&runs, limit, class, most);
            if !table.is_empty() {
                println!("{}", table.to_text());
            }
        }
    }
    let open = differences.iter().filter(|difference| difference.is_open).count();
    if limits.len() > 1 {
        println!(
            "between limits: {} records answer differently, {open} of which SQL leaves open; {for_memory} are refused \
             under a limit for want of memory",
            differences.len()
        );
    }
    if let Some(path) = &arguments.details {
        report::write_details(path, &runs, &differences)?;
    }
    if let Some(path) = &arguments.json {
        report::write_json(path, &runs, &differences)?;
    }
    let is_failure = runs.iter().flat_map(|run| &run.outcomes).any(|outcome| outcome.class.is_failure());
    Ok(!is_failure && differences.len() == open)
}

/// A line for each file that has a failure.
fn tell(run: &FileRun, through: usize, all: usize) {
    let count = |class: Class| run.outcomes.iter().filter(|outcome| outcome.class == class).count();
    let (wrong, panics, hangs) = (count(Class::Wrong), count(Class::Panic), count(Class::Hang));
    if wrong + panics + hangs > 0 || through.is_multiple_of(50) {
        let limit = quantity::limit(run.memory_limit);
        eprintln!(
            "{through}/{all} {} at {limit}: {wrong} wrong, {panics} panics, {hangs} hangs, {:.1} s",
            run.file.name, run.seconds
        );
    }
}
