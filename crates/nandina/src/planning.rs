//! From the text of a statement to its plans.
//!
//! ```text
//!   text ─ parse ─► statement ─ refuse, rewrite ─► logical plan ─ optimize ─► physical plan
//!               └─► catalog statement, which has no plan
//!   └───────────────────────── on a planning thread ────────────────────────────────────┘
//! ```
//!
//! Parsing and planning recurse as deep as a statement is nested, and may compute for seconds without a point at which
//! a task could be cancelled. A planning thread has a stack that is large enough for the deepest statement that
//! [`nesting`] accepts, and its caller can stop waiting at any time.

mod accesses;
pub(crate) mod alter_statement;
pub(crate) mod altered_rows;
pub(crate) mod catalog_statement;
pub(crate) mod check_columns;
pub(crate) mod checks;
mod copy_options;
pub(crate) mod copy_statement;
pub(crate) mod creation;
mod distinct_on;
mod file_alias;
mod forms;
pub(crate) mod identities;
pub(crate) mod index_statement;
mod insertion;
mod lookups;
mod macros;
mod members_of_columns;
mod nested_names;
mod nesting;
pub(crate) mod output_names;
pub(crate) mod parameters;
mod row_amounts;
pub(crate) mod row_changes;
mod row_memberships;
mod sequence_names;
pub(crate) mod short_statements;
pub(crate) mod short_text;
pub(crate) mod syntax;
mod table_functions;
pub(crate) mod transaction_statement;
mod trees;
pub(crate) mod type_statement;
mod walk;
mod wide_files;
mod windows;
mod wrong_plans;

pub(crate) use wrong_plans::normalized;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use datafusion::common::ScalarValue;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{DataType, Statement as SqlStatement};
use datafusion::sql::sqlparser::parser::Parser;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use self::alter_statement::AlterStatement;
use self::catalog_statement::CatalogStatement;
use self::copy_statement::CopyText;
use self::creation::Creation;
use self::index_statement::IndexStatement;
use self::parameters::{Prepared, PreparedStatements};
use self::transaction_statement::TransactionStatement;
use crate::error::{Error, Result};
use crate::planning::lookups::Further;
use crate::set_on_drop::SetOnDrop;

/// Address space for the stack of a planning thread. Only what a statement really needs of it is ever resident.
const STACK_BYTES: usize = 256 << 20;

/// What a statement asks for.
pub(crate) enum Planned {
    /// `SHOW TABLES`
    ShowTables,
    Plan(LogicalPlan, Box<Creation>),
    /// One about the catalog, which has no plan.
    Catalog(CatalogStatement),
    /// `CREATE INDEX` and `DROP INDEX`
    Index(IndexStatement),
    /// `ALTER TABLE`
    Alter(AlterStatement),
    /// `BEGIN`, `COMMIT` and the like
    Transaction(TransactionStatement),
}

/// Parses and plans one statement.
pub(crate) async fn plan_text(state: &Arc<SessionState>, text: &str) -> Result<Planned> {
    let (state, text) = (Arc::clone(state), text.to_owned());
    on_planning_thread(move || async move {
        let statement = match catalog_statement(&state, &text)? {
            Some(CatalogStatement::Execute { name, arguments }) => {
                prepared(&state)?.get(&name)?.with(&name, &arguments)?
            }
            Some(CatalogStatement::Prepare { name, types, text }) => {
                prepare(&state, name, types, &text).await?;
                return Ok(Planned::Catalog(CatalogStatement::Nothing));
            }
            Some(statement) => return Ok(Planned::Catalog(statement)),
            None => parse_one(&state, &text)?,
        };
        if is_show_tables(&statement) {
            return Ok(Planned::ShowTables);
        }
        planned(&state, statement).await
    })
    .await
}

