//! The tables of a database: made, filled and dropped by SQL.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::catalog::memory::{MemoryCatalogProvider, MemorySchemaProvider};
use datafusion::catalog::{CatalogProvider, MemTable, SchemaProvider, TableProvider};
use datafusion::common::TableReference;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SessionState, TaskContext};
use datafusion::logical_expr::{CreateMemoryTable, DropTable, LogicalPlan};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionContext;
use futures::TryStreamExt as _;
use parking_lot::Mutex;

use crate::database::Database;
use crate::error::{Error, Result};
use crate::query::{Answer, Query, count_row, count_schema};
use crate::session::{CATALOG, SCHEMA};

/// The tables that a session sees.
pub(crate) struct Tables {
    schema: Arc<dyn SchemaProvider>,
    /// Memory that tables in memory hold, given back when they are dropped.
    reservations: Mutex<HashMap<String, MemoryReservation>>,
}

impl Tables {
    /// Puts the tables of `database` where `context` finds them by their bare names.
    pub(crate) fn register(_database: &Database, context: &SessionContext) -> Result<Arc<Self>> {
        let schema: Arc<dyn SchemaProvider> = Arc::new(MemorySchemaProvider::new());
        let catalog = MemoryCatalogProvider::new();
        catalog.register_schema(SCHEMA, Arc::clone(&schema))?;
        context.register_catalog(CATALOG, Arc::new(catalog));
        Ok(Arc::new(Tables { schema, reservations: Mutex::new(HashMap::new()) }))
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = self.schema.table_names();
        names.sort();
        names
    }

    /// Rows of a table, where they are known without reading it.
    pub(crate) fn rows(&self, _name: &str, table: &Arc<dyn TableProvider>) -> Option<u64> {
        let rows = table.statistics()?.num_rows;
        rows.get_value().map(|rows| *rows as u64)
    }

    /// `CREATE TABLE` and `CREATE TABLE … AS`.
    pub(crate) async fn create(
        self: &Arc<Self>,
        state: &SessionState,
        create: CreateMemoryTable,
    ) -> Result<Query> {
        let name = bare_name(&create.name)?;
        if create.temporary {
            return Err(Error::unsupported("temporary tables are not supported"));
        }
        if self.schema.table_exist(&name) {
            if create.if_not_exists {
                return Query::nothing();
            }
            if !create.or_replace {
                return Err(Error::Query { message: format!("there is a table '{name}' already") });
            }
        }
        let is_filled = !matches!(create.input.as_ref(), LogicalPlan::EmptyRelation(_));
        let plan = state.create_physical_plan(&create.input).await?;
        let task = state.task_ctx();
        let (tables, input) = (Arc::clone(self), Arc::clone(&plan));
        let work = async move {
            let rows = tables.fill_in_memory(&name, &create, input, &task).await?;
            count_row(rows)
        };
        let answer = if is_filled { Answer::RowsWritten } else { Answer::Nothing };
        Ok(Query::working(answer, count_schema(), Some(plan), work))
    }

    async fn fill_in_memory(
        &self,
        name: &str,
        create: &CreateMemoryTable,
        plan: Arc<dyn ExecutionPlan>,
        task: &Arc<TaskContext>,
    ) -> Result<u64> {
        let mut rows = execute_stream(plan, Arc::clone(task))?;
        let reservation = MemoryConsumer::new(format!("table {name}")).register(task.memory_pool());
        let schema = rows.schema();
        let mut batches = Vec::new();
        let mut count = 0;
        while let Some(batch) = rows.try_next().await? {
            reservation.try_grow(batch.get_array_memory_size()).map_err(|_| Error::Resources {
                message: format!(
                    "table '{name}' does not fit into the memory limit; open a database directory (nandina DIR) \
                     to keep tables on disk"
                ),
            })?;
            count += batch.num_rows() as u64;
            batches.push(batch);
        }
        let table = MemTable::try_new(schema, vec![batches])?
            .with_constraints(create.constraints.clone())
            .with_column_defaults(create.column_defaults.iter().cloned().collect());
        self.schema.deregister_table(name)?;
        self.schema.register_table(name.to_owned(), Arc::new(table))?;
        self.reservations.lock().insert(name.to_owned(), reservation);
        Ok(count)
    }

    /// `DROP TABLE`
    pub(crate) fn drop_table(&self, drop: &DropTable) -> Result<()> {
        let name = bare_name(&drop.name)?;
        if self.schema.deregister_table(&name)?.is_none() && !drop.if_exists {
            return Err(Error::UnknownTable { name, hint: String::new() });
        }
        self.reservations.lock().remove(&name);
        Ok(())
    }
}

/// The name of a table of ours.
fn bare_name(reference: &TableReference) -> Result<String> {
    let is_ours = reference.schema().is_none_or(|schema| schema == SCHEMA)
        && reference.catalog().is_none_or(|catalog| catalog == CATALOG);
    let name = reference.table();
    if !is_ours {
        return Err(Error::unsupported(format!(
            "'{reference}': tables have no schema here; write just '{name}'"
        )));
    }
    if crate::files::looks_like_path(name) {
        return Err(Error::unsupported(format!(
            "'{name}' would read as a file; use COPY … TO '{name}' to write one, or another name for a table"
        )));
    }
    Ok(name.to_owned())
}
