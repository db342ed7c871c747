//! Runs the records of one file, in a process of its own, and writes what came of each as a line of JSON.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::arbiter::Arbiter;
use super::cells::{self, Rows};
use super::compare::{Order, fingerprint, same_rows};
use super::engine::{Attempt, Engine, Panics};
use super::judge::judge;
use super::lines::{Variables, unroll};
use super::outcome::{Class, Event, Outcome};
use super::parse::parse;
use super::record::{Expectation, Open, Query, Record, Statement, Task};
use super::{keys, recorded, statement};
use crate::error::{BenchError, Result};

/// How one file is run.
#[derive(Debug)]
pub struct Assignment {
    pub file: PathBuf,
    /// A folder of its own.
    pub folder: PathBuf,
    pub memory_limit: Option<u64>,
    pub threads: usize,
    pub statement_time: Duration,
    pub file_time: Duration,
    /// Records that ended an earlier process.
    pub leave_out: Vec<usize>,
    /// A Python interpreter with DuckDB.
    pub arbiter: Option<PathBuf>,
}

/// Runs a file; events go to standard output.
pub fn run(assignment: &Assignment) -> Result<()> {
    let bytes = std::fs::read(&assignment.file).map_err(BenchError::file(&assignment.file))?;
    let text = String::from_utf8_lossy(&bytes);
    let panics = Panics::watch();
    let files = assignment.folder.join("files");
    for folder in [&files, &assignment.folder.join("temp")] {
        std::fs::create_dir_all(folder).map_err(BenchError::file(folder))?;
    }
    std::env::set_current_dir(&files).map_err(BenchError::file(&files))?;
    let place = files.display().to_string();
    let names = ["TEST_DIR", "TEMP_DIR", "TEST_DIRECTORY"];
    let mut variables: Variables = names.map(|name| (name.to_owned(), place.clone())).into();
    variables.insert("UUID".to_owned(), "0".to_owned());
    let lines = match unroll(&text, &variables) {
        Ok(lines) => lines,
        Err(reason) => {
            emit(&Event::Ended(Box::new(Outcome::new(0, 1, Class::Skipped, reason))))?;
            return emit(&Event::Done);
        }
    };
    let records = parse(&lines);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(assignment.threads.max(2))
        .enable_all()
        .build()
        .map_err(BenchError::file(&assignment.file))?;
    let mut run = Run::new(assignment, &files, panics);
    runtime.block_on(run.records(&records))?;
    emit(&Event::Done)?;
    // Tasks that do not end would keep the runtime, and with it the process.
    drop(run);
    std::process::exit(0)
}

fn emit(event: &Event) -> Result<()> {
    let failed = |error: String| BenchError::Setup(format!("reporting to the parent process: {error}"));
    let line = serde_json::to_string(event).map_err(|error| failed(error.to_string()))?;
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).map_err(|error| failed(error.to_string()))
}

struct Run<'a> {
    assignment: &'a Assignment,
    engine: Engine,
    arbiter: Option<Arbiter>,
    panics: Panics,
    start: Instant,
    /// What was refused first of what recorded answers rely on.
    was_refused: bool,
    /// The first answer for each label.
    labels: HashMap<String, Rows>,
}

impl<'a> Run<'a> {
    fn new(assignment: &'a Assignment, files: &Path, panics: Panics) -> Self {
        let theirs = assignment.folder.join("duckdb");
        Run {
            assignment,
            engine: Engine::new(
                &assignment.folder,
                assignment.memory_limit,
                assignment.threads,
                assignment.statement_time,
            ),
            arbiter: assignment.arbiter.as_ref().map(|python| Arbiter::new(python, files, &theirs)),
            panics,
            start: Instant::now(),
            was_refused: false,
            labels: HashMap::new(),
        }
    }

