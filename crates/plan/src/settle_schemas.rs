//! Mends what rules leave behind that change a node but not the schemas above it.
//!
//! | rule | leaves | then |
//! |---|---|---|
//! | `push_down_leaf_projections` | joins that do not know of the columns which it has added below them, in front of others | columns are found at other columns' places: one is missing, or is another one |
//! | `propagate_empty_relation` | a union whose first input has other names than the union | an operator looks for columns by the union's names |

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Union};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Lets schemas say again what comes from below.
#[derive(Debug)]
pub struct SettleSchemas;

/// What the names of columns begin with that `extract_leaf_expressions` makes.
const EXTRACTED: &str = "__datafusion_extracted";

impl OptimizerRule for SettleSchemas {
    fn name(&self) -> &str {
        "settle_schemas"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Union(union) => named_as_its_first(union),
            LogicalPlan::Join(_) | LogicalPlan::SubqueryAlias(_) if has_extracted(&plan) => {
                let before = Arc::clone(plan.schema());
                let settled = plan.recompute_schema()?;
                let has_changed = before.as_ref() != settled.schema().as_ref();
                Ok(Transformed::new_transformed(settled, has_changed))
            }
            other => Ok(Transformed::no(other)),
        }
    }
}

fn has_extracted(plan: &LogicalPlan) -> bool {
    let is_extracted = |input: &&LogicalPlan| {
        input.schema().fields().iter().any(|field| field.name().starts_with(EXTRACTED))
    };
    plan.inputs().iter().any(is_extracted)
}

/// Gives the columns of a union's first input the names that those of the union have.
fn named_as_its_first(mut union: Union) -> Result<Transformed<LogicalPlan>> {
    let Some(first) = union.inputs.first_mut() else { return Ok(Transformed::no(LogicalPlan::Union(union))) };
    let names = || union.schema.fields().iter().map(|field| field.name());
    if first.schema().fields().iter().map(|field| field.name()).eq(names()) {
        return Ok(Transformed::no(LogicalPlan::Union(union)));
    }
    let columns = first.schema().iter().zip(names()).map(|((qualifier, field), name)| {
        let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
        if field.name() == name { column } else { column.alias(name) }
    });
    *first = Arc::new(LogicalPlan::Projection(Projection::try_new(columns.collect(), Arc::clone(first))?));
    Ok(Transformed::yes(LogicalPlan::Union(union)))
}
