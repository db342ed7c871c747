//! SQLite through its C interface: a write-ahead log, prepared statements, a connection for each thread.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Statement};

use super::{KeyedRow, ROW_BYTES, Rows, Session};
use crate::error::{BenchError, Result};

pub struct Sqlite {
    path: PathBuf,
    /// Of one connection.
    cache_bytes: u64,
    is_durable: bool,
    /// Writers wait here for each other: where SQLite finds its file locked, it sleeps before it tries again.
    writing: Mutex<()>,
}

fn failed(error: rusqlite::Error) -> BenchError {
    BenchError::Setup(format!("SQLite: {error}"))
}

impl Sqlite {
    pub fn open(folder: &Path, cache_bytes: u64, threads: usize, is_durable: bool) -> Result<Self> {
        let cache_bytes = cache_bytes / threads as u64;
        let store =
            Self { path: folder.join("rows.sqlite"), cache_bytes, is_durable, writing: Mutex::default() };
        let create = "CREATE TABLE IF NOT EXISTS t (k INTEGER PRIMARY KEY, v BLOB NOT NULL)";
        store.connection()?.execute_batch(create).map_err(failed)?;
        Ok(store)
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
        let prepared = |sql: &str| connection.prepare(sql).map_err(failed);
        let mut session = SqliteSession {
            writing: &self.writing,
            read: prepared("SELECT v FROM t WHERE k = ?1")?,
            range: prepared("SELECT v FROM t WHERE k >= ?1 ORDER BY k LIMIT ?2")?,
            update: prepared("UPDATE t SET v = ?2 WHERE k = ?1")?,
            insert: prepared("INSERT INTO t VALUES (?1, ?2)")?,
            begin: prepared("BEGIN IMMEDIATE")?,
            commit: prepared("COMMIT")?,
        };
        work(&mut session)
    }

    fn settle(&self) -> Result<()> {
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        self.connection()?.query_row(checkpoint, [], |_| Ok(())).map_err(failed)
    }
}

struct SqliteSession<'c> {
    writing: &'c Mutex<()>,
    read: Statement<'c>,
    range: Statement<'c>,
    update: Statement<'c>,
    insert: Statement<'c>,
    begin: Statement<'c>,
    commit: Statement<'c>,
}

impl Session for SqliteSession<'_> {
    fn read(&mut self, key: u64) -> Result<Option<usize>> {
        let bytes = self.read.query_row([key as i64], |row| {
            row.get_ref(0)?.as_blob().map(<[u8]>::len).map_err(rusqlite::Error::from)
        });
        bytes.optional().map_err(failed)
    }

    fn range(&mut self, from: u64, rows: usize) -> Result<usize> {
        let mut found = self.range.query([from as i64, rows as i64]).map_err(failed)?;
        let mut count = 0;
        while let Some(row) = found.next().map_err(failed)? {
            let row = row.get_ref(0).map_err(failed)?;
            count += usize::from(row.as_blob().is_ok_and(|bytes| bytes.len() == ROW_BYTES));
        }
        Ok(count)
    }

    fn update(&mut self, key: u64, row: &[u8]) -> Result<()> {
        let _writing = self.writing.lock();
        match self.update.execute((key as i64, row)).map_err(failed)? {
            1 => Ok(()),
            changed => Err(BenchError::Setup(format!("SQLite updates {changed} rows of key {key}"))),
        }
    }

    fn insert(&mut self, rows: &[KeyedRow]) -> Result<()> {
        let _writing = self.writing.lock();
        let is_one = rows.len() == 1;
        if !is_one {
            self.begin.execute([]).map_err(failed)?;
        }
        for (key, row) in rows {
            self.insert.execute((*key as i64, &row[..])).map_err(failed)?;
        }
        if !is_one {
            self.commit.execute([]).map_err(failed)?;
        }
        Ok(())
    }
}
