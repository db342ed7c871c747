//! `nandina tpch`: the benchmark's data as files or as tables of a database.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use indicatif::ProgressBar;
use nandina::tpch::{FileFormat, GeneratedFile, Request, Table, generate_files};
use nandina::{byte_size, format_count, format_duration};

use crate::arguments::{Format, TpchArguments, TpchFormat};
use crate::engine;
use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::output::Sink;
use crate::progress::Progress;
use crate::say::say;
use crate::statement::{Presentation, Runner};

pub async fn run(arguments: &TpchArguments, interrupt: Interrupt) -> Result<()> {
    let tables = tables(&arguments.tables)?;
    let shows_progress = Progress::is_possible() && !arguments.engine.no_progress;
    let format = match arguments.format {
        TpchFormat::Parquet => FileFormat::Parquet,
        TpchFormat::Csv => FileFormat::Csv,
        TpchFormat::Tables => return make_tables(arguments, &tables, shows_progress, interrupt).await,
    };
    let start = Instant::now();
    let request = Request {
        scale: arguments.scale,
        format,
        directory: arguments.directory.clone(),
        tables,
        threads: engine::options(&arguments.engine)?.threads.unwrap_or_else(workers),
    };
    let files = generate(request, shows_progress, &interrupt).await?;
    for file in &files {
        say!(
            "{:<9} {:>13} rows  {:>8}  {}",
            file.table.name(),
            format_count(file.rows),
            byte_size::format(file.bytes),
            file.path.display()
        )?;
    }
    say!("generated in {}", format_duration(start.elapsed()))?;
    Ok(())
}

/// Writes files on a thread of their own, with a bar, until done or cancelled.
pub async fn generate(
    request: Request,
    shows_progress: bool,
    interrupt: &Interrupt,
) -> Result<Vec<GeneratedFile>> {
    let total = request.tables.iter().map(|table| table.rows(request.scale)).sum();
    let bar = Progress::rows(total, shows_progress).with_message("generate");
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let counted: ProgressBar = bar.clone();
    let mut work =
        tokio::task::spawn_blocking(move || generate_files(&request, &stopped, &|rows| counted.inc(rows)));
    let result = tokio::select! {
        biased;
        () = interrupt.pressed() => {
            stop.store(true, Ordering::Relaxed);
            // Its unfinished files are gone when it returns.
            let _ = (&mut work).await;
            Err(Failure::Cancelled)
        }
        result = &mut work => match result {
            Ok(result) => result.map_err(Failure::from),
            Err(_) => Err(Failure::Query(nandina::Error::Query { message: "the generator stopped".to_owned() })),
        },
    };
    bar.finish_and_clear();
    result
}

/// Makes tables by SQL, one after the other.
async fn make_tables(
    arguments: &TpchArguments,
    tables: &[Table],
    shows_progress: bool,
    interrupt: Interrupt,
) -> Result<()> {
    let directory: &Path = &arguments.directory;
    let database = engine::open(Some(directory), &arguments.engine)?;
    let presentation = Presentation { format: Format::Table, rows: 0, shows_progress, shows_timing: false };
    let mut runner = Runner::new(database.session()?, Sink::standard_output(), interrupt, presentation);
    for table in tables {
        let start = Instant::now();
        let name = table.name();
        runner
            .run(&format!("CREATE TABLE {name} AS SELECT * FROM tpch('{name}', {})", arguments.scale))
            .await?;
        say!("{name:<9} {}", format_duration(start.elapsed()))?;
    }
    Ok(())
}

fn tables(names: &[String]) -> Result<Vec<Table>> {
    if names.is_empty() {
        return Ok(Table::ALL.to_vec());
    }
    let parse =
        |name: &String| name.parse().map_err(|error: nandina::Error| Failure::Usage(error.to_string()));
    names.iter().map(parse).collect()
}

/// Processors that this process may use.
pub fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Where the generator puts a table's file.
pub fn parquet_path(directory: &Path, table: Table) -> PathBuf {
    directory.join(format!("{}.{}", table.name(), FileFormat::Parquet.extension()))
}
