//! Does compressing spilled pages pay, and does `auto` know? A join and an aggregation that spill, on the real disk and
//! on a model of a volume, each with `temp_compression` off, on and auto in turn.
//!
//! ```text
//! cargo build --release --workspace --bin nandina --bin compression_bench
//! target/release/compression_bench --case real:<TPC-H folder>:128MB:3 --case cloud-volume:<TPC-H folder>:32MB:5
//! ```
//!
//! Every run is a process of its own, whose session knows nothing about the device when it begins: what `auto` takes to
//! find out is part of its time. Ratios are those of runs that followed each other.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::str::FromStr;

use clap::Parser;
use nandina_bench::machine::Machine;
use nandina_bench::plot::{Panel, Series, write_svg};
use nandina_bench::table::Table;
use nandina_bench::{BenchError, Result, quantity, runner};
use serde::Serialize;

/// Time queries that spill, by whether spilled pages are compressed.
#[derive(Debug, Parser)]
#[command(name = "compression_bench")]
struct Arguments {
    /// A drive ('real', or a model that `nandina --drive` knows), a folder with TPC-H as Parquet, a memory limit, and how
    /// many rounds there are, in each of which every setting has its turn.
    #[arg(long = "case", value_name = "DRIVE:FOLDER:LIMIT:ROUNDS", required = true)]
    cases: Vec<Case>,
    /// Folder for temporary files, on the disk to be measured.
    #[arg(long, default_value = "/tmp/nandina-compression-bench")]
    work: PathBuf,
    /// The program to measure [default: the one beside this].
    #[arg(long)]
    nandina: Option<PathBuf>,
    /// Markdown file for the results; figures and plot go beside it.
    #[arg(long, default_value = "docs/benchmarks/compression.md")]
    out: PathBuf,
}

#[derive(Clone, Debug, Serialize)]
struct Case {
    drive: String,
    /// Folder of the data.
    #[serde(skip)]
    folder: PathBuf,
    data: String,
    limit_bytes: u64,
    #[serde(skip)]
    rounds: usize,
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let [drive, folder, limit, rounds] = parts[..] else {
            return Err(format!("'{text}' is not like real:/data/tpch:128MB:5"));
        };
        let rounds = rounds.parse().map_err(|_| format!("'{rounds}' is no number of rounds"))?;
        let folder = PathBuf::from(folder);
        let data = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(Case { drive: drive.to_owned(), folder, data, limit_bytes: quantity::parse_bytes(limit)?, rounds })
    }
}

impl Case {
    fn title(&self) -> String {
        let drive = if self.drive == "real" { "the real disk" } else { &self.drive };
        format!("{drive}, {}, limit {}", self.data, quantity::bytes(self.limit_bytes))
    }
}

const SETTINGS: [&str; 3] = ["off", "on", "auto"];

const WORKLOADS: [(&str, &str); 2] = [
    (
        "join",
        "SELECT count(*), sum(l_extendedprice), min(l_comment), max(o_comment) FROM lineitem JOIN orders \
         ON l_orderkey = o_orderkey",
    ),
    (
        "aggregation",
        "SELECT count(*), sum(q), min(c) FROM (SELECT l_orderkey, l_suppkey, sum(l_quantity) AS q, \
         min(l_comment) AS c FROM lineitem GROUP BY l_orderkey, l_suppkey)",
    ),
];

/// What one run gave.
#[derive(Clone, Debug, Serialize)]
struct Run {
    seconds: f64,
    /// Of the pages that were spilled: bytes in memory, and as written.
    page_bytes: u64,
    written_bytes: u64,
}

/// All runs of one query with one setting.
#[derive(Clone, Debug, Serialize)]
struct Cell {
    #[serde(flatten)]
    case: Case,
    workload: &'static str,
    setting: &'static str,
    runs: Vec<Run>,
    /// Median of the ratios of its runs to those without compression in the same round.
    beside_off: Option<f64>,
}

