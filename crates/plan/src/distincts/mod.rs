//! Aggregates over distinct values, without sets of values in the states of groups.
//!
//! ```text
//!   SELECT k, count(DISTINCT a), sum(DISTINCT b), count(c)     projection: names and types as they were
//!   FROM t GROUP BY k                                              │
//!                                                              aggregation by k: count(a) of rows of set (k, a),
//!                                                                  │             sum(b)   of rows of set (k, b),
//!                                                                  │             sum(n)   of rows of set (k, a)
//!                                                              projection: which set a row is of
//!                                                                  │
//!                                                              aggregation by GROUPING SETS ((k, a), (k, b)):
//!                                                                  │             count(c) AS n
//!                                                              projection: keys and arguments
//! ```
//!
//! The lower aggregation leaves every value of an argument once per group; the upper one looks at it in the rows of the
//! argument's own set only, which the grouping id tells. Functions of all rows are begun in the first set and completed
//! above. The states of both levels have a fixed size, and can be spilled.
//!
//! Spark does the same with its operator `Expand` in the place of grouping sets (`RewriteDistinctAggregates`).

mod functions;
mod grouping_sets;
mod named_columns;

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::logical_plan::{Aggregate, Projection};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, cast};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use functions::{Function, call};
use grouping_sets::GroupingSets;
use named_columns::NamedColumns;

/// Plans distinct aggregates as two levels of aggregation, over grouping sets if they have several arguments.
///
/// Functions of one argument's distinct values alone are left to DataFusion's own rule, which does the same for them.
/// An aggregation stays as it is if any of its functions cannot be computed in two levels, or depends on the order of
/// rows.
#[derive(Debug)]
pub struct DistinctsToGroupingSets;

impl OptimizerRule for DistinctsToGroupingSets {
    fn name(&self) -> &'static str {
        "distincts_to_grouping_sets"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let rewritten = match &plan {
            LogicalPlan::Aggregate(aggregate) => match functions_of(aggregate)? {
                Some(functions) => in_two_levels(aggregate, &functions)?,
                None => None,
            },
            _ => None,
        };
        Ok(rewritten.map_or_else(|| Transformed::no(plan), Transformed::yes))
    }
}

/// The functions of an aggregation that gains from two levels, and can be computed in them.
fn functions_of(aggregate: &Aggregate) -> Result<Option<Vec<Function>>> {
    let is_distinct =
        |expr: &Expr| functions::unaliased(expr).is_some_and(|function| function.params.distinct);
    if !aggregate.aggr_expr.iter().any(is_distinct) || !can_be_split(aggregate) {
        return Ok(None);
    }
    let schema = aggregate.input.schema();
    let functions = aggregate.aggr_expr.iter().map(|expr| Function::of(expr, schema));
    let Some(functions) = functions.collect::<Result<Option<Vec<Function>>>>()? else { return Ok(None) };
    let arguments: Vec<&Expr> = functions.iter().filter_map(Function::distinct_argument).collect();
    if arguments.is_empty() || is_left_to_datafusion(&functions) {
        return Ok(None);
    }
    for grouped in aggregate.group_expr.iter().chain(arguments) {
        if !can_be_grouped(&grouped.get_type(schema)?) {
            return Ok(None);
        }
    }
    Ok(Some(functions))
}

/// Whether keys and functions mean the same in two levels. Volatile expressions would not, and columns of outer queries
/// are still to be joined with.
fn can_be_split(aggregate: &Aggregate) -> bool {
    let mut expressions = aggregate.group_expr.iter().chain(&aggregate.aggr_expr);
    let cannot =
        |expr: &Expr| matches!(expr, Expr::GroupingSet(_)) || expr.is_volatile() || expr.contains_outer();
    !expressions.any(cannot) && aggregate.input.all_out_ref_exprs().is_empty()
}

/// Whether there are only functions of the distinct values of one argument.
fn is_left_to_datafusion(functions: &[Function]) -> bool {
    let mut arguments = functions.iter().map(|function| match function {
        Function::OfDistinct { argument, is_filtered: false, .. } => Some(argument),
        _ => None,
    });
    let first = arguments.next().flatten();
    first.is_some() && arguments.all(|argument| argument == first)
}

/// Whether values of this type can be keys, and null in the sets that they do not belong to.
fn can_be_grouped(data_type: &DataType) -> bool {
    RowConverter::supports_fields(&[SortField::new(data_type.clone())])
        && ScalarValue::try_from(data_type).is_ok()
}

/// The same aggregation in two levels; `None` if that does not give the same types.
fn in_two_levels(aggregate: &Aggregate, functions: &[Function]) -> Result<Option<LogicalPlan>> {
    let mut input = NamedColumns::new("__input");
    let mut outputs: Vec<Expr> = aggregate.group_expr.iter().map(|key| input.add(key.clone())).collect();
    let mut sets = GroupingSets::by_keys(&outputs);
    for argument in functions.iter().filter_map(Function::distinct_argument) {
        sets.add(&input.add(argument.clone()));
    }
    if !sets.can_be_told_apart() {
        return Ok(None);
    }

    let mut partials = NamedColumns::new("__partial");
    let mut in_set = NamedColumns::new("__in_set");
    let mut results = NamedColumns::new("__result");
    for function in functions {
        outputs.push(match function {
            Function::OfDistinct { function, argument, .. } => {
                let argument = input.add(argument.clone());
                let filter = sets.filter(&argument).map(|filter| in_set.add(filter));
                results.add(call(function, vec![argument], filter))
            }
            Function::OfAll(function) => function.completed(|part| {
                let begun = partials.add(part.begun_over(&mut input)?);
                let filter = sets.first_filter().map(|filter| in_set.add(filter));
                Ok(results.add(call(&part.completed_by, vec![begun], filter)))
            })?,
        });
    }

    let projection = Projection::try_new(input.into_expressions(), Arc::clone(&aggregate.input))?;
    let below = Arc::new(LogicalPlan::Projection(projection));
    let lower = Aggregate::try_new(below, sets.group_expressions(), partials.into_expressions())?;
    let mut columns: Vec<Expr> = lower.schema.columns().into_iter().map(Expr::Column).collect();
    columns.extend(in_set.into_expressions());
    let told_apart = Projection::try_new(columns, Arc::new(LogicalPlan::Aggregate(lower)))?;
    let told_apart = Arc::new(LogicalPlan::Projection(told_apart));
    let upper = Aggregate::try_new(told_apart, sets.into_keys(), results.into_expressions())?;
    restored(aggregate, upper, outputs)
}

/// `outputs` of `upper` with the names and types of `original`.
fn restored(original: &Aggregate, upper: Aggregate, outputs: Vec<Expr>) -> Result<Option<LogicalPlan>> {
    let mut columns = Vec::with_capacity(outputs.len());
    for (output, (qualifier, field)) in outputs.into_iter().zip(original.schema.iter()) {
        let data_type = output.get_type(&upper.schema)?;
        let output = if &data_type == field.data_type() {
            output
        } else if data_type.is_decimal() && (field.data_type().is_decimal() || field.data_type().is_integer())
        {
            // A sum of sums has a wider type than the sum has, and the same value.
            cast(output, field.data_type().clone())
        } else {
            return Ok(None);
        };
        columns.push(output.alias_qualified(qualifier.cloned(), field.name()));
    }
    let upper = Arc::new(LogicalPlan::Aggregate(upper));
    Ok(Some(LogicalPlan::Projection(Projection::try_new(columns, upper)?)))
}
