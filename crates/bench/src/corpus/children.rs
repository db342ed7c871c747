//! Every file in a process of its own, so that panics, aborts and hangs of one do not end the run.
//!
//! ```text
//!   jobs ─┬─► sql_corpus --child FILE ──► Began, Ended, Began … ──► outcomes
//!         └─► …                            │
//!                                          └─ silent for too long, too large, or gone: killed, the record noted,
//!                                             and the file run again without it
//! ```

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::outcome::{Class, Event, Outcome};
use crate::error::{BenchError, Result};

/// How all files are run.
#[derive(Debug, Clone)]
pub struct Supervision {
    pub threads: usize,
    pub jobs: usize,
    pub statement_time: Duration,
    pub file_time: Duration,
    /// A process that grows beyond this is ended.
    pub most_resident_bytes: u64,
    /// How often a file is run again after its process ended.
    pub attempts: usize,
    pub arbiter: Option<PathBuf>,
}

/// A file, and where it is counted.
#[derive(Debug, Clone)]
pub struct CorpusFile {
    pub path: PathBuf,
    /// Its path as reports show it.
    pub name: String,
    pub folder: String,
}

/// What came of a file under one limit.
#[derive(Debug, Clone)]
pub struct FileRun {
    pub file: CorpusFile,
    pub memory_limit: Option<u64>,
    pub outcomes: Vec<Outcome>,
    pub seconds: f64,
}

/// Runs all files under all limits, several at a time. `tell` hears of each that is through.
pub fn run_all(
    files: &[CorpusFile],
    limits: &[Option<u64>],
    supervision: &Supervision,
    tell: impl Fn(&FileRun) + Sync,
) -> Result<Vec<FileRun>> {
    let work: Vec<(&CorpusFile, Option<u64>)> =
        limits.iter().flat_map(|limit| files.iter().map(move |file| (file, *limit))).collect();
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<FileRun>)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..supervision.jobs.max(1) {
            scope.spawn(|| {
                while let Some((index, (file, limit))) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    work.get(index).map(|work| (index, *work))
                } {
                    let run = supervision.run_file(file, limit);
                    if let Ok(run) = &run {
                        tell(run);
                    }
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((index, run));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, run)| run).collect()
}

/// How a process ended.
enum End {
    Done,
    /// In the middle of a record: class and reason.
    During(Class, String),
}

impl Supervision {
    fn run_file(&self, file: &CorpusFile, memory_limit: Option<u64>) -> Result<FileRun> {
        let start = Instant::now();
        let mut fatal: Vec<Outcome> = Vec::new();
        loop {
            let folder = tempfile::tempdir().map_err(BenchError::file(&std::env::temp_dir()))?;
            let leave_out: Vec<usize> = fatal.iter().map(|outcome| outcome.record).collect();
            let (mut outcomes, under_way, end) =
                self.one_process(file, memory_limit, folder.path(), &leave_out)?;
            let end = match end {
                End::Done => None,
                End::During(class, reason) => Some((class, reason)),
            };
            let mut is_over = end.is_none();
            if let Some((class, reason)) = end {
                let (record, line, sql) = under_way.unwrap_or((usize::MAX, 0, String::new()));
                is_over = record == usize::MAX || fatal.len() + 1 >= self.attempts;
                let mut outcome = Outcome::new(record, line, class, reason);
                outcome.sql = sql;
                fatal.push(outcome);
                if is_over {
                    let reason = "the file's process ended too often";
                    outcomes.push(Outcome::new(usize::MAX, line, Class::Skipped, reason));
                }
            }
            if is_over {
                // What ended a process was left out later, and is counted as what it was.
                outcomes.retain(|outcome| !fatal.iter().any(|fatal| fatal.record == outcome.record));
                outcomes.extend(fatal);
                outcomes.sort_by_key(|outcome| outcome.record);
                let seconds = start.elapsed().as_secs_f64();
                return Ok(FileRun { file: file.clone(), memory_limit, outcomes, seconds });
            }
        }
    }

