//! Fetches above a plan, and the same plan without the columns that they bring.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::{Column, Result, internal_err};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, Projection};
use nandina_exec::fetch::{FetchEstimate, RowOrder};
use nandina_storage::Table;

use super::node::{LateColumn, LateFetch, LateTable};
use super::origins::{Origin, Way, origin, used, with_provider};
use super::row_ids::with_row_ids;

/// Columns of a plan by the scan that they come from: its number in the plan and in the table.
pub(super) type LateColumns = BTreeMap<Way, Vec<(usize, usize)>>;

/// The columns of `plan` that nothing in it computes with.
pub(super) fn unused_columns(plan: &LogicalPlan) -> Result<LateColumns> {
    let used = used(plan)?;
    let mut unused = LateColumns::new();
    for column in 0..plan.schema().fields().len() {
        if let Some(origin) = origin(plan, column).filter(|origin| !used.contains(origin)) {
            let Origin { way, column: in_table } = origin;
            unused.entry(way).or_default().push((column, in_table));
        }
    }
    Ok(unused)
}

/// The snapshot that the scan reads to which `way` leads.
pub(super) fn table_at(plan: &LogicalPlan, way: &[usize]) -> Option<Table> {
    match (way.split_first(), plan) {
        (None, LogicalPlan::TableScan(scan)) => with_provider(scan, |provider| provider.table().clone()),
        (None, _) => None,
        (Some((input, rest)), _) => table_at(plan.inputs().get(*input)?, rest),
    }
}

/// A fetch that the planner may do without.
pub(super) struct Candidate {
    pub way: Way,
    pub number: usize,
    pub order: RowOrder,
}

/// Fetches above a plan.
pub(super) enum Fetches<'a> {
    /// One of all tables, which keeps the order of the rows.
    InOrder(Option<FetchEstimate>),
    /// One for each table.
    OneByOne(&'a [Candidate]),
}

/// `plan` without these columns, which are fetched above it; the columns stand where they stood.
pub(super) fn fetched_above(
    plan: &LogicalPlan,
    late: &LateColumns,
    fetches: &Fetches<'_>,
) -> Result<LogicalPlan> {
    let ways: Vec<Way> = late.keys().cloned().collect();
    let (with_ids, row_ids) = with_row_ids(plan, &ways)?;
    let is_late = |column: usize| late.values().flatten().any(|(other, _)| *other == column);
    let schema = plan.schema();
    let columns: Vec<Column> = schema.columns();
    let early = columns.iter().enumerate().filter(|(number, _)| !is_late(*number));
    let kept = early.map(|(_, column)| column).chain(row_ids.values()).cloned().map(Expr::Column);
    let mut rows = LogicalPlan::Projection(Projection::try_new(kept.collect(), Arc::new(with_ids))?);
    let late_table = |way: &Way| -> Result<LateTable> {
        let (Some(table), Some(row_ids), Some(columns)) =
            (table_at(plan, way), row_ids.get(way), late.get(way))
        else {
            return internal_err!("a scan has lost its row ids");
        };
        let columns = columns.iter().map(|&(number, column)| {
            let (relation, field) = schema.qualified_field(number);
            LateColumn { column, relation: relation.cloned(), field: Arc::clone(field) }
        });
        Ok(LateTable { table, row_ids: row_ids.clone(), columns: columns.collect() })
    };
    let extension = |fetch: LateFetch| LogicalPlan::Extension(Extension { node: Arc::new(fetch) });
    match fetches {
        Fetches::InOrder(estimate) => {
            let tables = late.keys().map(late_table).collect::<Result<_>>()?;
            let fetch = LateFetch::try_new(rows, tables, RowOrder::Kept)?;
            rows = extension(fetch.estimated(estimate.clone()));
        }
        Fetches::OneByOne(candidates) => {
            for Candidate { way, number, order } in *candidates {
                let fetch = LateFetch::try_new(rows, vec![late_table(way)?], *order)?;
                rows = extension(fetch.numbered(*number));
            }
        }
    }
    let as_before = columns.into_iter().map(Expr::Column).collect();
    Ok(LogicalPlan::Projection(Projection::try_new_with_schema(
        as_before,
        Arc::new(rows),
        Arc::clone(schema),
    )?))
}
