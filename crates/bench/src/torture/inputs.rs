//! Files and statements that are nearly right.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Trial, Verdict};
use crate::error::{BenchError, Result};
use crate::program::{Program, run};
use crate::random::Random;

/// Nobody waits longer for an error.
const PATIENCE: Duration = Duration::from_secs(30);
/// Memory limit, and what is allowed with it: files with a strange header may need more than the limit plus 64 MB.
const LIMIT: &str = "64MB";
const ALLOWED_BYTES: u64 = (64 + 128) << 20;

/// Files that are changed at random.
#[derive(Default)]
pub(super) struct OddFiles {
    whole: Vec<(String, Vec<u8>)>,
}

/// Files as others write them, by what is in them.
const FILES: &str = "
COPY (SELECT value AS i, md5(value::TEXT) AS s, value / 3 AS d, [value, NULL] AS l FROM generate_series(1, 3000) AS series(value)) TO 'a.parquet';
COPY (SELECT value AS i, 'x' || value AS s, DATE '2020-01-01' + value::INTEGER AS t FROM generate_series(1, 300) AS series(value)) TO 'b.parquet';
COPY (SELECT value AS i, md5(value::TEXT) AS s, value / 3 AS d FROM generate_series(1, 3000) AS series(value)) TO 'a.csv';
COPY (SELECT value AS i, CASE value % 3 WHEN 0 THEN 'a, \"b\"' WHEN 1 THEN E'two\\nlines' END AS s FROM generate_series(1, 300) AS series(value)) TO 'b.csv';
COPY (SELECT value AS i, md5(value::TEXT) AS s, [value, NULL] AS l, {'a': value} AS o FROM generate_series(1, 1000) AS series(value)) TO 'a.json';
COPY (SELECT value AS i, md5(value::TEXT) AS s FROM generate_series(1, 1000) AS series(value)) TO 'a.arrow'";

impl Trial for OddFiles {
    fn name(&self) -> &'static str {
        "odd files"
    }

    fn about(&self) -> &'static str {
        "Parquet, CSV, JSON and Arrow files with bytes flipped, removed, repeated and put in between, read and imported at \
         64 MB; an answer or an error that names the file, within 30 seconds and 192 MB"
    }

    fn attempt(&mut self, program: &Program, folder: &Path, random: &mut Random) -> Result<Verdict> {
        if self.whole.is_empty() {
            let mut command = program.command(folder);
            let made = run(command.args(["-c", FILES]), &folder.join("make"), PATIENCE)?;
            if !made.is_ok() {
                return Err(BenchError::Setup(made.describe("cannot make files")));
            }
            for name in ["a.parquet", "b.parquet", "a.csv", "b.csv", "a.json", "a.arrow"] {
                let path = folder.join(name);
                self.whole.push((name.to_owned(), std::fs::read(&path).map_err(BenchError::file(&path))?));
            }
        }
        let Some((name, bytes)) = random.pick(&self.whole) else { unreachable!("there are files") };
        let mut changed = bytes.clone();
        for _ in 0..random.one_of([1, 1, 2, 4, 16]) {
            change(random, &mut changed);
        }
        let path = folder.join(name);
        std::fs::write(&path, changed).map_err(BenchError::file(&path))?;
        let mut command = program.command(folder);
        command.args(["db", "--memory-limit", LIMIT, "--format", "json", "-c"]);
        command.arg(match random.below(4) {
            0 => format!("SELECT count(*) FROM '{name}'"),
            1 => format!("CREATE TABLE t AS SELECT * FROM '{name}'"),
            2 => format!("SELECT * FROM '{name}' ORDER BY i DESC LIMIT 10"),
            _ => format!("SELECT * FROM '{name}' WHERE i > 10"),
        });
        let ran = run(&mut command, &folder.join("run"), PATIENCE)?;
        if let Some(mistake) = ran.mistake() {
            return Ok(Verdict::Broke(mistake));
        }
        if ran.peak_bytes > ALLOWED_BYTES {
            return Ok(Verdict::Broke(ran.describe(&format!("took {} MB", ran.peak_bytes >> 20))));
        }
        // A header that is damaged names columns that nobody knows.
        let is_about_a_column = ran.err.contains("column") || ran.err.contains("field");
        if ran.is_ok() {
            return Ok(Verdict::Held("answered"));
        }
        if ran.err.contains(name.as_str()) {
            return Ok(Verdict::Held("named"));
        }
        if is_about_a_column {
            return Ok(Verdict::Held("column named"));
        }
        Ok(Verdict::Broke(ran.describe("the error does not name the file")))
    }
}

