//! Transactions over tables of rows.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "../pages/setup.rs"]
#[allow(dead_code, reason = "for tests of pages")]
mod setup;

mod any_page_is_safe;
mod backups;
mod crashes_keep_whole_transactions;
mod histories;
mod indexes;
mod isolation;
mod model;
mod read_only;
mod rows_of_all_kinds;
mod threads_see_one_state;
