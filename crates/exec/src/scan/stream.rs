//! The batches of one partition of a scan.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::BatchCoalescer;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::execution::{RecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, Gauge, MetricBuilder,
};
use futures::Stream;
use nandina_device::IoAccount;
use nandina_storage::{ScanFigures, ScanReader};
use parking_lot::Mutex;

use super::storage_error;
use super::window::ReadWindow;
use crate::batch::row_width::value_bytes;
use crate::memory::{output_bytes, pool_limit};
use crate::rows::OpenScan;

/// Figures of all partitions together; each reports what has been added since anyone did.
#[derive(Debug)]
pub(super) struct ScanMetrics {
    account: Arc<IoAccount>,
    reported: Mutex<ScanFigures>,
    rows_filtered: Count,
    bytes_read: Count,
    bytes_cached: Count,
    requests: Count,
    pages_read: Count,
    pages_pruned: Count,
    pages_filtered: Count,
    window_bytes: Gauge,
    mean_queue_depth_x100: Gauge,
}

impl ScanMetrics {
    pub fn new(set: &ExecutionPlanMetricsSet, account: Arc<IoAccount>) -> Self {
        let count = |name: &'static str| MetricBuilder::new(set).global_counter(name);
        let gauge = |name: &'static str| MetricBuilder::new(set).global_gauge(name);
        Self {
            account,
            reported: Mutex::default(),
            rows_filtered: count("rows_filtered"),
            bytes_read: count("bytes_read"),
            bytes_cached: count("bytes_cached"),
            requests: count("read_requests"),
            pages_read: count("pages_read"),
            pages_pruned: count("pages_pruned"),
            pages_filtered: count("pages_filtered"),
            window_bytes: gauge("window_bytes"),
            mean_queue_depth_x100: gauge("mean_queue_depth_x100"),
        }
    }

    fn report(&self, figures: ScanFigures, ended: bool) {
        let mut reported = self.reported.lock();
        let add = |count: &Count, now: u64, before: u64| count.add(now.saturating_sub(before) as usize);
        add(&self.rows_filtered, figures.rows_filtered, reported.rows_filtered);
        add(&self.bytes_read, figures.bytes_read, reported.bytes_read);
        add(&self.bytes_cached, figures.bytes_cached, reported.bytes_cached);
        add(&self.requests, figures.requests, reported.requests);
        add(&self.pages_read, figures.pages_read, reported.pages_read);
        add(&self.pages_pruned, figures.pages_pruned, reported.pages_pruned);
        add(&self.pages_filtered, figures.pages_filtered, reported.pages_filtered);
        *reported = figures;
        if ended {
            let depth = self.account.statistics().mean_queue_depth();
            self.mean_queue_depth_x100.set((depth * 100.0).round() as usize);
        }
    }
}

/// Batches of one partition: the rows of pages that pass, joined and cut to the session's batch size.
pub(super) struct ScanStream {
    reader: ScanReader,
    schema: SchemaRef,
    batch_rows: usize,
    page_bytes: usize,
    /// Whether what a filter leaves of pages is joined, copying it: a few rows would keep a whole page in memory.
    joins_pages: bool,
    /// Does it, from the first rows on.
    coalescer: Option<BatchCoalescer>,
    is_exhausted: bool,
    /// Rows of the last batch that are yet to be emitted.
    rest: Option<RecordBatch>,
    /// Rows behind an error would be incomplete.
    has_failed: bool,
    /// Of the limit, all partitions together.
    rows_left: Arc<AtomicUsize>,
    shared_metrics: Arc<ScanMetrics>,
    baseline: BaselineMetrics,
    /// Reserved at the first poll, given back at the end.
    window: Option<ReadWindow>,
    /// Keeps rows from being changed until this has ended.
    open: Option<Arc<OpenScan>>,
    context: Arc<TaskContext>,
}

impl ScanStream {
    pub fn new(
        reader: ScanReader,
        page_bytes: usize,
        rows_left: Arc<AtomicUsize>,
        shared_metrics: Arc<ScanMetrics>,
        baseline: BaselineMetrics,
        context: Arc<TaskContext>,
    ) -> Self {
        let batch_rows = context.session_config().batch_size().max(1);
        let schema = Arc::clone(reader.scan().schema());
        // Under a limit, the first rows are wanted as soon as they are there.
        let is_limited = rows_left.load(Ordering::Relaxed) != usize::MAX;
        let joins_pages = reader.scan().filters_rows() && !is_limited;
        Self {
            reader,
            schema,
            batch_rows,
            page_bytes,
            joins_pages,
            coalescer: None,
            is_exhausted: false,
            rest: None,
            has_failed: false,
            rows_left,
            shared_metrics,
            baseline,
            window: None,
            open: None,
            context,
        }
    }

