//! Settings: those that the database names, and what it does about those of DuckDB.

use std::collections::BTreeSet;

use nandina::{SETTING_NAMES, Session};

use super::{codes, row};
use crate::Result;

pub(super) async fn section(session: &Session) -> Result<String> {
    let duckdb: BTreeSet<_> =
        include_str!("duckdb_settings.txt").lines().skip(1).flat_map(str::split_whitespace).collect();
    let mut section = "\n## Settings\n\n`SET name = value`, `RESET name`, `SHOW name`, `SHOW ALL`.\n\n\
         | setting | what it is | DuckDB |\n|---|---|---|\n"
        .to_owned();
    for (name, meaning) in SETTING_NAMES {
        let there = if duckdb.contains(name) { "yes" } else { "" };
        section += &row([&format!("`{name}`"), meaning, there]);
    }
    let mut taken = Vec::new();
    let mut missing = Vec::new();
    for name in duckdb.iter().copied().filter(|name| SETTING_NAMES.iter().all(|(own, _)| own != name)) {
        // What `RESET` does is the same as before any `SET`.
        match session.execute(&format!("RESET {name}")).await {
            Ok(_) => taken.push(name),
            Err(_) => missing.push(name),
        }
    }
    section += &format!(
        "\nDuckDB's that are other names of these, or are read and change no answer: {}.\n\n\
         Not here: {}.\n\n\
         Settings of DataFusion (`datafusion.…`) are in `information_schema.df_settings`.\n",
        codes(taken),
        codes(missing)
    );
    Ok(section)
}
