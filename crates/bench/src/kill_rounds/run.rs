//! Rounds: a process works on the database, is killed, and the database is looked at.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::SESSIONS;
use super::generate::Generator;
use super::look::{begin, left_over, look};
use super::state::{Expected, State};
use super::statements::Transaction;
use super::task::{End, Outcome, Place, Said, Script, Task, read};
use crate::error::{BenchError, Result};
use crate::program::{Ran, Running};
use crate::random::Random;
use crate::runner;
use crate::table::Table;

/// Longer than a process takes that is not killed.
const PATIENCE: Duration = Duration::from_secs(120);
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);
/// Transactions of each session in a process that is not killed.
const FEW_TRANSACTIONS: usize = 15;

/// What is tried.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The program that is killed: it does what is in the file behind `--task`.
    pub program: PathBuf,
    /// For the database, and for what is left of rounds that failed.
    pub folder: PathBuf,
    /// Of the first round; others have the next ones.
    pub seed: u64,
    pub rounds: u64,
    /// Transactions of a session in a round, at most.
    pub transactions: usize,
    /// A process is killed before that, once it has opened the database.
    pub longest_life: Duration,
    /// Rows that are looked for by each of their keys.
    pub lookups: usize,
    /// Failures after which no other round is run.
    pub most_failures: usize,
}

/// A round after which the database was not what it had to be.
#[derive(Debug, Clone)]
pub struct Failure {
    pub round: u64,
    pub what: String,
    /// Where its files are.
    pub folder: PathBuf,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Summary {
    pub rounds: u64,
    /// Processes that were killed while they worked.
    pub killed: u64,
    /// Processes that were killed while they opened a database after such a kill.
    pub killed_in_recovery: u64,
    /// Processes that came to their end.
    pub finished: u64,
    /// Transactions that were acknowledged.
    pub acknowledged: u64,
    /// Transactions that were waited for when the process was killed, and are there.
    pub kept: u64,
    /// Such that are not.
    pub lost: u64,
    /// Transactions that were refused because of others, by what was said.
    pub refused: BTreeMap<String, u64>,
    /// The most bytes that the files of the database had.
    pub largest_bytes: u64,
    pub failures: Vec<Failure>,
}

/// When a process is killed.
#[derive(Debug, Clone, Copy)]
enum Kill {
    AfterStart(Duration),
    AfterOpening(Duration),
    Never,
}

/// What there may be of a session after a round.
#[derive(Debug)]
struct MayBe {
    /// After its last transaction that was acknowledged.
    acknowledged: State,
    /// After the one that may have been committed, too.
    with_last: Option<State>,
}

/// Runs all rounds; `tell` is told after each of them.
pub fn run(plan: &Plan, mut tell: impl FnMut(&Summary)) -> Result<Summary> {
    let mut rounds = Rounds::new(plan)?;
    for number in 0..plan.rounds {
        if rounds.summary.failures.len() >= plan.most_failures {
            break;
        }
        let mut random = Random::new(plan.seed.wrapping_add(number));
        if let Some(what) = rounds.round(&mut random)? {
            let folder = rounds.keep(number, &what)?;
            rounds.summary.failures.push(Failure { round: number, what, folder });
            rounds.begin_anew()?;
        }
        rounds.summary.rounds += 1;
        tell(&rounds.summary);
    }
    Ok(rounds.summary)
}

struct Rounds<'p> {
    plan: &'p Plan,
    folder: PathBuf,
    runtime: Runtime,
    /// What there is of each session.
    states: Vec<State>,
    summary: Summary,
}

/// Files and folders of a round.
const DATABASE: &str = "database";
/// The database as the kill left it.
const KILLED: &str = "killed";
const TASK: &str = "task.json";
const SAID: &str = "said";
/// Of processes that open a database after a kill.
const RECOVERY_TASK: &str = "recovery.json";
const RECOVERY_SAID: &str = "recovery";

