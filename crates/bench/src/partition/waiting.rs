//! The two algorithms of the paper, which wait for what they write: the yardsticks of Nandina's own partitioner.
//!
//! ```text
//!   partition 0   [page being filled]  ring: [full][full][full]   ← this ring is full
//!   partition 1   [page being filled]  ring: [full]
//!   partition 2   [page being filled]  ring: [full][full]
//!
//!   classic       writes ring 0, alone, and waits
//!   N-Hash        writes rings 0, 1, 2 as one batch of three requests, and waits for all
//! ```
//!
//! Contiguous sub-buffers of one ring form one request (a ring that wraps gives two); with page-sized writes every
//! sub-buffer is a request of its own. One thread, all partitions spilled from the beginning, nothing compressed.

use std::sync::Arc;

use arrow::array::RecordBatch;
use nandina_device::{File, Request};
use nandina_pages::{PageBuilder, PageIdentity, PageSchema, Rows};
use nandina_spill::{Partition, PartitionFile, PartitionerOptions, QuerySpace, Scatter, SealedPage};

use super::{Algorithm, Unit};
use crate::error::Result;

/// Scatters batches into partitions of PAX pages.
pub struct WaitingPartitioner {
    algorithm: Algorithm,
    unit: Unit,
    options: PartitionerOptions,
    space: Arc<QuerySpace>,
    partitions: Vec<Filling>,
}

struct Filling {
    builder: PageBuilder,
    /// Full sub-buffers that wait to be written.
    ring: Vec<SealedPage>,
    /// Position in the ring of the first of them: where the ring wraps, a write must end.
    ring_head: usize,
    file: PartitionFile,
    rows: u64,
}

impl Filling {
    /// A sub-buffer for each page, more for one of a row that is longer.
    fn taken_bytes(&self, page_bytes: usize) -> usize {
        self.ring.iter().map(|page| page.len_bytes().max(page_bytes)).sum()
    }

    fn seal(&mut self, space: &QuerySpace) -> Result<()> {
        let rows = self.builder.rows();
        if rows > 0 {
            let mut buffer = space.device().buffer(self.builder.encoded_bytes().next_multiple_of(4096));
            self.builder.encode(PageIdentity::default(), &mut buffer)?;
            self.ring.push(SealedPage::new(buffer, rows as u32));
        }
        Ok(())
    }
}

impl WaitingPartitioner {
    pub fn new(
        schema: &Arc<PageSchema>,
        (algorithm, unit): (Algorithm, Unit),
        options: PartitionerOptions,
        space: &Arc<QuerySpace>,
    ) -> Self {
        let filling = || Filling {
            builder: PageBuilder::new(Arc::clone(schema), options.page_bytes, options.max_page_rows),
            ring: Vec::new(),
            ring_head: 0,
            file: PartitionFile::new(Arc::clone(space), options.extent_bytes),
            rows: 0,
        };
        let partitions = (0..options.partitions()).map(|_| filling()).collect();
        Self { algorithm, unit, space: Arc::clone(space), partitions, options }
    }

    /// Bytes of pages being filled and of full ones.
    pub fn memory_bytes(&self) -> usize {
        let of = |filling: &Filling| {
            filling.builder.memory_bytes() + filling.ring.iter().map(SealedPage::len_bytes).sum::<usize>()
        };
        self.partitions.iter().map(of).sum()
    }

    /// Appends the rows of `batch` to the partitions that `scatter` chose for them. Full rings are written, and waited for.
    pub fn push(&mut self, batch: &RecordBatch, scatter: &Scatter) -> Result<()> {
        let page_bytes = self.options.page_bytes;
        for number in 0..self.partitions.len() {
            let mut rows = scatter.rows_of(number);
            while let Some(filling) = self.partitions.get_mut(number).filter(|_| !rows.is_empty()) {
                let taken = filling.builder.append(batch, Rows::Indices(rows))?;
                filling.rows += taken as u64;
                rows = rows.get(taken..).unwrap_or_default();
                if rows.is_empty() {
                    break;
                }
                filling.seal(&self.space)?;
                if filling.taken_bytes(page_bytes) + page_bytes > self.options.ring_pages * page_bytes {
                    self.flush(number)?;
                }
            }
        }
        Ok(())
    }

    /// Writes what is left.
    pub fn finish(mut self) -> Result<Vec<Partition>> {
        let mut writes = Vec::new();
        for filling in &mut self.partitions {
            filling.seal(&self.space)?;
            collect(filling, self.unit, &self.options, &mut writes)?;
        }
        self.space.device().submit_many(writes, Some(self.space.io())).wait()?;
        let partition =
            |Filling { file, rows, .. }| Partition { resident: Vec::new(), file: Some(Arc::new(file)), rows };
        Ok(self.partitions.into_iter().map(partition).collect())
    }

    /// Writes the full ring of partition `number` and, unless classic, every other full sub-buffer with it.
    fn flush(&mut self, number: usize) -> Result<()> {
        let mut writes = Vec::new();
        for (other, filling) in self.partitions.iter_mut().enumerate() {
            if other == number || self.algorithm != Algorithm::Classic {
                collect(filling, self.unit, &self.options, &mut writes)?;
            }
        }
        self.space.device().submit_many(writes, Some(self.space.io())).wait()?;
        Ok(())
    }
}

