//! The short statements that a session knows: those that it has planned once, by their texts.
//!
//! ```text
//!   text ─► text with parameters, values ─┬─ known ───► run with these values
//!                                         ├─ new ─────► planning::short_statements, which may refuse it
//!                                         └─ refused ─► planned as any other statement
//! ```

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use datafusion::common::{ScalarValue, TableReference};
use datafusion::execution::SessionState;
use datafusion::execution::memory_pool::MemoryPool;
use nandina_exec::rows::{ShortStatement, Transactions, blocking};
use nandina_storage::{PlannedBy, Table};
use parking_lot::Mutex;

use crate::catalog::names::Names;
use crate::error::Result;
use crate::planning::output_names;
use crate::planning::short_statements::{self, Recognized};
use crate::planning::short_text::ShortText;
use crate::query::{Answer, Query, count_row, count_schema};
use crate::tables;

/// More texts than this are forgotten at once: a program has fewer.
const MOST_TEXTS: usize = 1000;
/// Longer texts are not kept.
const MOST_TEXT_BYTES: usize = 4 << 10;
/// What statements begin with that leave the meaning of others as it is.
const HARMLESS: [&str; 19] = [
    "abort",
    "begin",
    "commit",
    "delete",
    "end",
    "execute",
    "explain",
    "from",
    "insert",
    "release",
    "rollback",
    "savepoint",
    "select",
    "show",
    "start",
    "table",
    "update",
    "values",
    "with",
];

/// What is known of texts with parameters, and of the types of their values.
#[derive(Debug, Default)]
pub(crate) struct ShortStatements(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    hasher: RandomState,
    /// By the hash of a text and of the types.
    statements: HashMap<u64, Vec<KnownStatement>>,
}

#[derive(Debug)]
struct KnownStatement {
    text: Arc<str>,
    types: Vec<DataType>,
    recognized: Recognized,
}

impl ShortStatements {
    /// Forgets all before a statement that may change what others mean.
    pub(crate) fn before(&self, text: &str) {
        let word = text.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        if !HARMLESS.iter().any(|harmless| harmless.eq_ignore_ascii_case(word)) {
            self.0.lock().statements.clear();
        }
    }

    /// Starts a statement, if it is a short one. `state` is for planning it.
    pub(crate) async fn run(
        &self,
        short: ShortText,
        names: &Names,
        transactions: &Arc<Transactions>,
        pool: &Arc<dyn MemoryPool>,
        state: impl Fn() -> Result<Arc<SessionState>>,
    ) -> Result<Option<Query>> {
        let known = self.0.lock().get(&short);
        let known = match known {
            Some(Recognized::Never) => return Ok(None),
            Some(Recognized::Planned { table, planned_by }) => {
                if is_as_planned(names, &table, planned_by.as_ref()) {
                    return Ok(None);
                }
                None
            }
            Some(Recognized::Short { statement, table, plans }) => {
                let table = found(names, &table).filter(|table| statement.planned_by.is_of(table));
                table.filter(|_| plans == tables::plans()).map(|table| (statement, table))
            }
            None => None,
        };
        let known = match known {
            Some(known) => Some(known),
            None => self.recognize(&state()?, &short, names).await?,
        };
        match known {
            Some((statement, table)) => start(&statement, table, transactions, short.values, pool),
            None => Ok(None),
        }
    }

    /// Finds out what a text is, and the table of one that is short.
    async fn recognize(
        &self,
        state: &Arc<SessionState>,
        short: &ShortText,
        names: &Names,
    ) -> Result<Option<(Arc<ShortStatement>, Table)>> {
        let recognized = Box::pin(short_statements::recognized(state, short)).await?;
        let Some(recognized) = recognized else { return Ok(None) };
        self.0.lock().put(short, recognized.clone());
        let Recognized::Short { statement, table, .. } = recognized else { return Ok(None) };
        Ok(found(names, &table).map(|table| (statement, table)))
    }
}

impl Known {
    fn hash(&self, short: &ShortText) -> u64 {
        let types: Vec<DataType> = short.values.iter().map(ScalarValue::data_type).collect();
        self.hasher.hash_one((&short.text, types))
    }

    fn get(&self, short: &ShortText) -> Option<Recognized> {
        let same_hash = self.statements.get(&self.hash(short))?;
        same_hash.iter().find(|known| known.is_of(short)).map(|known| known.recognized.clone())
    }

    fn put(&mut self, short: &ShortText, recognized: Recognized) {
        if short.text.len() > MOST_TEXT_BYTES {
            return;
        }
        if self.statements.len() >= MOST_TEXTS {
            self.statements.clear();
        }
        let types = short.values.iter().map(ScalarValue::data_type).collect();
        let new = KnownStatement { text: Arc::clone(&short.text), types, recognized };
        let same_hash = self.statements.entry(self.hash(short)).or_default();
        same_hash.retain(|known| !known.is_of(short));
        same_hash.push(new);
    }
}

impl KnownStatement {
    fn is_of(&self, short: &ShortText) -> bool {
        let are_same = |(own, value): (&DataType, &ScalarValue)| *own == value.data_type();
        self.text == short.text
            && self.types.len() == short.values.len()
            && self.types.iter().zip(&short.values).all(are_same)
    }
}

/// Whether what a text was planned as, and not as a short statement, still holds: its table is as it was then.
fn is_as_planned(names: &Names, table: &TableReference, planned_by: Option<&PlannedBy>) -> bool {
    match (found(names, table), planned_by) {
        (Some(table), Some(planned_by)) => planned_by.is_of(&table),
        (found, planned_by) => found.is_none() && planned_by.is_none(),
    }
}

/// The table that a name means, if its rows are changed one by one.
fn found(names: &Names, table: &TableReference) -> Option<Table> {
    names.find(table).and_then(|place| place.tables.changeable(&place))
}

/// Runs a query, or makes a change ready that is made when its result is read.
fn start(
    statement: &Arc<ShortStatement>,
    table: Table,
    transactions: &Arc<Transactions>,
    values: Vec<ScalarValue>,
    pool: &Arc<dyn MemoryPool>,
) -> Result<Option<Query>> {
    if statement.change.is_none() {
        // What goes wrong while values are computed is told by the plan, which knows more about it.
        let rows = blocking(|| statement.rows(&table, transactions, values)).unwrap_or_else(|error| {
            log::debug!("a short query is planned, as it failed: {error}");
            None
        });
        let named = |rows: RecordBatch| {
            let schema = output_names::without_marks(rows.schema());
            Query::finished(Answer::Rows, rows.with_schema(schema)?)
        };
        return rows.map(named).transpose();
    }
    let change = statement.change(table, transactions, values).unwrap_or_else(|error| {
        log::debug!("a short change is planned, as it failed: {error}");
        None
    });
    let Some(change) = change else { return Ok(None) };
    let pool = Arc::clone(pool);
    let work = async move { count_row(blocking(|| change.make(&pool))?) };
    Ok(Some(Query::working(Answer::RowsWritten, count_schema(), None, work)))
}
