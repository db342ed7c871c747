//! How much do scans of Parquet files read, against the columns that they need?
//!
//! ```text
//! cargo build --release && cargo run --release -p nandina-bench --bin scan_reads
//! ```
//!
//! TPC-H's `lineitem` as several writers write it, dropped from the page cache before every run; one to sixteen of its
//! columns are looked at by the program in a process of its own. Read is what the system says the process has had read
//! from devices; needed are the bytes of the column chunks. Writers other than the program's own are Python packages,
//! which are left out where they are not installed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use datafusion::parquet::file::reader::FileReader as _;
use datafusion::parquet::file::serialized_reader::SerializedFileReader;
use nandina_bench::machine::Machine;
use nandina_bench::program::{Program, run};
use nandina_bench::system::evict;
use nandina_bench::table::Table;
use nandina_bench::{BenchError, Result, quantity, runner};

const PATIENCE: Duration = Duration::from_secs(1800);
/// How many columns are read.
const COLUMNS: [usize; 5] = [1, 2, 4, 8, 16];

/// Makes `{writer}.parquet` of `nandina.parquet`, in the folder where it runs.
const WRITERS: [(&str, &str); 4] = [
    (
        "pyarrow",
        "import pyarrow.parquet as p; p.write_table(p.read_table('nandina.parquet'), 'pyarrow.parquet')",
    ),
    (
        "pyarrow-small-pages",
        "import pyarrow.parquet as p; p.write_table(p.read_table('nandina.parquet'), 'pyarrow-small-pages.parquet', \
         row_group_size=200000, data_page_size=65536, compression='zstd', write_page_index=True)",
    ),
    (
        "duckdb",
        "import duckdb; duckdb.execute(\"COPY (FROM 'nandina.parquet') TO 'duckdb.parquet' (FORMAT parquet)\")",
    ),
    ("polars", "import polars; polars.read_parquet('nandina.parquet').write_parquet('polars.parquet')"),
];

/// Measure what scans of Parquet files read.
#[derive(Debug, Parser)]
#[command(name = "scan_reads")]
struct Arguments {
    /// The program; the one beside this unless told.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Scale factor of TPC-H.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Memory limits.
    #[arg(long, value_delimiter = ',', default_value = "64MB,512MB", value_parser = quantity::parse_bytes)]
    limits: Vec<u64>,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Python with the packages of other writers.
    #[arg(long, default_value = "python3")]
    python: String,
    /// Files that exist, in place of those that are made: `lineitem`, as somebody else wrote it.
    #[arg(long, value_delimiter = ',')]
    files: Vec<PathBuf>,
    /// Scratch folder, on the device to be used.
    #[arg(long, default_value = "/tmp/nandina-scan-reads")]
    work: PathBuf,
    /// Markdown file for the results.
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    runner::main(|arguments| measure(&arguments))
}

fn measure(arguments: &Arguments) -> Result<()> {
    let program = Program::beside(arguments.program.as_deref())?;
    std::fs::create_dir_all(&arguments.work).map_err(BenchError::file(&arguments.work))?;
    let files = match arguments.files.as_slice() {
        [] => make(arguments, &program)?,
        files => files
            .iter()
            .map(|file| file.canonicalize().map_err(BenchError::file(file)))
            .collect::<Result<_>>()?,
    };
    let head = ["file", "limit"].map(str::to_owned).into_iter();
    let mut table = Table::new(1, head.chain(COLUMNS.map(|columns| format!("{columns} of 16"))));
    let mut worst = 0.0_f64;
    for file in &files {
        for &limit in &arguments.limits {
            let mut cells = vec![stem(file), quantity::bytes(limit)];
            for count in COLUMNS {
                let (read, needed) = scan(arguments, &program, file, limit, count)?;
                let ratio = read as f64 / needed as f64;
                worst = worst.max(ratio);
                let needed = quantity::bytes(needed);
                eprintln!("{}, {count} columns: {} of {needed}", stem(file), quantity::bytes(read));
                cells.push(format!("{ratio:.2} × {needed}"));
            }
            table.row(cells);
        }
    }
    let summary = format!("At most {worst:.2} times what the columns hold were read.\n");
    println!("{}\n{summary}", table.to_text());
    let Some(out) = &arguments.out else { return Ok(()) };
    let page = format!(
        "# Bytes that scans of Parquet files read\n\nMade by\n\n```sh\ncargo build --release && cargo run --release -p \
         nandina-bench --bin scan_reads -- --scale {} --threads {}\n```\n\non {}. Every cell is the program in a process of \
         its own, over `lineitem` that is not in the page cache: bytes that the process had read from the device, as a \
         multiple of the compressed bytes of the columns that the query looks at.\n\n{}\n{summary}",
        arguments.scale,
        arguments.threads,
        Machine::this(&arguments.work).describe(),
        table.to_markdown()
    );
    runner::write(out, page)
}

