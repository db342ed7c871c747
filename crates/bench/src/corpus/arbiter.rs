//! DuckDB beside us: it gets the statements that we accepted, and decides where a recorded answer cannot.
//!
//! ```text
//!   accepted ─► waiting ─┐                    (nothing starts before somebody asks)
//!                        ▼
//!   asked ──────► peers/duckdb_arbiter.py ──► rows or an error
//! ```

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cells::Row;
use super::statement;

const PROGRAM: &str = include_str!("../../peers/duckdb_arbiter.py");
/// How long DuckDB may take for a statement.
const LONGEST_STATEMENT_SECONDS: u64 = 20;

/// What DuckDB says to a statement: rows, or the first line of an error.
pub type Verdict = Result<Vec<Row>, String>;

pub struct Arbiter {
    /// A Python interpreter with the package `duckdb`.
    python: PathBuf,
    /// The folder of our files, and the one that takes its place in statements.
    folders: (String, PathBuf),
    peer: Option<Peer>,
    waiting: Vec<Request>,
    /// Whether its tables may be other ones than ours: it refused what we accepted.
    is_astray: bool,
}

struct Peer {
    process: Child,
    input: ChildStdin,
    answers: Receiver<Answer>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Request {
    Open { open: Option<PathBuf>, read_only: bool },
    Reconnect { reconnect: bool },
    Run { session: String, sql: String, rows: bool, ours: bool, once: bool },
}

#[derive(Debug, Deserialize)]
struct Answer {
    error: Option<String>,
    #[serde(default)]
    rows: Vec<Row>,
}

impl Arbiter {
    /// Statements name files below `ours`; DuckDB's go to `theirs`.
    pub fn new(python: &Path, ours: &Path, theirs: &Path) -> Self {
        Arbiter {
            python: python.to_path_buf(),
            folders: (ours.display().to_string(), theirs.to_path_buf()),
            peer: None,
            waiting: Vec::new(),
            is_astray: false,
        }
    }

    /// A statement that we accepted and that may change something.
    pub fn tell(&mut self, session: &str, sql: &str) {
        let request = self.request(session, sql, false, false);
        self.waiting.push(request);
    }

    pub fn open(&mut self, path: Option<&Path>, is_read_only: bool) {
        let open = path.map(|path| {
            let below = path.strip_prefix(&self.folders.0).unwrap_or(path);
            self.folders.1.join("databases").join(below.file_name().unwrap_or_default())
        });
        self.waiting.push(Request::Open { open, read_only: is_read_only });
    }

    pub fn reconnect(&mut self) {
        self.waiting.push(Request::Reconnect { reconnect: true });
    }

    /// What DuckDB answers; none if it cannot be asked or has other tables than we.
    pub fn ask(&mut self, session: &str, sql: &str) -> Option<Verdict> {
        let request = self.request(session, sql, true, false);
        self.answer(request)
    }

    /// The same under settings that answer as we do where SQL leaves a choice.
    pub fn ask_our_way(&mut self, session: &str, sql: &str) -> Option<Verdict> {
        let request = self.request(session, sql, true, true);
        self.answer(request)
    }

    /// Its tables may be other ones than ours from here on.
    pub fn went_astray(&mut self) {
        self.is_astray = true;
    }

    fn request(&self, session: &str, sql: &str, rows: bool, ours: bool) -> Request {
        let sql = sql.replace(&self.folders.0, &self.folders.1.display().to_string());
        let once = statement::changes_state(&sql);
        Request::Run { session: session.to_owned(), sql, rows, ours, once }
    }

    fn answer(&mut self, request: Request) -> Option<Verdict> {
        for waiting in std::mem::take(&mut self.waiting) {
            let refused = self.exchange(&waiting)?.error.is_some();
            if refused && matches!(&waiting, Request::Open { .. }) {
                self.is_astray = true;
            }
            // A statement that is refused with an unknown setting leaves the tables as they are.
            if refused && matches!(&waiting, Request::Run { sql, .. } if statement::matters_when_refused(sql))
            {
                self.is_astray = true;
            }
        }
        if self.is_astray {
            return None;
        }
        let answer = self.exchange(&request)?;
        Some(match answer.error {
            Some(error) => Err(error),
            None => Ok(answer.rows),
        })
    }

    fn exchange(&mut self, request: &Request) -> Option<Answer> {
        let answer = self.try_exchange(request);
        if answer.is_none() {
            // It may be anywhere now.
            self.is_astray = true;
            self.peer = None;
        }
        answer
    }

    fn try_exchange(&mut self, request: &Request) -> Option<Answer> {
        if self.peer.is_none() {
            if self.is_astray {
                return None;
            }
            self.peer = Some(Peer::start(&self.python, &self.folders.1)?);
        }
        let peer = self.peer.as_mut()?;
        let mut line = serde_json::to_string(request).ok()?;
        line.push('\n');
        peer.input.write_all(line.as_bytes()).ok()?;
        peer.input.flush().ok()?;
        peer.answers.recv_timeout(Duration::from_secs(LONGEST_STATEMENT_SECONDS + 10)).ok()
    }
}

impl Peer {
    fn start(python: &Path, folder: &Path) -> Option<Self> {
        std::fs::create_dir_all(folder).ok()?;
        let mut process = Command::new(python)
            .args(["-c", PROGRAM, &LONGEST_STATEMENT_SECONDS.to_string()])
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let (input, output) = (process.stdin.take()?, process.stdout.take()?);
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let Ok(answer) = serde_json::from_str(&line) else { break };
                if sender.send(answer).is_err() {
                    break;
                }
            }
        });
        Some(Peer { process, input, answers })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
