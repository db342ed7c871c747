//! DuckDB, if Python has it: a child process that answers lines of JSON.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::cells::rows_of_json;
use super::engines::Answer;
use super::schema::Table;
use super::types::Dialect;
use crate::error::{BenchError, Result};

const PROGRAM: &str = include_str!("../../peers/duckdb_lines.py");
const TIMEOUT: Duration = Duration::from_secs(60);

pub struct DuckDb {
    python: String,
    /// None once a query was not answered in time: a late answer would be taken for that of the next query.
    process: Option<Process>,
}

/// A running child.
struct Process {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl DuckDb {
    /// Starts it with a Python program.
    pub fn start(python: &str) -> Result<Self> {
        Ok(Self { python: python.to_owned(), process: Some(Process::start(python)?) })
    }

    /// What DuckDB says, if it answers in time; nothing until the next load if it has not.
    fn ask(&mut self, request: &Json) -> Option<std::result::Result<Json, String>> {
        let Some(line) = self.process.as_mut()?.ask(request) else {
            self.process = None;
            return None;
        };
        let answer = serde_json::from_str::<Json>(&line).map_err(|error| error.to_string());
        Some(answer.and_then(|answer| match answer.get("error").and_then(Json::as_str) {
            Some(message) => Err(message.to_owned()),
            None => Ok(answer),
        }))
    }

    /// Replaces all tables.
    pub fn load(&mut self, tables: &[Table]) -> Result<()> {
        if self.process.is_none() {
            self.process = Some(Process::start(&self.python)?);
        }
        let statements: Vec<String> = tables.iter().map(|table| table.create(Dialect::DuckDb)).collect();
        let answer = self.ask(&json!({ "load": statements }));
        let loaded = answer.unwrap_or_else(|| Err("DuckDB does not answer".to_owned()));
        loaded.map(drop).map_err(BenchError::Setup)
    }

    /// The answer; none if DuckDB does not give one in time, or has not for an earlier query on these tables.
    pub fn answer(&mut self, sql: &str) -> Option<Answer> {
        Some(match self.ask(&json!({ "query": sql }))? {
            Err(message) => Answer::Error(message),
            Ok(answer) => {
                let rows = answer.get("rows").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
                Answer::Rows(rows_of_json(rows))
            }
        })
    }
}

impl Process {
    fn start(python: &str) -> Result<Self> {
        let fail = |source| BenchError::Program {
            program: python.to_owned(),
            source,
            hint: "--duckdb wants a Python with the package duckdb",
        };
        let mut child = Command::new(python)
            .args(["-u", "-c", PROGRAM])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(fail)?;
        let missing = || BenchError::Setup("the child has no pipes".to_owned());
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, input, lines })
    }

    /// The line that answers a request, if one comes in time.
    fn ask(&mut self, request: &Json) -> Option<String> {
        writeln!(self.input, "{request}").ok()?;
        self.lines.recv_timeout(TIMEOUT).ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
