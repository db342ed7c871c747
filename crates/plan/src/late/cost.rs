//! What reading columns early and late costs, in microseconds.
//!
//! Both ways are counted by what the device's profile says about reads of a size and by bytes that the processor touches.
//! A fetch reads, for each page of a window of rows, the neighbouring columns in one request, and decodes all their values.

use nandina_device::{BLOCK_BYTES, Device};
use nandina_exec::batch::row_width::{TEXT_BYTES, column_bytes, text_bytes};
use nandina_exec::fetch::{RowOrder, window_bytes};
use nandina_exec::scan::PageReads;
use nandina_exec::sort::{ExpectedMerges, SPOOL_PAGE_BYTES};
use nandina_storage::Table;

/// Tables of fewer bytes are read at once, whatever is wanted of them.
const SMALL_TABLE_BYTES: u64 = 4 << 20;

/// Bytes that one processor decodes or copies in a microsecond, about.
const BYTES_PER_MICRO: f64 = 2000.0;

/// Sorting a row by its id takes a processor so long, about, beside the copying.
const SORT_MICROS_PER_ROW: f64 = 0.1;

/// Reading a page of a run and writing another takes a processor so long, about, beside copying the rows. Of rows as long as a
/// page it is most of what a merge takes.
const RUN_PAGE_MICROS: f64 = 15.0;

/// The least time that a choice could gain for both ways to be planned.
const WORTH_MICROS: f64 = 2000.0;

/// Reading columns of a table: all of them, or by row id.
pub(super) struct FetchCost {
    table: Table,
    rows: f64,
    pages: f64,
    /// Stored bytes of all these columns of a row, about.
    pub row_bytes: f64,
    /// Reading and decoding them of one page.
    page_micros: f64,
    /// Stored bytes of a whole row, and reading those of one page while decoding these columns.
    whole_row_bytes: f64,
    whole_page_micros: f64,
}

impl FetchCost {
    /// `None` if the table is not worth it.
    pub fn of(table: &Table, columns: &[usize]) -> Option<Self> {
        let statistics = table.statistics().ok()?;
        let rows = statistics.rows as f64;
        if table.file_bytes() <= SMALL_TABLE_BYTES || statistics.rows == 0 {
            return None;
        }
        let whole_row_bytes = statistics.page_bytes as f64 / rows;
        let text = text_bytes(table.schema(), whole_row_bytes as usize).unwrap_or(TEXT_BYTES).max(1);
        let width = |column: &usize| column_bytes(table.schema().field(*column).data_type(), text) as f64;
        let pages = table.pages().max(1) as f64;
        let profile = table.store().device().profile();
        let mut ascending = columns.to_vec();
        ascending.sort_unstable();
        let read = |bytes: f64| profile.reads.best_micros((bytes as u64).next_multiple_of(4096).max(4096));
        let page_micros = ascending.chunk_by(|one, next| one + 1 == *next).map(|neighbours| {
            let bytes = rows / pages * neighbours.iter().map(width).sum::<f64>();
            read(bytes) + bytes / BYTES_PER_MICRO
        });
        let row_bytes: f64 = columns.iter().map(width).sum();
        let rows_of_page = rows / pages;
        Some(Self {
            page_micros: page_micros.sum(),
            whole_page_micros: read(rows_of_page * whole_row_bytes)
                + rows_of_page * row_bytes / BYTES_PER_MICRO,
            table: table.clone(),
            rows,
            pages,
            row_bytes,
            whole_row_bytes,
        })
    }

    /// Of all rows, in sequence.
    pub fn scan_micros(&self, reads: PageReads) -> f64 {
        let bytes = match reads {
            PageReads::Columns => self.row_bytes,
            PageReads::Whole => self.whole_row_bytes,
        };
        self.read_micros(self.rows * bytes) + self.rows * self.row_bytes / BYTES_PER_MICRO
    }

    /// What reading keys and row ids beforehand costs beside what they cost anyway.
    pub fn key_scan_micros(&self, reads: PageReads) -> f64 {
        match reads {
            PageReads::Columns => 0.0,
            PageReads::Whole => self.read_micros(self.rows * self.whole_row_bytes),
        }
    }

    fn read_micros(&self, bytes: f64) -> f64 {
        bytes / self.table.store().device().profile().reads.sequential_bandwidth() * 1e6
    }

    fn page_micros(&self, reads: PageReads) -> f64 {
        match reads {
            PageReads::Columns => self.page_micros,
            PageReads::Whole => self.whole_page_micros,
        }
    }

    /// Writing bytes to temporary space and reading them again.
    pub fn spill_micros(&self, bytes: f64) -> f64 {
        let profile = self.table.store().device().profile();
        bytes / profile.writes.full_bandwidth() * 1e6 + bytes / profile.reads.full_bandwidth() * 1e6
    }

    /// Whether reading these columns late could gain anything.
    pub fn may_pay(&self) -> bool {
        // A row id is carried instead.
        self.row_bytes > 2.0 * size_of::<u64>() as f64 && self.scan_micros(PageReads::Columns) > WORTH_MICROS
    }

