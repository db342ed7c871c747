//! Where rows are wanted in an order.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::logical_expr::{LogicalPlan, Sort};
use nandina_exec::batch::row_width::{TEXT_BYTES, column_bytes};

use super::above::{Fetches, LateColumns, fetched_above, table_at, unused_columns};
use super::algorithm::SortAlgorithm;
use super::cost;
use super::locality::pages_of_a_value;
use super::origins::{Way, origin_in, plain_column};
use super::planner::Circumstances;

/// The plan with columns that are read late above its sorts, where that is cheaper or asked for.
pub(super) fn fetch_above_sorts(
    plan: LogicalPlan,
    circumstances: Circumstances,
) -> Result<Transformed<LogicalPlan>> {
    if circumstances.sort_algorithm == SortAlgorithm::Merge {
        return Ok(Transformed::no(plan));
    }
    plan.transform_down_with_subqueries(|part| match late_above(&part, circumstances)? {
        // Seen again, the sort below would get another fetch.
        Some(late) => Ok(Transformed::new(late, true, TreeNodeRecursion::Jump)),
        None => Ok(Transformed::no(part)),
    })
}

/// A fetch above `part`, if it gives rows in an order and a fetch of them pays.
fn late_above(part: &LogicalPlan, circumstances: Circumstances) -> Result<Option<LogicalPlan>> {
    let Some(ordered) = ordered_rows(part) else { return Ok(None) };
    let late = late_columns(part, ordered, circumstances)?;
    if late.is_empty() { Ok(None) } else { fetched_above(part, &late, &Fetches::InOrder).map(Some) }
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

/// The columns of `plan` that are to be read late.
fn late_columns(
    plan: &LogicalPlan,
    ordered: OrderedRows,
    circumstances: Circumstances,
) -> Result<LateColumns> {
    let mut late = unused_columns(plan)?;
    if circumstances.sort_algorithm == SortAlgorithm::Auto {
        late.retain(|way, columns| pays(plan, way, columns, ordered, circumstances).unwrap_or(false));
    }
    Ok(late)
}

/// Whether the columns of one scan are cheaper to read late. `None` if nothing is known of it.
fn pays(
    plan: &LogicalPlan,
    way: &Way,
    columns: &[(usize, usize)],
    ordered: OrderedRows,
    circumstances: Circumstances,
) -> Option<bool> {
    let in_table: Vec<usize> = columns.iter().map(|(_, in_table)| *in_table).collect();
    let table = table_at(plan, way)?;
    let cost = cost::FetchCost::of(&table, &in_table)?;
    Some(match ordered {
        OrderedRows::First(rows) => cost.pay_for(rows),
        OrderedRows::All { of_one_table: false, .. } => false,
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
            cost.pay_for_sort(&sorted, circumstances.memory_bytes)
        }
    })
}
