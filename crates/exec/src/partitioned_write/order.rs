//! The order in which the rows of a partitioned write have to come, and what its files say about theirs.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::datasource::sink::DataSinkExec;
use datafusion::parquet::file::metadata::SortingColumn;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, LexRequirement, PhysicalSortExpr, PhysicalSortRequirement};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

/// The order of the rows of one value: the one that is required, else the input's own.
pub fn within_value(planned: &DataSinkExec) -> Option<LexRequirement> {
    let own = || planned.input().output_ordering().cloned().map(LexRequirement::from);
    planned.sort_order().clone().or_else(own)
}

/// By the columns with these numbers in `schema`, in either direction, and where those are equal as `within` says.
/// `None` if there are no columns.
pub fn by_value(
    columns: &[usize],
    schema: &Schema,
    within: Option<LexRequirement>,
) -> Option<LexRequirement> {
    let by_column = |&at: &usize| {
        let column = Column::new(schema.field(at).name(), at);
        PhysicalSortRequirement::new(Arc::new(column), None)
    };
    let within = within.into_iter().flatten();
    (!columns.is_empty()).then(|| LexRequirement::new(columns.iter().map(by_column).chain(within)))?
}

/// The input sorted by the columns with these numbers below a projection that hides what its rows are ordered by:
/// `SELECT day, x … ORDER BY t`. `None` if nothing is hidden.
pub fn below_projection(
    input: &Arc<dyn ExecutionPlan>,
    columns: &[usize],
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(projection) = input.downcast_ref::<ProjectionExec>() else { return Ok(None) };
    let Some(order) = projection.input().output_ordering() else { return Ok(None) };
    let shown = input.output_ordering().map_or(0, |shown| shown.len());
    let values: Vec<_> = columns.iter().filter_map(|&at| projection.expr().get(at)).collect();
    if shown >= order.len() || values.iter().any(|value| is_volatile(&value.expr)) {
        return Ok(None);
    }
    let values = values.into_iter().map(|value| PhysicalSortExpr::new_default(Arc::clone(&value.expr)));
    let Some(order) = LexOrdering::new(values.chain(order.iter().cloned())) else { return Ok(None) };
    let sort = Arc::new(SortExec::new(order, Arc::clone(projection.input())));
    Ok(Some(Arc::new(ProjectionExec::try_new(projection.expr().to_vec(), sort)?)))
}

/// The order of the rows of one value for the footer of a Parquet file of `file` columns: as much of `within` as is
/// said in columns of the file. The partition columns, with these numbers among the rows' own, have one value there.
pub fn sorting_columns(
    within: &LexRequirement,
    columns: &[usize],
    file: &Schema,
) -> Option<Vec<SortingColumn>> {
    // Footers number the leaves of nested columns.
    if file.fields().iter().any(|field| field.data_type().is_nested()) {
        return None;
    }
    let of_file = |requirement: &PhysicalSortRequirement| {
        let column = requirement.expr.downcast_ref::<Column>()?;
        let options = requirement.options.unwrap_or_default();
        let mut named = (0..file.fields().len()).filter(|&at| file.field(at).name() == column.name());
        // Two columns of a name cannot be told apart.
        let (Some(at), None) = (named.next(), named.next()) else { return None };
        Some(SortingColumn {
            column_idx: at.try_into().ok()?,
            descending: options.descending,
            nulls_first: options.nulls_first,
        })
    };
    let has_one_value = |requirement: &&PhysicalSortRequirement| {
        let column = requirement.expr.downcast_ref::<Column>();
        column.is_some_and(|column| columns.contains(&column.index()))
    };
    let order: Vec<SortingColumn> =
        within.iter().filter(|requirement| !has_one_value(requirement)).map_while(of_file).collect();
    (!order.is_empty()).then_some(order)
}
