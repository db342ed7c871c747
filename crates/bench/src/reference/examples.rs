//! What is shown by examples: statements, operators, and what looks like a function. All are executed.

use std::path::Path;

use nandina::Session;

use super::names::rows;
use super::{first_row, row};
use crate::{BenchError, Result};

/// The folder that examples name.
const FOLDER: &str = "'data/";

pub(super) struct Examples<'a> {
    pub session: &'a Session,
    pub files: &'a Path,
}

/// Something that is written like a function.
pub(super) struct Form {
    pub subject: &'static str,
    pub name: &'static str,
    /// Whether DuckDB and Postgres have it.
    pub there: [bool; 2],
    pub example: &'static str,
    pub meaning: &'static str,
}

pub(super) fn forms() -> impl Iterator<Item = Form> {
    rows(include_str!("forms.txt")).map(|[subject, name, duckdb, postgres, example, meaning]| {
        let there = [duckdb, postgres].map(|mark| !mark.is_empty());
        Form { subject, name, there, example, meaning }
    })
}

/// A function in `FROM`.
pub(super) struct TableFunction {
    pub name: &'static str,
    pub example: &'static str,
    pub meaning: &'static str,
}

pub(super) fn tables() -> impl Iterator<Item = TableFunction> {
    rows(include_str!("tables.txt")).map(|[name, example, meaning]| TableFunction { name, example, meaning })
}

impl Examples<'_> {
    pub(super) async fn statements(&self) -> Result<String> {
        let mut section =
            "## Statements\n\nThe examples stand in the order in which they can be executed.\n".to_owned();
        for [name, example] in rows(include_str!("statements.txt")) {
            match name.strip_prefix("## ") {
                Some(part) => {
                    section += &format!("\n### {}\n\n| statement | example |\n|---|---|\n", part);
                }
                None => {
                    self.execute(example).await?;
                    section += &row([name, &format!("`{example}`")]);
                }
            }
        }
        Ok(section)
    }

    pub(super) async fn operators(&self) -> Result<String> {
        let mut section = "\n## Operators\n\nIn the order in which they bind, the tightest first.\n\n\
                           | operator | | example | gives | DuckDB | Postgres |\n|---|---|---|---|---|---|\n"
            .to_owned();
        for [operator, duckdb, postgres, example, meaning] in rows(include_str!("operators.txt")) {
            let gives = self.value(example).await?;
            let [duckdb, postgres] = [duckdb, postgres].map(|mark| if mark.is_empty() { "" } else { "yes" });
            let (example, gives) = (format!("`{example}`"), format!("`{gives}`"));
            section += &row([&format!("`{operator}`"), meaning, &example, &gives, duckdb, postgres]);
        }
        Ok(section)
    }

    /// The value of an expression.
    pub(super) async fn value(&self, expression: &str) -> Result<String> {
        let row = first_row(self.session, &format!("SELECT {expression}")).await?;
        Ok(row.into_iter().next().flatten().unwrap_or_else(|| "NULL".to_owned()))
    }

    pub(super) async fn execute(&self, statement: &str) -> Result<()> {
        let statement = statement.replace(FOLDER, &format!("'{}/", self.files.display()));
        let failed = |error: nandina::Error| BenchError::Setup(format!("{statement}: {error}"));
        self.session.execute(&statement).await.map_err(failed)?.drain().await.map_err(failed)
    }
}
