//! Many processes at one database.

use std::path::Path;
use std::time::Duration;

use super::{Trial, Verdict};
use crate::error::{BenchError, Result};
use crate::program::{Program, Ran, Running};
use crate::random::Random;

const PATIENCE: Duration = Duration::from_secs(120);
/// Rows of one statement of the writer.
const ROWS: u64 = 20_000;

pub(super) struct Together;

impl Trial for Together {
    fn name(&self) -> &'static str {
        "together"
    }

    fn about(&self) -> &'static str {
        "a process that writes, some that want to, and up to ten that only read one database and one folder for temporary \
         files; readers see whole statements alone, and of several writers one writes while the others are told who does"
    }

    fn attempt(&mut self, program: &Program, folder: &Path, random: &mut Random) -> Result<Verdict> {
        let temp = folder.join("temp");
        std::fs::create_dir_all(&temp).map_err(BenchError::file(&temp))?;
        let rows = format!(
            "SELECT value AS i, md5(value::TEXT) AS s FROM generate_series(1, {ROWS}) AS series(value)"
        );
        let start = |name: &str, sql: &str, is_reader: bool| {
            let mut command = program.command(folder);
            command.args([
                "db",
                "--format",
                "csv",
                "--memory-limit",
                "16MB",
                "--temp-dir",
                "temp",
                "-c",
                sql,
            ]);
            if is_reader {
                command.arg("--read-only");
            }
            Running::start(&mut command, &folder.join(name))
        };
        let first = start("first", &format!("CREATE TABLE t AS {rows}"), false)?.wait(PATIENCE)?;
        if !first.is_ok() {
            return Ok(Verdict::Broke(first.describe("a table cannot be made")));
        }
        let change = |random: &mut Random| match random.below(3) {
            0 => format!("CREATE OR REPLACE TABLE t AS {rows}"),
            _ => format!("INSERT INTO t {rows}"),
        };
        let changes: Vec<String> = (0..random.between(3, 10)).map(|_| change(random)).collect();
        let writer = start("writer", &changes.join("; "), false)?;
        let question = "SELECT count(*) AS n, sum(i) AS s, count(DISTINCT s) AS d FROM t";
        let mut others = Vec::new();
        for number in 0..random.between(2, 10) {
            let is_reader = random.chance(80);
            let sql = if is_reader { format!("{question}; {question}") } else { change(random) };
            others.push((is_reader, start(&format!("other-{number}"), &sql, is_reader)?));
            std::thread::sleep(Duration::from_millis(random.below(60) as u64));
        }
        let mut rans = vec![(false, writer.wait(PATIENCE)?)];
        for (is_reader, running) in others {
            rans.push((is_reader, running.wait(PATIENCE)?));
        }
        let broke = rans.iter().find_map(|(is_reader, ran)| wrong(*is_reader, ran));
        Ok(broke.map_or(Verdict::Held("whole"), Verdict::Broke))
    }
}

/// What is wrong with one of them.
fn wrong(is_reader: bool, ran: &Ran) -> Option<String> {
    if let Some(mistake) = ran.mistake() {
        return Some(mistake);
    }
    if !is_reader {
        let is_told = ran.is_ok() || ran.err.contains("process");
        return (!is_told).then(|| ran.describe("a writer failed"));
    }
    if !ran.is_ok() {
        return Some(ran.describe("a reader failed"));
    }
    let is_whole = |line: &str| {
        let mut numbers = line.split(',').map(|number| number.parse::<u64>().unwrap_or(0));
        let (count, sum, distinct) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let statements = count / ROWS;
        Some(count % ROWS == 0 && sum == statements * (ROWS * (ROWS + 1) / 2) && distinct == ROWS)
    };
    let answers: Vec<&str> =
        ran.out.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())).collect();
    let are_whole = answers.len() == 2 && answers.iter().all(|line| is_whole(line) == Some(true));
    (!are_whole).then(|| ran.describe("a reader saw a part of a statement"))
}
