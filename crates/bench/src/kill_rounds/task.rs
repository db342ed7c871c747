//! What the process does that is killed: sessions run their transactions, and say on its standard output how far they have come.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use nandina::{Answer, Database, Options, Session};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::changes::values::{Value, rows_of_batches};
use crate::error::{BenchError, Result};
use crate::runner;

/// Parts of the messages of what a table does not want: such a statement changes nothing, and its transaction goes on.
const RULES: [&str; 4] = ["already, which is unique", "fails for a row", "NOT NULL", "there is no table"];
/// Parts of the messages of what other sessions, or the memory limit, keep a transaction from.
const REFUSALS: [&str; 5] = [
    "another transaction changes the same row",
    "are being changed by a transaction",
    "run the statement again",
    "memory_limit",
    "memory limit",
];

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// It is a statement without `BEGIN`.
    Alone,
    Commit,
    RollBack,
}

/// A transaction as texts, without its first and its last statement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Script {
    pub statements: Vec<String>,
    pub end: End,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Task {
    pub database: PathBuf,
    pub memory_limit_bytes: u64,
    pub background_vacuum: bool,
    /// What each session does, one after the other.
    pub sessions: Vec<Vec<Script>>,
}

/// Which transaction of which session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub session: usize,
    pub number: usize,
}

/// What a statement came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Done,
    Changed(u64),
    Failed(String),
}

/// A line of the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    Opened,
    /// What may commit it is run next.
    Ends(Place),
    /// It is committed, or rolled back as it should be.
    Ended(Place, Vec<Outcome>),
    /// It is rolled back because of others.
    Refused(Place, String),
    /// What must not be.
    Wrong(Place, String),
    Finished,
}

/// The lines of a process, of which the last one may be a part.
pub fn read(printed: &str) -> std::result::Result<Vec<Said>, String> {
    let whole = printed.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let said = |line: &str| {
        let said = serde_json::from_str::<Said>(line);
        said.map_err(|error| format!("the process cannot have said '{line}': {error}"))
    };
    whole.lines().map(said).collect()
}

/// In such a process: does what a file says.
pub fn work(file: &Path) -> Result<()> {
    let missing = || BenchError::Setup(format!("there is no task in {}", file.display()));
    let task: Task = runner::read_json(file)?.ok_or_else(missing)?;
    let runtime = runner::runtime(task.sessions.len() + 1)?;
    runtime.block_on(sessions(task)).map_err(BenchError::Setup)?;
    drop(runtime);
    tell(&Said::Finished).map_err(BenchError::Setup)
}

async fn sessions(task: Task) -> std::result::Result<(), String> {
    let options = Options {
        memory_limit: Some(task.memory_limit_bytes),
        threads: Some(2),
        auto_calibrate: false,
        background_vacuum: task.background_vacuum,
        ..Options::default()
    };
    let database = Database::open(&task.database, options).map_err(in_words)?;
    let mut sessions = Vec::with_capacity(task.sessions.len());
    for scripts in task.sessions {
        sessions.push((database.session().map_err(in_words)?, scripts));
    }
    tell(&Said::Opened)?;
    let mut running = JoinSet::new();
    for (number, (session, scripts)) in sessions.into_iter().enumerate() {
        running.spawn(async move { run(&session, number, &scripts).await });
    }
    while let Some(ended) = running.join_next().await {
        ended.map_err(|error| error.to_string())??;
    }
    Ok(())
}

fn in_words(error: nandina::Error) -> String {
    error.to_string()
}

/// A line for those who watch, who have it even if nothing is done any more.
fn tell(said: &Said) -> std::result::Result<(), String> {
    let mut line = serde_json::to_string(said).map_err(|error| error.to_string())?;
    line.push('\n');
    let mut out = io::stdout().lock();
    let written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| format!("nobody can be told: {error}"))
}

async fn run(session: &Session, number: usize, scripts: &[Script]) -> std::result::Result<(), String> {
    for (script_number, script) in scripts.iter().enumerate() {
        let said = transaction(session, Place { session: number, number: script_number }, script).await?;
        tell(&said)?;
        if matches!(said, Said::Wrong(..)) {
            break;
        }
    }
    Ok(())
}

/// Runs a transaction; what is to be said of it.
async fn transaction(session: &Session, place: Place, script: &Script) -> std::result::Result<Said, String> {
    let wrong = |text: &str, message: String| Ok(Said::Wrong(place, format!("{text}: {message}")));
    if script.end == End::Alone {
        tell(&Said::Ends(place))?;
    } else if let Err(message) = ask(session, "BEGIN").await {
        return wrong("BEGIN", message);
    }
    let mut outcomes = Vec::with_capacity(script.statements.len());
    for text in &script.statements {
        match ask(session, text).await {
            Ok(outcome) => outcomes.push(outcome),
            Err(message) if is_one_of(&RULES, &message) => outcomes.push(Outcome::Failed(message)),
            Err(message) => {
                if script.end != End::Alone
                    && let Err(message) = ask(session, "ROLLBACK").await
                {
                    return wrong("ROLLBACK", message);
                }
                return match is_one_of(&REFUSALS, &message) {
                    true => Ok(Said::Refused(place, message)),
                    false => wrong(text, message),
                };
            }
        }
    }
    let last = match script.end {
        End::Alone => return Ok(Said::Ended(place, outcomes)),
        End::Commit => {
            tell(&Said::Ends(place))?;
            "COMMIT"
        }
        End::RollBack => "ROLLBACK",
    };
    match ask(session, last).await {
        Ok(_) => Ok(Said::Ended(place, outcomes)),
        Err(message) if is_one_of(&REFUSALS, &message) => Ok(Said::Refused(place, message)),
        Err(message) => wrong(last, message),
    }
}

fn is_one_of(parts: &[&str], message: &str) -> bool {
    parts.iter().any(|part| message.contains(part))
}

/// Runs a statement to its end.
async fn ask(session: &Session, text: &str) -> std::result::Result<Outcome, String> {
    let query = session.execute(text).await.map_err(in_words)?;
    let answer = query.answer();
    let batches = query.collect().await.map_err(in_words)?;
    if answer != Answer::RowsWritten {
        return Ok(Outcome::Done);
    }
    let rows = rows_of_batches(&batches).map_err(|error| error.to_string())?;
    match rows.first().and_then(|row| row.first()) {
        Some(Value::Whole(count)) => Ok(Outcome::Changed(*count as u64)),
        _ => Err("it does not say how many rows it has changed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_far_as_they_are_whole() {
        let place = Place { session: 1, number: 2 };
        let outcomes = vec![Outcome::Done, Outcome::Changed(3), Outcome::Failed("a 'name'".to_owned())];
        let said = [Said::Opened, Said::Ends(place), Said::Ended(place, outcomes)];
        let lines: Vec<String> = said.iter().map(|said| serde_json::to_string(said).unwrap()).collect();
        let printed = format!("{}\n{}\n{}", lines[0], lines[1], lines[2]);
        assert_eq!(read(&printed).unwrap(), said[..2]);
        assert_eq!(read(&format!("{printed}\n")).unwrap(), said);
        assert!(read(&printed[..3]).unwrap().is_empty());
        assert!(read("Opened\n").unwrap_err().contains("'Opened'"));
    }
}
