//! The positions of the mini-pages of a segment, and their zone maps: minimum, maximum and null count.
//!
//! Two levels, both kept as PAX pages themselves, so that a scan reads only the entries of the columns it needs:
//!
//! ```text
//!  directory   one row per stripe:  first page │ position │ pages │ … │ per column: nulls, min, max
//!                                        │
//!  page index  one row per page:    first slot │ slots │ rows │ per column: position, length, nulls, crc32c,
//!                                                                          encoding, min, max
//! ```
//!
//! A stripe is a run of consecutive pages (16 MiB) written by one lane; it is the unit in which scans share work.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt8Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, UInt8Array, UInt32Array, UInt64Array, new_null_array};
use arrow_schema::{DataType, Field, Schema};
use nandina_pages::{
    Encoding, MINI_PAGE_ALIGNMENT, MiniPageMeta, PageBuilder, PageIdentity, PageMeta, PageSchema, Rows,
};

use crate::error::{Result, StorageError};
use crate::statistics::{bounds_type, joined};

/// Columns of the page index before and per table column.
const INDEX_FIXED: usize = 3;
const INDEX_PER_COLUMN: usize = 7;
/// Of these, the first five say where the mini-page stands, the third and the last two what is in it.
const INDEX_POSITIONS: std::ops::Range<usize> = 0..5;
const INDEX_RANGES: [usize; 3] = [2, 5, 6];

/// Columns of the directory before those of the table's columns. Version 1 has no checksums of page indexes.
const DIRECTORY_FIXED: [&str; 8] = [
    "first_page",
    "offset",
    "pages",
    "page_numbers",
    "rows",
    "index_offset",
    "index_bytes",
    "index_checksum",
];
const DIRECTORY_FIXED_1: usize = 7;
const DIRECTORY_PER_COLUMN: usize = 3;

/// Index pages have one row per page or stripe and may be as long as they need.
const MAX_INDEX_BYTES: usize = 1 << 30;

/// The schemas of directory and page index that belong to a table schema.
#[derive(Debug)]
pub(crate) struct IndexLayout {
    pub table: Arc<PageSchema>,
    pub index: Arc<PageSchema>,
    pub directory: Arc<PageSchema>,
    /// Of segments of version 1.
    pub directory_1: Arc<PageSchema>,
    bound_types: Vec<DataType>,
}

impl IndexLayout {
    pub fn new(table: Arc<PageSchema>) -> Result<Self> {
        let bound_types: Vec<DataType> =
            table.arrow().fields().iter().map(|field| bounds_type(field.data_type())).collect();
        let required = |name: String, data_type: DataType| Field::new(name, data_type, false);
        let mut index = vec![
            required("first_slot".into(), DataType::UInt32),
            required("slots".into(), DataType::UInt32),
            required("rows".into(), DataType::UInt32),
        ];
        let mut directory = DIRECTORY_FIXED.map(|name| required(name.into(), DataType::UInt64)).to_vec();
        for (column, bound_type) in bound_types.iter().enumerate() {
            for name in ["position", "length", "nulls", "checksum"] {
                index.push(required(format!("{column}.{name}"), DataType::UInt32));
            }
            index.push(required(format!("{column}.encoding"), DataType::UInt8));
            directory.push(required(format!("{column}.nulls"), DataType::UInt64));
            for name in ["min", "max"] {
                let field = Field::new(format!("{column}.{name}"), bound_type.clone(), true);
                index.push(field.clone());
                directory.push(field);
            }
        }
        let paged = |fields| PageSchema::try_new(Arc::new(Schema::new(fields))).map_err(StorageError::Encode);
        let mut directory_1 = directory.clone();
        directory_1.remove(DIRECTORY_FIXED_1);
        let (directory, directory_1) = (paged(directory)?, paged(directory_1)?);
        Ok(Self { table, index: paged(index)?, directory, directory_1, bound_types })
    }
}

/// Bounds of one column in several pages or stripes.
#[derive(Debug, Clone)]
pub struct ColumnRange {
    /// Of the column's type, null where nothing is known; of type `Null` if the type has no bounds.
    pub min: ArrayRef,
    pub max: ArrayRef,
    pub nulls: UInt64Array,
}

/// Row counts and value ranges of several pages (or stripes, or segments): the ground for skipping them.
#[derive(Debug, Clone)]
pub struct PageRanges {
    pub rows: UInt64Array,
    /// By number of the table's column.
    columns: Vec<(usize, ColumnRange)>,
}

impl PageRanges {
    pub(crate) fn new(rows: UInt64Array, columns: Vec<(usize, ColumnRange)>) -> Self {
        Self { rows, columns }
    }

