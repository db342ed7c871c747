//! A session: settings, and SQL statements run under them.
//!
//! ```text
//!   text ─ split ─► statement ─┬─ SET / SHOW of ours ──────────────► settings
//!                              ├─ CALIBRATE, SHOW DEVICE ──────────► statements::device
//!                              ├─ COPY t FROM 'file' ──────────────► statements::copy_from
//!                              └─ planning ─┬─ ATTACH, CREATE MACRO, … ► statements::catalog
//!                                           └──────────────────────► logical plan
//!                                    ├─ CREATE TABLE, DROP TABLE ──► tables
//!                                    ├─ EXPLAIN ───────────────────► statements::explain
//!                                    └─ everything else ───────────► physical plan ─► Query
//! ```

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray, UInt64Array};
use datafusion::catalog::{DynamicFileCatalog, MemTable, TableProvider};
use datafusion::common::{Constraints, ScalarValue, TableReference};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{
    Analyze, CreateMemoryTable, DdlStatement, DmlStatement, LogicalPlan, LogicalPlanBuilder, ScalarUDF,
    WriteOp,
};
use datafusion::prelude::SessionContext;
use nandina_exec::execution::QueryFlow;
use nandina_exec::memory::{MemoryGovernor, ResidentBound};
use nandina_exec::rows::{RowTableProvider, blocking};
use parking_lot::Mutex;

use crate::catalog::names::{Names, Place};
use crate::catalog::providers::AllDatabases;
use crate::catalog::sequences::SequenceFunction;
use crate::catalog::temporary::Temporary;
use crate::database::Database;
use crate::engine::{Engine, OperatorFolder};
use crate::error::{Error, Result};
use crate::files::reading::Reading;
use crate::files::{self, FileTables, partitioned};
use crate::options::{POOL_SHARE, Settings};
use crate::planning::creation::Creation;
use crate::planning::index_statement::IndexStatement;
use crate::planning::parameters::{Prepared, PreparedStatements};
use crate::planning::short_text::{self, ShortText};
use crate::planning::{self, Planned, type_statement};
use crate::query::{Answer, Deadline, Query};
use crate::series::Series;
use crate::short_statements::ShortStatements;
use crate::statements::report::{self, ReportPage, Watched};
use crate::statements::{self, catalog, copy_from, copy_to, device, explain};
use crate::tables::snapshots::NewestSnapshots;
use crate::tables::views;
use crate::tables::{Stay, Tables, plan_views_again};
use crate::tpch::TpchFunction;
use crate::transactions::{OpenTransaction, READ_ONLY};
use crate::{calibrate, settings, statement_text};

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
    names: Arc<Names>,
    initial: Settings,
    settings: Mutex<Settings>,
    transaction: Arc<OpenTransaction>,
    prepared: Arc<PreparedStatements>,
    short: ShortStatements,
}

/// A statement that runs several times, without being parsed again. See [`Session::prepare`].
pub struct PreparedStatement<'s> {
    session: &'s Session,
    prepared: Prepared,
}

impl PreparedStatement<'_> {
    /// Starts the statement with these values of its parameters.
    pub async fn run(&self, values: &[ScalarValue]) -> Result<Query> {
        self.session.within_timeout(self.session.execute_prepared(&self.prepared, values)).await
    }
}

impl Database {
    /// A new session with settings of its own.
    pub fn session(&self) -> Result<Session> {
        let settings = Settings::resolve(self.options(), self.directory())?;
        Session::new(self.clone(), settings, self.options().resident)
    }
}

