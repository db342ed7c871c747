//! Peers: rows of a partition that are equal in its order.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::partition;
use datafusion::common::utils::get_row_at_idx;
use datafusion::common::{Result, ScalarValue};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;

/// Tells where one group of peers ends and the next one begins, in rows that come batch by batch. Rows are peers if
/// their keys are equal, nulls to nulls, rather than if neither precedes the other: not all types have an order.
#[derive(Clone, Debug)]
pub struct Peers {
    order_by: Vec<Arc<dyn PhysicalExpr>>,
    /// The key of the last row that came.
    open: Option<Vec<ScalarValue>>,
}

impl Peers {
    /// Peers in the order of a function. Without one all rows are.
    pub fn of(function: &dyn WindowExpr) -> Self {
        Self {
            order_by: function.order_by().iter().map(|order| Arc::clone(&order.expr)).collect(),
            open: None,
        }
    }

    /// Where, in the next rows, groups have ended: how many of these rows belong to the group or come before it, none if
    /// it was complete without them. The last group is open.
    pub fn ends(&mut self, rows: &RecordBatch) -> Result<Vec<usize>> {
        let keys = evaluate_expressions_to_arrays(&self.order_by, rows)?;
        let Some(last) = rows.num_rows().checked_sub(1).filter(|_| !keys.is_empty()) else {
            return Ok(Vec::new());
        };
        let first = get_row_at_idx(&keys, 0)?;
        let ended_before = self.open.as_ref().is_some_and(|open| *open != first);
        self.open = Some(get_row_at_idx(&keys, last)?);
        let begins = partition(&keys)?.ranges().into_iter().map(|range| range.start);
        Ok(begins.skip(usize::from(!ended_before)).collect())
    }
}
