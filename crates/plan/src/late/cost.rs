//! What reading columns early and late costs, in microseconds.
//!
//! Both ways are counted by what the device's profile says about reads of a size and by bytes that the processor touches.
//! A fetch reads, for each row, the neighbouring columns of its page in one request, and decodes all their values.

use nandina_exec::batch::row_width::{TEXT_BYTES, column_bytes, text_bytes};
use nandina_exec::fetch::window_bytes;
use nandina_storage::Table;

/// Tables of fewer bytes are read at once, whatever is wanted of them.
const SMALL_TABLE_BYTES: u64 = 4 << 20;

/// Bytes that one processor decodes or copies in a microsecond, about.
const BYTES_PER_MICRO: f64 = 2000.0;

/// Columns of a table that could be read late.
pub(super) struct LateColumns<'a> {
    table: &'a Table,
    rows: f64,
    pages: f64,
    /// Stored bytes of all these columns of a row, about.
    row_bytes: f64,
    /// Reading and decoding them of one page.
    page_micros: f64,
}

impl<'a> LateColumns<'a> {
    /// `None` if the table is not worth it.
    pub fn of(table: &'a Table, columns: &[usize]) -> Option<Self> {
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
        Some(Self {
            table,
            rows,
            pages,
            row_bytes: columns.iter().map(width).sum(),
            page_micros: page_micros.sum(),
        })
    }

    /// Of all rows, in sequence.
    fn scan_micros(&self) -> f64 {
        let bandwidth = self.table.store().device().profile().reads.sequential_bandwidth();
        let bytes = self.rows * self.row_bytes;
        bytes / bandwidth * 1e6 + bytes / BYTES_PER_MICRO
    }

    /// Whether `rows` rows anywhere in the table are fetched in less time than all are scanned.
    pub fn pay_for(&self, rows: usize) -> bool {
        (rows as f64).min(self.pages) * self.page_micros < self.scan_micros()
    }

    /// Whether all rows, in an order that has nothing to do with that of the table, are fetched in less time than they are
    /// carried through a sort that has `memory_bytes`.
    pub fn pay_for_sort(&self, memory_bytes: Option<usize>) -> bool {
        let profile = self.table.store().device().profile();
        let bytes = self.rows * self.row_bytes;
        // Either way rows are copied twice: into runs or out of pages, and then into the order of the result.
        let mut early = self.scan_micros();
        if memory_bytes.is_some_and(|memory| bytes > memory as f64) {
            early += bytes / profile.writes.full_bandwidth() * 1e6;
            early += bytes / profile.reads.full_bandwidth() * 1e6;
        }
        let window = (window_bytes(memory_bytes) as f64 / self.row_bytes.max(1.0)).clamp(1.0, self.rows);
        // Rows of a window that stand on one page have it read once.
        let read = self.pages * (1.0 - (1.0 - 1.0 / self.pages).powf(window));
        self.rows / window * read * self.page_micros < early
    }
}
