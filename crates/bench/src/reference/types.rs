//! Types: each name that an engine has is cast to, and a Parquet file written of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use nandina::Session;
use nandina_functions::sql_type;

use super::names::{DUCKDB, Engine, POSTGRES};
use super::{codes, first_row, row};
use crate::Result;

/// Names that are said with what the type is made of.
const WITH_PARTS: [(&str, &str); 9] = [
    ("array", "INTEGER[3]"),
    ("list", "INTEGER[]"),
    ("struct", "STRUCT(a INTEGER)"),
    ("row", "ROW(a INTEGER)"),
    ("tuple", "TUPLE(INTEGER)"),
    ("map", "MAP(VARCHAR, INTEGER)"),
    ("enum", "ENUM('a', 'b')"),
    ("union", "UNION(a INTEGER)"),
    ("null", "\"NULL\""),
];

#[derive(Default)]
struct Known {
    names: BTreeSet<&'static str>,
    arrow: String,
    parquet: String,
}

pub(super) async fn section(session: &Session, files: &Path) -> Result<String> {
    let mut known: BTreeMap<String, Known> = BTreeMap::new();
    let mut missing = BTreeSet::new();
    let all: BTreeSet<_> = [DUCKDB, POSTGRES].iter().flat_map(Engine::types).collect();
    for name in all {
        let with_parts = WITH_PARTS.iter().find(|(with, _)| *with == name);
        let written = with_parts.map_or(name, |(_, written)| *written);
        let asked = format!("SELECT CAST(NULL AS {written}) AS x");
        let Ok(query) = session.execute(&asked).await else {
            missing.insert(name);
            continue;
        };
        let schema = query.schema();
        let arrow = schema.field(0).data_type();
        let entry = known.entry(sql_type(arrow)).or_default();
        entry.names.insert(name);
        if entry.arrow.is_empty() {
            entry.arrow = arrow.to_string().replace(char::is_control, " ");
            entry.parquet = parquet(session, &asked, files).await?;
        }
    }
    let mut section = "\n## Types\n\n\
        A type is called as `typeof` calls it. `(n)` behind `VARCHAR` is read and says nothing.\n\n\
        | type | names that DuckDB has, too | names that Postgres has, too | Arrow | Parquet |\n|---|---|---|---|---|\n"
        .to_owned();
    for (name, known) in &known {
        let of = |engine: &Engine| {
            let there = engine.types();
            codes(known.names.iter().copied().filter(|name| there.contains(name)))
        };
        let (name, arrow) = (format!("`{name}`"), format!("`{}`", known.arrow));
        section += &row([&name, &of(&DUCKDB), &of(&POSTGRES), &arrow, &known.parquet]);
    }
    section += "\nNot here:\n\n";
    for engine in [DUCKDB, POSTGRES] {
        let there = engine.types();
        let names = codes(missing.iter().copied().filter(|name| there.contains(name)));
        section += &format!("- {}: {names}\n", engine.name);
    }
    Ok(section)
}

/// The type of a column in a Parquet file.
async fn parquet(session: &Session, query: &str, files: &Path) -> Result<String> {
    let file = files.join("type.parquet");
    let file = file.display();
    if first_row(session, &format!("COPY ({query}) TO '{file}' (FORMAT parquet)")).await.is_err() {
        return Ok("cannot be written".to_owned());
    }
    let asked = format!("SELECT type, logical_type FROM parquet_schema('{file}') WHERE name = 'x'");
    let row = first_row(session, &asked).await?;
    std::fs::remove_file(files.join("type.parquet")).ok();
    let mut parts = row.into_iter();
    let (physical, logical) = (parts.next().flatten(), parts.next().flatten().map(|logical| shown(&logical)));
    Ok(match (physical, logical) {
        (Some(physical), Some(logical)) => format!("`{physical}`, {logical}"),
        (Some(physical), None) => format!("`{physical}`"),
        (None, Some(logical)) => format!("a group, {logical}"),
        (None, None) => "a group".to_owned(),
    })
}

/// A logical type of Parquet in few words: `TIMESTAMP (UTC: false, unit: MICROS)`.
fn shown(logical: &str) -> String {
    let (name, parts) = logical.split_once('(').unwrap_or((logical, ""));
    let parts = parts.split_once('{').map_or("", |(_, parts)| parts).trim_matches([' ', '}', ')']);
    match parts.replace("is_adjusted_to_u_t_c", "UTC") {
        parts if parts.is_empty() => name.to_uppercase(),
        parts => format!("{} ({parts})", name.to_uppercase()),
    }
}
