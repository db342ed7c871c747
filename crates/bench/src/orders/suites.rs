//! Where queries and their tables come from.

use std::path::Path;

use nandina::tpch;

use super::{Variants, generated, permute};
use crate::error::{BenchError, Result};
use crate::random::Random;

/// Queries and how to make their tables.
#[derive(Debug)]
pub struct Suite {
    pub name: String,
    /// Names, and the statements that make native tables of them.
    pub tables: Vec<(String, String)>,
    pub queries: Vec<Variants>,
}

/// Joins over tables with columns of the same names.
pub fn generated(queries: usize, random_orders: usize, random: &mut Random) -> Suite {
    let tables = generated::tables(random);
    let queries = (1..=queries).flat_map(|number| generated::query(number, random_orders, random)).collect();
    Suite { name: "generated".to_owned(), tables, queries }
}

/// TPC-H; the queries are files of a folder.
pub fn tpch(queries: &Path, scale: f64, random_orders: usize, random: &mut Random) -> Result<Suite> {
    let make = |table: &tpch::Table| {
        let name = table.name();
        (name.to_owned(), format!("CREATE TABLE {name} AS SELECT * FROM tpch('{name}', {scale})"))
    };
    let tables = tpch::Table::ALL.iter().map(make).collect();
    Ok(Suite { name: "TPC-H".to_owned(), tables, queries: read(queries, random_orders, random)? })
}

/// What `peers/tpcds_files.py` writes: `*.parquet` and `*.sql`.
pub fn tpcds(folder: &Path, random_orders: usize, random: &mut Random) -> Result<Suite> {
    let mut tables = Vec::new();
    for path in sorted(folder, "parquet")? {
        let name = stem(&path);
        let make = format!("CREATE TABLE {name} AS SELECT * FROM '{}'", path.display());
        tables.push((name, make));
    }
    Ok(Suite { name: "TPC-DS".to_owned(), tables, queries: read(folder, random_orders, random)? })
}

fn read(folder: &Path, random_orders: usize, random: &mut Random) -> Result<Vec<Variants>> {
    let mut queries = Vec::new();
    for path in sorted(folder, "sql")? {
        let text = std::fs::read_to_string(&path).map_err(BenchError::file(&path))?;
        queries.extend(permute::variants(&stem(&path), &text, random_orders, random)?);
    }
    Ok(queries)
}

fn sorted(folder: &Path, extension: &str) -> Result<Vec<std::path::PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(BenchError::file(folder))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut paths: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|other| other == extension)).collect();
    paths.sort();
    Ok(paths)
}

fn stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}
