//! `nandina demo`: a join whose build side is several times the memory limit, and where its time went.
//!
//! ```text
//!   generate ─► temporary folder
//!   join with the limit ─► join with plenty of memory ─► comparison ─► folder removed
//! ```
//!
//! The folder goes away however the demo ends: by success, error or Ctrl-C; if it was killed, the next demo
//! removes it.

mod child;
mod folder;
mod measure;

use std::path::Path;
use std::time::Duration;

use nandina::tpch::Table;
use nandina::{byte_size, format_duration};

use crate::arguments::DemoArguments;
use crate::engine;
use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;
use crate::say::say;
use crate::tpch::parquet_path;

use folder::Folder;
use measure::Figures;

pub use measure::run as run_measure;

/// The build side is at least this many times the limit that the demo picks.
const BUILD_SIDE_PER_LIMIT: u64 = 6;
/// Bytes of an order's row in memory: key, price, and a comment of 49 characters on average with its view.
const BYTES_PER_ORDER: u64 = 8 + 16 + 16 + 49;
const SMALLEST_LIMIT_BYTES: u64 = 16 << 20;

pub async fn run(arguments: &DemoArguments, interrupt: Interrupt) -> Result<()> {
    let options = engine::options(&arguments.engine)?;
    let build_bytes = Table::Orders.rows(arguments.scale) * BYTES_PER_ORDER;
    let limit = options.memory_limit.unwrap_or_else(|| default_limit(build_bytes));
    let plenty = nandina::default_memory_limit().max(limit);
    let folder = Folder::create(options.temp_directory.as_deref())?;

    say!("TPC-H orders and lineitem at scale {}:\n", arguments.scale)?;
    let mut generate = vec!["tpch".to_owned(), folder.path.display().to_string()];
    generate.extend(["--tables", "orders,lineitem", "--scale"].map(str::to_owned));
    generate.push(arguments.scale.to_string());
    generate.extend(engine_arguments(arguments));
    say!("{}", child::run(generate, &interrupt).await?.trim_end())?;

    let sql = query(&folder.path);
    say!("\n{}\n", sql.replace(&folder.path.display().to_string(), "…"))?;
    say!(
        "The orders to join take about {} in memory; the limit is {}.\n",
        byte_size::format(build_bytes),
        byte_size::format(limit)
    )?;
    let limited = measure(arguments, &folder.path, &sql, limit, &interrupt).await?;
    for (name, value) in &limited.row {
        say!("{name:<8} {value}")?;
    }
    say!("\nWhere it went:\n\n{}", limited.profile)?;
    let unlimited = measure(arguments, &folder.path, &sql, plenty, &interrupt).await?;
    compare(&limited, limit, &unlimited, plenty)
}

fn default_limit(build_bytes: u64) -> u64 {
    let whole_mebibytes = (build_bytes / BUILD_SIDE_PER_LIMIT) >> 20;
    (whole_mebibytes << 20).max(SMALLEST_LIMIT_BYTES)
}

/// Wide payload on both sides, so that both spill when memory is short.
fn query(folder: &Path) -> String {
    let path = |table| parquet_path(folder, table).display().to_string().replace('\'', "''");
    format!(
        "SELECT count(*) AS lines, sum(l_extendedprice) AS price, sum(o_totalprice) AS total,\n       \
         min(l_comment) AS first_l, max(l_comment) AS last_l, min(o_comment) AS first_o, max(o_comment) AS last_o\n\
         FROM '{}' JOIN '{}' ON l_orderkey = o_orderkey",
        path(Table::LineItem),
        path(Table::Orders)
    )
}

/// Options that every step gets.
fn engine_arguments(arguments: &DemoArguments) -> Vec<String> {
    let mut given = vec!["--io-backend".to_owned(), arguments.engine.io_backend.clone()];
    if let Some(threads) = arguments.engine.threads {
        given.extend(["--threads".to_owned(), threads.to_string()]);
    }
    if let Some(quota) = &arguments.engine.temp_quota {
        given.extend(["--temp-quota".to_owned(), quota.clone()]);
    }
    if arguments.engine.no_progress {
        given.push("--no-progress".to_owned());
    }
    given
}

/// Runs the join under a limit. All that it writes goes into the one folder that is removed.
async fn measure(
    arguments: &DemoArguments,
    folder: &Path,
    sql: &str,
    limit: u64,
    interrupt: &Interrupt,
) -> Result<Figures> {
    let temp = folder.join("temp").display().to_string();
    let mut step = vec!["measure".to_owned(), sql.to_owned(), "--memory-limit".to_owned(), limit.to_string()];
    step.extend(["--temp-dir".to_owned(), temp]);
    step.extend(engine_arguments(arguments));
    let text = child::run(step, interrupt).await?;
    serde_json::from_str(&text).map_err(|error| Failure::io("reading a step's figures", error.into()))
}

fn compare(limited: &Figures, limit: u64, unlimited: &Figures, plenty: u64) -> Result<()> {
    let time = |run: &Figures| format_duration(Duration::from_micros(run.elapsed_micros));
    let depth = |run: &Figures| match run.queue_depth {
        depth if depth > 0.0 => format!("{depth:.1}"),
        _ => "-".to_owned(),
    };
    let bytes = |size: fn(&Figures) -> u64| [limited, unlimited].map(|run| byte_size::format(size(run)));
    let rows = [
        ("", ["limited".to_owned(), "plenty".to_owned()]),
        ("memory limit", [limit, plenty].map(byte_size::format)),
        ("peak resident memory", bytes(|run| run.peak_resident_bytes)),
        ("time", [limited, unlimited].map(time)),
        ("read from Parquet", bytes(|run| run.scanned_bytes)),
        ("written to temp space", bytes(|run| run.spilled_bytes)),
        ("read from temp space", bytes(|run| run.spill_read_bytes)),
        ("mean queue depth", [limited, unlimited].map(depth)),
    ];
    for (name, [left, right]) in rows {
        say!("{name:<26} {left:>14} {right:>14}")?;
    }
    if limited.row != unlimited.row {
        let message = "the two runs gave different results: this is a bug, please report it".to_owned();
        return Err(Failure::Query(nandina::Error::Query { message }));
    }
    let ratio = limited.elapsed_micros as f64 / (unlimited.elapsed_micros as f64).max(1.0);
    say!("\nBoth gave the same result; the limited run took {ratio:.2} × as long.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_a_fraction_of_the_build_side() {
        assert_eq!(default_limit(600 << 20), 100 << 20);
        assert_eq!(default_limit(1 << 20), SMALLEST_LIMIT_BYTES);
    }
}
