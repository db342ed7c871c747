//! The engines, and how one of them runs one query under a cap.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use clap::ValueEnum;
use datafusion::parquet::file::reader::{FileReader as _, SerializedFileReader};
use serde::Deserialize;

use super::cells::{Outcome, Run, Usage};
use super::suites::{Data, Query, Source, Suite};
use crate::error::{BenchError, Result};
use crate::machine;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    Duckdb,
    Nandina,
    Datafusion,
    /// DataFusion told to prefer its sort-merge join, whose sorts can spill.
    DatafusionSmj,
    Polars,
}

impl Engine {
    pub const ALL: [Engine; 5] =
        [Engine::Duckdb, Engine::Nandina, Engine::Datafusion, Engine::DatafusionSmj, Engine::Polars];

    pub fn name(self) -> &'static str {
        match self {
            Engine::Duckdb => "DuckDB",
            Engine::Nandina => "Nandina",
            Engine::Datafusion => "DataFusion",
            Engine::DatafusionSmj => "DataFusion, sort-merge",
            Engine::Polars => "Polars",
        }
    }

    fn driver(self) -> Option<&'static str> {
        match self {
            Engine::Nandina => None,
            Engine::Duckdb => Some("duckdb_peer.py"),
            Engine::Datafusion | Engine::DatafusionSmj => Some("datafusion_peer.py"),
            Engine::Polars => Some("polars_peer.py"),
        }
    }
}

/// Programs that are written into the work folder, so that the benchmark runs without its sources.
const PEERS: [(&str, &str); 8] = [
    ("capped.py", include_str!("../../peers/capped.py")),
    ("peer.py", include_str!("../../peers/peer.py")),
    ("duckdb_peer.py", include_str!("../../peers/duckdb_peer.py")),
    ("datafusion_peer.py", include_str!("../../peers/datafusion_peer.py")),
    ("polars_peer.py", include_str!("../../peers/polars_peer.py")),
    ("duckdb_tables.py", include_str!("../../peers/duckdb_tables.py")),
    ("h2o_data.py", include_str!("../../peers/h2o_data.py")),
    ("wide_data.py", include_str!("../../peers/wide_data.py")),
];

const PACKAGES: [&str; 4] = ["duckdb", "datafusion", "polars", "pyarrow"];

/// A limit that no machine reaches, for runs without one.
const NO_CAP_BYTES: u64 = 1 << 50;

/// Places and settings that all runs share.
#[derive(Debug)]
pub struct Workshop {
    pub suite: &'static Suite,
    /// Folder for drivers, the Python environment and temporary files.
    pub work: PathBuf,
    /// Folder of the Parquet files.
    pub data: PathBuf,
    pub nandina: PathBuf,
    /// Another program than `capped.py` that caps a command.
    pub capped: Option<PathBuf>,
    pub threads: usize,
    pub timeout_seconds: u64,
}

/// One run of one engine.
#[derive(Debug)]
pub struct Attempt {
    pub outcome: Outcome,
    pub message: Option<String>,
    pub run: Run,
    /// The values of the first rows, behind the number of rows if that is not one.
    pub row: Vec<String>,
    pub version: Option<String>,
}

/// What a driver prints.
#[derive(Deserialize)]
struct Report {
    /// How many rows there were.
    rows: usize,
    /// The values of the first of them.
    values: Vec<String>,
    seconds: f64,
    version: String,
}

impl Workshop {
    /// Makes what is missing: drivers, the Python environment with the engines, the data.
    pub fn prepare(&self, engines: &[Engine], scale: f64) -> Result<()> {
        let peers = self.peers();
        std::fs::create_dir_all(&peers).map_err(BenchError::file(&peers))?;
        for (name, text) in PEERS {
            let path = peers.join(name);
            std::fs::write(&path, text).map_err(BenchError::file(&path))?;
        }
        if engines.iter().any(|engine| engine.driver().is_some()) && !self.python().exists() {
            self.make_environment()?;
        }
        self.make_files(scale)?;
        match self.suite.source {
            Source::Parquet => Ok(()),
            Source::OwnTables => self.make_tables(engines),
        }
    }