impl<'p> Rounds<'p> {
    fn new(plan: &'p Plan) -> Result<Self> {
        fs::create_dir_all(&plan.folder).map_err(BenchError::file(&plan.folder))?;
        let folder = plan.folder.canonicalize().map_err(BenchError::file(&plan.folder))?;
        let (states, summary) = (Vec::new(), Summary::default());
        let mut rounds = Self { plan, folder, runtime: runner::runtime(2)?, states, summary };
        rounds.begin_anew()?;
        Ok(rounds)
    }

    /// Makes a database without rows, in the place of one that is there.
    fn begin_anew(&mut self) -> Result<()> {
        let database = self.folder.join(DATABASE);
        remove(&database)?;
        self.runtime.block_on(begin(&database)).map_err(BenchError::Setup)?;
        self.states = vec![State::default(); SESSIONS];
        Ok(())
    }

    /// What went wrong in a round, if anything did.
    fn round(&mut self, random: &mut Random) -> Result<Option<String>> {
        let database = self.folder.join(DATABASE);
        let life = |random: &mut Random| self.plan.longest_life.mul_f64(random.below(1001) as f64 / 1000.0);
        let kill = match random.below(20) {
            0 => Kill::Never,
            1..4 => Kill::AfterStart(life(random)),
            _ => Kill::AfterOpening(life(random)),
        };
        let sessions = self.planned(kill, random);
        let scripts = |(session, transactions): (usize, &Vec<Transaction>)| -> Vec<Script> {
            transactions.iter().map(|transaction| transaction.script(session)).collect()
        };
        let task = Task {
            database: database.clone(),
            memory_limit_bytes: random.one_of([4_u64, 16, 64]) << 20,
            background_vacuum: random.chance(50),
            sessions: sessions.iter().enumerate().map(scripts).collect(),
        };
        let lived = self.live(TASK, SAID, &task, kill)?;
        remove(&self.folder.join(KILLED))?;
        copy(&database, &self.folder.join(KILLED))?;
        let said = match lived {
            (Ok(said), true) => {
                self.summary.killed += 1;
                said
            }
            (Ok(said), false) => {
                self.summary.finished += 1;
                said
            }
            (Err(what), _) => return Ok(Some(what)),
        };
        let mut may_be = Vec::with_capacity(SESSIONS);
        for (session, (transactions, before)) in sessions.iter().zip(&self.states).enumerate() {
            match after(&mut self.summary, session, transactions, before, &said) {
                Ok(states) => may_be.push(states),
                Err(what) => return Ok(Some(what)),
            }
        }
        if let Some(what) = self.kill_in_recovery(&task, random)? {
            return Ok(Some(what));
        }
        let vacuums = random.chance(50);
        let found = match self.runtime.block_on(look(&database, vacuums, self.plan.lookups, random)) {
            Ok(found) => found,
            Err(what) => return Ok(Some(what)),
        };
        if let Some(what) = self.compare(&may_be, &found).or_else(|| left_over(&database)) {
            return Ok(Some(what));
        }
        self.summary.largest_bytes = self.summary.largest_bytes.max(bytes_in(&database));
        self.states = found;
        Ok(None)
    }

    /// What each session is to do.
    fn planned(&self, kill: Kill, random: &mut Random) -> Vec<Vec<Transaction>> {
        let count = match kill {
            Kill::Never => self.plan.transactions.min(FEW_TRANSACTIONS),
            Kill::AfterStart(_) | Kill::AfterOpening(_) => self.plan.transactions,
        };
        let mut busy: Vec<usize> = (0..SESSIONS).collect();
        random.shuffle(&mut busy);
        busy.truncate(random.between(1, SESSIONS));
        let is_alone = busy.len() == 1;
        let mut planned = Vec::with_capacity(SESSIONS);
        for (session, state) in self.states.iter().enumerate() {
            planned.push(match busy.contains(&session) {
                true => Generator::new(random, session, is_alone, state.clone()).transactions(count),
                false => Vec::new(),
            });
        }
        planned
    }

