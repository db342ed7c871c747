//! Keys that are compared with `IS NOT DISTINCT FROM`, in joins next to joins and below filters.
//!
//! DataFusion's rule that puts inner joins in another order (`eliminate_cross_join`) collects the keys of all of them, and
//! the equalities of a filter above, and compares them all alike: nulls match in all of them or in none. So keys that nulls
//! match on become conditions of their joins before it, and keys again behind it. It also forgets keys of which one side has
//! become a constant; those are conditions, too.
//!
//! The rule that makes keys of conditions (`extract_equijoin_predicate`) likewise puts equalities among keys that nulls match
//! on. Before it, those are conditions again, of which it makes keys only where there is no equality.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{JoinConstraint, JoinType, NullEquality, Result};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{BinaryExpr, Expr, Join, LogicalPlan, Operator};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Makes conditions of the keys of inner joins that nulls match on, if another inner join is next to them or a
/// filter above.
#[derive(Debug)]
pub struct NullSafeKeysToConditions;

impl OptimizerRule for NullSafeKeysToConditions {
    fn name(&self) -> &str {
        "null_safe_keys_to_conditions"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let join = match plan {
            LogicalPlan::Filter(mut filter) => {
                let below = inner(&filter.input).filter(|below| matches_nulls(below)).cloned();
                let has_changed = below.is_some();
                if let Some(below) = below {
                    filter.input = Arc::new(LogicalPlan::Join(with_conditions(below)?));
                }
                return Ok(Transformed::new_transformed(LogicalPlan::Filter(filter), has_changed));
            }
            LogicalPlan::Join(join) => join,
            other => return Ok(Transformed::no(other)),
        };
        let (join, has_fewer_keys) = without_constant_keys(join);
        let has_neighbours = [&join.left, &join.right].into_iter().any(|input| inner(input).is_some());
        if join.join_type != JoinType::Inner || !has_neighbours {
            return Ok(Transformed::new_transformed(LogicalPlan::Join(join), has_fewer_keys));
        }
        let (mut join, mut changed) = (join, has_fewer_keys);
        for input in [&mut join.left, &mut join.right] {
            if let Some(below) = inner(input).filter(|below| matches_nulls(below)) {
                *input = Arc::new(LogicalPlan::Join(with_conditions(below.clone())?));
                changed = true;
            }
        }
        if matches_nulls(&join) {
            join = with_conditions(join)?;
            changed = true;
        }
        Ok(Transformed::new_transformed(LogicalPlan::Join(join), changed))
    }
}

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

/// An inner join whose keys have columns on both sides; the others, which have been simplified, are conditions. Whether
/// there are any.
fn without_constant_keys(mut join: Join) -> (Join, bool) {
    if join.join_type != JoinType::Inner {
        return (join, false);
    }
    let has_columns = |side: &Expr| !side.column_refs().is_empty();
    let (keys, constant): (Vec<_>, Vec<_>) =
        join.on.into_iter().partition(|(left, right)| has_columns(left) && has_columns(right));
    join.on = keys;
    let operator = match join.null_equality {
        NullEquality::NullEqualsNull => Operator::IsNotDistinctFrom,
        NullEquality::NullEqualsNothing => Operator::Eq,
    };
    let has_any = !constant.is_empty();
    let conditions = constant
        .into_iter()
        .map(|(left, right)| Expr::BinaryExpr(BinaryExpr::new(Box::new(left), operator, Box::new(right))));
    join.filter = conjunction(conditions.chain(join.filter.take()));
    (join, has_any)
}

fn inner(plan: &LogicalPlan) -> Option<&Join> {
    match plan {
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner => Some(join),
        _ => None,
    }
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