/// Writes the files of all writers that there are.
fn make(arguments: &Arguments, program: &Program) -> Result<Vec<PathBuf>> {
    let folder = &arguments.work;
    let own = folder.join("nandina.parquet");
    let sql = format!("COPY (SELECT * FROM tpch('lineitem', {})) TO 'nandina.parquet'", arguments.scale);
    let made = run(program.command(folder).args(["-c", &sql]), &folder.join("make"), PATIENCE)?;
    if !made.is_ok() {
        return Err(BenchError::Setup(made.describe("cannot make lineitem")));
    }
    let mut files = vec![own];
    for (writer, script) in WRITERS {
        let mut command = Command::new(&arguments.python);
        command.current_dir(folder).args(["-c", script]);
        let file = folder.join(format!("{writer}.parquet"));
        match run(&mut command, &folder.join(writer), PATIENCE) {
            Ok(written) if written.is_ok() => files.push(file),
            Ok(failed) if failed.err.contains("ModuleNotFoundError") => {
                eprintln!("{writer} is not installed")
            }
            Ok(failed) => return Err(BenchError::Setup(failed.describe(writer))),
            Err(error) => eprintln!("{writer} is left out: {error}"),
        }
    }
    Ok(files)
}

/// Looks at so many columns of a file. Returns the bytes that were read, and those that had to be.
fn scan(
    arguments: &Arguments,
    program: &Program,
    file: &Path,
    limit: u64,
    count: usize,
) -> Result<(u64, u64)> {
    let opened = File::open(file).map_err(BenchError::file(file))?;
    evict(&opened).map_err(BenchError::file(file))?;
    let damaged = |error| BenchError::Setup(format!("'{}' is no Parquet file: {error}", file.display()));
    let reader = SerializedFileReader::new(opened).map_err(damaged)?;
    let metadata = reader.metadata();
    let all = metadata.file_metadata().schema_descr().num_columns();
    let is_read = |column: usize| column.is_multiple_of((all / count).max(1));
    let (mut needed, mut looked_at) = (0, Vec::new());
    for group in metadata.row_groups() {
        let chunks = group.columns().iter().enumerate().filter(|(column, _)| is_read(*column));
        needed += chunks.map(|(_, chunk)| chunk.compressed_size().max(0) as u64).sum::<u64>();
    }
    for (_, column) in
        metadata.file_metadata().schema_descr().columns().iter().enumerate().filter(|(at, _)| is_read(*at))
    {
        // Statistics answer neither this nor a part of it.
        looked_at.push(format!("count(NULLIF(\"{0}\", \"{0}\"))", column.name()));
    }
    drop(reader);
    // The footer has been read.
    evict(&File::open(file).map_err(BenchError::file(file))?).map_err(BenchError::file(file))?;
    let sql = format!("SELECT {} FROM '{}'", looked_at.join(", "), file.display());
    let (limit, threads) = (limit.to_string(), arguments.threads.to_string());
    let mut command = program.command(&arguments.work);
    command.args(["--memory-limit", &limit, "--threads", &threads, "-c", &sql]);
    let ran = run(&mut command, &arguments.work.join("scan"), PATIENCE)?;
    if !ran.is_ok() {
        return Err(BenchError::Setup(ran.describe("a scan failed")));
    }
    // A folder in memory is not read from a device, and some systems do not tell. A few pages may have stayed in memory.
    if ran.device_read_bytes < needed / 2 {
        return Err(BenchError::Setup(format!(
            "the system says that {} of '{}' were read, of {} that the columns have: files have to lie on a device (--work, \
             --files), and /proc/PID/io has to be readable",
            quantity::bytes(ran.device_read_bytes),
            file.display(),
            quantity::bytes(needed)
        )));
    }
    Ok((ran.device_read_bytes, needed))
}

fn stem(file: &Path) -> String {
    file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
}