fn main() -> ExitCode {
    runner::main(|arguments| run(&arguments))
}

fn run(arguments: &Arguments) -> Result<()> {
    std::fs::create_dir_all(&arguments.work).map_err(BenchError::file(&arguments.work))?;
    let mut cells = Vec::new();
    let mut page = head(arguments);
    for case in &arguments.cases {
        let mut measured = Vec::new();
        for (workload, sql) in WORKLOADS {
            measured.extend(measure(arguments, case, workload, sql)?);
        }
        let table = table(&measured);
        println!("{}\n\n{}", case.title(), table.to_text());
        page.push_str(&format!("\n## {}\n\n{}", capitalised(&case.title()), table.to_markdown()));
        cells.extend(measured);
    }
    runner::write(&arguments.out.with_extension("md"), page)?;
    runner::write_json(&arguments.out.with_extension("json"), &cells)?;
    let panels: Vec<Panel> = arguments.cases.iter().map(|case| panel(case, &cells)).collect();
    write_svg(&arguments.out.with_extension("svg"), "Spilled pages, compressed or not", &panels, 2)
}

/// Runs a query with every setting. They take turns, each round beginning with another one.
fn measure(arguments: &Arguments, case: &Case, workload: &'static str, sql: &str) -> Result<Vec<Cell>> {
    let empty = |setting| Cell { case: case.clone(), workload, setting, runs: Vec::new(), beside_off: None };
    let mut cells = SETTINGS.map(empty);
    for round in 0..case.rounds.max(1) {
        for turn in 0..cells.len() {
            let number = (round + turn) % cells.len();
            if let Some(cell) = cells.get_mut(number) {
                cell.runs.push(one_run(arguments, case, cell.setting, sql)?);
            }
        }
    }
    let off: Vec<f64> =
        cells.first().map_or(&[][..], |cell| &cell.runs).iter().map(|run| run.seconds).collect();
    for cell in &mut cells {
        let ratios = cell.runs.iter().zip(&off).map(|(run, off)| run.seconds / off);
        cell.beside_off = quantity::median(ratios);
    }
    Ok(cells.to_vec())
}