    /// How many pages (or stripes) this is about.
    pub fn containers(&self) -> usize {
        self.rows.len()
    }

    pub fn column(&self, column: usize) -> Option<&ColumnRange> {
        self.columns.iter().find(|(number, _)| *number == column).map(|(_, range)| range)
    }
}

/// One stripe, as the directory has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stripe {
    /// Relative to the segment.
    pub first_page: u64,
    /// Where its first page stands in the file.
    pub offset: u64,
    pub pages: u64,
    /// Page numbers it takes up: oversized pages take several.
    pub page_numbers: u64,
    pub rows: u64,
    pub index_offset: u64,
    pub index_bytes: u64,
    /// Checksum in the page header of the index; `None` in segments of version 1.
    pub index_checksum: Option<u32>,
}

/// Collects the index rows of one stripe while its pages are written.
#[derive(Debug)]
pub(crate) struct StripeIndexBuilder {
    first_slots: Vec<u32>,
    slots: Vec<u32>,
    rows: Vec<u32>,
    columns: Vec<ColumnEntries>,
}

#[derive(Debug, Default)]
struct ColumnEntries {
    positions: Vec<u32>,
    lengths: Vec<u32>,
    nulls: Vec<u32>,
    checksums: Vec<u32>,
    encodings: Vec<u8>,
    mins: Pieces,
    maxes: Pieces,
}

/// An array that grows: pieces of which each is longer than the next. An array of each value would take half a kilobyte,
/// which of hundreds of columns is more than the rows take.
#[derive(Debug, Default)]
struct Pieces(Vec<ArrayRef>);

impl Pieces {
    fn push(&mut self, piece: ArrayRef) -> Result<()> {
        self.0.push(piece);
        while let [.., longer, last] = self.0.as_slice()
            && longer.len() <= last.len()
        {
            let joined = without_spare_bytes(concat(&[Arc::clone(longer), Arc::clone(last)])?);
            self.0.truncate(self.0.len() - 2);
            self.0.push(joined);
        }
        Ok(())
    }

    fn join(&self) -> Result<ArrayRef> {
        concat(&self.0)
    }
}

/// What the directory keeps of a stripe's columns.
#[derive(Debug)]
pub(crate) struct StripeColumn {
    pub nulls: u64,
    pub min: ArrayRef,
    pub max: ArrayRef,
}

impl StripeIndexBuilder {
    pub fn new(columns: usize) -> Self {
        Self {
            first_slots: Vec::new(),
            slots: Vec::new(),
            rows: Vec::new(),
            columns: (0..columns).map(|_| ColumnEntries::default()).collect(),
        }
    }

    /// Adds the next page. `bounds` holds least and greatest value of each column.
    pub fn push(
        &mut self,
        first_slot: u32,
        slots: u32,
        meta: &PageMeta,
        bounds: Vec<(ArrayRef, ArrayRef)>,
    ) -> Result<()> {
        self.first_slots.push(first_slot);
        self.slots.push(slots);
        self.rows.push(meta.rows);
        let all = [self.columns.len(); 2];
        assert_eq!([meta.columns.len(), bounds.len()], all, "a page and its bounds are of all columns");
        for ((entries, mini_page), (min, max)) in self.columns.iter_mut().zip(&meta.columns).zip(bounds) {
            entries.positions.push((mini_page.offset_bytes / MINI_PAGE_ALIGNMENT as u64) as u32);
            entries.lengths.push(mini_page.length_bytes);
            entries.nulls.push(mini_page.null_count);
            entries.checksums.push(mini_page.checksum);
            entries.encodings.push(mini_page.encoding as u8);
            entries.mins.push(min)?;
            entries.maxes.push(max)?;
        }
        Ok(())
    }

    pub fn pages(&self) -> usize {
        self.rows.len()
    }

    pub fn table_rows(&self) -> u64 {
        self.rows.iter().map(|&rows| u64::from(rows)).sum()
    }

    /// The page index as the bytes of a PAX page, and the stripe's summary per column.
    pub fn finish(
        self,
        layout: &IndexLayout,
        identity: PageIdentity,
    ) -> Result<(Vec<u8>, Vec<StripeColumn>)> {
        let mut arrays: Vec<ArrayRef> = vec![
            Arc::new(UInt32Array::from(self.first_slots)),
            Arc::new(UInt32Array::from(self.slots)),
            Arc::new(UInt32Array::from(self.rows.clone())),
        ];
        let mut summary = Vec::with_capacity(self.columns.len());
        for entries in self.columns {
            let (mins, maxes) = (entries.mins.join()?, entries.maxes.join()?);
            let has_values = |page: usize| entries.nulls[page] < self.rows[page];
            let (min, max) = joined(&mins, &maxes, has_values);
            let nulls = entries.nulls.iter().map(|&nulls| u64::from(nulls)).sum();
            summary.push(StripeColumn { nulls, min, max });
            for values in [entries.positions, entries.lengths, entries.nulls, entries.checksums] {
                arrays.push(Arc::new(UInt32Array::from(values)));
            }
            arrays.push(Arc::new(UInt8Array::from(entries.encodings)));
            arrays.extend([mins, maxes]);
        }
        Ok((encode_rows(&layout.index, arrays, identity)?, summary))
    }
}