    /// Has a process do a task until it is killed: what it said, or what is wrong with it, and whether it was killed.
    fn live(
        &self,
        file: &str,
        said: &str,
        task: &Task,
        kill: Kill,
    ) -> Result<(std::result::Result<Vec<Said>, String>, bool)> {
        let (file, said) = (self.folder.join(file), self.folder.join(said));
        runner::write_json(&file, task)?;
        let mut command = Command::new(&self.plan.program);
        command.arg("--task").arg(&file).current_dir(&self.folder).stdin(Stdio::null());
        // What the user's folder knows about this machine is not to decide what is seen.
        command.env("XDG_CACHE_HOME", self.folder.join("cache"));
        let ran = killed(&mut command, &said, kill)?;
        let was_killed = ran.signal == Some(libc::SIGKILL) && !ran.was_given_up;
        if ran.was_given_up {
            return Ok((Err(ran.describe("the process did not end")), was_killed));
        }
        if !ran.err.trim().is_empty() || !(was_killed || ran.is_ok()) {
            return Ok((Err(ran.describe("the process failed by itself")), was_killed));
        }
        let said = read(&ran.out).and_then(|said| {
            let has_finished = said.last() == Some(&Said::Finished);
            match has_finished || was_killed {
                true => Ok(said),
                false => Err(ran.describe("the process ended before it had finished")),
            }
        });
        Ok((said, was_killed))
    }

    /// Has processes open the database and read it, which are killed, too: what is wrong with them, if anything is.
    fn kill_in_recovery(&mut self, task: &Task, random: &mut Random) -> Result<Option<String>> {
        let question =
            Script { statements: vec!["SELECT count(*) FROM accounts".to_owned()], end: End::Alone };
        let task = Task { sessions: vec![vec![question]], ..task.clone() };
        let times = random.one_of([0, 0, 0, 1, 2]);
        for _ in 0..times {
            let life = self.plan.longest_life.mul_f64(random.below(1001) as f64 / 2000.0);
            let (said, was_killed) =
                self.live(RECOVERY_TASK, RECOVERY_SAID, &task, Kill::AfterStart(life))?;
            match said {
                Ok(said) => {
                    if let Some(what) = said.iter().find_map(wrong) {
                        return Ok(Some(what));
                    }
                }
                Err(what) => return Ok(Some(what)),
            }
            match was_killed {
                true => self.summary.killed_in_recovery += 1,
                false => self.summary.finished += 1,
            }
        }
        Ok(None)
    }

    /// What is there that must not be, or is not there, if anything is.
    fn compare(&mut self, may_be: &[MayBe], found: &[State]) -> Option<String> {
        for (session, (may_be, found)) in may_be.iter().zip(found).enumerate() {
            let is_kept = may_be.with_last.as_ref() == Some(found);
            let is_lost = may_be.acknowledged == *found;
            match (is_kept, is_lost, &may_be.with_last) {
                (false, false, with_last) => {
                    let mut what =
                        format!("what is there of session {session}, and what it has acknowledged:\n");
                    what += &found.differences(&may_be.acknowledged);
                    if let Some(with_last) = with_last {
                        what += "\nand with the transaction whose commit was being waited for:\n";
                        what += &found.differences(with_last);
                    }
                    return Some(what);
                }
                (true, false, _) => self.summary.kept += 1,
                (false, true, Some(_)) => self.summary.lost += 1,
                // One that changes nothing is both.
                _ => {}
            }
        }
        None
    }

    /// Moves the files of a round to a folder of its own.
    fn keep(&self, round: u64, what: &str) -> Result<PathBuf> {
        let folder = self.folder.join(format!("failed-{round}"));
        remove(&folder)?;
        fs::create_dir_all(&folder).map_err(BenchError::file(&folder))?;
        runner::write(&folder.join("what.txt"), what)?;
        let mut names = [DATABASE, KILLED, TASK, RECOVERY_TASK].map(str::to_owned).to_vec();
        for name in [SAID, RECOVERY_SAID] {
            names.extend([format!("{name}.out"), format!("{name}.err")]);
        }
        for name in names {
            let from = self.folder.join(&name);
            if from.exists() {
                fs::rename(&from, folder.join(&name)).map_err(BenchError::file(&from))?;
            }
        }
        Ok(folder)
    }
}

