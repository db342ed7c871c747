//! What a database holds: by scans and by its indexes, and what lies beside it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use nandina::{Database, Options, Session};
use nandina_storage::MANIFEST;
use serde::Deserialize;

use super::state::{Row, State, shown};
use super::statements::{Statement, copy_name, name_text};
use super::{ACCOUNTS, KEYS, NAMES, SESSIONS};
use crate::changes::values::{self, Value, rows_of_batches};
use crate::random::Random;

/// What is seen, or what is wrong with it.
type Seen<T> = Result<T, String>;

const COLUMNS: &str = "k, name, amount, note";
/// Keys that are looked for together.
const KEYS_AT_ONCE: usize = 100;
/// Scans without an index: each reads the whole table.
const SCANS: usize = 3;
/// How long files may stay behind what they were for.
const PATIENCE: Duration = Duration::from_secs(5);

fn options(background_vacuum: bool) -> Options {
    Options {
        memory_limit: Some(64 << 20),
        threads: Some(2),
        auto_calibrate: false,
        background_vacuum,
        ..Options::default()
    }
}

fn in_words(error: nandina::Error) -> String {
    error.to_string()
}

/// Makes a database that no session has done anything in.
pub async fn begin(folder: &Path) -> Seen<()> {
    let database = Database::open(folder, options(true)).map_err(in_words)?;
    database.session().map_err(in_words)?.run(ACCOUNTS).await.map_err(in_words)
}

/// Opens a database; what there is of each session, where all ways of finding it say the same. `lookups` are made of each kind.
pub async fn look(
    folder: &Path,
    background_vacuum: bool,
    lookups: usize,
    random: &mut Random,
) -> Seen<Vec<State>> {
    let opened = Database::open(folder, options(background_vacuum));
    let database = opened.map_err(|error| format!("the database does not open: {error}"))?;
    let asking = Asking { session: database.session().map_err(in_words)? };
    let accounts = asking.records(&format!("SELECT {COLUMNS} FROM accounts")).await?;
    if accounts.windows(2).any(|pair| matches!(pair, [(one, _), (two, _)] if one == two)) {
        return Err("a key is there twice".to_owned());
    }
    asking.totals_are_right(&accounts).await?;
    asking.keys_are_found(&accounts, lookups, random).await?;
    asking.names_are_found(&accounts, lookups, random).await?;
    asking.amounts_are_found(&accounts, lookups, random).await?;
    let mut states = vec![State::default(); SESSIONS];
    for (number, state) in states.iter_mut().enumerate() {
        let of_session = accounts.iter().filter(|(key, _)| *key % SESSIONS as i64 == number as i64);
        state.accounts = of_session.cloned().collect();
    }
    asking.copies(&mut states).await?;
    let has_index = asking.has_index().await?;
    if let Some(first) = states.first_mut() {
        first.has_index = has_index;
    }
    Ok(states)
}

struct Asking {
    session: Session,
}

impl Asking {
    async fn rows(&self, text: &str) -> Seen<Vec<values::Row>> {
        let asked = async { self.session.sql(text).await?.collect().await };
        let batches = asked.await.map_err(|error| format!("{text}: {error}"))?;
        rows_of_batches(&batches).map_err(|error| format!("{text}: {error}"))
    }

    /// Rows of accounts, sorted.
    async fn records(&self, text: &str) -> Seen<Vec<(i64, Row)>> {
        let rows = self.rows(text).await?;
        let records: Option<Vec<_>> = rows.iter().map(record).collect();
        let mut records = records.ok_or_else(|| format!("{text}: there are values of other types"))?;
        records.sort_unstable();
        Ok(records)
    }

