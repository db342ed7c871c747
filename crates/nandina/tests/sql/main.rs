//! Statements and what they answer, in the files beside this one; every file is run under several memory limits.
//!
//! ```text
//!   joins/using.slt ──┬─► unlimited::joins/using   tables in memory, as much as the machine has
//!                     ├─► 8MiB::joins/using        tables on disk
//!                     └─► 1MiB::joins/using        tables on disk, the smallest limit there is
//! ```
//!
//! The format is that of [sqllogictest](https://docs.rs/sqllogictest); `cells` says how values are written. What
//! answers under one limit must answer the same under the others. A record that cannot be run under a limit yet is
//! marked `skipif 8MiB`, `skipif 1MiB` or `skipif limited` (for both), with a comment that names the operator.
//!
//! `cargo test --test sql -- joins` runs a folder, `-- 8MiB::` a limit, `-- --list` lists everything. With
//! `COMPLETE=1` the answers of the unlimited runs are written into the files instead of compared; read them. With
//! `UNSKIP=1` the marks of limits are not heeded, to see which of them are still needed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

mod cells;
mod connection;
mod setting;

use std::path::{Path, PathBuf};

use libtest_mimic::{Arguments, Trial};

use setting::Setting;

fn main() {
    let arguments = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sql");
    let files = files_below(&root);
    assert!(!files.is_empty(), "no tests below {}", root.display());
    let complete = std::env::var_os("COMPLETE").is_some();
    let settings = if complete { &Setting::ALL[..1] } else { Setting::ALL };
    let run = if complete { Setting::complete } else { Setting::run };
    let mut tests = Vec::new();
    for (setting, file) in
        settings.iter().flat_map(|setting| files.iter().map(move |file| (setting, file.clone())))
    {
        let name = file.strip_prefix(&root).unwrap().with_extension("");
        tests.push(Trial::test(format!("{}::{}", setting.name, name.display()), move || {
            Ok(run(setting, &file)?)
        }));
    }
    libtest_mimic::run(&arguments, tests).exit();
}

/// All `.slt` files in a folder and the folders below it, sorted.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "slt") {
            files.push(path);
        }
    }
    files.sort();
    files
}
