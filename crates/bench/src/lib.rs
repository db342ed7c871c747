//! How fast is it?
//!
//! What the measuring programs in `src/bin` are made of: [`partition`] repeats an experiment on hash
//! partitioning, [`query`] drives Nandina and other engines as child processes under a hard memory cap, [`session`] runs
//! Nandina's operators in this process, [`stored`] whole queries over tables of its own, on models of drives too, [`row_stores`] stores of rows by key beside each other, [`sql_rows`] the same through SQL. All write a table ([`table`]), figures as JSON and a plot ([`plot`]), and say
//! what they ran on ([`machine`]); [`runner`] is what they begin and end with, [`capped`] runs one measurement in a process of its own, [`fio`] the yardstick of devices. [`program`] runs the program of this repository, and says what it took.
//!
//! [`corpus`], [`fuzz`], [`changes`] and [`orders`] ask whether answers are right, not how long they take, [`torture`] whether the
//! program holds, and [`kill_rounds`] whether transactions do. [`reference`] is the page of everything in the dialect,
//! [`rare_model`] what the RARE-join paper predicts.

pub mod capped;
pub mod changes;
pub mod corpus;
pub mod error;
pub mod fio;
pub mod fuzz;
pub mod kill_rounds;
pub mod machine;
pub mod orders;
pub mod partition;
pub mod plot;
pub mod program;
pub mod quantity;
pub mod query;
pub mod random;
pub mod rare_model;
pub mod reference;
pub mod row_stores;
pub mod runner;
pub mod session;
pub mod sql_rows;
pub mod stored;
pub mod system;
pub mod table;
pub mod torture;

pub use error::{BenchError, Result};
