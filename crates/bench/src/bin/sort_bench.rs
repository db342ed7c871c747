//! SSD-sort beside the merge sort of whole rows: the grid of its thesis, by width of rows, memory, order of the input and device.
//!
//! ```text
//! cargo run --release -p nandina-bench --bin sort_bench
//! ```
//!
//! Ghodsnia, *Effective Use of SSDs in Database Systems* (thesis, Waterloo 2018), chapter 4: Figures 4.3 to 4.6 and Tables 4.3
//! and 4.4 compare the two for rows of 16 to 4096 bytes and 1 to 64 MB of memory.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray as _, Int64Array, RecordBatch, StringBuilder};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use clap::Parser;
use nandina_bench::machine::Machine;
use nandina_bench::random::Random;
use nandina_bench::stored::{Bed, NewTable, make_table};
use nandina_bench::table::Table;
use nandina_bench::{BenchError, Result, quantity, runner};
use serde::Serialize;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Time sorts of stored tables.
#[derive(Debug, Parser)]
#[command(name = "sort_bench")]
struct Arguments {
    /// Bytes of each table.
    #[arg(long, value_parser = quantity::parse_bytes, default_value = "1GiB")]
    bytes: u64,
    /// The same for models of drives.
    #[arg(long, value_parser = quantity::parse_bytes, default_value = "128MiB")]
    drive_bytes: u64,
    /// Models of drives, beside the disk.
    #[arg(long, value_delimiter = ',', default_value = "sata-ssd")]
    drives: Vec<String>,
    /// Memory limits.
    #[arg(long, value_delimiter = ',', value_parser = quantity::parse_bytes, default_value = "1MiB,8MiB,64MiB")]
    limits: Vec<u64>,
    /// Page sizes.
    #[arg(long, value_delimiter = ',', value_parser = quantity::parse_bytes, default_value = "32KiB")]
    pages: Vec<u64>,
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// A query that takes longer than so many seconds is given up.
    #[arg(long, default_value_t = 60.0)]
    patience: f64,
    /// Folder for the tables, on the disk to be measured. Tables that are there are used.
    #[arg(long, default_value_os_t = std::env::temp_dir().join("sort-bench"))]
    work: PathBuf,
    /// Markdown file for the results; JSON goes beside it.
    #[arg(long, default_value = "docs/benchmarks/ssd-sort.md")]
    out: PathBuf,
}

const ALGORITHMS: [&str; 3] = ["merge", "ssd", "auto"];
const ROW_BYTES: [u64; 5] = [16, 100, 256, 2048, 4096];
const KEY_BYTES: u64 = 8;

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Setting {
    drive: Option<String>,
    page_bytes: u64,
    row_bytes: u64,
    rows: Rows,
    memory_bytes: u64,
}

/// In which order the keys come, and of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum Rows {
    Random,
    /// Of a query over the same table: they have no ids, and what is fetched has been written before.
    RandomOfQuery,
    Sorted,
}

impl Rows {
    const ALL: [Self; 3] = [Self::Random, Self::RandomOfQuery, Self::Sorted];

    fn is_sorted(self) -> bool {
        self == Self::Sorted
    }

    fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::RandomOfQuery => "random, of a query",
            Self::Sorted => "sorted",
        }
    }

    fn sql(self, row_bytes: u64) -> String {
        let table = table_name(row_bytes, self.is_sorted());
        match self {
            Self::Random | Self::Sorted => format!("SELECT k, p FROM {table} ORDER BY k"),
            Self::RandomOfQuery => format!(
                "SELECT k, p FROM (SELECT k, p FROM {table} WHERE k % 2 = 0 UNION ALL SELECT k, p FROM {table} WHERE k % 2 = 1) \
                 ORDER BY k"
            ),
        }
    }
}

#[derive(Debug, Clone, Serialize)]
struct Cell {
    setting: Setting,
    algorithm: &'static str,
    /// `None`: it was given up.
    seconds: Option<f64>,
    first_seconds: Option<f64>,
    bytes_read: u64,
    bytes_written: u64,
}

