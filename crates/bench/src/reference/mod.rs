//! A page of everything in the dialect: what a database says of itself, beside the names that other engines have.
//!
//! ```text
//!   registry of a session ──► signatures ──┐
//!   subjects.txt, duckdb_*.txt … ─► names ─┼─► functions ──┐
//!   statements.txt, operators.txt … ───────┴─► examples ───┼─► the page
//!   types, settings ───────────────────────────────────────┘
//! ```
//!
//! Every example on the page has been executed, and every type been asked for.

mod examples;
mod functions;
mod names;
mod settings;
mod signatures;
mod types;

use nandina::{Database, Options, Session};

use crate::{BenchError, Result};

const HEAD: &str = "\
# SQL reference

What there is, as the database itself says it. This page is written by a program, which executes the examples:

`cargo run -p nandina-bench --bin sql_reference`

Where answers are not DuckDB's stands in [dialect](dialect.md), what is missing in [open questions](open-questions.md#sql).
";

/// The page.
pub async fn page() -> Result<String> {
    let files = tempfile::tempdir().map_err(|error| BenchError::Setup(format!("no folder: {error}")))?;
    let database = Database::in_memory(Options::default()).map_err(setup)?;
    let session = database.session().map_err(setup)?;
    let examples = examples::Examples { session: &session, files: files.path() };
    let mut page = HEAD.to_owned();
    page += &format!("\nBeside them: {}; {}.\n\n", names::DUCKDB.source(), names::POSTGRES.source());
    page += &examples.statements().await?;
    page += &examples.operators().await?;
    page += &types::section(&session, files.path()).await?;
    page += &functions::sections(&session, &examples).await?;
    page += &settings::section(&session).await?;
    Ok(page)
}

fn setup(error: nandina::Error) -> BenchError {
    BenchError::Setup(error.to_string())
}

/// The values of the first row, as texts.
async fn first_row(session: &Session, statement: &str) -> Result<Vec<Option<String>>> {
    let failed = |error: nandina::Error| BenchError::Setup(format!("{statement}: {error}"));
    let batches = session.execute(statement).await.map_err(failed)?.collect().await.map_err(failed)?;
    let Some(batch) = batches.iter().find(|batch| batch.num_rows() > 0) else { return Ok(Vec::new()) };
    let column = |column| {
        let texts = nandina::texts_of(column).map_err(failed)?;
        Ok(texts.iter().next().flatten().map(str::to_owned))
    };
    batch.columns().iter().map(column).collect()
}

/// A row of a table, whose cells may have any text.
fn row<const N: usize>(cells: [&str; N]) -> String {
    let cells = cells.map(|cell| cell.replace('|', "\\|").replace('\n', " "));
    format!("| {} |\n", cells.join(" | "))
}

/// Names as code, with commas between.
fn codes<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
