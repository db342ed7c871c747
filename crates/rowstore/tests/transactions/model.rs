//! What tables should hold: a sorted map of rows per state, and what each transaction that is open sees.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use nandina_rowstore::heap::RowId;
use nandina_rowstore::heap::directory::TableId;
use nandina_rowstore::transaction::Savepoint;
use nandina_rowstore::{Error, RowStore, Transaction};

use crate::setup::Random;

/// Rows of a table; at so many, rows are deleted in place of being added.
const MOST_ROWS: usize = 300;

pub type Rows = BTreeMap<RowId, Vec<u8>>;
/// Rows that were changed: what they are, or that they were deleted.
pub type Changes = BTreeMap<RowId, Option<Vec<u8>>>;

/// Bytes of a row: short mostly, some longer than a page, a few of many pages.
pub fn bytes(random: &mut Random) -> Vec<u8> {
    let length = match random.below(40) {
        0 => 5000 + random.below(3000),
        1 => 80_000 + random.below(10_000),
        2..5 => random.below(1500),
        5 => 0,
        _ => random.below(60),
    };
    let first = random.below(251);
    let mut bytes: Vec<u8> = (0..length).map(|at| (at * 13 + first) as u8).collect();
    // So that a row that was changed looks changed.
    let number = random.below(1 << 52).to_le_bytes();
    bytes.iter_mut().zip(number).for_each(|(to, from)| *to = from);
    bytes
}

/// Whether a row may have been changed and look as it did.
fn may_look_the_same(bytes: Option<&Vec<u8>>) -> bool {
    bytes.is_some_and(|bytes| bytes.len() < 8)
}

/// A transaction, and what it should see.
pub struct Open<'s> {
    pub transaction: Transaction<'s>,
    pub rows: Rows,
    /// The state that it began with.
    base: Rows,
    /// What it has changed.
    changed: Changes,
    savepoints: Vec<(Savepoint, Rows, Changes)>,
}

impl<'s> Open<'s> {
    pub fn begin(store: &'s RowStore, committed: &Rows) -> Self {
        Self {
            transaction: store.begin(),
            rows: committed.clone(),
            base: committed.clone(),
            changed: BTreeMap::new(),
            savepoints: Vec::new(),
        }
    }

    fn pick(&self, random: &mut Random) -> Option<RowId> {
        let among = self.rows.len().max(self.base.len()) as u64;
        let rows = if random.below(8) == 0 { &self.base } else { &self.rows };
        rows.keys().nth(random.below(among.max(1)) as usize).copied()
    }

    /// Does something, and expects a conflict exactly where another transaction has changed the row: one that is open,
    /// or one that was committed since this one began.
    pub fn step(&mut self, table: TableId, random: &mut Random, committed: &Rows, others: &[&Self]) {
        let is_taken = |row: RowId, base: &Rows| {
            committed.get(&row) != base.get(&row)
                || others.iter().any(|other| other.changed.contains_key(&row))
        };
        match random.below(12) {
            0..5 if self.rows.len() < MOST_ROWS => {
                let bytes = bytes(random);
                let row = self.transaction.insert(table, &bytes).unwrap();
                assert!(!self.rows.contains_key(&row), "row {row} is there");
                self.changed.insert(row, Some(bytes.clone()));
                self.rows.insert(row, bytes);
            }
            5..9 => {
                let Some(row) = self.pick(random) else { return };
                let bytes = bytes(random);
                let is_mine = self.changed.contains_key(&row);
                match self.transaction.update(table, row, &bytes) {
                    Ok(is_there) => {
                        assert_eq!(is_there, self.rows.contains_key(&row), "update of {row}");
                        assert!(!is_there || is_mine || !is_taken(row, &self.base), "{row} has been changed");
                        if is_there {
                            self.changed.insert(row, Some(bytes.clone()));
                            self.rows.insert(row, bytes);
                        }
                    }
                    Err(Error::Conflict) => assert!(
                        !is_mine && (is_taken(row, &self.base) || may_look_the_same(self.base.get(&row))),
                        "{row} is free"
                    ),
                    Err(error) => panic!("{error}"),
                }
            }
            0..5 | 9 => {
                let Some(row) = self.pick(random) else { return };
                let is_mine = self.changed.contains_key(&row);
                match self.transaction.delete(table, row) {
                    Ok(is_there) => {
                        assert_eq!(is_there, self.rows.remove(&row).is_some(), "delete of {row}");
                        assert!(!is_there || is_mine || !is_taken(row, &self.base), "{row} has been changed");
                        if is_there {
                            self.changed.insert(row, None);
                        }
                    }
                    Err(Error::Conflict) => assert!(
                        !is_mine && (is_taken(row, &self.base) || may_look_the_same(self.base.get(&row))),
                        "{row} is free"
                    ),
                    Err(error) => panic!("{error}"),
                }
            }
            10 => {
                let savepoint = self.transaction.savepoint();
                self.savepoints.push((savepoint, self.rows.clone(), self.changed.clone()));
            }
            _ => {
                let Some((savepoint, rows, changed)) = self.savepoints.pop() else { return };
                self.transaction.roll_back_to(savepoint).unwrap();
                (self.rows, self.changed) = (rows, changed);
            }
        }
    }

    /// Whether it sees exactly what it should.
    pub fn check(&self, table: TableId, context: &str) {
        let seen: Rows = self.transaction.scan(table).unwrap().map(Result::unwrap).collect();
        assert!(seen == self.rows, "{context}: {:?}", difference(&seen, &self.rows));
        for (row, bytes) in self.rows.iter().take(3) {
            assert!(self.transaction.get(table, *row).unwrap().as_ref() == Some(bytes), "{context}: {row}");
        }
        let ids: Vec<RowId> = self.base.keys().chain(self.rows.keys().rev()).copied().collect();
        let mut asked = ids.iter();
        let take = |row, bytes: Option<&[u8]>| {
            assert_eq!(asked.next(), Some(&row));
            assert!(bytes == self.rows.get(&row).map(Vec::as_slice), "{context}: {row}");
            ControlFlow::Continue(())
        };
        self.transaction.get_each(table, &ids, take).unwrap();
        assert_eq!(asked.next(), None);
    }

    /// Commits; what all see then.
    pub fn commit(self, committed: &mut Rows) {
        self.transaction.commit().unwrap();
        apply(self.changed, committed);
    }
}

pub fn apply(changed: Changes, to: &mut Rows) {
    for (row, bytes) in changed {
        match bytes {
            Some(bytes) => to.insert(row, bytes),
            None => to.remove(&row),
        };
    }
}

/// Rows that differ, for messages.
fn difference(seen: &Rows, right: &Rows) -> Vec<(RowId, Option<usize>, Option<usize>)> {
    let rows = seen.keys().chain(right.keys());
    let differ = rows.filter(|row| seen.get(row) != right.get(row));
    differ.map(|row| (*row, seen.get(row).map(Vec::len), right.get(row).map(Vec::len))).take(5).collect()
}
