//! A table as a reader sees it: one state of it, kept as long as the handle lives.

use std::sync::{Arc, Weak};

use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, SchemaRef};
use nandina_device::{IoAccount, block_on};
use nandina_pages::RowCodec;

use crate::definition::{IfExists, TableDefinition, Target};
use crate::error::{Result, StorageError};
use crate::ids::{PageNumber, TableId};
use crate::objects::TableRules;
use crate::page_index::{ColumnRange, IndexCache, PageRanges, index_columns};
use crate::rows::{Heap, IndexDefinition, IndexRecord, KeyCodec};
use crate::segment::{BLOCK_BYTES, Segment, TableShape};
use crate::statistics::{bounds, bounds_are_exact, joined};
use crate::store::{Snapshot, Store, TableEntry};

/// The number of a table that has none yet.
pub(crate) const BEING_MADE: TableId = TableId(u64::MAX);

/// A snapshot of a table. Changes made later do not show; the files stay until the last snapshot is gone.
#[derive(Debug, Clone)]
pub struct Table {
    store: Store,
    entry: Arc<TableEntry>,
}

/// What the page index knows about a whole table.
#[derive(Debug, Clone)]
pub struct TableStatistics {
    pub rows: u64,
    pub pages: u64,
    /// Bytes of the pages, about.
    pub page_bytes: u64,
    pub columns: Vec<ColumnStatistics>,
}

#[derive(Debug, Clone)]
pub struct ColumnStatistics {
    pub nulls: u64,
    /// Bounds as arrays of one value; null where nothing is known.
    pub min: ArrayRef,
    pub max: ArrayRef,
    /// The bounds occur in the column and agree with MIN and MAX.
    pub bounds_are_exact: bool,
}

/// What statements about a table are planned by: its columns, rules and indexes. It keeps neither the table nor its database.
#[derive(Debug, Clone)]
pub struct PlannedBy {
    shape: Weak<TableShape>,
    rules: Weak<TableRules>,
    heap: Option<Weak<Heap>>,
}

impl PlannedBy {
    /// Whether this is a state of the same table in which nothing of that is different.
    pub fn is_of(&self, table: &Table) -> bool {
        let entry = &table.entry;
        let has_same_heap = match (&self.heap, &entry.heap) {
            (Some(heap), Some(other)) => std::ptr::eq(heap.as_ptr(), Arc::as_ptr(other)),
            (None, None) => true,
            _ => false,
        };
        // What these lead to may be gone, but its place is not used again as long as they are there.
        std::ptr::eq(self.shape.as_ptr(), Arc::as_ptr(&entry.shape))
            && std::ptr::eq(self.rules.as_ptr(), Arc::as_ptr(&entry.rules))
            && has_same_heap
    }
}

impl Table {
    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn id(&self) -> TableId {
        self.entry.shape.id
    }

    pub fn name(&self) -> &str {
        &self.entry.shape.name
    }

    pub fn schema(&self) -> &SchemaRef {
        self.entry.shape.page_schema().arrow()
    }

    pub(crate) fn of_entry(store: Store, entry: Arc<TableEntry>) -> Self {
        Self { store, entry }
    }

    pub(crate) fn entry(&self) -> &Arc<TableEntry> {
        &self.entry
    }

    /// Whether its rows are changed one by one.
    pub fn has_changeable_rows(&self) -> bool {
        self.entry.heap.is_some()
    }

    /// Whether rows of it may be in segments: all of them, or those that nobody has changed.
    pub fn has_segments(&self) -> bool {
        self.entry.heap.as_ref().is_none_or(|heap| heap.record.deleted.is_some())
    }

    /// Whether it has indexes, also such as queries cannot use yet. Then no segments are added to it.
    pub fn has_indexes(&self) -> bool {
        self.entry.has_indexes()
    }

    /// Whether its rows have been put elsewhere, or replaced, since it was like this.
    pub fn is_replaced(&self) -> Result<bool> {
        let newest = self.store.newest(self)?;
        Ok(newest.first_page_of_rows() != self.entry.first_page_of_rows())
    }

    /// Its indexes that queries can use, with their numbers.
    pub fn indexes(&self) -> impl Iterator<Item = (usize, &IndexDefinition)> {
        let indexes = self.entry.heap.iter().flat_map(|heap| heap.record.indexes.iter().enumerate());
        indexes.filter(|(_, index)| !index.is_building).map(|(number, index)| (number, &index.definition))
    }

