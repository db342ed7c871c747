//! Pages hold what was put into them, and name what was damaged.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "test code")]

mod arbitrary;
mod compact_pages;
mod damage_is_named;
mod every_type_round_trips;
mod mutated_pages_never_panic;
#[path = "../../../../fuzz/src/page_decoder.rs"]
#[allow(dead_code, reason = "only the schemas are used here")]
mod page_decoder;
mod random_batches_round_trip;
mod single_rows;
