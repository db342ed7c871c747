//! Nandina in several configurations, over the same tables.
//!
//! | name | plan | memory | workers |
//! |---|---|---|---|
//! | `nandina` | as for a user | plenty | 2 |
//! | `tiny` | the same | 1 MiB, a few rows per batch | 4 |
//! | `naive` | only the rules without which a plan cannot run: no filter moves, no join is reordered, and most are nested loops | plenty | 1 |
//! | `datafusion` | DataFusion's rules and operators: tells whose mistake it is | plenty | 2 |

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use arrow::array::RecordBatch;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{Optimizer, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use futures::future::{Either, select};
use nandina::{Database, Options, Session};
use tokio::task::JoinError;

use super::cells::{Row, rows_of_batches};
use super::schema::Table;
use super::types::Dialect;
use crate::error::{BenchError, Result};

/// What an engine says to a query.
#[derive(Debug, Clone)]
pub enum Answer {
    Rows(Vec<Row>),
    Error(String),
    Panic(String),
    /// It did not end in time.
    Hang,
}

/// Longer than any of these queries takes.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Logical rules without which some plans cannot run.
const NEEDED_RULES: [&str; 7] = [
    "rewrite_set_comparison",
    "simplify_expressions",
    "replace_distinct_aggregate",
    "decorrelate_predicate_subquery",
    "scalar_subquery_to_join",
    "decorrelate_lateral_join",
    "extract_equijoin_predicate",
];
const NEEDED_PHYSICAL_RULES: [&str; 6] = [
    "OutputRequirements",
    "fences_up",
    "EnsureRequirements",
    "fences_down",
    "EnsureCooperative",
    "SanityCheckPlan",
];

/// Where the rows of tables lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Storage {
    /// Native tables.
    Native,
    /// Parquet files.
    Parquet,
}

/// One of the configurations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Configuration {
    Nandina,
    Tiny,
    Naive,
    DataFusion,
}

/// A database and a session of each configuration.
pub struct Engines {
    folder: PathBuf,
    loads: usize,
    sessions: Vec<(Configuration, Arc<Session>)>,
    tables: Vec<String>,
}

impl Configuration {
    const ALL: [Configuration; 4] =
        [Configuration::Nandina, Configuration::Tiny, Configuration::Naive, Configuration::DataFusion];

    pub fn name(self) -> &'static str {
        match self {
            Configuration::Nandina => "nandina",
            Configuration::Tiny => "tiny",
            Configuration::Naive => "naive",
            Configuration::DataFusion => "datafusion",
        }
    }

    fn settings(self) -> &'static str {
        match self {
            Configuration::Nandina | Configuration::DataFusion => "SET threads = 2",
            Configuration::Tiny => "SET memory_limit = '1MiB'; SET threads = 4; SET batch_size = 5",
            Configuration::Naive => "SET threads = 1",
        }
    }
}

impl Engines {
    /// A new database in a folder. `statements` are run in every session first.
    pub async fn open(folder: &Path, statements: &[String]) -> Result<Self> {
        let options = Options { memory_limit: Some(1 << 30), auto_calibrate: false, ..Options::default() };
        let database = Database::open(folder.join("database"), options).map_err(said)?;
        let mut sessions = Vec::new();
        for configuration in Configuration::ALL {
            let session = database.session().map_err(said)?;
            session.run(configuration.settings()).await.map_err(said)?;
            for statement in statements {
                session.run(statement).await.map_err(said)?;
            }
            plan_as(&session, configuration);
            sessions.push((configuration, Arc::new(session)));
        }
        Ok(Self { folder: folder.to_owned(), loads: 0, sessions, tables: Vec::new() })
    }

    /// Replaces all tables.
    pub async fn load(&mut self, tables: &[Table], storage: Storage) -> Result<()> {
        let Some((_, first)) = self.sessions.first() else { return Ok(()) };
        for name in std::mem::take(&mut self.tables) {
            for (_, session) in &self.sessions {
                session.run(&format!("DROP VIEW IF EXISTS {name}")).await.ok();
            }
            first.run(&format!("DROP TABLE IF EXISTS {name}")).await.map_err(said)?;
        }
        self.loads += 1;
        for table in tables {
            let name = &table.name;
            let create = table.create(Dialect::Nandina);
            first.run(&create).await.map_err(|error| BenchError::Setup(format!("{error}: {create}")))?;
            self.tables.push(name.clone());
            if storage == Storage::Parquet {
                // Another name each time: nothing that is known of an earlier file is right.
                let path = self.folder.join(format!("{name}-{}.parquet", self.loads));
                let path = path.display();
                let copy = format!("COPY {name} TO '{path}'; DROP TABLE {name}");
                first.run(&copy).await.map_err(said)?;
                let view = format!("CREATE VIEW {name} AS SELECT * FROM '{path}'");
                first.run(&view).await.map_err(said)?;
                for (_, session) in self.sessions.iter().skip(1) {
                    // A view belongs to the database or to its session.
                    session.run(&view).await.ok();
                }
            }
        }
        Ok(())
    }

