//! From the input of a fetch to its stream of results.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_stream::try_stream;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, Gauge, MetricBuilder,
};
use futures::{Stream, StreamExt as _};
use nandina_device::{IoAccount, Priority};
use nandina_storage::ReadCache;

use super::sort::SortByRowId;
use super::source::{Reads, Source};
use super::window::fetch_window;
use crate::batch::{HeldBatch, array_bytes, data_bytes};
use crate::execution::meter::inherited;
use crate::execution::query_flow;
use crate::memory::{HeldMemory, output_bytes, pool_limit};
use crate::scan::{PageReads, read_cache};

/// Rows of the first window. Each has twice those of the one before, until it is as large as windows get.
const FIRST_ROWS: usize = 1 << 10;
/// The share of memory that one window may take.
const WINDOW_SHARE: usize = 32;
/// The share of memory that the reads of one window may take.
const READ_SHARE: usize = 32;
/// Of the reads of one window: enough for some requests at a time.
const LEAST_READ_BYTES: usize = 256 << 10;
/// The bounds of a window in bytes. More rows have more of them on one page, which is read once per window.
const LEAST_WINDOW_BYTES: usize = 256 << 10;
const MOST_WINDOW_BYTES: usize = 32 << 20;

/// Bytes of rows that are fetched at once under `limit`.
pub fn window_bytes(limit: Option<usize>) -> usize {
    let share = limit.map_or(MOST_WINDOW_BYTES, |limit| limit / WINDOW_SHARE);
    share.clamp(LEAST_WINDOW_BYTES, MOST_WINDOW_BYTES)
}

/// Figures of one partition.
pub(crate) struct FetchMetrics {
    baseline: BaselineMetrics,
    windows: Count,
    page_reads: Count,
    bytes_read: Count,
    requests: Count,
    mean_queue_depth_x100: Gauge,
    peak_memory: Gauge,
}

impl FetchMetrics {
    pub fn new(set: &ExecutionPlanMetricsSet, partition: usize) -> Self {
        Self {
            baseline: BaselineMetrics::new(set, partition),
            windows: MetricBuilder::new(set).counter("windows", partition),
            page_reads: MetricBuilder::new(set).counter("page_reads", partition),
            bytes_read: MetricBuilder::new(set).counter("bytes_read", partition),
            requests: MetricBuilder::new(set).counter("read_requests", partition),
            mean_queue_depth_x100: MetricBuilder::new(set).gauge("mean_queue_depth_x100", partition),
            peak_memory: MetricBuilder::new(set).gauge("peak_mem_used", partition),
        }
    }
}

/// What the windows of one partition have in common.
pub(crate) struct Fetching {
    sources: Arc<[Source]>,
    schema: SchemaRef,
    /// Windows at a time.
    tasks: usize,
    batch_rows: usize,
    /// Of an output batch.
    batch_bytes: usize,
    /// Of a window.
    most_bytes: usize,
    /// Of the reads of one window that are in flight or not decoded yet.
    read_bytes: usize,
    memory: HeldMemory,
    whole_pages: bool,
    account: Arc<IoAccount>,
    cache: Option<Arc<ReadCache>>,
    /// Pages of which columns were read, once per window: by all partitions, and by this one.
    page_reads: Arc<AtomicU64>,
    own_page_reads: Arc<AtomicU64>,
    metrics: FetchMetrics,
}

impl Fetching {
    pub fn new(
        sources: Arc<[Source]>,
        schema: SchemaRef,
        tasks: usize,
        page_reads: Arc<AtomicU64>,
        metrics: FetchMetrics,
        context: &TaskContext,
    ) -> Self {
        let pool: &Arc<dyn MemoryPool> = context.memory_pool();
        let limit = pool_limit(pool.as_ref());
        let useful = sources.iter().map(Source::useful_read_bytes).max().unwrap_or_default();
        let share = limit.map_or(useful, |limit| limit / READ_SHARE);
        Self {
            read_bytes: share.max(LEAST_READ_BYTES).min(useful),
            sources,
            schema,
            tasks: tasks.max(1),
            batch_rows: context.session_config().batch_size().max(1),
            batch_bytes: output_bytes(limit),
            most_bytes: window_bytes(limit),
            memory: HeldMemory::new(pool, "FetchExec", metrics.peak_memory.clone()),
            whole_pages: PageReads::of(context).are_whole(),
            account: IoAccount::of_flow(query_flow(context), Priority::Scan),
            cache: read_cache(context),
            page_reads,
            own_page_reads: Arc::default(),
            metrics,
        }
    }

