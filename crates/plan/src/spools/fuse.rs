//! One plan for two that differ in their columns alone.
//!
//! DataFusion prunes every copy of a common table expression to the columns that are wanted of it, and to the aggregates.
//! The fused plan computes those of both. Columns go by their names, so that what stands above finds its own among them.
//!
//! The idea is Bruno, Debrunner, Potti, Zhou, *Computation Reuse via Fusion in Amazon Athena*, ICDE 2022; their fusion of
//! different predicates is left out.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection, TableScan, TableScanBuilder};

/// A plan that emits the same rows as both plans, with the columns of both. `None` where none is known.
///
/// Aliases number columns of one name by their places (`x`, `x:1`), which may change: the fused plan is one for `other`
/// only if fusing them again gives it once more.
pub fn fuse(one: &LogicalPlan, other: &LogicalPlan) -> Option<LogicalPlan> {
    match (one, other) {
        (LogicalPlan::TableScan(one), LogicalPlan::TableScan(other)) => fuse_scans(one, other),
        (LogicalPlan::Projection(one), LogicalPlan::Projection(other)) => {
            let (input, columns) = (fuse(&one.input, &other.input)?, union(&one.expr, &other.expr)?);
            Projection::try_new(columns, Arc::new(input)).ok().map(LogicalPlan::Projection)
        }
        // It leaves out what the other plan needs.
        (LogicalPlan::Projection(one), other) if keeps_names(one) => fuse(&one.input, other),
        (one, LogicalPlan::Projection(other)) if keeps_names(other) => fuse(one, &other.input),
        (LogicalPlan::Aggregate(one), LogicalPlan::Aggregate(other))
            if one.group_expr == other.group_expr =>
        {
            let (input, aggregates) =
                (fuse(&one.input, &other.input)?, union(&one.aggr_expr, &other.aggr_expr)?);
            let fused = Aggregate::try_new(Arc::new(input), one.group_expr.clone(), aggregates);
            fused.ok().map(LogicalPlan::Aggregate)
        }
        (
            LogicalPlan::Filter(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Join(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_),
            _,
        ) => fuse_inputs(one, other),
        _ => (one == other && tables(one)? == tables(other)?).then(|| one.clone()),
    }
}

/// Scans of the same rows of a table.
fn fuse_scans(one: &TableScan, other: &TableScan) -> Option<LogicalPlan> {
    let is_same = one.table_name == other.table_name
        && address(one)? == address(other)?
        && one.filters == other.filters
        && one.fetch == other.fetch;
    if !is_same {
        return None;
    }
    let projection = one.projection.as_ref().zip(other.projection.as_ref()).map(|(one, other)| {
        let mut columns = [one.as_slice(), other.as_slice()].concat();
        columns.sort_unstable();
        columns.dedup();
        columns
    });
    let scan = TableScanBuilder::new(one.table_name.clone(), Arc::clone(&one.source))
        .with_projection(projection)
        .with_filters(one.filters.clone())
        .with_fetch(one.fetch);
    scan.build().ok().map(LogicalPlan::TableScan)
}

/// Plans that do the same to their inputs, and pass all columns on.
fn fuse_inputs(one: &LogicalPlan, other: &LogicalPlan) -> Option<LogicalPlan> {
    let (inputs, others) = (one.inputs(), other.inputs());
    if inputs.len() != others.len() {
        return None;
    }
    let fused = inputs.into_iter().zip(others).map(|(one, other)| fuse(one, other));
    let fused = fused.collect::<Option<Vec<_>>>()?;
    // Over the same inputs they are the same.
    let over = |plan: &LogicalPlan| plan.with_new_exprs(plan.expressions(), fused.clone()).ok();
    let (one, other) = (over(one)?, over(other)?);
    (one == other).then_some(one)
}

/// All of both, unless two that are not the same have one name.
fn union(one: &[Expr], other: &[Expr]) -> Option<Vec<Expr>> {
    let mut all = one.to_vec();
    for expression in other.iter().filter(|expression| !one.contains(expression)) {
        let name = expression.qualified_name();
        if one.iter().any(|known| known.qualified_name() == name) {
            return None;
        }
        all.push(expression.clone());
    }
    Some(all)
}

/// Whether a projection only leaves columns out.
fn keeps_names(projection: &Projection) -> bool {
    projection.expr.iter().all(|expression| matches!(expression, Expr::Column(_)))
}

/// The tables of a plan in the order of its scans. Plans compare their names, which functions that make tables give to
/// many.
fn tables(plan: &LogicalPlan) -> Option<Vec<usize>> {
    let mut tables = Some(Vec::new());
    let looked = plan.apply_with_subqueries(|part| {
        if let LogicalPlan::TableScan(scan) = part {
            tables = tables.take().zip(address(scan)).map(|(mut tables, table)| {
                tables.push(table);
                tables
            });
        }
        Ok(TreeNodeRecursion::Continue)
    });
    looked.ok().and(tables)
}

/// Where the table of a scan is in memory.
fn address(scan: &TableScan) -> Option<usize> {
    let table: Arc<dyn TableProvider> = source_as_provider(&scan.source).ok()?;
    Some(Arc::as_ptr(&table).cast::<()>().addr())
}