async fn planned(state: &SessionState, mut statement: Statement) -> Result<Planned> {
    if let Some(transaction) = transaction_statement::of(&statement)? {
        return Ok(Planned::Transaction(transaction));
    }
    if let Some(index) = index_statement::of(&statement)? {
        return Ok(Planned::Index(index));
    }
    if let Some(alter) = Box::pin(alter_statement::of(state, &statement)).await? {
        return Ok(Planned::Alter(alter));
    }
    if let Some(plan) = row_changes::plan(state, &statement).await? {
        return Ok(Planned::Plan(plan, Box::default()));
    }
    let creation = creation::settle(&mut statement)?;
    let plan = logical_plan(state, statement).await?;
    Ok(Planned::Plan(plan, Box::new(creation)))
}

fn catalog_statement(state: &SessionState, text: &str) -> Result<Option<CatalogStatement>> {
    if !catalog_statement::may_be_one(text) {
        return Ok(None);
    }
    nesting::check_text(text)?;
    // What is no statement at all is told where it is parsed as one.
    let Ok(mut parser) = new_parser(state, text) else { return Ok(None) };
    catalog_statement::parse(&mut parser, text).transpose()
}

fn prepared(state: &SessionState) -> Result<Arc<PreparedStatements>> {
    let prepared = state.config().get_extension::<PreparedStatements>();
    prepared.ok_or_else(|| Error::bug("a session has no prepared statements"))
}

/// Keeps a statement. One without parameters is planned, so that its errors show now.
async fn prepare(state: &SessionState, name: String, types: Vec<DataType>, text: &str) -> Result<()> {
    let statement = parsed(state, text, types)?;
    if !statement.has_parameters() {
        planned(state, statement.clone().statement()).await?;
    }
    prepared(state)?.put(name, statement);
    Ok(())
}

fn parsed(state: &SessionState, text: &str, types: Vec<DataType>) -> Result<Prepared> {
    let text = parameters::numbered(text);
    let statement = parse_one(state, &text)?;
    Ok(Prepared::new(text, statement, types))
}

/// Parses a statement that is to run several times.
pub(crate) async fn prepared_text(state: &Arc<SessionState>, text: &str) -> Result<Prepared> {
    let (state, text) = (Arc::clone(state), text.to_owned());
    on_planning_thread(move || async move { parsed(&state, &text, Vec::new()) }).await
}

/// Plans a prepared statement with values in the place of its parameters.
pub(crate) async fn plan_prepared(
    state: &Arc<SessionState>,
    prepared: &Prepared,
    values: &[ScalarValue],
) -> Result<Planned> {
    let arguments = values.iter().map(parameters::argument).collect::<Result<Vec<_>>>()?;
    let (state, prepared) = (Arc::clone(state), prepared.clone());
    on_planning_thread(move || async move {
        let text = Arc::clone(prepared.text());
        let statement = prepared.with(&text, &arguments)?;
        planned(&state, statement).await
    })
    .await
}

/// A parser of our dialect, at the beginning of a text.
fn new_parser(state: &SessionState, text: &str) -> Result<Parser<'static>> {
    let limit = state.config_options().sql_parser.recursion_limit;
    Ok(syntax::parser(text)?.with_recursion_limit(limit.get()))
}

/// Optimizes a logical plan and chooses its operators.
pub(crate) async fn physical_plan(
    state: &Arc<SessionState>,
    plan: LogicalPlan,
) -> Result<Arc<dyn ExecutionPlan>> {
    let state = Arc::clone(state);
    on_planning_thread(move || async move {
        let plan = nandina_plan::optimize(&state, &plan)?;
        let narrow = wide_files::state_with_fewer_lanes(&state, &plan)?;
        let state = narrow.as_ref().unwrap_or(&state);
        let plan = state.query_planner().create_physical_plan(&plan, state).await?;
        nesting::check_plan(&plan)?;
        let limit = state.runtime_env().memory_pool.memory_limit();
        Ok(nandina_plan::fit_batches(plan, state.config().batch_size(), &limit)?)
    })
    .await
}

