//! Sub-queries that may have no row, and are null then, whatever their column says.
//!
//! `coalesce((SELECT 1 FROM t), 2)` is 2 if `t` is empty. DataFusion takes the sub-query for what its column is, which is
//! never null, and drops the `coalesce`.

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result, internal_err};
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, Subquery, Volatility};

use super::function::call_of;
use crate::sub_queries::always_has_a_row;

#[derive(Debug)]
pub(super) struct EmptyScalars;

impl FunctionRewrite for EmptyScalars {
    fn name(&self) -> &str {
        "empty_scalars"
    }

    fn rewrite(&self, expr: Expr, _: &DFSchema, _: &ConfigOptions) -> Result<Transformed<Expr>> {
        let Expr::ScalarSubquery(subquery) = expr else { return Ok(Transformed::no(expr)) };
        let rows = &subquery.subquery;
        // Columns that may be null, too: of outer joins that become inner ones when plans are improved, they are not.
        if !subquery.outer_ref_columns.is_empty() || always_has_a_row(rows) {
            return Ok(Transformed::no(Expr::ScalarSubquery(subquery)));
        }
        // A constant would be computed ahead, and never be null again.
        let columns = rows.schema().iter().map(|(qualifier, field)| {
            let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
            call_of(Volatility::Volatile, "or_null", same, vec![column])
                .alias_qualified(qualifier.cloned(), field.name())
        });
        let columns: Vec<Expr> = columns.collect();
        let plan = LogicalPlanBuilder::new_from_arc(Arc::clone(rows)).project(columns)?.build()?;
        Ok(Transformed::yes(Expr::ScalarSubquery(Subquery { subquery: Arc::new(plan), ..subquery })))
    }
}

fn same(values: &[ArrayRef]) -> Result<ArrayRef> {
    match values {
        [values] => Ok(Arc::clone(values)),
        _ => internal_err!("or_null has one argument"),
    }
}
