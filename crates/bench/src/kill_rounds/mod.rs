//! Is what was acknowledged there after SIGKILL, and all of a transaction or nothing?
//!
//! ```text
//!   this process                                              one that is killed
//!   seed ─► generate ─► transactions ─► texts ──────────────► task: sessions, all at the same time
//!              ▲             │                                   │
//!              │             ▼                                   │ a line before what may commit, and one behind it
//!              │           state: what there must be, or may be ◄┘
//!              │             │
//!              └── same? ◄───┴───── look: what there is
//! ```
//!
//! Every session has keys, names and a copy of its rows that are its alone, in tables that all share. So its own transactions decide
//! what there must be of these, however the sessions meet, and each is checked by itself: the state after the last transaction that was
//! acknowledged, or after the one whose commit was being waited for. The next round goes on with the same database.
//!
//! A seed decides about everything but the moment of the kill, and how far sessions had come by then.

mod generate;
mod look;
pub mod run;
mod state;
mod statements;
pub mod task;

/// Sessions that change rows at the same time, at most.
const SESSIONS: usize = 3;
/// Keys that a session may use.
const KEYS: usize = 400;
/// Names that a session may use: more than keys, and few enough that names come twice.
const NAMES: usize = 1000;

/// The table that all sessions change.
const ACCOUNTS: &str = "CREATE TABLE accounts (k BIGINT PRIMARY KEY, name VARCHAR UNIQUE, amount BIGINT NOT NULL, \
                        note VARCHAR NOT NULL, CHECK (amount >= 0))";
