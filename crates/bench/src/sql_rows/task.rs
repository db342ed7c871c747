//! One measurement, in a process of its own.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::nandina::Nandina;
use super::sqlite::Sqlite;
use super::{Call, Contender, GROUP_ROWS, RANGE_ROWS, Rows, Session, TEXT_BYTES};
use crate::error::{BenchError, Result};
use crate::random::Random;
use crate::row_stores::{Outcome, Used, measured, microseconds, scattered};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// The table is made, and then its index.
    Load,
    /// A row by its primary key.
    Read,
    /// [`GROUP_ROWS`] rows by their secondary key.
    Group,
    /// [`RANGE_ROWS`] rows whose primary keys follow each other.
    Range,
    /// As many whose secondary keys do.
    Groups,
    /// A row gets another text; durable.
    Update,
    /// The same, reported before it is durable.
    RelaxedUpdate,
    /// A row with a key between others; durable.
    Insert,
    /// The same, reported before it is durable.
    RelaxedInsert,
}

/// What a process is to measure.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Task {
    pub contender: Contender,
    pub folder: PathBuf,
    /// The memory limit of a session, and SQLite's cache of all connections.
    pub limit_bytes: u64,
    /// Rows that are loaded, a multiple of those that a range has.
    pub rows: u64,
    pub sessions: usize,
    pub seconds: f64,
    /// Whether all rows are read before measuring begins.
    pub is_warm: bool,
    pub work: Work,
}

/// A prime: multiplied with it, neighbours get places far apart.
pub const SCATTERING: u64 = 1_000_003;

/// A text of a row.
pub fn text(number: u64) -> String {
    let mut random = Random::new(number);
    std::iter::repeat_with(|| format!("{:016x}", random.number())).take(TEXT_BYTES / 16).collect()
}

/// Does what a task says.
pub fn run(task: &Task) -> Result<Outcome> {
    let is_durable = !matches!(task.work, Work::Load | Work::RelaxedUpdate | Work::RelaxedInsert);
    let Task { contender, folder, limit_bytes, rows, sessions, .. } = task;
    let is_prepared = contender.is_prepared();
    let database: Box<dyn Rows> = match contender.is_nandina() {
        true => Box::new(Nandina::open(folder, *limit_bytes, is_durable, is_prepared)?),
        false => Box::new(Sqlite::open(folder, *limit_bytes, *sessions, is_durable, is_prepared)?),
    };
    if task.work == Work::Load {
        let before = Used::now()?;
        database.load(*rows)?;
        return Ok(Outcome { operations: *rows, ..before.since()? });
    }
    if task.is_warm {
        database.read_all()?;
    }
    // What an earlier task has left in the log alone is not this one's.
    database.settle()?;
    let seed = microseconds();
    // Keys of an earlier task are not used again, nor are its changes made again, which would change nothing.
    let inserted = AtomicU64::new(seed);
    let outcome = measured(*sessions, task.seconds, &|thread, run| {
        let mut random = Random::new(seed ^ thread as u64);
        database.session(&mut |session| run(&mut || operation(task, session, &mut random, &inserted)))
    })?;
    // What is written back later counts, too.
    let before = Used::now()?;
    database.settle()?;
    Ok(outcome.with(&before.since()?))
}

fn operation(
    task: &Task,
    session: &mut dyn Session,
    random: &mut Random,
    inserted: &AtomicU64,
) -> Result<()> {
    let rows = task.rows;
    let place = random.number() % rows;
    let (groups, in_range) = (rows / GROUP_ROWS, RANGE_ROWS / GROUP_ROWS);
    let (call, least) = match task.work {
        Work::Read => (Call::read(place), 1),
        Work::Group => (Call::group(place % groups), GROUP_ROWS),
        Work::Range => (Call::range(place.min(rows - RANGE_ROWS)), RANGE_ROWS),
        Work::Groups => (Call::groups((place % groups).min(groups - in_range)), RANGE_ROWS),
        Work::Update | Work::RelaxedUpdate => (Call::update(place, text(random.number())), 1),
        Work::Insert | Work::RelaxedInsert => {
            let key = scattered(inserted.fetch_add(1, Ordering::Relaxed), rows);
            (Call::insert(key, place % groups, text(key)), 1)
        }
        Work::Load => unreachable!("loading is no statement about a few rows"),
    };
    let found = session.run(&call)?;
    // Rows that were inserted lie between those that were loaded.
    let is_exact = matches!(task.work, Work::Read | Work::Update | Work::RelaxedUpdate | Work::Insert);
    if found < least || is_exact && found > least {
        let name = task.contender.name();
        return Err(BenchError::Setup(format!("{name}: {found} rows in place of {least}: {}", call.text())));
    }
    Ok(())
}
