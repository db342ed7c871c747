//! What came of a run: counts by folder, why statements were refused, and everything that needs a look.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;
use serde::Serialize;

use super::children::FileRun;
use super::outcome::{Class, Outcome};
use crate::error::Result;
use crate::table::Table;
use crate::{quantity, runner};

/// A record whose answer is not the same under all limits.
#[derive(Debug, Serialize)]
pub struct LimitDifference {
    pub place: String,
    pub sql: String,
    /// What it came to under each limit.
    pub courses: Vec<(String, String)>,
    /// Whether SQL leaves open which rows are answered.
    pub is_open: bool,
}

type Counts = BTreeMap<Class, usize>;

fn count(runs: &[&FileRun]) -> Counts {
    let mut counts = Counts::new();
    for outcome in runs.iter().flat_map(|run| &run.outcomes) {
        *counts.entry(outcome.class).or_default() += 1;
    }
    counts
}

/// The limits of the runs, in their order.
pub fn limits(runs: &[FileRun]) -> Vec<Option<u64>> {
    let mut limits = Vec::new();
    for run in runs {
        if !limits.contains(&run.memory_limit) {
            limits.push(run.memory_limit);
        }
    }
    limits
}

/// Counts of all classes by folder, under one limit.
pub fn folders(runs: &[FileRun], limit: Option<u64>) -> Table {
    let mut folders: BTreeMap<&str, Vec<&FileRun>> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.memory_limit == limit) {
        folders.entry(&run.file.folder).or_default().push(run);
    }
    let names = Class::ALL.map(Class::name);
    let mut table = Table::new(1, ["folder", "files", "records"].into_iter().chain(names));
    let mut row = |name: &str, runs: &[&FileRun]| {
        let counts = count(runs);
        let mut cells =
            vec![name.to_owned(), runs.len().to_string(), counts.values().sum::<usize>().to_string()];
        cells.extend(Class::ALL.iter().map(|class| match counts.get(class) {
            Some(count) => count.to_string(),
            None => "·".to_owned(),
        }));
        table.row(cells);
    };
    for (name, runs) in &folders {
        row(name, runs);
    }
    row("all", &folders.values().flatten().copied().collect::<Vec<_>>());
    table
}

static NAMES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        (r"'[^']*'", "'…'"),
        (r#""[^"]*""#, "\"…\""),
        (r"; there (are|is):? .*", ""),
        (r"; did you mean .*", ""),
        (r"\d+", "N"),
    ]
    .into_iter()
    .filter_map(|(pattern, name)| Some((Regex::new(pattern).ok()?, name)))
    .collect()
});

/// A message without what differs from statement to statement.
pub fn kind_of(message: &str) -> String {
    // Functions are worth telling apart.
    if message.starts_with("Invalid function") {
        return message.split(". ").next().unwrap_or(message).to_owned();
    }
    let mut kind = message.to_owned();
    for (pattern, name) in NAMES.iter() {
        kind = pattern.replace_all(&kind, *name).into_owned();
    }
    kind.chars().take(110).collect()
}

/// The most frequent reasons of a class, with an example each.
pub fn reasons(runs: &[FileRun], limit: Option<u64>, class: Class, most: usize) -> Table {
    let mut kinds: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.memory_limit == limit) {
        for outcome in run.outcomes.iter().filter(|outcome| outcome.class == class) {
            let place = || format!("{}:{}", run.file.name, outcome.line);
            let entry = kinds.entry(kind_of(&outcome.reason)).or_insert_with(|| (0, place()));
            entry.0 += 1;
        }
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by(|left, right| right.1.0.cmp(&left.1.0).then_with(|| left.0.cmp(&right.0)));
    let mut table =
        Table::new(1, [format!("{}, because", class.name()), "records".into(), "first in".into()]);
    for (kind, (count, place)) in kinds.into_iter().take(most) {
        table.row([kind, count.to_string(), place]);
    }
    table
}

/// Courses that say nothing about what the answer is; hangs count as failures by themselves.
const NO_ANSWER: [&str; 3] = ["refused for memory", "skipped", "hang"];

/// What an outcome comes to when limits are compared.
fn course(outcome: &Outcome) -> String {
    match (outcome.class, outcome.fingerprint) {
        (Class::Refused, _) if is_for_memory(&outcome.reason) => "refused for memory".to_owned(),
        (_, Some(fingerprint)) => format!("rows {fingerprint:016x}"),
        (Class::Excused | Class::Answered, None) => "done".to_owned(),
        (class, None) => class.name().to_owned(),
    }
}

fn is_for_memory(reason: &str) -> bool {
    reason.contains("SET memory_limit")
}

/// Records that come to something else under another limit; those that a limit has no memory for are counted apart.
pub fn limit_differences(runs: &[FileRun]) -> (Vec<LimitDifference>, usize) {
    let mut records: BTreeMap<(&str, usize), Vec<(&FileRun, &Outcome)>> = BTreeMap::new();
    for run in runs {
        for outcome in &run.outcomes {
            records.entry((&run.file.name, outcome.record)).or_default().push((run, outcome));
        }
    }
    let (mut differences, mut for_memory) = (Vec::new(), 0);
    for ((name, _), found) in records {
        let courses: Vec<String> = found.iter().map(|(_, outcome)| course(outcome)).collect();
        if courses.windows(2).all(|pair| pair.first() == pair.last()) {
            continue;
        }
        if courses.iter().any(|course| course == "refused for memory") {
            for_memory += 1;
        }
        let mut rest = courses.iter().filter(|course| !NO_ANSWER.contains(&course.as_str()));
        let first = rest.next();
        if rest.all(|course| Some(course) == first) {
            continue;
        }
        let Some((_, outcome)) = found.first() else { continue };
        let told = found.iter().zip(courses).map(|((run, outcome), course)| {
            let reason =
                if outcome.reason.is_empty() { String::new() } else { format!(" ({})", outcome.reason) };
            (quantity::limit(run.memory_limit), format!("{course}{reason}"))
        });
        differences.push(LimitDifference {
            place: format!("{name}:{}", outcome.line),
            sql: found
                .iter()
                .map(|(_, outcome)| outcome.sql.as_str())
                .find(|sql| !sql.is_empty())
                .unwrap_or("")
                .into(),
            courses: told.collect(),
            is_open: found.iter().any(|(_, outcome)| outcome.is_open),
        });
    }
    (differences, for_memory)
}

