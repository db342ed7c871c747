//! Filters that must not move below an aggregation.
//!
//! A condition without columns (`HAVING random() > 0.5`, `HAVING (SELECT …)`) decides about rows that an aggregation gives
//! out, one of which there may be where none goes in: without groups, and for the empty one of grouping sets. DataFusion's
//! rule moves a condition below if all of its columns are keys, as all of none are.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Filter, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// A rule that moves filters, but for those.
#[derive(Debug)]
pub struct KeepFiltersOfRows(pub Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for KeepFiltersOfRows {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let Some(aggregation) = below_filters(&plan) else { return self.0.rewrite(plan, config) };
        let conditions = conditions(&plan);
        let (of_rows, of_columns): (Vec<Expr>, Vec<Expr>) =
            conditions.into_iter().partition(|condition| condition.column_refs().is_empty());
        if of_rows.is_empty() {
            return self.0.rewrite(plan, config);
        }
        let Some(of_columns) = conjunction(of_columns) else { return Ok(Transformed::no(plan)) };
        let movable = LogicalPlan::Filter(Filter::try_new(of_columns, aggregation)?);
        let moved = self.0.rewrite(movable, config)?;
        let Some(of_rows) = conjunction(of_rows) else { return Ok(moved) };
        moved.map_data(|below| Ok(LogicalPlan::Filter(Filter::try_new(of_rows, Arc::new(below))?)))
    }
}

/// The aggregation that a plan filters the rows of.
fn below_filters(plan: &LogicalPlan) -> Option<Arc<LogicalPlan>> {
    let LogicalPlan::Filter(filter) = plan else { return None };
    match filter.input.as_ref() {
        LogicalPlan::Aggregate(_) => Some(Arc::clone(&filter.input)),
        LogicalPlan::Filter(_) => below_filters(&filter.input),
        _ => None,
    }
}

/// The conditions of all filters above one another.
fn conditions(plan: &LogicalPlan) -> Vec<Expr> {
    let LogicalPlan::Filter(filter) = plan else { return Vec::new() };
    let mut found = split_conjunction_owned(filter.predicate.clone());
    found.extend(conditions(&filter.input));
    found
}
