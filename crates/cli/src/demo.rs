//! `nandina demo`: a join whose build side is several times the memory limit, and where its time went.
//!
//! ```text
//!   generate (a process of its own: the generator holds hundreds of MB) ─► temporary folder
//!   join with the limit ─► join with plenty of memory ─► comparison ─► folder removed
//! ```
//!
//! The folder goes away however the demo ends: by success, error or Ctrl-C; if it was killed, the next demo
//! removes it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use nandina::tpch::Table;
use nandina::{Database, Options, Profile, byte_size, format_count, format_duration, process_memory};

use crate::arguments::{DemoArguments, Format};
use crate::engine;
use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::output::{ResultWriter, Sink, TableLimits};
use crate::progress::Progress;
use crate::statement::{Presentation, Runner};
use crate::tpch::parquet_path;

/// The build side is at least this many times the limit that the demo picks.
const BUILD_SIDE_PER_LIMIT: u64 = 6;
/// Bytes of an order's row in memory: key, and a comment of 49 characters on average with its view.
const BYTES_PER_ORDER: u64 = 8 + 16 + 49;
const SMALLEST_LIMIT_BYTES: u64 = 16 << 20;
const FOLDER_PREFIX: &str = "nandina-demo-";

pub async fn run(arguments: &DemoArguments, interrupt: Interrupt) -> Result<()> {
    let mut options = engine::options(&arguments.engine)?;
    let build_bytes = Table::Orders.rows(arguments.scale) * BYTES_PER_ORDER;
    let limit = options.memory_limit.unwrap_or_else(|| default_limit(build_bytes));
    let plenty = nandina::default_memory_limit().max(limit);
    let shows_progress = Progress::is_possible() && !arguments.engine.no_progress;

    let folder = Folder::create(options.temp_directory.as_deref())?;
    // Everything that is written goes into the one folder that is removed.
    options.temp_directory = Some(folder.path.join("temp"));
    generate(arguments, &folder.path, shows_progress, &interrupt).await?;
    let sql = query(&folder.path);
    println!("\n{}\n", sql.replace(&folder.path.display().to_string(), "…"));
    println!(
        "The orders to join take about {} in memory; the limit is {}.\n",
        byte_size::format(build_bytes),
        byte_size::format(limit)
    );

    let limited = Options { memory_limit: Some(limit), ..options.clone() };
    let limited = measure(limited, &sql, shows_progress, &interrupt).await?;
    show_result(&limited)?;
    println!("Where it went:\n\n{}", limited.profile.render(false));
    let unlimited = Options { memory_limit: Some(plenty), ..options };
    let unlimited = measure(unlimited, &sql, shows_progress, &interrupt).await?;
    compare(&limited, limit, &unlimited, plenty)
}

fn default_limit(build_bytes: u64) -> u64 {
    let whole_mebibytes = (build_bytes / BUILD_SIDE_PER_LIMIT) >> 20;
    (whole_mebibytes << 20).max(SMALLEST_LIMIT_BYTES)
}

/// Wide payload on both sides, so that both spill when memory is short.
fn query(folder: &Path) -> String {
    let path = |table| parquet_path(folder, table).display().to_string().replace('\'', "''");
    format!(
        "SELECT count(*) AS lines, sum(l_extendedprice) AS price, sum(o_totalprice) AS total,\n       \
         min(l_comment) AS first_l, max(l_comment) AS last_l, min(o_comment) AS first_o, max(o_comment) AS last_o\n\
         FROM '{}' JOIN '{}' ON l_orderkey = o_orderkey",
        path(Table::LineItem),
        path(Table::Orders)
    )
}

