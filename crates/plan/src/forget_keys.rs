//! Functional dependencies that DataFusion derives, some of them wrongly.
//!
//! DataFusion carries functional dependencies upwards: behind `SELECT DISTINCT x`, `x` determines the row. Joined with
//! another table it determines only what comes from its side. An aggregation by `x` and a column of the other table
//! forgets that: its output is taken to be determined by `x`, so that `ORDER BY x, y` above loses `y`, `SELECT DISTINCT x`
//! its `DISTINCT`, and `GROUP BY x` gains keys. Which dependencies of a schema are right cannot be told afterwards. So
//! no rule gets to see them: relations have none while SQL is planned, and neither have the inputs of the nodes that
//! such rules look at.

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchemaRef, FunctionalDependencies, Result};
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::sql::sqlparser::ast::TableFactor;

/// A rule that uses functional dependencies, and sees none.
#[derive(Debug)]
pub struct ForgetKeys(pub Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for ForgetKeys {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let plan = match self.0.apply_order() {
            // It looks at a node and its inputs.
            Some(_) => plan.map_children(|input| Ok(Transformed::no(without_keys(input)?)))?.data,
            None => plan.transform_down_with_subqueries(|node| forget(node).map(Transformed::no))?.data,
        };
        self.0.rewrite(plan, config)
    }
}

/// A plan whose schema has no dependencies.
fn without_keys(plan: LogicalPlan) -> Result<LogicalPlan> {
    // Where a schema is that of the input, all further ones.
    let forgotten = plan.transform_down(|node| {
        let inherits = matches!(
            node,
            LogicalPlan::Filter(_)
                | LogicalPlan::Sort(_)
                | LogicalPlan::Limit(_)
                | LogicalPlan::Distinct(_)
                | LogicalPlan::Repartition(_)
                | LogicalPlan::Subquery(_)
        );
        let recursion = if inherits { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Jump };
        Ok(Transformed::new(forget(node)?, false, recursion))
    })?;
    Ok(forgotten.data)
}

/// A node whose own schema has no dependencies.
fn forget(mut node: LogicalPlan) -> Result<LogicalPlan> {
    let schema = match &mut node {
        LogicalPlan::Projection(projection) => &mut projection.schema,
        LogicalPlan::Window(window) => &mut window.schema,
        LogicalPlan::Aggregate(aggregate) => &mut aggregate.schema,
        LogicalPlan::Join(join) => &mut join.schema,
        LogicalPlan::SubqueryAlias(alias) => &mut alias.schema,
        LogicalPlan::Union(union) => &mut union.schema,
        LogicalPlan::Unnest(unnest) => &mut unnest.schema,
        LogicalPlan::TableScan(scan) => &mut scan.projected_schema,
        _ => return Ok(node),
    };
    if !schema.functional_dependencies().is_empty() {
        let known = DFSchemaRef::unwrap_or_clone(Arc::clone(schema));
        *schema = Arc::new(known.with_functional_dependencies(FunctionalDependencies::empty())?);
    }
    Ok(node)
}

/// Plans the relations in `FROM` as DataFusion does, without dependencies.
#[derive(Debug)]
pub struct KeylessRelations;

thread_local! {
    /// Whether the relation that is planned next is left to DataFusion.
    static IS_LEFT: Cell<bool> = const { Cell::new(false) };
}

impl RelationPlanner for KeylessRelations {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let has_keys = matches!(
            relation,
            TableFactor::Derived { .. } | TableFactor::Table { .. } | TableFactor::NestedJoin { .. }
        );
        if IS_LEFT.take() || !has_keys {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        IS_LEFT.set(true);
        // It comes back here first, to be left to DataFusion.
        let planned = context.plan(relation);
        IS_LEFT.set(false);
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(without_keys(planned?)?, None))))
    }
}
