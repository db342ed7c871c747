//! What rules ask of the nodes of a logical plan, to spare those that they have nothing to do with.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::common::{DFSchema, DFSchemaRef, Result};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{DmlStatement, Expr, JoinType, LogicalPlan, WriteOp};
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};

/// The columns that the expressions of `node` may name.
pub(crate) fn input_schema(node: &LogicalPlan) -> Result<DFSchemaRef> {
    match (node, node.inputs().as_slice()) {
        (LogicalPlan::Dml(DmlStatement { op: WriteOp::MergeInto(_), table_name, target, .. }), inputs) => {
            let mut schema = merge_schema(inputs);
            schema.merge(&DFSchema::try_from_qualified_schema(table_name.clone(), &target.schema())?);
            Ok(Arc::new(schema))
        }
        (LogicalPlan::TableScan(scan), _) if scan.filters.is_empty() => {
            Ok(Arc::clone(&scan.projected_schema))
        }
        (LogicalPlan::TableScan(scan), _) => {
            let all = DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?;
            Ok(Arc::new(all))
        }
        (LogicalPlan::Join(join), _) if join.join_type == JoinType::Inner => Ok(Arc::clone(&join.schema)),
        (_, [input]) => Ok(Arc::clone(input.schema())),
        (_, inputs) => Ok(Arc::new(merge_schema(inputs))),
    }
}

/// Whether the expressions of `node` are columns and literals, with or without another name.
pub(crate) fn has_only_columns(node: &LogicalPlan) -> Result<bool> {
    let mut has_only = true;
    node.apply_expressions(|expression| {
        let mut part = expression;
        while let Expr::Alias(alias) = part {
            part = &alias.expr;
        }
        has_only = matches!(part, Expr::Column(_) | Expr::Literal(..));
        Ok(if has_only { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(has_only)
}

/// Whether the expressions of `node` itself have sub-queries.
pub(crate) fn has_sub_queries(node: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    node.apply_expressions(|expression| {
        found = expression.exists(|part| {
            let is_sub_query = matches!(
                part,
                Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) | Expr::SetComparison(_)
            );
            Ok(is_sub_query)
        })?;
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// A rule about sub-queries and lateral joins, which plans without any are spared.
#[derive(Debug)]
pub(crate) struct OfSubQueries<R: ?Sized>(pub(crate) Arc<R>);

fn is_about(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| Ok(matches!(node, LogicalPlan::Subquery(_)) || has_sub_queries(node)?))
}

impl AnalyzerRule for OfSubQueries<dyn AnalyzerRule + Send + Sync> {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        if is_about(&plan)? { self.0.analyze(plan, config) } else { Ok(plan) }
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}

impl OptimizerRule for OfSubQueries<dyn OptimizerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if is_about(&plan)? { self.0.rewrite(plan, config) } else { Ok(Transformed::no(plan)) }
    }
}
