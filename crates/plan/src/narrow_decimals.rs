//! Computes with decimals in 64 bits where their values fit.

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::projection::ProjectionExec;
use nandina_exec::projection::NarrowDecimal;

use crate::typed_operators::decimals;

/// Puts [`NarrowDecimal`]s where projections and aggregations compute with decimals.
#[derive(Debug)]
pub struct NarrowDecimals;

impl PhysicalOptimizerRule for NarrowDecimals {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let changed = if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
                narrow_projection(projection)?
            } else if let Some(aggregation) = node.downcast_ref::<AggregateExec>() {
                narrow_aggregation(aggregation)?
            } else {
                None
            };
            Ok(changed.map_or_else(|| Transformed::no(node), Transformed::yes))
        })
        .data()
    }

    fn name(&self) -> &str {
        "narrow_decimals"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn narrow_projection(projection: &ProjectionExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let schema = projection.input().schema();
    let mut any = false;
    let mut columns = Vec::with_capacity(projection.expr().len());
    for column in projection.expr() {
        let narrowed = narrowed(&column.expr, &schema)?;
        any |= narrowed.transformed;
        columns.push(ProjectionExpr { expr: narrowed.data, alias: column.alias.clone() });
    }
    if !any {
        return Ok(None);
    }
    Ok(Some(Arc::new(ProjectionExec::try_new(columns, Arc::clone(projection.input()))?)))
}

fn narrow_aggregation(aggregation: &AggregateExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let schema = aggregation.input_schema();
    let mut any = false;
    let mut functions: Vec<Arc<AggregateFunctionExpr>> = Vec::new();
    for function in aggregation.aggr_expr() {
        let expressions = function.all_expressions();
        let mut arguments = Vec::with_capacity(expressions.args.len());
        let mut changed = false;
        for argument in &expressions.args {
            let narrowed = narrowed(argument, &schema)?;
            changed |= narrowed.transformed;
            arguments.push(narrowed.data);
        }
        let changed = changed.then(|| function.with_new_expressions(arguments, expressions.order_by_exprs));
        any |= changed.is_some();
        functions.push(changed.flatten().map_or_else(|| Arc::clone(function), Arc::new));
    }
    Ok(any.then(|| Arc::new(aggregation.with_new_aggr_exprs(functions)) as Arc<dyn ExecutionPlan>))
}

fn narrowed(
    expression: &Arc<dyn PhysicalExpr>,
    schema: &Schema,
) -> Result<Transformed<Arc<dyn PhysicalExpr>>> {
    Arc::clone(expression).transform_up(|expression| {
        if let Some(narrow) = NarrowDecimal::of(&expression, schema)? {
            return Ok(Transformed::yes(Arc::new(narrow) as Arc<dyn PhysicalExpr>));
        }
        Ok(match checked_by_itself(&expression) {
            Some(narrow) => Transformed::yes(narrow),
            None => Transformed::no(expression),
        })
    })
}

/// What a function looks at that checks digits, if that has checked them.
fn checked_by_itself(expression: &Arc<dyn PhysicalExpr>) -> Option<Arc<dyn PhysicalExpr>> {
    let function = expression.downcast_ref::<ScalarFunctionExpr>()?;
    let [checked] = function.args() else { return None };
    let checks_itself = function.fun().name() == decimals::CHECKED && checked.is::<NarrowDecimal>();
    checks_itself.then(|| Arc::clone(checked))
}
