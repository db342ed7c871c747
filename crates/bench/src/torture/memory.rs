//! Is the memory limit kept? Operators over rows of every shape, and what was resident.
//!
//! The program promises the limit plus 64 MB from 32 MB up.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use super::{Trial, Verdict};
use crate::error::{BenchError, Result};
use crate::program::{Program, Ran, run};
use crate::random::Random;

const PATIENCE: Duration = Duration::from_secs(600);
pub const PROMISED_BYTES: u64 = 64 << 20;
/// Bytes of an input.
const INPUT_BYTES: usize = 160 << 20;

/// How rows look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub columns: usize,
    /// Bytes of a row, about.
    pub row_bytes: usize,
    /// Whether every other column is a list.
    pub is_nested: bool,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nested = if self.is_nested { ", nested" } else { "" };
        write!(f, "{} × {} B{nested}", self.columns, self.row_bytes / self.columns)
    }
}

impl Shape {
    pub const ALL: [Shape; 10] = [
        Shape::new(1, 10, false),
        Shape::new(4, 100, false),
        Shape::new(4, 2_000, false),
        Shape::new(2, 64_000, false),
        Shape::new(40, 400, true),
        Shape::new(100, 2_000, false),
        Shape::new(100, 10_000, true),
        Shape::new(400, 8_000, false),
        Shape::new(1000, 8_000, false),
        Shape::new(1000, 64_000, false),
    ];

    const fn new(columns: usize, row_bytes: usize, is_nested: bool) -> Self {
        Self { columns, row_bytes, is_nested }
    }

    pub fn rows(&self) -> usize {
        (INPUT_BYTES / self.row_bytes).min(2_000_000)
    }

    /// A query that makes the rows: `k`, a key of which each exists four times, and `c1` and so on.
    fn sql(&self) -> String {
        let bytes = self.row_bytes / self.columns;
        let column = |number: usize| {
            let text = match bytes {
                0..12 => format!("value * {number}"),
                12..33 => format!("substr(md5((value + {number})::TEXT), 1, {bytes})"),
                _ => format!("repeat(substr(md5((value + {number})::TEXT), 1, 16), {})", bytes.div_ceil(16)),
            };
            let nested = self.is_nested && number % 2 == 1;
            if nested { format!("[{text}, NULL] AS c{number}") } else { format!("{text} AS c{number}") }
        };
        let rows = self.rows();
        let columns: Vec<String> = (1..self.columns).map(column).collect();
        let columns: String = columns.iter().flat_map(|column| [", ", column]).collect();
        format!(
            "SELECT value % {} AS k{columns} FROM generate_series(1, {rows}) AS series(value)",
            (rows / 4).max(1)
        )
    }

    /// The column that operators carry: the last, or the key.
    fn last(&self) -> String {
        if self.columns > 1 { format!("c{}", self.columns - 1) } else { "k".to_owned() }
    }
}

/// What is done with the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Select,
    CopyText,
    CopyParquet,
    Table,
    Sort,
    Join,
    LeftJoin,
    FullJoin,
    Window,
    GroupAll,
    GroupLists,
    Distinct,
    Recursion,
}

impl Operation {
    pub const ALL: [Operation; 13] = [
        Operation::Select,
        Operation::CopyText,
        Operation::CopyParquet,
        Operation::Table,
        Operation::Sort,
        Operation::Join,
        Operation::LeftJoin,
        Operation::FullJoin,
        Operation::Window,
        Operation::GroupAll,
        Operation::GroupLists,
        Operation::Distinct,
        Operation::Recursion,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Operation::Select => "select",
            Operation::CopyText => "copy text",
            Operation::CopyParquet => "copy parquet",
            Operation::Table => "create table",
            Operation::Sort => "sort",
            Operation::Join => "join",
            Operation::LeftJoin => "left join",
            Operation::FullJoin => "full join",
            Operation::Window => "window",
            Operation::GroupAll => "group",
            Operation::GroupLists => "group lists",
            Operation::Distinct => "distinct",
            Operation::Recursion => "recursion",
        }
    }

    fn sql(self, shape: &Shape) -> String {
        let (rows, last) = (shape.rows(), shape.last());
        let text = if shape.is_nested { "copy.json" } else { "copy.csv" };
        let copy = |query: &str| format!("COPY ({query}) TO '{text}'");
        let join = |kind: &str| {
            let other = "(SELECT * FROM t WHERE k % 3 > 0) b";
            copy(&format!("SELECT a.*, b.{last} AS other FROM t a {kind} {other} ON a.k = b.k"))
        };
        match self {
            Operation::Select => "SELECT * FROM t".to_owned(),
            Operation::CopyText => copy("SELECT * FROM t"),
            Operation::CopyParquet => "COPY (SELECT * FROM t) TO 'copy.parquet'".to_owned(),
            Operation::Table => "CREATE OR REPLACE TABLE copied AS SELECT * FROM t".to_owned(),
            Operation::Sort => copy(&format!("SELECT * FROM t ORDER BY {last}, k")),
            Operation::Join => join("JOIN"),
            Operation::LeftJoin => join("LEFT JOIN"),
            Operation::FullJoin => join("FULL JOIN"),
            Operation::Window => copy(&format!(
                "SELECT *, row_number() OVER (PARTITION BY k % 10 ORDER BY {last}) AS n FROM t"
            )),
            Operation::GroupAll => {
                let all = (1..shape.columns).map(|number| format!(", max(c{number}) AS c{number}"));
                copy(&format!("SELECT k{} FROM t GROUP BY k", all.collect::<String>()))
            }
            Operation::GroupLists => format!(
                "SELECT count(*), max(array_length(l)) FROM (SELECT k, array_agg({last}) AS l FROM t GROUP BY k)"
            ),
            Operation::Distinct => copy("SELECT DISTINCT * FROM t"),
            Operation::Recursion => format!(
                "WITH RECURSIVE r AS (SELECT k AS at, {last} AS v FROM t
                 UNION SELECT at + {rows}, v FROM r WHERE at < {}) SELECT count(*) FROM r",
                rows * 2
            ),
        }
    }
}

