//! RARE-join beside its rivals, measured: the examples of its paper, and grids over selectivity, place of the rows, memory and
//! device.
//!
//! ```text
//! cargo run --release -p nandina-bench --bin rare_bench
//! ```
//!
//! Shah, Harizopoulos, Wiener, Graefe: *Fast Scans and Joins using Flash Drives*, DaMoN 2008. The paper counts pages and
//! predicts times; it has no measurements of joins. Its tables have eight columns of four bytes, three of which each side
//! gives to the result.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int32Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use clap::Parser;
use nandina_bench::machine::Machine;
use nandina_bench::plot::{Panel, Series, write_svg};
use nandina_bench::random::Random;
use nandina_bench::rare_model::{Algorithm, Join, Memory, Side};
use nandina_bench::stored::{Bed, NewTable, make_table};
use nandina_bench::table::Table;
use nandina_bench::{BenchError, Result, quantity, runner};
use serde::Serialize;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Time the algorithms that join two stored tables.
#[derive(Debug, Parser)]
#[command(name = "rare_bench")]
struct Arguments {
    /// Rows of each table are two to the power of this.
    #[arg(long, default_value_t = 25)]
    rows_log2: u32,
    /// The same for models of drives.
    #[arg(long, default_value_t = 21)]
    drive_rows_log2: u32,
    /// Models of drives, beside the disk.
    #[arg(long, value_delimiter = ',', default_value = "sata-ssd,disk")]
    drives: Vec<String>,
    /// Page size of the grids.
    #[arg(long, value_parser = quantity::parse_bytes, default_value = "64KiB")]
    page: u64,
    /// Rounds; the median counts.
    #[arg(long, default_value_t = 1)]
    runs: usize,
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// A query that takes longer than so many seconds is given up.
    #[arg(long, default_value_t = 120.0)]
    patience: f64,
    /// Folder for the tables, on the disk to be measured. Tables that are there are used.
    #[arg(long, default_value_os_t = std::env::temp_dir().join("rare-bench"))]
    work: PathBuf,
    /// Markdown file for the results; JSON and SVG go beside it.
    #[arg(long, default_value = "docs/benchmarks/rare-join.md")]
    out: PathBuf,
}

const ALGORITHMS: [&str; 6] = ["auto", "rare", "digest", "hybrid", "grace_pax", "grace_rows"];
/// Parts of the smaller table that memory is.
const MEMORY_PARTS: [u64; 4] = [1, 4, 16, 64];
/// Rows of the second table that pass, in thousandths.
const SELECTIVITIES: [u64; 4] = [1, 10, 100, 1000];
const DRIVE_SELECTIVITIES: [u64; 3] = [1, 10, 1000];
const DRIVE_MEMORY_PART: u64 = 4;
const PAGES_OF_EXAMPLES: [u64; 3] = [32 << 10, 64 << 10, 128 << 10];
const COLUMNS: [&str; 8] = ["k", "c", "a", "b", "d", "e", "f", "g"];
const COLUMN_BYTES: u64 = 4;
const ROW_BYTES: u64 = COLUMN_BYTES * COLUMNS.len() as u64;
const BATCH_ROWS: u64 = 1 << 16;
/// A hash table takes so many times what is in it, in the paper's conditions.
const TABLE_OVERHEAD: f64 = 2.0;
/// The examples of the paper: tables of 8 and 32 GB, memory of 2 GB.
const EXAMPLES: [(&str, u64); 2] = [("first", 4), ("second", 16)];

/// Where the rows stand that match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum Place {
    /// Half of each table's rows, anywhere: the paper's examples.
    Half,
    Scattered,
    /// Next to each other, in the same order in both tables.
    Clustered,
}

/// A query, where and with how much memory.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Setting {
    drive: Option<String>,
    rows_log2: u32,
    page_bytes: u64,
    place: Place,
    /// In thousandths.
    selectivity: u64,
    memory_bytes: u64,
}

/// An algorithm in a setting.
#[derive(Debug, Clone, Serialize)]
struct Cell {
    setting: Setting,
    algorithm: &'static str,
    /// `None`: it was given up.
    seconds: Option<f64>,
    bytes_read: u64,
    bytes_written: u64,
    requests: u64,
    mean_depth: f64,
}

fn main() -> ExitCode {
    runner::main(|arguments| run(&arguments))
}

