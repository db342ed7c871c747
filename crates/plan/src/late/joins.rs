//! Where tables are joined.
//!
//! Above a tree of joins, and filters right above it that look at narrow columns only, columns are fetched that no condition
//! in it looks at. The joins make what RARE-join calls the join index: rows of keys and row ids (Shah, Harizopoulos, Wiener,
//! Graefe: *Fast Scans and Joins using Flash Drives*, DaMoN 2008, section 4). Whether that pays is known when the operators of
//! the plan are: [`choice`](super::choice).

use std::cmp::Reverse;
use std::collections::HashMap;

use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{Column, ExprSchema as _, Result};
use datafusion::logical_expr::{LogicalPlan, UserDefinedLogicalNode};
use nandina_exec::batch::row_width::{TEXT_BYTES, column_bytes};
use nandina_exec::fetch::RowOrder;

use super::above::{Candidate, Fetches, fetched_above, table_at, unused_columns};
use super::algorithm::JoinAlgorithm;
use super::choice::Chosen;
use super::cost;
use super::node::LateFetch;
use super::origins::{Way, passed_input};
use crate::spools::Spool;

/// Numbers the fetches that could be made, and makes some of them.
pub(super) struct JoinFetches<'a> {
    algorithm: JoinAlgorithm,
    /// Those that are made, by number; all if `None`.
    wanted: Option<&'a Chosen>,
    /// How many there could be.
    numbered: usize,
    /// The number of the first fetch in each spool: one that stands in the plan again has the same fetches.
    in_spools: HashMap<usize, usize>,
}

impl<'a> JoinFetches<'a> {
    pub fn new(algorithm: JoinAlgorithm, wanted: Option<&'a Chosen>) -> Self {
        Self { algorithm, wanted, numbered: 0, in_spools: HashMap::new() }
    }

    /// The plan with columns that are read late above its joins.
    pub fn above_joins(&mut self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        if !self.algorithm.may_be_late() {
            return Ok(Transformed::no(plan));
        }
        self.rewrite(plan, Above { joins: false, limits: false })
    }

    /// How many fetches there could be.
    pub fn numbered(&self) -> usize {
        self.numbered
    }

    fn rewrite(&mut self, plan: LogicalPlan, above: Above) -> Result<Transformed<LogicalPlan>> {
        if let Some(spool) = extension::<Spool>(&plan) {
            let first = *self.in_spools.entry(spool.number).or_insert(self.numbered);
            let numbered_before = std::mem::replace(&mut self.numbered, first);
            let below = plan.map_children(|rows| self.rewrite(rows, Above { joins: false, limits: false }));
            self.numbered = self.numbered.max(numbered_before);
            return below;
        }
        if extension::<LateFetch>(&plan).is_some() {
            return Ok(Transformed::no(plan));
        }
        let is_join = matches!(plan, LogicalPlan::Join(_)) || filters_join(&plan);
        let passes = matches!(plan, LogicalPlan::Projection(_)) || passed_input(&plan).is_some();
        let below = Above {
            joins: is_join || (passes && above.joins),
            limits: matches!(plan, LogicalPlan::Limit(_))
                || (above.limits && (is_join || passes) && !matches!(plan, LogicalPlan::Sort(_))),
        };
        let apart = Above { joins: false, limits: false };
        let subqueries = plan.map_subqueries(|rows| self.rewrite(rows, apart))?;
        let inputs = subqueries.transform_data(|plan| plan.map_children(|rows| self.rewrite(rows, below)))?;
        if !is_join || above.joins {
            return Ok(inputs);
        }
        inputs.transform_data(|plan| match self.fetched(&plan, above.limits)? {
            Some(late) => Ok(Transformed::yes(late)),
            None => Ok(Transformed::no(plan)),
        })
    }

    /// Fetches above the tree of joins that `plan` is.
    fn fetched(&mut self, plan: &LogicalPlan, is_limited: bool) -> Result<Option<LogicalPlan>> {
        let mut late = unused_columns(plan)?;
        late.retain(|way, columns| self.may_pay(plan, way, columns));
        let mut candidates: Vec<Candidate> = Vec::new();
        for way in late.keys().cloned() {
            let number = self.numbered;
            self.numbered += 1;
            let order = match self.wanted.map(|wanted| wanted.get(&number)) {
                None => RowOrder::Any,
                Some(Some(chosen)) => chosen.order,
                Some(None) => continue,
            };
            // Who wants the first rows only does not wait for all of them to be sorted.
            let order = if is_limited { RowOrder::Kept } else { order };
            candidates.push(Candidate { way, number, order });
        }
        if candidates.is_empty() {
            return Ok(None);
        }
        late.retain(|way, _| candidates.iter().any(|wanted| wanted.way == *way));
        // Rows come out of a join in the order of its larger side, mostly: its pages are read in that order, first.
        let rows = |way: &Way| table_at(plan, way).map_or(0, |table| table.rows());
        candidates.sort_by_key(|candidate| Reverse(rows(&candidate.way)));
        fetched_above(plan, &late, &Fetches::OneByOne(&candidates)).map(Some)
    }

    /// Whether there is anything to gain at all.
    fn may_pay(&self, plan: &LogicalPlan, way: &Way, columns: &[(usize, usize)]) -> bool {
        if self.algorithm.is_late() {
            return true;
        }
        let in_table: Vec<usize> = columns.iter().map(|(_, in_table)| *in_table).collect();
        table_at(plan, way)
            .is_some_and(|table| cost::FetchCost::of(&table, &in_table).is_some_and(|cost| cost.may_pay()))
    }
}

/// Whether it is a filter above a join that looks at no wide columns: fewer rows are left to be fetched for above it.
fn filters_join(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Filter(filter) = plan else { return false };
    let below = passed_join(&filter.input);
    let schema = filter.input.schema();
    let is_narrow = |column: &Column| {
        let data_type = schema.data_type(column);
        data_type.is_ok_and(|data_type| column_bytes(data_type, TEXT_BYTES) <= size_of::<u64>())
    };
    below && filter.predicate.column_refs().into_iter().all(is_narrow)
}

/// Whether it is a join that other nodes only pass the rows of on.
fn passed_join(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Join(_) => true,
        LogicalPlan::Projection(projection) => passed_join(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => passed_join(&alias.input),
        LogicalPlan::Filter(filter) => passed_join(&filter.input),
        _ => false,
    }
}

/// What is above a part of a plan, with nothing between that keeps rows together.
#[derive(Clone, Copy)]
struct Above {
    /// A join that its rows go into as they are.
    joins: bool,
    /// A limit of rows.
    limits: bool,
}

fn extension<T: UserDefinedLogicalNode + 'static>(plan: &LogicalPlan) -> Option<&T> {
    match plan {
        LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref(),
        _ => None,
    }
}
