//! Stores of rows by key, side by side: Nandina's, SQLite, redb.
//!
//! ```text
//!   Task ──► open ──► sessions, one a thread ──► Session: read, range, update, insert ──► Outcome
//! ```
//!
//! A row has its key in its first eight bytes. Every call is a transaction of its own, as programs make them; a read sees one state.
//! A [`Task`] is run by a process of its own, so that its memory can be capped.

mod latencies;
mod measuring;
mod nandina;
mod redb;
mod sqlite;
mod task;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

pub use self::measuring::{Outcome, Used, measured};
pub use self::nandina::PageRows;
pub use self::task::{KEY_BITS, Task, Work, microseconds, run, scattered};
use crate::error::Result;

/// Bytes of a row, its key included.
pub const ROW_BYTES: usize = 100;
/// Rows of a transaction when rows are loaded.
pub const LOADED_AT_ONCE: usize = 10_000;
/// Rows that a range has.
pub const RANGE_ROWS: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize)]
pub enum Engine {
    Nandina,
    Sqlite,
    Redb,
}

impl Engine {
    pub const ALL: [Self; 3] = [Self::Nandina, Self::Sqlite, Self::Redb];

    pub fn name(self) -> &'static str {
        match self {
            Self::Nandina => "Nandina",
            Self::Sqlite => "SQLite",
            Self::Redb => "redb",
        }
    }
}

/// A key and a row that begins with it.
pub type KeyedRow = (u64, [u8; ROW_BYTES]);

/// What one thread does to a store.
pub trait Session {
    /// Bytes of the row with this key; none if there is no such row.
    fn read(&mut self, key: u64) -> Result<Option<usize>>;

    /// Reads rows from this key on; how many there were.
    fn range(&mut self, from: u64, rows: usize) -> Result<usize>;

    /// Gives a row other bytes.
    fn update(&mut self, key: u64, row: &[u8]) -> Result<()>;

    /// Adds rows, in one transaction.
    fn insert(&mut self, rows: &[KeyedRow]) -> Result<()>;
}

/// A store that is open.
pub trait Rows: Sync {
    /// Runs `work` as one of several threads.
    fn session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()>;

    /// Adds rows in the order of their keys to a store without rows.
    fn load(&self, rows: &mut dyn Iterator<Item = KeyedRow>) -> Result<()> {
        self.session(&mut |session| {
            loop {
                let next: Vec<KeyedRow> = rows.take(LOADED_AT_ONCE).collect();
                if next.is_empty() {
                    return Ok(());
                }
                session.insert(&next)?;
            }
        })
    }

    /// Writes back what is in memory and the log alone.
    fn settle(&self) -> Result<()>;
}

/// The row of a key, of which there are several.
pub fn row(key: u64, version: u64) -> [u8; ROW_BYTES] {
    let mut row = [0; ROW_BYTES];
    let mut content = crate::random::Random::new(key ^ version.rotate_left(32));
    for chunk in row.chunks_mut(size_of::<u64>()) {
        chunk.iter_mut().zip(content.number().to_le_bytes()).for_each(|(to, from)| *to = from);
    }
    row.iter_mut().zip(key.to_be_bytes()).for_each(|(to, from)| *to = from);
    row
}
