//! One query, and what it took, as JSON: what the demo's steps tell the demo.

use std::time::Instant;

use arrow::util::display::{ArrayFormatter, FormatOptions};
use nandina::{Database, Profile, process_memory};
use serde::{Deserialize, Serialize};

use crate::arguments::{Format, MeasureArguments};
use crate::engine;
use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::output::Sink;
use crate::progress::Progress;
use crate::say::say;
use crate::statement::{Presentation, Runner};

/// What a query took.
#[derive(Debug, Serialize, Deserialize)]
pub struct Figures {
    pub elapsed_micros: u64,
    pub peak_resident_bytes: u64,
    pub scanned_bytes: u64,
    pub spilled_bytes: u64,
    pub spill_read_bytes: u64,
    pub queue_depth: f64,
    /// The operators, as `EXPLAIN ANALYZE` shows them.
    pub profile: String,
    /// The first row of the result, by column.
    pub row: Vec<(String, String)>,
}

/// Runs the query and prints its figures.
pub async fn run(arguments: &MeasureArguments, interrupt: Interrupt) -> Result<()> {
    let presentation = Presentation {
        format: Format::Table,
        rows: 0,
        shows_progress: Progress::is_possible() && !arguments.engine.no_progress,
        shows_timing: false,
    };
    let session = Database::in_memory(engine::options(&arguments.engine)?)?.session()?;
    let mut runner = Runner::new(session, Sink::standard_output(), interrupt, presentation);
    let start = Instant::now();
    let query = runner.session.execute(&arguments.sql).await?;
    let plan = query.plan();
    let batches = runner.collect(query).await?;
    let elapsed = start.elapsed();
    let profile = plan.as_ref().map(Profile::of);
    let profile = profile.ok_or_else(|| Failure::Usage("only queries can be measured".to_owned()))?;
    let mut row = Vec::new();
    if let Some(batch) = batches.iter().find(|batch| batch.num_rows() > 0) {
        for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
            let format = FormatOptions::default();
            let formatter =
                ArrayFormatter::try_new(column.as_ref(), &format).map_err(nandina::Error::from)?;
            row.push((field.name().clone(), formatter.value(0).to_string()));
        }
    }
    let figures = Figures {
        elapsed_micros: elapsed.as_micros() as u64,
        peak_resident_bytes: process_memory::peak_resident_bytes().unwrap_or(0),
        scanned_bytes: profile.scanned_bytes(),
        spilled_bytes: profile.spilled_bytes(),
        spill_read_bytes: profile.spill_read_bytes(),
        queue_depth: profile.queue_depth(),
        profile: profile.render(false),
        row,
    };
    let text =
        serde_json::to_string(&figures).map_err(|error| Failure::io("printing figures", error.into()))?;
    say!("{text}")?;
    Ok(())
}
