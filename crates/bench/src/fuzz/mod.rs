//! Differential fuzzing of SQL: random tables and queries, whose answers several engines have to agree on.
//!
//! ```text
//!   seed ──► schema ──► tables ──► generate ──► a query ──► oracle ──► right, refused, or wrong
//!                                                                        └──► shrink ──► script
//! ```
//!
//! See [`oracle`] for what answers are compared with, after Rigger and Su's work on finding logic bugs in database engines.

pub mod ast;
pub mod cells;
pub mod duckdb;
pub mod engines;
pub mod generate;
pub mod oracle;
mod print;
pub mod run;
pub mod schema;
pub mod script;
pub mod shrink;
pub mod size;
pub mod summary;
pub mod types;
