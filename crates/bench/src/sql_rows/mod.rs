//! Short statements of SQL, Nandina's and SQLite's.
//!
//! ```text
//!   Task ─► open ─► sessions, one a thread ─► Session::run(Call) ─► Outcome
//!                                               as a text, or prepared
//! ```
//!
//! The table has a primary key, and an index by which [`GROUP_ROWS`] rows each are found, which lie anywhere. Every statement is a
//! transaction of its own. A [`Task`] is run by a process of its own, so that its memory can be capped.

mod call;
mod nandina;
mod sqlite;
mod task;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

pub use self::call::{Argument, Call, Form};
pub use self::task::{Task, Work, run};
use crate::error::Result;

/// About as many bytes has a row.
pub const ROW_BYTES: usize = 100;
/// Letters of a row's text.
pub const TEXT_BYTES: usize = 80;
/// Rows that a range has.
pub const RANGE_ROWS: u64 = 100;
/// Rows with the same secondary key.
pub const GROUP_ROWS: u64 = 10;

/// An engine, and how it gets statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Contender {
    /// As texts.
    Nandina,
    /// Planned once, and run with values.
    NandinaPrepared,
    /// As texts, as Nandina gets them.
    Sqlite,
    /// Compiled once.
    SqlitePrepared,
}

impl Contender {
    pub const ALL: [Self; 4] = [Self::Nandina, Self::NandinaPrepared, Self::Sqlite, Self::SqlitePrepared];

    pub fn name(self) -> &'static str {
        match self {
            Self::Nandina => "Nandina, texts",
            Self::NandinaPrepared => "Nandina, prepared",
            Self::Sqlite => "SQLite, texts",
            Self::SqlitePrepared => "SQLite, prepared",
        }
    }

    pub fn is_prepared(self) -> bool {
        matches!(self, Self::NandinaPrepared | Self::SqlitePrepared)
    }

    pub fn is_nandina(self) -> bool {
        matches!(self, Self::Nandina | Self::NandinaPrepared)
    }
}

/// What one thread asks.
pub trait Session {
    /// Runs a statement; how many rows it found or changed.
    fn run(&mut self, call: &Call) -> Result<u64>;
}

/// A database that is open.
pub trait Rows: Sync {
    /// Runs `work` as one of several threads.
    fn session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()>;

    /// Makes the table, with so many rows, and then its index.
    fn load(&self, rows: u64) -> Result<()>;

    /// Reads the whole table.
    fn read_all(&self) -> Result<()>;

    /// Writes back what is in memory and the log alone.
    fn settle(&self) -> Result<()>;
}
