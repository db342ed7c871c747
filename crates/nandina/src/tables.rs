//! The tables of a database: made, filled and dropped by SQL.
//!
//! A database in a directory keeps them there (`native`); one without keeps them in memory, where they count
//! against the memory limit of the session that filled them. `home` is which of the two, and has the other objects.

mod alter;
mod background;
mod draft;
mod home;
mod native;
mod rows;
pub(crate) mod snapshots;
mod types;
pub(crate) mod views;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::memory::MemorySchemaProvider;
use datafusion::catalog::{MemTable, SchemaProvider as _, TableProvider};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SessionState, TaskContext};
use datafusion::logical_expr::{CreateMemoryTable, LogicalPlan};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::TryStreamExt as _;
use nandina_device::Device;
use nandina_exec::batch::compact;
use nandina_exec::rows::{RowTableProvider, Transactions, blocking};
use nandina_exec::scan::NativeTableProvider;
use nandina_functions::OwnTypes;
use nandina_storage::{
    ColumnDefault, ColumnOfTable, IfExists, MAIN, Made, Mode, Objects, Sequence, Store, TableDefinition,
    TableRules, WriteOptions, parts, qualified,
};
use parking_lot::Mutex;

use self::background::BackgroundVacuum;
use self::home::{Held, Home};
use crate::catalog::names::{Names, Place};
use crate::catalog::sequences::Sequences;
use crate::error::{Error, Result};
use crate::files::sources;
use crate::planning;
use crate::planning::creation::{Creation, Identity};
use crate::planning::identities;
use crate::query::{Answer, Query, count_row, count_schema};
use crate::temporary_store::TemporaryStore;

/// Counts what has changed the meaning of statements: tables in memory that have gone somewhere else, macros and types. Views and short
/// statements of all databases and sessions are planned again.
static PLANS: AtomicU64 = AtomicU64::new(0);

/// What a plan that is kept has been made with: another number means that it may mean something else now.
pub(crate) fn plans() -> u64 {
    PLANS.load(Ordering::Acquire)
}

/// Views are planned again when they are used next: what they name is no longer there, or somewhere else.
pub(crate) fn plan_views_again() {
    PLANS.fetch_add(1, Ordering::AcqRel);
}

/// The tables of a database, shared by its sessions, and its other objects.
pub(crate) struct Tables {
    /// None where nothing is to be done: it is only read, or ends with this process. It ends before the database is closed.
    background: Option<BackgroundVacuum>,
    home: Home,
    /// Tables in memory and over files, which are not stored, by their schemas.
    planned: Mutex<HashMap<String, Arc<MemorySchemaProvider>>>,
    views: Mutex<HashMap<String, PlannedView>>,
    sequences: Sequences,
    own_types: Arc<OwnTypes>,
    /// Held to write while a table in memory becomes one that is stored, and to read while tables in memory are made, filled and dropped.
    moving: Arc<tokio::sync::RwLock<()>>,
}

/// A view, and what [`PLANS`] was before it was planned.
type PlannedView = (u64, Arc<dyn TableProvider>);

/// Keeps tables in memory where they are.
pub(crate) type Stay = tokio::sync::OwnedRwLockReadGuard<()>;

/// What a name is that of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Table,
    View,
}

impl Tables {
    pub(crate) fn in_directory(store: Store) -> Arc<Self> {
        Self::at(Home::Directory(store))
    }

    /// `rows` is where tables are whose rows are changed one by one.
    pub(crate) fn in_memory(rows: TemporaryStore) -> Arc<Self> {
        Self::at(Home::memory(rows))
    }

    fn at(home: Home) -> Arc<Self> {
        let own_types = types::kept(&home.objects());
        let (planned, views, sequences, moving) = Default::default();
        let background = match &home {
            Home::Directory(store) if store.mode() == Mode::Write => BackgroundVacuum::of(store.clone()),
            _ => None,
        };
        Arc::new(Tables { background, home, planned, views, sequences, own_types, moving })
    }