    #[allow(clippy::type_complexity, reason = "one caller")]
    fn one_process(
        &self,
        file: &CorpusFile,
        memory_limit: Option<u64>,
        folder: &Path,
        leave_out: &[usize],
    ) -> Result<(Vec<Outcome>, Option<(usize, usize, String)>, End)> {
        let program = std::env::current_exe().map_err(BenchError::file(Path::new("this program")))?;
        let mut command = Command::new(program);
        command.arg("--child").arg(&file.path).arg("--folder").arg(folder);
        command.args(["--threads", &self.threads.to_string()]);
        command.args(["--statement-seconds", &self.statement_time.as_secs().to_string()]);
        command.args(["--file-seconds", &self.file_time.as_secs().to_string()]);
        command.args(["--limits", &memory_limit.map_or("none".to_owned(), |limit| limit.to_string())]);
        for record in leave_out {
            command.args(["--leave-out", &record.to_string()]);
        }
        if let Some(python) = &self.arbiter {
            command.arg("--arbiter").arg("--python").arg(python);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(BenchError::file(&file.path))?;
        let said = tail(&mut child);
        let events = events(&mut child);
        let (outcomes, under_way, stop) = self.listen(&events, child.id());
        if stop.is_some() {
            let _ = child.kill();
        }
        let status = child.wait().map_err(BenchError::file(&file.path))?;
        let end = match stop {
            Some((class, reason)) => End::During(class, reason),
            None if under_way.is_none() && status.success() => End::Done,
            None => {
                let said = said.recv_timeout(Duration::from_secs(2)).unwrap_or_default();
                let last: Vec<&str> =
                    said.lines().filter(|line| !line.starts_with("note:") && !line.is_empty()).collect();
                let last = last.iter().rev().take(2).rev().copied().collect::<Vec<_>>().join(" / ");
                End::During(Class::Panic, format!("the process ended ({status}): {last}"))
            }
        };
        Ok((outcomes, under_way, end))
    }

    /// Until the process has nothing more to say, or must be stopped.
    #[allow(clippy::type_complexity, reason = "one caller")]
    fn listen(
        &self,
        events: &Receiver<Event>,
        process: u32,
    ) -> (Vec<Outcome>, Option<(usize, usize, String)>, Option<(Class, String)>) {
        let mut outcomes = Vec::new();
        let mut under_way = None;
        let mut heard = Instant::now();
        // The process itself ends what can be ended, and DuckDB has its time, too.
        let patience = self.statement_time * 2 + Duration::from_secs(60);
        loop {
            match events.recv_timeout(Duration::from_millis(200)) {
                Ok(Event::Began { record, line, sql }) => under_way = Some((record, line, sql)),
                Ok(Event::Ended(outcome)) => {
                    outcomes.push(*outcome);
                    under_way = None;
                }
                Ok(Event::Done) => {}
                Err(RecvTimeoutError::Disconnected) => return (outcomes, under_way, None),
                Err(RecvTimeoutError::Timeout) => {
                    if heard.elapsed() > patience {
                        let reason = format!("silent for {} s, and killed", heard.elapsed().as_secs());
                        return (outcomes, under_way, Some((Class::Hang, reason)));
                    }
                    if resident_bytes(process) > self.most_resident_bytes {
                        let megabytes = self.most_resident_bytes >> 20;
                        let reason = format!("the process grew beyond {megabytes} MB, and was killed");
                        return (outcomes, under_way, Some((Class::Panic, reason)));
                    }
                    continue;
                }
            }
            heard = Instant::now();
        }
    }
}

fn events(child: &mut Child) -> Receiver<Event> {
    let (sender, receiver) = channel();
    if let Some(output) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
                // Other lines are printed by libraries to the same stream.
                if let Ok(event) = serde_json::from_str(&line)
                    && sender.send(event).is_err()
                {
                    break;
                }
            }
        });
    }
    receiver
}

/// The end of what a process says on its standard error, once it is closed.
fn tail(child: &mut Child) -> Receiver<String> {
    const MOST_BYTES: usize = 4096;
    let (sender, receiver) = channel();
    if let Some(mut output) = child.stderr.take() {
        std::thread::spawn(move || {
            let mut last: Vec<u8> = Vec::new();
            let mut buffer = [0; 4096];
            while let Ok(length) = output.read(&mut buffer) {
                if length == 0 {
                    break;
                }
                last.extend_from_slice(buffer.get(..length).unwrap_or_default());
                if last.len() > 4 * MOST_BYTES {
                    last.drain(..last.len() - MOST_BYTES);
                }
            }
            let _ = sender.send(String::from_utf8_lossy(&last).into_owned());
        });
    }
    receiver
}

fn resident_bytes(process: u32) -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let pages = std::fs::read_to_string(format!("/proc/{process}/statm")).ok();
    let pages = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * PAGE_BYTES
}