/// What formats treat as special.
const SPECIAL: [&[u8]; 14] = [
    b"\"",
    b"\n",
    b"\r\n",
    b",",
    b";",
    b"\0",
    b"\xFF\xFE",
    b"{",
    b"}",
    b"[",
    b"]",
    b"null",
    b"1e999",
    b"PAR1",
];

/// Changes some bytes.
fn change(random: &mut Random, bytes: &mut Vec<u8>) {
    // Footers and headers are where structures are.
    let near = random.below(bytes.len().min(400));
    let at = match random.below(4) {
        0 => near,
        1 => bytes.len().saturating_sub(near + 1),
        _ => random.below(bytes.len()),
    };
    let most = random.one_of([1, 4, 100, 10_000]);
    let end = (at + random.between(1, most)).min(bytes.len());
    match random.below(7) {
        0 => {
            bytes.drain(at..end);
        }
        1 => {
            let part = bytes.get(at..end).unwrap_or_default().to_vec();
            bytes.splice(at..at, part);
        }
        2 => {
            let special = random.one_of(SPECIAL);
            bytes.splice(at..at, special.iter().copied());
        }
        3 => {
            let number = random.one_of([0, 0x7F, 0x80, 0xFF]);
            bytes.get_mut(at..end).into_iter().flatten().take(8).for_each(|byte| *byte = number);
        }
        4 => bytes.truncate(at),
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
    }
}

/// Statements that are changed at random.
#[derive(Default)]
pub(super) struct OddStatements {
    words: Vec<Vec<String>>,
}

impl Trial for OddStatements {
    fn name(&self) -> &'static str {
        "odd statements"
    }

    fn about(&self) -> &'static str {
        "the statements of the SQL tests with words removed, repeated, exchanged, taken from other statements, nested and \
         multiplied, at 64 MB; an answer or an error within 30 seconds (`statement_timeout` ends what computes on) and 192 MB"
    }

    fn attempt(&mut self, program: &Program, folder: &Path, random: &mut Random) -> Result<Verdict> {
        if self.words.is_empty() {
            let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nandina/tests/sql");
            self.words = statements(&tests)?;
        }
        let mut command = program.command(folder);
        command.args(["db", "--memory-limit", LIMIT, "--format", "csv", "-f"]);
        let text = odd(random, &self.words);
        let file = folder.join("odd.sql");
        std::fs::write(&file, format!("SET statement_timeout = '5s';\n{SETUP}{text}"))
            .map_err(BenchError::file(&file))?;
        let ran = run(command.arg(&file), &folder.join("run"), PATIENCE)?;
        if let Some(mistake) = ran.mistake() {
            return Ok(Verdict::Broke(format!("{text}\n{mistake}")));
        }
        if ran.peak_bytes > ALLOWED_BYTES {
            return Ok(Verdict::Broke(format!(
                "{text}\n{}",
                ran.describe(&format!("took {} MB", ran.peak_bytes >> 20))
            )));
        }
        Ok(Verdict::Held(if ran.is_ok() { "answered" } else { "refused" }))
    }
}

