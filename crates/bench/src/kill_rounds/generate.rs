//! What a session does in a round: transactions that mostly find rows, and sometimes are in each other's way.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::state::{Row, State};
use super::statements::{Change, Conflict, Keys, Statement, Step, Table, Transaction, name_text};
use super::task::End;
use super::{KEYS, NAMES, SESSIONS};
use crate::random::Random;

/// Keys of a range, at most.
const LONGEST_RANGE: usize = 40;
/// The same where they are to get other ones, which must be free.
const LONGEST_SHIFTED: usize = 6;
/// A copy does not grow beyond so many rows.
const MOST_COPIED: usize = 1000;

/// Makes the transactions of one session.
pub struct Generator<'r> {
    random: &'r mut Random,
    session: usize,
    /// No other session does anything meanwhile.
    is_alone: bool,
    /// What there is, if nothing that was made before is refused.
    state: State,
}

impl<'r> Generator<'r> {
    pub fn new(random: &'r mut Random, session: usize, is_alone: bool, state: State) -> Self {
        Self { random, session, is_alone, state }
    }

    pub fn transactions(mut self, count: usize) -> Vec<Transaction> {
        (0..count).map(|_| self.transaction()).collect()
    }

    fn transaction(&mut self) -> Transaction {
        let before = self.state.clone();
        let transaction = match self.random.below(100) {
            0..36 => Transaction::alone(self.change()),
            36..77 => self.several(End::Commit),
            77..89 => self.several(End::RollBack),
            89..93 if before.copy.is_some() && self.random.chance(40) => {
                Transaction::alone(Statement::DropCopy)
            }
            89..93 => Transaction::alone(Statement::MakeCopy),
            // It waits for a moment at which no other session has changed something.
            93..95 if self.is_alone || self.random.chance(20) => Transaction::alone(Statement::Vacuum),
            95 => Transaction::alone(Statement::Checkpoint),
            96..99 if self.session == 0 => Transaction::alone(match before.has_index {
                true => Statement::DropIndex,
                false => Statement::MakeIndex,
            }),
            99 if self.is_alone => Transaction::alone(Statement::VacuumAll),
            _ => Transaction::alone(self.change()),
        };
        self.state = transaction.apply(&before).0;
        transaction
    }

    fn several(&mut self, end: End) -> Transaction {
        let (mut steps, mut has_savepoint) = (Vec::new(), false);
        for _ in 0..self.random.between(1, 6) {
            match self.random.below(12) {
                0 => {
                    has_savepoint = true;
                    steps.push(Step::Savepoint);
                }
                1 if has_savepoint => steps.push(Step::RollBackTo),
                _ => {
                    let statement = self.change();
                    // The next one is likely to find what this one leaves.
                    self.state.apply(&statement);
                    steps.push(Step::Run(statement));
                }
            }
        }
        Transaction { steps, end }
    }

    /// A statement that changes rows.
    fn change(&mut self) -> Statement {
        let copied = self.state.copy.as_ref().map(Vec::len);
        let table = match copied {
            Some(_) if self.random.chance(25) => Table::Copy,
            _ => Table::Accounts,
        };
        let is_full = match table {
            Table::Accounts => self.state.accounts.len() > KEYS * 3 / 4,
            Table::Copy => copied > Some(MOST_COPIED),
        };
        if is_full && self.random.chance(40) {
            return Statement::Of(table, Change::Delete(self.range(LONGEST_RANGE)));
        }
        let change = match self.random.below(100) {
            0..28 => self.insert(3),
            28..34 => self.insert(80),
            34..39 if !is_full => {
                let keys = self.range(LONGEST_SHIFTED);
                Change::InsertShifted(keys, self.shift(keys))
            }
            34..66 => {
                let note = if self.random.chance(40) { Some(self.note(true)) } else { None };
                let amount = self.random.between(0, 60) as i64 - 20;
                Change::Add(self.keys(), amount, note)
            }
            66..73 => {
                let name = Arc::from(name_text(self.session, self.random.below(NAMES)));
                Change::Rename(self.key(), name)
            }
            73..81 => {
                let keys = if self.random.chance(50) { self.range(LONGEST_SHIFTED) } else { self.keys() };
                Change::Move(keys, self.shift(keys))
            }
            _ => Change::Delete(self.keys()),
        };
        Statement::Of(table, change)
    }

