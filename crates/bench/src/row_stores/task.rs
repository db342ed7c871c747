//! One measurement, in a process of its own.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use nandina_rowstore::tier::Access;
use serde::{Deserialize, Serialize};

use super::measuring::{Outcome, Used, measured};
use super::nandina::PageRows;
use super::redb::Redb;
use super::sqlite::Sqlite;
use super::{Engine, RANGE_ROWS, ROW_BYTES, Rows, Session, row};
use crate::error::{BenchError, Result};
use crate::random::Random;

/// Bytes of the log that recovery may have to read.
const MOST_LOG_BYTES: u64 = 256 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// Rows in the order of their keys, by one thread.
    Load,
    /// A row by its key.
    Read,
    /// [`RANGE_ROWS`] rows from a key on.
    Range,
    /// A row gets other bytes; durable.
    Update,
    /// The same, reported before it is durable.
    RelaxedUpdate,
    /// A row with a key between others; durable.
    Insert,
    /// Of Nandina: pages of the heap through the pool.
    Pages,
    /// Of Nandina: all pages in memory are changed and written back, again and again.
    WriteBack,
    /// Of Nandina: updates until the log has so many bytes, and recovery from it.
    Recovery { log_bytes: u64 },
}

/// What a process is to measure.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Task {
    pub engine: Engine,
    pub folder: PathBuf,
    pub cache_bytes: u64,
    pub page_bytes: usize,
    /// Rows that are loaded, whose keys are equally far apart.
    pub rows: u64,
    pub threads: usize,
    pub seconds: f64,
    /// Whether all rows are read before measuring begins.
    pub is_warm: bool,
    pub work: Work,
}

/// Does what a task says.
pub fn run(task: &Task) -> Result<Outcome> {
    match task.work {
        Work::Load => load(task),
        Work::Pages => pages(task),
        Work::WriteBack => write_back(task),
        Work::Recovery { log_bytes } => recovery(task, log_bytes),
        Work::Read | Work::Range | Work::Update | Work::RelaxedUpdate | Work::Insert => operations(task),
    }
}

fn open(task: &Task, is_durable: bool) -> Result<Box<dyn Rows>> {
    let Task { folder, cache_bytes, threads, .. } = task;
    Ok(match task.engine {
        Engine::Nandina => Box::new(open_pages(task, is_durable, MOST_LOG_BYTES)?),
        Engine::Sqlite => Box::new(Sqlite::open(folder, *cache_bytes, *threads, is_durable)?),
        Engine::Redb => Box::new(Redb::open(folder, *cache_bytes, is_durable)?),
    })
}

fn open_pages(task: &Task, is_durable: bool, most_log_bytes: u64) -> Result<PageRows> {
    PageRows::open(&task.folder, task.cache_bytes, task.page_bytes, is_durable, most_log_bytes)
}

fn load(task: &Task) -> Result<Outcome> {
    let store = open(task, false)?;
    let before = Used::now()?;
    store.load(&mut (0..task.rows).map(|key| key << KEY_BITS).map(|key| (key, row(key, 0))))?;
    store.settle()?;
    Ok(Outcome { operations: task.rows, ..before.since()? })
}

fn operations(task: &Task) -> Result<Outcome> {
    let store = open(task, task.work != Work::RelaxedUpdate)?;
    if task.is_warm {
        store.session(&mut |session| {
            (0..task.rows).step_by(1000).try_for_each(|from| session.range(from << KEY_BITS, 1000).map(drop))
        })?;
    }
    // What an earlier task has left in the log alone is not this one's.
    store.settle()?;
    let seed = microseconds();
    // Keys of an earlier task are not used again, nor are its changes made again, which would change nothing.
    let inserted = AtomicU64::new(seed);
    let outcome = measured(task.threads, task.seconds, &|thread, run| {
        let mut random = Random::new(seed ^ thread as u64);
        store.session(&mut |session| run(&mut || operation(task, session, &mut random, &inserted)))
    })?;
    // What is written back later counts, too.
    let before = Used::now()?;
    store.settle()?;
    Ok(outcome.with(&before.since()?))
}

/// Microseconds since 1970: another number for each task.
pub fn microseconds() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    now.as_micros() as u64
}

/// Loaded keys are so far apart that others fit between them.
pub const KEY_BITS: u32 = 32;

/// A key between two that are loaded, mostly far from the one of the number before. No two of fewer than 2³² numbers that follow
/// each other have the same one.
pub fn scattered(number: u64, rows: u64) -> u64 {
    let place = Random::new(number).number() % rows;
    place << KEY_BITS | (number % u64::from(u32::MAX) + 1)
}

