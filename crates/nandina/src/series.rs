//! `range(…)` and `generate_series(…)` in `FROM`: DataFusion's, for integers of any type and for texts of them.

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::catalog::view::ViewTable;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::Result;
use datafusion::datasource::provider_as_source;
use datafusion::functions_table::generate_series::{GenerateSeriesFunc, RangeFunc};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, cast, ident};

/// A function that gives the values of a series.
#[derive(Debug)]
pub(crate) struct Series(Arc<dyn TableFunctionImpl>);

impl Series {
    /// Without the end.
    pub(crate) fn range() -> Self {
        Series(Arc::new(RangeFunc {}))
    }

    /// With the end.
    pub(crate) fn generate_series() -> Self {
        Series(Arc::new(GenerateSeriesFunc {}))
    }
}

impl TableFunctionImpl for Series {
    fn call_with_args(&self, arguments: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let bounds: Vec<Expr> = arguments.exprs().iter().map(as_bound).collect();
        in_microseconds(self.0.call_with_args(TableFunctionArgs::new(&bounds, arguments.session()))?)
    }
}

/// A series of timestamps as the type `TIMESTAMP`: DataFusion's are in nanoseconds.
fn in_microseconds(series: Arc<dyn TableProvider>) -> Result<Arc<dyn TableProvider>> {
    let schema = series.schema();
    let [field] = schema.fields().as_ref() else { return Ok(series) };
    let DataType::Timestamp(TimeUnit::Nanosecond, zone) = field.data_type() else { return Ok(series) };
    let to = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
    let value = cast(ident(field.name()), to).alias(field.name());
    let rows = LogicalPlanBuilder::scan("series", provider_as_source(series), None)?;
    Ok(Arc::new(ViewTable::new(rows.project([value])?.build()?, None)))
}

/// An integer, also one in a text, as a `BIGINT`, and a timestamp in nanoseconds, which DataFusion asks for; what is neither,
/// and one that is too large, as it is.
fn as_bound(bound: &Expr) -> Expr {
    let Expr::Literal(value, metadata) = bound else { return bound.clone() };
    let to = match value.data_type() {
        of if of.is_integer() || of.is_string() => DataType::Int64,
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Nanosecond, zone),
        _ => return bound.clone(),
    };
    match value.cast_to(&to) {
        Ok(value) => Expr::Literal(value, metadata.clone()),
        Err(_) => bound.clone(),
    }
}
