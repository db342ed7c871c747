//! Random statements that change rows, to which Nandina and SQLite have to say the same.
//!
//! ```text
//!   seed ─► tables ─► generate ─► step ─┬─► Nandina ─► outcome ─┐
//!                                       └─► SQLite ──► outcome ─┴─► the same? ─ no ─► shrink ─► script
//! ```
//!
//! Only what means the same in both is made: integers that do not overflow, texts of small letters, floating-point numbers
//! that are sums of powers of two, and no statement whose answer depends on the order in which rows are visited. SQLite's
//! tables are `STRICT`. After a few statements whole tables are compared, and what is found by their indexes.

pub mod engines;
mod expressions;
mod generate;
pub mod run;
mod shrink;
mod statements;
mod step;
mod tables;
pub(crate) mod values;
