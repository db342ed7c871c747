//! Where rows are wanted in an order.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Column, Result, internal_err};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, Projection, Sort};
use datafusion::optimizer::optimize_projections::OptimizeProjections;
use datafusion::optimizer::{OptimizerContext, OptimizerRule as _};
use nandina_storage::Table;

use super::algorithm::SortAlgorithm;
use super::cost;
use super::node::{LateColumn, LateFetch, LateTable};
use super::origins::{Origin, Way, origin, plain_column, used, with_provider};
use super::row_ids::{can_be_named, with_row_ids};
use crate::ForgetKeys;

/// What the choice between early and late depends on, beside the plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances {
    pub sort_algorithm: SortAlgorithm,
    /// The session's limit.
    pub memory_bytes: Option<usize>,
}

/// The plan with columns that are read late, where that is cheaper or asked for.
pub(super) fn fetch_late(plan: LogicalPlan, circumstances: Circumstances) -> Result<LogicalPlan> {
    if circumstances.sort_algorithm == SortAlgorithm::Merge || !can_be_named(&plan)? {
        return Ok(plan);
    }
    let late = plan.transform_down_with_subqueries(|part| match late_above(&part, circumstances)? {
        // Seen again, the sort below would get another fetch.
        Some(late) => Ok(Transformed::new(late, true, TreeNodeRecursion::Jump)),
        None => Ok(Transformed::no(part)),
    })?;
    if !late.transformed {
        return Ok(late.data);
    }
    // Below the fetches there are columns now that nothing needs.
    let pruned =
        ForgetKeys(Arc::new(OptimizeProjections::new())).rewrite(late.data, &OptimizerContext::new())?;
    Ok(pruned.data)
}

/// A fetch above `part`, if it gives rows in an order and a fetch of them pays.
fn late_above(part: &LogicalPlan, circumstances: Circumstances) -> Result<Option<LogicalPlan>> {
    let Some(ordered) = ordered_rows(part) else { return Ok(None) };
    let late = late_columns(part, ordered, circumstances)?;
    if late.is_empty() { Ok(None) } else { fetch_above(part, &late).map(Some) }
}

/// Rows that a sort gives.
#[derive(Clone, Copy)]
enum OrderedRows {
    First(usize),
    /// All of the only table below it, if it has one.
    All {
        of_one_table: bool,
    },
}

/// The sort of which a plan gives the rows, seen through nodes that only pass some of its columns and rows on.
fn ordered_rows(plan: &LogicalPlan) -> Option<OrderedRows> {
    match plan {
        LogicalPlan::Sort(Sort { fetch: Some(rows), .. }) => Some(OrderedRows::First(*rows)),
        LogicalPlan::Sort(sort) => Some(OrderedRows::All { of_one_table: reads_one_table(&sort.input) }),
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

/// Columns of `plan` by the scan that they come from: its number in the plan and in the table.
type LateColumns = BTreeMap<Way, Vec<(usize, usize)>>;

/// The columns of `plan` that are to be read late.
fn late_columns(
    plan: &LogicalPlan,
    ordered: OrderedRows,
    circumstances: Circumstances,
) -> Result<LateColumns> {
    let used = used(plan)?;
    let mut late = LateColumns::new();
    for column in 0..plan.schema().fields().len() {
        if let Some(origin) = origin(plan, column).filter(|origin| !used.contains(origin)) {
            let Origin { way, column: in_table } = origin;
            late.entry(way).or_default().push((column, in_table));
        }
    }
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
    let columns = cost::LateColumns::of(&table, &in_table)?;
    Some(match ordered {
        OrderedRows::First(rows) => columns.pay_for(rows),
        OrderedRows::All { of_one_table } => of_one_table && columns.pay_for_sort(circumstances.memory_bytes),
    })
}

/// The snapshot that the scan reads to which `way` leads.
fn table_at(plan: &LogicalPlan, way: &[usize]) -> Option<Table> {
    match (way.split_first(), plan) {
        (None, LogicalPlan::TableScan(scan)) => with_provider(scan, |provider| provider.table().clone()),
        (None, _) => None,
        (Some((input, rest)), _) => table_at(plan.inputs().get(*input)?, rest),
    }
}

/// `plan` without these columns, which are fetched above it; the columns stand where they stood.
fn fetch_above(plan: &LogicalPlan, late: &LateColumns) -> Result<LogicalPlan> {
    let ways: Vec<Way> = late.keys().cloned().collect();
    let (with_ids, row_ids) = with_row_ids(plan, &ways)?;
    let is_late = |column: usize| late.values().flatten().any(|(other, _)| *other == column);
    let schema = plan.schema();
    let columns: Vec<Column> = schema.columns();
    let early = columns.iter().enumerate().filter(|(number, _)| !is_late(*number));
    let kept = early.map(|(_, column)| column).chain(row_ids.values()).cloned().map(Expr::Column);
    let input = LogicalPlan::Projection(Projection::try_new(kept.collect(), Arc::new(with_ids))?);
    let mut tables = Vec::new();
    for (way, columns) in late {
        let (Some(table), Some(row_ids)) = (table_at(plan, way), row_ids.get(way)) else {
            return internal_err!("a scan has lost its row ids");
        };
        let columns = columns.iter().map(|&(number, column)| {
            let (relation, field) = schema.qualified_field(number);
            LateColumn { column, relation: relation.cloned(), field: Arc::clone(field) }
        });
        tables.push(LateTable { table, row_ids: row_ids.clone(), columns: columns.collect() });
    }
    let fetch = LateFetch::try_new(input, tables)?;
    let fetch = Arc::new(LogicalPlan::Extension(Extension { node: Arc::new(fetch) }));
    let as_before = columns.into_iter().map(Expr::Column).collect();
    let projection = Projection::try_new_with_schema(as_before, fetch, Arc::clone(schema))?;
    Ok(LogicalPlan::Projection(projection))
}