/// Moves the full sub-buffers of one ring into write requests.
fn collect(
    filling: &mut Filling,
    unit: Unit,
    options: &PartitionerOptions,
    writes: &mut Vec<(File, Request)>,
) -> Result<()> {
    let ring_pages = options.ring_pages.max(1);
    let taken_pages = filling.taken_bytes(options.page_bytes).div_ceil(options.page_bytes.max(1));
    let mut ring = std::mem::take(&mut filling.ring);
    let wrapped = ring.split_off(ring.len().min(ring_pages - filling.ring_head));
    filling.ring_head = (filling.ring_head + taken_pages.min(ring_pages)) % ring_pages;
    for contiguous in [ring, wrapped] {
        match unit {
            Unit::Blocked => writes.extend(filling.file.append(contiguous)?),
            Unit::PageSized => {
                for page in contiguous {
                    writes.extend(filling.file.append(vec![page])?);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, Int64Array, StringViewArray};
    use arrow::datatypes::Int64Type;

    use nandina_simulation::FaultPlan;
    use nandina_spill::{Compression, TempOptions, TempSpace, partition_of};

    use super::*;

    const WAITING: [Algorithm; 2] = [Algorithm::Classic, Algorithm::NHash];

    fn space() -> Arc<QuerySpace> {
        let (device, _faults) = nandina_simulation::in_memory(FaultPlan::default());
        let options = TempOptions { compression: Compression::Off, ..TempOptions::default() };
        TempSpace::open(device, options).unwrap().query("test")
    }

    fn options(ring_pages: usize) -> PartitionerOptions {
        PartitionerOptions {
            partition_bits: 3,
            page_bytes: 4096,
            max_page_rows: 8192,
            ring_pages,
            extent_bytes: 16 << 20,
        }
    }

    fn hash(key: i64) -> u64 {
        (key as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Keys `first..first + rows`; texts of every 100th are longer than a page.
    fn batch(first: i64, rows: i64) -> RecordBatch {
        let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + rows));
        let text =
            |key: i64| format!("{key}").repeat(if key % 100 == 99 { 3000 } else { (key % 9) as usize });
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values((first..first + rows).map(text)));
        RecordBatch::try_from_iter([("key", keys), ("text", texts)]).unwrap()
    }

    fn filled(
        contender: (Algorithm, Unit),
        ring_pages: usize,
        rows: i64,
    ) -> (Arc<QuerySpace>, WaitingPartitioner) {
        let space = space();
        let schema = PageSchema::try_new(batch(0, 1).schema()).unwrap();
        let mut partitioner = WaitingPartitioner::new(&schema, contender, options(ring_pages), &space);
        for first in (0..rows).step_by(500) {
            let hashes: Vec<u64> = (first..first + 500).map(hash).collect();
            let mut scatter = Scatter::default();
            scatter.by_hash(&hashes, 3);
            partitioner.push(&batch(first, 500), &scatter).unwrap();
        }
        (space, partitioner)
    }

    #[test]
    fn partitions_keep_their_rows() {
        for algorithm in WAITING {
            for (unit, ring_pages) in [(Unit::Blocked, 1), (Unit::Blocked, 4), (Unit::PageSized, 4)] {
                let (space, partitioner) = filled((algorithm, unit), ring_pages, 5000);
                let partitions = partitioner.finish().unwrap();
                let page_bytes: u64 = partitions.iter().map(Partition::bytes).sum();
                assert_eq!(space.spilled_page_bytes(), page_bytes);
                assert_eq!(space.io().statistics().bytes_written, page_bytes);
                let whole = batch(0, 5000);
                let schema = PageSchema::try_new(whole.schema()).unwrap();
                for (number, partition) in partitions.into_iter().enumerate() {
                    let mut reader = partition.file.unwrap().read(Arc::clone(&schema), 1 << 20);
                    let mut found = Vec::new();
                    while let Some(page) = reader.next_blocking().unwrap() {
                        let batch = page.batch(None).unwrap();
                        for (key, text) in batch
                            .column(0)
                            .as_primitive::<Int64Type>()
                            .values()
                            .iter()
                            .zip(batch.column(1).as_string_view())
                        {
                            assert_eq!(text, Some(whole.column(1).as_string_view().value(*key as usize)));
                            found.push(*key);
                        }
                    }
                    let expected: Vec<i64> =
                        (0..5000).filter(|&key| partition_of(hash(key), 3) == number).collect();
                    assert_eq!(found, expected, "partition {number} of {algorithm:?}");
                    assert_eq!(partition.rows, found.len() as u64);
                }
            }
        }
    }

    #[test]
    fn n_hash_writes_rings_together_and_classic_alone() {
        let requests_at_once = |algorithm| {
            let (space, _partitioner) = filled((algorithm, Unit::Blocked), 4, 20_000);
            let statistics = space.io().statistics();
            (statistics.peak_in_flight, statistics.write_requests)
        };
        let (n_hash_depth, n_hash_requests) = requests_at_once(Algorithm::NHash);
        let (classic_depth, classic_requests) = requests_at_once(Algorithm::Classic);
        assert_eq!(classic_depth, 1);
        assert!(n_hash_depth >= 4, "depth {n_hash_depth}");
        assert!(n_hash_requests > classic_requests / 2, "{n_hash_requests} against {classic_requests}");
    }
}
