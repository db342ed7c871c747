//! A session: settings, and SQL statements run under them.
//!
//! ```text
//!   text ─ split ─► statement ─┬─ SET / SHOW of ours ──────────────► settings
//!                              ├─ CALIBRATE, SHOW DEVICE ──────────► calibrate
//!                              ├─ COPY t FROM 'file' ──────────────► copy_from
//!                              └─ planning ────────────────────────► logical plan
//!                                    ├─ CREATE TABLE, DROP TABLE ──► tables
//!                                    ├─ EXPLAIN ANALYZE ───────────► run, then profile
//!                                    └─ everything else ───────────► physical plan ─► Query
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{ArrayRef, RecordBatch, StringArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::memory::MemoryCatalogProvider;
use datafusion::catalog::{CatalogProvider as _, DynamicFileCatalog, TableProvider};
use datafusion::common::{Constraints, TableReference};
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{
    Analyze, CreateMemoryTable, CreateView, DdlStatement, LogicalPlan, LogicalPlanBuilder, WriteOp,
};
use datafusion::optimizer::Analyzer;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionContext;
use nandina_device::calibration::Progress as CalibrationProgress;
use nandina_device::profile::DeviceProfile;
use nandina_exec::execution::QueryFlow;
use nandina_exec::memory::{MemoryGovernor, ResidentBound};
use nandina_exec::execution::meter::metered;
use parking_lot::Mutex;

use crate::calibrate;
use crate::copy_from;
use crate::copy_to;
use crate::csv_files::CsvDialect;
use crate::database::Database;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::files::{self, FileTables};
use crate::media;
use crate::options::Settings;
use crate::partitioned_files;
use crate::planning::{self, Planned};
use crate::profile::Profile;
use crate::progress::ToldShare;
use crate::query::{Answer, Deadline, Query};
use crate::report::{self, ReportPage, Watch, Watched};
use crate::settings;
use crate::snapshots::NewestSnapshots;
use crate::statement_text;
use crate::tables::Tables;
use crate::tpch::TpchFunction;

/// What is known about a device, as a table.
fn device_table(profile: &DeviceProfile, complaint: Option<String>) -> Result<RecordBatch> {
    let complaint = complaint.map(|complaint| ("note".to_owned(), complaint));
    let (what, value): (Vec<String>, Vec<String>) =
        calibrate::device_facts(profile).into_iter().chain(complaint).unzip();
    Ok(RecordBatch::try_from_iter([
        ("what", Arc::new(StringArray::from(what)) as ArrayRef),
        ("value", Arc::new(StringArray::from(value))),
    ])?)
}

/// The catalog and schema in which tables are found by their bare names.
pub(crate) const CATALOG: &str = "nandina";
pub(crate) const SCHEMA: &str = "main";

/// What importing does about a table that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Import {
    /// Refuses: the table is to be new.
    Create,
    /// Adds rows to it; columns are matched by position.
    Append,
    /// Replaces it.
    Replace,
}

/// Runs statements. Sessions of one database share its tables but not their settings.
pub struct Session {
    database: Database,
    context: SessionContext,
    engine: Mutex<Engine>,
    tables: Arc<Tables>,
    initial: Settings,
    settings: Mutex<Settings>,
}

impl Session {
    pub(crate) fn new(
        database: Database,
        settings: Settings,
        resident: Option<ResidentBound>,
    ) -> Result<Self> {
        let engine = Engine::start(&settings, Arc::clone(database.media()), resident)?;
        let runs_on = SessionStateBuilder::new()
            .with_config(engine.config.clone())
            .with_runtime_env(Arc::clone(&engine.runtime));
        let mut state = nandina_plan::session_state(runs_on)?;
        state.add_analyzer_rule(Arc::new(NewestSnapshots));
        for format in partitioned_files::formats() {
            state.register_file_format(format, true)?;
        }
        let context = SessionContext::new_with_state(state);
        context.register_udtf("tpch", Arc::new(TpchFunction));
        let tables = Arc::clone(database.tables());
        let catalog = MemoryCatalogProvider::new();
        catalog.register_schema(SCHEMA, tables.schema())?;
        context.register_catalog(CATALOG, Arc::new(catalog));
        // Names that are no tables are tried as files. The wrapper goes around the catalogs last, so that it
        // sees all of them.
        let catalogs = Arc::clone(context.state().catalog_list());
        let files = Arc::new(FileTables::new(context.state_weak_ref()));
        context.register_catalog_list(Arc::new(DynamicFileCatalog::new(catalogs, files)));
        tables.plan_views_with(context.state_weak_ref());
        Ok(Session {
            database,
            context,
            engine: Mutex::new(engine),
            tables,
            initial: settings.clone(),
            settings: Mutex::new(settings),
        })
    }