    fn make_files(&self, scale: f64) -> Result<()> {
        let tables = self.suite.tables.iter().copied();
        let missing: Vec<&str> = tables.filter(|table| !self.path_of(table).exists()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        println!("generating {} at scale {scale}", missing.join(", "));
        match self.suite.data {
            Data::Tpch => {
                let mut command = Command::new(&self.nandina);
                command.arg("tpch").arg(&self.data);
                command.args(["--scale", &scale.to_string(), "--tables", &missing.join(",")]);
                run_to_end(&mut command, NANDINA_HINT)?;
            }
            Data::H2o => self.make_by("h2o_data.py", scale * 1e7)?,
            Data::Wide => self.make_by("wide_data.py", scale * 1e6)?,
        }
        Ok(())
    }

    fn make_by(&self, program: &str, rows: f64) -> Result<()> {
        if !self.python().exists() {
            self.make_environment()?;
        }
        let mut command = Command::new(self.python());
        let rows = (rows as u64).to_string();
        command.arg(self.peers().join(program)).args(["--rows", &rows, "--out"]).arg(&self.data);
        run_to_end(&mut command, PYTHON_HINT).map(drop)
    }

    /// Imports the files into each engine's own tables.
    fn make_tables(&self, engines: &[Engine]) -> Result<()> {
        for &engine in engines {
            let Some(database) = self.database(engine).filter(|database| !database.exists()) else {
                continue;
            };
            println!("importing into {}", engine.name());
            let made = self.import(engine, &database);
            if made.is_err() {
                // Half a database would be taken for a whole one next time.
                let _ = remove_folder(&database);
                let _ = std::fs::remove_file(&database);
            }
            made?;
        }
        Ok(())
    }

    fn import(&self, engine: Engine, database: &Path) -> Result<()> {
        if engine == Engine::Duckdb {
            let mut command = Command::new(self.python());
            command.arg(self.peers().join("duckdb_tables.py")).arg("--database").arg(database);
            command.arg("--data").arg(&self.data).args(["--tables", &self.suite.tables.join(",")]);
            return run_to_end(&mut command, PYTHON_HINT).map(drop);
        }
        for table in self.suite.tables {
            let mut command = Command::new(&self.nandina);
            command.arg("import").arg(database).arg(table).arg(self.path_of(table));
            run_to_end(&mut command, NANDINA_HINT)?;
        }
        Ok(())
    }

    /// Where an engine keeps its own tables, if it reads those.
    fn database(&self, engine: Engine) -> Option<PathBuf> {
        let name = match engine {
            Engine::Nandina => "tables-nandina",
            Engine::Duckdb => "tables.duckdb",
            _ => return None,
        };
        (self.suite.source == Source::OwnTables).then(|| self.data.join(name))
    }

    fn make_environment(&self) -> Result<()> {
        let environment = self.environment();
        println!("installing {} into {}", PACKAGES.join(", "), environment.display());
        run_to_end(Command::new("python3").args(["-m", "venv"]).arg(&environment), PYTHON_HINT)?;
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        let made = run_to_end(Command::new(self.python()).args(install).args(PACKAGES), PYTHON_HINT);
        if made.is_err() {
            // Half an environment would be taken for a whole one next time. What is left is only in the way.
            let _ = std::fs::remove_dir_all(&environment);
        }
        made.map(drop)
    }

    fn environment(&self) -> PathBuf {
        self.work.join("environment")
    }

    fn python(&self) -> PathBuf {
        self.environment().join("bin").join("python")
    }

    fn peers(&self) -> PathBuf {
        self.work.join("peers")
    }

    /// Version of the program `nandina`.
    pub fn nandina_version(&self) -> Result<String> {
        let output = run_to_end(Command::new(&self.nandina).arg("--version"), NANDINA_HINT)?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(text.trim_start_matches("nandina").trim().to_owned())
    }

    /// Runs a query once, in a process of its own under the cap, on files that are not cached.
    pub fn attempt(
        &self,
        engine: Engine,
        query: &Query,
        limit_bytes: Option<u64>,
        cap_bytes: Option<u64>,
    ) -> Result<Attempt> {
        for file in self.input(engine)? {
            machine::drop_from_page_cache(&file);
        }
        let temp = self.work.join("temp");
        remove_folder(&temp)?;
        std::fs::create_dir_all(&temp).map_err(BenchError::file(&temp))?;
        let usage_file = self.work.join("usage.json");
        let _ = std::fs::remove_file(&usage_file);
        let mut command = match &self.capped {
            Some(program) => Command::new(program),
            None => {
                let mut command = Command::new("python3");
                command.arg(self.peers().join("capped.py"));
                command
            }
        };
        command
            .args(["--memory", &cap_bytes.unwrap_or(NO_CAP_BYTES).to_string()])
            .args(["--timeout", &self.timeout_seconds.to_string()])
            .arg("--json")
            .arg(&usage_file)
            .arg("--")
            .args(self.command(engine, query, limit_bytes, &temp))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null());
        machine::touch_memory(cap_bytes.unwrap_or(u64::MAX).min(MOST_TOUCHED_BYTES));
        let output = command.output().map_err(|source| program_error(&command, source, PYTHON_HINT))?;
        let written = rows_written(&temp)?;
        remove_folder(&temp)?;
        let said = self.without_places(&String::from_utf8_lossy(&output.stderr));
        let Ok(text) = std::fs::read(&usage_file) else {
            return Err(BenchError::Setup(format!("the capping program reported nothing: {}", said.trim())));
        };
        let usage: Usage =
            serde_json::from_slice(&text).map_err(|source| BenchError::Json { path: usage_file, source })?;
        let mut attempt = judge(engine, usage, &String::from_utf8_lossy(&output.stdout), &said);
        if let Some(rows) = written {
            attempt.row = vec![rows.to_string()];
        }
        Ok(attempt)
    }

