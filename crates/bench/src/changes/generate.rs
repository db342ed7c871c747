//! The steps of a round: tables, what changes them, transactions, and looks at what there is.
//!
//! One session at a time has a transaction that changes rows, as SQLite allows no more; others read meanwhile what was
//! committed, or an older state.

use std::collections::VecDeque;

use super::engines::Outcome;
use super::statements::Statements;
use super::step::{Action, Step};
use super::tables::{Index, Table};
use crate::random::Random;

/// A transaction that changes rows.
struct Transaction {
    session: usize,
    savepoints: Vec<String>,
}

pub struct Generator {
    random: Random,
    sessions: usize,
    tables: Vec<Table>,
    writing: Option<Transaction>,
    /// Sessions whose transactions only read.
    reading: Vec<usize>,
    waiting: VecDeque<Step>,
    /// An index that is being made, of the table with this number.
    making: Option<(usize, Index)>,
    indexes: usize,
    since_looked: usize,
}

/// Steps between looks at all tables.
const LOOK_AFTER: usize = 12;

impl Generator {
    pub fn new(seed: u64, sessions: usize) -> Self {
        let mut random = Random::new(seed);
        let count = random.between(2, 3);
        let tables: Vec<Table> =
            (0..count).map(|number| Table::random(&mut random, format!("t{number}"))).collect();
        let create = |table: &Table| {
            let (ours, sqlite) = table.create();
            Step { session: 0, action: Action::Different { ours, sqlite: vec![sqlite] } }
        };
        let waiting = tables.iter().map(create).collect();
        Self {
            random,
            sessions,
            tables,
            writing: None,
            reading: Vec::new(),
            waiting,
            making: None,
            indexes: 0,
            since_looked: 0,
        }
    }

