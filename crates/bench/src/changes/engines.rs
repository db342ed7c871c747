//! Both engines, each with a database of its own and as many sessions.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nandina::{Answer, Database, Options, Session};
use rusqlite::Connection;

use super::step::{Action, Step};
use super::values::{Row, Value, rows_of_batches, shown};
use crate::error::{BenchError, Result};

/// What a statement came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Without a result.
    Done,
    /// So many rows were changed.
    Changed(u64),
    /// Rows, sorted.
    Rows(Vec<Row>),
    Error(String),
}

/// Longer than any of these statements takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// What no message may have: it would be a mistake of ours, also where the statement must fail.
const MISTAKES: [&str; 5] =
    ["panicked", "Internal error", "internal error", "no answer in time", "please report"];

/// Both engines. What they say to a step can be compared.
pub struct Engines {
    folder: PathBuf,
    sessions: usize,
    memory_limit: Option<u64>,
    ours: Vec<Arc<Session>>,
    sqlite: Vec<Connection>,
}

/// What both said.
pub struct Said {
    pub ours: Outcome,
    pub sqlite: Outcome,
}

impl Engines {
    /// New databases in a folder.
    pub fn open(folder: &Path, sessions: usize, memory_limit: Option<u64>) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(BenchError::file(folder))?;
        let mut engines = Self {
            folder: folder.to_owned(),
            sessions: sessions.max(1),
            memory_limit,
            ours: Vec::new(),
            sqlite: Vec::new(),
        };
        engines.reopen()?;
        Ok(engines)
    }

    /// Closes the databases and opens them again.
    fn reopen(&mut self) -> Result<()> {
        self.ours.clear();
        self.sqlite.clear();
        let said = |error: nandina::Error| BenchError::Setup(format!("opening the database: {error}"));
        let options = Options {
            memory_limit: Some(self.memory_limit.unwrap_or(256 << 20)),
            threads: Some(2),
            auto_calibrate: false,
            ..Options::default()
        };
        let database = Database::open(self.folder.join("nandina"), options).map_err(said)?;
        for _ in 0..self.sessions {
            let session = database.session().map_err(said)?;
            self.ours.push(Arc::new(session));
            self.sqlite.push(connection(&self.folder.join("sqlite")).map_err(of_sqlite)?);
        }
        Ok(())
    }

    /// Has both do a step.
    pub async fn run(&mut self, step: &Step) -> Result<Said> {
        let number = step.session;
        Ok(match &step.action {
            Action::Statement(text) => {
                Said { ours: self.ask(number, text).await, sqlite: self.ask_sqlite(number, text) }
            }
            Action::Different { ours, sqlite } => {
                Said { ours: self.ask(number, ours).await, sqlite: self.ask_sqlite_all(number, sqlite) }
            }
            Action::Ours(text) => {
                let ours = match self.ask(number, text).await {
                    Outcome::Error(message) => Outcome::Error(message),
                    _ => Outcome::Done,
                };
                Said { ours, sqlite: Outcome::Done }
            }
            Action::Reopen => {
                self.reopen()?;
                Said { ours: Outcome::Done, sqlite: Outcome::Done }
            }
        })
    }

    async fn ask(&self, number: usize, text: &str) -> Outcome {
        let Some(session) = self.ours.get(number) else {
            return Outcome::Error("no such session".to_owned());
        };
        let (session, text) = (Arc::clone(session), text.to_owned());
        let task = tokio::spawn(async move {
            let query = session.execute(&text).await?;
            let answer = query.answer();
            Ok::<_, nandina::Error>((answer, query.collect().await?))
        });
        let batches = match tokio::time::timeout(PATIENCE, task).await {
            Err(_) => return Outcome::Error("no answer in time".to_owned()),
            Ok(Err(panic)) => return Outcome::Error(panic.to_string()),
            Ok(Ok(Err(error))) => return Outcome::Error(error.to_string()),
            Ok(Ok(Ok((Answer::Nothing, _)))) => return Outcome::Done,
            Ok(Ok(Ok((answer, batches)))) => match rows_of_batches(&batches) {
                Err(error) => return Outcome::Error(error.to_string()),
                Ok(rows) => (answer, rows),
            },
        };
        match batches {
            (Answer::RowsWritten, rows) => match rows.first().and_then(|row| row.first()) {
                Some(Value::Whole(count)) => Outcome::Changed(*count as u64),
                _ => Outcome::Error("no number of rows".to_owned()),
            },
            (_, mut rows) => {
                rows.sort();
                Outcome::Rows(rows)
            }
        }
    }

    fn ask_sqlite(&self, number: usize, text: &str) -> Outcome {
        let Some(connection) = self.sqlite.get(number) else {
            return Outcome::Error("no such session".to_owned());
        };
        answer_of(connection, text).unwrap_or_else(|error| Outcome::Error(error.to_string()))
    }

    /// All of several statements or none; the outcome is that of the first one.
    fn ask_sqlite_all(&self, number: usize, texts: &[String]) -> Outcome {
        if let [text] = texts {
            return self.ask_sqlite(number, text);
        }
        self.ask_sqlite(number, "SAVEPOINT all_or_none");
        let outcomes: Vec<Outcome> = texts.iter().map(|text| self.ask_sqlite(number, text)).collect();
        let failed = outcomes.iter().find(|outcome| matches!(outcome, Outcome::Error(_)));
        if failed.is_some() {
            self.ask_sqlite(number, "ROLLBACK TO all_or_none");
        }
        self.ask_sqlite(number, "RELEASE all_or_none");
        failed.or(outcomes.first()).cloned().unwrap_or(Outcome::Done)
    }
}

