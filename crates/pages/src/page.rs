//! Reading a whole page.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_buffer::Buffer;
use arrow_schema::Field;

use crate::error::{PageError, Result};
use crate::format::{MiniPageMeta, PageIdentity, PageMeta, read_front};
use crate::mini_page::{ColumnParts, column_array, column_parts, verify_checksum};
use crate::schema::PageSchema;

/// What [`Page::open`] checks besides structure, which is always checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// Header and every mini-page: for bytes that come from a medium.
    Checksums,
    /// Nothing: for bytes that this process wrote and never let go of.
    Trusted,
}

/// An encoded page and its directory. Cloning shares the bytes; arrays made from it keep them alive.
#[derive(Debug, Clone)]
pub struct Page {
    bytes: Buffer,
    schema: Arc<PageSchema>,
    meta: Arc<PageMeta>,
}

impl Page {
    /// `bytes` starts with the page's header and holds at least its used bytes.
    pub fn open(bytes: Buffer, schema: Arc<PageSchema>, verify: Verify) -> Result<Self> {
        let meta = read_front(&bytes, bytes.len(), verify == Verify::Checksums)?;
        let page_number = meta.identity.page_number;
        if meta.columns.len() != schema.columns() {
            let (found, expected) = (meta.columns.len(), schema.columns());
            return Err(PageError::ColumnCount { page_number, found, expected });
        }
        let page = Self { bytes, schema, meta: Arc::new(meta) };
        if verify == Verify::Checksums {
            for (field, mini_page) in page.schema.arrow().fields().iter().zip(&page.meta.columns) {
                verify_checksum(&page.slice(mini_page), field.name(), mini_page)
                    .map_err(|error| error.in_page(page_number))?;
            }
        }
        Ok(page)
    }

    pub fn identity(&self) -> PageIdentity {
        self.meta.identity
    }

    pub fn rows(&self) -> usize {
        self.meta.rows as usize
    }

    pub fn columns(&self) -> usize {
        self.meta.columns.len()
    }

    pub fn meta(&self) -> &PageMeta {
        &self.meta
    }

    pub fn schema(&self) -> &Arc<PageSchema> {
        &self.schema
    }

    /// Bytes kept in memory by this page and everything made from it.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Column `column` as an array that points into the page.
    pub fn column(&self, column: usize) -> Result<ArrayRef> {
        let (field, meta) = self.entry(column)?;
        column_array(self.slice(meta), field, self.rows(), meta).map_err(|error| self.located(error))
    }

    /// The raw buffers of a column: cheap, for kernels that need no array.
    pub fn parts(&self, column: usize) -> Result<ColumnParts> {
        let (field, meta) = self.entry(column)?;
        column_parts(self.slice(meta), field, self.rows(), meta).map_err(|error| self.located(error))
    }

    /// The rows of the page, with all columns or those of `projection` in its order.
    pub fn batch(&self, projection: Option<&[usize]>) -> Result<RecordBatch> {
        let schema = match projection {
            None => Arc::clone(self.schema.arrow()),
            Some(columns) => Arc::new(self.schema.arrow().project(columns)?),
        };
        let arrays = match projection {
            None => (0..self.columns()).map(|column| self.column(column)).collect::<Result<Vec<_>>>()?,
            Some(columns) => columns.iter().map(|&column| self.column(column)).collect::<Result<Vec<_>>>()?,
        };
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows()));
        Ok(RecordBatch::try_new_with_options(schema, arrays, &options)?)
    }

    fn entry(&self, column: usize) -> Result<(&Field, &MiniPageMeta)> {
        let missing = PageError::NoSuchColumn { column, columns: self.columns() };
        let meta = self.meta.columns.get(column).ok_or(missing)?;
        Ok((self.schema.arrow().field(column), meta))
    }

    /// Positions were checked against the length of the page when it was opened.
    fn slice(&self, meta: &MiniPageMeta) -> Buffer {
        let Range { start, end } = meta.range();
        self.bytes.slice_with_length(start, end - start)
    }

    fn located(&self, error: PageError) -> PageError {
        error.in_page(self.meta.identity.page_number)
    }
}
