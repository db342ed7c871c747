//! The short statements that a session knows: those that it has planned once, by their texts.
//!
//! ```text
//!   text ─► text with parameters, values ─┬─ known ───► run with these values
//!                                         ├─ new ─────► planning::short_statements, which may refuse it
//!                                         └─ refused ─► planned as any other statement
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::{ScalarValue, TableReference};
use datafusion::execution::SessionState;
use datafusion::execution::memory_pool::MemoryPool;
use nandina_exec::rows::{ShortStatement, Transactions, blocking};
use nandina_storage::Table;
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
pub(crate) struct ShortStatements(Mutex<HashMap<String, Recognized>>);

impl ShortStatements {
    /// Forgets all before a statement that may change what others mean.
    pub(crate) fn before(&self, text: &str) {
        let word = text.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        if !HARMLESS.iter().any(|harmless| harmless.eq_ignore_ascii_case(word)) {
            self.0.lock().clear();
        }
    }

    /// What is known of a text.
    fn known(&self, key: &str) -> Option<Recognized> {
        self.0.lock().get(key).cloned()
    }

    fn put(&self, key: String, recognized: Recognized) {
        if key.len() > MOST_TEXT_BYTES {
            return;
        }
        let mut known = self.0.lock();
        if known.len() >= MOST_TEXTS {
            known.clear();
        }
        known.insert(key, recognized);
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
        let key = key(&short);
        let mut recognized = self.known(&key).filter(|recognized| recognized.is_current(names));
        if recognized.is_none() {
            recognized = short_statements::recognized(&state()?, &short).await?;
            if let Some(new) = &recognized {
                self.put(key, new.clone());
            }
        }
        let Some(Recognized::Short { statement, table, .. }) = recognized else { return Ok(None) };
        match found(names, &table) {
            Some(table) => start(&statement, table, transactions, short.values, pool),
            None => Ok(None),
        }
    }
}

impl Recognized {
    /// Whether the name in the text still means the same table, which has not changed.
    fn is_current(&self, names: &Names) -> bool {
        match self {
            Self::Short { statement, table, plans } => {
                *plans == tables::plans()
                    && found(names, table).is_some_and(|table| statement.planned_by.is_of(&table))
            }
            Self::Planned { table, planned_by } => match (found(names, table), planned_by) {
                (Some(table), Some(planned_by)) => planned_by.is_of(&table),
                (found, planned_by) => found.is_none() && planned_by.is_none(),
            },
            Self::Never => true,
        }
    }
}

/// The table that a name means, if its rows are changed one by one.
fn found(names: &Names, table: &TableReference) -> Option<Table> {
    names.find(table).and_then(|place| place.tables.changeable(&place))
}

/// A text, and the types of its values.
fn key(short: &ShortText) -> String {
    let mut key = short.text.clone();
    for value in &short.values {
        key.push('\0');
        key.push_str(&value.data_type().to_string());
    }
    key
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
        let rows = blocking(|| statement.rows(&table, transactions, &values)).unwrap_or_else(|error| {
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
