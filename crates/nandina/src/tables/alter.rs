//! `ALTER TABLE`.
//!
//! ```text
//!   names, defaults, NOT NULL, CHECK     rows are looked at where something new is asked of them ─► one change of the manifest
//!   columns that come, go, change type   the table is written anew ─► takes the place of the old one, if that is as it was
//!   keys of rows that are found by keys  an index is built
//! ```
//!
//! Where others change rows meanwhile it is done again, for a while.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion::catalog::{MemTable, SchemaProvider as _, TableProvider as _};
use datafusion::execution::SessionState;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::TryStreamExt as _;
use nandina_exec::rows::{Transactions, blocking};
use nandina_storage::{
    Durability, IfExists, IndexDefinition, StorageError, Store, Table, TableChange, TableDefinition,
    TableRules, TableState, qualified,
};

use super::draft::Draft;
use super::home::Home;
use super::{Kind, Tables, exists, home, native, plan_views_again, rows};
use crate::catalog::names::Place;
use crate::error::{Error, Result};
use crate::files::names::looks_like_path;
use crate::planning::alter_statement::{AlterStatement, Alteration};
use crate::planning::{altered_rows, identities};

/// How long others may change rows meanwhile, and how long to wait before it is done again.
const MOST_WAIT: Duration = Duration::from_secs(5);
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

impl Tables {
    /// `ALTER TABLE`, of one that exists.
    pub(crate) async fn alter(
        &self,
        state: &Arc<SessionState>,
        place: &Place,
        statement: AlterStatement,
    ) -> Result<()> {
        let full = place.qualified();
        if place.kind() == Some(Kind::View) {
            return Err(Error::unsupported(format!(
                "'{full}' is a view, which ALTER TABLE does not change: CREATE OR REPLACE VIEW does, and ALTER VIEW {full} \
                 RENAME TO gives it another name"
            )));
        }
        let alterations = &statement.alterations;
        if let [Alteration::RenameTable { name }] = alterations.as_slice() {
            self.check_new_name(place, name)?;
        }
        match &self.home {
            Home::Memory(memory) if memory.has(&full) => {
                self.alter_in_memory(memory, state, place, alterations).await?;
            }
            _ if self.home.has_stored_table(&full) => self.alter_stored(state, place, alterations).await?,
            _ => {
                return Err(Error::unsupported(format!(
                    "table '{full}' is over files: DROP TABLE {full}, and CREATE EXTERNAL TABLE makes it as it is to be"
                )));
            }
        }
        if let (Home::Memory(_), [Alteration::RenameTable { name }]) = (&self.home, alterations.as_slice()) {
            let name = qualified(&place.schema, name);
            self.change_objects(|objects| {
                objects.rename_owner(&full, &name);
                Ok(())
            })?;
        }
        plan_views_again();
        Ok(())
    }

    /// `ALTER VIEW … RENAME TO`, of one that exists.
    pub(crate) fn rename_view(&self, place: &Place, name: &str) -> Result<()> {
        if place.kind() != Some(Kind::View) {
            let name = &place.name;
            return Err(Error::unsupported(format!("'{name}' is a table, which ALTER TABLE renames")));
        }
        self.check_new_name(place, name)?;
        let (full, new) = (place.qualified(), qualified(&place.schema, name));
        self.change_objects(|objects| {
            let view = objects.views.iter_mut().find(|view| view.name == full);
            let view = view.ok_or_else(|| Error::UnknownTable { name: full.clone(), hint: String::new() })?;
            view.statement = super::views::renamed(&view.statement, name)?;
            view.name.clone_from(&new);
            Ok(())
        })?;
        self.views.lock().remove(&full);
        plan_views_again();
        Ok(())
    }

    fn check_new_name(&self, place: &Place, name: &str) -> Result<()> {
        if looks_like_path(name) {
            return Err(Error::unsupported(format!(
                "'{name}' would read as a file; choose another name for a table"
            )));
        }
        let new = Place { name: name.to_owned(), ..place.clone() };
        new.kind().map_or(Ok(()), |kind| Err(exists(&new, kind)))
    }