    /// What fetching `rows` rows anywhere in the table costs, and scanning all.
    pub fn of_first_rows(&self, rows: usize) -> SortCost {
        let late = (rows as f64).min(self.pages) * self.page_micros;
        SortCost { rows, late, early: self.scan_micros(PageReads::Columns) }
    }

    /// What fetching all rows costs, and carrying them through a sort that has `memory_bytes`.
    pub fn of_sorted_rows(&self, sorted: &SortedRows, memory_bytes: Option<usize>) -> SortCost {
        let ids = size_of::<u64>() as f64;
        let early = self.scan_micros(PageReads::Columns)
            + self.sort_micros(sorted, sorted.kept_bytes + self.row_bytes, memory_bytes);
        let late = self.sort_micros(sorted, sorted.kept_bytes + ids, memory_bytes)
            + self.fetch_in_order_micros(sorted.pages_of_a_value, memory_bytes);
        SortCost { rows: self.rows as usize, late, early }
    }

    /// Sorting all rows, of so many bytes each, beside comparing them.
    fn sort_micros(&self, sorted: &SortedRows, row_bytes: f64, memory_bytes: Option<usize>) -> f64 {
        let overlap = (sorted.pages_of_a_value / self.pages).min(1.0);
        sort_micros(self.table.store().device(), self.rows, row_bytes, overlap, memory_bytes)
    }

    /// Fetching all rows in the order of a key of which so many pages may have the same value.
    fn fetch_in_order_micros(&self, pages_of_a_value: f64, memory_bytes: Option<usize>) -> f64 {
        let window = self.window_rows(self.rows, memory_bytes);
        let span = (pages_of_a_value + window * self.pages / self.rows).min(self.pages);
        let touched = spread(window, span);
        // Reads of pages next to each other are one.
        let neighbours = touched / span;
        let in_sequence = self.scan_micros(PageReads::Columns) / self.pages;
        let page_micros = neighbours * in_sequence + (1.0 - neighbours) * self.page_micros;
        self.rows / window * touched * page_micros + 2.0 * self.rows * self.row_bytes / BYTES_PER_MICRO
    }

    /// Fetching so many rows for a consumer that takes them in any order.
    pub fn fetch_micros(&self, fetched: &FetchedRows, reads: PageReads, memory_bytes: Option<usize>) -> f64 {
        let as_they_come = self.as_they_come_micros(fetched, reads, memory_bytes);
        self.copy_micros(fetched.rows) + as_they_come.min(self.sorted_micros(fetched, reads, memory_bytes))
    }

    /// Fetching so many rows in the order of the table.
    pub fn in_order_micros(&self, rows: f64, reads: PageReads, memory_bytes: Option<usize>) -> f64 {
        self.copy_micros(rows) + self.ascending_micros(rows, reads, memory_bytes)
    }

    fn copy_micros(&self, rows: f64) -> f64 {
        2.0 * rows * self.row_bytes / BYTES_PER_MICRO
    }

    /// The order of the rows in which that costs least.
    pub fn order(&self, fetched: &FetchedRows, reads: PageReads, memory_bytes: Option<usize>) -> RowOrder {
        let as_they_come = self.as_they_come_micros(fetched, reads, memory_bytes);
        let is_better = self.sorted_micros(fetched, reads, memory_bytes) < as_they_come;
        if is_better { RowOrder::OfTable } else { RowOrder::Any }
    }

    /// Reading pages for rows in the order of the input, in which neighbours in the table are neighbours or not.
    fn as_they_come_micros(
        &self,
        fetched: &FetchedRows,
        reads: PageReads,
        memory_bytes: Option<usize>,
    ) -> f64 {
        match fetched.in_table_order {
            true => self.ascending_micros(fetched.rows, reads, memory_bytes),
            false => self.page_reads(fetched.rows, memory_bytes) * self.page_micros(reads),
        }
    }

    /// Sorting rows by their ids, and reading pages in their order. Infinite where rows have to keep theirs.
    fn sorted_micros(&self, fetched: &FetchedRows, reads: PageReads, memory_bytes: Option<usize>) -> f64 {
        if fetched.keeps_order {
            return f64::INFINITY;
        }
        let bytes = fetched.rows * (fetched.carried_bytes + size_of::<u64>() as f64);
        let mut sort = fetched.rows * SORT_MICROS_PER_ROW + 2.0 * bytes / BYTES_PER_MICRO;
        if memory_bytes.is_some_and(|memory| bytes > memory as f64 / 2.0) {
            sort += self.spill_micros(bytes);
        }
        sort + self.ascending_micros(fetched.rows, reads, memory_bytes)
    }

    /// Reading the pages of so many rows in the order of the table: once, and those that two windows meet on twice.
    fn ascending_micros(&self, rows: f64, reads: PageReads, memory_bytes: Option<usize>) -> f64 {
        let touched = self.pages_of(rows) + rows / self.window_rows(rows, memory_bytes);
        // Reads of pages next to each other are one.
        let neighbours = (touched / self.pages).min(1.0);
        let in_sequence = self.scan_micros(reads) / self.pages;
        touched * (neighbours * in_sequence + (1.0 - neighbours) * self.page_micros(reads))
    }