    pub(crate) fn sequences(&self) -> &Sequences {
        &self.sequences
    }

    /// Schemas, views, macros and sequences.
    pub(crate) fn objects(&self) -> Objects {
        self.home.objects()
    }

    /// Changes them, lastingly if the database is in a directory.
    pub(crate) fn change_objects<T>(&self, edit: impl FnOnce(&mut Objects) -> Result<T>) -> Result<T> {
        self.home.change(&[], edit)
    }

    pub(crate) fn has_schema(&self, schema: &str) -> bool {
        schema == MAIN || self.objects().schemas.iter().any(|other| other == schema)
    }

    pub(crate) fn schema_names(&self) -> Vec<String> {
        std::iter::once(MAIN.to_owned()).chain(self.objects().schemas).collect()
    }

    fn planned(&self, schema: &str) -> Arc<MemorySchemaProvider> {
        let mut planned = self.planned.lock();
        Arc::clone(planned.entry(schema.to_owned()).or_insert_with(|| Arc::new(MemorySchemaProvider::new())))
    }

    /// Tables and views of a schema, sorted.
    pub(crate) fn names(&self, schema: &str) -> Vec<String> {
        let views = self.objects().views.into_iter().map(|view| view.name);
        let stored = self.home.stored_tables().into_iter().chain(views).map(|name| parts(&name));
        let mut names: Vec<String> = stored.filter(|(of, _)| of == schema).map(|(_, name)| name).collect();
        names.extend(self.planned(schema).table_names());
        names.sort();
        names.dedup();
        names
    }

    /// Whether a name is that of a table or of a view, which need not be usable any more.
    pub(crate) fn kind(&self, schema: &str, name: &str) -> Option<Kind> {
        let full = qualified(schema, name);
        if self.home.has_stored_table(&full) {
            return Some(Kind::Table);
        }
        if self.objects().views.iter().any(|view| view.name == full) {
            return Some(Kind::View);
        }
        self.planned(schema).table_exist(name).then_some(Kind::Table)
    }

    /// The newest state of a table, or a view.
    pub(crate) async fn table(&self, place: &Place, names: &Names) -> Result<Option<Arc<dyn TableProvider>>> {
        let full = place.qualified();
        if let Some(store) = self.home.store()
            && store.has_table(&full)
        {
            let table = store.table(&full)?;
            return Ok(Some(if table.has_changeable_rows() {
                Arc::new(RowTableProvider::new(table))
            } else {
                Arc::new(NativeTableProvider::new(table))
            }));
        }
        if let Some(table) = self.planned(&place.schema).table(&place.name).await? {
            return Ok(Some(table));
        }
        let Some(view) = self.objects().views.into_iter().find(|view| view.name == full) else {
            return Ok(None);
        };
        let plans = plans();
        if let Some((with, known)) = self.views.lock().get(&full)
            && *with == plans
        {
            return Ok(Some(Arc::clone(known)));
        }
        let statement = &view.statement;
        let view = views::planned(place, statement, names).await.map_err(|error| Error::Query {
            message: format!("view '{full}' cannot be used any more: {error}; it was made by {statement}"),
        })?;
        self.views.lock().insert(full, (plans, Arc::clone(&view)));
        Ok(Some(view))
    }

    /// Keeps a table over files until the database is closed.
    pub(crate) fn register(&self, place: &Place, table: Arc<dyn TableProvider>) -> Result<()> {
        if self.home.has_stored_table(&place.qualified()) {
            return Err(exists(place, Kind::Table));
        }
        self.planned(&place.schema).register_table(place.name.clone(), table)?;
        Ok(())
    }

    /// What a table says about values.
    pub(crate) fn rules(&self, place: &Place) -> TableRules {
        self.home.rules(&place.qualified())
    }