/// The directory as the bytes of a PAX page.
pub(crate) fn encode_directory(
    layout: &IndexLayout,
    stripes: &[(Stripe, Vec<StripeColumn>)],
) -> Result<Vec<u8>> {
    let have_checksums = stripes.iter().all(|(stripe, _)| stripe.index_checksum.is_some());
    assert!(have_checksums, "a stripe is written with the checksum of its page index");
    type Figure = fn(&Stripe) -> u64;
    let figures: [Figure; DIRECTORY_FIXED.len()] = [
        |stripe| stripe.first_page,
        |stripe| stripe.offset,
        |stripe| stripe.pages,
        |stripe| stripe.page_numbers,
        |stripe| stripe.rows,
        |stripe| stripe.index_offset,
        |stripe| stripe.index_bytes,
        |stripe| stripe.index_checksum.map_or(0, u64::from),
    ];
    let mut arrays: Vec<ArrayRef> = figures
        .iter()
        .map(|figure| {
            Arc::new(stripes.iter().map(|(stripe, _)| figure(stripe)).collect::<UInt64Array>()) as _
        })
        .collect();
    for column in 0..layout.bound_types.len() {
        let of_column = || stripes.iter().map(|(_, columns)| &columns[column]);
        arrays.push(Arc::new(of_column().map(|column| column.nulls).collect::<UInt64Array>()));
        arrays.push(concat(&of_column().map(|column| Arc::clone(&column.min)).collect::<Vec<_>>())?);
        arrays.push(concat(&of_column().map(|column| Arc::clone(&column.max)).collect::<Vec<_>>())?);
    }
    encode_rows(&layout.directory, arrays, PageIdentity::default())
}

/// Views that are concatenated keep the buffers of all arrays.
fn without_spare_bytes(array: ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Utf8View => Arc::new(array.as_string_view().gc()),
        DataType::BinaryView => Arc::new(array.as_binary_view().gc()),
        _ => array,
    }
}

fn concat(arrays: &[ArrayRef]) -> Result<ArrayRef> {
    let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
    Ok(arrow_select::concat::concat(&arrays)?)
}

pub(crate) fn encode_rows(
    schema: &Arc<PageSchema>,
    arrays: Vec<ArrayRef>,
    identity: PageIdentity,
) -> Result<Vec<u8>> {
    let batch = RecordBatch::try_new(Arc::clone(schema.arrow()), arrays)?;
    let mut builder = PageBuilder::new(Arc::clone(schema), MAX_INDEX_BYTES, u32::MAX as usize);
    let rows = batch.num_rows();
    if builder.append(&batch, Rows::Range(0..rows)).map_err(StorageError::Encode)? < rows {
        return Err(StorageError::IndexTooLong { max_bytes: MAX_INDEX_BYTES });
    }
    let mut bytes = vec![0; builder.encoded_bytes().next_multiple_of(4096)];
    builder.encode(identity, &mut bytes).map_err(StorageError::Encode)?;
    Ok(bytes)
}

/// The directory of one segment, in memory.
#[derive(Debug)]
pub(crate) struct Directory {
    pub stripes: Vec<Stripe>,
    batch: RecordBatch,
    /// Columns before those of the table's columns.
    fixed: usize,
}