    async fn records(&mut self, records: &[Record]) -> Result<()> {
        for (index, record) in records.iter().enumerate() {
            let (sql, is_query) = match &record.task {
                Task::Statement(statement) => (statement.sql.as_str(), false),
                Task::Query(query) => (query.sql.as_str(), true),
                Task::Skip { reason, sql } => {
                    self.was_refused |= statement::matters_when_refused(sql);
                    emit(&Event::Ended(Box::new(Outcome::new(index, record.line, Class::Skipped, reason))))?;
                    continue;
                }
                Task::Open(open) => {
                    self.open(open);
                    continue;
                }
                Task::Reconnect => {
                    self.engine.reconnect();
                    if let Some(arbiter) = &mut self.arbiter {
                        arbiter.reconnect();
                    }
                    continue;
                }
                Task::End(reason) => {
                    if let Some(reason) = reason {
                        emit(&Event::Ended(Box::new(Outcome::new(
                            index,
                            record.line,
                            Class::Skipped,
                            reason,
                        ))))?;
                    }
                    return Ok(());
                }
            };
            let skip = if self.assignment.leave_out.contains(&index) {
                Some("it ended an earlier process")
            } else if self.start.elapsed() > self.assignment.file_time {
                Some("the file's time is over")
            } else {
                statement::reason_to_skip(sql, is_query)
            };
            if let Some(reason) = skip {
                self.was_refused |= statement::matters_when_refused(sql);
                emit(&Event::Ended(Box::new(Outcome::new(index, record.line, Class::Skipped, reason))))?;
                continue;
            }
            emit(&Event::Began { record: index, line: record.line, sql: sql.to_owned() })?;
            self.panics.take();
            let mut outcome = match &record.task {
                Task::Query(query) => self.query(query).await,
                Task::Statement(statement) => self.statement(statement).await,
                _ => continue,
            };
            let panics = self.panics.take();
            if let Some(first) = panics.first() {
                outcome.got = format!("{}\n{}", outcome.reason, outcome.got).trim().to_owned();
                (outcome.class, outcome.reason) = (Class::Panic, first.clone());
            }
            (outcome.record, outcome.line) = (index, record.line);
            outcome.reason = without_place(&outcome.reason, &self.assignment.folder);
            if outcome.class.is_detail() {
                outcome.sql = without_place(sql, &self.assignment.folder);
            } else if outcome.class == Class::Refused {
                let sql: String = sql.chars().take(200).collect();
                outcome.sql = without_place(&sql, &self.assignment.folder);
            }
            emit(&Event::Ended(Box::new(outcome)))?;
        }
        Ok(())
    }

    fn open(&mut self, open: &Open) {
        self.engine.open(open);
        let Some(arbiter) = &mut self.arbiter else { return };
        match open {
            Open::Path { path, is_read_only } => arbiter.open(Some(Path::new(path)), *is_read_only),
            Open::Fresh => arbiter.open(None, false),
            // It keeps what it has: opening again loses nothing, and a database in memory would be lost.
            Open::Again => arbiter.reconnect(),
        }
    }

    /// Runs all statements of a text, and tells the arbiter those that it may need; the last one is left to the
    /// caller.
    async fn attempt(&mut self, session: &str, sql: &str) -> (Attempt, String) {
        let statements = Engine::split(sql);
        let Some((last, before)) = statements.split_last() else {
            return (Attempt::Done(None), String::new());
        };
        for statement in before {
            let attempt = self.engine.run(session, statement).await;
            if !matches!(attempt, Attempt::Rows(_) | Attempt::Done(_)) {
                return (attempt, statement.clone());
            }
            self.tell(session, statement);
        }
        (self.engine.run(session, last).await, last.clone())
    }

    /// A statement that was accepted may change what later ones find, in DuckDB as here.
    fn tell(&mut self, session: &str, sql: &str) {
        if !statement::changes_state(sql) {
            return;
        }
        // Which rows a limit leaves for a table is open, and with it all that is asked of the table.
        let is_open = statement::takes_some_rows(sql);
        self.was_refused |= is_open;
        if let Some(arbiter) = &mut self.arbiter {
            arbiter.tell(session, sql);
            if is_open {
                arbiter.went_astray();
            }
        }
    }

    fn not_run(&mut self, sql: &str, attempt: &Attempt) -> Outcome {
        self.was_refused |= Engine::split(sql).iter().any(|sql| statement::matters_when_refused(sql));
        match attempt {
            Attempt::Late => {
                let seconds = self.assignment.statement_time.as_secs();
                Outcome::new(0, 0, Class::Hang, format!("not done after {seconds} s"))
            }
            Attempt::Lost(message) => Outcome::new(0, 0, Class::Panic, message.clone()),
            Attempt::Refused(message) => Outcome::new(0, 0, Class::Refused, first_line(message)),
            Attempt::Rows(_) | Attempt::Done(_) => Outcome::new(0, 0, Class::Agrees, ""),
        }
    }

    async fn statement(&mut self, statement: &Statement) -> Outcome {
        let session = &statement.connection;
        let (attempt, last) = self.attempt(session, &statement.sql).await;
        let is_done = matches!(attempt, Attempt::Rows(_) | Attempt::Done(_));
        match (statement.expectation, is_done) {
            (Expectation::Success | Expectation::Either, true) => {
                self.tell(session, &last);
                Outcome::new(0, 0, Class::Agrees, "")
            }
            (Expectation::Success, false) => {
                let outcome = self.not_run(&statement.sql, &attempt);
                self.create_without_keys(session, &last).await;
                outcome
            }
            (Expectation::Error | Expectation::Either, false) => {
                let outcome = self.not_run(&statement.sql, &attempt);
                match outcome.class {
                    Class::Refused => Outcome { class: Class::Agrees, ..outcome },
                    _ => outcome,
                }
            }
            (Expectation::Error, true) => self.answered(statement, &last, &attempt),
        }
    }