    /// Rows of a table, where they are known without reading much of it.
    pub(crate) async fn rows(&self, place: &Place) -> Result<Option<u64>> {
        let full = place.qualified();
        if let Some(store) = self.home.store()
            && store.has_table(&full)
        {
            let table = store.table(&full)?;
            return Ok(match table.has_changeable_rows() {
                true => blocking(|| rows::counted(&store, &full)),
                false => Some(table.rows()),
            });
        }
        let Some(table) = self.planned(&place.schema).table(&place.name).await? else { return Ok(None) };
        let Some(table) = table.downcast_ref::<MemTable>() else { return Ok(None) };
        let mut rows = 0;
        for partition in &table.batches {
            rows += partition.read().await.iter().map(|batch| batch.num_rows() as u64).sum::<u64>();
        }
        Ok(Some(rows))
    }

    /// `CREATE TABLE` and `CREATE TABLE … AS`.
    pub(crate) async fn create(
        self: &Arc<Self>,
        state: &Arc<SessionState>,
        place: Place,
        create: CreateMemoryTable,
        creation: Creation,
    ) -> Result<Query> {
        if create.if_not_exists && create.or_replace {
            return Err(Error::unsupported("IF NOT EXISTS and OR REPLACE exclude each other"));
        }
        match place.kind() {
            Some(_) if create.if_not_exists => return Query::nothing(),
            Some(Kind::View) if create.or_replace => return Err(is_view(&place)),
            Some(kind) if !create.or_replace => return Err(exists(&place, kind)),
            _ => {}
        }
        let name = &place.name;
        if !create.constraints.is_empty() {
            return Err(Error::unsupported(format!(
                "table '{name}': keys and other constraints are not supported"
            )));
        }
        refuse_duplicates(name, create.input.schema().fields().iter().map(|field| field.name().as_str()))?;
        let is_filled = !matches!(create.input.as_ref(), LogicalPlan::EmptyRelation(_));
        let plan = planning::physical_plan(state, Arc::unwrap_or_clone(create.input)).await?;
        sources::know_before(state, &plan).await;
        let task = state.task_ctx();
        let (tables, input) = (Arc::clone(self), Arc::clone(&plan));
        let or_replace = create.or_replace;
        let mut schema = if creation.is_query { with_nulls(&plan.schema()) } else { plan.schema() };
        let mut indexes = None;
        if creation.has_rows {
            // Those of a table that is replaced go with it.
            let taken = self.index_names(Some(&place.qualified()));
            let made = rows::indexes(&taken, name, &schema, creation.keys)?;
            schema = rows::with_primary_key(&schema, &made);
            indexes = Some(made);
        }
        let mut definition = TableDefinition::new(place.qualified(), schema).with_rules(creation.rules);
        definition.rows = indexes;
        for Identity { column, sequence } in creation.identities {
            let name = self.free_sequence_name(&place, &column, &definition.sequences);
            let default = ColumnDefault { column: column.clone(), expression: identities::default(&name) };
            definition.rules.defaults.push(default);
            let owner = Some(ColumnOfTable { table: place.qualified(), column });
            definition.sequences.push(Sequence { name, owner, ..sequence });
        }
        let work = async move { count_row(tables.fill(place, definition, or_replace, input, task).await?) };
        let answer = if is_filled { Answer::RowsWritten } else { Answer::Nothing };
        Ok(Query::working(answer, count_schema(), Some(plan), work))
    }

    async fn fill(
        &self,
        place: Place,
        definition: TableDefinition,
        replace: bool,
        plan: Arc<dyn ExecutionPlan>,
        task: Arc<TaskContext>,
    ) -> Result<u64> {
        let if_exists = if replace { IfExists::Replace } else { IfExists::Fail };
        let full = place.qualified();
        let dropped = self.objects().sequences_of(&full);
        let mut definition = definition;
        let sequences = match &self.home {
            Home::Directory(_) => Vec::new(),
            Home::Memory(_) => std::mem::take(&mut definition.sequences),
        };
        let rows = self.fill_with(place, definition, if_exists, plan, task).await?;
        if let Home::Memory(_) = &self.home {
            self.change_objects(|objects| {
                objects.drop_sequences_of(&full);
                objects.sequences.extend(sequences);
                Ok(())
            })?;
        }
        dropped.iter().for_each(|name| self.sequences.forget(name));
        Ok(rows)
    }

