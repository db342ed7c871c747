//! Files of a database that are not as they were written.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::changes::names_below;
use super::{Trial, Verdict, make_empty};
use crate::error::{BenchError, Result};
use crate::program::{Program, run};
use crate::random::Random;

const PATIENCE: Duration = Duration::from_secs(60);

/// Tables of many types, and of several statements.
const TABLES: &str = "
CREATE TABLE numbers AS SELECT value AS i, CASE WHEN value > 0 THEN value * 0.5 END AS d,
  CASE WHEN value > 0 THEN value::DECIMAL(20, 3) END AS c, CASE WHEN value > 0 THEN value % 7 = 0 END AS b
  FROM generate_series(1, 40000) AS series(value);
INSERT INTO numbers SELECT -value, NULL AS d, NULL AS c, NULL AS b FROM generate_series(1, 500) AS series(value);
CREATE TABLE texts AS SELECT value AS i, md5(value::TEXT) AS s, CASE WHEN value % 100 = 0 THEN repeat('long', 4000) END AS l,
  CASE WHEN value > 0 THEN DATE '2020-01-01' + (value % 1000)::INTEGER END AS t FROM generate_series(1, 20000) AS series(value);
CREATE TABLE nested AS SELECT value AS i, [value, NULL, value + 1] AS l, {'a': value, 'b': value::TEXT} AS s
  FROM generate_series(1, 10000) AS series(value);
INSERT INTO texts SELECT 0, 'one', NULL AS l, NULL AS t;
CREATE TABLE none AS SELECT 1 AS i, 'x' AS s WHERE FALSE;
CREATE VIEW looks AS SELECT i, s FROM texts WHERE i < 10";

const QUESTIONS: [&str; 7] = [
    "SELECT count(*), sum(i), sum(d), sum(c), count(*) FILTER (WHERE b) FROM numbers",
    "SELECT count(*), sum(i), min(s), max(s), sum(length(l)), min(t), max(t) FROM texts",
    "SELECT count(*), sum(i), sum(l[1]), sum(l[3]), max(s['b']) FROM nested",
    "SELECT count(*), max(s) FROM none",
    "SELECT count(*), sum(i) FROM looks",
    "SELECT i, d FROM numbers WHERE i BETWEEN 20000 AND 20010 ORDER BY i",
    "SELECT s FROM texts WHERE i = 12345",
];

/// Files that are changed at random.
#[derive(Default)]
pub(super) struct Damaged {
    /// A database of each, as files and their bytes, and its answers.
    whole: Option<Whole>,
}

#[derive(Clone)]
struct Whole {
    files: Vec<(PathBuf, Vec<u8>)>,
    /// Files of a database of the same statements.
    others: Vec<(PathBuf, Vec<u8>)>,
    answers: String,
}

impl Trial for Damaged {
    fn name(&self) -> &'static str {
        "damaged"
    }

    fn about(&self) -> &'static str {
        "bits flipped, blocks zeroed, swapped, repeated, shifted, taken from another file or from the same file of another \
         database, files cut, extended, exchanged and removed in a database with tables of every kind; a query over all of \
         it gives the right rows or an error that names a file of the database"
    }

    fn attempt(&mut self, program: &Program, folder: &Path, random: &mut Random) -> Result<Verdict> {
        let whole = match &self.whole {
            Some(whole) => whole.clone(),
            None => self.whole.insert(make(program, folder)?).clone(),
        };
        let database = folder.join("db");
        let mut files = whole.files.clone();
        let mut what = Vec::new();
        for _ in 0..random.one_of([1, 1, 1, 2, 5]) {
            what.push(damage(random, &mut files, &whole.others));
        }
        write(&database, &files)?;
        let mut command = program.command(folder);
        command.arg("db").args(["--format", "csv"]);
        if random.chance(50) {
            command.arg("--read-only").arg("--temp-dir").arg(folder);
        }
        for question in QUESTIONS {
            command.args(["-c", question]);
        }
        let ran = run(&mut command, &folder.join("run"), PATIENCE)?;
        let what = what.join("; ");
        if let Some(mistake) = ran.mistake() {
            return Ok(Verdict::Broke(format!("{what}: {mistake}")));
        }
        if ran.is_ok() && ran.out == whole.answers {
            return Ok(Verdict::Held("right rows"));
        }
        if ran.is_ok() {
            return Ok(Verdict::Broke(format!("{what}: {}", ran.describe("wrong rows"))));
        }
        // Answers before the one that failed are answers, too.
        if !whole.answers.starts_with(&ran.out) {
            return Ok(Verdict::Broke(format!("{what}: {}", ran.describe("wrong rows before an error"))));
        }
        let is_named =
            ["nandina.", "segment-"].iter().any(|name| ran.err.contains(name)) || ran.err.contains("/db");
        if is_named {
            return Ok(Verdict::Held("named"));
        }
        Ok(Verdict::Broke(format!("{what}: {}", ran.describe("the error names no file"))))
    }
}

