//! SQLite through its C interface: a write-ahead log, a connection for each thread.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use rusqlite::{Connection, Statement};

use super::{Argument, Call, Form, GROUP_ROWS, Rows, Session};
use crate::error::{BenchError, Result};
use crate::row_stores::{KEY_BITS, LOADED_AT_ONCE};

pub struct Sqlite {
    path: PathBuf,
    /// Of one connection.
    cache_bytes: u64,
    is_durable: bool,
    is_prepared: bool,
    /// Writers wait here for each other: where SQLite finds its file locked, it sleeps before it tries again.
    writing: Mutex<()>,
}

fn failed(error: rusqlite::Error) -> BenchError {
    BenchError::Setup(format!("SQLite: {error}"))
}

impl Sqlite {
    pub fn open(
        folder: &Path,
        cache_bytes: u64,
        threads: usize,
        is_durable: bool,
        is_prepared: bool,
    ) -> Result<Self> {
        Ok(Self {
            path: folder.join("rows.sqlite"),
            cache_bytes: cache_bytes / threads as u64,
            is_durable,
            is_prepared,
            writing: Mutex::default(),
        })
    }

    fn connection(&self) -> Result<Connection> {
        let connection = Connection::open(&self.path).map_err(failed)?;
        connection.busy_timeout(Duration::from_secs(120)).map_err(failed)?;
        // With `NORMAL`, the log is synced at checkpoints alone.
        let synchronous = if self.is_durable { "FULL" } else { "NORMAL" };
        let settings = format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; PRAGMA cache_size = -{};",
            self.cache_bytes >> 10
        );
        connection.execute_batch(&settings).map_err(failed)?;
        Ok(connection)
    }
}

impl Rows for Sqlite {
    fn session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        let connection = self.connection()?;
        let mut prepared = Vec::new();
        if self.is_prepared {
            for form in Form::ALL {
                // To SQLite $1 is a name, and its number the place where it comes first.
                let text = form.sql().replace('$', "?");
                prepared.push((form, connection.prepare(&text).map_err(failed)?));
            }
        }
        work(&mut SqliteSession { writing: &self.writing, connection: &connection, prepared })
    }

    fn load(&self, rows: u64) -> Result<()> {
        let connection = self.connection()?;
        let run = |text: &str| connection.execute_batch(text).map_err(failed);
        run("CREATE TABLE t (k INTEGER PRIMARY KEY, g INTEGER NOT NULL, v TEXT NOT NULL)")?;
        let mut insert = connection.prepare("INSERT INTO t VALUES (?1, ?2, ?3)").map_err(failed)?;
        for from in (0..rows).step_by(LOADED_AT_ONCE) {
            run("BEGIN")?;
            for place in from..rows.min(from + LOADED_AT_ONCE as u64) {
                let group = place * super::task::SCATTERING % rows / GROUP_ROWS;
                let row = ((place << KEY_BITS) as i64, group as i64, super::task::text(place));
                insert.execute(row).map_err(failed)?;
            }
            run("COMMIT")?;
        }
        run("CREATE INDEX by_group ON t (g)")?;
        self.settle()
    }

    fn read_all(&self) -> Result<()> {
        let all = "SELECT sum(length(v)), count(k) FROM t WHERE g >= 0";
        self.connection()?.query_row(all, [], |_| Ok(())).map_err(failed)
    }

    fn settle(&self) -> Result<()> {
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        self.connection()?.query_row(checkpoint, [], |_| Ok(())).map_err(failed)
    }
}

struct SqliteSession<'c> {
    writing: &'c Mutex<()>,
    connection: &'c Connection,
    /// None where statements are texts.
    prepared: Vec<(Form, Statement<'c>)>,
}

impl Session for SqliteSession<'_> {
    fn run(&mut self, call: &Call) -> Result<u64> {
        let is_change = matches!(call.form, Form::Update | Form::Insert);
        let writing = self.writing;
        let _writing = is_change.then(|| writing.lock());
        let prepared = self.prepared.iter_mut().find(|(form, _)| *form == call.form);
        match prepared {
            Some((_, statement)) => {
                for (number, argument) in call.arguments.iter().enumerate() {
                    let bound = match argument {
                        Argument::Number(value) => statement.raw_bind_parameter(number + 1, value),
                        Argument::Text(value) => statement.raw_bind_parameter(number + 1, value),
                    };
                    bound.map_err(failed)?;
                }
                answer(statement, is_change)
            }
            None => answer(&mut self.connection.prepare(&call.text()).map_err(failed)?, is_change),
        }
    }
}

/// Runs a statement whose values are bound.
fn answer(statement: &mut Statement<'_>, is_change: bool) -> Result<u64> {
    if is_change {
        return Ok(statement.raw_execute().map_err(failed)? as u64);
    }
    let mut found = statement.raw_query();
    let mut count = 0;
    while let Some(row) = found.next().map_err(failed)? {
        let text = row.get_ref(2).map_err(failed)?;
        count += u64::from(text.as_str().is_ok_and(|text| !text.is_empty()));
    }
    Ok(count)
}
