//! Writing rows to temporary space.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::execution::memory_pool::MemoryReservation;
use nandina_device::block_on;
use nandina_spill::{Partition, Partitioner, Scatter};

use super::context::SpillContext;
use super::file::SpillFile;
use crate::error::spill_error;
use crate::keys::hashes_of;
use crate::memory::portion_rows;

/// Writes spill files: one, or one for each partition.
pub(crate) struct SpillWriter {
    context: Arc<SpillContext>,
    partitioner: Arc<Partitioner>,
    /// The memory of pages being filled and written.
    _buffers: MemoryReservation,
}

impl SpillWriter {
    /// Begins a file, or one for each partition.
    pub(crate) fn new(context: &Arc<SpillContext>) -> Result<Self> {
        let buffers = context.reserve(context.write_buffer_bytes());
        let (pages, space) = (Arc::clone(&context.pages), Arc::clone(&context.space));
        let partitioner = Partitioner::new(pages, context.options.clone(), space);
        for partition in 0..context.partitions() {
            partitioner.spill(partition).map_err(spill_error)?;
        }
        Ok(Self { context: Arc::clone(context), partitioner: Arc::new(partitioner), _buffers: buffers })
    }

    /// Adds rows, and waits until the device has kept up.
    pub(crate) async fn write(&self, rows: &RecordBatch) -> Result<()> {
        for portion in self.portions(rows) {
            self.push_portion(&portion)?;
            self.throttle().await?;
        }
        self.context.metrics.spilled_rows.add(rows.num_rows());
        Ok(())
    }

    /// Adds rows. The caller waits until the device has kept up, see [`Self::throttle`].
    pub(crate) fn push(&self, rows: &RecordBatch) -> Result<()> {
        self.portions(rows).try_for_each(|portion| self.push_portion(&portion))?;
        self.context.metrics.spilled_rows.add(rows.num_rows());
        Ok(())
    }

    /// Waits, without holding the writer, until the bytes that are being written are no more than the buffers.
    pub(crate) fn throttle(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        let (partitioner, time) = (Arc::clone(&self.partitioner), self.context.metrics.time.clone());
        async move {
            let _waiting = time.timer();
            partitioner.throttle().await.map_err(spill_error)
        }
    }

    /// Like [`Self::throttle`], blocking the thread.
    pub(crate) fn throttle_blocking(&self) -> Result<()> {
        block_on(self.partitioner.throttle()).map_err(spill_error)
    }

    /// The file of every partition that has rows, when all of them have arrived at the device.
    pub(crate) async fn finish(self) -> Result<Vec<Option<SpillFile>>> {
        let finished = self.partitioner.finish().map_err(spill_error)?;
        let waiting = self.context.metrics.time.timer();
        self.partitioner.drain_to(0).await.map_err(spill_error)?;
        drop(waiting);
        Ok(self.files(finished))
    }

    /// The file of a writer of one, when all of it has arrived at the device; `None` if it has no rows.
    pub(crate) async fn finish_one(self) -> Result<Option<SpillFile>> {
        only(self.finish().await?)
    }

    /// Like [`Self::finish_one`], blocking the thread.
    pub(crate) fn finish_one_blocking(self) -> Result<Option<SpillFile>> {
        let finished = self.partitioner.finish().map_err(spill_error)?;
        self.partitioner.drain_to_blocking(0).map_err(spill_error)?;
        only(self.files(finished))
    }

    fn files(self, finished: Vec<Partition>) -> Vec<Option<SpillFile>> {
        self.context.report_io();
        let with_rows = |partition: Partition| {
            let file = partition.file.filter(|file| file.rows() > 0)?;
            Some(SpillFile::new(&self.context, file))
        };
        finished.into_iter().map(with_rows).collect()
    }

    /// `rows` in parts that are small against the memory.
    fn portions(&self, rows: &RecordBatch) -> impl Iterator<Item = RecordBatch> {
        let portion_rows = portion_rows(rows, self.context.memory_limit);
        let portion = move |first| rows.slice(first, portion_rows.min(rows.num_rows() - first));
        (0..rows.num_rows()).step_by(portion_rows).map(portion)
    }

    fn push_portion(&self, rows: &RecordBatch) -> Result<()> {
        let mut scatter = Scatter::default();
        match self.context.options.partition_bits {
            0 => scatter.to_partition(0, rows.num_rows(), 0),
            bits => scatter.by_hash(hashes_of(rows), bits),
        }
        self.partitioner.push(rows, &scatter).map_err(spill_error)
    }
}

fn only(files: Vec<Option<SpillFile>>) -> Result<Option<SpillFile>> {
    let Ok([file]) = <[_; 1]>::try_from(files) else {
        return Err(internal_datafusion_err!("rows of one spill file were scattered"));
    };
    Ok(file)
}