    /// Runs the statements in `text` one after the other. All but the last run to their end here; the last
    /// one's result is returned, computed as it is read.
    pub async fn sql(&self, text: &str) -> Result<Query> {
        let statements = statement_text::statements(text);
        let Some((last, before)) = statements.split_last() else { return Query::nothing() };
        for statement in before {
            self.execute(statement).await?.drain().await?;
        }
        self.execute(last).await
    }

    /// Starts one statement (without a semicolon inside).
    pub async fn execute(&self, statement: &str) -> Result<Query> {
        let result = self.within_timeout(self.execute_inner(statement)).await;
        result.map_err(|error| match error {
            Error::UnknownTable { .. } => error.with_tables(&self.table_names()),
            other => other,
        })
    }

    /// Starts a statement, which ends with an error once it has taken as long as it may.
    async fn within_timeout(&self, started: impl Future<Output = Result<Query>>) -> Result<Query> {
        let deadline = self.settings().statement_timeout.and_then(Deadline::from_now);
        let query = match &deadline {
            Some(deadline) => deadline.limit(started).await?,
            None => started.await?,
        };
        Ok(query.ending_at(deadline))
    }

    async fn execute_inner(&self, text: &str) -> Result<Query> {
        let text = statement_text::without_leading_comments(text);
        // First: every other name behind SHOW is a setting's.
        if let Some(statement) = calibrate::parse(text)? {
            return self.run_about_device(statement);
        }
        if let Some(statement) = settings::parse(text)? {
            return self.run_setting(statement).await;
        }
        if let Some(from) = copy_from::parse(text)? {
            return self.copy_from(from).await;
        }
        let state = self.state();
        if let Some(asked) = report::parse(text)? {
            let Planned::Plan(LogicalPlan::Analyze(analyze)) =
                planning::plan_text(&state, &asked.statement()).await?
            else {
                return Err(Error::unsupported("only a query can be analyzed"));
            };
            return Box::pin(self.explain_analyze(&state, &analyze, Some(asked))).await;
        }
        match planning::plan_text(&state, text).await? {
            Planned::ShowTables => self.show_tables().await,
            Planned::Plan(plan) => Box::pin(self.run_plan(&state, plan, text)).await,
        }
    }

    /// What one statement is planned and run with. Its requests share the devices fairly with other statements'.
    fn state(&self) -> Arc<SessionState> {
        let mut state = self.context.state();
        state.config_mut().set_extension(Arc::new(QueryFlow::unique()));
        Arc::new(state)
    }

    /// Runs the statements in `text` to their end and drops their rows.
    pub async fn run(&self, text: &str) -> Result<()> {
        self.sql(text).await?.drain().await
    }

    /// Loads files (paths, folders, patterns) into a table; the result is the number of rows.
    pub async fn import(&self, table: &str, files: &[&str], mode: Import) -> Result<Query> {
        self.within_timeout(self.import_inner(table, files, mode)).await
    }

    async fn import_inner(&self, table: &str, files: &[&str], mode: Import) -> Result<Query> {
        let state = self.state();
        if mode == Import::Append {
            let from = copy_from::CopyFrom {
                table: table.to_owned(),
                columns: Vec::new(),
                path: files.join(", "),
                dialect: CsvDialect::default(),
            };
            let plan = copy_from::insert_plan(self, &state, files, &from).await?;
            return self.start_plan(&state, plan, Answer::RowsWritten).await;
        }
        let source = files::open(&state, files, &CsvDialect::default()).await?;
        let rows = LogicalPlanBuilder::scan("file", provider_as_source(source), None)?.build()?;
        let create = CreateMemoryTable {
            name: TableReference::bare(table),
            constraints: Constraints::default(),
            input: Arc::new(rows),
            if_not_exists: false,
            or_replace: mode == Import::Replace,
            column_defaults: Vec::new(),
            temporary: false,
        };
        self.tables.create(&state, create).await
    }

    /// The names of the tables of the database, sorted.
    pub fn table_names(&self) -> Vec<String> {
        self.tables.names()
    }