/// One cell of the grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    pub shape: Shape,
    pub is_file: bool,
    pub operation: Operation,
    pub limit_bytes: u64,
    pub threads: usize,
}

/// Writes the rows of a shape into `folder`, as a table and as a Parquet file.
pub fn make(program: &Program, folder: &Path, shape: &Shape) -> Result<()> {
    let sql = format!("CREATE TABLE t AS {}; COPY t TO 'rows.parquet'", shape.sql());
    let mut command = program.command(folder);
    let made =
        run(command.args(["rows", "--memory-limit", "2GB", "-c", &sql]), &folder.join("make"), PATIENCE)?;
    match made.is_ok() {
        true => Ok(()),
        false => Err(BenchError::Setup(made.describe(&format!("cannot make rows of {shape}")))),
    }
}

/// Runs one cell over what [`make`] made.
pub fn measure(program: &Program, folder: &Path, cell: &Cell) -> Result<Ran> {
    let mut command = program.command(folder);
    let limit = format!("{}MB", cell.limit_bytes >> 20);
    // A copied table needs a database to be in.
    command.arg(if cell.is_file { "copies" } else { "rows" });
    command.args(["--temp-dir", "temp", "--format", "json", "--output", "result", "--memory-limit", &limit]);
    command.args(["--threads", &cell.threads.to_string(), "-c"]);
    let sql = cell.operation.sql(&cell.shape);
    let sql = if cell.is_file { sql.replace("FROM t", "FROM 'rows.parquet'") } else { sql };
    run(command.arg(sql), &folder.join("run"), PATIENCE)
}

/// Whether a query was told that its memory limit is too small for it.
pub fn is_refused(ran: &Ran) -> bool {
    !ran.is_ok() && ran.err.to_lowercase().contains("raise the limit")
}

/// The limit, for rows of any shape.
pub(super) struct Resident;

impl Trial for Resident {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn about(&self) -> &'static str {
        "sorts, joins, windows, aggregations, recursions and copies of 160 MB of rows of 1 to 1,000 columns and 10 B to \
         64 KB, from tables and from Parquet, at 32 to 256 MB; at most the limit plus 64 MB are resident"
    }

    fn attempt(&mut self, program: &Program, folder: &Path, random: &mut Random) -> Result<Verdict> {
        let shape = random.one_of(Shape::ALL);
        let temp = folder.join("temp");
        std::fs::create_dir_all(&temp).map_err(BenchError::file(&temp))?;
        make(program, folder, &shape)?;
        for _ in 0..3 {
            let cell = Cell {
                shape,
                is_file: random.chance(50),
                operation: random.one_of(Operation::ALL),
                limit_bytes: random.one_of([32, 64, 128, 256]) << 20,
                threads: random.one_of([1, 2, 2, 4]),
            };
            let ran = measure(program, folder, &cell)?;
            if let Some(mistake) = ran.mistake() {
                return Ok(Verdict::Broke(mistake));
            }
            if !ran.is_ok() && !is_refused(&ran) {
                return Ok(Verdict::Broke(ran.describe(&format!("{cell:?}"))));
            }
            if ran.peak_bytes > cell.limit_bytes + PROMISED_BYTES {
                let over = ran.peak_bytes.saturating_sub(cell.limit_bytes) >> 20;
                return Ok(Verdict::Broke(ran.describe(&format!("{cell:?}: the limit + {over} MB"))));
            }
        }
        Ok(Verdict::Held("kept"))
    }
}
