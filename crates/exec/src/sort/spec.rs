//! Everything about a sort that is known before its first row.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::Result;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use nandina_pages::PageSchema;

use super::keys::{Keys, TextColumn};
use super::volatile::VolatileColumns;
use crate::error::pages_error;

/// The sort as the operator's parts see it.
#[derive(Debug)]
pub struct SortSpec {
    pub ordering: LexOrdering,
    /// Of what keys begin with, if that is anything.
    encoder: Option<KeyEncoder>,
    /// What they end with.
    text: Option<TextColumn>,
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
        let text = ordering.last().and_then(|last| TextColumn::of(last, &schema));
        let encoded = ordering.len() - usize::from(text.is_some());
        let encoder = match encoded {
            0 => None,
            _ => Some(KeyEncoder::try_new(ordering.iter().take(encoded).cloned(), &schema)?),
        };
        let pages = PageSchema::try_new(Arc::clone(&schema)).map_err(pages_error)?;
        Ok(Self { ordering, encoder, text, schema, volatile, pages, batch_rows, fetch })
    }

    /// The keys of all rows.
    pub fn keys(&self, rows: &RecordBatch) -> Result<Keys> {
        let encoded = self.encoder.as_ref().map(|encoder| encoder.keys(rows)).transpose()?;
        Keys::try_new(encoded, self.text, rows)
    }

    /// The keys of a copy of the rows that `keys` are those of, which holds on to nothing else then.
    pub fn keys_of_copy(&self, keys: Keys, rows: &RecordBatch) -> Result<Keys> {
        Keys::try_new(keys.into_encoded(), self.text, rows)
    }

    /// The keys of `rows`, which are copies of these rows of others.
    pub fn keys_at<'a>(
        &self,
        places: impl Iterator<Item = (&'a Keys, usize)> + Clone,
        rows: &RecordBatch,
    ) -> Result<Keys> {
        let encoded = self.encoder.as_ref().map(|encoder| {
            let encoded = places.filter_map(|(keys, row)| Some(keys.encoded()?.row(row)));
            let bytes = encoded.clone().map(|key| key.data().len()).sum();
            let mut copied = encoder.converter.empty_rows(rows.num_rows(), bytes);
            encoded.for_each(|key| copied.push(key));
            copied
        });
        Keys::try_new(encoded, self.text, rows)
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