    /// Carrying them along through so many rows.
    pub fn carry_micros(&self, rows: f64) -> f64 {
        rows * self.row_bytes / BYTES_PER_MICRO
    }

    fn pages_of(&self, rows: f64) -> f64 {
        spread(rows, self.pages)
    }

    /// Reads of pages for rows in an order that has nothing to do with that of the table: those of a window that stand on
    /// one page have it read once.
    fn page_reads(&self, rows: f64, memory_bytes: Option<usize>) -> f64 {
        let window = self.window_rows(rows, memory_bytes);
        rows / window * self.pages_of(window)
    }

    /// Of so many, those that are fetched at once.
    fn window_rows(&self, rows: f64, memory_bytes: Option<usize>) -> f64 {
        (window_bytes(memory_bytes) as f64 / self.row_bytes.max(1.0)).clamp(1.0, rows.max(1.0))
    }
}

/// Sorting so many rows of so many bytes, beside comparing them. `overlap` is the share of all runs that a run has keys in common
/// with.
fn sort_micros(device: &Device, rows: f64, row_bytes: f64, overlap: f64, memory_bytes: Option<usize>) -> f64 {
    let bytes = rows * row_bytes;
    let merges = ExpectedMerges::of(bytes, row_bytes, overlap, memory_bytes, &device.sizes());
    let profile = device.profile();
    let unit_bytes = merges.unit_bytes as f64;
    let pages = rows / merges.page_rows;
    let stored = pages * merges.page_bytes;
    let moved = stored / profile.writes.full_bandwidth() * 1e6
        + stored / unit_bytes * profile.reads.best_micros(merges.unit_bytes as u64)
        + pages * RUN_PAGE_MICROS;
    // Into pages of runs and out of them, each time, and into the order of the result.
    let copies = 2.0 * merges.passes + 1.0;
    merges.passes * moved + copies * bytes / BYTES_PER_MICRO
}

/// Rows of a sort, in no order, whose columns may be spooled.
pub(super) struct SpoolableRows {
    pub rows: f64,
    /// Bytes that a row has of columns which the sort looks at, and of the others.
    pub carried_bytes: f64,
    pub spooled_bytes: f64,
}

impl SpoolableRows {
    /// What carrying all columns costs, and writing some once and fetching them, with temporary space on `device`.
    pub fn cost(&self, device: &Device, memory_bytes: Option<usize>) -> SortCost {
        let rows = self.rows;
        let sort = |row_bytes: f64| sort_micros(device, rows, row_bytes, 1.0, memory_bytes);
        let early = sort(self.carried_bytes + self.spooled_bytes);
        let row_bytes = self.spooled_bytes.max(1.0);
        let page_bytes = SPOOL_PAGE_BYTES.max((row_bytes as usize).next_multiple_of(BLOCK_BYTES)) as f64;
        let pages = rows / (page_bytes / row_bytes).floor().max(1.0);
        // Of pages that rows of one window share, one read each.
        let window = (window_bytes(memory_bytes) as f64 / row_bytes).clamp(1.0, rows.max(1.0));
        let reads = rows / window * spread(window, pages.max(1.0));
        let profile = device.profile();
        let written = pages * page_bytes / profile.writes.full_bandwidth() * 1e6 + pages * RUN_PAGE_MICROS;
        let read = profile.reads.best_micros(page_bytes as u64) + page_bytes / BYTES_PER_MICRO;
        let copies = 3.0 * rows * row_bytes / BYTES_PER_MICRO;
        let late = sort(self.carried_bytes + size_of::<u64>() as f64) + written + reads * read + copies;
        SortCost { rows: rows as usize, late, early }
    }
}

/// On how many of so many pages rows stand that are spread evenly over them (Cardenas, CACM 1975).
fn spread(rows: f64, pages: f64) -> f64 {
    pages * (1.0 - (1.0 - 1.0 / pages).powf(rows))
}

/// Microseconds that some columns cost which are fetched above a sort, or carried through it.
#[derive(Clone, Copy)]
pub(super) struct SortCost {
    /// Those that are expected to leave the sort; all of the table, whatever filters there are, unless only the first are wanted.
    pub rows: usize,
    pub late: f64,
    pub early: f64,
}

/// Rows that are sorted.
pub(super) struct SortedRows {
    /// Bytes of the columns of a row that are sorted either way.
    pub kept_bytes: f64,
    /// How many pages may have a value of the key.
    pub pages_of_a_value: f64,
}

/// Rows that are fetched.
pub(super) struct FetchedRows {
    pub rows: f64,
    /// Whether they come in the order in which they stand in the table, about.
    pub in_table_order: bool,
    /// Whether they have to leave in the order in which they come.
    pub keeps_order: bool,
    /// Bytes that each brings along.
    pub carried_bytes: f64,
}