fn main() -> ExitCode {
    runner::main(|arguments| run(&arguments))
}

fn run(arguments: &Arguments) -> Result<()> {
    let mut cells = Vec::new();
    let devices = std::iter::once(None).chain(arguments.drives.iter().map(Some));
    for drive in devices {
        let bytes = if drive.is_some() { arguments.drive_bytes } else { arguments.bytes };
        for &page_bytes in &arguments.pages {
            cells.extend(measure(arguments, drive, page_bytes, bytes)?);
        }
    }
    runner::write_json(&arguments.out.with_extension("json"), &cells)?;
    runner::write(&arguments.out, page(arguments, &cells))
}

fn table_name(row_bytes: u64, is_sorted: bool) -> String {
    format!("{}_{row_bytes}", if is_sorted { "sorted" } else { "random" })
}

/// A power of two, for keys that are all different and in no order.
fn rows_of(bytes: u64, row_bytes: u64) -> u64 {
    let rows = (bytes / row_bytes).max(1);
    if rows.is_power_of_two() { rows } else { rows.next_power_of_two() / 2 }
}

fn measure(arguments: &Arguments, drive: Option<&String>, page_bytes: u64, bytes: u64) -> Result<Vec<Cell>> {
    let folder = arguments.work.join(format!("{bytes}-{page_bytes}"));
    for row_bytes in ROW_BYTES {
        for is_sorted in [false, true] {
            fill(&folder, row_bytes, is_sorted, page_bytes, rows_of(bytes, row_bytes))?;
        }
    }
    let runtime = runner::runtime(arguments.threads)?;
    let bed = {
        let _entered = runtime.enter();
        Bed::open(&folder, drive.map(String::as_str), arguments.threads)?
    };
    let mut cells = Vec::new();
    for rows in Rows::ALL {
        for row_bytes in ROW_BYTES {
            for &memory_bytes in &arguments.limits {
                let setting = Setting { drive: drive.cloned(), page_bytes, row_bytes, rows, memory_bytes };
                for algorithm in ALGORITHMS {
                    let count = rows_of(bytes, row_bytes);
                    let cell = runtime.block_on(one_run(arguments, &bed, &setting, algorithm, count))?;
                    println!("{}", line(&cell));
                    cells.push(cell);
                }
            }
        }
    }
    Ok(cells)
}

async fn one_run(
    arguments: &Arguments,
    bed: &Bed,
    setting: &Setting,
    algorithm: &'static str,
    rows: u64,
) -> Result<Cell> {
    let settings =
        [("memory_limit", setting.memory_bytes.to_string()), ("sort_algorithm", algorithm.to_owned())];
    let sql = setting.rows.sql(setting.row_bytes);
    let mut check = Check::default();
    let patience = Duration::from_secs_f64(arguments.patience);
    let measured = bed.run(&settings, &sql, patience, &mut |batch| check.add(batch)).await?;
    if let Some(measured) = &measured
        && (measured.rows != rows || !check.is_ordered || check.sum != sum_of_keys(rows))
    {
        return Err(BenchError::Setup(format!("{sql} by {algorithm}: rows are missing or out of order")));
    }
    let io = measured.as_ref().map(|measured| measured.io.clone()).unwrap_or_default();
    Ok(Cell {
        setting: setting.clone(),
        algorithm,
        seconds: measured.as_ref().map(|measured| measured.seconds),
        first_seconds: measured.as_ref().map(|measured| measured.first_seconds),
        bytes_read: io.bytes_read,
        bytes_written: io.bytes_written,
    })
}

/// Whether rows come in order, and none is lost.
struct Check {
    last: i64,
    is_ordered: bool,
    sum: u64,
}

impl Default for Check {
    fn default() -> Self {
        Self { last: i64::MIN, is_ordered: true, sum: 0 }
    }
}