fn make(program: &Program, folder: &Path) -> Result<Whole> {
    let mut answers = String::new();
    let mut both = Vec::new();
    for name in ["other", "db"] {
        let mut command = program.command(folder);
        let made = run(command.args([name, "-c", TABLES]), &folder.join("make"), PATIENCE)?;
        let mut command = program.command(folder);
        command.arg(name).args(["--format", "csv"]);
        for question in QUESTIONS {
            command.args(["-c", question]);
        }
        let asked = run(&mut command, &folder.join("ask"), PATIENCE)?;
        if !made.is_ok() || !asked.is_ok() {
            return Err(BenchError::Setup(made.describe("cannot make tables") + &asked.describe("")));
        }
        answers = asked.out;
        both.push(read(&folder.join(name))?);
    }
    match <[_; 2]>::try_from(both) {
        Ok([others, files]) => Ok(Whole { files, others, answers }),
        Err(_) => unreachable!("two were made"),
    }
}

fn read(database: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut files = Vec::new();
    for name in names_below(database) {
        let path = PathBuf::from(name);
        if path.is_file() && path.extension().is_some_and(|end| end != "lock" && end != "reserve") {
            let bytes = std::fs::read(&path).map_err(BenchError::file(&path))?;
            let below = path.strip_prefix(database).unwrap_or(&path).to_path_buf();
            files.push((below, bytes));
        }
    }
    files.sort();
    Ok(files)
}

fn write(database: &Path, files: &[(PathBuf, Vec<u8>)]) -> Result<()> {
    make_empty(database)?;
    std::fs::create_dir_all(database.join("temp")).map_err(BenchError::file(database))?;
    for (below, bytes) in files {
        let path = database.join(below);
        std::fs::write(&path, bytes).map_err(BenchError::file(&path))?;
    }
    Ok(())
}

/// Changes one file, and says how.
fn damage(random: &mut Random, files: &mut Vec<(PathBuf, Vec<u8>)>, others: &[(PathBuf, Vec<u8>)]) -> String {
    let at = random.below(files.len());
    let source = random.pick(others).map(|(_, bytes)| bytes.clone()).unwrap_or_default();
    let Some((path, bytes)) = files.get_mut(at) else { return "nothing".to_owned() };
    let name = path.display().to_string();
    let twin = others.iter().find(|(other, _)| other == path).map(|(_, bytes)| bytes.clone());
    let block = random.one_of([1_usize, 64, 4096, 32768]);
    let [here, there] = [(); 2].map(|()| random.below(bytes.len() / block + 1) * block);
    let range = |start: usize, length: usize| start.min(length)..(start + block).min(length);
    match random.below(12) {
        0..=2 => {
            let byte = random.below(bytes.len());
            if let Some(changed) = bytes.get_mut(byte) {
                *changed ^= 1 << random.below(8);
            }
            format!("{name}: a bit of byte {byte}")
        }
        3 => {
            let part = range(here, bytes.len());
            bytes.get_mut(part).into_iter().flatten().for_each(|byte| *byte = 0);
            format!("{name}: zeros at {here}, {block} bytes")
        }
        4 => {
            let (one, other) = (range(here, bytes.len()), range(there, bytes.len()));
            let [first, second] =
                [&one, &other].map(|part| bytes.get(part.clone()).unwrap_or_default().to_vec());
            put(bytes, other.start, &first);
            put(bytes, one.start, &second);
            format!("{name}: {block} bytes at {here} and {there} swapped")
        }
        5 => {
            let copied = bytes.get(range(here, bytes.len())).unwrap_or_default().to_vec();
            put(bytes, there, &copied);
            format!("{name}: {block} bytes at {here} repeated at {there}")
        }
        6 => {
            let added = vec![0; block];
            let place = here.min(bytes.len());
            bytes.splice(place..place, added);
            format!("{name}: shifted by {block} bytes at {here}")
        }
        7 => {
            let copied = source.get(range(here, source.len())).unwrap_or_default().to_vec();
            put(bytes, here, &copied);
            format!("{name}: {block} bytes at {here} of another file")
        }
        8 => {
            let length = random.below(bytes.len());
            bytes.truncate(length);
            format!("{name}: cut at {length}")
        }
        9 => {
            bytes.extend(std::iter::repeat_n(b'x', block));
            format!("{name}: {block} bytes more")
        }
        10 => {
            let what =
                if twin.is_some() && random.chance(50) { "of the other database" } else { "exchanged" };
            *bytes = twin.filter(|_| what == "of the other database").unwrap_or(source);
            format!("{name}: {what}")
        }
        _ => {
            files.remove(at);
            format!("{name}: removed")
        }
    }
}

/// Writes over what is there.
fn put(bytes: &mut [u8], at: usize, new: &[u8]) {
    for (old, new) in bytes.iter_mut().skip(at).zip(new) {
        *old = *new;
    }
}