fn one_run(arguments: &Arguments, case: &Case, setting: &str, sql: &str) -> Result<Run> {
    let report = arguments.work.join("run.html");
    let mut query = sql.to_owned();
    for table in ["lineitem", "orders"] {
        let file = case.folder.join(format!("{table}.parquet"));
        for word in ["FROM", "JOIN"] {
            query =
                query.replace(&format!("{word} {table}"), &format!("{word} '{}' AS {table}", file.display()));
        }
    }
    let mut command = Command::new(nandina(arguments)?);
    command.arg("-m").arg(case.limit_bytes.to_string()).arg("--temp-dir").arg(&arguments.work);
    if case.drive != "real" {
        command.args(["--drive", &case.drive]);
    }
    command.arg("-c").arg(format!(
        "SET auto_calibrate = off; SET temp_compression = {setting}; EXPLAIN ANALYZE (REPORT '{}') {query}",
        report.display()
    ));
    let output = command.output().map_err(|source| BenchError::Program {
        program: "nandina".to_owned(),
        source,
        hint: "build it with 'cargo build --release --workspace --bin nandina', or name it with --nandina",
    })?;
    if !output.status.success() {
        return Err(BenchError::Setup(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    read_report(&report.with_extension("json"))
}

fn nandina(arguments: &Arguments) -> Result<PathBuf> {
    if let Some(program) = &arguments.nandina {
        return Ok(program.clone());
    }
    let this = std::env::current_exe().map_err(|error| BenchError::Setup(error.to_string()))?;
    Ok(this.with_file_name("nandina"))
}

fn read_report(path: &Path) -> Result<Run> {
    let text = std::fs::read_to_string(path).map_err(BenchError::file(path))?;
    let report: serde_json::Value = serde_json::from_str(&text)
        .map_err(|source| BenchError::Json { path: path.to_path_buf(), source })?;
    let seconds = report.get("elapsed_seconds").and_then(serde_json::Value::as_f64).unwrap_or(f64::NAN);
    let total = |name| report.get("plan").map_or(0, |plan| sum(plan, name));
    Ok(Run { seconds, page_bytes: total("spilled_page_bytes"), written_bytes: total("spilled_bytes") })
}

/// The sum of a figure over all operators of a plan.
fn sum(plan: &serde_json::Value, name: &str) -> u64 {
    let own = plan.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
    let inputs = plan.get("inputs").and_then(serde_json::Value::as_array);
    own + inputs.into_iter().flatten().map(|input| sum(input, name)).sum::<u64>()
}

fn table(cells: &[Cell]) -> Table {
    let header = [
        "",
        "temp_compression",
        "seconds",
        "beside off",
        "spilled (MB)",
        "written (MB)",
        "written ÷ spilled",
    ];
    let mut table = Table::new(2, header);
    for cell in cells {
        let megabytes = |bytes: fn(&Run) -> u64| {
            quantity::median(cell.runs.iter().map(|run| bytes(run) as f64 / 1e6)).unwrap_or(0.0)
        };
        let (pages, written) = (megabytes(|run| run.page_bytes), megabytes(|run| run.written_bytes));
        let seconds = quantity::median(cell.runs.iter().map(|run| run.seconds)).unwrap_or(f64::NAN);
        table.row([
            cell.workload.to_owned(),
            cell.setting.to_owned(),
            quantity::seconds(seconds),
            cell.beside_off.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
            format!("{pages:.0}"),
            format!("{written:.0}"),
            format!("{:.2}", written / pages),
        ]);
    }
    table
}

fn panel(case: &Case, cells: &[Cell]) -> Panel {
    let of_case: Vec<&Cell> = cells.iter().filter(|cell| cell.case.title() == case.title()).collect();
    let series = WORKLOADS.iter().map(|(workload, _)| {
        let value = |setting: &&str| {
            let cell = of_case.iter().find(|cell| cell.workload == *workload && cell.setting == *setting)?;
            cell.beside_off
        };
        Series::new(*workload, SETTINGS.iter().map(value).collect())
    });
    Panel {
        title: case.title(),
        x_label: "temp_compression".to_owned(),
        y_label: "time ÷ time without".to_owned(),
        categories: SETTINGS.map(str::to_owned).to_vec(),
        series: series.collect(),
        bound: Some(1.0),
        is_logarithmic: false,
    }
}

fn head(arguments: &Arguments) -> String {
    let cases: Vec<String> = arguments
        .cases
        .iter()
        .map(|case| {
            let limit = quantity::bytes(case.limit_bytes).replace(' ', "");
            format!("    --case {}:<{}>:{limit}:{}", case.drive, case.data, case.rounds)
        })
        .collect();
    let queries: Vec<String> = WORKLOADS.iter().map(|(name, sql)| format!("-- {name}\n{sql};\n")).collect();
    let file = arguments.out.with_extension("svg");
    let svg = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    format!(
        "# Compressing spilled pages\n\nDoes it pay, and does `SET temp_compression = 'auto'` know? Made by\n\n```sh\n\
         cargo build --release --workspace --bin nandina --bin compression_bench\n\
         target/release/compression_bench \\\n{}\n```\n\non {}. TPC-H data as Parquet files; each run is a \
         process of its own, the settings take turns, times are medians. *beside off* is the median of the ratios to the \
         run without compression in the same round. `cloud-volume` is the model of a volume of 125 MB/s and 3,000 \
         requests per second: the query's input comes from it as well.\n\n```sql\n{}```\n\n![time beside time without \
         compression]({svg})\n",
        cases.join(" \\\n"),
        Machine::this(&arguments.work).describe(),
        queries.concat(),
    )
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