    async fn alter_in_memory(
        &self,
        memory: &home::Memory,
        state: &Arc<SessionState>,
        place: &Place,
        alterations: &[Alteration],
    ) -> Result<()> {
        {
            let _moving = self.moving.try_write().map_err(|_| is_filled(place))?;
            let planned = self.planned(&place.schema);
            let provider = planned.table(&place.name).await?;
            let Some(table) = provider.as_ref().and_then(|provider| provider.downcast_ref::<MemTable>())
            else {
                return Err(is_filled(place));
            };
            let full = place.qualified();
            let taken = self.index_names(None);
            let draft = Draft::of(place, &table.schema(), &self.home.rules(&full), [].into_iter(), taken)?;
            let draft = draft.altered(state, alterations)?;
            if !draft.has_other_columns() && !draft.has_new_indexes() {
                let demands = draft.demands();
                if !demands.is_empty() {
                    drain(state, altered_rows::plan(state, place, draft.columns(), demands, false).await?)
                        .await?;
                }
                let (schema, name) = (draft.schema(), draft.name().to_owned());
                let mut partitions = Vec::with_capacity(table.batches.len());
                for partition in &table.batches {
                    let batches = partition.read().await;
                    let altered = batches.iter().map(|batch| with_schema(batch, &schema));
                    partitions.push(altered.collect::<Result<Vec<_>>>()?);
                }
                let altered = MemTable::try_new(schema, partitions)?;
                planned.deregister_table(&place.name)?;
                planned.register_table(name.clone(), Arc::new(altered))?;
                memory.alter(&full, qualified(&place.schema, &name), draft.rules());
                return Ok(());
            }
            self.store_from_memory(memory, place).await?;
        }
        self.alter_stored(state, place, alterations).await
    }

    async fn alter_stored(
        &self,
        state: &Arc<SessionState>,
        place: &Place,
        alterations: &[Alteration],
    ) -> Result<()> {
        let (store, full) = (self.home.store_or_new()?, place.qualified());
        // What is done in the background would be a change by others.
        let _kept = blocking(|| store.keep_rows());
        let begin = Instant::now();
        let (draft, before) = loop {
            let (table, before) = blocking(|| store.table_to_alter(&full))?;
            let taken = self.index_names(Some(&full));
            let indexes = table.indexes().map(|(_, index)| index.clone());
            let draft = Draft::of(place, table.schema(), table.rules(), indexes, taken)?;
            let draft = draft.altered(state, alterations)?;
            let work = Work { store: &store, place, table: &table, before: &before, draft: &draft };
            let (outcome, may_pass) = match blocking(|| work.check_settled()) {
                Ok(()) => {
                    let outcome = work.done(state).await;
                    let is_changed = outcome.is_err() && !blocking(|| store.is_unchanged(&before));
                    (outcome, is_changed)
                }
                Err(error) => {
                    let may_pass = matches!(error, StorageError::TableChanging { .. });
                    (Err(error.into()), may_pass)
                }
            };
            match outcome {
                Ok(()) => break (draft, table),
                Err(error) if !may_pass || begin.elapsed() >= MOST_WAIT || !store.has_table(&full) => {
                    return Err(error);
                }
                Err(_) => {}
            }
            tokio::time::sleep(BETWEEN_TRIES).await;
        };
        if draft.is_written_anew(&before) {
            // What has read the old one is gone now.
            drop(before);
            blocking(|| store.clear_dropped());
            self.drop_unused_sequences(&full, &draft.rules())?;
        } else if draft.has_new_indexes() {
            blocking(|| add_indexes(&store, &full, &draft, &before))?;
        }
        Ok(())
    }
}

impl Tables {
    /// Drops sequences that numbered columns which are gone.
    fn drop_unused_sequences(&self, table: &str, rules: &TableRules) -> Result<()> {
        let is_default = |name: &String| {
            let default = identities::default(name);
            rules.defaults.iter().any(|other| other.expression == default)
        };
        let mut unused = self.objects().sequences_of(table);
        unused.retain(|name| !is_default(name));
        if !unused.is_empty() {
            self.change_objects(|objects| {
                objects.sequences.retain(|sequence| !unused.contains(&sequence.name));
                Ok(())
            })?;
            unused.iter().for_each(|name| self.sequences.forget(name));
        }
        Ok(())
    }
}

