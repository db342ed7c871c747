//! Joins with keys in the place of cross joins, where conditions give keys.
//!
//! ```text
//!   FROM a, b, c WHERE a.x = c.x AND c.y = b.y
//!
//!   Filter a.x = c.x, c.y = b.y             Join c.y = b.y
//!     Cross join                              Join a.x = c.x
//!       Cross join               ──►            a
//!         a                                     c
//!         b                                   b
//!       c
//! ```
//!
//! Next comes the first table of `FROM` that a key joins to those before it, and if there is none, the next one without.
//!
//! DataFusion's rule for this (`eliminate_cross_join`) looks at all joins below every join again, at every key for each
//! pair of inputs, and at joins that have their keys already: of a join of 60 tables it took half of the planning. It also
//! compares all keys alike, those that nulls match on and those that they do not, and forgets keys of which one side
//! has become a constant.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::common::{JoinConstraint, JoinType, NullEquality, Result};
use datafusion::logical_expr::utils::{can_hash, conjunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable as _, Filter, Join, LogicalPlan, Operator, Projection, and, or,
};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Makes keys of the conditions above cross joins.
#[derive(Debug)]
pub struct JoinCrossJoins;

impl OptimizerRule for JoinCrossJoins {
    fn name(&self) -> &'static str {
        "join_cross_joins"
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let mut is_needed = false;
        plan.apply_with_subqueries(|node| {
            is_needed = matches!(node, LogicalPlan::Join(join) if is_reordered(join) && lacks_keys(join));
            Ok(if is_needed { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if is_needed { rewritten(plan) } else { Ok(Transformed::no(plan)) }
    }
}

/// Whether the inputs of a join may be joined in another order, with those of such joins next to it.
fn is_reordered(join: &Join) -> bool {
    let is_plain = join.on.is_empty() || join.null_equality == NullEquality::NullEqualsNothing;
    join.join_type == JoinType::Inner && !join.null_aware && is_plain
}

/// Whether a join has no keys, or one of which a side has become a constant, which is better a condition.
fn lacks_keys(join: &Join) -> bool {
    let is_constant = |(left, right): &(Expr, Expr)| !left.any_column_refs() || !right.any_column_refs();
    join.on.is_empty() || join.on.iter().any(is_constant)
}

/// Whether one of the joins that are reordered together at the top of `plan` lacks keys.
fn has_cross_join(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Join(join) if is_reordered(join) => {
            lacks_keys(join) || has_cross_join(&join.left) || has_cross_join(&join.right)
        }
        _ => false,
    }
}

fn rewritten(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let (joins, predicate) = match plan {
        LogicalPlan::Filter(filter) if has_cross_join(&filter.input) => {
            (Arc::unwrap_or_clone(filter.input), Some(filter.predicate))
        }
        joins if has_cross_join(&joins) => (joins, None),
        other => {
            let changed = other
                .map_uncorrelated_subqueries(rewritten)?
                .transform_sibling(|plan| plan.map_children(rewritten))?;
            return match changed.transformed {
                true => changed.map_data(LogicalPlan::recompute_schema),
                false => Ok(changed),
            };
        }
    };
    let schema = Arc::clone(joins.schema());
    let mut parts = Parts::default();
    parts.take_apart(joins);
    for input in &mut parts.inputs {
        *input = rewritten(std::mem::take(input))?.data;
    }
    let of_joins = parts.equalities.pairs.len();
    if let Some(predicate) = &predicate {
        parts.equalities.insert_all_of(predicate);
    }
    let Parts { inputs, equalities, mut conditions } = parts;
    let joined = join_all(inputs, &equalities.pairs)?;

    // What was a key, and is none now, is a condition.
    let unused = |number: &usize| !joined.keys.contains(number);
    let forgotten = equalities.pairs.iter().take(of_joins).enumerate().filter(|(number, _)| unused(number));
    conditions.extend(forgotten.map(|(_, (left, right))| left.clone().eq(right.clone())));
    let keys = joined.keys.iter().filter_map(|&number| equalities.pairs.get(number).cloned());
    let keys = Equalities { found: keys.collect(), pairs: Vec::new() };
    conditions.extend(predicate.and_then(|predicate| keys.removed_from(predicate)));

    let mut plan = joined.plan;
    if joined.has_another_order {
        plan = LogicalPlan::Projection(Projection::new_from_schema(Arc::new(plan), schema));
    }
    if let Some(condition) = conjunction(conditions) {
        plan = LogicalPlan::Filter(Filter::try_new(condition, Arc::new(plan))?);
    }
    Ok(Transformed::yes(plan))
}

/// What joins that are reordered together are made of.
#[derive(Default)]
struct Parts {
    /// From left to right.
    inputs: Vec<LogicalPlan>,
    equalities: Equalities,
    conditions: Vec<Expr>,
}

impl Parts {
    fn take_apart(&mut self, plan: LogicalPlan) {
        match plan {
            LogicalPlan::Join(join) if is_reordered(&join) => {
                self.conditions.extend(join.filter);
                for (left, right) in &join.on {
                    self.equalities.insert(left, right);
                }
                self.take_apart(Arc::unwrap_or_clone(join.left));
                self.take_apart(Arc::unwrap_or_clone(join.right));
            }
            input => self.inputs.push(input),
        }
    }
}

/// Equalities, each of them once, whichever side is written first.
#[derive(Default)]
struct Equalities {
    pairs: Vec<(Expr, Expr)>,
    found: HashSet<(Expr, Expr)>,
}

impl Equalities {
    fn contains(&self, left: &Expr, right: &Expr) -> bool {
        let pair = (left.clone(), right.clone());
        let swapped = (right.clone(), left.clone());
        self.found.contains(&pair) || self.found.contains(&swapped)
    }

    fn insert(&mut self, left: &Expr, right: &Expr) {
        if !self.contains(left, right) {
            self.pairs.push((left.clone(), right.clone()));
            self.found.insert((left.clone(), right.clone()));
        }
    }

    /// Those that `condition` cannot be true without.
    fn insert_all_of(&mut self, condition: &Expr) {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else { return };
        match op {
            Operator::Eq => self.insert(left, right),
            Operator::And => {
                self.insert_all_of(left);
                self.insert_all_of(right);
            }
            Operator::Or => {
                let [mut of_left, mut of_right] = [Self::default(), Self::default()];
                of_left.insert_all_of(left);
                of_right.insert_all_of(right);
                for (left, right) in
                    of_left.pairs.iter().filter(|(left, right)| of_right.contains(left, right))
                {
                    self.insert(left, right);
                }
            }
            _ => {}
        }
    }

    /// What is left of `condition` where these hold; `None` if it is true then.
    fn removed_from(&self, condition: Expr) -> Option<Expr> {
        match condition {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right })
                if self.contains(&left, &right) =>
            {
                None
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
                match (self.removed_from(*left), self.removed_from(*right)) {
                    (Some(left), Some(right)) => Some(and(left, right)),
                    (left, right) => left.or(right),
                }
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
                let left = self.removed_from(*left)?;
                self.removed_from(*right).map(|right| or(left, right))
            }
            other => Some(other),
        }
    }
}

