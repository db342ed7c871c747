//! `nandina import DB TABLE FILE…`

use nandina::{Import, process_memory};

use crate::arguments::{Format, ImportArguments};
use crate::engine;
use crate::failure::Result;
use crate::interrupt::Interrupt;
use crate::output::Sink;
use crate::progress::Progress;
use crate::say::say;
use crate::statement::{Presentation, Runner};

/// Loads files into a table, as one change: all rows or none.
pub async fn run(arguments: &ImportArguments, interrupt: Interrupt) -> Result<()> {
    let start = std::time::Instant::now();
    let database = engine::open(Some(&arguments.database), &arguments.engine)?;
    let session = database.session()?;
    let mode = match (arguments.append, arguments.replace) {
        (true, _) => Import::Append,
        (_, true) => Import::Replace,
        _ => Import::Create,
    };
    let files: Vec<&str> = arguments.files.iter().map(String::as_str).collect();
    let query = session.import(&arguments.table, &files, mode).await?;
    let presentation = Presentation {
        format: Format::Table,
        rows: 0,
        shows_progress: Progress::is_possible() && !arguments.engine.no_progress,
        shows_timing: false,
    };
    let mut runner = Runner::new(session, Sink::standard_output(), interrupt, presentation);
    let rows = runner.count_written(query).await?;
    let peak = process_memory::peak_resident_bytes().unwrap_or(0);
    say!(
        "{} rows in table '{}', {}, {} of memory at most",
        nandina::format_count(rows),
        arguments.table,
        nandina::format_duration(start.elapsed()),
        nandina::byte_size::format(peak)
    )?;
    Ok(())
}