    /// A table by its name, or files by their path or pattern.
    pub async fn table(&self, name: &str) -> Result<Arc<dyn TableProvider>> {
        let provider = self.context.table_provider(TableReference::bare(name)).await;
        provider.map_err(|error| match Error::from(error) {
            Error::Query { message }
                if message.contains("doesn't exist") || message.contains("not found") =>
            {
                Error::UnknownTable { name: name.to_owned(), hint: String::new() }
                    .with_tables(&self.table_names())
            }
            other => other,
        })
    }

    /// The settings in force.
    pub fn settings(&self) -> Settings {
        self.settings.lock().clone()
    }

    pub fn database(&self) -> &Database {
        &self.database
    }

    /// What accounts for the memory of this session.
    pub fn governor(&self) -> Arc<MemoryGovernor> {
        Arc::clone(&self.engine.lock().governor)
    }

    /// DataFusion's context, for what this crate does not wrap.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// Runs a plan, which was made from a text.
    async fn run_plan(&self, state: &Arc<SessionState>, plan: LogicalPlan, text: &str) -> Result<Query> {
        match plan {
            LogicalPlan::Dml(dml) if !matches!(dml.op, WriteOp::Insert(_) | WriteOp::Ctas) => {
                Err(planning::cannot_change())
            }
            LogicalPlan::Dml(_) => self.start_plan(state, plan, Answer::RowsWritten).await,
            LogicalPlan::Copy(copy) => copy_to::start(state, copy).await,
            LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) => {
                self.tables.create(state, create).await
            }
            LogicalPlan::Ddl(DdlStatement::DropTable(drop)) => {
                self.tables.drop_table(&drop).await?;
                Query::nothing()
            }
            LogicalPlan::Ddl(DdlStatement::CreateView(create)) => {
                let view = as_view(state, &create)?;
                self.tables.create_view(create, text, view).await?;
                Query::nothing()
            }
            LogicalPlan::Ddl(DdlStatement::DropView(drop)) => {
                self.tables.drop_view(&drop).await?;
                Query::nothing()
            }
            LogicalPlan::Ddl(DdlStatement::CreateExternalTable(create)) if !create.constraints.is_empty() => {
                Err(Error::unsupported(format!(
                    "table '{}': keys and other constraints of files are not checked, and not supported; leave them out",
                    create.name.table()
                )))
            }
            LogicalPlan::Ddl(_) | LogicalPlan::Statement(_) => {
                let frame = self.context.execute_logical_plan(plan).await?;
                // EXECUTE of a prepared statement comes back as the plan to run.
                match frame.logical_plan() {
                    LogicalPlan::EmptyRelation(_) => Query::nothing(),
                    plan => self.start_plan(state, plan.clone(), Answer::Rows).await,
                }
            }
            LogicalPlan::Analyze(analyze) => self.explain_analyze(state, &analyze, None).await,
            LogicalPlan::Explain(_) => self.explain(state, plan).await,
            plan => self.start_plan(state, plan, Answer::Rows).await,
        }
    }

    /// Starts a plan.
    async fn start_plan(
        &self,
        state: &Arc<SessionState>,
        plan: LogicalPlan,
        answer: Answer,
    ) -> Result<Query> {
        let physical = planning::physical_plan(state, plan).await?;
        media::know_before(state, &physical).await;
        self.start(state, physical, answer)
    }

    /// Starts a physical plan.
    fn start(&self, state: &SessionState, plan: Arc<dyn ExecutionPlan>, answer: Answer) -> Result<Query> {
        let stream = execute_stream(Arc::clone(&plan), state.task_ctx())?;
        Ok(Query::running(answer, plan, stream))
    }

    /// Runs the query to its end, drops its rows and returns what its operators did; draws it too if a page is asked
    /// for.
    async fn explain_analyze(
        &self,
        state: &Arc<SessionState>,
        analyze: &Analyze,
        page: Option<ReportPage>,
    ) -> Result<Query> {
        let input = match &*analyze.input {
            LogicalPlan::Dml(dml) if !matches!(dml.op, WriteOp::Insert(_)) => {
                return Err(planning::cannot_change());
            }
            LogicalPlan::Copy(copy) => LogicalPlan::Copy(copy_to::with_absolute_target(copy.clone())?),
            other => other.clone(),
        };
        let verbose = analyze.verbose;
        let plan = planning::physical_plan(state, input).await?;
        media::know_before(state, &plan).await;
        let plan = metered(plan)?;
        let watched = page.map(|page| self.watched(page));
        let query = self.start(state, Arc::clone(&plan), Answer::Rows)?;
        let executed = Arc::clone(&plan);
        let work = async move {
            let watch = watched.map(Watch::start);
            query.drain().await?;
            let profile = Profile::of(&executed);
            let mut text = profile.render(verbose);
            if let Some(watch) = watch {
                let [page, data] = watch.end(&profile)?;
                text += &format!("report: {} ({} holds its figures)\n", page.display(), data.display());
            }
            text_lines(&text)
        };
        Ok(Query::working(Answer::Text, text_schema(), Some(plan), work))
    }

    /// What a report of a statement is made from.
    fn watched(&self, page: ReportPage) -> Watched {
        let memory_limit_bytes = self.settings().memory_limit_bytes;
        let engine = self.engine.lock();
        let (media, governor) = (Arc::clone(&engine.media), Arc::clone(&engine.governor));
        Watched { page, media, governor, temp_space: engine.temp_space(), memory_limit_bytes }
    }

    async fn explain(&self, state: &Arc<SessionState>, plan: LogicalPlan) -> Result<Query> {
        let batches = self.start_plan(state, plan, Answer::Text).await?.collect().await?;
        let mut text = String::new();
        for batch in &batches {
            for name in ["plan_type", "plan"] {
                if batch.column_by_name(name).is_none() {
                    return Err(Error::unsupported("this form of EXPLAIN is not supported"));
                }
            }
            let column = |name: &str| -> Result<StringArray> {
                let values = batch
                    .column_by_name(name)
                    .map(|values| arrow::compute::cast(values, &arrow::datatypes::DataType::Utf8));
                let values = values.transpose()?;
                let strings =
                    values.as_ref().and_then(|values| values.as_any().downcast_ref::<StringArray>());
                Ok(strings.cloned().unwrap_or_else(|| StringArray::new_null(batch.num_rows())))
            };
            let (kinds, plans) = (column("plan_type")?, column("plan")?);
            for (kind, plan) in kinds.iter().zip(plans.iter()) {
                text.push_str(&kind.unwrap_or_default().replace('_', " "));
                text.push_str(":\n");
                for line in plan.unwrap_or_default().trim_end().lines() {
                    text.push_str("  ");
                    text.push_str(line);
                    text.push('\n');
                }
            }
        }
        Query::finished(Answer::Text, text_lines(&text)?)
    }

    async fn copy_from(&self, from: copy_from::CopyFrom) -> Result<Query> {
        let state = self.state();
        let plan = copy_from::insert_plan(self, &state, &[&from.path], &from).await?;
        self.start_plan(&state, plan, Answer::RowsWritten).await
    }

    async fn show_tables(&self) -> Result<Query> {
        let names = self.table_names();
        let (mut columns, mut rows) = (Vec::new(), Vec::new());
        for name in &names {
            // A view may be over what is no longer there.
            let table = self.table(name).await.ok();
            columns.push(table.map(|table| table.schema().fields().len() as u64));
            rows.push(self.tables.rows(name).await?);
        }
        Query::columns(
            Answer::Rows,
            vec![
                ("table", Arc::new(StringArray::from(names)) as ArrayRef),
                ("columns", Arc::new(UInt64Array::from(columns))),
                ("rows", Arc::new(UInt64Array::from(rows))),
            ],
        )
    }

    fn run_about_device(&self, statement: calibrate::Statement) -> Result<Query> {
        let (calibrate::Statement::Calibrate { directory, .. } | calibrate::Statement::Show { directory }) =
            &statement;
        let directory = match directory {
            Some(directory) => files::absolute_path(directory)?,
            None => self.settings().temp_directory,
        };
        let media = Arc::clone(&self.engine.lock().media);
        let device = media.directory(&directory).map_err(|error| Error::setting(error.to_string()))?;
        let calibrate::Statement::Calibrate { full, .. } = statement else {
            return Query::finished(Answer::Rows, device_table(&device.profile(), media.complaint(&device))?);
        };
        let schema = device_table(&device.profile(), None)?.schema();
        let told = ToldShare::default();
        let share = told.clone();
        let work = async move {
            let stop = Arc::new(AtomicBool::new(false));
            let _stop_when_dropped = calibrate::StopWhenDropped(Arc::clone(&stop));
            let measured = tokio::task::spawn_blocking(move || {
                let database = media.database_folder();
                let mut go_on = |progress: CalibrationProgress| {
                    share.tell(progress.share);
                    !stop.load(Ordering::Relaxed)
                };
                let found = calibrate::calibrate_with(&device, database.as_deref(), full, &mut go_on)?;
                media.learn(&found.profile);
                device_table(&found.profile, None)
            });
            measured.await.map_err(|error| Error::Query { message: error.to_string() })?
        };
        Ok(Query::working(Answer::Rows, schema, None, work).telling(told))
    }

    async fn run_setting(&self, statement: settings::Statement) -> Result<Query> {
        match statement {
            settings::Statement::Set { name, value } => {
                let changed = self.settings().with(&name, &value)?;
                self.apply(changed)?;
                Query::nothing()
            }
            settings::Statement::Reset { name } => {
                let changed = self.settings().with_default(&name, self.database.options(), &self.initial)?;
                self.apply(changed)?;
                Query::nothing()
            }
            settings::Statement::Show { name } => {
                let value = self.settings().shown(&name);
                Query::columns(
                    Answer::Rows,
                    vec![
                        ("name", Arc::new(StringArray::from(vec![name])) as ArrayRef),
                        ("value", Arc::new(StringArray::from(vec![value]))),
                    ],
                )
            }
            settings::Statement::ShowAll => self.show_all(),
        }
    }

    fn show_all(&self) -> Result<Query> {
        let current = self.settings();
        let mut rows: Vec<(String, String)> =
            settings::NAMES.iter().map(|(name, _)| ((*name).to_owned(), current.shown(name))).collect();
        let mut others: Vec<(String, String)> = self
            .context
            .copied_config()
            .options()
            .entries()
            .into_iter()
            .map(|entry| (entry.key, entry.value.unwrap_or_default()))
            .collect();
        others.sort();
        rows.append(&mut others);
        let (names, values): (Vec<String>, Vec<String>) = rows.into_iter().unzip();
        Query::columns(
            Answer::Rows,
            vec![
                ("name", Arc::new(StringArray::from(names)) as ArrayRef),
                ("value", Arc::new(StringArray::from(values))),
            ],
        )
    }

    /// Makes changed settings take effect for statements that start from now on.
    fn apply(&self, changed: Settings) -> Result<()> {
        let mut settings = self.settings.lock();
        let mut engine = self.engine.lock();
        let reference = self.context.state_ref();
        let mut state = reference.write();
        *engine = engine.changed(&settings, &changed, state.config().clone())?;
        if Arc::ptr_eq(state.runtime_env(), &engine.runtime) {
            // A state that is built anew has forgotten the prepared statements.
            *state.config_mut() = engine.config.clone();
        } else {
            *state = SessionStateBuilder::from(state.clone())
                .with_config(engine.config.clone())
                .with_runtime_env(Arc::clone(&engine.runtime))
                .build();
        }
        *settings = changed;
        Ok(())
    }
}