/// Generates in a process of its own, so that the generator's memory does not count for the joins.
async fn generate(
    arguments: &DemoArguments,
    folder: &Path,
    shows_progress: bool,
    interrupt: &Interrupt,
) -> Result<()> {
    let start = Instant::now();
    let program = std::env::current_exe().map_err(|error| Failure::io("finding this program", error))?;
    let mut command = Command::new(program);
    command.arg("tpch").arg(folder).arg("--scale").arg(arguments.scale.to_string());
    command.args(["--tables", "orders,lineitem"]);
    if let Some(threads) = arguments.engine.threads {
        command.arg("--threads").arg(threads.to_string());
    }
    if !shows_progress {
        command.arg("--no-progress");
    }
    println!("TPC-H orders and lineitem at scale {}:\n", arguments.scale);
    let child = command.spawn().map_err(|error| Failure::io("starting the generator", error))?;
    let mut generator = Generator(child);
    let status = loop {
        // A Ctrl-C reached the generator, too; a plain SIGTERM did not. Leaving kills it, and waits.
        if interrupt.is_pressed() {
            return Err(Failure::Cancelled);
        }
        match generator.0.try_wait().map_err(|error| Failure::io("waiting for the generator", error))? {
            Some(status) => break status,
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    match status.code() {
        Some(0) => {}
        Some(130) => return Err(Failure::Cancelled),
        _ => {
            let message = format!("the generator failed after {}", format_duration(start.elapsed()));
            return Err(Failure::Query(nandina::Error::Query { message }));
        }
    }
    Ok(())
}

/// The generating process; gone when dropped.
struct Generator(Child);

impl Drop for Generator {
    fn drop(&mut self) {
        // Both fail when it has ended already, which is what they are for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One run of the join.
struct Measured {
    elapsed: Duration,
    peak_bytes: Option<u64>,
    profile: Profile,
    batches: Vec<RecordBatch>,
}

async fn measure(
    options: Options,
    sql: &str,
    shows_progress: bool,
    interrupt: &Interrupt,
) -> Result<Measured> {
    let presentation = Presentation { format: Format::Table, rows: 0, shows_progress, shows_timing: false };
    let session = Database::in_memory(options)?.session()?;
    let mut runner = Runner::new(session, Sink::standard_output(), interrupt.clone(), presentation);
    let is_peak_own = process_memory::reset_peak();
    let start = Instant::now();
    let query = runner.session.execute(sql).await?;
    let plan = query.plan();
    let batches = runner.collect(query).await?;
    let elapsed = start.elapsed();
    let peak_bytes = process_memory::peak_resident_bytes().filter(|_| is_peak_own);
    let profile =
        plan.as_ref().map(Profile::of).ok_or_else(|| Failure::Usage("the join has no plan".to_owned()))?;
    Ok(Measured { elapsed, peak_bytes, profile, batches })
}

fn show_result(measured: &Measured) -> Result<()> {
    let Some(first) = measured.batches.first() else { return Ok(()) };
    let mut out = std::io::stdout();
    let width =
        Some(usize::from(console::Term::stdout().size().1)).filter(|_| console::Term::stdout().is_term());
    let limits = TableLimits { rows: 0, width, has_footer: false };
    let mut writer = ResultWriter::new(Format::Table, first.schema(), limits, &mut out)?;
    for batch in &measured.batches {
        writer.write(batch)?;
    }
    writer.finish()?;
    println!();
    Ok(())
}

fn compare(limited: &Measured, limit: u64, unlimited: &Measured, plenty: u64) -> Result<()> {
    println!("{:<26} {:>14} {:>14}", "", "limited", "plenty");
    let row = |name: &str, left: String, right: String| println!("{name:<26} {left:>14} {right:>14}");
    let peak = |run: &Measured| run.peak_bytes.map_or_else(|| "?".to_owned(), byte_size::format);
    row("memory limit", byte_size::format(limit), byte_size::format(plenty));
    row("peak resident memory", peak(limited), peak(unlimited));
    row("time", format_duration(limited.elapsed), format_duration(unlimited.elapsed));
    let sizes: [(&str, fn(&Profile) -> u64); 3] = [
        ("read from Parquet", Profile::scanned_bytes),
        ("written to temp space", Profile::spilled_bytes),
        ("read from temp space", Profile::spill_read_bytes),
    ];
    for (name, size) in sizes {
        row(name, byte_size::format(size(&limited.profile)), byte_size::format(size(&unlimited.profile)));
    }
    let depth = |run: &Measured| match run.profile.queue_depth() {
        depth if depth > 0.0 => format!("{depth:.1}"),
        _ => "-".to_owned(),
    };
    row("mean queue depth", depth(limited), depth(unlimited));
    let rows = |run: &Measured| run.profile.root.rows;
    if limited.batches != unlimited.batches {
        let message = format!(
            "the two runs gave different results ({} and {} rows): this is a bug, please report it",
            format_count(rows(limited)),
            format_count(rows(unlimited))
        );
        return Err(Failure::Query(nandina::Error::Query { message }));
    }
    let ratio = limited.elapsed.as_secs_f64() / unlimited.elapsed.as_secs_f64().max(1e-9);
    println!("\nBoth gave the same result; the limited run took {ratio:.2} × as long.");
    Ok(())
}

/// The folder that everything is written to; removed when dropped.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn create(parent: Option<&Path>) -> Result<Self> {
        let parent = match parent {
            Some(parent) => parent.to_path_buf(),
            None => nandina::Settings::resolve(&Options::default(), None)?.temp_directory,
        };
        remove_abandoned(&parent);
        let path = parent.join(format!("{FOLDER_PREFIX}{}", std::process::id()));
        fs::create_dir_all(&path)
            .map_err(|error| Failure::io(format!("cannot create '{}'", path.display()), error))?;
        Ok(Folder { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("note: '{}' could not be removed: {error}", self.path.display());
        }
    }
}

/// Removes folders of demos whose process is gone (it was killed).
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(FOLDER_PREFIX)?.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            // Another user's cannot be removed; it is not ours to.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_a_fraction_of_the_build_side() {
        assert_eq!(default_limit(600 << 20), 100 << 20);
        assert_eq!(default_limit(1 << 20), SMALLEST_LIMIT_BYTES);
    }

    #[test]
    fn folders_are_removed_by_their_owner_or_the_next_demo() {
        let parent = tempfile::tempdir().unwrap();
        // No process has this number: the kernel's largest is 4194304.
        let abandoned = parent.path().join(format!("{FOLDER_PREFIX}4294967295"));
        fs::create_dir(&abandoned).unwrap();
        let folder = Folder::create(Some(parent.path())).unwrap();
        assert!(!abandoned.exists() && folder.path.exists());
        drop(folder);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
