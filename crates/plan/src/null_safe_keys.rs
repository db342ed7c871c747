//! Keys that are compared with `IS NOT DISTINCT FROM`.
//!
//! DataFusion's rule that makes keys of conditions (`extract_equijoin_predicate`) puts equalities among keys that nulls match
//! on. Before it, those are conditions again, of which it makes keys only where there is no equality.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{JoinConstraint, NullEquality, Result};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{BinaryExpr, Expr, Join, LogicalPlan, Operator};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// A rule that makes keys of the equalities in a join's condition, but not beside keys that nulls match on.
#[derive(Debug)]
pub struct KeepNullSafeKeys(pub Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for KeepNullSafeKeys {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(mut join) = plan else { return self.0.rewrite(plan, config) };
        // Keys may be expressions behind the rule, which those of `USING` must not be.
        join.join_constraint = JoinConstraint::On;
        if !matches_nulls(&join) || !has_equality(&join) {
            return self.0.rewrite(LogicalPlan::Join(join), config);
        }
        let mut rewritten = self.0.rewrite(LogicalPlan::Join(with_conditions(join)?), config)?;
        rewritten.transformed = true;
        Ok(rewritten)
    }
}

fn has_equality(join: &Join) -> bool {
    let is_equality =
        |condition: &&Expr| matches!(condition, Expr::BinaryExpr(BinaryExpr { op: Operator::Eq, .. }));
    join.filter.iter().flat_map(split_conjunction).any(|condition| is_equality(&condition))
}

fn matches_nulls(join: &Join) -> bool {
    join.null_equality == NullEquality::NullEqualsNull && !join.on.is_empty()
}

fn with_conditions(join: Join) -> Result<Join> {
    let keys = join.on.into_iter().map(|(left, right)| {
        Expr::BinaryExpr(BinaryExpr::new(Box::new(left), Operator::IsNotDistinctFrom, Box::new(right)))
    });
    let filter = conjunction(keys.chain(join.filter));
    Join::try_new(
        join.left,
        join.right,
        Vec::new(),
        filter,
        join.join_type,
        join.join_constraint,
        NullEquality::NullEqualsNothing,
        join.null_aware,
    )
}