impl Session {
    fn new(database: Database, settings: Settings, resident: Option<ResidentBound>) -> Result<Self> {
        let mut engine = Engine::start(&settings, Arc::clone(database.media()), resident)?;
        let folder = engine.config.get_extension::<OperatorFolder>();
        let folder = folder.ok_or_else(|| Error::setting("the session has no temporary folder"))?;
        let temporary = Temporary::new(Arc::clone(database.media()), folder);
        let names = Names::new(Arc::clone(database.databases()), temporary);
        engine.config.set_extension(Arc::clone(&names));
        let prepared = Arc::new(PreparedStatements::default());
        engine.config.set_extension(Arc::clone(&prepared));
        let main = main_tables(&database);
        let runs_on = SessionStateBuilder::new()
            .with_config(engine.config.clone().with_extension(Arc::clone(main.own_types())))
            .with_runtime_env(Arc::clone(&engine.runtime));
        let mut state = nandina_plan::session_state(runs_on)?;
        nandina_functions::register(&mut state)?;
        let transaction = Arc::new(OpenTransaction::default());
        state.add_analyzer_rule(Arc::new(NewestSnapshots(Arc::clone(&transaction))));
        for format in partitioned::formats() {
            state.register_file_format(format, true)?;
        }
        let context = SessionContext::new_with_state(state);
        context.register_udtf("tpch", Arc::new(TpchFunction));
        context.register_udtf("range", Arc::new(Series::range()));
        context.register_udtf("generate_series", Arc::new(Series::generate_series()));
        for function in SequenceFunction::all(&names) {
            context.register_udf(ScalarUDF::from(function));
        }
        // Names that are no tables are tried as files.
        let files = Arc::new(FileTables::new(context.state_weak_ref()));
        let all = Arc::new(AllDatabases(Arc::clone(&names)));
        context.register_catalog_list(Arc::new(DynamicFileCatalog::new(all, files)));
        names.plan_views_with(context.state_weak_ref());
        Ok(Session {
            database,
            context,
            engine: Mutex::new(engine),
            names,
            initial: settings.clone(),
            settings: Mutex::new(settings),
            transaction,
            prepared,
            short: ShortStatements::default(),
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
        let deadline = self.settings.lock().statement_timeout.and_then(Deadline::from_now);
        let query = match &deadline {
            Some(deadline) => deadline.limit(started).await?,
            None => started.await?,
        };
        Ok(query.ending_at(deadline))
    }

    async fn execute_inner(&self, text: &str) -> Result<Query> {
        let text = statement_text::without_leading_comments(text);
        self.short.before(text);
        if let Some(short) = short_text::of(text).or_else(|| self.short_execute(text))
            && let Some(query) = self.run_short(short).await?
        {
            return Ok(query);
        }
        // Pinned: the future of a short statement is small, and cheap to move.
        Box::pin(self.execute_any(text)).await
    }

    async fn execute_any(&self, text: &str) -> Result<Query> {
        // First: every other name behind SHOW is a setting's.
        if let Some(statement) = calibrate::parse(text)? {
            let media = Arc::clone(&self.engine.lock().media);
            return device::start(media, &self.settings().temp_directory, statement);
        }
        if let Some(statement) = settings::parse(text)? {
            return self.run_setting(statement).await;
        }
        if let Some(statement) = type_statement::parse(text)? {
            self.transaction.refuse("a type")?;
            main_tables(&self.database).run_type_statement(statement, text)?;
            plan_views_again();
            return Query::nothing();
        }
        if let Some(from) = copy_from::parse(text)? {
            return self.copy_from(from).await;
        }
        self.share_memory()?;
        let state = self.state();
        if let Some(asked) = report::parse(text)? {
            let Planned::Plan(LogicalPlan::Analyze(analyze), _) =
                planning::plan_text(&state, &asked.statement()).await?
            else {
                return Err(Error::unsupported("only a query can be analyzed"));
            };
            let analyze = self.analyzed_in_transaction(analyze).await?;
            let stay = self.stay(&analyze.input).await?;
            let watched = Some(self.watched(asked));
            return Ok(Box::pin(explain::analyze(&state, &analyze, watched)).await?.staying(stay));
        }
        let planned = planning::plan_text(&state, text).await?;
        self.run_planned(&state, planned, text).await
    }

    /// Runs what a text was planned as.
    async fn run_planned(&self, state: &Arc<SessionState>, planned: Planned, text: &str) -> Result<Query> {
        // It may have opened where changed rows of a database in memory are.
        self.share_memory()?;
        match planned {
            Planned::ShowTables => self.show_tables().await,
            Planned::Plan(plan, creation) => Box::pin(self.run_plan(state, plan, *creation, text)).await,
            Planned::Catalog(statement) => {
                if statement.changes_database() {
                    self.transaction.refuse("a statement about the catalog")?;
                }
                let done = catalog::run(&self.database, state, statement).await?;
                // One that has been attached follows this session, too.
                let is_on = self.settings.lock().background_vacuum;
                if is_on != self.database.options().background_vacuum {
                    self.set_background_vacuum(is_on);
                }
                Ok(done)
            }
            Planned::Index(statement) => {
                self.transaction.refuse("an index")?;
                Box::pin(self.run_index(statement)).await
            }
            Planned::Alter(statement) => {
                self.transaction.refuse("ALTER TABLE")?;
                if let Some(place) = self.existing(&statement.table, statement.if_exists)? {
                    Box::pin(place.tables.alter(state, &place, statement)).await?;
                }
                Query::nothing()
            }
            Planned::Transaction(statement) => {
                let durability = self.settings().durability;
                blocking(|| self.transaction.run(statement, durability))?;
                Query::nothing()
            }
        }
    }

    /// Starts a statement that reads or changes few rows by a key, if it is one.
    async fn run_short(&self, short: ShortText) -> Result<Option<Query>> {
        let transactions = self.transaction.of_statement(self.settings.lock().durability);
        let pool = Arc::clone(&self.engine.lock().runtime.memory_pool);
        let state = || {
            self.share_memory()?;
            Ok(self.state())
        };
        self.short.run(short, &self.names, &transactions, &pool, state).await
    }

    /// The text and the values of a prepared statement that `EXECUTE` names.
    fn short_execute(&self, text: &str) -> Option<ShortText> {
        let (name, values) = short_text::of_execute(text)?;
        let text = self.prepared.text_of(&name, values.len())?;
        Some(ShortText { text, values })
    }

    /// Parses a statement that is to run several times, with other values in the place of its parameters (`?`, or `$1`, `$2` and so on).
    pub async fn prepare(&self, text: &str) -> Result<PreparedStatement<'_>> {
        let text = statement_text::without_leading_comments(text);
        let prepared = planning::prepared_text(&self.state(), text).await?;
        Ok(PreparedStatement { session: self, prepared })
    }

    async fn execute_prepared(&self, prepared: &Prepared, values: &[ScalarValue]) -> Result<Query> {
        self.short.before(prepared.text());
        if prepared.takes_values(values.len()) {
            let short = ShortText { text: Arc::clone(prepared.text()), values: values.to_vec() };
            if let Some(query) = self.run_short(short).await? {
                return Ok(query);
            }
        }
        // Pinned: the future of a short statement is small, and cheap to move.
        Box::pin(async {
            self.share_memory()?;
            let state = self.state();
            let planned = planning::plan_prepared(&state, prepared, values).await?;
            self.run_planned(&state, planned, prepared.text()).await
        })
        .await
    }

    /// Gives pages of rows that are changed one by one their share of the limit, and statements what is left.
    fn share_memory(&self) -> Result<()> {
        let limit = self.settings.lock().memory_limit_bytes as usize;
        let attached = self.names.databases().all().into_iter().map(|(_, attached)| attached.tables);
        let mut taken = 0;
        for tables in attached.chain(self.names.temporary().tables()) {
            taken += blocking(|| tables.set_pool_bytes(limit / POOL_SHARE))?;
        }
        self.engine.lock().governor.set_limit_bytes(Some(limit - taken.min(limit / 2)));
        Ok(())
    }

    /// What one statement is planned and run with. Its requests share the devices fairly with other statements'.
    fn state(&self) -> Arc<SessionState> {
        let mut state = self.context.state();
        state.config_mut().set_extension(Arc::new(QueryFlow::unique()));
        let durability = self.settings.lock().durability;
        state.config_mut().set_extension(self.transaction.of_statement(durability));
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
        self.transaction.refuse("an import")?;
        let state = self.state();
        if mode == Import::Append {
            let from = copy_from::CopyFrom {
                table: TableReference::bare(table),
                columns: Vec::new(),
                reading: Reading::of_names(files),
            };
            let plan = copy_from::insert_plan(self.table(table), &state, from).await?;
            let stay = self.stay(&plan).await?;
            return Ok(statements::start_plan(&state, plan, Answer::RowsWritten).await?.staying(stay));
        }
        let source = files::open(&state, &Reading::of_names(files)).await?;
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
        let place = self.names.place(&create.name, false)?;
        let tables = Arc::clone(&place.tables);
        tables.create(&state, place, create, Creation::default()).await
    }

    /// The names of the tables that a session finds by their bare names, sorted.
    pub fn table_names(&self) -> Vec<String> {
        catalog::visible(&self.names).into_iter().map(|place| place.name).collect()
    }

    /// A table by its name, or files by their path or pattern.
    pub async fn table(&self, name: &str) -> Result<Arc<dyn TableProvider>> {
        self.table_of(TableReference::bare(name)).await
    }

    async fn table_of(&self, reference: TableReference) -> Result<Arc<dyn TableProvider>> {
        let name = reference.to_string();
        let provider = self.context.table_provider(reference).await;
        provider.map_err(|error| match Error::from(error) {
            Error::Query { message }
                if message.contains("doesn't exist") || message.contains("not found") =>
            {
                Error::UnknownTable { name, hint: String::new() }.with_tables(&self.table_names())
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
    async fn run_plan(
        &self,
        state: &Arc<SessionState>,
        plan: LogicalPlan,
        creation: Creation,
        text: &str,
    ) -> Result<Query> {
        match plan {
            LogicalPlan::Dml(dml) if !matches!(dml.op, WriteOp::Insert(_) | WriteOp::Ctas) => {
                Err(planning::cannot_change(dml.table_name.table()))
            }
            LogicalPlan::Dml(_) => {
                let plan = self.in_transaction(plan).await?;
                let stay = self.stay(&plan).await?;
                Ok(statements::start_plan(state, plan, Answer::RowsWritten).await?.staying(stay))
            }
            LogicalPlan::Copy(copy) => copy_to::start(state, copy).await,
            LogicalPlan::Ddl(ref ddl) if self.transaction.current().is_some() => {
                self.transaction.refuse(ddl.name())?;
                Err(Error::bug("a transaction that is open is none"))
            }
            LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) => {
                let place = self.names.place(&create.name, create.temporary)?;
                let tables = Arc::clone(&place.tables);
                tables.create(state, place, create, creation).await
            }
            LogicalPlan::Ddl(DdlStatement::DropTable(drop)) => {
                if let Some(place) = self.existing(&drop.name, drop.if_exists)? {
                    place.tables.drop_table(&place)?;
                }
                Query::nothing()
            }
            LogicalPlan::Ddl(DdlStatement::CreateView(create)) => {
                let place = self.names.place(&create.name, create.temporary)?;
                if creation.keeps_view && place.kind().is_some() {
                    return Query::nothing();
                }
                // As other sessions will plan it.
                let view = views::planned(&place, text, &self.names).await?;
                place.tables.create_view(&place, create.or_replace, text, view)?;
                Query::nothing()
            }
            LogicalPlan::Ddl(DdlStatement::DropView(drop)) => {
                if let Some(place) = self.existing(&drop.name, drop.if_exists)? {
                    place.tables.drop_view(&place)?;
                }
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
                    plan => statements::start_plan(state, plan.clone(), Answer::Rows).await,
                }
            }
            LogicalPlan::Analyze(analyze) => {
                let analyze = self.analyzed_in_transaction(analyze).await?;
                let stay = self.stay(&analyze.input).await?;
                Ok(explain::analyze(state, &analyze, None).await?.staying(stay))
            }
            LogicalPlan::Explain(_) => explain::plans(state, plan).await,
            plan => statements::start_plan(state, plan, Answer::Rows).await,
        }
    }

    /// A plan that inserts, as part of the transaction if there is one: then rows go where they can be rolled back.
    async fn in_transaction(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let LogicalPlan::Dml(dml) = plan else { return Ok(plan) };
        if self.transaction.current().is_none() || source_as_provider(&dml.target)?.is::<RowTableProvider>() {
            return Ok(LogicalPlan::Dml(dml));
        }
        let transactions = self.transaction.current();
        if transactions.as_ref().is_some_and(|transactions| transactions.is_read_only()) {
            return Err(Error::unsupported(READ_ONLY));
        }
        let table = match (self.names.find(&dml.table_name), transactions) {
            (Some(place), Some(transactions)) => place.tables.make_changeable(&place, &transactions).await?,
            _ => None,
        };
        match table {
            Some(table) => {
                let target = provider_as_source(Arc::new(RowTableProvider::new(table)));
                Ok(LogicalPlan::Dml(DmlStatement { target, ..dml }))
            }
            None => {
                let table = dml.table_name.table();
                self.transaction.refuse(&format!("INSERT into '{table}', which is not stored here,"))?;
                Err(Error::bug("a transaction that is open is none"))
            }
        }
    }

    /// Keeps a table in memory there, if that is where a plan inserts.
    async fn stay(&self, plan: &LogicalPlan) -> Result<Option<Stay>> {
        let LogicalPlan::Dml(dml) = plan else { return Ok(None) };
        let provider = source_as_provider(&dml.target)?;
        match self.names.find(&dml.table_name).filter(|_| provider.is::<MemTable>()) {
            Some(place) => place.tables.stay(&place, &provider).await.map(Some),
            None => Ok(None),
        }
    }

    async fn analyzed_in_transaction(&self, analyze: Analyze) -> Result<Analyze> {
        let input = self.in_transaction(Arc::unwrap_or_clone(analyze.input)).await?;
        Ok(Analyze { input: Arc::new(input), ..analyze })
    }

    async fn run_index(&self, statement: IndexStatement) -> Result<Query> {
        match statement {
            IndexStatement::Create { name, table, columns, is_unique, if_not_exists } => {
                let Some(place) = self.existing(&table, false)? else { return Query::nothing() };
                place.tables.create_index(&place, name, columns, is_unique, if_not_exists).await?;
            }
            IndexStatement::Drop { name, if_exists } => {
                let mut is_dropped = false;
                let attached = self.names.databases().all().into_iter().map(|(_, attached)| attached.tables);
                for tables in self.names.temporary().tables().into_iter().chain(attached) {
                    is_dropped = is_dropped || blocking(|| tables.drop_index(&name))?;
                }
                if !is_dropped && !if_exists {
                    return Err(Error::Query { message: format!("there is no index '{name}'") });
                }
            }
        }
        Query::nothing()
    }

    /// The table or view of a name; none if it need not exist.
    fn existing(&self, name: &TableReference, if_exists: bool) -> Result<Option<Place>> {
        match self.names.find(name) {
            Some(place) => Ok(Some(place)),
            None if if_exists => Ok(None),
            None => Err(Error::UnknownTable { name: name.to_string(), hint: String::new() }),
        }
    }

    /// What a report of a statement is made from.
    fn watched(&self, page: ReportPage) -> Watched {
        let memory_limit_bytes = self.settings().memory_limit_bytes;
        let engine = self.engine.lock();
        let (media, governor) = (Arc::clone(&engine.media), Arc::clone(&engine.governor));
        Watched { page, media, governor, temp_space: engine.temp_space(), memory_limit_bytes }
    }

    async fn copy_from(&self, from: copy_from::CopyFrom) -> Result<Query> {
        let state = self.state();
        let plan = copy_from::insert_plan(self.table_of(from.table.clone()), &state, from.clone()).await?;
        let plan = self.in_transaction(plan).await?;
        let stay = self.stay(&plan).await?;
        Ok(statements::start_plan(&state, plan, Answer::RowsWritten).await?.staying(stay))
    }

    async fn show_tables(&self) -> Result<Query> {
        let (mut names, mut columns, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        for place in catalog::visible(&self.names) {
            // A view may be over a table that no longer exists.
            let table = place.tables.table(&place, &self.names).await.ok().flatten();
            columns.push(table.map(|table| table.schema().fields().len() as u64));
            rows.push(place.tables.rows(&place).await?);
            names.push(place.name);
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

    async fn run_setting(&self, statement: settings::Statement) -> Result<Query> {
        match statement {
            settings::Statement::Accepted => Query::nothing(),
            settings::Statement::Set { name, value } => {
                if let Some(outside) = settings::outside(&name, &value)? {
                    self.set_outside(outside)?;
                    return Query::nothing();
                }
                let changed = self.settings().with(&name, &value)?;
                self.apply(changed)?;
                Query::nothing()
            }
            settings::Statement::Reset { name } => {
                if let Some(outside) = settings::outside_default(&name, self.names.databases().main()) {
                    self.set_outside(outside)?;
                    return Query::nothing();
                }
                let changed = self.settings().with_default(&name, self.database.options(), &self.initial)?;
                self.apply(changed)?;
                Query::nothing()
            }
            settings::Statement::Show { name } => {
                let value = self.shown(&name);
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

    fn set_outside(&self, outside: settings::Outside) -> Result<()> {
        match outside {
            settings::Outside::NullOrder(order) => {
                let state = self.context.state_ref();
                let mut state = state.write();
                order.clone_into(&mut state.config_mut().options_mut().sql_parser.default_null_ordering);
                Ok(())
            }
            settings::Outside::Path(path) => self.names.set_path(&path),
        }
    }

    fn shown(&self, name: &str) -> String {
        let state = self.context.state();
        let null_order = &state.config_options().sql_parser.default_null_ordering;
        let outside = settings::outside_shown(name, null_order, &self.names.path());
        outside.unwrap_or_else(|| self.settings().shown(name))
    }

    fn show_all(&self) -> Result<Query> {
        let mut rows: Vec<(String, String)> =
            settings::NAMES.iter().map(|(name, _)| ((*name).to_owned(), self.shown(name))).collect();
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

    fn set_background_vacuum(&self, is_on: bool) {
        for (_, attached) in self.names.databases().all() {
            attached.tables.set_background_vacuum(is_on);
        }
    }

    /// Makes changed settings take effect for statements that start from now on.
    fn apply(&self, changed: Settings) -> Result<()> {
        let mut settings = self.settings.lock();
        let mut engine = self.engine.lock();
        let reference = self.context.state_ref();
        let mut state = reference.write();
        *engine = engine.changed(&settings, &changed, state.config().clone())?;
        if settings.background_vacuum != changed.background_vacuum {
            self.set_background_vacuum(changed.background_vacuum);
        }
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

/// The tables of the database that a session was opened for.
fn main_tables(database: &Database) -> Arc<Tables> {
    let databases = database.databases();
    match databases.tables(databases.main()) {
        Some(tables) => tables,
        None => unreachable!("the first database of all stays attached"),
    }
}