/// The schema of [`Answer::Text`].
fn text_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("plan", DataType::Utf8, false)]))
}

/// The rows of [`Answer::Text`].
fn text_lines(text: &str) -> Result<RecordBatch> {
    let lines: ArrayRef = Arc::new(StringArray::from(text.lines().collect::<Vec<_>>()));
    Ok(RecordBatch::try_new(text_schema(), vec![lines])?)
}

/// The view that a `CREATE VIEW` makes. Its types are settled now; its tables are looked up again for each statement.
fn as_view(state: &SessionState, create: &CreateView) -> Result<Arc<dyn TableProvider>> {
    let analyzer = Analyzer::with_rules(nandina_plan::type_rules());
    let plan = create.input.as_ref().clone();
    let plan = analyzer.execute_and_check(plan, state.config_options(), |_, _| {})?;
    Ok(Arc::new(ViewTable::new(plan, create.definition.clone())))
}

/// The view that a statement makes.
pub(crate) async fn view_of(state: &SessionState, statement: &str) -> Result<Arc<dyn TableProvider>> {
    match planning::logical_plan(state, planning::parse_one(state, statement)?).await? {
        LogicalPlan::Ddl(DdlStatement::CreateView(create)) => as_view(state, &create),
        _ => Err(Error::unsupported("the statement makes no view")),
    }
}
