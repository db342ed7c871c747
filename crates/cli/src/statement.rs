//! Running one statement: started, watched, cancellable, its result written out.
//!
//! ```text
//!   Session ── Query (on the runtime's workers) ── 2 batches ──► writer (here)
//!                       ▲ dropped on Ctrl-C                        progress bar meanwhile
//! ```

use std::time::Instant;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt64Type;
use futures::StreamExt as _;
use nandina::{Answer, Query, Session, format_count, format_duration};
use tokio::sync::mpsc;

use crate::arguments::Format;
use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::output::{ResultWriter, Sink, TableLimits, output_failure};
use crate::progress::Progress;
use crate::resident;
use crate::say::note;

/// Batches that wait for the writer: one being written, one ready.
const WAITING_BATCHES: usize = 2;

/// How results look.
#[derive(Debug, Clone, Copy)]
pub struct Presentation {
    pub format: Format,
    pub rows: usize,
    pub shows_progress: bool,
    pub shows_timing: bool,
}

/// Runs statements in a session and writes their results to a sink.
pub struct Runner {
    pub session: Session,
    pub sink: Sink,
    pub interrupt: Interrupt,
    pub presentation: Presentation,
    has_result: bool,
}

impl Runner {
    pub fn new(session: Session, sink: Sink, interrupt: Interrupt, presentation: Presentation) -> Self {
        Runner { session, sink, interrupt, presentation, has_result: false }
    }

    /// Runs all statements of a text, up to the first that fails.
    pub async fn run_script(&mut self, text: &str) -> Result<()> {
        for statement in nandina::statement_text::statements(text) {
            self.run(statement).await.map_err(|failure| failure.at_place(text, statement))?;
        }
        Ok(())
    }

    /// Runs one statement.
    pub async fn run(&mut self, statement: &str) -> Result<()> {
        let start = Instant::now();
        // Planning is cancelled by dropping it, too: reading the schemas of many files can take a while.
        let query = tokio::select! {
            biased;
            () = self.interrupt.pressed() => return Err(Failure::Cancelled),
            query = self.session.execute(statement) => query?,
        };
        resident::leave_planner(self.session.settings().memory_limit_bytes);
        self.show(query).await?;
        if self.presentation.shows_timing {
            let line = format!("Time: {}", format_duration(start.elapsed()));
            if self.presentation.format == Format::Table {
                writeln!(self.sink.writer(), "{line}").map_err(output_failure)?;
            } else {
                // What another program reads holds rows alone.
                note!("{line}");
            }
        }
        self.sink.writer().flush().map_err(output_failure)
    }

    /// Runs a query and returns its rows.
    pub async fn collect(&mut self, query: Query) -> Result<Vec<RecordBatch>> {
        let _progress = self.presentation.shows_progress.then(|| Progress::watch(query.progress_meter()));
        let mut running = Running::start(query);
        let mut batches = Vec::new();
        while let Some(batch) = running.next(&self.interrupt).await? {
            batches.push(batch);
        }
        Ok(batches)
    }

    /// Runs a statement that writes rows, and returns how many.
    pub async fn count_written(&mut self, query: Query) -> Result<u64> {
        let _progress = self.presentation.shows_progress.then(|| Progress::watch(query.progress_meter()));
        Running::start(query).count_written(&self.interrupt).await
    }

    async fn show(&mut self, query: Query) -> Result<()> {
        let (answer, schema) = (query.answer(), query.schema());
        let progress = self.presentation.shows_progress.then(|| Progress::watch(query.progress_meter()));
        let mut running = Running::start(query);
        match answer {
            Answer::Nothing => running.drain(&self.interrupt).await,
            Answer::RowsWritten => {
                let written = running.count_written(&self.interrupt).await?;
                drop(progress);
                if self.presentation.format == Format::Table && self.sink.is_terminal() {
                    let line = format!(
                        "{} row{} written\n",
                        format_count(written),
                        if written == 1 { "" } else { "s" }
                    );
                    self.sink.writer().write_all(line.as_bytes()).map_err(output_failure)?;
                }
                Ok(())
            }
            Answer::Text if matches!(self.presentation.format, Format::Table) => {
                let mut lines = String::new();
                while let Some(batch) = running.next(&self.interrupt).await? {
                    for line in batch.column(0).as_string::<i32>().iter().flatten() {
                        lines.push_str(line);
                        lines.push('\n');
                    }
                }
                drop(progress);
                self.sink.writer().write_all(lines.as_bytes()).map_err(output_failure)
            }
            Answer::Rows | Answer::Text => {
                if self.presentation.format == Format::Parquet
                    && std::mem::replace(&mut self.has_result, true)
                {
                    return Err(Failure::Usage(
                        "a Parquet file holds one result; run the other queries separately".to_owned(),
                    ));
                }
                let is_terminal = self.sink.is_terminal();
                let limits = TableLimits {
                    rows: self.presentation.rows,
                    width: is_terminal.then(|| usize::from(console::Term::stdout().size().1)),
                    has_footer: is_terminal,
                };
                let mut progress = progress;
                let mut writer =
                    ResultWriter::new(self.presentation.format, schema, limits, self.sink.writer())?;
                while let Some(batch) = running.next(&self.interrupt).await? {
                    if is_terminal && (self.presentation.format != Format::Table || limits.rows == 0) {
                        // Rows and a bar on the same terminal would overwrite each other.
                        progress = None;
                    }
                    writer.write(&batch)?;
                }
                drop(progress);
                writer.finish()
            }
        }
    }
}

/// The number in a batch that says how many rows were written.
fn count_in(batch: &RecordBatch) -> u64 {
    batch.column(0).as_primitive::<UInt64Type>().values().iter().sum()
}

/// A query that runs on the runtime's workers, so that neither writing nor waiting for keys holds it up.
struct Running {
    batches: mpsc::Receiver<nandina::Result<RecordBatch>>,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    fn start(mut query: Query) -> Self {
        let (sender, batches) = mpsc::channel(WAITING_BATCHES);
        let task = tokio::spawn(async move {
            while let Some(batch) = query.next().await {
                if sender.send(batch).await.is_err() {
                    return;
                }
            }
        });
        Running { batches, task }
    }

    /// The next batch; on Ctrl-C an error, after the query has been dropped and its temporary space freed.
    async fn next(&mut self, interrupt: &Interrupt) -> Result<Option<RecordBatch>> {
        tokio::select! {
            biased;
            () = interrupt.pressed() => {
                self.task.abort();
                // Wait until it is gone: its temporary space is freed when it is dropped.
                tokio::select! {
                    _ = &mut self.task => {}
                    () = interrupt.overdue() => {}
                }
                Err(Failure::Cancelled)
            }
            batch = self.batches.recv() => match batch {
                Some(batch) => Ok(Some(batch?)),
                None => self.ended().await,
            },
        }
    }

    /// The end of the stream, unless the worker panicked as it let go of the query.
    async fn ended(&mut self) -> Result<Option<RecordBatch>> {
        match (&mut self.task).await {
            Err(error) if error.is_panic() => Err(Failure::Query(nandina::Error::Query {
                message: "the query stopped because of a bug in Nandina (the message above says where)"
                    .to_owned(),
            })),
            _ => Ok(None),
        }
    }

    async fn count_written(&mut self, interrupt: &Interrupt) -> Result<u64> {
        let mut written = 0;
        while let Some(batch) = self.next(interrupt).await? {
            written += count_in(&batch);
        }
        Ok(written)
    }

    async fn drain(&mut self, interrupt: &Interrupt) -> Result<()> {
        while self.next(interrupt).await?.is_some() {}
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}