/// A tree of joins.
struct Joined {
    plan: LogicalPlan,
    has_another_order: bool,
    /// Numbers of the equalities that are keys.
    keys: HashSet<usize>,
}

/// Joins all of `inputs`, of which there are two at least.
fn join_all(inputs: Vec<LogicalPlan>, equalities: &[(Expr, Expr)]) -> Result<Joined> {
    let owners: Vec<_> = equalities
        .iter()
        .map(|(left, right)| Some((owners(left, &inputs)?, owners(right, &inputs)?)))
        .collect();
    let mut is_joined = vec![false; inputs.len()];
    let mut order: Vec<usize> = Vec::with_capacity(inputs.len());
    let mut waiting: Vec<(usize, LogicalPlan)> = inputs.into_iter().enumerate().collect();
    let mut keys = HashSet::new();
    let (first, mut plan) = waiting.remove(0);
    is_joined[first] = true;
    order.push(first);
    while !waiting.is_empty() {
        let mut next = (0, Vec::new());
        for (at, (candidate, _)) in waiting.iter().enumerate() {
            let mut on = Vec::new();
            for (number, ((left, right), owners)) in equalities.iter().zip(&owners).enumerate() {
                let Some((of_left, of_right)) = owners else { continue };
                let is_there = |owners: &[usize]| owners.iter().all(|&owner| is_joined[owner]);
                let (there, here) = if is_there(of_left) && of_right == &[*candidate] {
                    (left, right)
                } else if is_there(of_right) && of_left == &[*candidate] {
                    (right, left)
                } else {
                    continue;
                };
                if can_hash(&there.get_type(plan.schema())?) {
                    on.push((number, (there.clone(), here.clone())));
                }
            }
            if !on.is_empty() {
                next = (at, on);
                break;
            }
        }
        let (at, on) = next;
        let (number, input) = waiting.remove(at);
        let (used, on): (Vec<usize>, Vec<_>) = on.into_iter().unzip();
        keys.extend(used);
        is_joined[number] = true;
        order.push(number);
        plan = LogicalPlan::Join(Join::try_new(
            Arc::new(plan),
            Arc::new(input),
            on,
            None,
            JoinType::Inner,
            JoinConstraint::On,
            NullEquality::NullEqualsNothing,
            false,
        )?);
    }
    Ok(Joined { plan, has_another_order: !order.is_sorted(), keys })
}

