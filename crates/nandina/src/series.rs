//! `range(…)` and `generate_series(…)` in `FROM`: DataFusion's, for integers of any type and for texts of them.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::Result;
use datafusion::functions_table::generate_series::{GenerateSeriesFunc, RangeFunc};
use datafusion::logical_expr::Expr;

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
        let bounds: Vec<Expr> = arguments.exprs().iter().map(as_bigint).collect();
        self.0.call_with_args(TableFunctionArgs::new(&bounds, arguments.session()))
    }
}

/// An integer, also one in a text, as a `BIGINT`; what is no integer, and one that is too large, as it is.
fn as_bigint(bound: &Expr) -> Expr {
    if let Expr::Literal(value, metadata) = bound
        && (value.data_type().is_integer() || value.data_type().is_string())
        && let Ok(number) = value.cast_to(&DataType::Int64)
    {
        return Expr::Literal(number, metadata.clone());
    }
    bound.clone()
}