impl Directory {
    /// `batch` are the rows of the directory page. `file` is named in errors.
    pub fn new(batch: RecordBatch, file: &str, file_bytes: u64) -> Result<Self> {
        let has_checksums = batch.schema_ref().column_with_name("index_checksum").is_some();
        let figure = |column: usize, row: usize| batch.column(column).as_primitive::<UInt64Type>().value(row);
        let stripes: Vec<Stripe> = (0..batch.num_rows())
            .map(|row| Stripe {
                first_page: figure(0, row),
                offset: figure(1, row),
                pages: figure(2, row),
                page_numbers: figure(3, row),
                rows: figure(4, row),
                index_offset: figure(5, row),
                index_bytes: figure(6, row),
                index_checksum: has_checksums.then(|| figure(7, row) as u32),
            })
            .collect();
        let in_order = stripes.is_sorted_by(|stripe, next| {
            stripe.first_page.checked_add(stripe.page_numbers).is_some_and(|end| end <= next.first_page)
        });
        let inside = stripes.iter().all(|stripe| {
            stripe.index_offset.checked_add(stripe.index_bytes).is_some_and(|end| end <= file_bytes)
                && stripe.index_offset.is_multiple_of(4096)
                && stripe.offset.is_multiple_of(4096)
                && stripe.offset <= file_bytes
        });
        if !in_order || !inside {
            return Err(StorageError::damaged(file, "its directory contradicts itself"));
        }
        let fixed = if has_checksums { DIRECTORY_FIXED.len() } else { DIRECTORY_FIXED_1 };
        Ok(Self { stripes, batch, fixed })
    }

    /// The stripe that holds a page, by its number in the segment.
    pub fn stripe_of(&self, page: u64) -> Option<usize> {
        let after = self.stripes.partition_point(|stripe| stripe.first_page <= page);
        let number = after.checked_sub(1)?;
        let stripe = self.stripes[number];
        (page - stripe.first_page < stripe.page_numbers).then_some(number)
    }

    /// The ranges of these columns of the table in one stripe.
    pub fn ranges_of(&self, stripe: usize, columns: &[usize]) -> PageRanges {
        let PageRanges { rows, columns } = self.ranges(columns);
        let one = |(column, range): (usize, ColumnRange)| {
            let (min, max) = (range.min.slice(stripe, 1), range.max.slice(stripe, 1));
            (column, ColumnRange { min, max, nulls: range.nulls.slice(stripe, 1) })
        };
        PageRanges { rows: rows.slice(stripe, 1), columns: columns.into_iter().map(one).collect() }
    }

    /// The ranges of these columns of the table in each stripe.
    pub fn ranges(&self, columns: &[usize]) -> PageRanges {
        let columns = columns.iter().map(|&column| {
            let base = self.fixed + column * DIRECTORY_PER_COLUMN;
            let [nulls, min, max] = [0, 1, 2].map(|part| self.batch.column(base + part));
            let nulls = nulls.as_primitive::<UInt64Type>().clone();
            (column, ColumnRange { min: Arc::clone(min), max: Arc::clone(max), nulls })
        });
        PageRanges {
            rows: self.stripes.iter().map(|stripe| stripe.rows).collect(),
            columns: columns.collect(),
        }
    }
}