/// What a line says that must not be.
fn wrong(said: &Said) -> Option<String> {
    match said {
        Said::Wrong(Place { session, number }, message) => {
            Some(format!("session {session}, transaction {number}: {message}"))
        }
        _ => None,
    }
}

/// Runs a command until it is killed, or has ended before.
fn killed(command: &mut Command, said: &Path, kill: Kill) -> Result<Ran> {
    let start = Instant::now();
    let out = said.with_extension("out");
    let mut running = Running::start(command, said)?;
    let life = match kill {
        Kill::Never => return running.wait(PATIENCE),
        Kill::AfterStart(life) => life,
        Kill::AfterOpening(life) => {
            let has_opened = || fs::metadata(&out).is_ok_and(|file| file.len() > 0);
            while !has_opened() && start.elapsed() < PATIENCE {
                match running.wait_until(start.elapsed() + BETWEEN_LOOKS)? {
                    Ok(still) => running = still,
                    Err(ran) => return Ok(ran),
                }
            }
            if !has_opened() {
                return running.wait(Duration::ZERO);
            }
            start.elapsed() + life
        }
    };
    match running.wait_until(life)? {
        Ok(running) => {
            running.signal(libc::SIGKILL)?;
            running.wait(PATIENCE)
        }
        Err(ran) => Ok(ran),
    }
}

/// What there may be of a session that was in this state before, and has said this, of these transactions; or what it must not have said.
fn after(
    summary: &mut Summary,
    session: usize,
    transactions: &[Transaction],
    before: &State,
    said: &[Said],
) -> std::result::Result<MayBe, String> {
    let mut acknowledged = before.clone();
    let (mut waiting, mut ends) = (transactions.iter().enumerate(), None);
    for line in said {
        let place = match line {
            Said::Opened | Said::Finished => continue,
            Said::Ends(place) | Said::Ended(place, _) | Said::Refused(place, _) | Said::Wrong(place, _) => {
                place
            }
        };
        if place.session != session {
            continue;
        }
        if let Some(what) = wrong(line) {
            return Err(what);
        }
        if let Said::Ends(place) = line {
            ends = Some(place.number);
            continue;
        }
        ends = None;
        let transaction = match waiting.next() {
            Some((number, transaction)) if number == place.number => transaction,
            _ => return Err(format!("nobody has asked for what {line:?} is about")),
        };
        match line {
            Said::Refused(_, message) => {
                let kind: String = message.chars().take(60).collect();
                *summary.refused.entry(kind).or_default() += 1;
            }
            Said::Ended(_, outcomes) => {
                let (state, expected) = transaction.apply(&acknowledged);
                if let Some(what) = difference(session, transaction, outcomes, &expected) {
                    return Err(format!("session {session}, transaction {}: {what}", place.number));
                }
                summary.acknowledged += 1;
                acknowledged = state;
            }
            Said::Opened | Said::Finished | Said::Ends(_) | Said::Wrong(..) => {}
        }
    }
    let last = ends.and_then(|number| transactions.get(number));
    let with_last = last.map(|transaction| transaction.apply(&acknowledged).0);
    Ok(MayBe { acknowledged, with_last })
}

/// What a statement came to in place of what it had to.
fn difference(
    session: usize,
    transaction: &Transaction,
    outcomes: &[Outcome],
    expected: &[Expected],
) -> Option<String> {
    if outcomes.len() != expected.len() {
        return Some(format!("{} statements said something, of {}", outcomes.len(), expected.len()));
    }
    let is_as_expected = |outcome: &Outcome, expected: &Expected| match (outcome, expected) {
        (Outcome::Changed(rows), Expected::Changed(wanted)) => rows == wanted,
        (Outcome::Failed(_), Expected::Failed) => true,
        // Some of these count rows.
        (Outcome::Done | Outcome::Changed(_), Expected::Done) => true,
        _ => false,
    };
    for ((step, outcome), expected) in transaction.steps.iter().zip(outcomes).zip(expected) {
        if !is_as_expected(outcome, expected) {
            let text: String = step.text(session).chars().take(500).collect();
            return Some(format!("{outcome:?} in place of {expected:?}: {text}"));
        }
    }
    None
}