    /// Inserts so many rows at most, which differ in their keys and names.
    fn insert(&mut self, most: usize) -> Change {
        let count = self.random.between(1, most);
        // Of many rows one is likely to be in the way.
        let conflict = match (self.random.below(10), most < 10) {
            (0..5, true) | (0..2, false) => Conflict::Fail,
            (5..8, true) | (2..6, false) => Conflict::Add,
            _ => Conflict::Nothing,
        };
        let first_name = self.random.below(NAMES);
        let mut rows = BTreeMap::new();
        for number in 0..count {
            let key = self.free_key();
            // With a name, a row that is to be added to another one could be in the way of a third one.
            let has_name = conflict != Conflict::Add && self.random.chance(70);
            let name = has_name.then(|| Arc::from(name_text(self.session, (first_name + number) % NAMES)));
            let is_refused = conflict == Conflict::Fail && self.random.chance(3);
            let amount = if is_refused { -1 } else { self.random.below(1000) as i64 };
            let note = self.note(count < 4);
            rows.insert(key, Row { name, amount, note });
        }
        Change::Insert(rows.into_iter().collect(), conflict)
    }

    fn key_of(&self, number: usize) -> i64 {
        (number * SESSIONS + self.session) as i64
    }

    /// A key that mostly has a row.
    fn key(&mut self) -> i64 {
        let count = self.state.accounts.len();
        let there = match self.random.chance(80) {
            true => self.state.accounts.keys().nth(self.random.below(count)).copied(),
            false => None,
        };
        match there {
            Some(key) => key,
            None => {
                let number = self.random.below(KEYS);
                self.key_of(number)
            }
        }
    }

    /// A key that mostly has none.
    fn free_key(&mut self) -> i64 {
        let mut key = 0;
        for _ in 0..4 {
            let number = self.random.below(KEYS);
            key = self.key_of(number);
            if !self.state.accounts.contains_key(&key) {
                break;
            }
        }
        key
    }

    fn range(&mut self, longest: usize) -> Keys {
        let length = self.random.between(1, longest);
        let first = self.random.below(KEYS - length);
        let last = first + length - 1;
        Keys::Range((first * SESSIONS) as i64, (last * SESSIONS + SESSIONS - 1) as i64)
    }

    fn keys(&mut self) -> Keys {
        match self.random.below(100) {
            0..70 => Keys::One(self.key()),
            70..97 => self.range(LONGEST_RANGE),
            _ => Keys::all(),
        }
    }

    /// What can be added to keys so that they stay among those of the session.
    fn shift(&mut self, keys: Keys) -> i64 {
        let sessions = SESSIONS as i64;
        let (first, last) = match keys {
            Keys::One(key) => (key / sessions, key / sessions),
            Keys::Range(first, last) => (first / sessions, last / sessions),
        };
        let length = (last - first + 1).clamp(1, KEYS as i64) as usize;
        let last_place = KEYS - length;
        let to = match self.random.chance(30) {
            // Over each other.
            true => (first + 1).min(last_place as i64),
            false => self.random.below(last_place + 1) as i64,
        };
        (to - first) * sessions
    }

    /// Small letters. Long ones take pages of their own.
    fn note(&mut self, may_be_long: bool) -> Arc<str> {
        let length = match self.random.below(40) {
            0 if may_be_long => self.random.between(5_000, 20_000),
            1..6 if may_be_long => self.random.between(300, 3_000),
            _ => self.random.below(60),
        };
        let (begin, step) = (self.random.below(26), self.random.between(1, 25));
        let letter = |at: usize| char::from(b'a' + ((begin + at * step) % 26) as u8);
        Arc::from((0..length).map(letter).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kill_rounds::state::Expected;

    /// Most statements find rows, some of them fail, and keys stay those of their session.
    #[test]
    fn statements_of_all_kinds_are_made() {
        let mut random = Random::new(7);
        let generator = Generator::new(&mut random, 1, true, State::default());
        let (mut state, mut changed, mut failed, mut most_rows) = (State::default(), 0, 0, 0);
        for transaction in generator.transactions(400) {
            let (after, expected) = transaction.apply(&state);
            changed += expected.iter().filter(|said| matches!(said, Expected::Changed(1..))).count();
            failed += expected.iter().filter(|said| **said == Expected::Failed).count();
            state = after;
            most_rows = most_rows.max(state.accounts.len());
            let keys = (0..(KEYS * SESSIONS) as i64).filter(|key| key % SESSIONS as i64 == 1);
            let keys: std::collections::BTreeSet<i64> = keys.collect();
            assert!(state.accounts.keys().all(|key| keys.contains(key)));
            let copied = state.copy.iter().flatten();
            assert!(copied.map(|(key, _)| key).all(|key| keys.contains(key)));
        }
        assert!(changed > 300, "{changed}");
        assert!(failed > 30 && failed < changed, "{failed}");
        assert!(most_rows > 100, "{most_rows}");
    }
}