impl Check {
    fn add(&mut self, batch: &RecordBatch) {
        let Some(keys) = batch.column(0).as_primitive_opt::<Int64Type>() else {
            self.is_ordered = false;
            return;
        };
        for &key in keys.values() {
            self.is_ordered &= self.last <= key;
            self.last = key;
            self.sum = self.sum.wrapping_add(key as u64);
        }
    }
}

/// The keys are the numbers below that of the rows.
fn key(number: u64, rows: u64, is_sorted: bool) -> i64 {
    let bits = rows.trailing_zeros();
    let place = if is_sorted { number } else { scattered(number, bits) };
    place as i64
}

/// Another number of so many bits for each: a multiplication, with the bits in the opposite order.
fn scattered(number: u64, bits: u32) -> u64 {
    let mask = (1u64 << bits) - 1;
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) & mask;
    if bits == 0 { 0 } else { mixed.reverse_bits() >> (u64::BITS - bits) }
}

fn sum_of_keys(rows: u64) -> u64 {
    (0..rows).fold(0u64, |sum, number| sum.wrapping_add(number))
}

fn fill(folder: &Path, row_bytes: u64, is_sorted: bool, page_bytes: u64, rows: u64) -> Result<()> {
    let payload_bytes = (row_bytes - KEY_BYTES) as usize;
    let payload = if payload_bytes == 8 { DataType::Int64 } else { DataType::Utf8 };
    let schema: SchemaRef = Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, false),
        Field::new("p", payload.clone(), false),
    ]));
    let table = NewTable {
        name: table_name(row_bytes, is_sorted),
        schema: Arc::clone(&schema),
        page_bytes: page_bytes as usize,
    };
    let batch_rows = ((1 << 20) / row_bytes).max(1);
    let mut random = Random::new(row_bytes);
    let batches = (0..rows).step_by(batch_rows as usize).map(move |start| {
        let numbers = start..(start + batch_rows).min(rows);
        let keys: Int64Array = numbers.clone().map(|number| key(number, rows, is_sorted)).collect();
        let texts: ArrayRef = if payload == DataType::Int64 {
            Arc::new(numbers.map(|_| random.number() as i64).collect::<Int64Array>())
        } else {
            let mut texts = StringBuilder::new();
            for _ in numbers {
                texts.append_value(letters(&mut random, payload_bytes));
            }
            Arc::new(texts.finish())
        };
        match RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(keys), texts]) {
            Ok(batch) => batch,
            Err(error) => unreachable!("columns of one length and of their types: {error}"),
        }
    });
    make_table(folder, table, batches)
}

/// Letters that no encoding makes much smaller.
fn letters(random: &mut Random, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 8);
    while text.len() < bytes {
        let number = random.number();
        text.extend((0..8).map(|place| char::from(b'0' + (number >> (place * 8)) as u8 % 75)));
    }
    text.truncate(bytes);
    text
}

fn shown(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "–".to_owned(), quantity::seconds)
}

fn line(cell: &Cell) -> String {
    format!(
        "{:8} {:>4} B {:18} {:>7} {:5} {:>6} s first {:>6} s {:>9} read {:>9} written",
        cell.setting.drive.as_deref().unwrap_or("disk"),
        cell.setting.row_bytes,
        cell.setting.rows.name(),
        quantity::bytes(cell.setting.memory_bytes),
        cell.algorithm,
        shown(cell.seconds),
        shown(cell.first_seconds),
        quantity::bytes(cell.bytes_read),
        quantity::bytes(cell.bytes_written)
    )
}

