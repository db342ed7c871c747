//! What sessions do, and how SQL says it.

use std::sync::Arc;

use super::state::{Expected, Row, State};
use super::task::{End, Script};
use super::{KEYS, SESSIONS};

/// The table of all, with keys, or the session's own copy of its rows, without any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    Accounts,
    Copy,
}

/// Rows by their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    One(i64),
    /// Those of the session from the first one to the last one.
    Range(i64, i64),
}

/// What becomes of rows to be inserted whose keys are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflict {
    /// None of the statement's rows is inserted.
    Fail,
    Nothing,
    /// The amount is added to that of the row that is there, which gets the note.
    Add,
}

/// A change of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Insert(Vec<(i64, Row)>, Conflict),
    /// Inserts rows that are there under other keys, without names.
    InsertShifted(Keys, i64),
    /// Adds to the amount, and may give another note.
    Add(Keys, i64, Option<Arc<str>>),
    /// Gives another name to the row of a key.
    Rename(i64, Arc<str>),
    /// Adds to keys.
    Move(Keys, i64),
    Delete(Keys),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    Of(Table, Change),
    /// Makes the session's copy, in the place of one that is there.
    MakeCopy,
    DropCopy,
    MakeIndex,
    DropIndex,
    /// Of the session's copy.
    Vacuum,
    VacuumAll,
    Checkpoint,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Run(Statement),
    Savepoint,
    RollBackTo,
}

/// Statements that are done together, or one by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    pub steps: Vec<Step>,
    pub end: End,
}

/// The name of the copy of a session's rows.
pub fn copy_name(session: usize) -> String {
    format!("copy_{session}")
}

/// A name of a session, from its number: some are long, so that pages of the index have few of them.
pub fn name_text(session: usize, number: usize) -> String {
    format!("{number:04} of session {session}{}", "-".repeat(number % 50))
}

impl Keys {
    /// All that a session has.
    pub fn all() -> Self {
        Self::Range(0, (KEYS * SESSIONS) as i64 - 1)
    }

    /// Whether a key of the session is one of them.
    pub fn have(self, key: i64) -> bool {
        match self {
            Self::One(one) => key == one,
            Self::Range(first, last) => (first..=last).contains(&key),
        }
    }

    fn condition(self, session: usize) -> String {
        match self {
            Self::One(key) => format!("k = {key}"),
            Self::Range(first, last) => {
                format!("k BETWEEN {first} AND {last} AND k % {SESSIONS} = {session}")
            }
        }
    }
}

/// What a value becomes that a number is added to.
fn sum(column: &str, number: i64) -> String {
    let sign = if number < 0 { '-' } else { '+' };
    format!("{column} {sign} {}", number.unsigned_abs())
}

impl Change {
    fn text(&self, table: Table, session: usize) -> String {
        let name = match table {
            Table::Accounts => "accounts".to_owned(),
            Table::Copy => copy_name(session),
        };
        match self {
            Self::Insert(rows, conflict) => {
                let value = |(key, row): &(i64, Row)| {
                    let name =
                        row.name.as_ref().map_or_else(|| "NULL".to_owned(), |name| format!("'{name}'"));
                    format!("({key}, {name}, {}, '{}')", row.amount, row.note)
                };
                let values: Vec<String> = rows.iter().map(value).collect();
                let conflict = match (table, conflict) {
                    (Table::Copy, _) | (_, Conflict::Fail) => "",
                    (_, Conflict::Nothing) => " ON CONFLICT DO NOTHING",
                    (_, Conflict::Add) => {
                        " ON CONFLICT (k) DO UPDATE SET amount = accounts.amount + excluded.amount, note = excluded.note"
                    }
                };
                format!("INSERT INTO {name} VALUES {}{conflict}", values.join(", "))
            }
            Self::InsertShifted(keys, by) => format!(
                "INSERT INTO {name} SELECT {}, NULL, amount, note FROM {name} WHERE {}",
                sum("k", *by),
                keys.condition(session)
            ),
            Self::Add(keys, amount, note) => {
                let note = note.as_ref().map_or_else(String::new, |note| format!(", note = '{note}'"));
                let (amount, condition) = (sum("amount", *amount), keys.condition(session));
                format!("UPDATE {name} SET amount = {amount}{note} WHERE {condition}")
            }
            Self::Rename(key, text) => format!("UPDATE {name} SET name = '{text}' WHERE k = {key}"),
            Self::Move(keys, by) => {
                format!("UPDATE {name} SET k = {} WHERE {}", sum("k", *by), keys.condition(session))
            }
            Self::Delete(keys) => format!("DELETE FROM {name} WHERE {}", keys.condition(session)),
        }
    }
}