    async fn fill_with(
        &self,
        place: Place,
        definition: TableDefinition,
        if_exists: IfExists,
        plan: Arc<dyn ExecutionPlan>,
        task: Arc<TaskContext>,
    ) -> Result<u64> {
        match &self.home {
            Home::Directory(store) if definition.rows.is_none() => {
                let rows = native::create_with_rows(store, definition, if_exists, plan, task).await?;
                // One over files that it has replaced.
                self.planned(&place.schema).deregister_table(&place.name)?;
                Ok(rows)
            }
            home if definition.rows.is_some() => {
                let store = home.store_or_new()?;
                let rows = rows::create_with_rows(&store, definition, if_exists, plan, task).await?;
                self.planned(&place.schema).deregister_table(&place.name)?;
                if let Home::Memory(memory) = home {
                    memory.let_go(&place.qualified());
                }
                Ok(rows)
            }
            Home::Directory(_) => Err(Error::bug("a table is of one kind or of the other")),
            Home::Memory(memory) => {
                let TableDefinition { name, schema, rules, .. } = definition;
                let (table, reservation, rows) = in_memory(&place.name, schema, plan, &task).await?;
                let _stay = self.moving.read().await;
                let planned = self.planned(&place.schema);
                planned.deregister_table(&place.name)?;
                planned.register_table(place.name, Arc::new(table))?;
                memory.hold(name, Held { _memory: reservation, rules })?;
                plan_views_again();
                Ok(rows)
            }
        }
    }

    /// A name for the sequence that numbers a column, as Postgres calls it.
    fn free_sequence_name(&self, place: &Place, column: &str, others: &[Sequence]) -> String {
        // Those of a table that is replaced go with it.
        let (objects, full) = (self.objects(), place.qualified());
        let replaced = objects.sequences_of(&full);
        let is_taken = |name: &String| {
            let is_there =
                objects.sequences.iter().any(|other| other.name == *name) && !replaced.contains(name);
            is_there || others.iter().any(|other| other.name == *name)
        };
        let base = format!("{}_{column}_seq", place.name);
        let numbered = (1_u64..).map(|number| format!("{base}{number}"));
        let all = std::iter::once(base.clone()).chain(numbered);
        let mut names = all.map(|name| qualified(&place.schema, &name));
        names.find(|name| !is_taken(name)).unwrap_or(base)
    }

    /// Pages of rows that are changed one by one may take so many bytes of memory; how many they take now at most.
    pub(crate) fn set_pool_bytes(&self, bytes: usize) -> Result<usize> {
        self.home.store().map_or(Ok(0), |store| Ok(store.set_pool_bytes(bytes)?))
    }