fn page(arguments: &Arguments, cells: &[Cell]) -> String {
    let mut page = format!(
        "# SSD-sort and the merge sort of whole rows\n\nMade by\n\n```sh\ncargo run --release -p nandina-bench --bin sort_bench -- \
         --bytes {} --drive-bytes {} --patience {} --threads {}\n```\n\non {}.\n\nTables of an 8-byte key and a text; `ORDER BY` the key, of all rows, into a sink \
         that checks their order and the sum of the keys. All I/O is direct, and nothing is cached. `merge` sorts whole rows; `ssd` sorts \
         keys and row ids and fetches the texts in order; rows of a query (a union of \
         two halves of the table) have no ids: `ssd` writes their texts once and fetches those; `auto` is what the planner chooses. A dash: more than {} s.\n\n\
         The thesis has tables of 2 GB, pages of one or two rows, and a buffer pool of a quarter to all of the table beside the sort's \
         memory; there SSD-sort wins in 28 of 48 settings, and in 11 of 12 of sorted keys. Here is no pool: the memory is all there \
         is, and a page of {} is read for a row of it.\n",
        quantity::bytes(arguments.bytes).replace(' ', ""),
        quantity::bytes(arguments.drive_bytes).replace(' ', ""),
        arguments.patience,
        arguments.threads,
        Machine::this(&arguments.work).describe(),
        arguments.patience,
        arguments.pages.iter().map(|bytes| quantity::bytes(*bytes)).collect::<Vec<_>>().join(" or "),
    );
    let devices = std::iter::once(None).chain(arguments.drives.iter().map(Some));
    for drive in devices {
        for &page_bytes in &arguments.pages {
            let bytes = if drive.is_some() { arguments.drive_bytes } else { arguments.bytes };
            let _ = write!(
                page,
                "\n## {}, tables of {}, pages of {}\n",
                drive.map_or_else(
                    || "On the disk".to_owned(),
                    |name| format!("On a model of a drive: {name}")
                ),
                quantity::bytes(bytes),
                quantity::bytes(page_bytes)
            );
            let of_device = cells
                .iter()
                .filter(|cell| (cell.setting.drive.as_ref(), cell.setting.page_bytes) == (drive, page_bytes));
            write_table(&mut page, of_device.collect(), arguments.patience);
        }
    }
    page
}

fn write_table(page: &mut String, cells: Vec<&Cell>, patience: f64) {
    let mut table = Table::new(
        1,
        [
            "keys",
            "row",
            "memory",
            "merge (s)",
            "ssd (s)",
            "auto (s)",
            "first: merge",
            "ssd",
            "written: merge",
            "ssd",
            "auto ÷ best",
        ],
    );
    let (mut regrets, mut wins) = (Vec::new(), 0);
    for of_setting in cells.chunk_by(|one, next| one.setting == next.setting) {
        let [merge, ssd, auto] = of_setting else {
            unreachable!("every setting is measured with each algorithm, one after the other")
        };
        let best = of_setting.iter().filter_map(|cell| cell.seconds).fold(f64::INFINITY, f64::min);
        // Of what was given up it is known that it takes longer than that.
        let regret = best.is_finite().then(|| auto.seconds.unwrap_or(patience) / best);
        regrets.extend(regret);
        let wins_here = merge.seconds.unwrap_or(f64::INFINITY) > ssd.seconds.unwrap_or(f64::INFINITY);
        wins += usize::from(wins_here);
        let setting = &merge.setting;
        table.row([
            setting.rows.name().to_owned(),
            format!("{} B", setting.row_bytes),
            quantity::bytes(setting.memory_bytes),
            shown(merge.seconds),
            shown(ssd.seconds),
            shown(auto.seconds),
            shown(merge.first_seconds),
            shown(ssd.first_seconds),
            quantity::bytes(merge.bytes_written),
            quantity::bytes(ssd.bytes_written),
            regret.map_or_else(String::new, |regret| {
                format!("{}{regret:.2}", if auto.seconds.is_none() { "> " } else { "" })
            }),
        ]);
    }
    let median = quantity::median(regrets.iter().copied()).unwrap_or(f64::NAN);
    let worst = regrets.iter().copied().fold(f64::NAN, f64::max);
    let settings = cells.len() / ALGORITHMS.len();
    let _ = write!(
        page,
        "\nSSD-sort is faster in {wins} of {settings} settings. What was chosen takes {median:.2} times the faster one's time in the \
         median, {worst:.2} at worst.\n\n{}",
        table.to_markdown()
    );
}