    pub fn keeping(self, open: Option<Arc<OpenScan>>) -> Self {
        Self { open, ..self }
    }

    /// The next rows, any number of them.
    fn poll_rows(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        if let Some(rest) = self.rest.take() {
            return Poll::Ready(Some(Ok(rest)));
        }
        loop {
            if let Some(batch) = self.coalescer.as_mut().and_then(BatchCoalescer::next_completed_batch) {
                return Poll::Ready(Some(Ok(batch)));
            }
            if self.is_exhausted {
                return Poll::Ready(None);
            }
            let batch = ready!(self.poll_page(context)).transpose()?;
            if !self.joins_pages {
                return Poll::Ready(batch.map(Ok));
            }
            match batch {
                Some(batch) => self.join(batch)?,
                None => {
                    self.is_exhausted = true;
                    self.coalescer.as_mut().map_or(Ok(()), BatchCoalescer::finish_buffered_batch)?;
                }
            }
        }
    }

    /// Adds the rest of a page to the rows that wait for more.
    fn join(&mut self, page: RecordBatch) -> Result<()> {
        if page.num_rows() == 0 {
            return Ok(());
        }
        let coalescer = self.coalescer.get_or_insert_with(|| {
            // As wide as the first rows, so that wide ones do not make large batches.
            let bytes: usize = page.columns().iter().map(value_bytes).sum();
            let row_bytes = bytes / page.num_rows() + 1;
            let most_bytes = output_bytes(pool_limit(self.context.memory_pool().as_ref()));
            let rows = (most_bytes / row_bytes).clamp(1, self.batch_rows);
            BatchCoalescer::new(Arc::clone(&self.schema), rows)
                .with_biggest_coalesce_batch_size(Some(rows / 2))
        });
        Ok(coalescer.push_batch(page)?)
    }

    fn poll_page(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        if self.window.is_none() {
            let table = self.reader.scan().table();
            // Of a small table, no more is ever held than there is of it.
            let table_bytes = usize::try_from(table.file_bytes()).unwrap_or(usize::MAX);
            let window = ReadWindow::reserve(
                self.context.memory_pool(),
                "TableScanExec",
                table.store().device().sizes().read_window_bytes().min(table_bytes),
                self.page_bytes.min(table_bytes),
            );
            self.reader.set_window_bytes(window.bytes());
            self.shared_metrics.window_bytes.set_max(window.bytes());
            self.window = Some(window);
        }
        let timer = self.baseline.elapsed_compute().timer();
        let next = Pin::new(&mut self.reader).poll_next(context).map_err(storage_error);
        timer.done();
        next
    }

    fn end(&mut self) -> Poll<Option<Result<RecordBatch>>> {
        self.window = None;
        self.open = None;
        self.shared_metrics.report(self.reader.scan().figures(), true);
        Poll::Ready(None)
    }

    /// Takes up to `rows` of what the limit leaves.
    fn take_of_limit(&self, rows: usize) -> usize {
        if self.rows_left.load(Ordering::Relaxed) == usize::MAX {
            return rows;
        }
        let taken = self
            .rows_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(rows)));
        rows.min(taken.unwrap_or(0))
    }
}

impl Stream for ScanStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_failed || self.rows_left.load(Ordering::Relaxed) == 0 {
            return self.end();
        }
        let batch = match ready!(self.poll_rows(context)) {
            Some(Ok(batch)) => batch,
            Some(Err(error)) => {
                self.has_failed = true;
                return Poll::Ready(Some(Err(error)));
            }
            None => return self.end(),
        };
        let rows = batch.num_rows().min(self.batch_rows);
        if rows < batch.num_rows() {
            self.rest = Some(batch.slice(rows, batch.num_rows() - rows));
        }
        let rows = self.take_of_limit(rows);
        if rows == 0 && batch.num_rows() > 0 {
            return self.end();
        }
        self.shared_metrics.report(self.reader.scan().figures(), false);
        self.baseline.record_output(rows);
        Poll::Ready(Some(Ok(batch.slice(0, rows))))
    }
}

impl RecordBatchStream for ScanStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
