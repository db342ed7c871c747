//! Names that other engines have, and the subjects of functions: text files beside this one.

use std::collections::{BTreeMap, BTreeSet};

use crate::{BenchError, Result};

/// What kind a function is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Scalar,
    Aggregate,
    Window,
    Table,
}

/// Names of one other engine.
pub(super) struct Engine {
    pub name: &'static str,
    functions: &'static str,
    types: &'static str,
}

pub(super) const DUCKDB: Engine = Engine {
    name: "DuckDB",
    functions: include_str!("duckdb_functions.txt"),
    types: include_str!("duckdb_types.txt"),
};

pub(super) const POSTGRES: Engine = Engine {
    name: "Postgres",
    functions: include_str!("postgres_functions.txt"),
    types: include_str!("postgres_types.txt"),
};

impl Engine {
    /// Where the names are from.
    pub(super) fn source(&self) -> &'static str {
        self.functions.lines().next().unwrap_or_default().trim_start_matches("# ")
    }

    /// Functions of a kind.
    pub(super) fn functions(&self, kind: Kind) -> BTreeSet<&'static str> {
        let heading = match kind {
            Kind::Scalar => "scalar:",
            Kind::Aggregate => "aggregate:",
            Kind::Window => "window:",
            Kind::Table => "table:",
        };
        let lines = self.functions.lines().skip_while(|line| *line != heading).skip(1);
        lines.take_while(|line| !line.ends_with(':')).flat_map(str::split_whitespace).collect()
    }

    pub(super) fn types(&self) -> BTreeSet<&'static str> {
        self.types.lines().skip(1).collect()
    }
}

/// The lines of a text file, without its comments, as columns.
pub(super) fn rows<const N: usize>(text: &'static str) -> impl Iterator<Item = [&'static str; N]> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with("# ")).map(|line| {
        let mut columns = line.split('\t');
        std::array::from_fn(|_| columns.next().unwrap_or_default())
    })
}

/// The subjects of scalar functions, in the order of the page.
pub(super) struct Subjects(Vec<(&'static str, Vec<&'static str>)>);

impl Subjects {
    pub(super) fn read() -> Self {
        let text = include_str!("subjects.txt");
        let mut subjects: Vec<(&str, Vec<&str>)> = Vec::new();
        for [line] in rows(text) {
            match subjects.last_mut() {
                // A name of a subject begins with a capital letter, one of a function does not.
                Some((_, names)) if !line.starts_with(char::is_uppercase) => names.extend(line.split(' ')),
                _ => subjects.push((line, Vec::new())),
            }
        }
        Subjects(subjects)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(subject, _)| *subject)
    }

    /// The subject of a function; one that names it whole goes before those that name its beginning.
    fn known(&self, function: &str) -> Option<&'static str> {
        let begins = |name: &str| name.strip_suffix('*').is_some_and(|start| function.starts_with(start));
        let with = |is: &dyn Fn(&str) -> bool| {
            let subject = self.0.iter().find(|(_, names)| names.iter().any(|name| is(name)))?;
            Some(subject.0)
        };
        with(&|name| name == function).or_else(|| with(&begins))
    }

    /// The subjects of functions, by their names.
    pub(super) fn of<'a>(
        &self,
        functions: impl IntoIterator<Item = &'a str>,
    ) -> Result<BTreeMap<&'a str, &'static str>> {
        let mut subjects = BTreeMap::new();
        let mut without = Vec::new();
        for function in functions {
            match self.known(function) {
                Some(subject) => _ = subjects.insert(function, subject),
                None => without.push(function),
            }
        }
        if without.is_empty() {
            return Ok(subjects);
        }
        Err(BenchError::Setup(format!(
            "{} have no subject: give them one in crates/bench/src/reference/subjects.txt",
            without.join(", ")
        )))
    }
}
