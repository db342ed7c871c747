//! Nandina in this process: a session for each thread.

use std::path::Path;

use arrow::array::{ArrayRef, AsArray as _};
use arrow::datatypes::UInt64Type;
use datafusion::common::ScalarValue;
use nandina::{Answer, Database, Options, PreparedStatement, Query, Session};
use tokio::runtime::Runtime;

use super::{Argument, Call, Form, GROUP_ROWS, Rows, TEXT_BYTES};
use crate::error::{BenchError, Result};
use crate::row_stores::KEY_BITS;
use crate::runner;

pub struct Nandina {
    database: Database,
    runtime: Runtime,
    is_durable: bool,
    is_prepared: bool,
}

/// Rows of a statement when rows are loaded.
const LOADED_AT_ONCE: u64 = 100_000;

fn failed(error: nandina::Error) -> BenchError {
    BenchError::Setup(format!("Nandina: {error}"))
}

impl Nandina {
    pub fn open(folder: &Path, memory_limit: u64, is_durable: bool, is_prepared: bool) -> Result<Self> {
        let options =
            Options { memory_limit: Some(memory_limit), auto_calibrate: false, ..Options::default() };
        let database = Database::open(folder.join("nandina"), options).map_err(failed)?;
        Ok(Self { runtime: runner::runtime(runner::processors())?, database, is_durable, is_prepared })
    }

    fn new_session(&self) -> Result<Session> {
        let session = self.database.session().map_err(failed)?;
        let durability = if self.is_durable { "full" } else { "relaxed" };
        self.runtime.block_on(session.run(&format!("SET durability = '{durability}'"))).map_err(failed)?;
        Ok(session)
    }

    fn run(&self, statements: &str) -> Result<()> {
        let session = self.new_session()?;
        self.runtime.block_on(session.run(statements)).map_err(failed)
    }
}

impl Rows for Nandina {
    fn session(&self, work: &mut dyn FnMut(&mut dyn super::Session) -> Result<()>) -> Result<()> {
        let session = self.new_session()?;
        let way = match self.is_prepared {
            true => Way::prepared(&self.runtime, &session)?,
            false => Way::Text(&session),
        };
        work(&mut NandinaSession { runtime: &self.runtime, way })
    }

    fn load(&self, rows: u64) -> Result<()> {
        let session = self.new_session()?;
        let run = |text: String| self.runtime.block_on(session.run(&text)).map_err(failed);
        run("CREATE TABLE t (k BIGINT PRIMARY KEY, g BIGINT NOT NULL, v VARCHAR NOT NULL)".to_owned())?;
        let factor = super::task::SCATTERING;
        for from in (0..rows).step_by(LOADED_AT_ONCE as usize) {
            let to = rows.min(from + LOADED_AT_ONCE);
            run(format!(
                "INSERT INTO t SELECT x * {}, ((x * {factor}) % {rows}) / {GROUP_ROWS}, \
                 left(md5(x::VARCHAR) || md5((x + 1)::VARCHAR) || md5((x + 2)::VARCHAR), {TEXT_BYTES}) \
                 FROM range({from}, {to}) AS r(x)",
                1u64 << KEY_BITS
            ))?;
        }
        run("CREATE INDEX by_group ON t (g)".to_owned())?;
        self.settle()
    }

    fn read_all(&self) -> Result<()> {
        self.run("SELECT sum(length(v)), count(k) FROM t WHERE g >= 0")
    }

    fn settle(&self) -> Result<()> {
        self.run("CHECKPOINT")
    }
}

/// How a session is given statements.
enum Way<'s> {
    /// Each as a text with its values.
    Text(&'s Session),
    /// Each form prepared once, and run with values.
    Prepared(Vec<(Form, PreparedStatement<'s>)>),
}

impl<'s> Way<'s> {
    fn prepared(runtime: &Runtime, session: &'s Session) -> Result<Self> {
        let prepare = |form: Form| {
            let statement = runtime.block_on(session.prepare(form.sql())).map_err(failed)?;
            Ok((form, statement))
        };
        Form::ALL.into_iter().map(prepare).collect::<Result<_>>().map(Self::Prepared)
    }

    async fn start(&self, call: &Call) -> nandina::Result<Query> {
        match self {
            Way::Text(session) => session.execute(&call.text()).await,
            Way::Prepared(statements) => {
                let Some((_, statement)) = statements.iter().find(|(form, _)| *form == call.form) else {
                    unreachable!("all forms are prepared");
                };
                let values: Vec<ScalarValue> = call.arguments.iter().map(value).collect();
                statement.run(&values).await
            }
        }
    }
}

fn value(argument: &Argument) -> ScalarValue {
    match argument {
        Argument::Number(number) => ScalarValue::from(*number),
        Argument::Text(text) => ScalarValue::from(text.as_str()),
    }
}

struct NandinaSession<'n> {
    runtime: &'n Runtime,
    way: Way<'n>,
}

impl super::Session for NandinaSession<'_> {
    fn run(&mut self, call: &Call) -> Result<u64> {
        let running = async {
            let query = self.way.start(call).await?;
            let counts = query.answer() == Answer::RowsWritten;
            let batches = query.collect().await?;
            // A statement that changes rows tells how many as its only row.
            let changed =
                batches.first().filter(|_| counts).and_then(|batch| batch.columns().first()).map(count);
            let rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
            Ok::<_, nandina::Error>(changed.unwrap_or(rows))
        };
        self.runtime.block_on(running).map_err(failed)
    }
}

fn count(column: &ArrayRef) -> u64 {
    column
        .as_primitive_opt::<UInt64Type>()
        .and_then(|counts| counts.iter().next().flatten())
        .unwrap_or_default()
}
