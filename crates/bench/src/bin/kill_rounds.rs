//! Is what was acknowledged there after SIGKILL, and all of a transaction or nothing?
//!
//! ```text
//! cargo run --release -p nandina-bench --bin kill_rounds -- --rounds 1000 --seed 1 --folder /data/kill-rounds
//! ```
//!
//! Runs itself again, as the process that changes rows in several sessions and is killed, and looks at the database after each kill.
//! Prints a line for every round that failed, whose files are kept, and a summary.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use nandina_bench::kill_rounds::run::{Plan, Summary, run};
use nandina_bench::kill_rounds::task;
use nandina_bench::{BenchError, Result, runner};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Kill a process that changes rows, many times, and look at what is left.
#[derive(Debug, Parser)]
#[command(name = "kill_rounds")]
struct Arguments {
    #[arg(long, default_value_t = 1000)]
    rounds: u64,
    /// Of the first round; others have the next ones.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for the database and for the files of rounds that failed, on the device to be used.
    #[arg(long, default_value = "/tmp/nandina-kill-rounds")]
    folder: PathBuf,
    /// Transactions of a session in a round, at most.
    #[arg(long, default_value_t = 300)]
    transactions: usize,
    /// Milliseconds within which a process is killed, once it has opened the database.
    #[arg(long, default_value_t = 600)]
    life_millis: u64,
    /// Rows that are looked for by each of their keys after a round.
    #[arg(long, default_value_t = 100)]
    lookups: usize,
    /// Failures after which to stop.
    #[arg(long, default_value_t = 20)]
    failures: usize,
    /// What to do until it is killed, for this program itself.
    #[arg(long, hide = true)]
    task: Option<PathBuf>,
}

fn main() -> ExitCode {
    runner::main(|arguments: Arguments| match &arguments.task {
        Some(task) => task::work(task).map(|()| ExitCode::SUCCESS),
        None => rounds(arguments).map(runner::verdict),
    })
}

fn rounds(arguments: Arguments) -> Result<bool> {
    let program = std::env::current_exe()
        .map_err(|error| BenchError::Setup(format!("this program does not know where it is: {error}")))?;
    let plan = Plan {
        program,
        folder: arguments.folder,
        seed: arguments.seed,
        rounds: arguments.rounds,
        transactions: arguments.transactions,
        longest_life: Duration::from_millis(arguments.life_millis),
        lookups: arguments.lookups,
        most_failures: arguments.failures,
    };
    let bar = bar(plan.rounds);
    let mut shown = 0;
    let summary = run(&plan, |summary: &Summary| {
        for failure in summary.failures.iter().skip(shown) {
            // Above the bar, and also where there is none.
            bar.suspend(|| eprintln!("{}", failure.line()));
        }
        shown = summary.failures.len();
        bar.set_position(summary.rounds);
        bar.set_message(format!("{} transactions, {shown} failures", summary.acknowledged));
    })?;
    bar.finish_and_clear();
    println!("{}", summary.render());
    Ok(summary.failures.is_empty())
}

/// On a terminal alone.
fn bar(rounds: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30.cyan/dim} {pos} of {len}  {msg}  {elapsed}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(rounds).with_style(style.progress_chars("━━─"))
}