/// Tables for the names that the tests use most.
const SETUP: &str = "CREATE TABLE t AS SELECT value AS a, value % 3 AS b, value AS id, value % 5 AS k, value / 2 AS v, value AS x, 'x' || value AS s
  FROM generate_series(1, 100) AS series(value);
CREATE TABLE u AS SELECT value AS x, value % 5 AS k, value AS id, value AS a, [value] AS l FROM generate_series(1, 50) AS series(value);
";

/// The words of the statements in the files of SQL tests below `folder`.
fn statements(folder: &Path) -> Result<Vec<Vec<String>>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).map_err(BenchError::file(&folder))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "slt") {
                let text = std::fs::read_to_string(&path).map_err(BenchError::file(&path))?;
                found.extend(text.split("\n\n").filter_map(record));
            }
        }
    }
    Ok(found)
}

/// The words of a record's statement.
fn record(text: &str) -> Option<Vec<String>> {
    let lines = text.lines().skip_while(|line| !line.starts_with("query") && !line.starts_with("statement"));
    let sql: Vec<&str> = lines.skip(1).take_while(|line| *line != "----").collect();
    let words = words(&sql.join("\n"));
    (!words.is_empty()).then_some(words)
}

/// Names, numbers, quoted texts, and every other character for itself.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut characters = text.chars().peekable();
    while let Some(first) = characters.next() {
        let mut word = String::from(first);
        match first {
            '\'' | '"' => {
                for next in characters.by_ref() {
                    word.push(next);
                    if next == first {
                        break;
                    }
                }
            }
            _ if first.is_alphanumeric() || first == '_' => {
                while let Some(next) =
                    characters.next_if(|next| next.is_alphanumeric() || "_.".contains(*next))
                {
                    word.push(next);
                }
            }
            _ if first.is_whitespace() => continue,
            _ => {}
        }
        words.push(word);
    }
    words
}

/// A statement as nobody would write it.
fn odd(random: &mut Random, statements: &[Vec<String>]) -> String {
    let pick = |random: &mut Random| random.pick(statements).cloned().unwrap_or_default();
    let mut words = pick(random);
    for _ in 0..random.one_of([0, 1, 1, 2, 3, 8]) {
        let at = random.below(words.len());
        let end = (at + random.between(1, 6)).min(words.len());
        match random.below(8) {
            0 => {
                words.drain(at..end);
            }
            1 => {
                let part = words.get(at..end).unwrap_or_default().to_vec();
                let times = random.one_of([1, 2, 50, 1000]);
                let part: Vec<String> = std::iter::repeat_n(part, times).flatten().collect();
                words.splice(at..at, part);
            }
            2 => {
                let other = random.below(words.len());
                if other < words.len() && at < words.len() {
                    words.swap(at, other);
                }
            }
            3 | 4 => {
                let other = pick(random);
                let start = random.below(other.len());
                let part =
                    other.get(start..(start + random.between(1, 12)).min(other.len())).unwrap_or_default();
                words.splice(at..end, part.iter().cloned());
            }
            5 => {
                let times = random.one_of([1, 10, 200, 3000]);
                words.splice(end..end, vec![")".to_owned(); times]);
                words.splice(at..at, vec!["(".to_owned(); times]);
            }
            6 => {
                let odd = random.one_of([
                    "NULL",
                    "-1",
                    "99999999999999999999",
                    "1e400",
                    "''",
                    "*",
                    "-9223372036854775808",
                    "DISTINCT",
                    "OVER ()",
                    "[]",
                    "{}",
                    "LIMIT 0",
                    "'\u{0}'",
                    "CAST(NULL AS STRUCT<a INT>)",
                    "generate_series(1, 1000000000)",
                ]);
                words.splice(at..end, [odd.to_owned()]);
            }
            _ => {
                let word = words.get(at).cloned().unwrap_or_default();
                let cut: String = word.chars().take(word.chars().count() / 2).collect();
                words.splice(at..(at + 1).min(words.len()), [cut]);
            }
        }
    }
    words.join(" ")
}
