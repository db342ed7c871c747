//! Filling one page: rows are staged column by column and encoded when the page is full.

use std::sync::Arc;

use arrow_array::{Array, RecordBatch};

use crate::compact_page::CompactPage;
use crate::error::{PageError, Result};
use crate::format::{MiniPageMeta, PageIdentity, PageMeta, front_bytes, write_front};
use crate::mini_page::mini_page_checksum;
use crate::rows::Rows;
use crate::schema::PageSchema;
use crate::staging::{ColumnStaging, next_start};

/// Page sizes end at 4 MiB; the bound leaves room for whole partitions and keeps 32-bit offsets sufficient.
const MAX_PAGE_BYTES: usize = 1 << 30;

/// Below this many rows the fit is decided with one pass over them; above, it is approached in doubling steps.
const FIRST_STEP_ROWS: usize = 512;

/// Stages the rows of one page. After [`encode`](Self::encode) it is empty again and keeps its capacity.
#[derive(Debug)]
pub struct PageBuilder {
    schema: Arc<PageSchema>,
    columns: Vec<ColumnStaging>,
    page_bytes: usize,
    max_rows: usize,
    rows: usize,
    /// A row was refused because the page would exceed its size.
    refused: bool,
}

impl PageBuilder {
    /// Pages hold at most `page_bytes` (one row may exceed it, see [`append`](Self::append)) and `max_rows`.
    pub fn new(schema: Arc<PageSchema>, page_bytes: usize, max_rows: usize) -> Self {
        assert!(page_bytes <= MAX_PAGE_BYTES, "pages are at most {MAX_PAGE_BYTES} bytes long");
        assert!(max_rows > 0 && u32::try_from(max_rows).is_ok(), "a page holds 1..2^32 rows");
        let columns = schema.arrow().fields().iter().map(|field| ColumnStaging::new(field)).collect();
        Self { schema, columns, page_bytes, max_rows, rows: 0, refused: false }
    }

    pub fn schema(&self) -> &Arc<PageSchema> {
        &self.schema
    }

    /// Appends rows in order until the encoded page would exceed its size or row limit; returns how many were taken.
    ///
    /// A row that alone exceeds the page size is taken into an empty builder, which makes the page oversized, so that
    /// progress is always possible: when fewer rows were taken than given, encode the page and append the rest.
    pub fn append(&mut self, batch: &RecordBatch, rows: Rows<'_>) -> Result<usize> {
        self.check(batch, &rows)?;
        let offered = rows.len();
        let wanted = offered.min(self.max_rows - self.rows);
        let taken = self.fitting(batch, &rows, wanted)?;
        self.refused |= taken < offered;
        if taken > 0 {
            let rows = rows.first(taken);
            let fields = self.schema.arrow().fields();
            for ((staging, array), field) in self.columns.iter_mut().zip(batch.columns()).zip(fields) {
                staging.append(array.as_ref(), &rows, field.name())?;
            }
            self.rows += taken;
        }
        Ok(taken)
    }

    fn check(&self, batch: &RecordBatch, rows: &Rows<'_>) -> Result<()> {
        let fields = self.schema.arrow().fields();
        if batch.num_columns() != fields.len() {
            return Err(PageError::BatchColumns { found: batch.num_columns(), expected: fields.len() });
        }
        for (column, (array, field)) in batch.columns().iter().zip(fields).enumerate() {
            if array.data_type() != field.data_type() {
                let (found, expected) = (array.data_type().clone(), field.data_type().clone());
                return Err(PageError::TypeMismatch { column, found, expected });
            }
        }
        rows.check(batch.num_rows())
    }

