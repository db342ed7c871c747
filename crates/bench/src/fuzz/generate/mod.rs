//! Random queries over random tables.
//!
//! What is generated is deterministic: rows are numbered, cut off or looked at in an order only where that order is total.
//! Values are such that both engines should agree on them: sums are exact, nothing overflows on purpose, no division by
//! zero. Whatever still has an error in every engine counts for nothing.

mod aggregates;
mod booleans;
mod expressions;
mod from;
mod numbers;
mod partitions;
mod queries;
mod sub_queries;
mod windows;

pub use partitions::{Partitioned, Shape};

use super::ast::Expr;
use super::schema::{ROW_NUMBER, Table};
use super::types::{Family, Type};
use crate::random::Random;

/// What FROM can name: a table, or a query of WITH.
#[derive(Debug, Clone)]
struct Relation {
    name: String,
    columns: Vec<(String, Type)>,
    /// At most so many.
    rows: u64,
    has_row_number: bool,
}

/// What stands in FROM under an alias.
#[derive(Debug, Clone)]
struct Source {
    alias: String,
    columns: Vec<(String, Type)>,
    /// The column that no two rows share.
    unique: Option<Expr>,
    rows: u64,
}

/// What an expression can be made of.
#[derive(Debug, Clone, Default)]
struct Scope {
    /// Columns, or keys and aggregates.
    leaves: Vec<Expr>,
    /// Columns of queries around this one.
    outer: Vec<Expr>,
    /// Columns that together are different in each row; none if there are no such.
    unique: Vec<Expr>,
}

/// Rows that a FROM may have before anything is filtered: the naive plans look at all of them.
const MOST_ROWS: u64 = 30_000;

/// What can be left out while a mistake there would hide all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Avoid {
    /// `OVER (w …)`, which goes on from a named window.
    NamedWindows,
    /// IN, ANY and ALL of queries.
    InQueries,
    /// IS NOT DISTINCT FROM between the columns of a join.
    NullSafeKeys,
}

/// Makes queries.
#[derive(Debug)]
pub struct Generator {
    random: Random,
    relations: Vec<Relation>,
    aliases: usize,
    avoid: Vec<Avoid>,
}

impl Generator {
    pub fn new(random: Random, tables: &[Table], avoid: &[Avoid]) -> Self {
        let relation = |table: &Table| Relation {
            name: table.name.clone(),
            columns: table.columns.clone(),
            rows: table.rows.len() as u64,
            has_row_number: true,
        };
        Self { random, relations: tables.iter().map(relation).collect(), aliases: 0, avoid: avoid.to_vec() }
    }

    fn avoids(&self, what: Avoid) -> bool {
        self.avoid.contains(&what)
    }

    fn alias(&mut self, prefix: &str) -> String {
        self.aliases += 1;
        format!("{prefix}{}", self.aliases)
    }
}

impl Source {
    fn leaves(&self) -> impl Iterator<Item = Expr> + '_ {
        self.columns.iter().map(|(name, ty)| Expr::column(&self.alias, name, ty))
    }

    fn of(relation: &Relation, alias: String) -> Self {
        let unique = relation.has_row_number.then(|| Expr::column(&alias, ROW_NUMBER, &super::types::INT));
        Source { alias, columns: relation.columns.clone(), unique, rows: relation.rows }
    }
}

impl Scope {
    /// The families that leaves are of.
    fn families(&self) -> Vec<Family> {
        self.leaves.iter().map(|leaf| leaf.ty().family()).collect()
    }
}
