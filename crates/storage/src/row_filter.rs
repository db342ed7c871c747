//! Filters on rows, asked before the columns that only their survivors need are decoded.

use std::error::Error;
use std::fmt::Debug;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray};
use arrow_buffer::Buffer;
use arrow_schema::Field;
use nandina_pages::{DictionaryParts, MiniPageMeta, decode_dictionary, decode_mini_page};

use crate::error::Result;
use crate::segment::Segment;

/// Says which rows of a page are wanted.
pub trait RowFilter: Debug + Send + Sync {
    /// Columns of the table that it may ask for.
    fn columns(&self) -> Vec<usize>;

    /// One flag per row, without nulls; `None` keeps all rows. Asked once for each page.
    fn keep(&self, page: &mut PageColumns<'_>) -> Result<Option<BooleanArray>, Box<dyn Error + Send + Sync>>;
}

/// The columns of a page that has been read, decoded when they are asked for.
pub struct PageColumns<'a> {
    pub(crate) segment: &'a Segment,
    pub(crate) page: u64,
    pub(crate) rows: usize,
    /// The columns read.
    pub(crate) read: Vec<ReadColumn<'a>>,
}

pub(crate) struct ReadColumn<'a> {
    /// In the table.
    pub number: usize,
    pub field: &'a Field,
    pub meta: MiniPageMeta,
    pub bytes: Buffer,
    pub decoded: Option<ArrayRef>,
    pub dictionary: Option<Arc<DictionaryParts>>,
}

impl PageColumns<'_> {
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// A column of the table, among those that the filter named.
    pub fn column(&mut self, column: usize) -> Result<ArrayRef> {
        let position = self.position(column)?;
        self.at(position)
    }

    /// The same as distinct values and codes, if it is stored so in this page and has not been decoded yet.
    pub fn dictionary(&mut self, column: usize) -> Result<Option<Arc<DictionaryParts>>> {
        let position = self.position(column)?;
        let read = &mut self.read[position];
        if read.decoded.is_some() {
            return Ok(None);
        }
        if read.dictionary.is_none() {
            let parts = decode_dictionary(read.bytes.clone(), read.field, self.rows, &read.meta)
                .map_err(|error| self.segment.in_page(self.page, error))?;
            read.dictionary = parts.map(Arc::new);
        }
        Ok(read.dictionary.clone())
    }

    fn position(&self, column: usize) -> Result<usize> {
        let position = self.read.iter().position(|read| read.number == column);
        position.ok_or_else(|| self.segment.no_column(column))
    }

    /// The column at a position among those that were read.
    pub(crate) fn at(&mut self, position: usize) -> Result<ArrayRef> {
        let read = &mut self.read[position];
        if let Some(array) = &read.decoded {
            return Ok(array.clone());
        }
        let array = decode_mini_page(read.bytes.clone(), read.field, self.rows, &read.meta)
            .map_err(|error| self.segment.in_page(self.page, error))?;
        read.decoded = Some(array.clone());
        Ok(array)
    }
}
