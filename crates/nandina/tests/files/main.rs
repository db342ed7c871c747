//! Files of other formats: read as they are, at any memory limit, and written whole. All of it is one program: linking
//! DataFusion takes longer than most of these tests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

mod column_groups;
mod copies_to_one_file;
mod large_row_groups;
mod partitioned_copies;
mod partitioned_copies_end_cleanly;
mod text_files;
mod wide_files;