    /// Runs a query. Whatever happens is an answer.
    pub async fn answer(&self, configuration: Configuration, sql: &str) -> Answer {
        let Some((_, session)) = self.sessions.iter().find(|(other, _)| *other == configuration) else {
            return Answer::Error("no such engine".to_owned());
        };
        ask(session, sql, TIMEOUT).await
    }
}

/// Runs a query. Whatever happens is an answer.
pub async fn ask(session: &Arc<Session>, sql: &str, timeout: Duration) -> Answer {
    let (session, sql) = (Arc::clone(session), sql.to_owned());
    let mut task = tokio::spawn(async move { session.sql(&sql).await?.collect().await });
    let (told, time_is_up) = futures::channel::oneshot::channel::<()>();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    // A thread of its own: a query that does not give way keeps the runtime from looking at its timers.
    std::thread::spawn(move || {
        if is_done.recv_timeout(timeout) == Err(RecvTimeoutError::Timeout) {
            told.send(()).ok();
        }
    });
    let answer = match select(&mut task, time_is_up).await {
        Either::Left((ended, _)) => answer_of(ended),
        Either::Right(_) => {
            task.abort();
            Answer::Hang
        }
    };
    drop(done);
    answer
}

fn answer_of(ended: std::result::Result<nandina::Result<Vec<RecordBatch>>, JoinError>) -> Answer {
    match ended {
        Err(panic) => Answer::Panic(panic.to_string()),
        Ok(Err(error)) => {
            let message = error.to_string();
            if message.contains("panicked") { Answer::Panic(message) } else { Answer::Error(message) }
        }
        Ok(Ok(batches)) => match rows_of_batches(&batches) {
            Ok(rows) => Answer::Rows(rows),
            Err(error) => Answer::Error(error.to_string()),
        },
    }
}

impl Answer {
    /// In a few lines.
    pub fn shown(&self) -> String {
        match self {
            Answer::Error(message) => format!("error: {message}"),
            Answer::Panic(message) => format!("panic: {message}"),
            Answer::Hang => "no answer in time".to_owned(),
            Answer::Rows(rows) => {
                let mut text = format!("{} rows", rows.len());
                for row in rows.iter().take(12) {
                    text += &format!("\n  {}", super::cells::shown(row));
                }
                if rows.len() > 12 {
                    text += "\n  …";
                }
                text
            }
        }
    }
}

/// Replaces the rules of a session by those of a configuration.
fn plan_as(session: &Session, configuration: Configuration) {
    let mut logical: Vec<Arc<dyn OptimizerRule + Send + Sync>> = Optimizer::new().rules;
    let mut physical: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> = PhysicalOptimizer::new().rules;
    match configuration {
        Configuration::Nandina | Configuration::Tiny => return,
        Configuration::DataFusion => {}
        Configuration::Naive => {
            // Ours, which are right where DataFusion's are not.
            logical = nandina_plan::optimizer_rules();
            logical.retain(|rule| NEEDED_RULES.contains(&rule.name()));
            physical = nandina_plan::physical_optimizer_rules();
            physical.retain(|rule| NEEDED_PHYSICAL_RULES.contains(&rule.name()));
        }
    }
    let reference = session.context().state_ref();
    let mut state = reference.write();
    *state = SessionStateBuilder::from(state.clone())
        .with_optimizer_rules(logical)
        .with_physical_optimizer_rules(physical)
        .with_query_planner(Arc::new(PlainPlanner))
        .build();
}

/// DataFusion's planner.
#[derive(Debug)]
struct PlainPlanner;

#[async_trait::async_trait]
impl QueryPlanner for PlainPlanner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn datafusion::catalog::Session,
    ) -> datafusion::common::Result<Arc<dyn ExecutionPlan>> {
        DefaultPhysicalPlanner::default().create_physical_plan(plan, session).await
    }
}

fn said(error: nandina::Error) -> BenchError {
    BenchError::Setup(error.to_string())
}
