//! Everything about a sort that is known before its first row.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::Result;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use nandina_pages::PageSchema;

use super::volatile::VolatileColumns;
use crate::error::pages_error;

/// The sort as the operator's parts see it.
#[derive(Debug)]
pub struct SortSpec {
    pub ordering: LexOrdering,
    encoder: KeyEncoder,
    /// Of rows inside of the sort.
    pub schema: SchemaRef,
    /// What rows outside of it do not have.
    pub volatile: VolatileColumns,
    /// The layout of the pages of runs.
    pub pages: Arc<PageSchema>,
    /// Most rows in an output batch.
    pub batch_rows: usize,
    /// So many rows, the first in order, are enough.
    pub fetch: Option<usize>,
}

impl SortSpec {
    /// Fails if the row format cannot order the sort columns, or pages cannot hold the rows.
    pub fn try_new(
        ordering: LexOrdering,
        schema: SchemaRef,
        batch_rows: usize,
        fetch: Option<usize>,
    ) -> Result<Self> {
        let (volatile, ordering) = VolatileColumns::of(ordering, schema)?;
        let schema = Arc::clone(volatile.schema());
        let encoder = KeyEncoder::try_new(ordering.iter().cloned(), &schema)?;
        let pages = PageSchema::try_new(Arc::clone(&schema)).map_err(pages_error)?;
        Ok(Self { ordering, encoder, schema, volatile, pages, batch_rows, fetch })
    }

    /// The keys of all rows.
    pub fn keys(&self, rows: &RecordBatch) -> Result<Rows> {
        self.encoder.keys(rows)
    }

    /// Room for the keys of so many rows, of so many bytes together.
    pub fn empty_keys(&self, rows: usize, bytes: usize) -> Rows {
        self.encoder.converter.empty_rows(rows, bytes)
    }
}

/// Makes keys that compare as bytes out of the values of some expressions.
#[derive(Debug)]
pub struct KeyEncoder {
    expressions: Vec<PhysicalSortExpr>,
    converter: RowConverter,
}

impl KeyEncoder {
    /// An encoder for rows of `schema`.
    pub fn try_new(
        expressions: impl IntoIterator<Item = PhysicalSortExpr>,
        schema: &SchemaRef,
    ) -> Result<Self> {
        let expressions: Vec<PhysicalSortExpr> = expressions.into_iter().collect();
        let field = |expression: &PhysicalSortExpr| -> Result<SortField> {
            Ok(SortField::new_with_options(expression.expr.data_type(schema)?, expression.options))
        };
        let fields = expressions.iter().map(field).collect::<Result<Vec<_>>>()?;
        Ok(Self { expressions, converter: RowConverter::new(fields)? })
    }

    /// The keys of all rows.
    pub fn keys(&self, rows: &RecordBatch) -> Result<Rows> {
        let evaluate = |expression: &PhysicalSortExpr| -> Result<ArrayRef> {
            expression.expr.evaluate(rows)?.into_array(rows.num_rows())
        };
        let columns = self.expressions.iter().map(evaluate).collect::<Result<Vec<_>>>()?;
        Ok(self.converter.convert_columns(&columns)?)
    }
}
