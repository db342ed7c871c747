//! The demo runs, compares, and removes everything that it wrote.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use crate::program;

use program::{names_below, run};

#[test]
fn the_folder_is_empty_again() {
    let folder = tempfile::tempdir().unwrap();
    let text = run(folder.path(), ["demo", "--scale", "0.02", "--temp-dir", "here"]).ok();
    assert!(text.contains("Both gave the same result"), "{text}");
    assert!(text.contains("peak resident memory") && text.contains("HashJoin"), "{text}");
    assert_eq!(names_below(&folder.path().join("here")), Vec::<String>::new());
}

#[test]
fn also_after_an_error() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), ["demo", "--scale", "0", "--temp-dir", "here"]).failed(1);
    assert_eq!(names_below(&folder.path().join("here")), Vec::<String>::new());
}
