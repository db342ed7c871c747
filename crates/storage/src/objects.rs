//! What a database has beside the rows of its tables: schemas, views, macros and sequences, and what tables ask of
//! rows. This crate keeps them and does not parse the SQL in them.

use serde::{Deserialize, Serialize};

/// All of a database, in the order in which they were made. Names are [`qualified`](crate::qualified).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objects {
    /// Those beside `main`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schemas: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<Made>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub macros: Vec<Made>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<Made>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sequences: Vec<Sequence>,
}

/// What a statement made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    pub name: String,
    /// The statement that made it.
    pub statement: String,
}

/// Numbers that are given once each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequence {
    pub name: String,
    pub start: i64,
    pub increment: i64,
    pub least: i64,
    pub greatest: i64,
    pub cycles: bool,
    /// No number after this one was given. Some before it may not have been either: they are set aside in blocks, so that
    /// not every number waits for the medium.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<i64>,
    /// What it numbers, and is dropped with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<ColumnOfTable>,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnOfTable {
    pub table: String,
    pub column: String,
}

impl Objects {
    /// The names of sequences that number the rows of a table.
    pub fn sequences_of(&self, table: &str) -> Vec<String> {
        let of_table = self.sequences.iter().filter(|sequence| sequence.numbers(table));
        of_table.map(|sequence| sequence.name.clone()).collect()
    }

    /// Drops the sequences that number the rows of a table, which is dropped.
    pub fn drop_sequences_of(&mut self, table: &str) {
        self.sequences.retain(|sequence| !sequence.numbers(table));
    }

    /// A table gets another name.
    pub fn rename_owner(&mut self, table: &str, name: &str) {
        for owner in self.sequences.iter_mut().filter_map(|sequence| sequence.owner.as_mut()) {
            if owner.table == table {
                name.clone_into(&mut owner.table);
            }
        }
    }
}

impl Sequence {
    fn numbers(&self, table: &str) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.table == table)
    }

    /// The number that follows another one, or the first; none at the end.
    pub fn after(&self, given: Option<i64>) -> Option<i64> {
        let Some(given) = given else { return Some(self.start) };
        let next = given.checked_add(self.increment);
        let next = next.filter(|next| (self.least..=self.greatest).contains(next));
        let first = if self.increment < 0 { self.greatest } else { self.least };
        next.or(self.cycles.then_some(first))
    }
}

/// What a table says about values: all in SQL.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRules {
    /// What columns hold where a statement says nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub defaults: Vec<ColumnDefault>,
    /// What must not be false of any row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<String>,
    /// Their names, as far as they have been given some: in the same order, empty for one without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub check_names: Vec<String>,
    /// Columns that are numbered by a sequence, which statements give no other values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub always_numbered: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnDefault {
    pub column: String,
    pub expression: String,
}

impl TableRules {
    /// The expression that a column holds where a statement says nothing.
    pub fn default_of(&self, column: &str) -> Option<&str> {
        let default = self.defaults.iter().find(|default| default.column == column);
        default.map(|default| default.expression.as_str())
    }

    pub fn add_check(&mut self, name: Option<String>, check: String) {
        if let Some(name) = name {
            self.check_names.resize(self.checks.len(), String::new());
            self.check_names.push(name);
        }
        self.checks.push(check);
    }

    /// Checks, and the names that they have been given.
    pub fn named_checks(&self) -> impl Iterator<Item = (Option<&str>, &str)> {
        let names = self.check_names.iter().map(String::as_str).chain(std::iter::repeat(""));
        names
            .zip(&self.checks)
            .map(|(name, check)| (Some(name).filter(|name| !name.is_empty()), check.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_end_or_begin_again() {
        let three = Sequence {
            name: "three".to_owned(),
            start: 2,
            increment: 1,
            least: 1,
            greatest: 3,
            cycles: false,
            given: None,
            owner: None,
        };
        assert_eq!(three.after(None), Some(2));
        assert_eq!(three.after(Some(2)), Some(3));
        assert_eq!(three.after(Some(3)), None);
        let round = Sequence { cycles: true, ..three.clone() };
        assert_eq!(round.after(Some(3)), Some(1));
        let down = Sequence { increment: -2, ..round };
        assert_eq!(down.after(Some(1)), Some(3));
        let all = Sequence { greatest: i64::MAX, ..three };
        assert_eq!(all.after(Some(i64::MAX)), None);
    }
}
