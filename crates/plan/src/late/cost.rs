//! What reading columns early and late costs, in microseconds.
//!
//! Both ways are counted by what the device's profile says about reads of a size and by bytes that the processor touches.
//! A fetch reads, for each page of a window of rows, the neighbouring columns in one request, and decodes all their values.

use nandina_exec::batch::row_width::{TEXT_BYTES, column_bytes, text_bytes};
use nandina_exec::fetch::{MOST_READS, window_bytes};
use nandina_storage::Table;

/// Tables of fewer bytes are read at once, whatever is wanted of them.
const SMALL_TABLE_BYTES: u64 = 4 << 20;

/// Bytes that one processor decodes or copies in a microsecond, about.
const BYTES_PER_MICRO: f64 = 2000.0;

/// Sorting a row by its id takes a processor so long, about, beside the copying.
const SORT_MICROS_PER_ROW: f64 = 0.1;

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
}

impl FetchCost {
    /// `None` if the table is not worth it.
    pub fn of(table: &Table, columns: &[usize]) -> Option<Self> {
        let statistics = table.statistics().ok()?;
        let rows = statistics.rows as f64;
        if table.file_bytes() <= SMALL_TABLE_BYTES || statistics.rows == 0 {
            return None;
        }
        let row_bytes = statistics.page_bytes / statistics.rows;
        let text = text_bytes(table.schema(), row_bytes as usize).unwrap_or(TEXT_BYTES).max(1);
        let width = |column: &usize| column_bytes(table.schema().field(*column).data_type(), text) as f64;
        let pages = table.pages().max(1) as f64;
        let profile = table.store().device().profile();
        let mut ascending = columns.to_vec();
        ascending.sort_unstable();
        let page_micros = ascending.chunk_by(|one, next| one + 1 == *next).map(|neighbours| {
            let bytes = rows / pages * neighbours.iter().map(width).sum::<f64>();
            let read = profile.reads.best_micros((bytes as u64).next_multiple_of(4096).max(4096));
            read + bytes / BYTES_PER_MICRO
        });
        let (row_bytes, page_micros) = (columns.iter().map(width).sum(), page_micros.sum());
        Some(Self { table: table.clone(), rows, pages, row_bytes, page_micros })
    }

    /// Of all rows, in sequence.
    pub fn scan_micros(&self) -> f64 {
        let bandwidth = self.table.store().device().profile().reads.sequential_bandwidth();
        let bytes = self.rows * self.row_bytes;
        bytes / bandwidth * 1e6 + bytes / BYTES_PER_MICRO
    }

    /// Writing bytes to temporary space and reading them again.
    pub fn spill_micros(&self, bytes: f64) -> f64 {
        let profile = self.table.store().device().profile();
        bytes / profile.writes.full_bandwidth() * 1e6 + bytes / profile.reads.full_bandwidth() * 1e6
    }

    /// Whether reading these columns late could gain anything.
    pub fn may_pay(&self) -> bool {
        // A row id is carried instead.
        self.row_bytes > 2.0 * size_of::<u64>() as f64 && self.scan_micros() > WORTH_MICROS
    }

    /// Whether `rows` rows anywhere in the table are fetched in less time than all are scanned.
    pub fn pay_for(&self, rows: usize) -> bool {
        (rows as f64).min(self.pages) * self.page_micros < self.scan_micros()
    }

    /// Whether all rows, in an order that has nothing to do with that of the table, are fetched in less time than they are
    /// carried through a sort that has `memory_bytes`.
    pub fn pay_for_sort(&self, memory_bytes: Option<usize>) -> bool {
        let bytes = self.rows * self.row_bytes;
        // Either way rows are copied twice: into runs or out of pages, and then into the order of the result.
        let mut early = self.scan_micros();
        if memory_bytes.is_some_and(|memory| bytes > memory as f64) {
            early += self.spill_micros(bytes);
        }
        self.page_reads(self.rows, memory_bytes) * self.page_micros < early
    }

    /// Fetching so many rows for a consumer that takes them in any order.
    pub fn fetch_micros(&self, fetched: &FetchedRows, memory_bytes: Option<usize>) -> f64 {
        let rows = fetched.rows;
        let touched = self.pages_of(rows);
        let copied = 2.0 * rows * self.row_bytes / BYTES_PER_MICRO;
        let as_they_come = self.page_reads(rows, memory_bytes);
        if fetched.in_table_order {
            return copied + touched * self.page_micros;
        }
        if as_they_come <= MOST_READS * self.pages {
            return copied + as_they_come * self.page_micros;
        }
        let sorted_bytes = rows * (fetched.carried_bytes + size_of::<u64>() as f64);
        let mut sort = rows * SORT_MICROS_PER_ROW + 2.0 * sorted_bytes / BYTES_PER_MICRO;
        if memory_bytes.is_some_and(|memory| sorted_bytes > memory as f64 / 2.0) {
            sort += self.spill_micros(sorted_bytes);
        }
        let once_sorted = fetched.partitions * self.pages_of(rows / fetched.partitions.max(1.0));
        copied + (MOST_READS * self.pages + once_sorted) * self.page_micros + sort
    }

    /// Carrying them along through so many rows.
    pub fn carry_micros(&self, rows: f64) -> f64 {
        rows * self.row_bytes / BYTES_PER_MICRO
    }

    /// Pages on which so many rows stand that are spread evenly (Cardenas, CACM 1975).
    fn pages_of(&self, rows: f64) -> f64 {
        self.pages * (1.0 - (1.0 - 1.0 / self.pages).powf(rows))
    }

    /// Reads of pages for rows in an order that has nothing to do with that of the table: those of a window that stand on
    /// one page have it read once.
    fn page_reads(&self, rows: f64, memory_bytes: Option<usize>) -> f64 {
        let window = (window_bytes(memory_bytes) as f64 / self.row_bytes.max(1.0)).clamp(1.0, rows.max(1.0));
        rows / window * self.pages_of(window)
    }
}

/// Rows that are fetched.
pub(super) struct FetchedRows {
    pub rows: f64,
    /// So many streams of them, each of which is sorted by itself if at all.
    pub partitions: f64,
    /// Whether they come in the order in which they stand in the table, about.
    pub in_table_order: bool,
    /// Bytes that each brings along.
    pub carried_bytes: f64,
}
