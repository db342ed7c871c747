//! Where rows are wanted in an order.

use std::collections::BTreeMap;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::logical_expr::{LogicalPlan, Sort};
use nandina_exec::batch::row_width::{TEXT_BYTES, column_bytes};
use nandina_exec::fetch::FetchEstimate;

use super::above::{Fetches, fetched_above, table_at, unused_columns};
use super::algorithm::{Named as _, SortAlgorithm};
use super::cost::{self, SortCost};
use super::explained::{OTHER, Weighed};
use super::locality::pages_of_a_value;
use super::origins::{Way, origin_in, plain_column, with_provider};
use super::planner::Circumstances;

/// Makes fetches above sorts where that is cheaper or asked for.
pub(super) struct SortFetches {
    circumstances: Circumstances,
    early: Vec<Weighed>,
}

impl SortFetches {
    pub fn new(circumstances: Circumstances) -> Self {
        Self { circumstances, early: Vec::new() }
    }

    /// The plan with columns that are read late above its sorts.
    pub fn above_sorts(&mut self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        plan.transform_down_with_subqueries(|part| match self.late_above(&part)? {
            // Seen again, the sort below would get another fetch.
            Some(late) => Ok(Transformed::new(late, true, TreeNodeRecursion::Jump)),
            None => Ok(Transformed::no(part)),
        })
    }

    /// What was expected of sorts that nothing is fetched above.
    pub fn early(self) -> Vec<Weighed> {
        self.early
    }

    /// A fetch above `part`, if it gives rows in an order and a fetch of them pays.
    fn late_above(&mut self, part: &LogicalPlan) -> Result<Option<LogicalPlan>> {
        let Some(ordered) = ordered_rows(part) else { return Ok(None) };
        let mut late = unused_columns(part)?;
        let costs: BTreeMap<Way, SortCost> = late
            .iter()
            .filter_map(|(way, columns)| {
                Some((way.clone(), cost_of(part, way, columns, ordered, self.circumstances)?))
            })
            .collect();
        match self.circumstances.sort_algorithm {
            SortAlgorithm::Ssd => {}
            SortAlgorithm::Merge => late.clear(),
            SortAlgorithm::Auto => {
                late.retain(|way, _| costs.get(way).is_some_and(|cost| cost.late < cost.early))
            }
        }
        if late.is_empty() {
            let is_sort = matches!(part, LogicalPlan::Sort(_));
            let estimate = if is_sort { estimate(&costs.into_values().collect::<Vec<_>>()) } else { None };
            self.early.extend(estimate.map(|estimate| Weighed::sort(tables_in(part), estimate)));
            return Ok(None);
        }
        let costs: Vec<SortCost> = late.keys().filter_map(|way| costs.get(way).copied()).collect();
        fetched_above(part, &late, &Fetches::InOrder(estimate(&costs))).map(Some)
    }
}

/// What both algorithms are expected to take. `None` if nothing is known of any table.
pub(super) fn estimate(costs: &[SortCost]) -> Option<FetchEstimate> {
    let rows = costs.iter().map(|cost| cost.rows as u64).max()?;
    let millis =
        |micros: fn(&SortCost) -> f64| (costs.iter().map(micros).sum::<f64>() / 1000.0).round() as u64;
    let ssd = (SortAlgorithm::Ssd.name(), millis(|cost| cost.late));
    let merge = (SortAlgorithm::Merge.name(), millis(|cost| cost.early));
    Some(FetchEstimate { rows, millis: [ssd, merge].into() })
}

fn tables_in(plan: &LogicalPlan) -> Vec<String> {
    let inputs = plan.inputs();
    if !inputs.is_empty() {
        return inputs.into_iter().flat_map(tables_in).collect();
    }
    let stored = match plan {
        LogicalPlan::TableScan(scan) => with_provider(scan, |provider| provider.table().name().to_owned()),
        _ => None,
    };
    vec![stored.unwrap_or_else(|| OTHER.to_owned())]
}

/// Rows that a sort gives.
#[derive(Clone, Copy)]
enum OrderedRows {
    First(usize),
    /// All of the only table below it, if it has one.
    All {
        of_one_table: bool,
        /// The column of it that they are sorted by first, if it is one.
        key: Option<usize>,
    },
}

/// The sort of which a plan gives the rows, seen through nodes that only pass some of its columns and rows on.
fn ordered_rows(plan: &LogicalPlan) -> Option<OrderedRows> {
    match plan {
        LogicalPlan::Sort(Sort { fetch: Some(rows), .. }) => Some(OrderedRows::First(*rows)),
        LogicalPlan::Sort(sort) => {
            let key = sort.expr.first().and_then(|key| plain_column(&key.expr));
            let key = key.and_then(|key| origin_in(&[sort.input.as_ref()], key));
            let key = key.map(|origin| origin.column);
            Some(OrderedRows::All { of_one_table: reads_one_table(&sort.input), key })
        }
        LogicalPlan::Projection(projection) => {
            let passes = projection.expr.iter().all(|column| plain_column(column).is_some());
            passes.then(|| ordered_rows(&projection.input))?
        }
        LogicalPlan::SubqueryAlias(alias) => ordered_rows(&alias.input),
        LogicalPlan::Limit(limit) => ordered_rows(&limit.input),
        _ => None,
    }
}

fn reads_one_table(plan: &LogicalPlan) -> bool {
    match plan.inputs().as_slice() {
        [] => matches!(plan, LogicalPlan::TableScan(_)),
        [input] => reads_one_table(input),
        _ => false,
    }
}

/// What the columns of one scan cost early and late. `None` if nothing is known of it.
fn cost_of(
    plan: &LogicalPlan,
    way: &Way,
    columns: &[(usize, usize)],
    ordered: OrderedRows,
    circumstances: Circumstances,
) -> Option<SortCost> {
    let in_table: Vec<usize> = columns.iter().map(|(_, in_table)| *in_table).collect();
    let table = table_at(plan, way)?;
    let cost = cost::FetchCost::of(&table, &in_table)?;
    Some(match ordered {
        OrderedRows::First(rows) => cost.of_first_rows(rows),
        OrderedRows::All { of_one_table: false, .. } => return None,
        OrderedRows::All { key, .. } => {
            let is_late = |number: usize| columns.iter().any(|(late, _)| *late == number);
            let kept = plan.schema().fields().iter().enumerate().filter(|(number, _)| !is_late(*number));
            let kept_bytes =
                kept.map(|(_, field)| column_bytes(field.data_type(), TEXT_BYTES)).sum::<usize>();
            let pages_of_a_value = key.and_then(|key| pages_of_a_value(&table, key));
            let sorted = cost::SortedRows {
                kept_bytes: kept_bytes as f64,
                pages_of_a_value: pages_of_a_value.unwrap_or(table.pages() as f64),
            };
            cost.of_sorted_rows(&sorted, circumstances.memory_bytes)
        }
    })
}
