//! `nandina`: the command line. A thin face over the crate of the same name.
//!
//! ```text
//!   arguments ─► engine (options, database) ─► shell │ scripts │ import │ tpch │ calibrate │ demo
//!                                                  └────────┴─► statement ─► output
//! ```

mod arguments;
mod backup;
mod calibrate;
mod demo;
mod engine;
mod failure;
mod import;
mod interrupt;
mod output;
mod progress;
mod resident;
mod say;
mod scripts;
mod shell;
mod statement;
mod tpch;

use std::io::IsTerminal as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, FromArgMatches as _};

use crate::arguments::{Arguments, Command, EngineArguments};
use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;

// Faster than the system's with many threads; see `resident` for how it is set up.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long a thread for blocking work waits for more of it. The allocator keeps memory for each thread, which no other
/// thread gets at while it waits.
const IDLE_THREADS_KEPT: Duration = Duration::from_millis(50);

/// Address space for the stack of a thread. Long conditions of joins are evaluated recursively.
const STACK_BYTES: usize = 16 << 20;

fn main() -> ExitCode {
    say_nothing_of_damage();
    let matches = Arguments::command().get_matches();
    let arguments = match Arguments::from_arg_matches(&matches) {
        Ok(arguments) => arguments,
        Err(error) => error.exit(),
    };
    if let Ok(options) = engine::options(engine_arguments(&arguments)) {
        resident::suit(options.memory_limit.unwrap_or_else(nandina::default_memory_limit));
    }
    let work = scripts::Work::in_order(&arguments, &matches);
    match start(arguments, work) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report();
            failure.exit_code()
        }
    }
}

/// Panics of readers over damaged bytes become errors that name the file.
fn say_nothing_of_damage() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !nandina::is_guarded() {
            report(panic);
        }
    }));
}

fn engine_arguments(arguments: &Arguments) -> &EngineArguments {
    match &arguments.command {
        Some(Command::Import(import)) => &import.engine,
        Some(Command::Tpch(tpch)) => &tpch.engine,
        Some(Command::Backup(backup)) => &backup.engine,
        Some(Command::Log(log)) => &log.engine,
        Some(Command::Calibrate(calibrate)) => &calibrate.engine,
        Some(Command::Demo(demo)) => &demo.engine,
        Some(Command::Measure(measure)) => &measure.engine,
        None => &arguments.engine,
    }
}

fn start(arguments: Arguments, work: scripts::Work) -> Result<()> {
    let engine = engine_arguments(&arguments);
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    // More are refused when the database is opened, which takes a runtime.
    let workers = engine.threads.unwrap_or(0).min(nandina::MOST_THREADS).max(available);
    check_open_files()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .thread_stack_size(STACK_BYTES)
        .thread_keep_alive(IDLE_THREADS_KEPT)
        .enable_all()
        .build()
        .map_err(|error| Failure::io("starting threads", error))?;
    let result = runtime.block_on(run(arguments, work));
    // Threads that wait for a device, or compute for a cancelled query, must not keep the program alive.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// Tokio panics where it cannot open what it waits for requests and hears signals with (`ulimit -n`): as many files as two
/// runtimes take are tried beforehand.
fn check_open_files() -> Result<()> {
    let pairs = [(); 6].map(|()| UnixStream::pair());
    pairs.into_iter().try_for_each(|pair| pair.map(drop)).map_err(|error| Failure::io("starting", error))
}

async fn run(arguments: Arguments, work: scripts::Work) -> Result<()> {
    let interrupt = Interrupt::listen()?;
    match &arguments.command {
        Some(Command::Import(import)) => import::run(import, interrupt).await,
        Some(Command::Tpch(tpch)) => tpch::run(tpch, interrupt).await,
        Some(Command::Backup(arguments)) => backup::run(arguments).await,
        Some(Command::Log(arguments)) => backup::list_log(arguments),
        Some(Command::Calibrate(arguments)) => calibrate::run(arguments, interrupt).await,
        Some(Command::Demo(demo)) => demo::run(demo, interrupt).await,
        Some(Command::Measure(measure)) => demo::run_measure(measure, interrupt).await,
        None if work.is_empty() && std::io::stdin().is_terminal() => shell::run(&arguments, interrupt).await,
        None => scripts::run(&arguments, work, interrupt).await,
    }
}