    /// A table whose keys were refused is made without them: what is asked of it later is worth knowing.
    async fn create_without_keys(&mut self, session: &str, refused: &str) {
        let Some(plain) = keys::without_keys(refused) else { return };
        if matches!(self.engine.run(session, &plain).await, Attempt::Rows(_) | Attempt::Done(_)) {
            self.tell(session, &plain);
        }
    }

    /// We did what the file expects to fail.
    fn answered(&mut self, statement: &Statement, last: &str, attempt: &Attempt) -> Outcome {
        let verdict = self.arbiter.as_mut().and_then(|arbiter| arbiter.ask(&statement.connection, last));
        let mut outcome = match &verdict {
            Some(Ok(_)) => Outcome::new(0, 0, Class::Excused, "DuckDB answers, too"),
            Some(Err(error)) => {
                let mut outcome = Outcome::new(0, 0, Class::Answered, "DuckDB refuses");
                outcome.duckdb = format!("error: {error}");
                outcome
            }
            None if self.was_refused => Outcome::new(0, 0, Class::Excused, "something was refused before"),
            None => Outcome::new(0, 0, Class::Answered, "nothing was refused before"),
        };
        if !matches!(verdict, Some(Ok(_))) && statement::changes_state(last) {
            // Our tables now have what theirs have not.
            self.was_refused = true;
            if let Some(arbiter) = &mut self.arbiter {
                arbiter.went_astray();
            }
        }
        outcome.expected = format!("error: {}", statement.message);
        outcome.got = match attempt {
            Attempt::Rows(rows) => rows.shown(),
            _ => "done".to_owned(),
        };
        outcome
    }

    async fn query(&mut self, query: &Query) -> Outcome {
        let (attempt, last) = self.attempt(&query.connection, &query.sql).await;
        let ours = match attempt {
            Attempt::Rows(rows) => rows,
            // What only counts what it wrote answers that number in DuckDB.
            Attempt::Done(rows) => {
                if let Some(count) = rows.as_ref().and_then(cells::only_count) {
                    let text = count.to_string();
                    Rows { rows: vec![vec![Some(text)]], ..rows.unwrap_or_default() }
                } else {
                    self.tell(&query.connection, &last);
                    return Outcome::new(0, 0, Class::Agrees, "");
                }
            }
            other => return self.not_run(&query.sql, &other),
        };
        let Run { arbiter, was_refused, .. } = self;
        let changes = statement::changes_state(&last);
        let mut is_asked = false;
        let judgement = judge(&ours, query, *was_refused, |our_way| {
            let arbiter = arbiter.as_mut()?;
            is_asked = true;
            match our_way {
                false => arbiter.ask(&query.connection, &last),
                true if changes => None,
                true => arbiter.ask_our_way(&query.connection, &last),
            }
        });
        if !is_asked {
            self.tell(&query.connection, &last);
        }
        let mut outcome = Outcome::new(0, 0, judgement.class, judgement.reason);
        outcome.fingerprint = Some(fingerprint(&ours.rows));
        outcome.is_open = statement::takes_some_rows(&query.sql)
            || statement::depends_on_order(&query.sql)
            || statement::collects(&query.sql);
        if let Some(label) = &query.label {
            let is_same = |first: &Rows| {
                same_rows(&ours.rows, &first.rows, &ours.kinds, &Order::Any) || ours.kinds != first.kinds
            };
            match self.labels.get(label) {
                Some(first) if outcome.class == Class::Agrees && !is_same(first) && !self.was_refused => {
                    (outcome.class, outcome.reason) =
                        (Class::Wrong, format!("not as the first query with the label {label}"));
                    outcome.duckdb = format!("the first answer: {}", first.shown());
                }
                Some(_) => {}
                None => {
                    self.labels.insert(label.clone(), ours.clone());
                }
            }
        }
        if outcome.class.is_detail() {
            outcome.expected = recorded::shown(&query.recorded);
            outcome.got = ours.shown();
            if !judgement.duckdb.is_empty() {
                outcome.duckdb = judgement.duckdb;
            }
        }
        outcome
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// Without the folder of this run, which is another one each time.
fn without_place(text: &str, folder: &Path) -> String {
    text.replace(&folder.display().to_string(), "{FOLDER}")
}