fn run(arguments: &Arguments) -> Result<()> {
    let mut cells = Vec::new();
    for page_bytes in PAGES_OF_EXAMPLES {
        let settings = EXAMPLES.map(|(_, part)| Setting {
            drive: None,
            rows_log2: arguments.rows_log2,
            page_bytes,
            place: Place::Half,
            selectivity: 500,
            memory_bytes: memory_bytes(arguments.rows_log2, part),
        });
        cells.extend(measure(arguments, &settings)?);
    }
    cells.extend(measure(arguments, &grid(arguments, None))?);
    for drive in &arguments.drives {
        cells.extend(measure(arguments, &grid(arguments, Some(drive)))?);
    }
    runner::write_json(&arguments.out.with_extension("json"), &cells)?;
    write_plot(&arguments.out.with_extension("svg"), arguments, &cells)?;
    runner::write(&arguments.out, page(arguments, &cells))
}

fn table_bytes(rows_log2: u32) -> u64 {
    ROW_BYTES << rows_log2
}

/// A part of a table, but not less than any query has.
fn memory_bytes(rows_log2: u32, part: u64) -> u64 {
    (table_bytes(rows_log2) / part).max(1 << 20)
}

/// All settings on the disk, or some on a model of a drive.
fn grid(arguments: &Arguments, drive: Option<&String>) -> Vec<Setting> {
    let rows_log2 = if drive.is_some() { arguments.drive_rows_log2 } else { arguments.rows_log2 };
    let (selectivities, parts) = match drive {
        Some(_) => (DRIVE_SELECTIVITIES.as_slice(), &[DRIVE_MEMORY_PART][..]),
        None => (SELECTIVITIES.as_slice(), MEMORY_PARTS.as_slice()),
    };
    let mut settings = Vec::new();
    for place in [Place::Scattered, Place::Clustered] {
        for &part in parts {
            settings.extend(selectivities.iter().map(|&selectivity| Setting {
                drive: drive.cloned(),
                rows_log2,
                page_bytes: arguments.page,
                place,
                selectivity,
                memory_bytes: memory_bytes(rows_log2, part),
            }));
        }
    }
    settings
}

/// Runs all algorithms in settings on the same tables.
fn measure(arguments: &Arguments, settings: &[Setting]) -> Result<Vec<Cell>> {
    let Some(first) = settings.first() else { return Ok(Vec::new()) };
    let folder = arguments.work.join(format!("{}-{}", first.rows_log2, first.page_bytes));
    make_tables(&folder, first)?;
    let runtime = runner::runtime(arguments.threads)?;
    let bed = {
        let _entered = runtime.enter();
        Bed::open(&folder, first.drive.as_deref(), arguments.threads)?
    };
    let mut cells = Vec::new();
    for setting in settings {
        let sql = query(setting);
        let mut answers: BTreeMap<String, &str> = BTreeMap::new();
        // Algorithms take turns, so that what disturbs the machine disturbs all.
        let mut runs: BTreeMap<&str, Vec<Cell>> = BTreeMap::new();
        for _ in 0..arguments.runs.max(1) {
            for algorithm in ALGORITHMS {
                let (cell, answer) = runtime.block_on(one_run(arguments, &bed, setting, algorithm, &sql))?;
                println!("{}", line(&cell));
                answers.extend(answer.map(|answer| (answer, algorithm)));
                runs.entry(algorithm).or_default().push(cell);
            }
        }
        if answers.len() > 1 {
            return Err(BenchError::Setup(format!("{sql}: different answers: {answers:?}")));
        }
        for algorithm in ALGORITHMS {
            let mut of_algorithm = runs.remove(algorithm).unwrap_or_default();
            let seconds = |cell: &Cell| cell.seconds.unwrap_or(f64::INFINITY);
            of_algorithm.sort_by(|one, other| seconds(one).total_cmp(&seconds(other)));
            let middle = of_algorithm.len().saturating_sub(1) / 2;
            cells.extend(of_algorithm.into_iter().nth(middle));
        }
    }
    Ok(cells)
}

async fn one_run(
    arguments: &Arguments,
    bed: &Bed,
    setting: &Setting,
    algorithm: &'static str,
    sql: &str,
) -> Result<(Cell, Option<String>)> {
    let settings =
        [("memory_limit", setting.memory_bytes.to_string()), ("join_algorithm", algorithm.to_owned())];
    let patience = Duration::from_secs_f64(arguments.patience);
    let mut answer = String::new();
    let see = &mut |batch: &RecordBatch| answer.push_str(&format!("{:?}", batch.columns()));
    let measured = bed.run(&settings, sql, patience, see).await?;
    let io = measured.as_ref().map(|measured| measured.io.clone()).unwrap_or_default();
    let cell = Cell {
        setting: setting.clone(),
        algorithm,
        seconds: measured.as_ref().map(|measured| measured.seconds),
        bytes_read: io.bytes_read,
        bytes_written: io.bytes_written,
        requests: io.read_requests + io.write_requests,
        mean_depth: io.mean_queue_depth(),
    };
    Ok((cell, measured.map(|_| answer)))
}

