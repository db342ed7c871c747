//! What was measured, for people.

use std::path::Path;

use nandina_bench::plot::{Panel, Series, write_svg};
use nandina_bench::row_stores::Outcome;
use nandina_bench::sql_rows::{Contender, GROUP_ROWS, RANGE_ROWS, ROW_BYTES, Work};
use nandina_bench::table::Table;
use nandina_bench::{Result, quantity};

use crate::{AMPLE_BYTES, Arguments, Cell, Figures};

const WORKS: [(Work, &str); 8] = [
    (Work::Read, "a row by its primary key"),
    (Work::Group, "10 rows by a secondary key"),
    (Work::Range, "100 rows by a range of primary keys"),
    (Work::Groups, "100 rows by a range of secondary keys"),
    (Work::RelaxedUpdate, "an update, not waited for"),
    (Work::Update, "an update, durable"),
    (Work::RelaxedInsert, "an insert, not waited for"),
    (Work::Insert, "an insert, durable"),
];

fn place(times: u64) -> String {
    match times {
        0 => "in memory".to_owned(),
        times => format!("{times} times the limit"),
    }
}

/// Values in the order in which they were measured, each once.
fn each<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for value in values {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

fn all_times(figures: &Figures) -> Vec<u64> {
    each(figures.cells.iter().map(|cell| cell.place.times))
}

fn cells(figures: &Figures, times: u64, work: Work) -> impl Iterator<Item = &Cell> {
    figures.cells.iter().filter(move |cell| cell.place.times == times && cell.work == work)
}

fn cell(figures: &Figures, times: u64, work: Work, contender: Contender, sessions: usize) -> Option<&Cell> {
    cells(figures, times, work).find(|cell| cell.contender == contender && cell.sessions == sessions)
}

pub fn plot(path: &Path, figures: &Figures) -> Result<()> {
    let mut panels = Vec::new();
    for times in all_times(figures) {
        for (work, name) in WORKS {
            let sessions = each(cells(figures, times, work).map(|cell| cell.sessions));
            let series = Contender::ALL.map(|contender| {
                let found = |sessions: &usize| cell(figures, times, work, contender, *sessions);
                let rate = |sessions| found(sessions)?.outcome.as_ref().map(Outcome::per_second);
                let mut series = Series::new(contender.name(), sessions.iter().map(rate).collect());
                let has_failed =
                    |sessions: &usize| found(sessions).is_some_and(|cell| cell.outcome.is_none());
                let failed = sessions.iter().enumerate().filter(|(_, sessions)| has_failed(sessions));
                series.failed = failed.map(|(place, _)| place).collect();
                series
            });
            panels.push(Panel {
                title: format!("{name}, {}", place(times)),
                x_label: "sessions".into(),
                y_label: "a second".into(),
                categories: sessions.iter().map(usize::to_string).collect(),
                series: series.to_vec(),
                bound: None,
                is_logarithmic: true,
            });
        }
    }
    write_svg(path, "Short statements", &panels, 4)
}

pub fn page(arguments: &Arguments, figures: &Figures) -> String {
    let file = arguments.out.with_extension("svg");
    let file = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut text = format!(
        "# Short statements\n\nMade by\n\n```sh\ncargo run --release -p nandina-bench --bin changes_bench -- --seconds {}\n```\n\non {}.\n\n\
         A table of about {ROW_BYTES} bytes a row, with a primary key of whole numbers and an index by which {GROUP_ROWS} rows each are found that lie anywhere in it. Every statement is a \
         transaction of its own, about a row, the {GROUP_ROWS} rows of a secondary key, or a range of {RANGE_ROWS} rows; keys are uniformly random. Each session is one thread that waits for its statement. \
         Statements are texts with other values each time, as programs send them, or are prepared once: `Session::prepare` here, statements of its C interface in SQLite, \
         where the primary key is that of the table's own tree (`INTEGER PRIMARY KEY`). SQLite has a write-ahead log with its usual checkpoints and a connection for each session; its writers wait for each other in this program, \
         as SQLite itself sleeps before it tries again. What is durable is synced by each commit (`durability = full`, `synchronous = FULL`); what is not waited for is `durability = relaxed`, \
         which is in the log on the device soon after, and `synchronous = NORMAL`, which outlasts the process. \
         A second passes before {} s are measured; then what has been changed is written back, which counts. Each measurement is a process of its own below a hard cap of memory that counts the \
         page cache: {} beyond the limit. The limit is {} where rows do not fit, and {} where they do; it is that of each of Nandina's sessions, of which a quarter is the buffer pool of all, and the cache of SQLite's connections together. \
         \"–\": the process did not end well, mostly as it was killed at the cap.\n\n![rates by sessions]({file})\n",
        arguments.seconds,
        figures.machine.describe(),
        arguments.seconds,
        quantity::bytes(arguments.margin),
        quantity::bytes(arguments.limit),
        quantity::bytes(AMPLE_BYTES),
    );
    for times in all_times(figures) {
        let rows =
            figures.cells.iter().find(|cell| cell.place.times == times).map_or(0, |cell| cell.place.rows);
        text.push_str(&format!("\n## {rows} rows, {}\n\n", place(times)));
        text.push_str(&loaded(figures, times));
        text.push_str(&rates(figures, times).to_markdown());
        text.push_str("\n### How long one takes\n\n");
        text.push_str(&latencies(figures, times).to_markdown());
    }
    text
}

fn loaded(figures: &Figures, times: u64) -> String {
    let loads = cells(figures, times, Work::Load).filter_map(|cell| {
        let engine = if cell.contender.is_nandina() { "Nandina" } else { "SQLite" };
        Some(format!("{engine} {} s", quantity::seconds(cell.outcome.as_ref()?.seconds)))
    });
    match loads.collect::<Vec<_>>().join(", ") {
        loads if loads.is_empty() => loads,
        loads => format!("Rows loaded in the order of their keys, and the index: {loads}.\n\n"),
    }
}

fn shown(number: Option<String>) -> String {
    number.unwrap_or_else(|| "–".to_owned())
}

fn rates(figures: &Figures, times: u64) -> Table {
    let names = Contender::ALL.map(|contender| format!("{} /s", contender.name()));
    let mut header = vec!["".to_owned(), "sessions".to_owned()];
    header.extend(names);
    header.extend(
        ["texts ÷ texts", "prepared ÷ prepared", "KiB read", "SQLite's KiB read", "peak resident"]
            .map(str::to_owned),
    );
    let mut table = Table::new(1, header);
    for (work, name) in WORKS {
        for sessions in each(cells(figures, times, work).map(|cell| cell.sessions)) {
            let found = Contender::ALL.map(|contender| cell(figures, times, work, contender, sessions));
            let outcomes = found.map(|cell| cell.and_then(|cell| cell.outcome.as_ref()));
            let rate = outcomes.map(|outcome| outcome.map(Outcome::per_second));
            let ratio = |ours: Option<f64>, theirs: Option<f64>| {
                shown(ours.zip(theirs).map(|(ours, theirs)| format!("{:.2}", ours / theirs)))
            };
            let read = |outcome: Option<&Outcome>| {
                let kib =
                    outcome.map(|outcome| outcome.read_bytes as f64 / 1024.0 / outcome.operations as f64);
                shown(kib.map(|kib| format!("{kib:.1}")))
            };
            let [ours, ours_prepared, theirs, theirs_prepared] = rate;
            let [of_ours, of_ours_prepared, of_theirs, of_theirs_prepared] = outcomes;
            let resident = found.iter().flatten().filter(|cell| cell.contender.is_nandina());
            let mut row = vec![name.to_owned(), sessions.to_string()];
            row.extend(rate.map(|rate| shown(rate.map(|rate| format!("{rate:.0}")))));
            row.push(ratio(ours, theirs));
            row.push(ratio(ours_prepared, theirs_prepared));
            row.push(read(of_ours_prepared.or(of_ours)));
            row.push(read(of_theirs_prepared.or(of_theirs)));
            row.push(shown(resident.map(|cell| cell.usage.peak_rss).max().map(quantity::bytes)));
            table.row(row);
        }
    }
    table
}

fn latencies(figures: &Figures, times: u64) -> Table {
    let mut header = vec!["".to_owned(), "sessions".to_owned()];
    header.extend(
        Contender::ALL
            .iter()
            .flat_map(|contender| [format!("{}: median", contender.name()), "99 %".to_owned()]),
    );
    let mut table = Table::new(1, header);
    for (work, name) in WORKS {
        for sessions in each(cells(figures, times, work).map(|cell| cell.sessions)) {
            let mut row = vec![name.to_owned(), sessions.to_string()];
            for contender in Contender::ALL {
                let outcome =
                    cell(figures, times, work, contender, sessions).and_then(|cell| cell.outcome.as_ref());
                row.push(shown(outcome.map(|outcome| quantity::short_time(outcome.median_seconds))));
                row.push(shown(outcome.map(|outcome| quantity::short_time(outcome.slow_seconds))));
            }
            table.row(row);
        }
    }
    table
}