    /// The files that an engine reads.
    fn input(&self, engine: Engine) -> Result<Vec<PathBuf>> {
        let Some(database) = self.database(engine) else {
            return Ok(self.suite.tables.iter().map(|table| self.path_of(table)).collect());
        };
        if database.is_file() {
            return Ok(vec![database]);
        }
        let entries = std::fs::read_dir(&database).map_err(BenchError::file(&database))?;
        Ok(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect())
    }

    fn path_of(&self, table: &str) -> PathBuf {
        self.data.join(format!("{table}.parquet"))
    }

    /// Program and arguments.
    fn command(&self, engine: Engine, query: &Query, limit_bytes: Option<u64>, temp: &Path) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        let threads = self.threads.to_string();
        let database = self.database(engine);
        let Some(driver) = engine.driver() else {
            let mut words = vec![text(&self.nandina)];
            let mut sql = String::new();
            match &database {
                Some(database) => words.extend([text(database), "--read-only".into()]),
                None => {
                    for table in self.suite.tables {
                        let file = text(&self.path_of(table));
                        sql.push_str(&format!("CREATE VIEW {table} AS SELECT * FROM '{file}'; "));
                    }
                }
            }
            sql.push_str(&query.line_with(temp));
            for word in [
                "-c",
                &sql,
                "--format",
                "csv",
                "--no-progress",
                "--timing",
                "--threads",
                &threads,
                "--temp-dir",
                &text(temp),
            ] {
                words.push(word.to_owned());
            }
            if let Some(bytes) = limit_bytes {
                words.extend(["--memory-limit".into(), format!("{}MiB", bytes >> 20)]);
            }
            return words;
        };
        let mut words = vec![text(&self.python()), text(&self.peers().join(driver))];
        for (option, value) in [
            ("--query", query.name.to_owned()),
            ("--sql", query.line_with(temp)),
            ("--data", text(&self.data)),
            ("--tables", self.suite.tables.join(",")),
            ("--memory", limit_bytes.unwrap_or(0).to_string()),
            ("--threads", threads),
            ("--temp", text(temp)),
        ] {
            words.extend([option.to_owned(), value]);
        }
        if let Some(database) = &database {
            words.extend(["--database".into(), text(database)]);
        }
        if engine == Engine::DatafusionSmj {
            words.push("--sort-merge-join".into());
        }
        words
    }

    /// Messages are published: folders of this machine have no place in them.
    fn without_places(&self, text: &str) -> String {
        text.replace(&self.work.display().to_string(), "…").replace(&self.data.display().to_string(), "…")
    }
}

