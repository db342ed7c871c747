//! SQL that others wrote: sqllogictest corpora of SQLite and DuckDB, run against Nandina.
//!
//! ```text
//!   file ─► lines ─► parse ─► run_file ─► engine ───► rows ─┐
//!          (loops)  (records)    │                          ├─► judge ─► outcome ─► report
//!                                └─► arbiter (DuckDB) ──────┘     ▲
//!                                                         recorded, compare, order
//! ```
//!
//! [`children`] runs each file in a process of its own, under each memory limit. What a class means stands in
//! [`outcome::Class`], who decides in [`judge`], how values are compared in [`compare`]. Nothing is excused by a list.

pub mod arbiter;
pub mod cells;
pub mod children;
pub mod compare;
pub mod engine;
pub mod files;
pub mod judge;
pub mod keys;
pub mod lines;
pub mod order;
pub mod outcome;
pub mod parse;
pub mod record;
pub mod recorded;
pub mod report;
pub mod run_file;
pub mod statement;