    /// Finds these rows, and no others.
    async fn finds<'r>(&self, condition: &str, wanted: impl Iterator<Item = &'r (i64, Row)>) -> Seen<()> {
        let text = format!("SELECT {COLUMNS} FROM accounts WHERE {condition}");
        let (found, wanted) = (self.records(&text).await?, wanted.cloned().collect::<Vec<_>>());
        if found == wanted {
            return Ok(());
        }
        let some = |rows: &[(i64, Row)]| {
            let texts: Vec<String> = rows.iter().take(5).map(shown).collect();
            format!("{} rows ({})", rows.len(), texts.join(", "))
        };
        Err(format!("{text}: {} in place of {} that a scan finds", some(&found), some(&wanted)))
    }

    async fn totals_are_right(&self, accounts: &[(i64, Row)]) -> Seen<()> {
        let text = "SELECT count(*), coalesce(sum(amount)::BIGINT, 0), count(name), count(DISTINCT name), \
                    count(DISTINCT k) FROM accounts";
        let count = accounts.len() as i64;
        let names = accounts.iter().filter(|(_, row)| row.name.is_some()).count() as i64;
        let amounts: i64 = accounts.iter().map(|(_, row)| row.amount).sum();
        let wanted: Vec<Value> = [count, amounts, names, names, count].map(Value::Whole).to_vec();
        let found = self.rows(text).await?;
        if found.first() == Some(&wanted) {
            return Ok(());
        }
        Err(format!("{text}: {found:?} in place of {wanted:?}"))
    }

    /// By the primary key: all in ranges, some one by one, and of these some by a condition for which there is no index.
    async fn keys_are_found(&self, accounts: &[(i64, Row)], lookups: usize, random: &mut Random) -> Seen<()> {
        for first in (0..KEYS * SESSIONS).step_by(KEYS_AT_ONCE) {
            let range = first as i64..(first + KEYS_AT_ONCE) as i64;
            let condition = format!("k BETWEEN {} AND {}", range.start, range.end - 1);
            self.finds(&condition, accounts.iter().filter(|(key, _)| range.contains(key))).await?;
        }
        for number in 0..lookups {
            let key = random.below(KEYS * SESSIONS) as i64;
            let wanted = || accounts.iter().filter(move |(other, _)| *other == key);
            self.finds(&format!("k = {key}"), wanted()).await?;
            if number < SCANS {
                self.finds(&format!("k + 0 = {key}"), wanted()).await?;
            }
        }
        Ok(())
    }

    /// The same by the secondary key, whose names are mostly there.
    async fn names_are_found(
        &self,
        accounts: &[(i64, Row)],
        lookups: usize,
        random: &mut Random,
    ) -> Seen<()> {
        for number in 0..lookups {
            let there = random.pick(accounts).and_then(|(_, row)| row.name.clone());
            let any = name_text(random.below(SESSIONS), random.below(NAMES));
            let name = there.as_deref().unwrap_or(&any);
            let wanted = || accounts.iter().filter(move |(_, row)| row.name.as_deref() == Some(name));
            self.finds(&format!("name = '{name}'"), wanted()).await?;
            if number < SCANS {
                self.finds(&format!("name || '' = '{name}'"), wanted()).await?;
            }
        }
        Ok(())
    }

    /// The same by amounts, for which there may be an index.
    async fn amounts_are_found(
        &self,
        accounts: &[(i64, Row)],
        lookups: usize,
        random: &mut Random,
    ) -> Seen<()> {
        for number in 0..lookups {
            let amount = random.pick(accounts).map_or(0, |(_, row)| row.amount);
            let wanted = || accounts.iter().filter(move |(_, row)| row.amount == amount);
            self.finds(&format!("amount = {amount}"), wanted()).await?;
            if number < SCANS {
                self.finds(&format!("amount + 0 = {amount}"), wanted()).await?;
            }
        }
        Ok(())
    }

    /// Reads the copies that there are.
    async fn copies(&self, states: &mut [State]) -> Seen<()> {
        let tables = self
            .rows("SELECT table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'")
            .await?;
        let mut names: BTreeSet<String> = BTreeSet::new();
        for row in tables {
            match row.into_iter().next() {
                Some(Value::Text(name)) => {
                    names.insert(name);
                }
                other => return Err(format!("the name of a table is {other:?}")),
            }
        }
        names.remove("accounts");
        for (session, state) in states.iter_mut().enumerate() {
            let name = copy_name(session);
            if names.remove(&name) {
                state.copy = Some(self.records(&format!("SELECT {COLUMNS} FROM {name}")).await?);
            }
        }
        match names.is_empty() {
            true => Ok(()),
            false => Err(format!("there are tables that nobody has made: {names:?}")),
        }
    }

    /// Whether there is the index, as far as making it tells.
    async fn has_index(&self) -> Seen<bool> {
        match self.rows("CREATE INDEX by_amount ON accounts (amount, k)").await {
            Err(message) if message.contains("there is an index") => Ok(true),
            Err(message) => Err(message),
            Ok(_) => self.rows(&Statement::DropIndex.text(0)).await.map(|_| false),
        }
    }
}

fn record(values: &values::Row) -> Option<(i64, Row)> {
    let [Value::Whole(key), name, Value::Whole(amount), Value::Text(note)] = values.as_slice() else {
        return None;
    };
    let name = match name {
        Value::Null => None,
        Value::Text(name) => Some(name.as_str().into()),
        _ => return None,
    };
    Some((*key, Row { name, amount: *amount, note: note.as_str().into() }))
}

/// What is left beside a database that was opened and closed, and is no part of it.
pub fn left_over(database: &Path) -> Option<String> {
    let begin = Instant::now();
    loop {
        let found = is_left_over(database);
        if found.is_none() || begin.elapsed() > PATIENCE {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_left_over(database: &Path) -> Option<String> {
    let temporary = names_in(&database.join("temp"));
    if let Some(name) = temporary.first() {
        return Some(format!("temporary files are left: {name}"));
    }
    let names = names_in(database);
    if let Some(name) = names.iter().find(|name| name.ends_with(".new")) {
        return Some(format!("{name} is left, which was to take the place of another file"));
    }
    let number = |name: &String| name.strip_prefix("segment-")?.strip_suffix(".pax")?.parse::<u64>().ok();
    let found: BTreeSet<u64> = names.iter().filter_map(number).collect();
    match segments(database) {
        Ok(wanted) if wanted == found => None,
        Ok(wanted) => Some(format!("there are the segments {found:?}, and {wanted:?} in the manifest")),
        Err(message) => Some(format!("the manifest: {message}")),
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The part of a manifest that says which files belong to it, as `docs/format.md` has it.
#[derive(Deserialize)]
struct Manifest {
    tables: Vec<TableOfManifest>,
}

#[derive(Deserialize)]
struct TableOfManifest {
    segments: Vec<SegmentOfManifest>,
}

#[derive(Deserialize)]
struct SegmentOfManifest {
    id: u64,
}

fn segments(database: &Path) -> Seen<BTreeSet<u64>> {
    let text = std::fs::read_to_string(database.join(MANIFEST)).map_err(|error| error.to_string())?;
    let (_, body) = text.split_once('\n').ok_or("it has one line")?;
    let manifest: Manifest = serde_json::from_str(body).map_err(|error| error.to_string())?;
    let segments = manifest.tables.iter().flat_map(|table| &table.segments);
    Ok(segments.map(|segment| segment.id).collect())
}