/// Most memory made ready before each run: as much as most engines touch at scale 10.
const MOST_TOUCHED_BYTES: u64 = 4 << 30;

const PYTHON_HINT: &str = "Python 3 with its venv module is needed for other engines and for the cap";
const NANDINA_HINT: &str = "build it with `cargo build --release -p nandina-cli`, or name it with --nandina";

fn program_error(command: &Command, source: std::io::Error, hint: &'static str) -> BenchError {
    BenchError::Program { program: command.get_program().to_string_lossy().into_owned(), source, hint }
}

fn run_to_end(command: &mut Command, hint: &'static str) -> Result<Output> {
    let output = command.output().map_err(|source| program_error(command, source, hint))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let program = command.get_program().to_string_lossy().into_owned();
    Err(BenchError::Setup(format!("{program} failed: {}; {hint}", said.trim())))
}

fn remove_folder(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(BenchError::File { path: path.to_path_buf(), source: error })
        }
        _ => Ok(()),
    }
}

/// How long the last statement took, as the program says it: `Time: 3.21 s`.
fn printed_seconds(said: &str) -> Option<f64> {
    let line = said.lines().rev().find_map(|line| line.strip_prefix("Time: "))?;
    let parts: Vec<&str> = line.split(' ').collect();
    let values = parts.chunks_exact(2).map(|part| {
        let [value, unit] = part else { return None };
        let unit = match *unit {
            "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "min" => 60.0,
            _ => return None,
        };
        Some(value.parse::<f64>().ok()? * unit)
    });
    values.sum::<Option<f64>>().filter(|_| !parts.is_empty() && parts.len().is_multiple_of(2))
}

/// Reads what a run left behind.
fn judge(engine: Engine, usage: Usage, printed: &str, said: &str) -> Attempt {
    const KILLED: i32 = -9;
    let run = Run { seconds: usage.wall_s, usage };
    let ended =
        |outcome, message| Attempt { outcome, message, run: run.clone(), row: Vec::new(), version: None };
    if run.usage.timed_out {
        return ended(Outcome::TimedOut, None);
    }
    match run.usage.status {
        0 => {}
        KILLED => return ended(Outcome::Killed, None),
        status if status < 0 => {
            return ended(
                Outcome::Failed,
                Some(format!("ended by signal {}; {}", -status, first_message(said))),
            );
        }
        _ => return ended(Outcome::Failed, Some(first_message(said))),
    }
    if engine == Engine::Nandina {
        let rows = printed.lines().count().saturating_sub(1);
        let values = printed.lines().skip(1).take(MOST_ROWS).flat_map(csv_fields).collect();
        let row = answer(rows, values);
        let run = Run { seconds: printed_seconds(said).unwrap_or(run.seconds), usage: run.usage };
        return Attempt { outcome: Outcome::Ok, message: None, row, version: None, run };
    }
    match printed.lines().last().map(serde_json::from_str::<Report>) {
        Some(Ok(report)) => {
            let run = Run { seconds: report.seconds, usage: run.usage };
            Attempt {
                outcome: Outcome::Ok,
                message: None,
                run,
                row: answer(report.rows, report.values),
                version: Some(report.version),
            }
        }
        _ => ended(Outcome::Failed, Some(format!("it printed no result: {}", first_message(said)))),
    }
}

/// Rows of the Parquet file that a query wrote, if it wrote one and ended.
fn rows_written(folder: &Path) -> Result<Option<i64>> {
    for entry in std::fs::read_dir(folder).map_err(BenchError::file(folder))?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "parquet") {
            let file = std::fs::File::open(&path).map_err(BenchError::file(&path))?;
            let reader = SerializedFileReader::new(file);
            return Ok(reader.ok().map(|reader| reader.metadata().file_metadata().num_rows()));
        }
    }
    Ok(None)
}

/// Rows of a result whose values are compared; of the others only the number is.
const MOST_ROWS: usize = 100;

/// Values that are compared, and characters of each, so that the files of results stay small.
const MOST_VALUES: usize = 2000;
const MOST_TEXT: usize = 200;