    fn statements(&mut self) -> Statements<'_> {
        Statements { tables: &self.tables, random: &mut self.random }
    }

    /// The next step.
    pub fn step(&mut self) -> Step {
        if let Some(step) = self.waiting.pop_front() {
            return step;
        }
        self.since_looked += 1;
        if self.since_looked > LOOK_AFTER {
            self.look();
            if let Some(step) = self.waiting.pop_front() {
                return step;
            }
        }
        loop {
            let action = match self.random.below(100) {
                0..9 => self.transaction(),
                9..12 => self.reader(),
                12..15 => self.definition(),
                15..17 => self.upkeep(),
                17..30 => {
                    let session = self.random.below(self.sessions);
                    let text = self.statements().query();
                    text.map(|text| Step { session, action: Action::Statement(text) })
                }
                _ => {
                    let session = self.writer();
                    self.statements().change().map(|action| Step { session, action })
                }
            };
            // Behind what was made on the way to it.
            if let Some(step) = action {
                self.waiting.push_back(step);
            }
            if let Some(step) = self.waiting.pop_front() {
                return step;
            }
        }
    }

    /// All tables, in a session of which it matters what it sees.
    pub fn look(&mut self) {
        self.since_looked = 0;
        let session = self.random.below(self.sessions);
        for table in &self.tables {
            let action = Action::Statement(format!("SELECT * FROM {}", table.name));
            self.waiting.push_back(Step { session, action });
        }
    }

    /// What a step has come to.
    pub fn tell(&mut self, outcome: &Outcome) {
        if let Some((table, index)) = self.making.take()
            && *outcome == Outcome::Done
            && let Some(table) = self.tables.get_mut(table)
        {
            table.indexes.push(index);
        }
    }

    /// The session that may change rows now.
    fn writer(&mut self) -> usize {
        if let Some(writing) = &self.writing {
            return writing.session;
        }
        let reading = &self.reading;
        let free: Vec<usize> = (0..self.sessions).filter(|session| !reading.contains(session)).collect();
        self.random.pick(&free).copied().unwrap_or_default()
    }

    fn transaction(&mut self) -> Option<Step> {
        let session = self.writer();
        let Some(writing) = &mut self.writing else {
            self.writing = Some(Transaction { session, savepoints: Vec::new() });
            let text = self.random.one_of(["BEGIN", "BEGIN TRANSACTION"]).to_owned();
            return Some(Step { session, action: Action::Statement(text) });
        };
        let text = match self.random.below(10) {
            0..3 => {
                self.writing = None;
                "COMMIT".to_owned()
            }
            3 => {
                self.writing = None;
                "ROLLBACK".to_owned()
            }
            4..7 => {
                let name = format!("s{}", self.random.below(5));
                writing.savepoints.push(name.clone());
                format!("SAVEPOINT {name}")
            }
            kind => {
                let name = self.random.pick(&writing.savepoints)?.clone();
                // Of several with a name, the last one is meant.
                let place = writing.savepoints.iter().rposition(|other| *other == name)?;
                let is_release = kind == 7;
                writing.savepoints.truncate(if is_release { place } else { place + 1 });
                format!("{} {name}", if is_release { "RELEASE SAVEPOINT" } else { "ROLLBACK TO SAVEPOINT" })
            }
        };
        Some(Step { session, action: Action::Statement(text) })
    }

    /// A session begins to read one state, or ends.
    fn reader(&mut self) -> Option<Step> {
        if self.sessions < 2 {
            return None;
        }
        let session = self.random.below(self.sessions);
        if self.writing.as_ref().is_some_and(|writing| writing.session == session) {
            return None;
        }
        if let Some(place) = self.reading.iter().position(|other| *other == session) {
            self.reading.remove(place);
            return Some(Step { session, action: Action::Statement("COMMIT".to_owned()) });
        }
        // One session can always write.
        if self.reading.len() + 1 >= self.sessions {
            return None;
        }
        self.reading.push(session);
        let ours = "BEGIN TRANSACTION READ ONLY".to_owned();
        let begin = Action::Different { ours, sqlite: vec!["BEGIN".to_owned()] };
        self.waiting.push_back(Step { session, action: begin });
        // SQLite's state is that of the first query.
        for table in &self.tables {
            let action = Action::Statement(format!("SELECT count(*) FROM {}", table.name));
            self.waiting.push_back(Step { session, action });
        }
        None
    }

    /// Whether there is no transaction.
    fn is_quiet(&self) -> bool {
        self.writing.is_none() && self.reading.is_empty()
    }

    /// An index is made or dropped, or a table is replaced.
    fn definition(&mut self) -> Option<Step> {
        if !self.is_quiet() {
            return None;
        }
        let session = self.random.below(self.sessions);
        let number = self.random.below(self.tables.len());
        let table = self.tables.get_mut(number)?;
        if self.random.chance(10) {
            let dropped = format!("DROP TABLE {}", table.name);
            *table = Table::random(&mut self.random, table.name.clone());
            let (ours, sqlite) = table.create();
            self.waiting.push_back(Step { session, action: Action::Statement(dropped) });
            return Some(Step { session, action: Action::Different { ours, sqlite: vec![sqlite] } });
        }
        if self.random.chance(35) && !table.indexes.is_empty() {
            let dropped = table.indexes.remove(self.random.below(table.indexes.len()));
            return Some(Step { session, action: Action::Statement(format!("DROP INDEX {}", dropped.name)) });
        }
        if table.indexes.len() >= 3 {
            return None;
        }
        self.indexes += 1;
        let index = Index {
            name: format!("i{}", self.indexes),
            columns: table.key_columns(&mut self.random),
            is_unique: self.random.chance(25),
        };
        if index.columns.is_empty() {
            return None;
        }
        let unique = if index.is_unique { "UNIQUE " } else { "" };
        let columns = table.names_of(&index.columns);
        let text = format!("CREATE {unique}INDEX {} ON {} ({columns})", index.name, table.name);
        self.making = Some((number, index));
        Some(Step { session, action: Action::Statement(text) })
    }

    /// What changes no row.
    fn upkeep(&mut self) -> Option<Step> {
        let session = self.writer();
        match self.random.below(8) {
            0..4 if self.writing.is_none() => {
                let table = self.random.pick(&self.tables)?;
                Some(Step { session, action: Action::Ours(format!("VACUUM {}", table.name)) })
            }
            4 | 5 if self.writing.is_none() => {
                Some(Step { session, action: Action::Ours("CHECKPOINT".to_owned()) })
            }
            6 => {
                self.writing = None;
                self.reading.clear();
                self.look();
                self.waiting.push_front(Step { session, action: Action::Reopen });
                None
            }
            7 if self.is_quiet() => {
                let table = self.random.pick(&self.tables)?;
                let ours = format!("TRUNCATE {}", table.name);
                let sqlite = vec![format!("DELETE FROM {}", table.name)];
                Some(Step { session, action: Action::Different { ours, sqlite } })
            }
            _ => None,
        }
    }
}