fn of_sqlite(error: rusqlite::Error) -> BenchError {
    BenchError::Setup(format!("SQLite: {error}"))
}

fn connection(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF")?;
    Ok(connection)
}

fn answer_of(connection: &Connection, text: &str) -> rusqlite::Result<Outcome> {
    let mut statement = connection.prepare(text)?;
    let columns = statement.column_count();
    if columns == 0 {
        let changed = statement.execute([])? as u64;
        let is_change = ["INSERT", "UPDATE", "DELETE"].iter().any(|word| text.starts_with(word));
        return Ok(if is_change { Outcome::Changed(changed) } else { Outcome::Done });
    }
    let mut found = statement.query([])?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        let values = (0..columns).map(|column| row.get_ref(column).map(Value::of_sqlite));
        rows.push(values.collect::<rusqlite::Result<Row>>()?);
    }
    rows.sort();
    Ok(Outcome::Rows(rows))
}

impl Said {
    /// What kind of difference there is, if there is one: the same for the same mistake.
    pub fn difference(&self, step: &Step) -> Option<&'static str> {
        let counts = ["INSERT", "UPDATE", "DELETE"].contains(&step.name());
        match (&self.ours, &self.sqlite) {
            (Outcome::Error(message), _) if MISTAKES.iter().any(|word| message.contains(word)) => {
                Some("a mistake of Nandina's own")
            }
            (Outcome::Error(_), Outcome::Error(_)) => None,
            (Outcome::Error(_), _) => Some("Nandina alone fails"),
            (_, Outcome::Error(_)) => Some("SQLite alone fails"),
            (Outcome::Changed(ours), Outcome::Changed(sqlite)) if ours != sqlite => {
                Some("the numbers of rows differ")
            }
            (Outcome::Rows(ours), Outcome::Rows(sqlite)) if ours != sqlite => Some("the rows differ"),
            (Outcome::Rows(_), Outcome::Rows(_)) | (Outcome::Changed(_), Outcome::Changed(_)) => None,
            (Outcome::Done, Outcome::Done) => None,
            (Outcome::Done | Outcome::Changed(_), Outcome::Done | Outcome::Changed(_)) if !counts => None,
            _ => Some("the results are of different kinds"),
        }
    }

    /// What differs, for people.
    pub fn describe(&self) -> String {
        let (Outcome::Rows(ours), Outcome::Rows(sqlite)) = (&self.ours, &self.sqlite) else {
            return format!("Nandina: {}\nSQLite:  {}", self.ours, self.sqlite);
        };
        let mut text = format!("Nandina: {} rows\nSQLite:  {} rows", ours.len(), sqlite.len());
        for (name, rows, others) in [("Nandina", ours, sqlite), ("SQLite", sqlite, ours)] {
            for row in only_in(rows, others).iter().take(8) {
                text += &format!("\n  only {name}: {}", shown(row));
            }
        }
        text
    }
}

/// Rows that others have not, or not as often. Both are sorted.
fn only_in<'r>(rows: &'r [Row], others: &[Row]) -> Vec<&'r Row> {
    let mut others = others.iter().peekable();
    let is_missing = |row: &&Row| {
        while others.next_if(|other| other < row).is_some() {}
        others.next_if(|other| other == row).is_none()
    };
    rows.iter().filter(is_missing).collect()
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Done => f.write_str("done"),
            Outcome::Changed(count) => write!(f, "{count} rows changed"),
            Outcome::Error(message) => write!(f, "error: {message}"),
            Outcome::Rows(rows) => {
                write!(f, "{} rows", rows.len())?;
                rows.iter().take(8).try_for_each(|row| write!(f, "\n  {}", shown(row)))
            }
        }
    }
}
