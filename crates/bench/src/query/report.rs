//! The page of a suite and its plot, made from the JSON file alone.

use std::fmt::Write as _;
use std::path::Path;

use super::cells::{Cell, Outcome, Results};
use super::suites::{Query, Source, Suite};
use crate::error::Result;
use crate::plot::{self, Panel, Series};
use crate::table::Table;
use crate::{quantity, runner};

const OURS: &str = "Nandina";
const RIVAL: &str = "DuckDB";

/// Writes both files into `folder`.
pub fn write(suite: &Suite, results: &Results, folder: &Path) -> Result<()> {
    let path = folder.join(suite.name).with_extension("md");
    runner::write(&path, markdown(suite, results))?;
    let panels: Vec<Panel> = match suite.is_sum {
        true => vec![sum_panel(suite, results)],
        false => measured_queries(suite, results).map(|query| panel(results, query)).collect(),
    };
    let title = format!("{}, at scale {}, by memory limit", suite.title, results.scale);
    plot::write_svg(&path.with_extension("svg"), &title, &panels, panels.len().min(2))
}

/// The times of one query for the terminal.
pub fn times_table(results: &Results, query: &Query) -> Table {
    let limits = limits(results, Some(query.name));
    let header = std::iter::once(format!("{} (s)", query.name))
        .chain(limits.iter().map(|limit| quantity::limit(*limit)));
    let mut table = Table::new(1, header);
    for engine in engines(results, Some(query.name)) {
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

fn markdown(suite: &Suite, results: &Results) -> String {
    let mut text = format!("# {}\n\n", suite.title);
    let versions: Vec<String> =
        results.versions.iter().map(|(engine, version)| format!("{engine} {version}")).collect();
    let source = match suite.source {
        Source::Parquet => " from Parquet files (snappy)",
        Source::OwnTables => "",
    };
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{} at scale {}{source}, {} threads; {}.\n\n\
         Made by\n\n```sh\n{}\n```\n\non {}\n\n\
         Each run is a process of its own. Its engine is told the limit (`-m`, `memory_limit`, the size of the \
         memory pool, the out-of-core budget), and a control group that counts the page cache ends the process \
         at twice the limit, but not below the limit plus 256 MB. The input is not in the page cache at the \
         start, and as much memory as the process may use (up to 4 GiB) has just been touched and freed, so that \
         a virtual machine's host has it ready. Times are medians, from handing over the query to having all rows: starting a program, \
         opening its tables and giving back its temporary files are left out for all engines alike. All results are compared with each other.\n\n\
         ![time by memory limit]({}.svg)\n",
        suite.about,
        results.scale,
        results.threads,
        versions.join(", "),
        results.command,
        results.machine.describe(),
        suite.name,
    );
    if suite.is_sum {
        for limit in limits(results, None) {
            let _ = writeln!(
                text,
                "## {}\n\n{}",
                quantity::limit(limit),
                sum_table(suite, results, limit).to_markdown()
            );
            for cell in results.cells.iter().filter(|cell| cell.limit_bytes == limit) {
                add_message(&mut text, &format!("{} {}", cell.query, cell.engine), cell);
            }
            text.push('\n');
        }
    } else {
        for query in measured_queries(suite, results) {
            let _ = writeln!(
                text,
                "## {}: {}\n\n```sql\n{}\n```\n\n{}\n{}",
                query.name,
                query.title,
                query.sql,
                times_table(results, query).to_markdown(),
                usage_table(results, query).to_markdown(),
            );
            for cell in results.cells.iter().filter(|cell| cell.query == query.name) {
                add_message(
                    &mut text,
                    &format!("{} at {}", cell.engine, quantity::limit(cell.limit_bytes)),
                    cell,
                );
            }
            text.push('\n');
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// What a cell's engine said, if it said something.
fn add_message(text: &mut String, whose: &str, cell: &Cell) {
    if let Some(said) = &cell.message {
        let _ = writeln!(text, "- {whose}: {said}");
    }
}

/// Times of all queries at one limit, and their sums.
fn sum_table(suite: &Suite, results: &Results, limit: Option<u64>) -> Table {
    let engines = engines(results, None);
    let header = std::iter::once("query (s)".to_owned()).chain(engines.iter().cloned());
    let mut table = Table::new(1, header.chain([format!("{OURS} ÷ {RIVAL}")]));
    let queries: Vec<&Query> = measured_queries(suite, results).collect();
    let ratio = |ours: Option<f64>, rivals: Option<f64>| {
        ours.zip(rivals).map_or(String::new(), |(ours, rivals)| format!("{:.2}", ours / rivals))
    };
    for query in &queries {
        let cell = |engine: &str| results.cell(query.name, engine, limit);
        let times = engines.iter().map(|engine| cell(engine).map_or(String::new(), time));
        let seconds = |engine| cell(engine).and_then(Cell::seconds);
        let ratio = ratio(seconds(OURS), seconds(RIVAL));
        table.row(std::iter::once(query.name.to_owned()).chain(times).chain([ratio]));
    }
    let sum = |engine: &str| sum(results, &queries, engine, limit);
    let sums = engines.iter().map(|engine| sum(engine).map_or("–".to_owned(), quantity::seconds));
    table.row(std::iter::once("sum".to_owned()).chain(sums).chain([ratio(sum(OURS), sum(RIVAL))]));
    let peaks = engines.iter().map(|engine| {
        let cells = results.cells.iter().filter(|cell| cell.engine == *engine && cell.limit_bytes == limit);
        quantity::bytes(cells.map(Cell::peak_rss).max().unwrap_or(0))
    });
    table.row(std::iter::once("largest peak resident".to_owned()).chain(peaks).chain([String::new()]));
    let rests = engines.iter().map(|engine| {
        let cells = results.cells.iter().filter(|cell| cell.engine == *engine && cell.limit_bytes == limit);
        let rests = cells.filter_map(Cell::median_run).map(|run| run.usage.wall_s - run.seconds);
        rests.reduce(f64::max).map_or_else(String::new, quantity::seconds)
    });
    table.row(std::iter::once("largest rest of a process".to_owned()).chain(rests).chain([String::new()]));
    table
}

/// The time of all queries together, if the engine answered all of them.
fn sum(results: &Results, queries: &[&Query], engine: &str, limit: Option<u64>) -> Option<f64> {
    queries.iter().map(|query| results.cell(query.name, engine, limit).and_then(Cell::seconds)).sum()
}

fn sum_panel(suite: &Suite, results: &Results) -> Panel {
    let limits = limits(results, None);
    let queries: Vec<&Query> = measured_queries(suite, results).collect();
    let series = engines(results, None).into_iter().map(|engine| {
        let values: Vec<Option<f64>> =
            limits.iter().map(|&limit| sum(results, &queries, &engine, limit)).collect();
        let is_measured = |limit: &Option<u64>| {
            results.cells.iter().any(|cell| cell.engine == engine && cell.limit_bytes == *limit)
        };
        let unanswered = limits.iter().zip(&values).enumerate();
        let failed = unanswered.filter(|(_, (limit, value))| value.is_none() && is_measured(limit));
        Series { failed: failed.map(|(at, _)| at).collect(), values, name: engine.clone() }
    });
    Panel {
        title: format!("{} queries together", queries.len()),
        series: series.collect(),
        ..empty_panel(&limits)
    }
}

fn empty_panel(limits: &[Option<u64>]) -> Panel {
    Panel {
        title: String::new(),
        x_label: "memory limit (× no result)".to_owned(),
        y_label: "seconds".to_owned(),
        categories: limits.iter().map(|limit| quantity::limit(*limit)).collect(),
        series: Vec::new(),
        bound: None,
        is_logarithmic: true,
    }
}

/// What the runs used.
fn usage_table(results: &Results, query: &Query) -> Table {
    let header =
        ["engine", "limit", "time (s)", "CPU (s)", "peak resident", "peak charged", "read", "written"];
    let mut table = Table::new(1, header);
    for engine in engines(results, Some(query.name)) {
        for limit in limits(results, Some(query.name)) {
            let Some(cell) = results.cell(query.name, &engine, limit) else { continue };
            let Some(run) = cell.median_run().filter(|_| cell.outcome == Outcome::Ok) else { continue };
            table.row([
                engine.clone(),
                quantity::limit(limit),
                quantity::seconds(run.seconds),
                quantity::seconds(run.usage.user_s + run.usage.sys_s),
                quantity::bytes(cell.peak_rss()),
                quantity::bytes(run.usage.peak_charged),
                quantity::bytes(run.usage.read_bytes()),
                quantity::bytes(run.usage.written_bytes()),
            ]);
        }
    }
    table
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

fn measured_queries(suite: &Suite, results: &Results) -> impl Iterator<Item = &'static Query> {
    suite.queries.iter().filter(|query| results.cells.iter().any(|cell| cell.query == query.name))
}

/// Limits that were measured, of one query or of all, none first, then from large to small.
fn limits(results: &Results, query: Option<&str>) -> Vec<Option<u64>> {
    let cells = results.cells.iter().filter(|cell| query.is_none_or(|query| cell.query == query));
    let mut limits: Vec<Option<u64>> = cells.map(|cell| cell.limit_bytes).collect();
    limits.sort_by_key(|limit| std::cmp::Reverse(limit.unwrap_or(u64::MAX)));
    limits.dedup();
    limits
}

/// Engines that were measured, of one query or of all, ours first.
fn engines(results: &Results, query: Option<&str>) -> Vec<String> {
    let mut engines: Vec<String> = Vec::new();
    for cell in results.cells.iter().filter(|cell| query.is_none_or(|query| cell.query == query)) {
        if !engines.contains(&cell.engine) {
            engines.push(cell.engine.clone());
        }
    }
    engines.sort_by_key(|engine| (engine != OURS, engine != RIVAL, engine.clone()));
    engines
}

fn panel(results: &Results, query: &Query) -> Panel {
    let limits = limits(results, Some(query.name));
    let series = engines(results, Some(query.name)).into_iter().map(|engine| {
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
        series: series.collect(),
        ..empty_panel(&limits)
    }
}
