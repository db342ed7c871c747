//! What can be written on the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// SQL on data that does not fit in memory.
///
/// Without a command, runs SQL from -c and -f, from standard input, or in an interactive shell:
///
///   nandina -c "SELECT count(*) FROM 'orders.parquet'"
///   nandina shop                      opens (or makes) the database in the folder 'shop'
#[derive(Debug, Parser)]
#[command(name = "nandina", version, verbatim_doc_comment, args_conflicts_with_subcommands = true)]
#[command(subcommand_negates_reqs = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Folder of the database; without one, tables live in memory.
    #[arg(value_name = "DB")]
    pub database: Option<PathBuf>,

    /// Run this SQL and leave; can be given several times.
    #[arg(short = 'c', long = "command", value_name = "SQL")]
    pub sql: Vec<String>,

    /// Run the SQL in this file and leave; can be given several times.
    #[arg(short, long, value_name = "FILE")]
    pub file: Vec<PathBuf>,

    /// How results are written [default: table, or what the name of --output says].
    #[arg(long, value_enum)]
    pub format: Option<Format>,

    /// Write results to this file.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Rows that a table shows at most; 0 shows all.
    #[arg(long, default_value_t = 40, value_name = "N")]
    pub rows: usize,

    /// Print how long each statement took.
    #[arg(long)]
    pub timing: bool,

    #[command(flatten)]
    pub engine: EngineArguments,
}

/// Options that every command has.
#[derive(Debug, Clone, Args)]
pub struct EngineArguments {
    /// Memory that may be used, e.g. 256MB, 2GiB or 50% [default: 60% of what the process may use].
    #[arg(short, long, value_name = "LIMIT", env = "NANDINA_MEMORY_LIMIT")]
    pub memory_limit: Option<String>,

    /// Folder for what does not fit in memory.
    #[arg(long, value_name = "DIR", env = "NANDINA_TEMP_DIR")]
    pub temp_dir: Option<PathBuf>,

    /// Most bytes of temporary files, e.g. 20GB [default: what the disk has].
    #[arg(long, value_name = "SIZE")]
    pub temp_quota: Option<String>,

    /// Workers per operator [default: the number of processors].
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,

    /// How requests reach the disk: auto, io_uring or threads.
    #[arg(long, value_name = "BACKEND", default_value = "auto", hide_default_value = true)]
    pub io_backend: String,

    /// Let files take as long as on this model of a drive, for experiments: disk, sata-ssd, nvme and so on.
    #[arg(long, value_name = "MODEL", hide = true)]
    pub drive: Option<String>,

    /// Only read the database; another process may have it open.
    #[arg(long)]
    pub read_only: bool,

    /// Do not show progress of long queries.
    #[arg(long)]
    pub no_progress: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Load files into a table of a database.
    Import(ImportArguments),
    /// Generate the TPC-H benchmark's data.
    Tpch(TpchArguments),
    /// Copy a database into an empty folder.
    ///
    /// A program that has the database open copies it with VACUUM INTO 'folder'.
    Backup(BackupArguments),
    /// Show the log of a database: what changed rows, and opening it would read.
    Log(LogArguments),
    /// Measure the device behind a folder, for later sessions to plan with.
    Calibrate(CalibrateArguments),
    /// Show a join whose build side is several times the memory limit.
    Demo(DemoArguments),
    /// Run a query and print what it took, as JSON (a step of the demo).
    #[command(hide = true)]
    Measure(MeasureArguments),
}

#[derive(Debug, Args)]
pub struct ImportArguments {
    /// Folder of the database; made if it does not exist.
    #[arg(value_name = "DB")]
    pub database: PathBuf,
    /// Name of the table.
    pub table: String,
    /// Parquet, CSV, JSON or Arrow files, folders of them, or patterns.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<String>,
    /// Add to a table that exists.
    #[arg(long, conflicts_with = "replace")]
    pub append: bool,
    /// Replace a table that exists.
    #[arg(long)]
    pub replace: bool,
    #[command(flatten)]
    pub engine: EngineArguments,
}

#[derive(Debug, Args)]
pub struct BackupArguments {
    /// Folder of the database.
    #[arg(value_name = "DB")]
    pub database: PathBuf,
    /// Folder for the copy; made if it does not exist.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    #[command(flatten)]
    pub engine: EngineArguments,
}

#[derive(Debug, Args)]
pub struct LogArguments {
    /// Folder of the database.
    #[arg(value_name = "DB")]
    pub database: PathBuf,
    #[command(flatten)]
    pub engine: EngineArguments,
}

#[derive(Debug, Args)]
pub struct TpchArguments {
    /// Folder for the files, or of the database.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Scale factor; 1 is about 1 GB of CSV.
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
    /// What to make.
    #[arg(long, value_enum, default_value_t = TpchFormat::Parquet)]
    pub format: TpchFormat,
    /// Only these tables, e.g. orders,lineitem.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub tables: Vec<String>,
    #[command(flatten)]
    pub engine: EngineArguments,
}

#[derive(Debug, Args)]
pub struct CalibrateArguments {
    /// Folder on the device; it must be possible to write there.
    #[arg(value_name = "DIR", default_value = ".")]
    pub directory: PathBuf,
    /// Measure everything: a minute or more, and gigabytes written and deleted.
    #[arg(long)]
    pub full: bool,
    /// Draw what was found on a page, e.g. out.html; out.json beside it holds the figures.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Print the whole profile as JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub engine: EngineArguments,
}

#[derive(Debug, Args)]
pub struct DemoArguments {
    /// Scale factor of the TPC-H data.
    #[arg(long, default_value_t = 2.0)]
    pub scale: f64,
    #[command(flatten)]
    pub engine: EngineArguments,
}

#[derive(Debug, Args)]
pub struct MeasureArguments {
    pub sql: String,
    #[command(flatten)]
    pub engine: EngineArguments,
}

/// How results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for people.
    Table,
    /// CSV with a header line.
    Csv,
    /// One JSON object per line.
    Json,
    /// A Parquet file.
    Parquet,
}

/// What `tpch` makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TpchFormat {
    /// Parquet files.
    Parquet,
    /// CSV files with a header line.
    Csv,
    /// Tables of a database.
    Tables,
}
