//! Sessions as embedding programs use them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

mod altered_tables;
#[path = "../../../../fuzz/src/inputs.rs"]
mod inputs;
mod mutated_inputs_are_refused;
mod objects_last;
mod power_is_lost;
mod progress_is_told;
mod rows_change;
mod session_runs_sql;
mod short_statements;
mod tables_stay_in_memory;
mod tpch;