/// Runs `work` on a thread with a large stack. If the returned future is dropped, the thread ends before the next rule of
/// the optimizers, or where it waits for something, and its result is dropped.
async fn on_planning_thread<T, F>(work: impl FnOnce() -> F + Send + 'static) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>>,
{
    let runtime = Handle::try_current().map_err(|_| Error::Query {
        message: "statements run on a Tokio runtime; call this from within one".to_owned(),
    })?;
    let (mut sender, result) = oneshot::channel();
    let stop = SetOnDrop(Arc::default());
    let is_stopped = Arc::clone(&stop.0);
    let plan = move || {
        nandina_plan::stop_planning_when(is_stopped);
        let planned = panic::catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = sender.closed() => None,
                    planned = work() => Some(planned),
                }
            })
        }));
        // The receiver is gone if the statement was cancelled.
        let _ = match planned {
            Ok(None) => return,
            Ok(Some(planned)) => sender.send(planned),
            Err(panic) => sender.send(Err(Error::panicked(&*panic))),
        };
    };
    let thread = thread::Builder::new().name("planning".to_owned()).stack_size(STACK_BYTES).spawn(plan);
    thread.map_err(|error| Error::Resources {
        message: format!("no thread could be started to plan the statement ({error})"),
    })?;
    result.await.unwrap_or_else(|_| Err(Error::bug("the planning thread ended without a plan")))
}

/// The logical plan of a statement, if it is one that is supported. On the thread of the caller.
pub(crate) async fn logical_plan(state: &SessionState, mut statement: Statement) -> Result<LogicalPlan> {
    let mut further = Further::default();
    let mut first = None;
    loop {
        let planned = plan_of(state, statement.clone(), further).await;
        let error = match planned {
            Ok(plan) if !further.stars && has_numbered_columns(&plan) => {
                further.stars = true;
                continue;
            }
            Ok(plan) => return Ok(plan),
            Err(error) => error,
        };
        let is_unknown = matches!(error, Error::UnknownColumn { .. });
        if error.is_about_capitals() && !further.cases {
            further.cases = true;
        } else if are_names_twice(&error) && !further.stars {
            further.stars = true;
        } else if is_unknown && !further.laterals && lookups::may_be_lateral(&mut statement) {
            further.laterals = true;
        } else {
            // What the last try says is about a statement that has not been written.
            return Err(first.unwrap_or(error));
        }
        first.get_or_insert(error);
    }
}

/// Whether two columns of a table in `FROM` have one name, which columns that `*` stands for do not show.
fn are_names_twice(error: &Error) -> bool {
    const WORDS: [&str; 5] = [
        "require unique expression names",
        "duplicate unqualified field name",
        "duplicate qualified field name",
        "which would be ambiguous",
        "Ambiguous reference to unqualified field",
    ];
    let message = error.to_string();
    match error {
        Error::UnknownColumn { name, .. } => is_numbered(name, '_'),
        _ => WORDS.iter().any(|words| message.contains(words)),
    }
}

/// Whether DataFusion has told columns of one name apart by numbers of its own, as in `a:1`.
fn has_numbered_columns(plan: &LogicalPlan) -> bool {
    plan.schema().fields().iter().any(|field| is_numbered(field.name(), ':'))
}

fn is_numbered(name: &str, before: char) -> bool {
    let number = name.rsplit_once(before).map(|(_, number)| number);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
}

async fn plan_of(state: &SessionState, mut statement: Statement, further: Further) -> Result<LogicalPlan> {
    refuse(&statement)?;
    check_copy_format(state, &statement)?;
    creation::settle(&mut statement)?;
    macros::write_out(state, &mut statement)?;
    Box::pin(insertion::complete(state, &mut statement)).await?;
    sequence_names::complete(state, &mut statement)?;
    table_functions::name(&mut statement)?;
    file_alias::add(&mut statement);
    row_amounts::write(&mut statement)?;
    nested_names::tell_apart(&mut statement);
    lookups::write_out(state, &mut statement, further).await?;
    output_names::give(&mut statement);
    members_of_columns::write(&mut statement);
    row_memberships::write(&mut statement)?;
    forms::write(&mut statement)?;
    let expressions = wrong_plans::avoid(&mut statement)?;
    let with_windows = windows::write_out(state, &mut statement)?;
    let state = with_windows.as_ref().unwrap_or(state);
    let plan = checks::add(state, Box::pin(state.statement_to_plan(statement)).await?)?;
    Ok(nandina_plan::spool_volatile_expressions(plan, &expressions)?)
}