fn line(cell: &Cell) -> String {
    let Setting { drive, rows_log2, page_bytes, place, selectivity, memory_bytes } = &cell.setting;
    format!(
        "{:8} 2^{rows_log2} {:7} {:9} {:5.1} % {:>8} {:10} {:>6} s {:>9} read {:>9} written {:>7} requests depth {:.1}",
        drive.as_deref().unwrap_or("disk"),
        quantity::bytes(*page_bytes),
        format!("{place:?}"),
        *selectivity as f64 / 10.0,
        quantity::bytes(*memory_bytes),
        cell.algorithm,
        seconds(cell),
        quantity::bytes(cell.bytes_read),
        quantity::bytes(cell.bytes_written),
        cell.requests,
        cell.mean_depth
    )
}

fn seconds(cell: &Cell) -> String {
    cell.seconds.map_or_else(|| "–".to_owned(), quantity::seconds)
}

fn query(setting: &Setting) -> String {
    let rows = 1u64 << setting.rows_log2;
    let condition = match setting.place {
        Place::Half => "t1.k = t2.g".to_owned(),
        Place::Scattered => format!("t1.k = t2.k WHERE t2.f < {}", (setting.selectivity << 31) / 1000),
        Place::Clustered => format!("t1.c = t2.c WHERE t2.c < {}", setting.selectivity * rows / 1000),
    };
    format!(
        "SELECT count(*), max(t1.a), max(t1.b), max(t1.d), max(t2.a), max(t2.b), max(t2.d) FROM t1 JOIN t2 ON {condition}"
    )
}

/// `k` has each number once, anywhere, `c` in order; half of `g` of the second table is among `k` of the first. The other columns
/// are random.
fn make_tables(folder: &Path, setting: &Setting) -> Result<()> {
    let fields = COLUMNS.map(|name| Field::new(name, DataType::Int32, false));
    let schema: SchemaRef = Arc::new(Schema::new(fields.to_vec()));
    let rows = 1u64 << setting.rows_log2;
    for (name, seed, step) in [("t1", 1, 0x9E37_79B1), ("t2", 2, 0x85EB_CA77)] {
        let table = NewTable {
            name: name.to_owned(),
            schema: Arc::clone(&schema),
            page_bytes: setting.page_bytes as usize,
        };
        let mut random = Random::new(seed);
        let schema = &schema;
        let batches = (0..rows).step_by(BATCH_ROWS as usize).map(move |start| {
            let numbers = start..(start + BATCH_ROWS).min(rows);
            // An odd step visits all numbers below a power of two.
            let key = |number: u64| (number * step % rows) as i32;
            let columns = COLUMNS.map(|column| -> ArrayRef {
                let values: Int32Array = match column {
                    "k" => numbers.clone().map(key).collect(),
                    "c" => numbers.clone().map(|number| number as i32).collect(),
                    "g" => numbers.clone().map(|number| key(number) + (rows / 2) as i32).collect(),
                    _ => numbers.clone().map(|_| (random.number() >> 33) as i32).collect(),
                };
                Arc::new(values)
            });
            RecordBatch::try_new(Arc::clone(schema), columns.to_vec())
        });
        let batches: Box<dyn Iterator<Item = RecordBatch>> = Box::new(batches.map(|batch| match batch {
            Ok(batch) => batch,
            Err(error) => unreachable!("columns of one length and type: {error}"),
        }));
        make_table(folder, table, batches)?;
    }
    Ok(())
}

