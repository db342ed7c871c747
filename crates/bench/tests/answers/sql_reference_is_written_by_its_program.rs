//! `docs/sql-reference.md` says what the program that writes it says now.

#![allow(clippy::unwrap_used, reason = "a test")]

use nandina_bench::{reference, runner};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sql-reference.md");

#[test]
fn the_page_is_what_the_program_writes() {
    let written = std::fs::read_to_string(PAGE).unwrap();
    let now = runner::runtime(2).unwrap().block_on(reference::page()).unwrap();
    let different = written.lines().zip(now.lines()).find(|(written, now)| written != now);
    assert!(
        different.is_none() && written.lines().count() == now.lines().count(),
        "docs/sql-reference.md is not what there is: run `cargo run -p nandina-bench --bin sql_reference` \
         and look at what has changed, first {different:?}"
    );
}