/// The one statement in `text`.
pub(crate) fn parse_one(state: &SessionState, text: &str) -> Result<Statement> {
    let limit = state.config_options().sql_parser.recursion_limit;
    nesting::check_text(text)?;
    let copy = match CopyText::of(text) {
        Some(copy) => copy.options()?.map(|options| (copy.head_to_parse(), options)),
        None => None,
    };
    let (text, copy_options) = match copy {
        Some((head, options)) => (Cow::Owned(head), Some(options)),
        None => (Cow::Borrowed(text), None),
    };
    let text = match insertion::with_names_as_list(&text).or_else(|| creation::with_columns_behind(&text)) {
        Some(text) => Cow::Owned(text),
        None => text,
    };
    let mut statements = syntax::statements(&text, limit.get())?;
    match (statements.pop_front(), statements.is_empty()) {
        (Some(mut statement), true) => {
            if let Some(options) = copy_options {
                copy_options::give(&mut statement, options)?;
            }
            nesting::settle(&mut statement)?;
            Ok(statement)
        }
        (None, _) => Err(Error::Syntax { message: "there is no statement".to_owned() }),
        (Some(_), false) => Err(Error::Syntax { message: "there is more than one statement".to_owned() }),
    }
}

fn is_show_tables(statement: &Statement) -> bool {
    matches!(statement, Statement::Statement(inner) if matches!(inner.as_ref(), SqlStatement::ShowTables { .. }))
}

/// Refuses statements that DataFusion would plan but that native tables cannot do.
///
/// They are refused by their syntax, before planning: DataFusion hands `DELETE … WHERE x IN (SELECT …)` to a
/// table as a deletion without any condition, which would delete everything.
fn refuse(statement: &Statement) -> Result<()> {
    let inner = match statement {
        Statement::Statement(inner) => inner.as_ref(),
        Statement::Explain(explain) => return refuse(&explain.statement),
        _ => return Ok(()),
    };
    match inner {
        SqlStatement::Delete(_)
        | SqlStatement::Update(_)
        | SqlStatement::Truncate(_)
        | SqlStatement::Merge(_) => Err(Error::bug("a statement that changes rows has a plan of its own")),
        _ => Ok(()),
    }
}

/// Refuses a statement that does not say in which format to write.
fn check_copy_format(state: &SessionState, statement: &Statement) -> Result<()> {
    let copy = match statement {
        Statement::Explain(explain) => return check_copy_format(state, &explain.statement),
        Statement::CopyTo(copy) => copy,
        _ => return Ok(()),
    };
    let is_known = |format: &str| state.get_file_format_factory(format).is_some();
    let target = &copy.target;
    let problem = match (&copy.stored_as, Path::new(target).extension().and_then(OsStr::to_str)) {
        (Some(format), _) if is_known(format) => return Ok(()),
        (None, Some(ending)) if is_known(ending) => return Ok(()),
        (Some(format), _) => format!("there is no format '{format}'"),
        (None, Some(ending)) => format!("'.{ending}' is the ending of no format"),
        (None, None) => "the name does not tell the format".to_owned(),
    };
    let message = format!(
        "COPY … TO '{target}': {problem}; end the name with .csv, .json or .parquet, or say STORED AS CSV, JSON or \
         PARQUET behind it"
    );
    Err(Error::Unsupported { message })
}

pub(crate) fn cannot_change(table: &str) -> Error {
    Error::unsupported(format!(
        "rows of '{table}' cannot be changed or deleted: that is for tables that are made by CREATE TABLE"
    ))
}
