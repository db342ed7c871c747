//! From lines to records: the directives of SQLite's and DuckDB's files.

use super::lines::Line;
use super::record::{Expectation, Open, Query, Record, Recorded, SortMode, Statement, Task};

/// Extensions and abilities of which `require` may ask: they are there, or what needs them is refused by itself.
const AVAILABLE: [&str; 20] = [
    "parquet",
    "json",
    "icu",
    "core_functions",
    "vector_size",
    "exact_vector_size",
    "no_vector_verification",
    "no_alternative_verify",
    "no_extension_autoloading",
    "noforcestorage",
    "no_force_storage",
    "nothreadsan",
    "notwindows",
    "notmusl",
    "skip_reload",
    "strinline",
    "longdouble",
    "64bit",
    "block_size",
    "allow_unsigned_extensions",
];

/// The records of a file.
pub fn parse(lines: &[Line]) -> Vec<Record> {
    let mut parser = Parser { lines, at: 0, is_skipping: None, condition: None };
    let mut records = Vec::new();
    while let Some(line) = parser.next_line() {
        let task = parser.task(&line.text);
        let Some(task) = task else { continue };
        let is_end = matches!(task, Task::End(_));
        let is_run = matches!(task, Task::Statement(_) | Task::Query(_));
        let task = match (parser.condition.take(), &parser.is_skipping) {
            (Some(reason), _) if is_run => skip(task, reason),
            (_, Some(reason)) if is_run => skip(task, reason.clone()),
            _ => task,
        };
        records.push(Record { line: line.number, task });
        if is_end {
            break;
        }
    }
    records
}

fn skip(task: Task, reason: String) -> Task {
    let sql = match task {
        Task::Statement(statement) => statement.sql,
        Task::Query(query) => query.sql,
        _ => String::new(),
    };
    Task::Skip { reason, sql }
}

struct Parser<'a> {
    lines: &'a [Line],
    at: usize,
    /// Why everything up to `mode unskip` is left out.
    is_skipping: Option<String>,
    /// Why the next record is left out.
    condition: Option<String>,
}

impl<'a> Parser<'a> {
    fn next_line(&mut self) -> Option<&'a Line> {
        let line = self.lines.get(self.at)?;
        self.at += 1;
        Some(line)
    }

    /// What a directive asks for; none for comments, empty lines and what only changes the parser.
    fn task(&mut self, directive: &str) -> Option<Task> {
        let directive = directive.split('#').next().unwrap_or_default();
        let mut words = directive.split_whitespace();
        match words.next()? {
            "statement" => Some(self.statement(words)),
            "query" => Some(self.query(words)),
            word @ ("skipif" | "onlyif") => {
                let engines: Vec<&str> = words.collect();
                let is_ours = engines.contains(&"nandina");
                if is_ours == (word == "skipif") {
                    let reason =
                        if word == "skipif" { "not in this round of a loop" } else { "for another engine" };
                    self.condition.get_or_insert_with(|| reason.to_owned());
                }
                None
            }
            "mode" => {
                match words.next() {
                    Some("skip") => self.is_skipping = Some("the file says so".to_owned()),
                    Some("unskip") => self.is_skipping = None,
                    _ => {}
                }
                None
            }
            "halt" => Some(Task::End(None)),
            "require" => {
                let name = words.next().unwrap_or_default();
                (!AVAILABLE.contains(&name)).then(|| Task::End(Some(format!("needs {name}"))))
            }
            "require-env" => Some(Task::End(Some("needs an environment".to_owned()))),
            "unzip" | "include" => Some(Task::End(Some("needs a file that is not there".to_owned()))),
            "load" => Some(Task::Open(match words.next() {
                None | Some(":memory:") => Open::Fresh,
                Some(path) => Open::Path {
                    path: path.trim_end_matches(';').to_owned(),
                    is_read_only: words.next() == Some("readonly"),
                },
            })),
            "restart" => Some(Task::Open(Open::Again)),
            "reconnect" => Some(Task::Reconnect),
            // Without a meaning here: hash-threshold, set seed, sleep, tags, template, endloop …
            _ => None,
        }
    }

    fn statement<'w>(&mut self, mut words: impl Iterator<Item = &'w str>) -> Task {
        let expectation = match words.next() {
            Some("error") => Expectation::Error,
            Some("maybe") => Expectation::Either,
            _ => Expectation::Success,
        };
        let connection = words.next().unwrap_or_default().to_owned();
        let (sql, has_more) = self.sql();
        let message = if has_more { self.lines_until_empty().join("\n") } else { String::new() };
        Task::Statement(Statement { expectation, connection, sql, message })
    }

    fn query<'w>(&mut self, mut words: impl Iterator<Item = &'w str>) -> Task {
        let types = words.next().unwrap_or_default().to_owned();
        let (mut connection, mut sort, mut label) = (String::new(), None, None);
        for word in words {
            match (word, sort) {
                ("nosort", None) => sort = Some(SortMode::None),
                ("rowsort" | "sort", None) => sort = Some(SortMode::Rows),
                ("valuesort", None) => sort = Some(SortMode::Values),
                // Behind a sort mode stands a label, in its place a session.
                (word, Some(_)) => label = Some(word.to_owned()),
                (word, None) => connection = word.to_owned(),
            }
        }
        let (sql, has_more) = self.sql();
        let lines = if has_more { self.lines_until_empty() } else { Vec::new() };
        // Nothing behind the line says that there are no rows, but with a label that it is in another query's answer.
        let has_answer = has_more && (label.is_none() || !lines.is_empty());
        let recorded = if has_answer { recorded(lines) } else { Recorded::Nothing };
        let sort = sort.unwrap_or(SortMode::None);
        Task::Query(Query { connection, sql, types, sort, label, recorded })
    }

    /// The text of a statement, and whether an answer follows it.
    fn sql(&mut self) -> (String, bool) {
        let mut text: Vec<&str> = Vec::new();
        while let Some(line) = self.next_line() {
            match line.text.trim_end() {
                "" => return (text.join("\n"), false),
                "----" => return (text.join("\n"), true),
                _ => text.push(&line.text),
            }
        }
        (text.join("\n"), false)
    }

    fn lines_until_empty(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(line) = self.next_line().filter(|line| !line.text.is_empty()) {
            lines.push(line.text.clone());
        }
        lines
    }
}