    /// How many of the first `wanted` rows fit. Page sizes never shrink as rows are added, which permits bisection.
    fn fitting(&self, batch: &RecordBatch, rows: &Rows<'_>, wanted: usize) -> Result<usize> {
        if wanted == 0 {
            return Ok(0);
        }
        let fits = |count: usize| -> Result<bool> {
            let rows = rows.first(count);
            let mut end = front_bytes(self.columns.len()) as u64;
            for (staging, array) in self.columns.iter().zip(batch.columns()) {
                end = end.next_multiple_of(64) + staging.mini_page_bytes_with(array.as_ref(), &rows)?;
                if end > self.page_bytes as u64 || staging.overflows_with(array.as_ref(), &rows)? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let (mut fitting, mut step) = (0, wanted.min(FIRST_STEP_ROWS));
        while fits(step)? {
            fitting = step;
            if step == wanted {
                return Ok(wanted);
            }
            step = (step * 2).min(wanted);
        }
        let mut too_many = step;
        while fitting + 1 < too_many {
            let middle = fitting.midpoint(too_many);
            if fits(middle)? {
                fitting = middle;
            } else {
                too_many = middle;
            }
        }
        Ok(if fitting == 0 && self.rows == 0 { 1 } else { fitting })
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// No further row is accepted: one was refused, the row limit is reached, or the page is oversized.
    pub fn is_full(&self) -> bool {
        self.refused || self.rows >= self.max_rows || self.encoded_bytes() >= self.page_bytes
    }

    /// Bytes of the page with header and directory, before rounding to the device's 4 KiB. Exact for flat columns, an
    /// upper bound with nested ones.
    pub fn encoded_bytes(&self) -> usize {
        self.columns
            .iter()
            .fold(front_bytes(self.columns.len()), |end, c| next_start(end) + c.mini_page_bytes() as usize)
    }

    /// Memory held by the staged columns, unused capacity included.
    pub fn memory_bytes(&self) -> usize {
        self.columns.iter().map(ColumnStaging::capacity_bytes).sum()
    }

    /// Writes the page into `out`, zero-fills what follows, and clears the builder. `out.len()` becomes the page size
    /// in the header and must be at least [`encoded_bytes`](Self::encoded_bytes). On error the rows stay staged.
    pub fn encode(&mut self, identity: PageIdentity, out: &mut [u8]) -> Result<PageMeta> {
        let front = front_bytes(self.columns.len());
        let needed_bytes = self.encoded_bytes();
        if out.len() < needed_bytes {
            return Err(PageError::BufferTooSmall { needed_bytes, buffer_bytes: out.len() });
        }
        let mut end = front;
        let mut columns = Vec::with_capacity(self.columns.len());
        for (staging, field) in self.columns.iter().zip(self.schema.arrow().fields()) {
            assert_eq!(staging.rows(), self.rows, "a page holds whole rows");
            let start = next_start(end);
            out[end..start].fill(0);
            let rest = &mut out[start..];
            let (encoding, length) = staging.encode(rest, field.name())?;
            let length_bytes = u32::try_from(length).map_err(|_| PageError::ValueTooLong {
                column: field.name().clone(),
                value_bytes: length as u64,
                max_bytes: u64::from(u32::MAX),
            })?;
            columns.push(MiniPageMeta {
                offset_bytes: start as u64,
                length_bytes,
                null_count: staging.null_count() as u32,
                encoding,
                checksum: mini_page_checksum(&rest[..length]),
            });
            end = start + length;
        }
        out[end..].fill(0);
        let meta = PageMeta { identity, rows: self.rows as u32, used_bytes: end, columns };
        write_front(out, &meta);
        self.clear();
        Ok(meta)
    }

    /// Encodes the staged rows as small as they get. They stay staged: whether the page is wanted follows from its
    /// length.
    pub fn encode_compact(&self, page: &mut CompactPage) -> Result<()> {
        let names = self.schema.arrow().fields().iter().map(|field| field.name().as_str());
        page.fill(self.columns.iter().zip(names), self.rows)
    }

    /// Drops the staged rows and keeps the capacity.
    pub fn clear(&mut self) {
        self.columns.iter_mut().for_each(ColumnStaging::clear);
        self.rows = 0;
        self.refused = false;
    }
}
