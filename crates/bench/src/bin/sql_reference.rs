//! What is there in Nandina's SQL?
//!
//! Asks a database, executes an example of every statement, and writes `sql-reference.md`. Names that other engines have
//! are in text files beside [`nandina_bench::reference`].

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use nandina_bench::{reference, runner};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Write the page of everything in Nandina's SQL.
#[derive(Debug, Parser)]
#[command(name = "sql_reference")]
struct Arguments {
    /// The file to write.
    #[arg(long, default_value = "docs/sql-reference.md")]
    out: PathBuf,
}

fn main() -> ExitCode {
    runner::main(|arguments: Arguments| {
        let runtime = runner::runtime(runner::processors())?;
        let page = runtime.block_on(reference::page())?;
        runner::write(&arguments.out, page)
    })
}