    /// How its rows are written.
    pub fn row_codec(&self) -> Result<&RowCodec> {
        Ok(&self.heap()?.codec)
    }

    pub(crate) fn heap(&self) -> Result<&Heap> {
        self.entry.heap.as_deref().ok_or_else(|| self.not_changeable())
    }

    /// An index by its number, and how its keys are written.
    pub(crate) fn index(&self, number: usize) -> Result<(&IndexRecord, &KeyCodec)> {
        let heap = self.heap()?;
        match (heap.record.indexes.get(number), heap.keys.get(number)) {
            (Some(record), Some(keys)) => Ok((record, keys)),
            _ => Err(StorageError::NoColumn { table: self.name().to_owned(), column: number }),
        }
    }

    /// What statements about it are planned by.
    pub fn planned_by(&self) -> PlannedBy {
        PlannedBy {
            shape: Arc::downgrade(&self.entry.shape),
            rules: Arc::downgrade(&self.entry.rules),
            heap: self.entry.heap.as_ref().map(Arc::downgrade),
        }
    }

    pub(crate) fn not_changeable(&self) -> StorageError {
        StorageError::NotChangeable { name: self.name().to_owned() }
    }

    /// Whether it is not in the catalog yet.
    pub(crate) fn is_being_made(&self) -> bool {
        self.entry.shape.id == BEING_MADE
    }

    /// What it says about values.
    pub fn rules(&self) -> &TableRules {
        &self.entry.rules
    }

    pub fn page_bytes(&self) -> usize {
        self.entry.shape.page_bytes
    }

    pub fn rows(&self) -> u64 {
        self.entry.segments.iter().map(|segment| segment.record.rows).sum()
    }

    pub fn pages(&self) -> u64 {
        self.entry.segments.iter().map(|segment| segment.record.pages).sum()
    }

    /// Length of the table's files, indexes included.
    pub fn file_bytes(&self) -> u64 {
        self.entry.segments.iter().map(|segment| segment.record.file_bytes).sum()
    }

    pub(crate) fn shape(&self) -> &Arc<TableShape> {
        &self.entry.shape
    }

    pub(crate) fn index_cache(&self) -> &IndexCache {
        &self.entry.index_cache
    }

    pub(crate) fn segments(&self) -> &[Arc<Segment>] {
        &self.entry.segments
    }

    /// The segment that holds a page.
    pub(crate) fn segment_of(&self, page: PageNumber) -> Option<&Arc<Segment>> {
        let after = self.entry.segments.partition_point(|segment| segment.record.first_page <= page.0);
        let segment = &self.entry.segments[after.checked_sub(1)?];
        (page.0 - segment.record.first_page < segment.record.page_numbers).then_some(segment)
    }

    /// Checks column numbers.
    pub(crate) fn check_columns(&self, columns: &[usize]) -> Result<()> {
        match columns.iter().find(|&&column| column >= self.schema().fields().len()) {
            None => Ok(()),
            Some(&column) => Err(StorageError::NoColumn { table: self.name().to_owned(), column }),
        }
    }

    /// The ranges of these columns in each segment.
    pub async fn segment_ranges(
        &self,
        columns: &[usize],
        account: Option<&Arc<IoAccount>>,
    ) -> Result<PageRanges> {
        let mut ranges = Vec::with_capacity(self.entry.segments.len());
        for segment in &self.entry.segments {
            ranges.push(segment.directory(account).await?.ranges(columns));
        }
        PageRanges::joined(&ranges, columns, self.schema())
    }

    /// The ranges of these columns in the stripes of each segment. Blocks while directories are read, once.
    pub fn stripe_ranges(&self, columns: &[usize]) -> Result<Vec<PageRanges>> {
        self.check_columns(columns)?;
        block_on(async {
            let mut ranges = Vec::with_capacity(self.entry.segments.len());
            for segment in &self.entry.segments {
                ranges.push(segment.directory(None).await?.ranges(columns));
            }
            Ok(ranges)
        })
    }