/// The numbers of the inputs that an expression's columns come from. `None` if it has no columns, or one that is not of
/// one input alone.
fn owners(expression: &Expr, inputs: &[LogicalPlan]) -> Option<Vec<usize>> {
    let mut owners = Vec::new();
    for column in expression.column_refs() {
        let mut having = inputs.iter().enumerate().filter(|(_, input)| input.schema().has_column(column));
        let (owner, _) = having.next()?;
        if having.next().is_some() {
            return None;
        }
        owners.push(owner);
    }
    owners.sort_unstable();
    owners.dedup();
    (!owners.is_empty()).then_some(owners)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::logical_expr::logical_plan::table_scan;
    use datafusion::logical_expr::{LogicalPlanBuilder, binary_expr, col, lit};
    use datafusion::optimizer::OptimizerContext;

    use super::*;

    fn table(name: &str) -> LogicalPlan {
        let column = |name: &str| Field::new(name, DataType::Int64, true);
        let schema = Schema::new(vec![column("x"), column("y")]);
        table_scan(Some(name), &schema, None).unwrap().build().unwrap()
    }

    fn cross(tables: &[&str]) -> LogicalPlanBuilder {
        tables[1..].iter().fold(LogicalPlanBuilder::from(table(tables[0])), |joined, name| {
            joined.cross_join(table(name)).unwrap()
        })
    }

    /// The plan behind the rule; `None` if it is as before.
    fn rewritten(plan: LogicalPlan) -> Option<String> {
        let schema = Arc::clone(plan.schema());
        let rewritten = JoinCrossJoins.rewrite(plan, &OptimizerContext::new()).unwrap();
        assert_eq!(rewritten.data.schema(), &schema);
        rewritten.transformed.then(|| rewritten.data.display_indent().to_string())
    }

    #[test]
    fn tables_come_as_keys_join_them() {
        let condition =
            col("a.x").eq(col("c.x")).and(col("c.y").eq(col("b.y"))).and(col("a.y").gt(lit(1_i64)));
        let plan = cross(&["a", "b", "c"]).filter(condition).unwrap().build().unwrap();
        let expected = "\
Filter: a.y > Int64(1)
  Projection: a.x, a.y, b.x, b.y, c.x, c.y
    Inner Join: c.y = b.y
      Inner Join: a.x = c.x
        TableScan: a
        TableScan: c
      TableScan: b";
        assert_eq!(rewritten(plan).as_deref(), Some(expected));
    }

    #[test]
    fn keys_of_all_alternatives_are_keys() {
        let either = |y: i64| col("a.x").eq(col("b.x")).and(col("a.y").eq(lit(y)));
        let plan = cross(&["a", "b"]).filter(either(1).or(either(2))).unwrap().build().unwrap();
        let expected = "\
Filter: a.y = Int64(1) OR a.y = Int64(2)
  Inner Join: a.x = b.x
    TableScan: a
    TableScan: b";
        assert_eq!(rewritten(plan).as_deref(), Some(expected));
    }

    #[test]
    fn keys_that_nulls_match_on_stay_where_they_are() {
        let key = (vec!["a.x"], vec!["b.x"]);
        let same = LogicalPlanBuilder::from(table("a"))
            .join_detailed(table("b"), JoinType::Inner, key, None, NullEquality::NullEqualsNull)
            .unwrap();
        let plan = same.cross_join(table("c")).unwrap().filter(col("b.y").eq(col("c.y"))).unwrap();
        let expected = "\
Inner Join: b.y = c.y
  Inner Join: a.x = b.x
    TableScan: a
    TableScan: b
  TableScan: c";
        let plan = plan.build().unwrap();
        assert_eq!(rewritten(plan.clone()).as_deref(), Some(expected));
        let plan = JoinCrossJoins.rewrite(plan, &OptimizerContext::new()).unwrap().data;
        let LogicalPlan::Join(outer) = plan else { panic!("{plan}") };
        let LogicalPlan::Join(inner) = outer.left.as_ref() else { panic!("{}", outer.left) };
        assert_eq!(outer.null_equality, NullEquality::NullEqualsNothing);
        assert_eq!(inner.null_equality, NullEquality::NullEqualsNull);
    }

    #[test]
    fn keys_with_a_constant_are_conditions() {
        let join = Join::try_new(
            Arc::new(table("a")),
            Arc::new(table("b")),
            vec![(lit(1_i64), col("b.x")), (col("a.y"), col("b.y"))],
            Some(binary_expr(col("a.x"), Operator::Lt, col("b.x"))),
            JoinType::Inner,
            JoinConstraint::On,
            NullEquality::NullEqualsNothing,
            false,
        );
        let expected = "\
Filter: a.x < b.x AND Int64(1) = b.x
  Inner Join: a.y = b.y
    TableScan: a
    TableScan: b";
        assert_eq!(rewritten(LogicalPlan::Join(join.unwrap())).as_deref(), Some(expected));
    }

    #[test]
    fn joins_that_have_keys_stay_as_they_are() {
        let keyed = LogicalPlanBuilder::from(table("a"))
            .join(table("b"), JoinType::Inner, (vec!["a.x"], vec!["b.x"]), None)
            .unwrap();
        assert_eq!(rewritten(keyed.build().unwrap()), None);
    }
}
