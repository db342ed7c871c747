//! Sub-queries in a join's condition that name columns of both sides.
//!
//! Their values belong to pairs of rows. A table of the different pairs, with the values of each, is joined to one side first:
//! each of that side's rows meets each of the other's different values once at most, so that the join itself makes the same
//! pairs as before.
//!
//! ```text
//!   l LEFT JOIN r ON c AND EXISTS (S)
//!     ─►   l LEFT JOIN (r JOIN p ON p.y = r.y) ON p.x = l.x AND c AND p.mark
//!          p: the different (l.x, r.y) of l JOIN r ON c, marked by S
//! ```
//!
//! The side with the pairs has rows several times, which a join that keeps its rows must not show: it is the side that is not
//! kept. A full join is a left one, and the rows of the right side that find nothing.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, Result};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{Distinct, Expr, Join, LogicalPlan, Projection, Union, cast, lit};
use datafusion::scalar::ScalarValue;

use super::dependent::{cross_joined, joined_on};
use super::domain::by_name;
use super::{Unnesting, Values, is_ours, outer_columns_of, spooled};

/// The values of sub-queries for the different pairs of a join's rows.
struct Pairs {
    rows: Arc<LogicalPlan>,
    left: Vec<Key>,
    right: Vec<Key>,
}

/// A column of a side, and its name in the table of pairs.
struct Key {
    column: Column,
    name: String,
}

impl Unnesting {
    /// A join whose condition has no other sub-queries than those over both sides.
    pub(super) fn of_pairs(&mut self, mut join: Join) -> Result<LogicalPlan> {
        let whole = LogicalPlan::Join(join.clone());
        let condition = join.filter.take().unwrap_or_else(|| lit(true));
        if !condition.exists(|part| is_ours(part, &whole))? {
            return Ok(whole);
        }
        if join.join_type == JoinType::Full {
            // They stand in the plan four times; in that of several such joins, many more.
            join.left = spooled(&join.left);
            join.right = spooled(&join.right);
        } else {
            join.left = self.once(&join.left)?;
            join.right = self.once(&join.right)?;
        }
        let (pairs, condition) = self.pairs(&join, condition, &whole)?;
        let columns = join.schema.columns().into_iter().map(Expr::Column);
        match join.join_type {
            JoinType::Full => full(&join, pairs, condition),
            kind => project(columns.collect(), pairs.joined(&join, kind, condition)?),
        }
    }

