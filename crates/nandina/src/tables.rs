//! The tables of a database: made, filled and dropped by SQL.
//!
//! A database in a directory keeps them there (`native`); one without keeps them in memory, where they count
//! against the memory limit of the session that filled them.

mod native;
pub(crate) mod snapshots;
mod types;
pub(crate) mod views;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use datafusion::catalog::memory::MemorySchemaProvider;
use datafusion::catalog::{MemTable, SchemaProvider, TableProvider};
use datafusion::common::TableReference;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SessionState, TaskContext};
use datafusion::logical_expr::{CreateMemoryTable, CreateView, DropTable, DropView, LogicalPlan, TableType};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::TryStreamExt as _;
use nandina_functions::OwnTypes;
use nandina_storage::{IfExists, Store, TableDefinition};
use parking_lot::{Mutex, RwLock};

use self::native::NativeSchema;
use crate::catalog::{CATALOG, SCHEMA};
use crate::error::{Error, Result};
use crate::files::sources;
use crate::planning;
use crate::query::{Answer, Query, count_row, count_schema};

/// The tables of a database, shared by its sessions.
pub(crate) struct Tables {
    schema: Arc<dyn SchemaProvider>,
    home: Home,
    own_types: Arc<OwnTypes>,
}

enum Home {
    Directory(Store, Arc<NativeSchema>),
    /// Memory that each table holds, given back when it is dropped.
    Memory(Mutex<HashMap<String, MemoryReservation>>),
}

impl Tables {
    pub(crate) fn in_directory(store: Store) -> Arc<Self> {
        let schema = Arc::new(NativeSchema::new(store.clone()));
        let own_types = types::kept(&store);
        Arc::new(Tables { schema: Arc::clone(&schema) as _, home: Home::Directory(store, schema), own_types })
    }

    pub(crate) fn in_memory() -> Arc<Self> {
        Arc::new(Tables {
            schema: Arc::new(MemorySchemaProvider::new()),
            home: Home::Memory(Mutex::default()),
            own_types: Arc::default(),
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
            Home::Directory(store, _) if store.has_table(name) => Ok(Some(store.table(name)?.rows())),
            Home::Directory(..) => Ok(None),
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
        state: &Arc<SessionState>,
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
        let plan = planning::physical_plan(state, Arc::unwrap_or_clone(create.input)).await?;
        sources::know_before(state, &plan).await;
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
            Home::Directory(store, _) => {
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
            Home::Directory(store, _) if store.has_table(&name) => store.drop_table(&name)?,
            // Made by CREATE EXTERNAL TABLE.
            Home::Directory(..) => {
                self.schema.deregister_table(&name)?;
            }
            Home::Memory(reservations) => {
                self.schema.deregister_table(&name)?;
                reservations.lock().remove(&name);
            }
        }
        Ok(())
    }

    /// Plans views with the state of a session from now on.
    pub(crate) fn plan_views_with(&self, planner: Weak<RwLock<SessionState>>) {
        if let Home::Directory(_, schema) = &self.home {
            schema.plan_views_with(planner);
        }
    }

    /// `CREATE VIEW`; a database in a directory keeps its statement.
    pub(crate) async fn create_view(
        &self,
        create: CreateView,
        statement: &str,
        table: Arc<dyn TableProvider>,
    ) -> Result<()> {
        let name = bare_name(&create.name)?;
        if create.temporary {
            return Err(Error::unsupported("temporary views are not supported"));
        }
        refuse_duplicates(&name, table.schema().fields().iter().map(|field| field.name().as_str()))?;
        if self.schema.table_exist(&name) {
            match self.kind_of(&name).await? {
                TableType::View if create.or_replace => {}
                TableType::View => {
                    return Err(Error::Query { message: format!("there is a view '{name}' already") });
                }
                _ => return Err(Error::Query { message: format!("there is a table '{name}' already") }),
            }
        }
        if let Home::Directory(store, _) = &self.home {
            store.put_view(&name, statement)?;
        }
        self.schema.deregister_table(&name)?;
        self.schema.register_table(name, table)?;
        Ok(())
    }

    /// `DROP VIEW`
    pub(crate) async fn drop_view(&self, drop: &DropView) -> Result<()> {
        let name = bare_name(&drop.name)?;
        if !self.schema.table_exist(&name) {
            return match drop.if_exists {
                true => Ok(()),
                false => Err(Error::UnknownTable { name, hint: String::new() }),
            };
        }
        if self.kind_of(&name).await? != TableType::View {
            return Err(Error::unsupported(format!("'{name}' is a table; DROP TABLE {name} removes it")));
        }
        if let Home::Directory(store, _) = &self.home {
            store.drop_view(&name)?;
        }
        self.schema.deregister_table(&name)?;
        Ok(())
    }

    /// Whether a name is that of a table or of a view, which need not be usable any more.
    async fn kind_of(&self, name: &str) -> Result<TableType> {
        if let Home::Directory(store, _) = &self.home
            && store.view(name).is_some()
        {
            return Ok(TableType::View);
        }
        let table = self.schema.table(name).await?;
        Ok(table.map_or(TableType::Base, |table| table.table_type()))
    }

    async fn refuse_view(&self, name: &str) -> Result<()> {
        if self.kind_of(name).await? == TableType::View {
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
    if crate::files::names::looks_like_path(name) {
        return Err(Error::unsupported(format!(
            "'{name}' would read as a file; use COPY … TO '{name}' to write one, or another name for a table"
        )));
    }
    Ok(name.to_owned())
}
