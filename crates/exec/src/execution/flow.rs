//! Which requests to a device are one query's: they share it fairly with other queries'.

use datafusion::execution::TaskContext;
use nandina_device::FlowId;

/// The flow of a query, as an extension of the configuration that it runs with.
#[derive(Debug)]
pub struct QueryFlow(pub FlowId);

impl QueryFlow {
    /// Of a query that starts.
    pub fn unique() -> Self {
        Self(FlowId::unique())
    }
}

/// The flow of the query that a task belongs to: one of its own if the query has none.
pub fn query_flow(context: &TaskContext) -> FlowId {
    let known = context.session_config().get_extension::<QueryFlow>();
    known.map_or_else(FlowId::unique, |known| known.0)
}
