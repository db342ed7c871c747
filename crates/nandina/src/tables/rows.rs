//! Tables whose rows are changed one by one: how they are made.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt as _;
use nandina_exec::rows::blocking;
use nandina_storage::{IfExists, IndexDefinition, Mode, Store, TableDefinition};

use super::Kind;
use crate::catalog::names::Place;
use crate::error::{Error, Result};
use crate::planning::creation::Key;
use crate::suggestion;

/// Pages of changed rows that are read to say how many there are.
const MOST_PAGES_COUNTED: usize = 4096;

/// Creates a table with the rows of a plan, and returns their number.
pub(super) async fn create_with_rows(
    store: &Store,
    definition: TableDefinition,
    if_exists: IfExists,
    plan: Arc<dyn ExecutionPlan>,
    task: Arc<TaskContext>,
) -> Result<u64> {
    let new = blocking(|| store.new_rows(definition, if_exists))?;
    let mut transaction = new.begin();
    let mut rows = execute_stream(plan, task)?;
    let mut count = 0;
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        blocking(|| transaction.insert(new.table(), &batch))?;
        count += batch.num_rows() as u64;
    }
    blocking(|| transaction.commit())?;
    blocking(|| new.finish())?;
    Ok(count)
}

/// The rows of a table with segments, unless many of them have been changed, or the database is only read.
pub(super) fn counted(store: &Store, name: &str) -> Option<u64> {
    // No other process could write as long as this one had opened the rows.
    if store.mode() == Mode::ReadOnly {
        return None;
    }
    let transaction = store.begin().ok()?;
    let table = transaction.table(name).ok().filter(|table| table.has_segments())?;
    if table.has_changeable_rows() {
        let pages = transaction.pages(&table).ok()?.len() + transaction.deleted_pages(&table).ok()?;
        if pages > MOST_PAGES_COUNTED {
            return None;
        }
    }
    transaction.rows(&table).ok()
}

/// The indexes of a table's keys.
pub(super) fn indexes(
    taken: &HashSet<String>,
    table: &str,
    schema: &Schema,
    keys: Vec<Key>,
) -> Result<Vec<IndexDefinition>> {
    if keys.iter().filter(|key| key.is_primary).count() > 1 {
        return Err(Error::unsupported(format!("table '{table}' has two primary keys")));
    }
    let mut taken = taken.clone();
    let mut indexes = Vec::with_capacity(keys.len());
    for Key { name, columns, is_primary } in keys {
        let name = name.or_else(|| is_primary.then(|| free_name(&taken, &format!("{table}_pkey"))));
        let name = name.unwrap_or_else(|| free_name(&taken, &format!("{table}_{}_key", columns.join("_"))));
        let mut index = index(&taken, table, schema, Some(name.clone()), &columns, true)?;
        index.is_primary = is_primary;
        if !taken.insert(name.clone()) {
            return Err(Error::unsupported(format!("there is an index '{name}' already")));
        }
        indexes.push(index);
    }
    Ok(indexes)
}

/// The same columns, those of the primary key without nulls.
pub(super) fn with_primary_key(schema: &Schema, indexes: &[IndexDefinition]) -> SchemaRef {
    let keys = indexes.iter().filter(|index| index.is_primary);
    let keys: HashSet<usize> = keys.flat_map(|index| index.columns.iter().copied()).collect();
    let field = |(number, field): (usize, &FieldRef)| match keys.contains(&number) {
        true => Arc::new(field.as_ref().clone().with_nullable(false)),
        false => Arc::clone(field),
    };
    let fields = schema.fields().iter().enumerate().map(field).collect::<Vec<_>>();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

pub(super) fn index(
    taken: &HashSet<String>,
    table: &str,
    schema: &Schema,
    name: Option<String>,
    columns: &[String],
    is_unique: bool,
) -> Result<IndexDefinition> {
    let number = |column: &String| {
        let exact = schema.fields().iter().position(|field| field.name() == column);
        let found = exact
            .or_else(|| schema.fields().iter().position(|field| field.name().eq_ignore_ascii_case(column)));
        found.ok_or_else(|| {
            let hint = suggestion::phrase(column, schema.fields().iter().map(|field| field.name().as_str()));
            Error::UnknownColumn { name: format!("{table}.{column}"), hint }
        })
    };
    let numbers = columns.iter().map(number).collect::<Result<Vec<_>>>()?;
    if numbers.iter().collect::<HashSet<_>>().len() < numbers.len() {
        return Err(Error::unsupported(format!("a key of table '{table}' has a column twice")));
    }
    let name = name.unwrap_or_else(|| free_name(taken, &format!("{table}_{}_idx", columns.join("_"))));
    Ok(IndexDefinition { name, columns: numbers, is_unique, is_primary: false })
}

fn free_name(taken: &HashSet<String>, wanted: &str) -> String {
    if !taken.contains(wanted) {
        return wanted.to_owned();
    }
    let numbered = (1_u64..).map(|number| format!("{wanted}{number}"));
    let mut free = numbered.filter(|name| !taken.contains(name));
    free.next().unwrap_or_else(|| wanted.to_owned())
}

pub(super) fn no_index(place: &Place) -> Error {
    let name = &place.name;
    Error::unsupported(match place.kind() {
        Some(Kind::View) => {
            format!("'{name}' is a view, which has no index: the tables that it reads may have some")
        }
        _ => {
            format!("table '{name}' is over files, which have no index: CREATE TABLE … AS makes one that may")
        }
    })
}
