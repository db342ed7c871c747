//! The tables of a database: made, filled and dropped by SQL.
//!
//! A database in a directory keeps them there (`native`); one without keeps them in memory, where they count
//! against the memory limit of the session that filled them.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::catalog::memory::MemorySchemaProvider;
use datafusion::catalog::{MemTable, SchemaProvider};
use datafusion::common::TableReference;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SessionState, TaskContext};
use datafusion::logical_expr::{CreateMemoryTable, DropTable, LogicalPlan, TableType};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::TryStreamExt as _;
use nandina_storage::{IfExists, Store, TableDefinition};
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::media;
use crate::native::{self, NativeSchema};
use crate::query::{Answer, Query, count_row, count_schema};
use crate::session::{CATALOG, SCHEMA};

/// The tables of a database, shared by its sessions.
pub(crate) struct Tables {
    schema: Arc<dyn SchemaProvider>,
    home: Home,
}

enum Home {
    Directory(Store),
    /// Memory that each table holds, given back when it is dropped.
    Memory(Mutex<HashMap<String, MemoryReservation>>),
}

impl Tables {
    pub(crate) fn in_directory(store: Store) -> Arc<Self> {
        let schema = Arc::new(NativeSchema::new(store.clone()));
        Arc::new(Tables { schema, home: Home::Directory(store) })
    }

    pub(crate) fn in_memory() -> Arc<Self> {
        Arc::new(Tables {
            schema: Arc::new(MemorySchemaProvider::new()),
            home: Home::Memory(Mutex::default()),
        })
    }

    /// What DataFusion looks tables up in.
    pub(crate) fn schema(&self) -> Arc<dyn SchemaProvider> {
        Arc::clone(&self.schema)
    }

    /// Tables and views, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = self.schema.table_names();
        names.sort();
        names
    }

    /// Rows of a table, where they are known without reading it.
    pub(crate) async fn rows(&self, name: &str) -> Result<Option<u64>> {
        match &self.home {
            Home::Directory(store) if store.has_table(name) => Ok(Some(store.table(name)?.rows())),
            Home::Directory(_) => Ok(None),
            Home::Memory(_) => {
                let Some(table) = self.schema.table(name).await? else { return Ok(None) };
                let Some(table) = table.downcast_ref::<MemTable>() else { return Ok(None) };
                let mut rows = 0;
                for partition in &table.batches {
                    rows += partition.read().await.iter().map(|batch| batch.num_rows() as u64).sum::<u64>();
                }
                Ok(Some(rows))
            }
        }
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
        if create.if_not_exists && create.or_replace {
            return Err(Error::unsupported("IF NOT EXISTS and OR REPLACE exclude each other"));
        }
        if self.schema.table_exist(&name) {
            if create.if_not_exists {
                return Query::nothing();
            }
            if !create.or_replace {
                return Err(Error::Query { message: format!("there is a table '{name}' already") });
            }
            self.refuse_view(&name).await?;
        }
        if !create.constraints.is_empty() {
            return Err(Error::unsupported(format!(
                "table '{name}': keys and other constraints are not supported"
            )));
        }
        if !create.column_defaults.is_empty() {
            return Err(Error::unsupported(format!("table '{name}': DEFAULT values are not supported")));
        }
        refuse_duplicates(&name, create.input.schema().fields().iter().map(|field| field.name().as_str()))?;
        let is_filled = !matches!(create.input.as_ref(), LogicalPlan::EmptyRelation(_));
        let plan = state.create_physical_plan(&create.input).await?;
        media::know_before(state, &plan).await;
        let task = state.task_ctx();
        let (tables, input) = (Arc::clone(self), Arc::clone(&plan));
        let work = async move { count_row(tables.fill(name, create.or_replace, input, task).await?) };
        let answer = if is_filled { Answer::RowsWritten } else { Answer::Nothing };
        Ok(Query::working(answer, count_schema(), Some(plan), work))
    }

    async fn fill(
        &self,
        name: String,
        replace: bool,
        plan: Arc<dyn ExecutionPlan>,
        task: Arc<TaskContext>,
    ) -> Result<u64> {
        match &self.home {
            Home::Directory(store) => {
                let if_exists = if replace { IfExists::Replace } else { IfExists::Fail };
                let definition = TableDefinition::new(name, plan.schema());
                native::create_with_rows(store, definition, if_exists, plan, task).await
            }
            Home::Memory(reservations) => {
                let (table, reservation, rows) = in_memory(&name, plan, &task).await?;
                self.schema.deregister_table(&name)?;
                self.schema.register_table(name.clone(), Arc::new(table))?;
                reservations.lock().insert(name, reservation);
                Ok(rows)
            }
        }
    }

    /// `DROP TABLE`
    pub(crate) async fn drop_table(&self, drop: &DropTable) -> Result<()> {
        let name = bare_name(&drop.name)?;
        if !self.schema.table_exist(&name) {
            return match drop.if_exists {
                true => Ok(()),
                false => Err(Error::UnknownTable { name, hint: String::new() }),
            };
        }
        self.refuse_view(&name).await?;
        match &self.home {
            Home::Directory(store) if store.has_table(&name) => store.drop_table(&name)?,
            // Made by CREATE EXTERNAL TABLE.
            Home::Directory(_) => {
                self.schema.deregister_table(&name)?;
            }
            Home::Memory(reservations) => {
                self.schema.deregister_table(&name)?;
                reservations.lock().remove(&name);
            }
        }
        Ok(())
    }

    async fn refuse_view(&self, name: &str) -> Result<()> {
        let table = self.schema.table(name).await?;
        if table.is_some_and(|table| table.table_type() == TableType::View) {
            return Err(Error::unsupported(format!("'{name}' is a view; DROP VIEW {name} removes it")));
        }
        Ok(())
    }
}

/// Collects the rows of a plan into a table that counts against the memory limit.
async fn in_memory(
    name: &str,
    plan: Arc<dyn ExecutionPlan>,
    task: &Arc<TaskContext>,
) -> Result<(MemTable, MemoryReservation, u64)> {
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
    Ok((MemTable::try_new(schema, vec![batches])?, reservation, count))
}

fn refuse_duplicates<'a>(table: &str, columns: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    for column in columns {
        if !seen.insert(column) {
            return Err(Error::unsupported(format!(
                "table '{table}' would have two columns '{column}'; give one of them another name with AS"
            )));
        }
    }
    Ok(())
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