/// Everything that needs a look, one by one.
pub fn write_details(path: &Path, runs: &[FileRun], differences: &[LimitDifference]) -> Result<()> {
    let mut text = String::new();
    let order = [Class::Wrong, Class::Panic, Class::Hang, Class::Answered, Class::Undecided];
    for class in order {
        for run in runs {
            for outcome in run.outcomes.iter().filter(|outcome| outcome.class == class) {
                let limit = quantity::limit(run.memory_limit);
                let _ = writeln!(
                    text,
                    "== {} {}:{} ({limit}): {}",
                    class.name(),
                    run.file.name,
                    outcome.line,
                    outcome.reason
                );
                let parts = [
                    ("sql", &outcome.sql),
                    ("expected", &outcome.expected),
                    ("got", &outcome.got),
                    ("duckdb", &outcome.duckdb),
                ];
                for (name, part) in parts.into_iter().filter(|(_, part)| !part.is_empty()) {
                    let _ = writeln!(text, "-- {name}\n{part}");
                }
                text.push('\n');
            }
        }
    }
    for difference in differences {
        let open = if difference.is_open { ", which SQL leaves open" } else { "" };
        let _ = writeln!(
            text,
            "== differs with the limit {}{open}\n-- sql\n{}",
            difference.place, difference.sql
        );
        for (limit, course) in &difference.courses {
            let _ = writeln!(text, "-- {limit}: {course}");
        }
        text.push('\n');
    }
    runner::write(path, text)
}

#[derive(Serialize)]
struct JsonRun<'a> {
    file: &'a str,
    memory_limit_bytes: Option<u64>,
    seconds: f64,
    counts: BTreeMap<&'static str, usize>,
    /// Without those that agree or were skipped.
    outcomes: Vec<&'a Outcome>,
}

#[derive(Serialize)]
struct Json<'a> {
    runs: Vec<JsonRun<'a>>,
    limit_differences: &'a [LimitDifference],
}

/// Everything but what agrees.
pub fn write_json(path: &Path, runs: &[FileRun], limit_differences: &[LimitDifference]) -> Result<()> {
    let is_told = |outcome: &&Outcome| !matches!(outcome.class, Class::Agrees | Class::Skipped);
    let json_run =
        |run: &'_ FileRun| count(&[run]).into_iter().map(|(class, count)| (class.name(), count)).collect();
    let runs = runs.iter().map(|run| JsonRun {
        file: &run.file.name,
        memory_limit_bytes: run.memory_limit,
        seconds: run.seconds,
        counts: json_run(run),
        outcomes: run.outcomes.iter().filter(is_told).collect(),
    });
    let json = Json { runs: runs.collect(), limit_differences };
    runner::write_json(path, &json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::children::CorpusFile;

    fn run(limit: Option<u64>, outcomes: Vec<Outcome>) -> FileRun {
        let file = CorpusFile { path: "a.test".into(), name: "x/a.test".into(), folder: "x".into() };
        FileRun { file, memory_limit: limit, outcomes, seconds: 1.0 }
    }

    fn answer(fingerprint: u64) -> Outcome {
        Outcome { fingerprint: Some(fingerprint), ..Outcome::new(1, 7, Class::Agrees, "") }
    }

    #[test]
    fn answers_that_change_with_the_limit() {
        let memory = Outcome::new(1, 7, Class::Refused, "needs more: SET memory_limit");
        let same = [run(None, vec![answer(1)]), run(Some(1 << 20), vec![answer(1)])];
        assert_eq!(limit_differences(&same).0.len(), 0);
        let less = [run(None, vec![answer(1)]), run(Some(1 << 20), vec![memory])];
        let (differences, for_memory) = limit_differences(&less);
        assert_eq!((differences.len(), for_memory), (0, 1));
        let other = [run(None, vec![answer(1)]), run(Some(1 << 20), vec![answer(2)])];
        let (differences, _) = limit_differences(&other);
        assert_eq!(differences[0].place, "x/a.test:7");
        assert_eq!(differences[0].courses[1].0, "1 MiB");
    }

    #[test]
    fn messages_of_a_kind() {
        assert_eq!(kind_of("there is no column 'a'; there are: b, c"), "there is no column '…'");
        assert_eq!(kind_of("Invalid function 'foo'. Did you mean 'bar'?"), "Invalid function 'foo'");
    }

    #[test]
    fn tables_have_totals() {
        let runs = [run(None, vec![answer(1), Outcome::new(2, 9, Class::Wrong, "x")])];
        let text = folders(&runs, None).to_text();
        assert!(text.lines().last().unwrap().starts_with("all"), "{text}");
        assert!(reasons(&runs, None, Class::Wrong, 5).to_text().contains("x/a.test:9"));
    }
}
