//! Aggregations of which a sort above wants the first few groups only.
//!
//! DataFusion's rule finds the sort's column by name on the way down to the aggregation, and takes a column that is
//! computed in between for the key it is computed from, if both have one name: it has kept groups by the wrong order in
//! `SELECT length(name) AS name … GROUP BY name ORDER BY 1 LIMIT 2`. What it has marked is looked at again here, by
//! positions.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::config::ConfigOptions;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::topk_aggregation::TopKAggregation;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};

/// Tells aggregations how many groups are wanted, in the order of their key or of a `min` or `max`.
#[derive(Debug)]
pub struct LimitGroups;

impl PhysicalOptimizerRule for LimitGroups {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        unlimited(TopKAggregation::new().optimize(plan, config)?, None)
    }

    fn name(&self) -> &str {
        "limit_groups"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Removes limits from aggregations whose limited output column is not the sort key. `sorted_by` is the sort key's column
/// index in the node's output.
fn unlimited(plan: Arc<dyn ExecutionPlan>, sorted_by: Option<usize>) -> Result<Arc<dyn ExecutionPlan>> {
    let below = if let Some(sort) = plan.downcast_ref::<SortExec>() {
        first_column(sort)
    } else if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let source = sorted_by.and_then(|at| projection.expr().get(at));
        source.and_then(|source| source.expr.downcast_ref::<Column>()).map(Column::index)
    } else if plan.downcast_ref::<AggregateExec>().is_some() {
        // Partial and final aggregation have the same column indices.
        sorted_by
    } else {
        sorted_by.filter(|_| matches!(plan.children().as_slice(), [child] if child.schema() == plan.schema()))
    };
    let children = plan.children().into_iter().map(|child| unlimited(Arc::clone(child), below));
    let children = children.collect::<Result<Vec<_>>>()?;
    let has_changed = children.iter().zip(plan.children()).any(|(new, old)| !Arc::ptr_eq(new, old));
    let recomputed = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    let plan = if has_changed { plan.replace_children(children, recomputed)? } else { plan };
    Ok(match plan.downcast_ref::<AggregateExec>() {
        Some(aggregation) if is_limited_wrongly(aggregation, sorted_by) => {
            Arc::new(aggregation.with_new_limit_options(None))
        }
        _ => plan,
    })
}

/// The column that a sort of few rows sorts by, if it is one alone.
fn first_column(sort: &SortExec) -> Option<usize> {
    sort.fetch()?;
    match sort.expr().iter().as_slice() {
        [only] => only.expr.downcast_ref::<Column>().map(Column::index),
        _ => None,
    }
}

/// Whether an aggregation is to keep the first groups in the order of a column that is not the one sorted by, or of
/// floating-point numbers.
fn is_limited_wrongly(aggregation: &AggregateExec, sorted_by: Option<usize>) -> bool {
    let is_ordered = aggregation.limit_options().is_some_and(|limit| limit.descending().is_some());
    // One key, and behind it one value, or none.
    let has_one_set = aggregation.group_expr().is_single();
    let is_wanted = has_one_set && sorted_by == Some(aggregation.aggr_expr().len());
    // Keys that are NaN are lost.
    let is_of_floats = aggregation.schema().fields().iter().any(|column| column.data_type().is_floating());
    is_ordered && (!is_wanted || is_of_floats)
}
