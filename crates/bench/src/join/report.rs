//! `joins.md` and `joins.svg`, made from the JSON file alone.

use std::fmt::Write as _;
use std::path::Path;

use super::cells::{Cell, Outcome, Results};
use super::limit_name;
use super::queries::{QUERIES, Query};
use crate::error::{BenchError, Result};
use crate::plot::{self, Panel, Series};
use crate::quantity;
use crate::table::Table;

const OURS: &str = "Nandina";
const RIVAL: &str = "DuckDB";

/// Writes both files into `folder`.
pub fn write(results: &Results, folder: &Path) -> Result<()> {
    let path = folder.join("joins.md");
    std::fs::write(&path, markdown(results)).map_err(BenchError::file(&path))?;
    let panels: Vec<Panel> = measured_queries(results).map(|query| panel(results, query)).collect();
    let title = format!("Joins of TPC-H lineitem and orders at scale {}, by memory limit", results.scale);
    plot::write_svg(&folder.join("joins.svg"), &title, &panels, 2)
}

/// The times of one query for the terminal.
pub fn times_table(results: &Results, query: &Query) -> Table {
    let limits = limits(results, query.name);
    let header =
        std::iter::once(format!("{} (s)", query.name)).chain(limits.iter().map(|limit| limit_name(*limit)));
    let mut table = Table::new(1, header);
    for engine in engines(results, query.name) {
        let cells =
            limits.iter().map(|limit| results.cell(query.name, &engine, *limit).map_or(String::new(), time));
        table.row(std::iter::once(engine.clone()).chain(cells));
    }
    let seconds =
        |engine: &str, limit: &Option<u64>| results.cell(query.name, engine, *limit).and_then(Cell::seconds);
    let ratios: Vec<Option<f64>> =
        limits.iter().map(|limit| Some(seconds(OURS, limit)? / seconds(RIVAL, limit)?)).collect();
    if ratios.iter().any(Option::is_some) {
        let cells = ratios.iter().map(|ratio| ratio.map_or(String::new(), |ratio| format!("{ratio:.2}")));
        table.row(std::iter::once(format!("{OURS} ÷ {RIVAL}")).chain(cells));
    }
    let unlimited = seconds(OURS, &None);
    let slowdowns = limits.iter().map(|limit| Some(seconds(OURS, limit)? / unlimited?));
    let cells: Vec<String> =
        slowdowns.map(|ratio| ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"))).collect();
    if cells.iter().any(|cell| !cell.is_empty()) {
        table.row(std::iter::once(format!("{OURS} ÷ {OURS} without limit")).chain(cells));
    }
    table
}

fn markdown(results: &Results) -> String {
    let mut text = String::from("# Joins beyond memory\n\n");
    let versions: Vec<String> =
        results.versions.iter().map(|(engine, version)| format!("{engine} {version}")).collect();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "TPC-H `lineitem` ⋈ `orders` at scale {} from Parquet files (snappy), {} threads; {}.\n\n\
         Made by\n\n```sh\n{}\n```\n\non {}\n\n\
         Each run is a process of its own. Its engine is told the limit (`-m`, `memory_limit`, the size of the \
         memory pool, the out-of-core budget), and a control group that counts the page cache ends the process \
         at twice the limit, but not below the limit plus 256 MB. The input is not in the page cache at the \
         start, and as much memory as the process may use (up to 4 GiB) has just been touched and freed, so that \
         a virtual machine's host has it ready. Times are medians; those of the Python packages leave out starting Python and importing the \
         package, those of Nandina are of the whole process. All results are compared with each other.\n\n\
         ![time by memory limit](joins.svg)\n",
        results.scale,
        results.threads,
        versions.join(", "),
        results.command,
        results.machine.describe(),
    );
    for query in measured_queries(results) {
        let _ = writeln!(
            text,
            "## {}: {}\n\n```sql\n{}\n```\n\n{}\n{}",
            query.name,
            query.title,
            query.text(),
            times_table(results, query).to_markdown(),
            usage_table(results, query).to_markdown(),
        );
        for cell in messages(results, query.name) {
            let said = cell.message.as_deref().unwrap_or("");
            let _ = writeln!(text, "- {} at {}: {said}", cell.engine, limit_name(cell.limit_bytes));
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// What the runs used.
fn usage_table(results: &Results, query: &Query) -> Table {
    let header =
        ["engine", "limit", "time (s)", "CPU (s)", "peak resident", "peak charged", "read", "written"];
    let mut table = Table::new(1, header);
    for engine in engines(results, query.name) {
        for limit in limits(results, query.name) {
            let Some(cell) = results.cell(query.name, &engine, limit) else { continue };
            let Some(run) = cell.median_run().filter(|_| cell.outcome == Outcome::Ok) else { continue };
            table.row([
                engine.clone(),
                limit_name(limit),
                quantity::seconds(run.seconds),
                quantity::seconds(run.usage.user_s + run.usage.sys_s),
                mebibytes(cell.peak_rss()),
                mebibytes(run.usage.peak_charged),
                mebibytes(run.usage.read_bytes()),
                mebibytes(run.usage.written_bytes()),
            ]);
        }
    }
    table
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.0} MB", bytes as f64 / f64::from(1 << 20))
}

fn time(cell: &Cell) -> String {
    match (cell.outcome, cell.seconds()) {
        (Outcome::Ok, Some(seconds)) => quantity::seconds(seconds),
        (Outcome::Ok, None) => String::new(),
        (Outcome::Failed, _) => "failed".to_owned(),
        (Outcome::Killed, _) => "killed".to_owned(),
        (Outcome::TimedOut, _) => "timeout".to_owned(),
        (Outcome::Mismatch, _) => "WRONG".to_owned(),
    }
}

fn messages<'a>(results: &'a Results, query: &'a str) -> impl Iterator<Item = &'a Cell> {
    results.cells.iter().filter(move |cell| cell.query == query && cell.message.is_some())
}

fn measured_queries(results: &Results) -> impl Iterator<Item = &'static Query> {
    QUERIES.iter().filter(|query| results.cells.iter().any(|cell| cell.query == query.name))
}

/// Limits that were measured, none first, then from large to small.
fn limits(results: &Results, query: &str) -> Vec<Option<u64>> {
    let cells = results.cells.iter().filter(|cell| cell.query == query);
    let mut limits: Vec<Option<u64>> = cells.map(|cell| cell.limit_bytes).collect();
    limits.sort_by_key(|limit| std::cmp::Reverse(limit.unwrap_or(u64::MAX)));
    limits.dedup();
    limits
}

/// Engines that were measured, ours first.
fn engines(results: &Results, query: &str) -> Vec<String> {
    let mut engines: Vec<String> = Vec::new();
    for cell in results.cells.iter().filter(|cell| cell.query == query) {
        if !engines.contains(&cell.engine) {
            engines.push(cell.engine.clone());
        }
    }
    engines.sort_by_key(|engine| (engine != OURS, engine != RIVAL, engine.clone()));
    engines
}

fn panel(results: &Results, query: &Query) -> Panel {
    let limits = limits(results, query.name);
    let series = engines(results, query.name).into_iter().map(|engine| {
        let cells: Vec<Option<&Cell>> =
            limits.iter().map(|limit| results.cell(query.name, &engine, *limit)).collect();
        let failed =
            cells.iter().enumerate().filter(|(_, cell)| cell.is_some_and(|cell| cell.outcome != Outcome::Ok));
        Series {
            values: cells.iter().map(|cell| cell.and_then(Cell::seconds)).collect(),
            failed: failed.map(|(at, _)| at).collect(),
            name: engine,
        }
    });
    Panel {
        title: format!("{}: {}", query.name, query.title),
        x_label: "memory limit (× no result)".to_owned(),
        y_label: "seconds".to_owned(),
        categories: limits.iter().map(|limit| limit_name(*limit)).collect(),
        series: series.collect(),
        bound: None,
        is_logarithmic: true,
    }
}
