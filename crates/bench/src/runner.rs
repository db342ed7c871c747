//! What every program here begins and ends with: its arguments, threads for queries, files for results, an exit code.

use std::path::Path;
use std::process::{ExitCode, Termination};

use clap::Parser;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::{Builder, Runtime};

use crate::error::{BenchError, Result};

/// Runs a program on its arguments, and says what kept it from its end.
pub fn main<A: Parser, V: Termination>(program: impl FnOnce(A) -> Result<V>) -> ExitCode {
    match program(A::parse()) {
        Ok(verdict) => verdict.report(),
        Err(error) => {
            eprintln!("{}: {error}", A::command().get_name());
            ExitCode::FAILURE
        }
    }
}

/// The exit code of a program that looks for what is wrong.
pub fn verdict(is_right: bool) -> ExitCode {
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Threads that queries run on.
pub fn runtime(threads: usize) -> Result<Runtime> {
    let runtime = Builder::new_multi_thread().worker_threads(threads.max(1)).enable_all().build();
    runtime.map_err(|error| BenchError::Setup(format!("no threads: {error}")))
}

/// As many threads as there are processors.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

pub fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    std::fs::write(path, text).map_err(BenchError::file(path))
}

pub fn write_json(path: &Path, figures: &impl Serialize) -> Result<()> {
    let json = serde_json::to_string_pretty(figures).map_err(|error| BenchError::Setup(error.to_string()))?;
    write(path, json + "\n")
}

/// What an earlier call left, if anything.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match std::fs::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(BenchError::File { path: path.to_owned(), source }),
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|source| BenchError::Json { path: path.to_owned(), source }),
    }
}
