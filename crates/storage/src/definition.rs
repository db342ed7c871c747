//! Tables that are to be made, and rows that are to come into one.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use nandina_device::Device;
use nandina_pages::PageSchema;

use crate::alter::TableState;
use crate::error::{Result, StorageError};
use crate::objects::{Sequence, TableRules};
use crate::rows::{HeapChanges, HeapRecord, IndexDefinition, Vacuumed};
use crate::segment::TableShape;

pub const MIN_PAGE_BYTES: usize = 32 << 10;
pub const MAX_PAGE_BYTES: usize = 4 << 20;

/// A table to be created.
#[derive(Debug, Clone)]
pub struct TableDefinition {
    /// As [`qualified`](crate::qualified) gives it.
    pub name: String,
    pub schema: SchemaRef,
    /// A power of two from [`MIN_PAGE_BYTES`] to [`MAX_PAGE_BYTES`]; what suits the device if `None`.
    pub page_bytes: Option<usize>,
    pub rules: TableRules,
    /// Whether rows are changed one by one, and which indexes there are then.
    pub rows: Option<Vec<IndexDefinition>>,
    /// Sequences that number its rows, which are made with it.
    pub sequences: Vec<Sequence>,
    /// The table of the same name that it replaces, as long as that is as it was.
    pub in_place_of: Option<TableState>,
}

impl TableDefinition {
    pub fn new(name: impl Into<String>, schema: SchemaRef) -> Self {
        let (page_bytes, rules, rows, sequences, in_place_of) = Default::default();
        Self { name: name.into(), schema, page_bytes, rules, rows, sequences, in_place_of }
    }

    pub fn with_page_bytes(mut self, page_bytes: usize) -> Self {
        self.page_bytes = Some(page_bytes);
        self
    }

    pub fn with_rules(mut self, rules: TableRules) -> Self {
        self.rules = rules;
        self
    }

    /// Its rows are changed one by one, and are found by these indexes.
    pub fn with_rows(mut self, indexes: Vec<IndexDefinition>) -> Self {
        self.rows = Some(indexes);
        self
    }

    /// It replaces a table whose rows it has, unless that has others by then: [`StorageError::TableChanging`].
    pub fn in_place_of(mut self, state: TableState) -> Self {
        self.in_place_of = Some(state);
        self
    }

    /// Size of its pages on a device: the smallest at which skipping columns pays there.
    ///
    /// Larger pages cost memory in small budgets and bytes in fetching single rows; smaller ones cost requests
    /// (docs/benchmarks/scan.md).
    pub fn page_bytes_on(&self, device: &Device) -> usize {
        self.page_bytes.unwrap_or_else(|| device.sizes().page_bytes.clamp(MIN_PAGE_BYTES, MAX_PAGE_BYTES))
    }

    pub(crate) fn check(&self) -> Result<()> {
        let can_be =
            |bytes: usize| bytes.is_power_of_two() && (MIN_PAGE_BYTES..=MAX_PAGE_BYTES).contains(&bytes);
        if let Some(page_bytes) = self.page_bytes.filter(|&bytes| !can_be(bytes)) {
            return Err(StorageError::PageSize { page_bytes });
        }
        PageSchema::try_new(Arc::clone(&self.schema)).map(drop).map_err(StorageError::Encode)
    }
}

/// What to do when a table of that name exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfExists {
    Fail,
    Replace,
}

/// What a commit does to the catalog.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    Create {
        definition: Box<TableDefinition>,
        if_exists: IfExists,
        rows: Option<HeapRecord>,
    },
    /// `overwrite` has the changes of rows that those know of who replace all.
    Rows {
        shape: Arc<TableShape>,
        overwrite: Option<HeapChanges>,
    },
    /// Rows of a table that were in the heap, or in segments with deleted rows.
    Vacuum {
        shape: Arc<TableShape>,
        vacuumed: Vacuumed,
    },
}