    /// Bytes that are fetched for each of some rows, about.
    fn fetched_bytes(&self, rows: &RecordBatch) -> Vec<usize> {
        let mut bytes = vec![0; rows.num_rows()];
        self.sources.iter().for_each(|source| source.add_row_bytes(rows, &mut bytes));
        bytes
    }

    /// The rows of a window, in a task of its own.
    fn start(&self, window: Window) -> SpawnedTask<Result<(RecordBatch, HeldMemory)>> {
        let (sources, schema) = (Arc::clone(&self.sources), Arc::clone(&self.schema));
        let reads = Reads {
            window_bytes: (self.read_bytes / self.sources.len().max(1)).max(1),
            whole_pages: self.whole_pages,
            account: Arc::clone(&self.account),
            cache: self.cache.clone(),
            pages: Arc::default(),
        };
        let counts = [Arc::clone(&self.page_reads), Arc::clone(&self.own_page_reads)];
        self.metrics.windows.add(1);
        let timer = self.metrics.baseline.elapsed_compute().clone();
        SpawnedTask::spawn(inherited(async move {
            let _timer = timer.timer();
            let Window { batches, memory, .. } = window;
            let rows = fetch_window(batches, &sources, &schema, &reads).await?;
            counts.iter().for_each(|count| {
                count.fetch_add(reads.pages.load(Ordering::Relaxed), Ordering::Relaxed);
            });
            memory.resize(data_bytes(&rows) + array_bytes(&rows));
            Ok((rows, memory))
        }))
    }
}

/// A consumer that has seen enough leaves figures too.
impl Drop for Fetching {
    fn drop(&mut self) {
        let io = self.account.statistics();
        self.metrics.page_reads.add(self.own_page_reads.load(Ordering::Relaxed) as usize);
        self.metrics.bytes_read.add(io.bytes_read as usize);
        self.metrics.requests.add(io.read_requests as usize);
        self.metrics.mean_queue_depth_x100.set((io.mean_queue_depth() * 100.0).round() as usize);
    }
}

/// Rows that are fetched for at once.
struct Window {
    batches: Vec<RecordBatch>,
    rows: usize,
    /// Of the rows with what is fetched for them.
    bytes: usize,
    most_rows: usize,
    memory: HeldMemory,
}

impl Window {
    fn new(most_rows: usize, memory: HeldMemory) -> Self {
        Self { batches: Vec::new(), rows: 0, bytes: 0, most_rows, memory }
    }

    /// Takes rows of `batch`, at least one if there are none yet, and says whether these were all that the window takes: as many
    /// as were wanted, or as memory has room for. Returns the others.
    fn take(&mut self, batch: RecordBatch, fetching: &Fetching) -> Result<(bool, Option<RecordBatch>)> {
        let rows = batch.num_rows();
        if rows == 0 {
            return Ok((false, None));
        }
        let (own_bytes, fetched_bytes) = (data_bytes(&batch) / rows, fetching.fetched_bytes(&batch));
        let fitting = fetched_bytes.iter().scan(self.bytes, |bytes, fetched_bytes| {
            *bytes += own_bytes + fetched_bytes;
            (*bytes <= fetching.most_bytes).then_some(())
        });
        let fitting = fitting.take(self.most_rows.saturating_sub(self.rows)).count();
        if fitting == 0 && self.rows > 0 {
            return Ok((true, Some(batch)));
        }
        let fitting = fitting.max(1);
        let others = (fitting < rows).then(|| batch.slice(fitting, rows - fitting));
        let fetched_bytes = fetched_bytes.iter().take(fitting).sum();
        let has_room = self.add(batch.slice(0, fitting), fetched_bytes, fetching)?;
        let is_full = others.is_some() || self.rows >= self.most_rows || self.bytes >= fetching.most_bytes;
        Ok((!has_room || is_full, others))
    }