    /// The ranges of these columns in the pages of each of `wanted` stripes, which are spread evenly over the table. Blocks
    /// while their page indexes are read.
    pub fn sampled_page_ranges(&self, columns: &[usize], wanted: usize) -> Result<Vec<PageRanges>> {
        self.check_columns(columns)?;
        let read = index_columns(&[], columns);
        block_on(async {
            let mut stripes = Vec::new();
            for segment in &self.entry.segments {
                let directory = segment.directory(None).await?;
                stripes.extend(directory.stripes.iter().map(|stripe| (segment, *stripe)));
            }
            let step = stripes.len().div_ceil(wanted.max(1)).max(1);
            let sampled = stripes.iter().step_by(step).map(|(segment, stripe)| {
                let read = &read;
                async move { Ok(segment.stripe_index(stripe, read, None).await?.ranges(columns)) }
            });
            futures::future::try_join_all(sampled).await
        })
    }

    /// Rows, nulls and bounds of the whole table, from the segments' directories. Blocks while those are read, once.
    pub fn statistics(&self) -> Result<Arc<TableStatistics>> {
        if let Some(known) = self.entry.statistics.get() {
            return Ok(Arc::clone(known));
        }
        let columns: Vec<usize> = (0..self.schema().fields().len()).collect();
        let ranges = block_on(self.segment_ranges(&columns, None))?;
        let columns = columns
            .into_iter()
            .map(|column| {
                let data_type = self.schema().field(column).data_type();
                let range = ranges.of(column);
                let nulls = range.nulls.iter().flatten().sum();
                let (min, max) = range.bounds_of_all(&ranges);
                ColumnStatistics { nulls, min, max, bounds_are_exact: bounds_are_exact(data_type) }
            })
            .collect();
        // The smallest segment has a block each for header, index, directory and a page: of rows that it tells nothing.
        let least_bytes = self.entry.segments.len() as u64 * 4 * BLOCK_BYTES;
        let page_bytes = self.file_bytes().saturating_sub(least_bytes);
        let statistics = TableStatistics { rows: self.rows(), pages: self.pages(), page_bytes, columns };
        Ok(Arc::clone(self.entry.statistics.get_or_init(|| Arc::new(statistics))))
    }
}

impl Snapshot {
    /// The table as it was then.
    pub fn table(&self, name: &str) -> Result<Table> {
        Ok(Table { store: self.store().clone(), entry: Arc::clone(self.entry(name)?) })
    }
}

impl Store {
    /// The table as it is now. The handle keeps seeing this state.
    pub fn table(&self, name: &str) -> Result<Table> {
        self.snapshot().table(name)
    }

    /// Creates an empty table.
    pub fn create_table(&self, definition: TableDefinition, if_exists: IfExists) -> Result<Table> {
        self.check_writable()?;
        definition.check()?;
        let definition = self.sized(definition);
        let name = definition.name.clone();
        if definition.rows.is_some() {
            return self.new_rows(definition, if_exists)?.finish();
        }
        let definition = Box::new(definition);
        self.commit(Target::Create { definition, if_exists, rows: None }, None)?;
        self.table(&name)
    }
}

impl PageRanges {
    /// A column that was asked for.
    fn of(&self, column: usize) -> &ColumnRange {
        let Some(range) = self.column(column) else {
            unreachable!("ranges of column {column} were asked for")
        };
        range
    }

    /// One row per group: each group's containers joined.
    fn joined(groups: &[PageRanges], columns: &[usize], schema: &SchemaRef) -> Result<PageRanges> {
        let rows = groups.iter().map(|group| group.rows.values().iter().sum::<u64>()).collect();
        let mut joined = Vec::with_capacity(columns.len());
        for &column in columns {
            let data_type = schema.field(column).data_type();
            let (mut mins, mut maxes, mut nulls) = (Vec::new(), Vec::new(), Vec::new());
            for group in groups {
                let range = group.of(column);
                let (min, max) = range.bounds_of_all(group);
                mins.push(min);
                maxes.push(max);
                nulls.push(range.nulls.iter().flatten().sum::<u64>());
            }
            joined.push((column, ColumnRange::from_bounds(data_type, &mins, &maxes, nulls)?));
        }
        Ok(PageRanges::new(rows, joined))
    }
}

impl ColumnRange {
    /// Bounds of all containers together.
    fn bounds_of_all(&self, ranges: &PageRanges) -> (ArrayRef, ArrayRef) {
        let has_values = |container: usize| self.nulls.values()[container] < ranges.rows.values()[container];
        if self.min.data_type() == &DataType::Null {
            return bounds(self.min.slice(0, 0).as_ref());
        }
        joined(&self.min, &self.max, has_values)
    }
}