    /// `CHECKPOINT`
    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.home.store().map_or(Ok(()), |store| Ok(store.checkpoint()?))
    }

    /// Whether changed rows go back into segments by themselves.
    pub(crate) fn set_background_vacuum(&self, is_on: bool) {
        if let Some(background) = &self.background {
            background.set_on(is_on);
        }
    }

    /// Puts changed rows of tables, or of one, back into segments.
    pub(crate) async fn vacuum(&self, table: Option<&str>, memory: &MemoryReservation) -> Result<()> {
        let Some(store) = self.home.store() else { return Ok(()) };
        let is_asked = |name: &&String| table.is_none_or(|table| table == *name);
        if table.is_none() && store.mode() == Mode::ReadOnly {
            return Ok(());
        }
        for name in store.table_names().iter().filter(is_asked) {
            match native::vacuum(&store, name, memory).await {
                // Dropped since they were listed.
                Err(_) if table.is_none() && !store.has_table(name) => {}
                vacuumed => vacuumed?,
            }
        }
        Ok(())
    }

    /// Copies the database into an empty directory.
    pub(crate) fn backup(&self, to: &Device) -> Result<()> {
        match &self.home {
            Home::Directory(store) => Ok(store.backup(to)?),
            Home::Memory(_) => {
                Err(Error::unsupported("a database in memory has no directory that could be copied"))
            }
        }
    }

    /// The table of a place, if its rows are changed one by one.
    pub(crate) fn changeable(&self, place: &Place) -> Option<nandina_storage::Table> {
        let table = self.home.store()?.table(&place.qualified()).ok();
        table.filter(|table| table.has_changeable_rows())
    }

    /// Has rows of a table be changed one by one from now on, and keeps them in their places until transactions have ended which may do
    /// that; `None` if they cannot be.
    pub(crate) async fn make_changeable(
        &self,
        place: &Place,
        transactions: &Transactions,
    ) -> Result<Option<nandina_storage::Table>> {
        let full = place.qualified();
        if let Home::Memory(memory) = &self.home {
            self.move_to_store(memory, place).await?;
        }
        let Some(store) = self.home.store().filter(|store| store.has_table(&full)) else { return Ok(None) };
        transactions.keep_rows(&store);
        let table = store.table(&full)?;
        if !table.has_changeable_rows() {
            blocking(|| store.make_changeable(&table))?;
        }
        Ok(Some(store.table(&full)?))
    }

    /// Keeps tables in memory from going elsewhere, for a statement that inserts into one: it is the one that it has been planned with.
    pub(crate) async fn stay(&self, place: &Place, table: &Arc<dyn TableProvider>) -> Result<Stay> {
        let stay = Arc::clone(&self.moving).read_owned().await;
        let now = self.planned(&place.schema).table(&place.name).await?;
        match now.is_some_and(|now| Arc::ptr_eq(&now, table)) {
            true => Ok(stay),
            false => Err(Error::Query {
                message: format!(
                    "table '{}' was changed by others meanwhile: run the statement again",
                    place.name
                ),
            }),
        }
    }

    /// Stores a table that is in memory, if there is one of that name.
    async fn move_to_store(&self, memory: &home::Memory, place: &Place) -> Result<()> {
        let Some(provider) = self.planned(&place.schema).table(&place.name).await? else { return Ok(()) };
        if !provider.is::<MemTable>() {
            return Ok(());
        }
        let Ok(_moving) = self.moving.try_write() else {
            return Err(Error::Query {
                message: format!(
                    "rows of '{}' cannot be changed while others are inserted: read the result of that statement to the end",
                    place.name
                ),
            });
        };
        self.store_from_memory(memory, place).await
    }

    /// The same, while nobody makes, fills or drops tables in memory.
    async fn store_from_memory(&self, memory: &home::Memory, place: &Place) -> Result<()> {
        let planned = self.planned(&place.schema);
        let provider = planned.table(&place.name).await?;
        let Some(table) = provider.as_ref().and_then(|provider| provider.downcast_ref::<MemTable>()) else {
            // Another one was faster.
            return Ok(());
        };
        let full = place.qualified();
        let definition =
            TableDefinition::new(full.clone(), table.schema()).with_rules(self.home.rules(&full));
        let store = self.home.store_or_new()?;
        let options = WriteOptions::default();
        let writer = store.create_table_with_rows(definition, IfExists::Fail, options)?;
        let mut lane = writer.lane();
        for partition in &table.batches {
            for batch in partition.read().await.iter() {
                lane.append(batch).await?;
            }
        }
        lane.finish().await?;
        writer.commit().await?;
        planned.deregister_table(&place.name)?;
        memory.let_go(&full);
        plan_views_again();
        Ok(())
    }

    /// Tables with their indexes, of those that have some.
    fn indexed(&self) -> Vec<nandina_storage::Table> {
        let Some(store) = self.home.store() else { return Vec::new() };
        let snapshot = store.snapshot();
        let tables = store.table_names().into_iter().filter_map(|name| snapshot.table(&name).ok());
        tables.filter(|table| table.indexes().next().is_some()).collect()
    }

    /// Names of all indexes, but for those of one table.
    fn index_names(&self, but_of: Option<&str>) -> HashSet<String> {
        let names = |table: &nandina_storage::Table| {
            table.indexes().map(|(_, index)| index.name.clone()).collect::<Vec<_>>()
        };
        let tables = self.indexed();
        tables.iter().filter(|table| but_of != Some(table.name())).flat_map(names).collect()
    }

    /// `CREATE INDEX`, on a table that exists.
    pub(crate) async fn create_index(
        &self,
        place: &Place,
        name: Option<String>,
        columns: Vec<String>,
        is_unique: bool,
        if_not_exists: bool,
    ) -> Result<()> {
        let taken = self.index_names(None);
        if let Some(name) = name.as_ref().filter(|name| taken.contains(*name)) {
            if if_not_exists {
                return Ok(());
            }
            return Err(Error::unsupported(format!("there is an index '{name}' already")));
        }
        if let Home::Memory(memory) = &self.home {
            if let Some(table) = self.planned(&place.schema).table(&place.name).await? {
                // What cannot be done leaves it where it is.
                rows::index(&taken, &place.name, &table.schema(), name.clone(), &columns, is_unique)?;
            }
            self.move_to_store(memory, place).await?;
        }
        let full = place.qualified();
        let store = self.home.store().filter(|store| store.has_table(&full));
        let store = store.ok_or_else(|| rows::no_index(place))?;
        let table = store.table(&full)?;
        let index = rows::index(&taken, &place.name, table.schema(), name, &columns, is_unique)?;
        Ok(blocking(|| store.create_index(&table, index))?)
    }

    /// `DROP INDEX`, if there is one of this name.
    pub(crate) fn drop_index(&self, name: &str) -> Result<bool> {
        let of_name = |table: &nandina_storage::Table| {
            table.indexes().find(|(_, index)| index.name == name).map(|(_, index)| index.clone())
        };
        for table in self.indexed() {
            let Some(index) = of_name(&table) else { continue };
            if index.is_primary {
                return Err(Error::unsupported(format!(
                    "index '{name}' is that of the primary key of {:?}",
                    table.name()
                )));
            }
            table.store().drop_index(&table, name)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// `DROP TABLE`, of one that exists.
    pub(crate) fn drop_table(&self, place: &Place) -> Result<()> {
        if place.kind() == Some(Kind::View) {
            return Err(is_view(place));
        }
        let Ok(_stay) = self.moving.try_read() else {
            return Err(Error::Query {
                message: format!(
                    "table '{}' is being changed by others: run the statement again",
                    place.name
                ),
            });
        };
        let full = place.qualified();
        if self.home.has_stored_table(&full) {
            let sequences = self.objects().sequences_of(&full);
            self.home.change(&[full], |_| Ok(()))?;
            sequences.iter().for_each(|name| self.sequences.forget(name));
        }
        plan_views_again();
        // Of memory, or made by CREATE EXTERNAL TABLE.
        self.planned(&place.schema).deregister_table(&place.name)?;
        Ok(())
    }

    /// `CREATE VIEW`; its statement is kept.
    pub(crate) fn create_view(
        &self,
        place: &Place,
        or_replace: bool,
        statement: &str,
        table: Arc<dyn TableProvider>,
    ) -> Result<()> {
        let name = &place.name;
        refuse_duplicates(name, table.schema().fields().iter().map(|field| field.name().as_str()))?;
        match place.kind() {
            Some(Kind::View) if or_replace => {}
            Some(kind) => return Err(exists(place, kind)),
            None => {}
        }
        let view = Made { name: place.qualified(), statement: statement.to_owned() };
        self.change_objects(|objects| {
            objects.views.retain(|other| other.name != view.name);
            objects.views.push(view);
            Ok(())
        })?;
        self.views.lock().remove(&place.qualified());
        Ok(())
    }

    /// `DROP VIEW`, of one that exists.
    pub(crate) fn drop_view(&self, place: &Place) -> Result<()> {
        if place.kind() != Some(Kind::View) {
            let name = &place.name;
            return Err(Error::unsupported(format!("'{name}' is a table; DROP TABLE {name} removes it")));
        }
        let full = place.qualified();
        self.home.shrink(&[], |objects| {
            objects.views.retain(|view| view.name != full);
            Ok(())
        })?;
        self.views.lock().remove(&full);
        Ok(())
    }

    /// `DROP SCHEMA`, with what is in it if `cascade` says so.
    pub(crate) fn drop_schema(&self, schema: &str, cascade: bool) -> Result<()> {
        if schema == MAIN {
            return Err(Error::unsupported("schema 'main' cannot be dropped"));
        }
        let is_inside = |name: &str| parts(name).0 == schema;
        let objects = self.objects();
        let mut inside: Vec<String> = self.names(schema);
        inside.extend(objects.macros.iter().map(|made| &made.name).filter(|name| is_inside(name)).cloned());
        let sequences = objects.sequences.iter().map(|sequence| &sequence.name);
        let sequences: Vec<String> = sequences.filter(|name| is_inside(name)).cloned().collect();
        inside.extend(sequences.iter().cloned());
        if let (Some(first), false) = (inside.first(), cascade) {
            return Err(Error::unsupported(format!(
                "schema '{schema}' is not empty, it has '{first}'; DROP SCHEMA {schema} CASCADE drops it with all of that"
            )));
        }
        let mut tables = self.home.stored_tables();
        tables.retain(|name| is_inside(name));
        self.home.shrink(&tables, |objects| {
            objects.schemas.retain(|other| other != schema);
            objects.views.retain(|view| !is_inside(&view.name));
            objects.macros.retain(|made| !is_inside(&made.name));
            objects.sequences.retain(|sequence| !is_inside(&sequence.name));
            Ok(())
        })?;
        self.planned.lock().remove(schema);
        sequences.iter().for_each(|name| self.sequences.forget(name));
        Ok(())
    }
}

impl Drop for Tables {
    /// Numbers that were set aside and not given are there for the next process.
    fn drop(&mut self) {
        let unused = self.sequences.unused();
        if unused.is_empty() {
            return;
        }
        let given_back = self.change_objects(|objects| {
            for sequence in &mut objects.sequences {
                if let Some((_, given)) = unused.iter().find(|(name, _)| *name == sequence.name) {
                    sequence.given = *given;
                }
            }
            Ok(())
        });
        if let Err(error) = given_back {
            log::warn!("sequences leave out numbers: {error}");
        }
    }
}

/// The same columns, which may hold nulls.
fn with_nulls(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn exists(place: &Place, kind: Kind) -> Error {
    let kind = match kind {
        Kind::Table => "table",
        Kind::View => "view",
    };
    Error::Query { message: format!("there is a {kind} '{}' already", place.qualified()) }
}

fn is_view(place: &Place) -> Error {
    let name = place.qualified();
    Error::unsupported(format!("'{name}' is a view; DROP VIEW {name} removes it"))
}

/// Collects the rows of a plan into a table that counts against the memory limit.
async fn in_memory(
    name: &str,
    schema: SchemaRef,
    plan: Arc<dyn ExecutionPlan>,
    task: &Arc<TaskContext>,
) -> Result<(MemTable, MemoryReservation, u64)> {
    let mut rows = execute_stream(plan, Arc::clone(task))?;
    let reservation = MemoryConsumer::new(format!("table {name}")).register(task.memory_pool());
    let mut batches = Vec::new();
    let mut count = 0;
    while let Some(batch) = rows.try_next().await? {
        // Slices of one batch would each count, and keep, all of it.
        let (batch, bytes) = compact(batch)?;
        reservation.try_grow(bytes).map_err(|_| Error::Resources {
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
