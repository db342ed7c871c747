//! Nandina as a corpus file sees it: databases, sessions by their labels, statements with a time limit.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nandina::{Answer, Database, Options, Session, statement_text};

use super::cells::Rows;
use super::record::Open;

/// How long a database that is closed may stay locked by workers that end.
const LONGEST_CLOSE: Duration = Duration::from_secs(5);

/// What came of a statement.
pub enum Attempt {
    Rows(Rows),
    /// It was done; there are no rows, or only their number.
    Done(Option<Rows>),
    Refused(String),
    /// Over its time; it was told to end.
    Late,
    /// The task that ran it is gone.
    Lost(String),
}

/// What panicked since the last time somebody asked.
#[derive(Clone, Default)]
pub struct Panics(Arc<Mutex<Vec<String>>>);

impl Panics {
    /// Takes note of every panic of this process.
    pub fn watch() -> Self {
        let panics = Panics::default();
        let noted = panics.clone();
        std::panic::set_hook(Box::new(move |info| {
            let payload = info.payload();
            let message = payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| payload.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            eprintln!("panicked at {place}: {message}");
            // The folder in which packages are kept is the machine's affair.
            let place = place.split_once("/registry/src/").map_or(place.as_str(), |(_, package)| package);
            let place =
                place.split_once('/').filter(|_| place.contains("index.")).map_or(place, |(_, rest)| rest);
            let text = format!("{}: {place}", message.lines().next().unwrap_or_default());
            noted.0.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        }));
        panics
    }

    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub struct Engine {
    options: Options,
    /// Where databases without a path of their own are.
    home: PathBuf,
    fresh: usize,
    path: PathBuf,
    is_read_only: bool,
    database: Option<Database>,
    sessions: HashMap<String, Arc<Session>>,
    statement_time: Duration,
}

impl Engine {
    pub fn new(home: &Path, memory_limit: Option<u64>, threads: usize, statement_time: Duration) -> Self {
        let options = Options {
            memory_limit,
            threads: Some(threads),
            temp_directory: Some(home.join("temp")),
            auto_calibrate: false,
            ..Options::default()
        };
        Engine {
            options,
            home: home.to_path_buf(),
            fresh: 0,
            path: home.join("database-0"),
            is_read_only: false,
            database: None,
            sessions: HashMap::new(),
            statement_time,
        }
    }

    /// From here on another database. Returns its path if the file named one.
    pub fn open(&mut self, open: &Open) {
        self.sessions.clear();
        self.database = None;
        match open {
            Open::Again => {}
            Open::Fresh => {
                self.fresh += 1;
                self.path = self.home.join(format!("database-{}", self.fresh));
                self.is_read_only = false;
            }
            Open::Path { path, is_read_only } => {
                self.path = PathBuf::from(path);
                self.is_read_only = *is_read_only;
            }
        }
    }

    pub fn reconnect(&mut self) {
        self.sessions.clear();
    }

    async fn session(&mut self, name: &str) -> Result<Arc<Session>, nandina::Error> {
        if let Some(session) = self.sessions.get(name) {
            return Ok(Arc::clone(session));
        }
        let database = match &self.database {
            Some(database) => database.clone(),
            None => self.opened().await?,
        };
        let session = Arc::new(database.session()?);
        self.database = Some(database);
        self.sessions.insert(name.to_owned(), Arc::clone(&session));
        Ok(session)
    }

    async fn opened(&self) -> Result<Database, nandina::Error> {
        let options = Options { read_only: self.is_read_only, ..self.options.clone() };
        let start = Instant::now();
        loop {
            match Database::open(&self.path, options.clone()) {
                Err(error) if start.elapsed() > LONGEST_CLOSE => return Err(error),
                Err(_) if start.elapsed() < LONGEST_CLOSE && self.path.exists() => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                other => return other,
            }
        }
    }

    /// The statements of a text.
    pub fn split(sql: &str) -> Vec<String> {
        statement_text::statements(sql).into_iter().map(str::to_owned).collect()
    }

    /// Runs one statement to its end.
    pub async fn run(&mut self, session: &str, sql: &str) -> Attempt {
        let session = match self.session(session).await {
            Ok(session) => session,
            Err(error) => return Attempt::Refused(error.to_string()),
        };
        let sql = sql.to_owned();
        let mut task = tokio::spawn(async move { answer(&session, &sql).await });
        match tokio::time::timeout(self.statement_time, &mut task).await {
            Ok(Ok(attempt)) => attempt,
            Ok(Err(error)) => Attempt::Lost(error.to_string()),
            Err(_) => {
                task.abort();
                Attempt::Late
            }
        }
    }
}

async fn answer(session: &Session, sql: &str) -> Attempt {
    let refused = |error: nandina::Error| Attempt::Refused(error.to_string());
    let query = match session.execute(sql).await {
        Ok(query) => query,
        Err(error) => return refused(error),
    };
    let (answer, schema) = (query.answer(), query.schema());
    let batches = match query.collect().await {
        Ok(batches) => batches,
        Err(error) => return refused(error),
    };
    let rows = match Rows::new(&schema, &batches) {
        Ok(rows) => rows,
        Err(error) => return Attempt::Refused(format!("the answer cannot be shown: {error}")),
    };
    match answer {
        Answer::Rows | Answer::Text => Attempt::Rows(rows),
        Answer::RowsWritten => Attempt::Done(Some(rows)),
        Answer::Nothing => Attempt::Done(None),
    }
}
