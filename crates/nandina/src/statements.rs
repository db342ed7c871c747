//! The statements that DataFusion does not have, or that end otherwise here.

pub(crate) mod catalog;
pub(crate) mod copy_from;
pub(crate) mod copy_to;
pub(crate) mod device;
pub(crate) mod explain;
pub(crate) mod report;

use std::sync::Arc;

use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};

use crate::error::Result;
use crate::files::sources;
use crate::planning;
use crate::query::{Answer, Query};

/// Starts a plan.
pub(crate) async fn start_plan(
    state: &Arc<SessionState>,
    plan: LogicalPlan,
    answer: Answer,
) -> Result<Query> {
    let physical = planning::physical_plan(state, plan).await?;
    sources::know_before(state, &physical).await;
    start(state, physical, answer)
}

/// Starts a physical plan.
pub(crate) fn start(state: &SessionState, plan: Arc<dyn ExecutionPlan>, answer: Answer) -> Result<Query> {
    let stream = execute_stream(Arc::clone(&plan), state.task_ctx())?;
    Ok(Query::running(answer, plan, stream))
}