/// What the paper predicts for an algorithm in one of its examples, in page I/Os of the result of Grace-PAX; the result
/// itself, which nothing writes here, is left out.
fn predicted(setting: &Setting, algorithm: &str) -> Option<f64> {
    let rows = (1u64 << setting.rows_log2) as f64;
    let columns = |count: f64| rows * count * COLUMN_BYTES as f64;
    let side = Side {
        rows: columns(8.0),
        keys: columns(1.0),
        payload: columns(3.0),
        keys_and_payload: columns(4.0),
        needed_pages: 1.0,
    };
    let join = Join { first: side, second: side, result: 0.0, row_ids: rows / 2.0 * size_of::<u64>() as f64 };
    let memory = Memory {
        available: setting.memory_bytes as f64,
        overhead: TABLE_OVERHEAD,
        rows: side.rows,
        keys: side.keys,
        payload: side.payload,
        row_ids: rows * size_of::<u64>() as f64,
        needed_pages: 1.0,
        page: setting.page_bytes as f64,
    };
    let cost = |family: &[Algorithm]| {
        family.iter().find(|algorithm| memory.suffices(**algorithm)).map(|algorithm| join.cost(*algorithm))
    };
    let grace_pax = [Algorithm::GracePax, Algorithm::GracePaxTwoPasses];
    let own = match algorithm {
        "rare" => cost(&[Algorithm::Rare, Algorithm::RareEpsilon, Algorithm::RareTwoPasses]),
        "grace_pax" => cost(&grace_pax),
        "grace_rows" => cost(&[Algorithm::Grace, Algorithm::GraceTwoPasses]),
        _ => None,
    };
    Some(own? / cost(&grace_pax)?)
}

fn page(arguments: &Arguments, cells: &[Cell]) -> String {
    let mut page = format!(
        "# RARE-join and its rivals, measured\n\nMade by\n\n```sh\ncargo run --release -p nandina-bench --bin rare_bench -- \
         --rows-log2 {} --drive-rows-log2 {} --runs {} --threads {}\n```\n\non {}.\n\nTwo tables of eight columns of four bytes and 2^{} rows ({}) each; \
         three columns of each, besides the keys, are in the result, of which the greatest values are taken. All I/O is direct, \
         and nothing is cached between queries. Times are from handing over the query to its row; bytes and requests are all that \
         the device was asked for.\n\n\
         `grace_rows` reads whole pages, `grace_pax` the columns that are needed; both spill all of both inputs once memory \
         is short. `hybrid` keeps what fits. `rare` joins keys and row ids and fetches the other columns for the result, `digest` \
         does so with whole pages. `auto` is what the planner chooses. Where `auto` and \
         `hybrid` read as much, they ran the same plan, and what lies between their times is the machine's doing.\n",
        arguments.rows_log2,
        arguments.drive_rows_log2,
        arguments.runs,
        arguments.threads,
        Machine::this(&arguments.work).describe(),
        arguments.rows_log2,
        quantity::bytes(table_bytes(arguments.rows_log2)),
    );
    write_examples(&mut page, arguments, cells);
    let file = arguments.out.with_extension("svg");
    let file = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let _ = write!(
        page,
        "\n## Selectivity, place and memory\n\nOn the disk, with pages of {}. *Scattered*: rows that match are anywhere in both tables; \
         *clustered*: they are next to each other.\n\n![seconds by selectivity]({file})\n",
        quantity::bytes(arguments.page)
    );
    write_grid(&mut page, cells.iter().filter(|cell| cell.setting.drive.is_none()));
    for drive in &arguments.drives {
        let _ = write!(
            page,
            "\n## On a model of a drive: {drive}\n\nTables of 2^{} rows ({}); a real directory that is as slow as the model.\n",
            arguments.drive_rows_log2,
            quantity::bytes(table_bytes(arguments.drive_rows_log2))
        );
        write_grid(&mut page, cells.iter().filter(|cell| cell.setting.drive.as_ref() == Some(drive)));
    }
    page
}

fn write_examples(page: &mut String, arguments: &Arguments, cells: &[Cell]) {
    page.push_str(
        "\n## The paper's examples\n\nHalf of each table's rows match one of the other's. The paper predicts 1.94 and 1.12 times the \
         speed of Grace-PAX for its examples, with a result that is written. *Predicted* are its equations for the bytes of these tables \
         and this memory, without the result, with row ids of eight bytes and hash tables of twice their contents.\n",
    );
    for ((example, part), page_bytes) in
        EXAMPLES.iter().flat_map(|example| PAGES_OF_EXAMPLES.map(|page_bytes| (*example, page_bytes)))
    {
        let memory_bytes = memory_bytes(arguments.rows_log2, part);
        let of_example = |cell: &&Cell| {
            let setting = &cell.setting;
            setting.place == Place::Half
                && setting.memory_bytes == memory_bytes
                && setting.page_bytes == page_bytes
        };
        let of_example: Vec<&Cell> = cells.iter().filter(of_example).collect();
        let grace =
            of_example.iter().find(|cell| cell.algorithm == "grace_pax").and_then(|cell| cell.seconds);
        let mut table = Table::new(
            1,
            [
                "algorithm",
                "time (s)",
                "read",
                "written",
                "requests",
                "mean depth",
                "÷ grace_pax",
                "predicted",
            ],
        );
        for cell in of_example {
            let ratio = cell.seconds.zip(grace).map(|(own, grace)| own / grace);
            let shown = |ratio: Option<f64>| ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
            table.row([
                cell.algorithm.to_owned(),
                seconds(cell),
                quantity::bytes(cell.bytes_read),
                quantity::bytes(cell.bytes_written),
                cell.requests.to_string(),
                format!("{:.1}", cell.mean_depth),
                shown(ratio),
                shown(predicted(&cell.setting, cell.algorithm)),
            ]);
        }
        let _ = write!(
            page,
            "\n### The {example}: memory 1/{part} of a table ({}), pages of {}\n\n{}",
            quantity::bytes(memory_bytes),
            quantity::bytes(page_bytes),
            table.to_markdown()
        );
    }
}