fn operation(
    task: &Task,
    session: &mut dyn Session,
    random: &mut Random,
    inserted: &AtomicU64,
) -> Result<()> {
    let place = random.number() % task.rows;
    let key = place << KEY_BITS;
    let wrong = |what: &str| Err(BenchError::Setup(format!("{}: {what} of key {key}", task.engine.name())));
    match task.work {
        Work::Read => match session.read(key)? {
            Some(ROW_BYTES) => Ok(()),
            _ => wrong("not the row"),
        },
        Work::Range => {
            let from = place.min(task.rows.saturating_sub(RANGE_ROWS as u64)) << KEY_BITS;
            if session.range(from, RANGE_ROWS)? == RANGE_ROWS { Ok(()) } else { wrong("not the rows") }
        }
        Work::Update | Work::RelaxedUpdate => session.update(key, &row(key, random.number())),
        Work::Insert => {
            let key = scattered(inserted.fetch_add(1, Ordering::Relaxed), task.rows);
            session.insert(&[(key, row(key, 0))])
        }
        Work::Load | Work::Pages | Work::WriteBack | Work::Recovery { .. } => {
            unreachable!("{:?} is no operation of one row", task.work)
        }
    }
}

fn pages(task: &Task) -> Result<Outcome> {
    let store = open_pages(task, true, MOST_LOG_BYTES)?;
    let pages = store.heap_pages()?;
    let pool = store.pages().pool();
    let outcome = measured(task.threads, task.seconds, &|thread, run| {
        let mut random = Random::new(thread as u64 + 1);
        run(&mut || {
            let Some(page) = random.pick(&pages) else {
                return Err(BenchError::Setup("a heap without pages".to_owned()));
            };
            pool.read(*page, Access::Random).map(drop).map_err(|error| BenchError::Setup(error.to_string()))
        })
    })?;
    Ok(Outcome { pages: outcome.read_bytes / task.page_bytes as u64, ..outcome })
}

fn write_back(task: &Task) -> Result<Outcome> {
    let failed = |error: nandina_rowstore::Error| BenchError::Setup(error.to_string());
    let store = open_pages(task, false, u64::MAX)?;
    let pages = store.heap_pages()?;
    let in_memory = pages.len().min(store.pages().pool().frames() * 3 / 4);
    let mut random = Random::new(1);
    let mut outcome = Outcome::default();
    let mut number = 0;
    while outcome.seconds < task.seconds {
        let changed: Vec<_> = (0..in_memory).filter_map(|_| random.pick(&pages).copied()).collect();
        for changed in changed.chunks(64) {
            store.pages().pool().prefetch(changed, Access::Random);
            for page in changed {
                number += 1;
                let mut change = store.pages().change();
                let latched = change.latch(*page).map_err(failed)?;
                // The last byte of a row.
                let Some(byte) = change.page(latched).last().copied() else {
                    return Err(BenchError::Setup("a page without bytes".to_owned()));
                };
                change.write(latched, task.page_bytes - 1, &[byte.wrapping_add(number as u8 | 1)]);
                change.commit().map_err(failed)?;
            }
        }
        let written = store.pages().pool().statistics().written;
        let before = Used::now()?;
        store.pages().checkpoint().map_err(failed)?;
        let used = before.since()?;
        let written = store.pages().pool().statistics().written - written;
        outcome.pages += written;
        outcome.operations += written;
        outcome.seconds += used.seconds;
        outcome.written_bytes += used.written_bytes;
        outcome.processor_seconds += used.processor_seconds;
    }
    Ok(outcome)
}

fn recovery(task: &Task, log_bytes: u64) -> Result<Outcome> {
    let (operations, log_bytes) = {
        let store = open_pages(task, false, u64::MAX)?;
        store.settle()?;
        let mut random = Random::new(7);
        let mut operations = 0;
        store.session(&mut |session| {
            while store.pages().log_bytes() < log_bytes {
                let key = (random.number() % task.rows) << KEY_BITS;
                session.update(key, &row(key, random.number()))?;
                operations += 1;
            }
            Ok(())
        })?;
        let durable = store.pages().log().wait_until_all_durable();
        durable.map_err(|error| BenchError::Setup(error.to_string()))?;
        (operations, store.pages().log_bytes())
    };
    let before = Used::now()?;
    let store = open_pages(task, false, u64::MAX)?;
    let used = before.since()?;
    store.settle()?;
    Ok(Outcome { operations, log_bytes, ..used })
}
