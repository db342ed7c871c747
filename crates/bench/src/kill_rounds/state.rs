//! What there is to be of a session's rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::statements::{Change, Conflict, Keys, Statement, Table};

/// A row but for its key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    pub name: Option<Arc<str>>,
    pub amount: i64,
    pub note: Arc<str>,
}

/// All that belongs to one session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// Its rows in the table of all.
    pub accounts: BTreeMap<i64, Row>,
    /// Its copy, sorted; none if there is no such table.
    pub copy: Option<Vec<(i64, Row)>>,
    /// Whether there is the index, which the first session makes and drops.
    pub has_index: bool,
}

/// What a statement is to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    Done,
    Changed(u64),
    /// It changes nothing, as the table does not want what it would come to.
    Failed,
}

impl State {
    pub fn apply(&mut self, statement: &Statement) -> Expected {
        match statement {
            Statement::Of(Table::Accounts, change) => match changed(&self.accounts, change) {
                Some((after, count)) => {
                    self.accounts = after;
                    return Expected::Changed(count);
                }
                None => return Expected::Failed,
            },
            Statement::Of(Table::Copy, change) => {
                return match &mut self.copy {
                    Some(rows) => Expected::Changed(change_copy(rows, change)),
                    None => Expected::Failed,
                };
            }
            Statement::MakeCopy => {
                self.copy = Some(self.accounts.iter().map(|(key, row)| (*key, row.clone())).collect());
            }
            Statement::DropCopy => self.copy = None,
            Statement::MakeIndex => self.has_index = true,
            Statement::DropIndex => self.has_index = false,
            Statement::Vacuum if self.copy.is_none() => return Expected::Failed,
            Statement::Vacuum | Statement::VacuumAll | Statement::Checkpoint => {}
        }
        Expected::Done
    }

    /// The first few differences to another one, for people.
    pub fn differences(&self, other: &Self) -> String {
        let mut lines = Vec::new();
        let all = |state: &Self| -> Vec<(i64, Row)> {
            state.accounts.iter().map(|(key, row)| (*key, row.clone())).collect()
        };
        only_in("accounts", &all(self), &all(other), &mut lines);
        match (&self.copy, &other.copy) {
            (Some(ours), Some(others)) => only_in("the copy", ours, others, &mut lines),
            (None, None) => {}
            (ours, _) => lines.push(format!("only one has a copy: {}", ours.is_some())),
        }
        if self.has_index != other.has_index {
            lines.push(format!("only one has the index: {}", self.has_index));
        }
        lines.join("\n")
    }
}

/// Tells rows that only one side has.
fn only_in(table: &str, ours: &[(i64, Row)], others: &[(i64, Row)], lines: &mut Vec<String>) {
    lines.push(format!("{table}: {} rows, the other one {}", ours.len(), others.len()));
    for (which, rows, without) in [("only here", ours, others), ("only there", others, ours)] {
        let missing = rows.iter().filter(|row| !without.contains(row));
        lines.extend(missing.take(5).map(|row| format!("  {which}: {}", shown(row))));
    }
}

/// A row for people.
pub fn shown((key, row): &(i64, Row)) -> String {
    let name = row.name.as_deref().unwrap_or("NULL");
    let note: String = row.note.chars().take(20).collect();
    format!("({key}, {name}, {}, {note}… of {} letters)", row.amount, row.note.len())
}

fn has_name(rows: &BTreeMap<i64, Row>, name: Option<&Arc<str>>) -> bool {
    name.is_some() && rows.values().any(|row| row.name.as_ref() == name)
}

/// The rows behind a change, and how many it has changed; none if it fails.
fn changed(before: &BTreeMap<i64, Row>, change: &Change) -> Option<(BTreeMap<i64, Row>, u64)> {
    let (mut after, mut count) = (before.clone(), 0);
    match change {
        Change::Insert(rows, conflict) => {
            for (key, row) in rows {
                if *conflict == Conflict::Add
                    && let Some(there) = after.get_mut(key)
                {
                    there.amount += row.amount;
                    there.note = Arc::clone(&row.note);
                    count += 1;
                    continue;
                }
                let is_in_the_way = after.contains_key(key) || has_name(&after, row.name.as_ref());
                if is_in_the_way && *conflict == Conflict::Nothing {
                    continue;
                }
                if is_in_the_way || row.amount < 0 {
                    return None;
                }
                after.insert(*key, row.clone());
                count += 1;
            }
        }
        Change::InsertShifted(keys, by) => {
            for (key, row) in before.iter().filter(|(key, _)| keys.have(**key)) {
                let row = Row { name: None, ..row.clone() };
                if after.insert(key + by, row).is_some() {
                    return None;
                }
                count += 1;
            }
        }
        Change::Add(keys, amount, note) => {
            for (_, row) in after.iter_mut().filter(|(key, _)| keys.have(**key)) {
                add(row, *amount, note.as_ref());
                if row.amount < 0 {
                    return None;
                }
                count += 1;
            }
        }
        Change::Rename(key, name) => {
            let mut others = before.iter().filter(|(other, _)| *other != key);
            let is_taken = others.any(|(_, row)| row.name.as_ref() == Some(name));
            if let Some(row) = after.get_mut(key) {
                if is_taken {
                    return None;
                }
                row.name = Some(Arc::clone(name));
                count += 1;
            }
        }
        Change::Move(keys, by) => {
            after.retain(|key, _| !keys.have(*key));
            for (key, row) in before.iter().filter(|(key, _)| keys.have(**key)) {
                if after.insert(key + by, row.clone()).is_some() {
                    return None;
                }
                count += 1;
            }
        }
        Change::Delete(keys) => {
            after.retain(|key, _| !keys.have(*key));
            count += (before.len() - after.len()) as u64;
        }
    }
    Some((after, count))
}

fn add(row: &mut Row, amount: i64, note: Option<&Arc<str>>) {
    row.amount += amount;
    if let Some(note) = note {
        row.note = Arc::clone(note);
    }
}

/// Changes rows of a table that wants all; how many.
fn change_copy(rows: &mut Vec<(i64, Row)>, change: &Change) -> u64 {
    let before = rows.len();
    let matching = |rows: &[(i64, Row)], keys: &Keys| rows.iter().filter(|(key, _)| keys.have(*key)).count();
    let count = match change {
        Change::Insert(new, _) => {
            rows.extend(new.iter().cloned());
            new.len()
        }
        Change::InsertShifted(keys, by) => {
            let shifted = |(key, row): &(i64, Row)| (key + by, Row { name: None, ..row.clone() });
            let new: Vec<_> = rows.iter().filter(|(key, _)| keys.have(*key)).map(shifted).collect();
            rows.extend(new);
            rows.len() - before
        }
        Change::Add(keys, amount, note) => {
            let changed = matching(rows, keys);
            for (_, row) in rows.iter_mut().filter(|(key, _)| keys.have(*key)) {
                add(row, *amount, note.as_ref());
            }
            changed
        }
        Change::Rename(key, name) => {
            let changed = matching(rows, &Keys::One(*key));
            for (_, row) in rows.iter_mut().filter(|(other, _)| other == key) {
                row.name = Some(Arc::clone(name));
            }
            changed
        }
        Change::Move(keys, by) => {
            let changed = matching(rows, keys);
            for (key, _) in rows.iter_mut().filter(|(key, _)| keys.have(*key)) {
                *key += by;
            }
            changed
        }
        Change::Delete(keys) => {
            rows.retain(|(key, _)| !keys.have(*key));
            before - rows.len()
        }
    };
    rows.sort_unstable();
    count as u64
}
