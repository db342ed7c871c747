//! Rows as keys that are equal where the rows are the same.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::Result;
use nandina_pages::PageSchema;

use crate::error::pages_error;
use crate::keys::{GroupTable, KeyHasher, KeyLayout, KeyedRows, hashes_of};

/// How rows of one schema become keys, and how both lie in temporary space.
#[derive(Debug)]
pub struct RowKeys {
    schema: SchemaRef,
    layout: KeyLayout,
    key_fields: Vec<FieldRef>,
    hasher: KeyHasher,
    /// Hashes, then keys.
    pub key_pages: Arc<PageSchema>,
    /// Hashes, then rows as they are.
    pub row_pages: Arc<PageSchema>,
}

impl RowKeys {
    /// Fails if a column has a type that keys or pages cannot be made of.
    pub fn try_new(schema: SchemaRef) -> Result<Self> {
        let layout = KeyLayout::try_new(schema.fields().iter().map(|field| field.data_type()))?;
        let key_fields: Vec<FieldRef> = layout.fields().collect();
        let key_pages = hashed_pages(&key_fields)?;
        let row_pages = hashed_pages(schema.fields())?;
        Ok(Self { schema, layout, key_fields, hasher: KeyHasher::new(0), key_pages, row_pages })
    }

    /// An empty table of keys.
    pub fn table(&self) -> Result<GroupTable> {
        GroupTable::try_new(self.key_fields.iter().map(|field| field.data_type()))
    }

    /// The keys of rows.
    pub fn of(&self, rows: &RecordBatch) -> Result<KeyedRows> {
        KeyedRows::hash(self.layout.store(rows.columns())?, rows.num_rows(), &self.hasher)
    }

    /// Keys as they lie in temporary space.
    pub fn stored(&self, hashes: UInt64Array, keys: Vec<ArrayRef>) -> Result<RecordBatch> {
        hashed(&self.key_pages, hashes, keys)
    }

    /// Keys that lay in temporary space.
    pub fn of_stored(&self, stored: &RecordBatch) -> KeyedRows {
        let keys = stored.columns().iter().skip(1).cloned().collect();
        KeyedRows { hashes: hashes_of(stored).clone(), keys }
    }

    /// Rows as they lie in temporary space.
    pub fn stored_rows(&self, rows: &RecordBatch, hashes: ScalarBuffer<u64>) -> Result<RecordBatch> {
        hashed(&self.row_pages, UInt64Array::new(hashes, None), rows.columns().to_vec())
    }

    /// Rows that lay in temporary space, and their keys.
    pub fn of_stored_rows(&self, stored: &RecordBatch) -> Result<(RecordBatch, KeyedRows)> {
        let columns: Vec<ArrayRef> = stored.columns().iter().skip(1).cloned().collect();
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        let keys = self.layout.store(rows.columns())?;
        Ok((rows, KeyedRows { hashes: hashes_of(stored).clone(), keys }))
    }
}

fn hashed_pages<'a>(columns: impl IntoIterator<Item = &'a FieldRef>) -> Result<Arc<PageSchema>> {
    let hash = Arc::new(Field::new("hash", DataType::UInt64, false));
    let fields: Vec<FieldRef> = std::iter::once(hash).chain(columns.into_iter().cloned()).collect();
    PageSchema::try_new(Arc::new(Schema::new(fields))).map_err(pages_error)
}

fn hashed(pages: &PageSchema, hashes: UInt64Array, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
    let hashes: ArrayRef = Arc::new(hashes);
    let columns = std::iter::once(hashes).chain(columns).collect();
    Ok(RecordBatch::try_new(Arc::clone(pages.arrow()), columns)?)
}
