//! Statements that change rows of a table.

use std::collections::HashSet;

use super::expressions::{Scope, assigned, condition, expression};
use super::step::Action;
use super::tables::{Column, Kind, Table};
use crate::random::Random;

/// What keys are moved by: no key is that large before.
const KEYS_MOVE_BY: i64 = 100_000;
/// The same on the way to keys that differ by less.
const OUT_OF_THE_WAY: i64 = 10_000_000;

/// Makes statements over tables.
pub struct Statements<'t> {
    pub tables: &'t [Table],
    pub random: &'t mut Random,
}

impl<'t> Statements<'t> {
    fn table(&mut self) -> Option<&'t Table> {
        self.random.pick(self.tables)
    }

    fn other(&mut self, table: &Table, is_wanted: impl Fn(&Table) -> bool) -> Option<&'t Table> {
        let tables = self.tables.iter();
        let others: Vec<&Table> =
            tables.filter(|other| other.name != table.name && is_wanted(other)).collect();
        self.random.pick(&others).copied()
    }

    pub fn change(&mut self) -> Option<Action> {
        let table = self.table()?;
        Some(match self.random.below(100) {
            0..36 => Action::Statement(self.insert(table)),
            36..46 => Action::Statement(self.insert_rows_of_a_query(table)),
            46..51 => self.keys_over_each_other(table)?,
            51..82 => Action::Statement(self.update(table)),
            _ => Action::Statement(self.delete(table)),
        })
    }

    /// A condition on a table: by its keys, by other tables, or any.
    fn condition(&mut self, table: &'t Table) -> String {
        let key = self.random.pick(&table.keys()).map(|key| key.to_vec());
        if let Some(key) = key
            && self.random.chance(45)
        {
            return self.key_condition(table, &key);
        }
        let found = match self.random.below(8) {
            0 => self.membership(table),
            1 => self.existence(table),
            _ => None,
        };
        found.unwrap_or_else(|| condition(self.random, &Scope::of(table), 2))
    }

    fn key_condition(&mut self, table: &Table, key: &[usize]) -> String {
        let used = if self.random.chance(80) { key.len() } else { 1 };
        let mut parts = Vec::new();
        for &column in key.iter().take(used) {
            let name = table.name_of(column);
            let form = self.random.below(10);
            let mut value = || table.literal(self.random, column, false);
            parts.push(match form {
                0..6 => format!("{name} = {}", value()),
                6 => format!("{name} IN ({}, {}, {})", value(), value(), value()),
                7 => format!("{name} >= {}", value()),
                8 => format!("{name} < {}", value()),
                _ => format!("{name} BETWEEN {} AND {}", value(), value()),
            });
        }
        parts.join(" AND ")
    }

    /// A column that is in a column of another table.
    fn membership(&mut self, table: &'t Table) -> Option<String> {
        let other = self.other(table, |_| true)?;
        let (column, from) = self.alike(table, other)?;
        let negated = if self.random.chance(25) { "NOT " } else { "" };
        let condition = condition(self.random, &Scope::of(other), 1);
        Some(format!("{column} {negated}IN (SELECT {from} FROM {} WHERE {condition})", other.name))
    }

    fn existence(&mut self, table: &'t Table) -> Option<String> {
        let other = self.other(table, |_| true)?;
        let (column, from) = self.alike(table, other)?;
        let negated = if self.random.chance(40) { "NOT " } else { "" };
        let condition = condition(self.random, &Scope::named(&[(other.name.as_str(), other)]), 1);
        Some(format!(
            "{negated}EXISTS (SELECT 1 FROM {0} WHERE {0}.{from} = {1}.{column} AND {condition})",
            other.name, table.name
        ))
    }

    /// Columns of two tables that can be compared.
    fn alike(&mut self, table: &Table, other: &Table) -> Option<(String, String)> {
        let mut pairs = Vec::new();
        for one in &table.columns {
            for two in &other.columns {
                if one.kind == two.kind || one.kind.is_whole() && two.kind.is_whole() {
                    pairs.push((one.name.clone(), two.name.clone()));
                }
            }
        }
        self.random.pick(&pairs).cloned()
    }

    fn returning(&mut self, table: &Table) -> String {
        if !self.random.chance(20) {
            return String::new();
        }
        match self.random.below(3) {
            0 => " RETURNING *".to_owned(),
            1 => {
                let columns = table.some_columns(self.random, 3);
                format!(" RETURNING {}", table.names_of(&columns))
            }
            _ => {
                let columns = table.some_columns(self.random, 1);
                let kind =
                    columns.first().and_then(|column| table.columns.get(*column)).map(|column| column.kind);
                let value = kind.map(|kind| expression(self.random, &Scope::of(table), kind, 2));
                format!(
                    " RETURNING {}, {} AS x",
                    table.names_of(&columns),
                    value.unwrap_or_else(|| "1".to_owned())
                )
            }
        }
    }

    /// `INSERT … VALUES`, with what is to happen where keys are there.
    fn insert(&mut self, table: &'t Table) -> String {
        if self.random.chance(2) {
            return format!("INSERT INTO {} DEFAULT VALUES", table.name);
        }
        let all: Vec<usize> = (0..table.columns.len()).collect();
        let mut columns = all.clone();
        if self.random.chance(25) {
            self.random.shuffle(&mut columns);
            // What has to have a value mostly gets one.
            columns.retain(|&column| {
                let needed = table
                    .columns
                    .get(column)
                    .is_some_and(|column| !column.is_nullable && column.default.is_none());
                self.random.chance(if needed { 98 } else { 60 })
            });
            if columns.is_empty() {
                columns = all.clone();
            }
        }
        let (conflict, is_replacing) = self.conflict(table, columns.len() == all.len());
        let is_distinct = is_replacing || conflict.contains("DO UPDATE");
        let count = match self.random.below(40) {
            0 => self.random.between(100, 400),
            1..20 => 1,
            _ => self.random.between(2, 8),
        };
        let mut keys = HashSet::new();
        let mut rows = Vec::new();
        for _ in 0..count {
            // SQLite ignores and replaces rows for nulls as well.
            let may_be_null = !is_replacing;
            let row: Vec<String> =
                columns.iter().map(|column| table.literal(self.random, *column, may_be_null)).collect();
            let key_of = |key: &[usize]| -> Vec<Option<&String>> {
                let place = |column: &usize| columns.iter().position(|other| other == column);
                key.iter().map(|column| place(column).and_then(|place| row.get(place))).collect()
            };
            let key: Vec<_> =
                table.keys().iter().flat_map(|key| key_of(key)).map(|value| value.cloned()).collect();
            if !is_distinct || keys.insert(key) {
                rows.push(format!("({})", row.join(", ")));
            }
        }
        let named = match columns == all && self.random.chance(70) {
            true => String::new(),
            false => format!(" ({})", table.names_of(&columns)),
        };
        let (or, conflict) = match conflict.strip_prefix("OR ") {
            Some(word) => (format!(" OR {word}"), ""),
            None => (String::new(), conflict.as_str()),
        };
        let returning = self.returning(table);
        format!("INSERT{or} INTO {}{named} VALUES {}{conflict}{returning}", table.name, rows.join(", "))
    }

    /// What is done where a key is there (`OR …` goes to the front), and whether rows must have no nulls where none may be.
    fn conflict(&mut self, table: &Table, is_whole: bool) -> (String, bool) {
        if table.keys().is_empty() || !self.random.chance(45) {
            return (String::new(), false);
        }
        let keys = table.keys().len();
        match self.random.below(10) {
            // Of several rows in the way, SQLite removes all.
            0 | 1 if is_whole && keys == 1 => ("OR REPLACE".to_owned(), true),
            // Where SQLite ignores what fails for other reasons, too, there must be none.
            2 if is_whole && table.checks.is_empty() => ("OR IGNORE".to_owned(), true),
            0..5 => (" ON CONFLICT DO NOTHING".to_owned(), false),
            5 => {
                let key = self.random.pick(&table.keys()).map(|key| table.names_of(key)).unwrap_or_default();
                (format!(" ON CONFLICT ({key}) DO NOTHING"), false)
            }
            // Which of several keys is found first depends on the order in which they are looked at.
            _ if keys == 1 => (self.do_update(table), false),
            _ => (" ON CONFLICT DO NOTHING".to_owned(), false),
        }
    }

    /// What becomes of the row that is there, of a table with one key.
    fn do_update(&mut self, table: &Table) -> String {
        let Some(key) = table.only_key() else { return String::new() };
        let others: Vec<usize> = (0..table.columns.len()).filter(|column| !key.contains(column)).collect();
        if others.is_empty() {
            return " ON CONFLICT DO NOTHING".to_owned();
        }
        let scope = Scope::named(&[(table.name.as_str(), table), ("excluded", table)]);
        let mut sets = Vec::new();
        for &number in &others {
            let Some(column) = table.columns.get(number) else { continue };
            if sets.is_empty() || self.random.chance(40) {
                let value = match self.random.below(3) {
                    0 => format!("excluded.{}", column.name),
                    _ => assigned(self.random, &scope, column.kind),
                };
                sets.push(format!("{} = {value}", column.name));
            }
        }
        let condition = match self.random.chance(35) {
            true => format!(" WHERE {}", condition(self.random, &scope, 1)),
            false => String::new(),
        };
        format!(" ON CONFLICT ({}) DO UPDATE SET {}{condition}", table.names_of(key), sets.join(", "))
    }

    /// `INSERT … SELECT` from this table or another one.
    fn insert_rows_of_a_query(&mut self, table: &'t Table) -> String {
        let from = match self.random.chance(30) {
            true => Some(table),
            false => self.other(table, |_| true),
        };
        let from = from.unwrap_or(table);
        let scope = Scope::named(&[("o", from)]);
        // Keys that no two rows of the query have, so that the order of these does not matter.
        let fits = |source: &&Column| {
            let narrow = table.columns.iter().any(|column| column.kind == Kind::Integer);
            source.kind == Kind::Integer || !narrow
        };
        let source = from.number_key().filter(fits).filter(|_| self.random.chance(85));
        let distance = self.random.one_of([0, 0, 1, 7, 1000, 20_000]);
        let mut values = Vec::new();
        for (number, column) in table.columns.iter().enumerate() {
            values.push(match source {
                Some(source) if table.is_in_key(number) && column.kind.is_whole() => {
                    format!("o.{} + {distance}", source.name)
                }
                Some(source) if table.is_in_key(number) && column.kind == Kind::Varchar => {
                    format!("'w' || CAST(o.{} AS VARCHAR)", source.name)
                }
                _ => assigned(self.random, &scope, column.kind),
            });
        }
        // One that is known to be distinct in the only key, which then is of whole numbers.
        let is_distinct = source.is_some()
            && table.only_key().is_some_and(|key| key.len() == 1)
            && table.number_key().is_some();
        let conflict = match self.random.below(4) {
            0 | 1 if is_distinct => self.do_update(table),
            2 if is_distinct => " ON CONFLICT DO NOTHING".to_owned(),
            _ => String::new(),
        };
        let condition = condition(self.random, &scope, 2);
        let returning = self.returning(table);
        format!(
            "INSERT INTO {} SELECT {} FROM {} AS o WHERE {condition}{conflict}{returning}",
            table.name,
            values.join(", "),
            from.name
        )
    }

    fn update(&mut self, table: &'t Table) -> String {
        if self.random.chance(12)
            && let Some(text) = self.update_from(table)
        {
            return text;
        }
        if self.random.chance(6)
            && let Some(text) = self.moved_keys(table)
        {
            return text;
        }
        let columns = table.some_columns(self.random, 3);
        let mut sets = Vec::new();
        for &number in &columns {
            let Some(column) = table.columns.get(number) else { continue };
            let value = match self.random.below(100) {
                // Constants: which rows then have the same keys does not depend on the order in which they are changed.
                _ if table.is_in_key(number) => table.literal(self.random, number, true),
                0..15 => table.literal(self.random, number, true),
                15..24 => match self.single_value(table, number) {
                    Some(value) => value,
                    None => table.literal(self.random, number, true),
                },
                _ => assigned(self.random, &Scope::of(table), column.kind),
            };
            sets.push(format!("{} = {value}", column.name));
        }
        let condition = match self.random.chance(5) {
            true => String::new(),
            false => format!(" WHERE {}", self.condition(table)),
        };
        let returning = self.returning(table);
        format!("UPDATE {} SET {}{condition}{returning}", table.name, sets.join(", "))
    }

    /// A sub-query for one value of a column, of a row of the table or of all.
    fn single_value(&mut self, table: &'t Table, number: usize) -> Option<String> {
        let kind = table.columns.get(number)?.kind;
        let other = self.other(table, |other| other.columns.iter().any(|column| column.kind == kind))?;
        let from: Vec<&str> = other
            .columns
            .iter()
            .filter(|column| column.kind == kind)
            .map(|column| column.name.as_str())
            .collect();
        let from = *self.random.pick(&from)?;
        let function = self.random.one_of(["min", "max"]);
        let correlated = match self.alike(table, other) {
            Some((column, theirs)) if self.random.chance(60) => {
                format!(" WHERE {}.{theirs} = {}.{column}", other.name, table.name)
            }
            _ => String::new(),
        };
        Some(format!("(SELECT {function}({0}.{from}) FROM {0}{correlated})", other.name))
    }

    /// Values of another table, of which at most one row goes with each.
    fn update_from(&mut self, table: &'t Table) -> Option<String> {
        let from = self.other(table, |other| other.number_key().is_some())?;
        let key = from.number_key()?;
        let by: Vec<&str> = table
            .columns
            .iter()
            .filter(|column| column.kind.is_whole())
            .map(|column| column.name.as_str())
            .collect();
        let by = *self.random.pick(&by)?;
        let plain: Vec<usize> = (0..table.columns.len()).filter(|column| !table.is_in_key(*column)).collect();
        let number = *self.random.pick(&plain)?;
        let column = table.columns.get(number)?;
        let scope = Scope::named(&[(table.name.as_str(), table), (from.name.as_str(), from)]);
        let value = assigned(self.random, &scope, column.kind);
        let condition = match self.random.chance(50) {
            true => format!(" AND {}", condition(self.random, &scope, 1)),
            false => String::new(),
        };
        let returning = match self.random.chance(20) {
            true => format!(" RETURNING {0}.{by}, {0}.{1}", table.name, column.name),
            false => String::new(),
        };
        Some(format!(
            "UPDATE {0} SET {1} = {value} FROM {2} WHERE {0}.{by} = {2}.{3}{condition}{returning}",
            table.name, column.name, from.name, key.name
        ))
    }

    /// Keys go where none of those is that go: whether two meet does not depend on the order.
    fn moved_keys(&mut self, table: &Table) -> Option<String> {
        let key = movable_key(table)?;
        let half = KEYS_MOVE_BY / 2;
        Some(match self.random.chance(50) {
            true => format!("UPDATE {0} SET {key} = {key} + {KEYS_MOVE_BY} WHERE {key} < {half}", table.name),
            false => format!(
                "UPDATE {0} SET {key} = {key} - {KEYS_MOVE_BY} WHERE {key} >= {half} AND {key} < {}",
                KEYS_MOVE_BY + half,
            ),
        })
    }

    /// Keys move by one. SQLite, which looks at each row's key as it changes it, does so in two steps.
    fn keys_over_each_other(&mut self, table: &'t Table) -> Option<Action> {
        let Some(key) = movable_key(table) else { return Some(Action::Statement(self.update(table))) };
        let least = self.random.below(table.numbers);
        let by = self.random.one_of([1, -1, 3]);
        let bound = KEYS_MOVE_BY * 2;
        let name = &table.name;
        let condition = format!("{key} >= {least} AND {key} < {bound}");
        Some(Action::Different {
            ours: format!("UPDATE {name} SET {key} = {key} + {by} WHERE {condition}"),
            sqlite: vec![
                format!("UPDATE {name} SET {key} = {key} + {} WHERE {condition}", OUT_OF_THE_WAY + by),
                format!(
                    "UPDATE {name} SET {key} = {key} - {OUT_OF_THE_WAY} WHERE {key} >= {} AND {key} < {}",
                    OUT_OF_THE_WAY - 10,
                    2 * OUT_OF_THE_WAY,
                ),
            ],
        })
    }

    fn delete(&mut self, table: &'t Table) -> String {
        let condition = match self.random.chance(3) {
            true => String::new(),
            false => format!(" WHERE {}", self.condition(table)),
        };
        let returning = self.returning(table);
        format!("DELETE FROM {}{condition}{returning}", table.name)
    }

    /// A query: by keys, of whole tables, of two tables.
    pub fn query(&mut self) -> Option<String> {
        let table = self.table()?;
        let name = &table.name;
        let indexed = self.random.pick(&table.indexes).map(|index| index.columns.clone());
        Some(match self.random.below(10) {
            0..3 => {
                let key = self.random.pick(&table.keys()).map(|key| key.to_vec());
                let condition = match key.or(indexed) {
                    Some(key) => self.key_condition(table, &key),
                    None => self.condition(table),
                };
                format!("SELECT * FROM {name} WHERE {condition}")
            }
            3 | 4 => match indexed {
                Some(columns) => {
                    let condition = self.key_condition(table, &columns);
                    format!("SELECT * FROM {name} WHERE {condition}")
                }
                None => format!("SELECT count(*) FROM {name} WHERE {}", self.condition(table)),
            },
            5 => {
                let columns = table.some_columns(self.random, 2);
                let first = columns.first().map_or("", |column| table.name_of(*column));
                let condition = self.condition(table);
                format!(
                    "SELECT {first}, count(*), min({0}), max({0}) FROM {name} WHERE {condition} GROUP BY {first}",
                    columns.last().map_or("", |column| table.name_of(*column))
                )
            }
            6 => match table.number_key() {
                Some(key) => {
                    let condition = condition(self.random, &Scope::of(table), 1);
                    let direction = self.random.one_of(["", " DESC"]);
                    let limit = self.random.between(1, 20);
                    format!(
                        "SELECT * FROM {name} WHERE {condition} ORDER BY {}{direction} LIMIT {limit}",
                        key.name
                    )
                }
                None => format!("SELECT * FROM {name} WHERE {}", self.condition(table)),
            },
            7 | 8 => {
                let other = self.other(table, |_| true)?;
                let (one, two) = self.alike(table, other)?;
                let scope = Scope::named(&[("x", table), ("y", other)]);
                let kind = self.random.one_of(["JOIN", "LEFT JOIN"]);
                let condition = condition(self.random, &scope, 1);
                format!(
                    "SELECT count(*), count(y.{two}), min(x.{one}), max(y.{two}) FROM {name} AS x {kind} {} AS y \
                     ON x.{one} = y.{two} WHERE {condition}",
                    other.name
                )
            }
            _ => format!("SELECT * FROM {name} WHERE {}", self.condition(table)),
        })
    }
}

/// The column of a key of one column of whole numbers that no condition of the table is about.
fn movable_key(table: &Table) -> Option<&str> {
    let key = table.number_key()?;
    let is_checked = table.checks.iter().any(|(_, column)| table.name_of(*column) == key.name);
    let keys = table
        .keys()
        .iter()
        .filter(|columns| columns.iter().any(|column| table.name_of(*column) == key.name))
        .count();
    (!is_checked && keys == 1).then_some(key.name.as_str())
}
