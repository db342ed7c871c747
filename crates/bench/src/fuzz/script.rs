//! A failing case as a script that anybody can run.

use super::oracle::Case;
use super::shrink::Shrunk;
use super::types::Dialect;

/// Statements of Nandina, those of DuckDB where they are others, and what each engine said.
pub fn script(shrunk: &Shrunk, origin: &str) -> String {
    let mut text = format!("-- {}: {} ({origin})\n", shrunk.failure.kind.name(), shrunk.failure.detail);
    let statements = |dialect| {
        let tables = shrunk.tables.iter().map(|table| table.create(dialect));
        let queries = shrunk.case.queries().into_iter().map(|query| query.sql(dialect));
        tables.chain(queries).map(|statement| format!("{statement};\n")).collect::<String>()
    };
    let ours = statements(Dialect::Nandina);
    let theirs = statements(Dialect::DuckDb);
    text += &ours;
    for (name, answer) in &shrunk.failure.answers {
        text += &commented(&format!("{name}: {}", answer.shown()));
    }
    if theirs != ours && matches!(shrunk.case, Case::Query(_)) {
        text += "-- for DuckDB:\n";
        text += &commented(&theirs);
    }
    text
}

fn commented(text: &str) -> String {
    text.lines().map(|line| format!("-- {line}\n")).collect()
}