/// One attempt to change a table that is stored.
struct Work<'a> {
    store: &'a Store,
    place: &'a Place,
    table: &'a Table,
    before: &'a TableState,
    draft: &'a Draft,
}

impl Work<'_> {
    /// Rows that are looked at are all that there are: no transaction has others that it may yet commit.
    fn check_settled(&self) -> Result<(), StorageError> {
        match self.draft.is_written_anew(self.table) || !self.draft.demands().is_empty() {
            true => self.store.check_settled(self.before),
            false => Ok(()),
        }
    }

    async fn done(&self, state: &Arc<SessionState>) -> Result<()> {
        let Self { store, place, table, before, draft } = *self;
        let is_written_anew = draft.is_written_anew(table);
        let demands = draft.demands();
        let is_stricter = !demands.is_empty();
        // Sees what there is now, also where it is done again.
        let mut own = state.as_ref().clone();
        own.config_mut().set_extension(Transactions::of_statement(Durability::Full));
        let own = Arc::new(own);
        if is_written_anew {
            let rows = altered_rows::plan(&own, place, draft.columns(), demands, true).await?;
            return self.write(&own, rows).await;
        }
        if is_stricter {
            drain(&own, altered_rows::plan(&own, place, draft.columns(), demands, false).await?).await?;
        }
        drop(own);
        let change = TableChange {
            name: qualified(&place.schema, draft.name()),
            schema: draft.schema(),
            rules: draft.rules(),
            dropped_indexes: draft.dropped_indexes().to_vec(),
            is_stricter,
        };
        Ok(blocking(|| store.alter_table(before, change))?)
    }

    async fn write(&self, state: &Arc<SessionState>, rows: Arc<dyn ExecutionPlan>) -> Result<()> {
        let Self { store, place, table, before, draft } = *self;
        let mut definition = TableDefinition::new(place.qualified(), draft.schema())
            .with_page_bytes(table.page_bytes())
            .with_rules(draft.rules())
            .in_place_of(before.clone());
        let task = state.task_ctx();
        if table.has_segments() && !draft.has_indexes() {
            native::create_with_rows(store, definition, IfExists::Replace, rows, task).await?;
        } else {
            definition.rows = Some(draft.indexes().collect());
            rows::create_with_rows(store, definition, IfExists::Replace, rows, task).await?;
        }
        Ok(())
    }
}

/// Builds the indexes of new keys. Where that fails the table is again what it was.
fn add_indexes(store: &Store, full: &str, draft: &Draft, before: &Table) -> Result<()> {
    let mut added: Vec<IndexDefinition> = Vec::new();
    for index in draft.new_indexes() {
        let table = store.table(full)?;
        match store.create_index(&table, index.clone()) {
            Ok(()) => added.push(index),
            Err(error) => {
                if let Err(undoing) = undo(store, full, &added, before) {
                    log::warn!("what ALTER TABLE has changed of table '{full}' stays so: {undoing}");
                }
                return Err(error.into());
            }
        }
    }
    Ok(())
}

fn undo(store: &Store, full: &str, added: &[IndexDefinition], before: &Table) -> Result<(), StorageError> {
    let (_, now) = store.table_to_alter(full)?;
    let change = TableChange {
        name: full.to_owned(),
        schema: Arc::clone(before.schema()),
        rules: before.rules().clone(),
        dropped_indexes: added.iter().map(|index| index.name.clone()).collect(),
        is_stricter: false,
    };
    store.alter_table(&now, change)
}

async fn drain(state: &Arc<SessionState>, plan: Arc<dyn ExecutionPlan>) -> Result<()> {
    let mut rows = execute_stream(plan, state.task_ctx())?;
    while rows.try_next().await?.is_some() {}
    Ok(())
}

/// The same columns with other names.
fn with_schema(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch.columns().to_vec();
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

fn is_filled(place: &Place) -> Error {
    Error::Query {
        message: format!(
            "table '{}' cannot be changed while rows are inserted: read the result of that statement to the end",
            place.name
        ),
    }
}