/// Columns of the page index that are needed for the mini-pages of `positions` and the bounds of `ranges`, ascending.
pub(crate) fn index_columns(positions: &[usize], ranges: &[usize]) -> Vec<usize> {
    let base = |column: usize| INDEX_FIXED + column * INDEX_PER_COLUMN;
    let mut columns: Vec<usize> = (0..INDEX_FIXED)
        .chain(positions.iter().flat_map(|&column| INDEX_POSITIONS.map(move |part| base(column) + part)))
        .chain(ranges.iter().flat_map(|&column| INDEX_RANGES.map(|part| base(column) + part)))
        .collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// The part of one stripe's page index that was asked for.
#[derive(Debug)]
pub(crate) struct StripeIndex {
    pages: usize,
    /// By column of the page index.
    arrays: Vec<(usize, ArrayRef)>,
}

impl StripeIndex {
    /// `arrays` by ascending column of the page index; all fixed columns are there.
    pub fn new(arrays: Vec<(usize, ArrayRef)>) -> Self {
        Self { pages: arrays[0].1.len(), arrays }
    }

    pub fn pages(&self) -> usize {
        self.pages
    }

    /// A copy of the positions that does not keep the buffers alive which they were read into.
    fn detached(&self) -> Self {
        let copied = |array: &ArrayRef| -> Option<ArrayRef> {
            if let Some(numbers) = array.as_primitive_opt::<UInt32Type>() {
                return Some(Arc::new(UInt32Array::from(numbers.values().to_vec())));
            }
            let bytes = array.as_primitive_opt::<UInt8Type>()?;
            Some(Arc::new(UInt8Array::from(bytes.values().to_vec())))
        };
        let arrays =
            self.arrays.iter().filter_map(|(column, array)| Some((*column, copied(array)?))).collect();
        Self { pages: self.pages, arrays }
    }

    fn memory_bytes(&self) -> usize {
        self.arrays.iter().map(|(_, array)| array.get_array_memory_size()).sum()
    }

    /// Whether these columns of the page index are all there.
    pub fn covers(&self, columns: &[usize]) -> bool {
        columns.iter().all(|&column| self.find(column).is_some())
    }

    fn find(&self, column: usize) -> Option<&ArrayRef> {
        let at = self.arrays.binary_search_by_key(&column, |(column, _)| *column).ok()?;
        Some(&self.arrays[at].1)
    }

    fn array(&self, column: usize) -> &ArrayRef {
        let Some(array) = self.find(column) else {
            unreachable!("the page index's column {column} was read")
        };
        array
    }

    fn number(&self, column: usize, page: usize) -> u32 {
        self.array(column).as_primitive::<UInt32Type>().value(page)
    }

    /// First slot, slots and rows of a page.
    pub fn page(&self, page: usize) -> (u32, u32, u32) {
        (self.number(0, page), self.number(1, page), self.number(2, page))
    }

    /// The page that starts in a slot.
    pub fn page_at_slot(&self, slot: u32) -> Option<usize> {
        self.array(0).as_primitive::<UInt32Type>().values().binary_search(&slot).ok()
    }

    /// `None` if its encoding is none that there is.
    pub fn mini_page(&self, page: usize, column: usize) -> Option<MiniPageMeta> {
        let base = INDEX_FIXED + column * INDEX_PER_COLUMN;
        Some(MiniPageMeta {
            offset_bytes: u64::from(self.number(base, page)) * MINI_PAGE_ALIGNMENT as u64,
            length_bytes: self.number(base + 1, page),
            null_count: self.number(base + 2, page),
            checksum: self.number(base + 3, page),
            encoding: Encoding::from_byte(self.array(base + 4).as_primitive::<UInt8Type>().value(page))?,
        })
    }

    /// The ranges of these columns of the table in each page.
    pub fn ranges(&self, columns: &[usize]) -> PageRanges {
        let widened = |array: &ArrayRef| -> UInt64Array {
            array.as_primitive::<UInt32Type>().values().iter().map(|&value| u64::from(value)).collect()
        };
        let columns = columns.iter().map(|&column| {
            let base = INDEX_FIXED + column * INDEX_PER_COLUMN;
            let [nulls, min, max] = INDEX_RANGES.map(|part| self.array(base + part));
            (column, ColumnRange { min: Arc::clone(min), max: Arc::clone(max), nulls: widened(nulls) })
        });
        PageRanges { rows: widened(self.array(2)), columns: columns.collect() }
    }
}

impl ColumnRange {
    /// Of which nothing is known, in so many containers.
    pub fn unknown(data_type: &DataType, containers: usize) -> Self {
        let bound_type = bounds_type(data_type);
        let bound = new_null_array(&bound_type, containers);
        Self { min: Arc::clone(&bound), max: bound, nulls: UInt64Array::new_null(containers) }
    }

    /// From one array of one value per container.
    pub(crate) fn from_bounds(
        data_type: &DataType,
        mins: &[ArrayRef],
        maxes: &[ArrayRef],
        nulls: Vec<u64>,
    ) -> Result<Self> {
        if mins.is_empty() {
            return Ok(Self::unknown(data_type, 0));
        }
        Ok(Self { min: concat(mins)?, max: concat(maxes)?, nulls: nulls.into() })
    }
}

/// Page indexes of stripes that were fetched from, kept up to a bound: fetching in many small bulks would otherwise
/// read them again for each.
#[derive(Debug, Default)]
pub(crate) struct IndexCache {
    state: parking_lot::Mutex<CachedIndexes>,
}

#[derive(Debug, Default)]
struct CachedIndexes {
    /// By first page of the segment, and stripe.
    indexes: std::collections::HashMap<(u64, usize), Arc<StripeIndex>>,
    bytes: usize,
}

/// Positions of two columns of a table of 16 GiB in pages of 64 KiB.
const INDEX_CACHE_BYTES: usize = 8 << 20;

impl IndexCache {
    /// The cached index of a stripe, if it has the columns.
    pub fn get(&self, stripe: (u64, usize), columns: &[usize]) -> Option<Arc<StripeIndex>> {
        let state = self.state.lock();
        state.indexes.get(&stripe).filter(|index| index.covers(columns)).map(Arc::clone)
    }

    /// Keeps an index. When there is no room everything else goes: fetches move through a table in one direction.
    pub fn put(&self, stripe: (u64, usize), index: &StripeIndex) {
        let index = Arc::new(index.detached());
        let mut state = self.state.lock();
        if state.bytes + index.memory_bytes() > INDEX_CACHE_BYTES {
            *state = CachedIndexes::default();
        }
        state.bytes += index.memory_bytes();
        if let Some(replaced) = state.indexes.insert(stripe, index) {
            state.bytes -= replaced.memory_bytes();
        }
    }
}
