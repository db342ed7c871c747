//! Sort expressions that have another value each time they are computed, such as `random()`.
//!
//! ```text
//!   a, b ─► a, b, random() ─► lanes, runs, merge: ORDER BY a column ─► a, b, random() ─► a, b
//! ```
//!
//! Keys of a row are made when it comes and again when its run is read, and a threshold looks at sort columns before
//! there are keys. A row that drew lots every time would have to win every time. So such expressions are computed once,
//! and their values travel with the row, in columns behind its own.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::{DataFusionError, Result};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalExprRef, PhysicalSortExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;

/// The columns that rows have inside of the sort only.
#[derive(Debug)]
pub struct VolatileColumns {
    expressions: Vec<PhysicalExprRef>,
    /// Of rows outside of the sort, and inside.
    outer: SchemaRef,
    inner: SchemaRef,
}

impl VolatileColumns {
    /// The columns that an ordering of rows of `outer` needs, and the ordering by those columns.
    pub fn of(ordering: LexOrdering, outer: SchemaRef) -> Result<(Self, LexOrdering)> {
        let mut expressions = Vec::new();
        let mut fields: Vec<_> = outer.fields().iter().cloned().collect();
        let mut inner_ordering = Vec::new();
        for PhysicalSortExpr { expr, options } in ordering {
            let expr = match is_volatile(&expr) {
                true => {
                    let name = format!("sort expression {}", expressions.len());
                    let column = Arc::new(Column::new(&name, fields.len())) as PhysicalExprRef;
                    fields.push(Arc::new(Field::new(name, expr.data_type(&outer)?, true)));
                    expressions.push(expr);
                    column
                }
                false => expr,
            };
            inner_ordering.push(PhysicalSortExpr { expr, options });
        }
        let inner = match expressions.is_empty() {
            true => Arc::clone(&outer),
            false => Arc::new(Schema::new_with_metadata(fields, outer.metadata().clone())),
        };
        let inner_ordering = LexOrdering::new(inner_ordering)
            .ok_or_else(|| DataFusionError::Internal("a sort has no sort expressions".to_owned()))?;
        Ok((Self { expressions, outer, inner }, inner_ordering))
    }

    /// The schema of rows inside of the sort.
    pub fn schema(&self) -> &SchemaRef {
        &self.inner
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.expressions.is_empty()
    }

    /// Rows that have come, with their columns for the time inside.
    pub fn add(&self, rows: RecordBatch) -> Result<RecordBatch> {
        if self.is_empty() {
            return Ok(rows);
        }
        let mut columns = rows.columns().to_vec();
        for expression in &self.expressions {
            columns.push(expression.evaluate(&rows)?.into_array(rows.num_rows())?);
        }
        with_columns(&self.inner, columns, rows.num_rows())
    }

    /// Rows that leave.
    pub fn remove(&self, rows: RecordBatch) -> Result<RecordBatch> {
        if self.is_empty() {
            return Ok(rows);
        }
        let mut columns = rows.columns().to_vec();
        columns.truncate(self.outer.fields().len());
        with_columns(&self.outer, columns, rows.num_rows())
    }
}

fn with_columns(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}
