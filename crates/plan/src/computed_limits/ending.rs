//! Computed limits end with the last row that they want.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_expr::projection::update_expr;
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr, conjunction, split_conjunction};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use nandina_exec::window::RowsWhileExec;

use super::functions::ROWS_WHILE;

/// Puts a [`RowsWhileExec`] where a filter stands on the numbers of rows, if all rows are numbered together: in a sub-query
/// that has been joined, those of each outer row are numbered by themselves.
#[derive(Debug)]
pub struct EndComputedLimits;

impl PhysicalOptimizerRule for EndComputedLimits {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let Some(filter) = node.downcast_ref::<FilterExec>() else { return Ok(Transformed::no(node)) };
            Ok(match ending(filter)? {
                Some(ending) => Transformed::yes(ending),
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "end_computed_limits"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// What stands in the place of a filter, if rows can end below it.
fn ending(filter: &FilterExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let (mut ends, mut others) = (Vec::new(), Vec::new());
    for condition in split_conjunction(filter.predicate()) {
        match condition_of_end(condition) {
            Some(end) => ends.push(end),
            None => others.push(Arc::clone(condition)),
        }
    }
    if ends.is_empty() {
        return Ok(None);
    }
    let Some(rows) = rows_while(filter.input(), conjunction(ends))? else { return Ok(None) };
    if others.is_empty() && filter.projection().is_none() && filter.fetch().is_none() {
        return Ok(Some(rows));
    }
    let rest = FilterExecBuilder::from(filter).with_predicate(conjunction(others)).with_input(rows);
    Ok(Some(Arc::new(rest.build()?)))
}

/// The condition that holds for the first rows only, if this is one.
fn condition_of_end(condition: &Arc<dyn PhysicalExpr>) -> Option<Arc<dyn PhysicalExpr>> {
    let call = condition.downcast_ref::<ScalarFunctionExpr>()?;
    call.args().first().filter(|_| call.name() == ROWS_WHILE).cloned()
}

/// A plan that ends with the first row for which `condition` no longer holds, if a window at its top numbers all rows.
///
/// The end comes right above the window: between a window and a projection others may put exchanges, which give rows in any order.
fn rows_while(
    plan: &Arc<dyn ExecutionPlan>,
    condition: Arc<dyn PhysicalExpr>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let Some(condition) = update_expr(&condition, projection.expr(), true)? else { return Ok(None) };
        let Some(input) = rows_while(projection.input(), condition)? else { return Ok(None) };
        return Ok(Some(replace_children_if_necessary(Arc::clone(plan), vec![input])?));
    }
    let numbers_all_rows = window_functions(plan)
        .is_some_and(|functions| functions.iter().all(|function| function.partition_by().is_empty()));
    Ok(numbers_all_rows.then(|| Arc::new(RowsWhileExec::new(Arc::clone(plan), condition)) as _))
}

fn window_functions(plan: &Arc<dyn ExecutionPlan>) -> Option<&[Arc<dyn WindowExpr>]> {
    let bounded = plan.downcast_ref::<BoundedWindowAggExec>().map(BoundedWindowAggExec::window_expr);
    bounded.or_else(|| plan.downcast_ref::<WindowAggExec>().map(WindowAggExec::window_expr))
}
