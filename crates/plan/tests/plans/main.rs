//! Plans of SQL and plans made by hand run through Nandina's operators at any memory limit, and give the rows that
//! DataFusion's give. All of it is one program: linking DataFusion takes longer than most of these tests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

mod harness;

mod aggregates_in_sql;
mod aggregates_under_pressure;
mod cancellation_and_failure;
mod concurrent_semi_joins;
mod distincts_in_sql;
mod dynamic_filters;
mod exchanges;
mod filters_of_joins;
mod first_rows;
mod hungry_plans;
mod join_types;
mod join_types_in_sql;
mod late_columns;
mod late_joins;
mod nested_loop_joins;
mod nested_loop_joins_end_cleanly;
mod nested_loop_joins_in_sql;
mod ordered_merges;
mod parquet_scans;
mod reclaim;
mod recursion;
mod sorts;
mod sorts_in_sql;
mod sorts_under_pressure;
mod spooled_sorts;
mod spools;
mod wide_and_odd_values;
mod windows;
