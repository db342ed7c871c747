//! Joins with keys in the place of cross joins, where conditions give keys.
//!
//! ```text
//!   FROM a, b, c WHERE a.x = c.x AND c.y = b.y
//!
//!   Filter a.x = c.x, c.y = b.y             Projection a, b, c
//!     Cross join                              Join c.y = b.y
//!       Cross join               ──►            Join a.x = c.x
//!         a                                       a
//!         b                                       c
//!       c                                       b
//! ```
//!
//! Next comes the first table of `FROM` that a key joins to those before it. Where there is none, the next table begins a
//! tree of its own; finished trees are joined by keys between them, and cross joined where there are none.
//!
//! DataFusion's rule for this (`eliminate_cross_join`) takes every join apart, also those that have their keys, and
//! each of the joins that it has made once more: of a join of 60 tables it took half of the planning. It compares all keys
//! alike, those that nulls match on and those that they do not, and forgets keys of which one side has become a constant
//! or names columns of several tables.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode as _, TreeNodeRecursion};
use datafusion::common::{JoinConstraint, JoinType, NullEquality, Result};
use datafusion::logical_expr::utils::{can_hash, conjunction, split_conjunction};
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
            is_needed = match node {
                LogicalPlan::Join(join) => is_reordered(join) && lacks_keys(join),
                LogicalPlan::Filter(filter) => has_key_of_sub_query(filter),
                _ => false,
            };
            Ok(if is_needed { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if is_needed { rewritten(plan) } else { Ok(Transformed::no(plan)) }
    }
}

/// Whether the inputs of a join may be joined in another order, with those of such joins next to it.
fn is_reordered(join: &Join) -> bool {
    let is_plain = join.on.is_empty() || join.null_equality == NullEquality::NullEqualsNothing;
    // What is drawn for each pair of rows must not be drawn for each that another table makes of it.
    let keys = join.on.iter().flat_map(|(left, right)| [left, right]);
    let is_drawn = || keys.chain(&join.filter).any(Expr::is_volatile);
    join.join_type == JoinType::Inner && is_plain && !is_drawn()
}

