//! Running the program and looking at what it says.

#![allow(dead_code, clippy::unwrap_used, reason = "for tests, each of which uses some of it")]

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What a run of the program said, and with which code it ended.
#[derive(Debug)]
pub struct Ran {
    pub out: String,
    pub err: String,
    pub code: Option<i32>,
}

impl Ran {
    /// The output of a run that must have succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        assert_eq!(self.err, "");
        self.out
    }

    /// The message of a run that must have failed with `code`.
    #[track_caller]
    pub fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        self.err
    }
}

/// The program, to be run in `folder`.
pub fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nandina"));
    command.current_dir(folder).env_remove("NANDINA_MEMORY_LIMIT").env_remove("NANDINA_TEMP_DIR");
    // What the user's folder knows about this machine is not to decide what tests see.
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the program in `folder` with `arguments`.
pub fn run(folder: &Path, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Ran {
    ran(command(folder).args(arguments).output().unwrap())
}

/// Runs SQL in `folder`, without a database, and returns CSV.
pub fn csv(folder: &Path, sql: &str) -> Ran {
    run(folder, ["--format", "csv", "-c", sql])
}

/// Runs SQL in the database `database` in `folder`, and returns CSV.
pub fn csv_in(folder: &Path, database: &str, sql: &str) -> Ran {
    run(folder, [database, "--format", "csv", "-c", sql])
}

/// Runs the program with `input` as its standard input.
pub fn run_with_input(folder: &Path, arguments: &[&str], input: &str) -> Ran {
    let mut child = command(folder).args(arguments).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    ran(child.wait_with_output().unwrap())
}

pub fn ran(output: Output) -> Ran {
    Ran {
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code(),
    }
}

/// A folder with the same three rows in every format.
pub fn folder_with_files() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let csv_text = "id,name,price\n1,anvil,12.5\n2,rope,\n3,lamp,3.25\n";
    std::fs::write(folder.path().join("goods.csv"), csv_text).unwrap();
    let copies = "COPY (SELECT * FROM 'goods.csv') TO 'goods.parquet';
                  COPY (SELECT * FROM 'goods.csv') TO 'goods.json';
                  COPY (SELECT * FROM 'goods.csv') TO 'goods.arrow'";
    run(folder.path(), ["-c", copies]).ok();
    folder
}

/// Names in a folder and the folders below it.
pub fn names_below(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        names.push(entry.path().display().to_string());
        names.extend(names_below(&entry.path()));
    }
    names
}
