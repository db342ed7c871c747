//! What was measured, for people.

use std::path::Path;

use nandina_bench::plot::{Panel, Series, write_svg};
use nandina_bench::row_stores::{Engine, Outcome, RANGE_ROWS, ROW_BYTES, Work};
use nandina_bench::table::Table;
use nandina_bench::{Result, quantity};

use crate::{Arguments, Cell, Figures, PageCell};

const WORKS: [(Work, &str); 5] = [
    (Work::Read, "a row by its key"),
    (Work::Range, "a range of 100 rows"),
    (Work::RelaxedUpdate, "an update, not waited for"),
    (Work::Update, "an update, durable"),
    (Work::Insert, "an insert, durable"),
];

fn place(times: u64) -> String {
    match times {
        0 => "in memory".to_owned(),
        times => format!("{times} times the cap"),
    }
}

/// The times that were measured, each once.
fn all_times(figures: &Figures) -> Vec<u64> {
    let mut times: Vec<u64> = figures.cells.iter().map(|cell| cell.place.times).collect();
    times.dedup();
    times
}

fn cells(figures: &Figures, times: u64, work: Work) -> impl Iterator<Item = &Cell> {
    figures.cells.iter().filter(move |cell| cell.place.times == times && cell.work == work)
}

fn threads_of(figures: &Figures, times: u64, work: Work) -> Vec<usize> {
    let mut threads: Vec<usize> = cells(figures, times, work).map(|cell| cell.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    threads
}

fn outcome(figures: &Figures, times: u64, work: Work, engine: Engine, threads: usize) -> Option<&Outcome> {
    let mut found = cells(figures, times, work);
    found.find(|cell| cell.engine == engine && cell.threads == threads).and_then(|cell| cell.outcome.as_ref())
}

pub fn plot(path: &Path, figures: &Figures) -> Result<()> {
    let mut panels = Vec::new();
    for times in all_times(figures) {
        for (work, name) in WORKS.iter().filter(|(work, _)| *work != Work::RelaxedUpdate) {
            let threads = threads_of(figures, times, *work);
            let series = Engine::ALL.map(|engine| {
                let rates = threads.iter().map(|threads| outcome(figures, times, *work, engine, *threads));
                Series::new(engine.name(), rates.map(|found| found.map(Outcome::per_second)).collect())
            });
            panels.push(Panel {
                title: format!("{name}, {}", place(times)),
                x_label: "threads".into(),
                y_label: "a second".into(),
                categories: threads.iter().map(usize::to_string).collect(),
                series: series.to_vec(),
                bound: None,
                is_logarithmic: true,
            });
        }
    }
    write_svg(path, "Rows by key", &panels, 4)
}

pub fn page(arguments: &Arguments, figures: &Figures) -> String {
    let file = arguments.out.with_extension("svg");
    let file = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut text = format!(
        "# The page store: rows by key\n\nMade by\n\n```sh\ncargo run --release -p nandina-bench --bin store_bench -- --seconds {}\n```\n\non {}.\n\n\
         Rows of {ROW_BYTES} bytes with keys of 8 bytes, which lie in the heap and are found by an index (Nandina, pages of {}), or lie in the tree itself \
         (SQLite's `INTEGER PRIMARY KEY` and redb, pages of 4 KiB). Every call is a transaction of its own: a row by its key, {RANGE_ROWS} rows from a key on, an update, \
         an insert of a key anywhere between the others; keys are uniformly random. SQLite is called through its C interface with prepared statements, has a \
         write-ahead log with its usual checkpoints and a connection for each thread; its writers wait for each other in this program, as SQLite itself sleeps before it tries again. \
         What is durable is synced by each commit (`synchronous = FULL`, `Durability::Immediate`). Updates that are not waited for, and loads, are `synchronous = NORMAL` in SQLite, which \
         outlasts the process, \
         `Durability::None` in redb, which is on the device with the next durable commit, and in Nandina are in the log on the device soon after. Nandina's index is filled as loaded rows come; the others search theirs for each row. \
         A second passes before {} s are measured; then what has been changed is written back, which counts. Each measurement is a process of its own below a hard cap of memory that counts the \
         page cache: {} where rows do not fit, and {} where they do. A store's own cache has half of it, a quarter in memory; SQLite's is divided among its connections, which then have the page cache. \
         \"–\": the process was killed at the cap.\n\n![rates by threads]({file})\n",
        arguments.seconds,
        figures.machine.describe(),
        quantity::bytes(arguments.page_size),
        arguments.seconds,
        quantity::bytes(arguments.cap),
        quantity::bytes(crate::AMPLE_BYTES),
    );
    for times in all_times(figures) {
        text.push_str(&format!("\n## {}\n\n", capital(&place(times))));
        text.push_str(&rows_table(figures, times).to_markdown());
    }
    text.push_str(&pages_text(figures));
    text
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn rows_table(figures: &Figures, times: u64) -> Table {
    let mut table = Table::new(
        1,
        [
            "",
            "threads",
            "Nandina",
            "SQLite",
            "redb",
            "÷ SQLite",
            "÷ redb",
            "median",
            "99 %",
            "SQLite's 99 %",
            "KiB read",
            "SQLite's KiB read",
            "peak resident",
        ],
    );
    let per_second = |found: Option<&Outcome>| found.map(Outcome::per_second);
    let shown = |rate: Option<f64>| rate.map_or_else(|| "–".to_owned(), |rate| format!("{rate:.0}"));
    let time = |seconds: Option<f64>| seconds.map_or_else(|| "–".to_owned(), quantity::short_time);
    let loads = (Work::Load, "rows loaded in order, 10,000 a transaction");
    for (work, name) in std::iter::once(loads).chain(WORKS) {
        for threads in threads_of(figures, times, work) {
            let of = |engine| outcome(figures, times, work, engine, threads);
            let [ours, sqlite, redb] = Engine::ALL.map(of);
            let ratio = |other: Option<&Outcome>| match (per_second(ours), per_second(other)) {
                (Some(ours), Some(other)) => format!("{:.2}", ours / other),
                _ => "–".to_owned(),
            };
            let read = |found: Option<&Outcome>| {
                let kib = found.map(|found| found.read_bytes as f64 / 1024.0 / found.operations as f64);
                kib.map_or_else(|| "–".to_owned(), |kib| format!("{kib:.1}"))
            };
            let is_load = work == Work::Load;
            let resident = cells(figures, times, work)
                .find(|cell| cell.engine == Engine::Nandina && cell.threads == threads)
                .map_or_else(|| "–".to_owned(), |cell| quantity::bytes(cell.usage.peak_rss));
            table.row([
                name.to_owned(),
                threads.to_string(),
                shown(per_second(ours)),
                shown(per_second(sqlite)),
                shown(per_second(redb)),
                ratio(sqlite),
                ratio(redb),
                time(ours.filter(|_| !is_load).map(|ours| ours.median_seconds)),
                time(ours.filter(|_| !is_load).map(|ours| ours.slow_seconds)),
                time(sqlite.filter(|_| !is_load).map(|sqlite| sqlite.slow_seconds)),
                read(ours),
                read(sqlite),
                resident,
            ]);
        }
    }
    table
}

/// Pages through the pool, of one size and by so many threads.
pub fn page_line(cell: &PageCell) -> [String; 8] {
    let whole = |number: Option<f64>| number.map_or_else(|| "–".to_owned(), |number| format!("{number:.0}"));
    let ours = cell.outcome.as_ref().map(|outcome| outcome.pages as f64 / outcome.seconds);
    let ratio = ours.zip(cell.fio_per_second).map(|(ours, fio)| format!("{:.2}", ours / fio));
    let processor = cell
        .outcome
        .as_ref()
        .map(|outcome| format!("{:.1}", outcome.processor_seconds * 1e6 / outcome.pages as f64));
    [
        quantity::bytes(cell.page_bytes),
        cell.threads.to_string(),
        whole(ours),
        whole(cell.fio_per_second),
        ratio.unwrap_or_else(|| "–".to_owned()),
        processor.unwrap_or_else(|| "–".to_owned()),
        whole(cell.row_reads.as_ref().map(Outcome::per_second)),
        whole(cell.row_updates.as_ref().map(Outcome::per_second)),
    ]
}

fn pages_text(figures: &Figures) -> String {
    let mut text = String::new();
    if !figures.pages.is_empty() {
        text.push_str(
            "\n## Pages through the pool\n\nRandom pages of a heap ten times the cap, asked for by threads of which each waits for its page, beside `fio` \
             with as many requests at once.\n\n",
        );
        let mut table = Table::new(
            0,
            [
                "page",
                "threads",
                "read a second",
                "fio",
                "÷ fio",
                "µs of processor each",
                "rows read",
                "rows updated",
            ],
        );
        figures.pages.iter().for_each(|cell| table.row(page_line(cell)));
        text.push_str(&table.to_markdown());
    }
    if let Some(back) = &figures.write_back {
        let Outcome { seconds, written_bytes, pages, .. } = back.outcome;
        let rate = |bytes: f64| quantity::bytes(bytes as u64);
        text.push_str(&format!(
            "\nPages that were changed here and there are written back by checkpoints: {:.0} a second; with the double write and the log, {}/s go to the device, {} for \
             each page. `fio` writes {}/s in requests of 1 MiB.\n",
            pages as f64 / seconds,
            rate(written_bytes as f64 / seconds),
            rate(written_bytes as f64 / pages as f64),
            back.fio_bytes_per_second.map_or_else(|| "–".to_owned(), rate),
        ));
    }
    if !figures.recoveries.is_empty() {
        text.push_str("\n## Recovery\n\nAfter random updates without a checkpoint, ten times the cap: opening the store again.\n\n");
        let mut table = Table::new(0, ["log", "updates", "time", "log a second", "updates a second"]);
        for recovery in &figures.recoveries {
            table.row([
                quantity::bytes(recovery.log_bytes),
                recovery.operations.to_string(),
                quantity::seconds(recovery.seconds),
                quantity::bytes((recovery.log_bytes as f64 / recovery.seconds) as u64),
                format!("{:.0}", recovery.operations as f64 / recovery.seconds),
            ]);
        }
        text.push_str(&table.to_markdown());
    }
    text
}