/// Removes a folder, if it is there.
fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(BenchError::file(path)(error)),
        _ => Ok(()),
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(BenchError::file(to))?;
    for entry in fs::read_dir(from).map_err(BenchError::file(from))? {
        let entry = entry.map_err(BenchError::file(from))?;
        let (path, copied) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().map_err(BenchError::file(&path))?.is_dir() {
            copy(&path, &copied)?;
        } else {
            fs::copy(&path, &copied).map_err(BenchError::file(&path))?;
        }
    }
    Ok(())
}

fn bytes_in(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .filter(|found| found.is_file())
        .map(|found| found.len())
        .sum()
}

impl Summary {
    /// For people.
    pub fn render(&self) -> String {
        let mut table = Table::new(1, ["what", "times"]);
        let mut row = |what: &str, times: u64| table.row([what.to_owned(), times.to_string()]);
        row("rounds", self.rounds);
        row("processes killed at work", self.killed);
        row("processes killed while they opened what was killed", self.killed_in_recovery);
        row("processes that came to their end", self.finished);
        row("transactions acknowledged", self.acknowledged);
        row("transactions waited for, and there", self.kept);
        row("transactions waited for, and not there", self.lost);
        for (message, times) in &self.refused {
            row(&format!("refused: {message}"), *times);
        }
        row("bytes of the database, at most", self.largest_bytes);
        row("failures", self.failures.len() as u64);
        table.to_text()
    }
}

impl Failure {
    /// A line for people; the file `what.txt` has the rest.
    pub fn line(&self) -> String {
        let first = self.what.lines().next().unwrap_or_default();
        format!("round {}: {first}; see {}", self.round, self.folder.display())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::kill_rounds::state::Row;
    use crate::kill_rounds::statements::{self, Change, Conflict, Statement};

    fn insert(key: i64) -> Transaction {
        let row = Row { name: None, amount: 1, note: Arc::from("") };
        let change = Change::Insert(vec![(key, row)], Conflict::Fail);
        Transaction::alone(Statement::Of(statements::Table::Accounts, change))
    }

    fn place(number: usize) -> Place {
        Place { session: 1, number }
    }

    fn ended(number: usize) -> Said {
        Said::Ended(place(number), vec![Outcome::Changed(1)])
    }

    fn keys(state: &State) -> Vec<i64> {
        state.accounts.keys().copied().collect()
    }

    #[test]
    fn what_there_may_be_follows_from_what_was_said() {
        let transactions = [insert(1), insert(4), insert(7)];
        let mut summary = Summary::default();
        let mut told = |said: &[Said]| after(&mut summary, 1, &transactions, &State::default(), said);
        let others = Said::Ended(Place { session: 0, number: 0 }, Vec::new());
        let may_be = told(&[Said::Opened, Said::Ends(place(0)), others, ended(0)]).unwrap();
        assert_eq!((keys(&may_be.acknowledged), may_be.with_last), (vec![1], None));
        let refused = Said::Refused(place(0), "another transaction".to_owned());
        let may_be = told(&[refused, Said::Ends(place(1)), ended(1), Said::Ends(place(2))]).unwrap();
        assert_eq!(keys(&may_be.acknowledged), [4]);
        assert_eq!(keys(&may_be.with_last.unwrap()), [4, 7]);
        assert!(told(&[ended(1)]).is_err());
        assert!(told(&[Said::Wrong(place(0), "panicked".to_owned())]).unwrap_err().contains("panicked"));
        let said = Said::Ended(place(0), vec![Outcome::Changed(2)]);
        let what = told(&[said]).unwrap_err();
        assert!(what.contains("Changed(2) in place of Changed(1): INSERT INTO accounts"), "{what}");
        assert_eq!((summary.acknowledged, summary.refused.len()), (2, 1));
    }

    #[test]
    fn differences_name_rows() {
        let transactions = [insert(1), insert(4)];
        let state = transactions[0].apply(&State::default()).0;
        let more = transactions[1].apply(&state).0;
        let text = more.differences(&state);
        assert!(
            text.contains("2 rows, the other one 1") && text.contains("only here: (4, NULL, 1"),
            "{text}"
        );
    }
}