    /// Adds rows that `fetched_bytes` are fetched for. Returns whether memory has room for them.
    fn add(&mut self, batch: RecordBatch, fetched_bytes: usize, fetching: &Fetching) -> Result<bool> {
        let held = HeldBatch::new(batch)?;
        let read_bytes = if self.batches.is_empty() { fetching.read_bytes } else { 0 };
        self.bytes += held.bytes + fetched_bytes;
        // What comes is copied into one batch. What is fetched is there page by page, and put together column by column,
        // twice for the column that is being put in order.
        let bytes = 2 * held.bytes + 3 * fetched_bytes + read_bytes;
        self.rows += held.rows.num_rows();
        self.batches.push(held.rows);
        let has_room = self.memory.try_grow(bytes);
        if !has_room {
            // The rows are there; what is fetched for them is as much as one batch, which goes out next.
            self.memory.grow(bytes);
        }
        Ok(has_room)
    }
}

type Fetched = SpawnedTask<Result<(RecordBatch, HeldMemory)>>;

enum Event {
    /// The oldest window is there.
    Done(Result<(RecordBatch, HeldMemory)>),
    Input(Option<Result<RecordBatch>>),
}

/// The rows of `input` with what is fetched for them.
pub(super) fn fetched(
    fetching: Fetching,
    mut input: SendableRecordBatchStream,
    mut sort: Option<SortByRowId>,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    try_stream! {
        let mut running: VecDeque<Fetched> = VecDeque::new();
        let mut window = Window::new(FIRST_ROWS, fetching.memory.another());
        let mut has_ended = false;
        // Of the last batch, what no window has taken yet.
        let mut rest: Option<RecordBatch> = None;
        loop {
            let may_start = !has_ended && running.len() <= fetching.tasks;
            if !may_start && running.is_empty() {
                break;
            }
            let event = tokio::select! {
                biased;
                done = oldest(&mut running), if !running.is_empty() => Event::Done(done),
                batch = next_rows(&mut rest, &mut input), if may_start => Event::Input(batch),
            };
            let is_full = match event {
                Event::Done(done) => {
                    let (rows, memory) = done?;
                    for batch in cut(&rows, &fetching) {
                        fetching.metrics.baseline.record_output(batch.num_rows());
                        yield batch;
                    }
                    drop(memory);
                    let page_reads = fetching.page_reads.load(Ordering::Relaxed);
                    if !has_ended && let Some(sort) = sort.take_if(|sort| sort.pays_after(page_reads)) {
                        input = sort.sorted(input)?;
                    }
                    continue;
                }
                Event::Input(Some(batch)) => {
                    let (is_full, others) = window.take(batch?, &fetching)?;
                    rest = others;
                    is_full
                }
                Event::Input(None) => {
                    has_ended = true;
                    window.rows > 0
                }
            };
            if is_full {
                let next = Window::new(window.most_rows.saturating_mul(2), fetching.memory.another());
                running.push_back(fetching.start(std::mem::replace(&mut window, next)));
            }
        }
    }
}

async fn next_rows(
    rest: &mut Option<RecordBatch>,
    input: &mut SendableRecordBatchStream,
) -> Option<Result<RecordBatch>> {
    match rest.take() {
        Some(rest) => Some(Ok(rest)),
        None => input.next().await,
    }
}

/// The same in the order of the input.
pub(crate) fn fetched_in_order(
    fetching: Fetching,
    input: SendableRecordBatchStream,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    fetched(fetching, input, None)
}

async fn oldest(running: &mut VecDeque<Fetched>) -> Result<(RecordBatch, HeldMemory)> {
    let Some(task) = running.front_mut() else { unreachable!("windows are waited for while there are some") };
    let done = task.await.map_err(|error| DataFusionError::External(Box::new(error)));
    running.pop_front();
    done?
}

/// Batches as large as consumers expect them.
fn cut<'a>(rows: &'a RecordBatch, fetching: &Fetching) -> impl Iterator<Item = RecordBatch> + use<'a> {
    let row_bytes = (data_bytes(rows) / rows.num_rows().max(1)).max(1);
    let most = (fetching.batch_bytes / row_bytes).clamp(1, fetching.batch_rows);
    (0..rows.num_rows()).step_by(most).map(move |start| rows.slice(start, most.min(rows.num_rows() - start)))
}