fn answer(rows: usize, values: Vec<String>) -> Vec<String> {
    let values = values.into_iter().take(MOST_VALUES).map(shortened);
    if rows == 1 {
        return values.collect();
    }
    std::iter::once(format!("{rows} rows")).chain(values).collect()
}

fn shortened(value: String) -> String {
    if value.chars().nth(MOST_TEXT).is_none() {
        return value;
    }
    let beginning: String = value.chars().take(MOST_TEXT).collect();
    format!("{beginning}… of {} bytes", value.len())
}

/// The line that says what went wrong: of a Python traceback the exception, else the first line.
fn first_message(text: &str) -> String {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let traceback = text.lines().position(|line| line.starts_with("Traceback"));
    let line = match traceback {
        Some(at) => text.lines().skip(at + 1).find(|line| !line.is_empty() && !line.starts_with(' ')),
        None => lines.next(),
    };
    const MOST_CHARACTERS: usize = 240;
    line.unwrap_or("no message").trim().chars().take(MOST_CHARACTERS).collect()
}

/// The fields of one line of CSV.
fn csv_fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if is_quoted && characters.peek() == Some(&'"') => {
                characters.next();
                push(&mut fields, '"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            other => push(&mut fields, other),
        }
    }
    fields
}

fn push(fields: &mut [String], character: char) {
    if let Some(field) = fields.last_mut() {
        field.push(character);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(status: i32, timed_out: bool) -> Usage {
        Usage {
            wall_s: 2.0,
            user_s: 1.0,
            sys_s: 0.5,
            peak_rss: 10,
            peak_charged: 20,
            own_read: None,
            own_written: None,
            disk_read: 0,
            disk_written: 0,
            status,
            timed_out,
        }
    }

    #[test]
    fn fields_of_csv() {
        assert_eq!(csv_fields(r#"1,"a, ""b""", c,"#), ["1", "a, \"b\"", " c", ""]);
    }

    #[test]
    fn times_are_read_as_they_are_printed() {
        assert_eq!(printed_seconds("Time: 2 min 5 s"), Some(125.0));
        assert_eq!(printed_seconds("Time: 250 ms"), Some(0.25));
        assert_eq!(printed_seconds("Time: 5 hours"), None);
        assert_eq!(printed_seconds("Time: "), None);
        assert_eq!(printed_seconds("error: no\n"), None);
    }

    #[test]
    fn runs_are_judged_by_how_they_ended() {
        let judged =
            |status, timed_out, printed, said| judge(Engine::Duckdb, usage(status, timed_out), printed, said);
        assert_eq!(judged(-9, true, "", "").outcome, Outcome::TimedOut);
        assert_eq!(judged(-9, false, "", "").outcome, Outcome::Killed);
        let traceback = "Traceback (most recent call last):\n  File \"x\"\nMemoryError: too much\n\nAdvice\n";
        let failed = judged(1, false, "", traceback);
        assert_eq!(
            (failed.outcome, failed.message.as_deref()),
            (Outcome::Failed, Some("MemoryError: too much"))
        );
        assert_eq!(judged(0, false, "nothing", "").outcome, Outcome::Failed);
        let answered =
            judged(0, false, r#"{"rows": 1, "values": ["1", "x"], "seconds": 1.25, "version": "9"}"#, "");
        assert_eq!((answered.outcome, answered.run.seconds, answered.row.len()), (Outcome::Ok, 1.25, 2));
        let ours = judge(Engine::Nandina, usage(0, false), "a,b\n1,\"x,y\"\n", "");
        assert_eq!((ours.run.seconds, ours.row), (2.0, vec!["1".to_owned(), "x,y".to_owned()]));
        let timed = judge(Engine::Nandina, usage(0, false), "a\n1\n", "Time: 1.00 ms\nTime: 1.25 s\n");
        assert_eq!((timed.run.seconds, timed.run.usage.wall_s), (1.25, 2.0));
        assert_eq!(answer(1, vec!["x".repeat(300)]), ["x".repeat(200) + "… of 300 bytes"]);
        let two = judge(Engine::Nandina, usage(0, false), "a\n1\n2\n", "");
        assert_eq!(two.row, ["2 rows", "1", "2"]);
    }
}