    /// The pairs with the values, and the condition with those in place of the sub-queries.
    fn pairs(&mut self, join: &Join, condition: Expr, whole: &LogicalPlan) -> Result<(Pairs, Expr)> {
        let mut plain: Vec<Expr> =
            join.on.iter().map(|(left, right)| left.clone().eq(right.clone())).collect();
        let mut outer = Vec::new();
        for part in split_conjunction(&condition) {
            let mut names = Vec::new();
            part.apply(|part| {
                if is_ours(part, whole)? {
                    names.extend(outer_columns_of(part)?.into_iter().map(|(_, column)| column));
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
            // Pairs for which another condition does not hold need no values.
            if names.is_empty() && !part.is_volatile() {
                plain.push(part.clone());
            }
            outer.extend(names);
        }
        self.next_number += 1;
        let left = keys(&outer, &join.left, &format!("__left_{}", self.next_number));
        let right = keys(&outer, &join.right, &format!("__right_{}", self.next_number));
        let different = different_pairs(join, &left, &right, conjunction(plain))?;
        let mut values = Values { rows: self.once(&Arc::new(different))?, known: Vec::new() };
        let condition = condition.transform_down(|part| match is_ours(&part, whole)? {
            true => {
                let value = self.value(part, &mut values)?;
                Ok(Transformed::new(value, true, TreeNodeRecursion::Jump))
            }
            false => Ok(Transformed::no(part)),
        });
        let columns = left.iter().chain(&right).map(|key| Expr::Column(key.column.clone()).alias(&key.name));
        let found: Vec<&str> = left.iter().chain(&right).map(|key| key.name.as_str()).collect();
        let known = values.rows.schema().columns().into_iter().skip(found.len()).map(Expr::Column);
        let named = project(columns.chain(known).collect(), values.rows.as_ref().clone())?;
        let rows = self.once(&Arc::new(named))?;
        Ok((Pairs { rows, left, right }, condition.data()?))
    }
}

impl Pairs {
    /// The join on a condition that names the values.
    fn joined(&self, join: &Join, kind: JoinType, condition: Expr) -> Result<LogicalPlan> {
        let (left, right) = (join.left.as_ref().clone(), join.right.as_ref().clone());
        let pairs = self.rows.as_ref().clone();
        let on = join.on.iter().map(|(left, right)| left.clone().eq(right.clone()));
        let condition = conjunction(on.chain([condition]));
        match kind {
            JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                let left = joined_on(left, pairs, equal(&self.left), None, JoinType::Inner)?;
                let keys = equal(&self.right).into_iter().map(|(own, name)| (name, own)).collect();
                joined_on(left, right, keys, condition, kind)
            }
            _ => {
                let right = joined_on(right, pairs, equal(&self.right), None, JoinType::Inner)?;
                joined_on(left, right, equal(&self.left), condition, kind)
            }
        }
    }
}

/// The rows of a left join, and those of the right side that find nothing.
fn full(join: &Join, pairs: Pairs, condition: Expr) -> Result<LogicalPlan> {
    // A union has no names of tables.
    let name = |at: usize| format!("__side_{at}");
    let kept = pairs.joined(join, JoinType::Left, condition.clone())?;
    let both = join.schema.columns().into_iter().map(Expr::Column);
    let both = both.enumerate().map(|(at, column)| column.alias(name(at)));
    let kept = project(both.collect(), kept)?;
    let alone = pairs.joined(join, JoinType::RightAnti, condition)?;
    let missing = join.left.schema().fields().iter();
    let missing = missing.map(|field| cast(lit(ScalarValue::Null), field.data_type().clone()));
    let own = join.right.schema().columns().into_iter().map(Expr::Column);
    let right = missing.chain(own).enumerate().map(|(at, column)| column.alias(name(at)));
    let alone = project(right.collect(), alone)?;
    let all = Union::try_new(vec![Arc::new(kept), Arc::new(alone)])?;
    let named = join
        .schema
        .iter()
        .enumerate()
        .map(|(at, (table, field))| by_name(name(at)).alias_qualified(table.cloned(), field.name()));
    project(named.collect(), LogicalPlan::Union(all))
}

/// The different pairs that a condition without sub-queries leaves, under the names of the sides' columns.
fn different_pairs(join: &Join, left: &[Key], right: &[Key], condition: Option<Expr>) -> Result<LogicalPlan> {
    let named =
        |keys: &[Key]| -> Vec<Expr> { keys.iter().map(|key| Expr::Column(key.column.clone())).collect() };
    let different = |columns: Vec<Expr>, rows: LogicalPlan| -> Result<LogicalPlan> {
        Ok(LogicalPlan::Distinct(Distinct::All(Arc::new(project(columns, rows)?))))
    };
    let (left_rows, right_rows) = (join.left.as_ref().clone(), join.right.as_ref().clone());
    match condition {
        Some(condition) => {
            let rows = joined_on(left_rows, right_rows, Vec::new(), Some(condition), JoinType::Inner)?;
            different([named(left), named(right)].concat(), rows)
        }
        None => cross_joined(different(named(left), left_rows)?, different(named(right), right_rows)?),
    }
}

/// Those of the columns that a side has.
fn keys(columns: &[Column], side: &LogicalPlan, name: &str) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::new();
    for column in columns {
        if side.schema().has_column(column) && keys.iter().all(|key| key.column != *column) {
            keys.push(Key { column: column.clone(), name: format!("{name}_{}", keys.len()) });
        }
    }
    keys
}

/// A side's columns with those of the pairs that they are equal to.
fn equal(keys: &[Key]) -> Vec<(Expr, Expr)> {
    keys.iter().map(|key| (Expr::Column(key.column.clone()), by_name(key.name.clone()))).collect()
}

fn project(columns: Vec<Expr>, rows: LogicalPlan) -> Result<LogicalPlan> {
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(rows))?))
}
