//! Gives the columns of all branches of a union the names that the union has.
//!
//! DataFusion's `propagate_empty_relation` removes branches without rows. What it leaves behind looks for columns by the
//! union's names, which are those of the first branch, and finds none if another one is left.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Union};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Puts projections on branches of unions whose columns have other names.
#[derive(Debug)]
pub struct NameBranches;

impl OptimizerRule for NameBranches {
    fn name(&self) -> &str {
        "name_branches"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Union(Union { inputs, schema }) = plan else { return Ok(Transformed::no(plan)) };
        let names: Vec<&String> = names(&schema).collect();
        let branches = inputs.into_iter().map(|branch| named(branch, &names));
        let branches = branches.collect::<Result<Vec<_>>>()?;
        let has_changed = branches.iter().any(|branch| branch.transformed);
        let inputs = branches.into_iter().map(|branch| branch.data).collect();
        Ok(Transformed::new_transformed(LogicalPlan::Union(Union { inputs, schema }), has_changed))
    }
}

fn names(schema: &DFSchema) -> impl Iterator<Item = &String> {
    schema.fields().iter().map(|field| field.name())
}

/// The branch with columns of these names.
fn named(branch: Arc<LogicalPlan>, wanted: &[&String]) -> Result<Transformed<Arc<LogicalPlan>>> {
    if names(branch.schema()).eq(wanted.iter().copied()) {
        return Ok(Transformed::no(branch));
    }
    let columns = branch.schema().iter().zip(wanted).map(|((qualifier, field), name)| {
        let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
        if field.name() == *name { column } else { column.alias(*name) }
    });
    let named = Projection::try_new(columns.collect(), Arc::clone(&branch))?;
    Ok(Transformed::yes(Arc::new(LogicalPlan::Projection(named))))
}