/// Settings of a grid in the order they were measured, with the times of all algorithms.
fn rows_of<'a>(cells: impl Iterator<Item = &'a Cell>) -> Vec<(&'a Setting, Vec<&'a Cell>)> {
    let mut rows: Vec<(&Setting, Vec<&Cell>)> = Vec::new();
    for cell in cells.filter(|cell| cell.setting.place != Place::Half) {
        match rows.last_mut() {
            Some((setting, of_setting)) if **setting == cell.setting => of_setting.push(cell),
            _ => rows.push((&cell.setting, vec![cell])),
        }
    }
    rows
}

fn write_grid<'a>(page: &mut String, cells: impl Iterator<Item = &'a Cell>) {
    let header =
        ["rows", "matching", "memory"].into_iter().chain(ALGORITHMS).chain(["read by auto", "auto ÷ best"]);
    let mut table = Table::new(1, header);
    let mut regrets = Vec::new();
    for (setting, of_setting) in rows_of(cells) {
        let best = of_setting.iter().filter_map(|cell| cell.seconds).fold(f64::INFINITY, f64::min);
        let auto = of_setting.iter().find(|cell| cell.algorithm == "auto");
        let regret = auto.and_then(|cell| cell.seconds).map(|seconds| seconds / best);
        regrets.extend(regret);
        let mut row = vec![
            format!("{:?}", setting.place).to_lowercase(),
            format!("{} %", setting.selectivity as f64 / 10.0),
            quantity::bytes(setting.memory_bytes),
        ];
        row.extend(of_setting.iter().map(|cell| seconds(cell)));
        row.push(auto.map_or_else(String::new, |cell| quantity::bytes(cell.bytes_read)));
        row.push(regret.map_or_else(String::new, |regret| format!("{regret:.2}")));
        table.row(row);
    }
    let median = quantity::median(regrets.iter().copied()).unwrap_or(f64::NAN);
    let worst = regrets.iter().copied().fold(f64::NAN, f64::max);
    let _ = write!(
        page,
        "\nSeconds. What was chosen takes {median:.2} times the best algorithm's time in the median, {worst:.2} at worst.\n\n{}",
        table.to_markdown()
    );
}

fn write_plot(path: &Path, arguments: &Arguments, cells: &[Cell]) -> Result<()> {
    let mut panels = Vec::new();
    for place in [Place::Scattered, Place::Clustered] {
        for part in MEMORY_PARTS {
            let memory_bytes = memory_bytes(arguments.rows_log2, part);
            let value = |algorithm: &str, selectivity: u64| {
                let found = cells.iter().find(|cell| {
                    let setting = &cell.setting;
                    setting.drive.is_none()
                        && setting.place == place
                        && setting.memory_bytes == memory_bytes
                        && setting.selectivity == selectivity
                        && cell.algorithm == algorithm
                });
                found.and_then(|cell| cell.seconds)
            };
            let series = ALGORITHMS.map(|algorithm| {
                Series::new(
                    algorithm,
                    SELECTIVITIES.map(|selectivity| value(algorithm, selectivity)).to_vec(),
                )
            });
            panels.push(Panel {
                title: format!("{place:?}, memory {}", quantity::bytes(memory_bytes)),
                x_label: "rows that match (%)".to_owned(),
                y_label: "seconds".to_owned(),
                categories: SELECTIVITIES
                    .map(|selectivity| format!("{}", selectivity as f64 / 10.0))
                    .to_vec(),
                series: series.to_vec(),
                bound: None,
                is_logarithmic: true,
            });
        }
    }
    write_svg(path, "Joins of two stored tables", &panels, MEMORY_PARTS.len())
}
