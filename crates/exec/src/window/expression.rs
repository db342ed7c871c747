//! What kind of function a window expression of DataFusion's is.

use std::sync::Arc;

use datafusion::common::{DataFusionError, Result};
use datafusion::functions_window::lead_lag::{lag_udwf, lead_udwf};
use datafusion::functions_window::nth_value::{first_value_udwf, last_value_udwf};
use datafusion::logical_expr::{WindowFrameBound, WindowFrameUnits, WindowUDF};
use datafusion::physical_expr::window::{StandardWindowExpr, WindowExpr};
use datafusion::physical_plan::windows::WindowUDFExpr;

/// An edge of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    First,
    Last,
}

/// Fails for functions that DataFusion plans, but cannot compute.
pub fn refuse_without_argument(expression: &dyn WindowExpr) -> Result<()> {
    match edge_of(expression) {
        Some(_) if expression.expressions().is_empty() => {
            Err(DataFusionError::Plan(format!("{} needs an argument: whose value?", expression.name())))
        }
        _ => Ok(()),
    }
}

/// Which value of its frame a function is, if it is the first or the last one.
pub fn edge_of(expression: &dyn WindowExpr) -> Option<Edge> {
    match standard_function(expression)? {
        function if *function == first_value_udwf() => Some(Edge::First),
        function if *function == last_value_udwf() => Some(Edge::Last),
        _ => None,
    }
}

/// Whether the frame of a window matters to a function.
pub fn uses_frame(expression: &dyn WindowExpr) -> Result<bool> {
    match expression.as_any().downcast_ref::<StandardWindowExpr>() {
        Some(standard) => Ok(standard.get_standard_func_expr().create_evaluator()?.uses_window_frame()),
        None => Ok(true),
    }
}

/// Whether a function is `lead … IGNORE NULLS`. While rows are still to come, DataFusion's has looked as far as there are
/// rows, and stops at the first null behind them; of a whole partition it is right.
pub fn looks_ahead_for_values(expression: &dyn WindowExpr) -> Result<bool> {
    let Some(standard) = expression.as_any().downcast_ref::<StandardWindowExpr>() else { return Ok(false) };
    let shifts = standard_function(expression).is_some_and(|of| *of == lead_udwf() || *of == lag_udwf());
    // As with filters, expressions show it in no other way.
    if !shifts || !format!("{standard:?}").contains("ignore_nulls: true") {
        return Ok(false);
    }
    // Either may have a negative distance, and then does what the other one does.
    Ok(!standard.get_standard_func_expr().create_evaluator()?.is_causal())
}

/// The window function behind an expression that is no aggregate.
pub fn standard_function(expression: &dyn WindowExpr) -> Option<&Arc<WindowUDF>> {
    let standard = expression.as_any().downcast_ref::<StandardWindowExpr>()?;
    let function = standard.get_standard_func_expr().as_any().downcast_ref::<WindowUDFExpr>()?;
    Some(function.fun())
}

/// Whether the frame of every row is all of its partition.
pub fn is_same_for_all_rows(expression: &dyn WindowExpr) -> bool {
    let frame = expression.get_window_frame();
    let is_end = |bound: &WindowFrameBound| match bound {
        // Without an order all rows are peers of the current one.
        WindowFrameBound::CurrentRow => {
            frame.units == WindowFrameUnits::Range && expression.order_by().is_empty()
        }
        bound => bound.is_unbounded(),
    };
    is_end(&frame.start_bound) && is_end(&frame.end_bound)
}

/// Whether a function may have a `FILTER`. Expressions show it through [`Debug`](std::fmt::Debug) alone.
pub fn may_filter(expression: &dyn WindowExpr) -> bool {
    format!("{expression:?}").contains("filter: Some(")
}