/// Whether a filter above inner joins has an equality with a sub-query: others are pushed into the joins, and become keys
/// there.
fn has_key_of_sub_query(filter: &Filter) -> bool {
    let is_key = |condition: &Expr| match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            let has_sub_query = |side: &Expr| side.exists(|part| Ok(matches!(part, Expr::ScalarSubquery(_))));
            let have_columns = left.any_column_refs() && right.any_column_refs();
            have_columns && [left, right].into_iter().any(|side| has_sub_query(side).unwrap_or(true))
        }
        _ => false,
    };
    let is_above_joins = matches!(filter.input.as_ref(), LogicalPlan::Join(join) if is_reordered(join));
    is_above_joins && split_conjunction(&filter.predicate).into_iter().any(is_key)
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
        LogicalPlan::Filter(filter) if has_cross_join(&filter.input) || has_key_of_sub_query(&filter) => {
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
    let keys = joined.keys.iter().map(|&number| equalities.pairs[number].clone());
    let keys = Equalities { found: keys.collect(), pairs: Vec::new() };
    conditions.extend(predicate.and_then(|predicate| keys.removed_from(predicate)));

    let mut plan = joined.plan;
    if joined.has_another_order {
        plan = LogicalPlan::Projection(Projection::new_from_schema(Arc::new(plan), schema));
    }
    if let Some(condition) = conjunction(conditions) {
        let filter = LogicalPlan::Filter(Filter::try_new(condition, Arc::new(plan))?);
        plan = filter.map_uncorrelated_subqueries(rewritten)?.data;
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

/// All inputs in one tree of joins.
struct Joined {
    plan: LogicalPlan,
    has_another_order: bool,
    /// Numbers of the equalities that are keys.
    keys: HashSet<usize>,
}

/// Joins all of `inputs`, of which there are two at least.
fn join_all(inputs: Vec<LogicalPlan>, equalities: &[(Expr, Expr)]) -> Result<Joined> {
    let mut forest = Forest::new(inputs, equalities);
    let mut finished = Vec::new();
    while !forest.trees.is_empty() {
        let mut tree = forest.trees.remove(0);
        while let Some((next, on)) = forest.next(&tree)? {
            tree = forest.joined(tree, next, on)?;
        }
        finished.push(tree);
    }
    forest.trees = finished;
    let mut tree = forest.trees.remove(0);
    while !forest.trees.is_empty() {
        let (next, on) = forest.next(&tree)?.unwrap_or_default();
        tree = forest.joined(tree, next, on)?;
    }
    Ok(Joined { plan: tree.plan, has_another_order: !tree.inputs.is_sorted(), keys: forest.keys })
}

/// Some of the inputs, joined.
struct Tree {
    plan: LogicalPlan,
    /// Their numbers, from left to right.
    inputs: Vec<usize>,
}

/// Trees that are not yet part of another.
struct Forest<'a> {
    trees: Vec<Tree>,
    equalities: &'a [(Expr, Expr)],
    /// The inputs that both sides of each equality are about, if it may be a key.
    owners: Vec<Option<[Vec<usize>; 2]>>,
    /// For each input, the first one of its tree.
    tree_of: Vec<usize>,
    keys: HashSet<usize>,
}

/// Keys of a join, and the numbers of the equalities that they are.
type Keys = Vec<(usize, (Expr, Expr))>;

impl<'a> Forest<'a> {
    fn new(inputs: Vec<LogicalPlan>, equalities: &'a [(Expr, Expr)]) -> Self {
        let owners = equalities
            .iter()
            .map(|(left, right)| Some([owners(left, &inputs)?, owners(right, &inputs)?]))
            .collect();
        let tree_of = (0..inputs.len()).collect();
        let tree = |(number, plan)| Tree { plan, inputs: vec![number] };
        let trees = inputs.into_iter().enumerate().map(tree).collect();
        Self { trees, equalities, owners, tree_of, keys: HashSet::new() }
    }

    /// The first of the other trees that keys join to `tree`.
    fn next(&self, tree: &Tree) -> Result<Option<(usize, Keys)>> {
        for (place, other) in self.trees.iter().enumerate() {
            let keys = self.keys_between(tree, other)?;
            if !keys.is_empty() {
                return Ok(Some((place, keys)));
            }
        }
        Ok(None)
    }

    fn keys_between(&self, left: &Tree, right: &Tree) -> Result<Keys> {
        let is_of = |owners: &[usize], tree: &Tree| {
            owners.iter().all(|&owner| self.tree_of[owner] == self.tree_of[tree.inputs[0]])
        };
        let mut keys = Vec::new();
        for (number, ((one, other), owners)) in self.equalities.iter().zip(&self.owners).enumerate() {
            let Some([of_one, of_other]) = owners else { continue };
            let (of_left, of_right) = if is_of(of_one, left) && is_of(of_other, right) {
                (one, other)
            } else if is_of(of_other, left) && is_of(of_one, right) {
                (other, one)
            } else {
                continue;
            };
            if can_hash(&of_left.get_type(left.plan.schema())?) {
                keys.push((number, (of_left.clone(), of_right.clone())));
            }
        }
        Ok(keys)
    }

    /// `tree` with the one at this place.
    fn joined(&mut self, mut tree: Tree, place: usize, keys: Keys) -> Result<Tree> {
        let other = self.trees.remove(place);
        let (used, on): (Vec<usize>, Vec<_>) = keys.into_iter().unzip();
        self.keys.extend(used);
        for &input in &other.inputs {
            self.tree_of[input] = self.tree_of[tree.inputs[0]];
        }
        tree.inputs.extend(other.inputs);
        tree.plan = LogicalPlan::Join(Join::try_new(
            Arc::new(tree.plan),
            Arc::new(other.plan),
            on,
            None,
            JoinType::Inner,
            JoinConstraint::On,
            NullEquality::NullEqualsNothing,
            false,
        )?);
        Ok(tree)
    }
}

/// The numbers of the inputs that an expression's columns come from. `None` if it cannot be one side of a key: it has no
/// columns, has one that is not of one input alone, or has another value every time.
fn owners(expression: &Expr, inputs: &[LogicalPlan]) -> Option<Vec<usize>> {
    if expression.is_volatile() {
        return None;
    }
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
    use datafusion::functions::math::random;
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
    fn tables_that_no_key_joins_are_joined_last() {
        let condition = col("a.x").eq(col("c.x")).and(col("b.x").eq(col("d.x")));
        let plan = cross(&["a", "b", "c", "d"]).filter(condition).unwrap().build().unwrap();
        let expected = "\
Projection: a.x, a.y, b.x, b.y, c.x, c.y, d.x, d.y
  Cross Join:
    Inner Join: a.x = c.x
      TableScan: a
      TableScan: c
    Inner Join: b.x = d.x
      TableScan: b
      TableScan: d";
        assert_eq!(rewritten(plan).unwrap().replace("Cross Join: \n", "Cross Join:\n"), expected);
    }

    #[test]
    fn keys_of_several_tables_join_trees() {
        let keyed = LogicalPlanBuilder::from(table("c"))
            .join(table("d"), JoinType::Inner, (vec!["c.x"], vec!["d.x"]), None)
            .unwrap();
        let join = Join::try_new(
            Arc::new(cross(&["a", "b"]).build().unwrap()),
            Arc::new(keyed.build().unwrap()),
            vec![(col("a.x") + col("b.x"), col("c.y") + col("d.y"))],
            None,
            JoinType::Inner,
            JoinConstraint::On,
            NullEquality::NullEqualsNothing,
            false,
        );
        let expected = "\
Inner Join: a.x + b.x = c.y + d.y
  Cross Join:
    TableScan: a
    TableScan: b
  Inner Join: c.x = d.x
    TableScan: c
    TableScan: d";
        let plan = rewritten(LogicalPlan::Join(join.unwrap())).unwrap();
        assert_eq!(plan.replace("Cross Join: \n", "Cross Join:\n"), expected);
    }

    #[test]
    fn what_is_drawn_for_each_pair_is_not_moved() {
        let drawn = binary_expr(col("a.x") + col("b.x"), Operator::Lt, random().call(Vec::new()));
        let pairs =
            LogicalPlanBuilder::from(table("a")).join_on(table("b"), JoinType::Inner, [drawn]).unwrap();
        let plan = pairs.cross_join(table("c")).unwrap().filter(col("a.y").eq(col("c.y"))).unwrap();
        let expected = "\
Inner Join: a.y = c.y
  Inner Join:  Filter: a.x + b.x < random()
    TableScan: a
    TableScan: b
  TableScan: c";
        assert_eq!(rewritten(plan.build().unwrap()).as_deref(), Some(expected));
    }

    #[test]
    fn joins_that_have_keys_stay_as_they_are() {
        let keyed = LogicalPlanBuilder::from(table("a"))
            .join(table("b"), JoinType::Inner, (vec!["a.x"], vec!["b.x"]), None)
            .unwrap();
        assert_eq!(rewritten(keyed.build().unwrap()), None);
    }
}