fn recorded(lines: Vec<String>) -> Recorded {
    if let [line] = lines.as_slice()
        && let Some((values, digest)) = line.split_once(" values hashing to ")
        && let Ok(values) = values.trim().parse()
    {
        return Recorded::Hash { values, digest: digest.trim().to_owned() };
    }
    Recorded::Lines(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::lines::{Variables, unroll};

    fn records(text: &str) -> Vec<Record> {
        parse(&unroll(text, &Variables::new()).unwrap())
    }

    fn query(text: &str) -> Query {
        match records(text).remove(0).task {
            Task::Query(query) => query,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn statements_with_their_sessions_and_errors() {
        let found = records("# one\nstatement error con2\nSELECT\n  1\n----\nBinder Error\nagain\n");
        let [Record { line: 2, task: Task::Statement(statement) }] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!((statement.expectation, statement.connection.as_str()), (Expectation::Error, "con2"));
        assert_eq!(
            (statement.sql.as_str(), statement.message.as_str()),
            ("SELECT\n  1", "Binder Error\nagain")
        );
    }

    #[test]
    fn queries_with_sort_modes_and_labels() {
        let found = query("query IT rowsort label-1\nSELECT 1, 'x'\n----\n1\nx\n");
        assert_eq!((found.sort, found.label.as_deref()), (SortMode::Rows, Some("label-1")));
        assert_eq!(found.recorded, Recorded::Lines(vec!["1".into(), "x".into()]));
        let found = query("query I con1\nSELECT 1\n");
        assert_eq!((found.connection.as_str(), found.recorded), ("con1", Recorded::Nothing));
        assert_eq!(query("query I\nSELECT 1\n----\n").recorded, Recorded::Lines(vec![]));
    }

    #[test]
    fn hashes() {
        let found = query(
            "query I valuesort\nSELECT 1\n----\n30 values hashing to 3c13dee48d9356ae19af2515e05e6b54\n",
        );
        let digest = "3c13dee48d9356ae19af2515e05e6b54".to_owned();
        assert_eq!(found.recorded, Recorded::Hash { values: 30, digest });
        assert_eq!(found.sort, SortMode::Values);
    }

    #[test]
    fn conditions_hold_for_one_record() {
        let text = "onlyif mysql # DIV\nquery I\nSELECT 1\n\nskipif mysql\nquery I\nSELECT 2\n\nskipif nandina\nstatement ok\nx\n";
        let tasks: Vec<bool> =
            records(text).iter().map(|record| matches!(record.task, Task::Skip { .. })).collect();
        assert_eq!(tasks, [true, false, true]);
    }

    #[test]
    fn what_is_not_there_ends_the_file() {
        let found =
            records("require parquet\n\nrequire vector_size 64\n\nrequire spatial\n\nstatement ok\nx\n");
        assert_eq!(found, [Record { line: 5, task: Task::End(Some("needs spatial".into())) }]);
        let text =
            "mode skip\n\nstatement ok\nx\n\nmode unskip\n\nstatement ok\ny\n\nhalt\n\nstatement ok\nz\n";
        let found = records(text);
        assert!(matches!(found[0].task, Task::Skip { .. }));
        assert!(matches!(found[1].task, Task::Statement(_)));
        assert_eq!(found[2].task, Task::End(None));
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn databases_are_opened() {
        let tasks: Vec<Task> = records("load /t/a.db readonly\n\nrestart\n\nload :memory:\n\nreconnect\n")
            .into_iter()
            .map(|record| record.task)
            .collect();
        let path = Open::Path { path: "/t/a.db".into(), is_read_only: true };
        assert_eq!(
            tasks,
            [Task::Open(path), Task::Open(Open::Again), Task::Open(Open::Fresh), Task::Reconnect]
        );
    }
}