impl Statement {
    pub fn text(&self, session: usize) -> String {
        let copy = copy_name(session);
        match self {
            Self::Of(table, change) => change.text(*table, session),
            Self::MakeCopy => format!(
                "CREATE OR REPLACE TABLE {copy} AS SELECT * FROM accounts WHERE {}",
                Keys::all().condition(session)
            ),
            Self::DropCopy => format!("DROP TABLE IF EXISTS {copy}"),
            Self::MakeIndex => "CREATE INDEX IF NOT EXISTS by_amount ON accounts (amount, k)".to_owned(),
            Self::DropIndex => "DROP INDEX IF EXISTS by_amount".to_owned(),
            Self::Vacuum => format!("VACUUM {copy}"),
            Self::VacuumAll => "VACUUM".to_owned(),
            Self::Checkpoint => "CHECKPOINT".to_owned(),
        }
    }
}

impl Step {
    pub fn text(&self, session: usize) -> String {
        match self {
            Self::Run(statement) => statement.text(session),
            Self::Savepoint => "SAVEPOINT here".to_owned(),
            Self::RollBackTo => "ROLLBACK TO here".to_owned(),
        }
    }
}

impl Transaction {
    pub fn alone(statement: Statement) -> Self {
        Self { steps: vec![Step::Run(statement)], end: End::Alone }
    }

    /// What a process runs.
    pub fn script(&self, session: usize) -> Script {
        Script { statements: self.steps.iter().map(|step| step.text(session)).collect(), end: self.end }
    }

    /// The state behind it, and what each of its steps says.
    pub fn apply(&self, before: &State) -> (State, Vec<Expected>) {
        let (mut now, mut savepoint) = (before.clone(), None);
        let mut expected = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            expected.push(match step {
                Step::Run(statement) => now.apply(statement),
                Step::Savepoint => {
                    savepoint = Some(now.clone());
                    Expected::Done
                }
                Step::RollBackTo => match &savepoint {
                    Some(savepoint) => {
                        now = savepoint.clone();
                        Expected::Done
                    }
                    None => Expected::Failed,
                },
            });
        }
        match self.end {
            End::RollBack => (before.clone(), expected),
            End::Alone | End::Commit => (now, expected),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: Option<&str>, amount: i64) -> Row {
        Row { name: name.map(Arc::from), amount, note: Arc::from("n") }
    }

    fn insert(rows: &[(i64, Row)], conflict: Conflict) -> Step {
        Step::Run(Statement::Of(Table::Accounts, Change::Insert(rows.to_vec(), conflict)))
    }

    fn change(table: Table, change: Change) -> Step {
        Step::Run(Statement::Of(table, change))
    }

    #[test]
    fn texts_are_sql() {
        let step = insert(&[(3, row(Some("a"), 5)), (6, row(None, -1))], Conflict::Nothing);
        let text = "INSERT INTO accounts VALUES (3, 'a', 5, 'n'), (6, NULL, -1, 'n') ON CONFLICT DO NOTHING";
        assert_eq!(step.text(0), text);
        let step = change(Table::Copy, Change::Add(Keys::Range(3, 8), -2, None));
        assert_eq!(
            step.text(1),
            "UPDATE copy_1 SET amount = amount - 2 WHERE k BETWEEN 3 AND 8 AND k % 3 = 1"
        );
    }

    #[test]
    fn states_follow_transactions() {
        let steps = vec![
            insert(&[(0, row(Some("a"), 5)), (3, row(None, 7))], Conflict::Fail),
            // Of several rows that cannot all be inserted none is.
            insert(&[(6, row(None, 1)), (9, row(Some("a"), 1))], Conflict::Fail),
            insert(&[(0, row(None, 1)), (6, row(None, 1))], Conflict::Add),
            insert(&[(0, row(None, 1)), (9, row(Some("a"), 1)), (12, row(None, 2))], Conflict::Nothing),
            Step::Savepoint,
            change(Table::Accounts, Change::Delete(Keys::all())),
            Step::RollBackTo,
            change(Table::Accounts, Change::Move(Keys::Range(0, 5), 3)),
            change(Table::Accounts, Change::Move(Keys::Range(0, 5), 12)),
            change(Table::Accounts, Change::Add(Keys::all(), -2, None)),
            change(Table::Copy, Change::Delete(Keys::all())),
        ];
        let transaction = Transaction { steps, end: End::Commit };
        let (after, expected) = transaction.apply(&State::default());
        use Expected::{Changed, Done, Failed};
        let said = [
            Changed(2),
            Failed,
            Changed(2),
            Changed(1),
            Done,
            Changed(4),
            Done,
            Failed,
            Failed,
            Failed,
            Failed,
        ];
        assert_eq!(expected, said);
        let amounts: Vec<(i64, i64)> = after.accounts.iter().map(|(key, row)| (*key, row.amount)).collect();
        assert_eq!(amounts, [(0, 6), (3, 7), (6, 1), (12, 2)]);
        let rolled_back = Transaction { end: End::RollBack, ..transaction };
        assert_eq!(rolled_back.apply(&State::default()).0, State::default());
    }
}
