//! What all output partitions of one join share: the build side being consumed, then being probed.
//!
//! ```text
//!  build streams ─► push ─► ResidentPartitions ──finish──► tables of resident partitions ─► Stage::Probing
//!                                                          files of spilled partitions
//! ```
//!
//! *Reclaim.* The governor may ask at any time until the last probe row has been seen, from any thread. While
//! building, partitions are spilled. Afterwards the table of a partition is taken out of the
//! [`BuildSide`]: batches that are being probed still hold the old one and finish, later rows of the partition
//! are spilled. Which of its rows had matched by then stays in memory and goes with the spilled pair.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::compute::filter_record_batch;
use datafusion::common::{NullEquality, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryPool;
use futures::StreamExt;
use nandina_pages::Page;
use nandina_spill::{
    Partition, PartitionFile, Partitioner, PartitionerOptions, QuerySpace, Scatter, SealedPage,
};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use super::build_side::{BuildSide, EarlierVisits};
use super::dynamic_filter::BuildBounds;
use super::estimate::BuildEstimate;
use super::key_bitmap::{KeyBitmap, KeyRange};
use super::metrics::HashJoinMetrics;
use super::side_rows::InnerFacts;
use super::spill_cost::SpillCost;
use super::spilled_keys::SpilledKeys;
use super::spilled_pair::SpilledPair;
use super::table::{PartitionTable, TABLE_BYTES_PER_ROW};
use crate::error::spill_error;
use crate::execution::Progress;
use crate::execution::meter::inherited_work;
use crate::join::kind::SideRows;
use crate::join::metrics::JoinMetrics;
use crate::join::spec::JoinSpec;
use crate::keys::KeyHasher;
use crate::memory::{
    HeldMemory, MemoryGovernor, Reclaim, ReclaimHandle, partitioner_options, pool_limit, read_window_bytes,
};
use crate::spill::{DestagePolicy, Destination, PartitionsMetrics, ResidentPartitions};

/// Where the join stands.
enum Stage {
    Building(Arc<ResidentPartitions>),
    Probing(Probing),
    /// The last probe row has been seen; what remains has been taken over by a worker.
    Probed,
}

/// The build side, complete.
struct Probing {
    build: Arc<BuildSide>,
    /// The pages of every partition: in memory (shared with its table) or on the device.
    pages: Vec<BuildPages>,
    /// Takes the probe rows of spilled partitions.
    probe: Arc<Partitioner>,
}

#[derive(Clone, Debug, Default)]
struct BuildPages {
    resident: Vec<SealedPage>,
    file: Option<Arc<PartitionFile>>,
    /// Of a partition that was spilled while it was probed.
    earlier: Option<EarlierVisits>,
}

/// The work that remains when every probe row has been seen.
pub struct Remainder {
    pub build: Arc<BuildSide>,
    pub pairs: Vec<SpilledPair>,
}

/// The shared state of one execution of a join.
pub struct JoinState {
    pub spec: Arc<JoinSpec>,
    pub space: Arc<QuerySpace>,
    pub metrics: JoinMetrics,
    pub hash_metrics: HashJoinMetrics,
    /// The limit of the memory pool in bytes; `None` if it has none.
    pub memory_limit: Option<usize>,
    options: PartitionerOptions,
    destage: DestagePolicy,
    /// What spilling costs, from the rows of both sides.
    pub spill_cost: SpillCost,
    hasher: KeyHasher,
    /// Which keys lie among the spilled build rows.
    spilled_keys: Arc<SpilledKeys>,
    /// All values of each build key, where they are integers of a narrow range and a filter asks, and the memory that
    /// takes.
    key_bitmaps: Vec<Option<(KeyBitmap, HeldMemory)>>,
    /// What the outputs do, for those that wait.
    pub progress: Progress,
    memory: Arc<HeldMemory>,
    stage: RwLock<Stage>,
    inner_any_rows: AtomicBool,
    inner_any_null: AtomicBool,
    row_salt: AtomicUsize,
    /// Spilled pairs that hold memory at the moment, and a notification that one of them has released it.
    pub pairs_holding_memory: AtomicUsize,
    pub pair_memory_released: Notify,
    _reclaim: Mutex<Option<ReclaimHandle>>,
}

impl JoinState {
    /// State for one execution, drawing memory from `pool` and spilling to `space`.
    pub fn new(
        spec: Arc<JoinSpec>,
        pool: &Arc<dyn MemoryPool>,
        space: Arc<QuerySpace>,
        (metrics, hash_metrics): (JoinMetrics, HashJoinMetrics),
        destage: DestagePolicy,
        expected: BuildEstimate,
        key_ranges: &[Option<KeyRange>],
    ) -> Arc<Self> {
        let memory_limit = pool_limit(pool.as_ref());
        let options = partitioner_options(memory_limit, &space.device().sizes(), MOST_PARTITION_BITS);
        let hasher = KeyHasher::new(0);
        let spilled_keys = Arc::new(SpilledKeys::new(Arc::clone(&spec), hasher.clone(), memory_limit));
        let keys = Arc::clone(&spilled_keys);
        let partitioner =
            Partitioner::new(Arc::clone(&spec.build.pages), options.clone(), Arc::clone(&space))
                .observed_by(Box::new(move |page| keys.add(page)));
        let memory = Arc::new(HeldMemory::new(pool, "HashJoin", metrics.peak_memory_bytes.clone()));
        let partitions_metrics = PartitionsMetrics {
            spill: metrics.spill.clone(),
            spilled_partitions: hash_metrics.spilled_partitions.clone(),
            push_time: metrics.build_time.clone(),
        };
        let keys = Arc::clone(&spilled_keys);
        let partitions =
            ResidentPartitions::new(partitioner, Arc::clone(&memory), memory_limit, partitions_metrics)
                .with_policy(destage)
                .with_bytes_of_rows(|rows| rows * TABLE_BYTES_PER_ROW)
                .with_bytes_beside(move || keys.memory_bytes());
        let spill_cost = SpillCost::new(&spec, expected);
        let count = key_ranges.iter().flatten().count();
        let bitmap = |range: &Option<KeyRange>| key_bitmap((*range)?, count, memory_limit, &memory);
        let key_bitmaps: Vec<_> = key_ranges.iter().map(bitmap).collect();
        if let [Some(_)] = key_bitmaps.as_slice() {
            // It knows the spilled keys, too.
            spilled_keys.give_up();
        }
        let state = Arc::new(Self {
            spec,
            space,
            metrics,
            hash_metrics,
            memory_limit,
            options,
            destage,
            spill_cost,
            hasher,
            spilled_keys,
            key_bitmaps,
            progress: Progress::default(),
            memory,
            stage: RwLock::new(Stage::Building(Arc::new(partitions))),
            inner_any_rows: AtomicBool::new(false),
            inner_any_null: AtomicBool::new(false),
            row_salt: AtomicUsize::new(0),
            pairs_holding_memory: AtomicUsize::new(0),
            pair_memory_released: Notify::new(),
            _reclaim: Mutex::new(None),
        });
        *state._reclaim.lock() = MemoryGovernor::register_reclaimer(pool, Arc::<Self>::downgrade(&state));
        state
    }

    /// A further reservation of the same join.
    pub fn another_reservation(&self) -> HeldMemory {
        self.memory.another()
    }

    fn building(&self) -> Option<Arc<ResidentPartitions>> {
        match &*self.stage.read() {
            Stage::Building(partitions) => Some(Arc::clone(partitions)),
            Stage::Probing(_) | Stage::Probed => None,
        }
    }

    /// Consumes one stream of the build side.
    pub async fn take_build_input(
        self: Arc<Self>,
        mut input: SendableRecordBatchStream,
        mut bounds: Option<BuildBounds>,
    ) -> Result<Option<BuildBounds>> {
        let Some(partitions) = self.building() else { return Ok(bounds) };
        let mut scatter = Scatter::default();
        let mut hashes = Vec::new();
        while let Some(batch) = input.next().await {
            let batch = batch?;
            if batch.num_rows() == 0 {
                continue;
            }
            let timer = self.metrics.build_time.timer();
            self.metrics.build_input_rows.add(batch.num_rows());
            self.spill_cost.add_build_rows(batch.num_rows());
            let stored = self.spec.build.store(&batch)?;
            drop(batch);
            let Some(stored) = self.hash_build_batch(stored, &mut hashes, bounds.as_mut())? else { continue };
            drop(timer);
            let destination = Destination::ByHash { hashes: &hashes, used_bits: 0 };
            partitions.push(&stored, destination, &mut scatter, || self.note_step()).await?;
        }
        Ok(bounds)
    }

    /// Hashes a build batch in stored form, without the rows that can neither match nor be emitted. `None`
    /// if no row remains.
    fn hash_build_batch(
        &self,
        mut stored: RecordBatch,
        hashes: &mut Vec<u64>,
        bounds: Option<&mut BuildBounds>,
    ) -> Result<Option<RecordBatch>> {
        let mut keys = self.spec.build.key_arrays(&stored);
        let mut matchable = self.spec.matchable(&keys);
        if let Some(valid) = matchable.take_if(|_| self.spec.kind.build_rows == SideRows::Dropped) {
            stored =
                filter_record_batch(&stored, &arrow::array::BooleanArray::new(valid.into_inner(), None))?;
            keys = self.spec.build.key_arrays(&stored);
            if stored.num_rows() == 0 {
                return Ok(None);
            }
        }
        if let Some(bounds) = bounds {
            bounds.add(&keys)?;
        }
        for (bitmap, key) in self.key_bitmaps.iter().zip(&keys) {
            if let Some((bitmap, _)) = bitmap {
                bitmap.insert(key)?;
            }
        }
        self.hasher.hash(&keys, stored.num_rows(), hashes)?;
        if let Some(valid) = matchable {
            // Rows that match nothing have no home: spreading them keeps one partition from growing hot.
            let salt = self.row_salt.fetch_add(stored.num_rows(), Ordering::Relaxed);
            for (row, hash) in hashes.iter_mut().enumerate().filter(|(row, _)| valid.is_null(*row)) {
                *hash = ((salt + row) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            }
        }
        Ok(Some(stored))
    }

    /// Ends the build side: makes the tables of the resident partitions. All input has been consumed.
    pub async fn finish_build(self: &Arc<Self>) -> Result<()> {
        let Some(partitions) = self.building() else { return Ok(()) };
        // Once something is spilled, probe rows need pages to be collected in.
        let buffer_bytes = if partitions.any_spilled() { self.options.write_buffer_bytes() } else { 0 };
        let probe_buffers = partitions.make_room(buffer_bytes).await?;
        let finished = partitions.finish().await?;
        let timer = self.metrics.build_time.timer();
        let tables = self.build_tables(&finished).await?;
        let probe_pages = Arc::clone(&self.spec.probe.pages);
        let probe = Arc::new(Partitioner::new(probe_pages, self.options.clone(), Arc::clone(&self.space)));
        self.spilled_keys.review();
        let build = BuildSide::new(&self.spec, self.options.partition_bits, tables)?
            .with_spilled_keys(self.spilled_keys.filter());
        let build = Arc::new(build);
        let mut held = self.spilled_keys.memory_bytes() + build.visited_bytes();
        held += if build.any_spilled() { self.options.write_buffer_bytes() } else { 0 };
        for table in build.tables().iter().flatten() {
            held += table.memory_bytes();
        }
        let mut pages = Vec::with_capacity(finished.len());
        for (number, partition) in finished.into_iter().enumerate() {
            if partition.file.is_some() {
                probe.spill(number).map_err(spill_error)?;
            }
            pages.push(BuildPages { resident: partition.resident, file: partition.file, earlier: None });
        }
        drop(timer);
        *self.stage.write() = Stage::Probing(Probing { build, pages, probe });
        drop(probe_buffers);
        self.memory.resize(held);
        Ok(())
    }

    /// The tables of resident partitions, made by as many tasks as there are processors.
    async fn build_tables(
        self: &Arc<Self>,
        partitions: &[Partition],
    ) -> Result<Vec<Option<Arc<PartitionTable>>>> {
        let mut first_page = 0;
        let mut jobs = Vec::with_capacity(partitions.len());
        for partition in partitions {
            if partition.file.is_some() {
                jobs.push(None);
                continue;
            }
            let open = |page: &SealedPage| page.open(&self.spec.build.pages).map_err(spill_error);
            let pages = partition.resident.iter().map(open).collect::<Result<Vec<Page>>>()?;
            let count = pages.len();
            let state = Arc::clone(self);
            let bits = self.options.partition_bits;
            jobs.push(Some(move || {
                PartitionTable::build(&state.spec, &state.hasher, bits, pages, first_page).map(Arc::new)
            }));
            first_page += count;
        }
        let small = partitions.iter().map(|partition| partition.rows).sum::<u64>() < SMALL_BUILD_ROWS;
        let workers = if small { 1 } else { std::thread::available_parallelism().map_or(1, usize::from) };
        let jobs: Vec<_> = jobs
            .into_iter()
            .map(|job| async move {
                match job {
                    None => Ok(None),
                    Some(job) if small => job().map(Some),
                    Some(job) => {
                        datafusion::common::runtime::SpawnedTask::spawn_blocking(inherited_work(job))
                            .await
                            .map_err(|error| datafusion::common::DataFusionError::External(Box::new(error)))?
                            .map(Some)
                    }
                }
            })
            .collect();
        let tables: Vec<Result<Option<Arc<PartitionTable>>>> =
            futures::stream::iter(jobs).buffered(workers).collect().await;
        tables.into_iter().collect()
    }

    /// What the next batch is probed against, and what takes its rows of spilled partitions.
    pub fn probing(&self) -> Option<(Arc<BuildSide>, Arc<Partitioner>)> {
        match &*self.stage.read() {
            Stage::Probing(probing) => Some((Arc::clone(&probing.build), Arc::clone(&probing.probe))),
            Stage::Building(_) | Stage::Probed => None,
        }
    }

    /// Stops holding probe rows against the spilled keys: nearly all of them pass.
    pub fn give_up_spilled_keys(&self) {
        let bytes = self.spilled_keys.memory_bytes();
        self.spilled_keys.give_up();
        if let Stage::Probing(probing) = &mut *self.stage.write()
            && probing.build.spilled_keys().is_some()
        {
            probing.build = Arc::new(BuildSide::clone(&probing.build).with_spilled_keys(None));
            self.memory.shrink(bytes);
        }
    }

    /// Which of the probe keys are on the build side, in memory or spilled; `None` if there is no bitmap that knows.
    /// Asked once the build side is complete.
    pub fn on_build_side(&self, keys: &[ArrayRef]) -> Result<Option<BooleanBuffer>> {
        let [key] = keys else { return Ok(None) };
        let held = self.holds_key(0, key)?;
        // To the bitmap null is no key.
        Ok(match (held, key.logical_nulls()) {
            (Some(held), Some(nulls)) if self.spec.null_equality == NullEquality::NullEqualsNull => {
                Some(&held | &!nulls.inner())
            }
            (held, _) => held,
        })
    }

    /// Which values of `key`, a probe key, the build key number `number` has, null not being one of them; `None` if there
    /// is no bitmap that knows. Asked once the build side is complete.
    pub fn holds_key(&self, number: usize, key: &ArrayRef) -> Result<Option<BooleanBuffer>> {
        match self.key_bitmaps.get(number) {
            Some(Some((bitmap, _))) => bitmap.holds(key),
            _ => Ok(None),
        }
    }

    /// The hash function that scattered the build side.
    pub fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    /// log2 of the number of partitions.
    pub fn partition_bits(&self) -> u32 {
        self.options.partition_bits
    }

    /// Notes what a null-aware join must know of its inner (probe) side.
    pub fn note_inner(&self, any_rows: bool, any_null: bool) {
        self.inner_any_rows.fetch_or(any_rows, Ordering::Relaxed);
        self.inner_any_null.fetch_or(any_null, Ordering::Relaxed);
    }

    /// The facts noted about the inner side of a null-aware join.
    pub fn inner(&self) -> InnerFacts {
        InnerFacts {
            any_rows: self.inner_any_rows.load(Ordering::Relaxed),
            any_null: self.inner_any_null.load(Ordering::Relaxed),
        }
    }

    /// Ends probing: writes the rest of the spilled probe rows, and returns what remains to be done.
    pub async fn finish_probing(&self) -> Result<Option<Remainder>> {
        let Stage::Probing(probing) = std::mem::replace(&mut *self.stage.write(), Stage::Probed) else {
            return Ok(None);
        };
        self.spilled_keys.give_up();
        let probe = probing.probe.finish().map_err(spill_error)?;
        let waiting = self.metrics.spill.time.timer();
        probing.probe.drain_to(0).await.map_err(spill_error)?;
        drop(waiting);
        let mut pairs = Vec::new();
        assert_eq!(probing.pages.len(), probe.len(), "both sides have the same partitions");
        for (build, probe) in probing.pages.into_iter().zip(probe) {
            let earlier = build.earlier;
            match (build.file, probe.file) {
                (Some(build), Some(probe)) => {
                    self.metrics.spill.spilled_rows.add((build.rows() + probe.rows()) as usize);
                    pairs.push(SpilledPair { build, probe, level: 0, unsplittable: false, earlier });
                }
                (None, None) => {}
                _ => unreachable!("a partition is spilled on both sides"),
            }
        }
        let keeps_tables = self.spec.kind.build_rows != SideRows::Dropped;
        let kept = if keeps_tables { resident_table_bytes(&probing.build) } else { 0 };
        self.memory.resize(kept + probing.build.visited_bytes());
        Ok(Some(Remainder { build: probing.build, pairs }))
    }

    /// Notes progress of an output: for others that wait, and for metrics that are shown while the query runs.
    pub fn note_step(&self) {
        self.progress.note();
        self.report_io();
    }

    /// Memory for the reads in flight of one reader of spilled pages.
    pub fn read_window_bytes(&self) -> usize {
        read_window_bytes(self.memory_limit, &self.space.device().sizes())
    }

    /// Updates the metrics of spill traffic from the space's account.
    pub fn report_io(&self) {
        self.metrics.spill.update_from(&self.space);
    }

    /// Gives back the memory of one partition's table, which has been dropped.
    pub fn release_table(&self, bytes: usize) {
        self.memory.shrink(bytes);
    }

    /// Takes tables out of the build side until `bytes` are free.
    fn reclaim_probing(&self, bytes: usize) -> Result<usize> {
        let Some(mut stage) = self.stage.try_write() else { return Ok(0) };
        let Stage::Probing(probing) = &mut *stage else { return Ok(0) };
        let sizes: Vec<usize> = probing.build.tables().iter().map(|table| bytes_of(table.as_ref())).collect();
        let buffers = self.first_spill_bytes(&probing.build);
        if sizes.iter().sum::<usize>() <= buffers {
            return Ok(0);
        }
        let wanted = self.destage.wanted_bytes(bytes + buffers);
        let mut freed = 0;
        for number in self.destage.order(sizes.iter().copied()) {
            if freed >= wanted {
                break;
            }
            match self.spill_table(probing, number) {
                Ok(()) => freed += sizes[number],
                Err(error) if freed == 0 => return Err(error),
                Err(error) => {
                    log::warn!("a join could give back only part of its memory: {error}");
                    break;
                }
            }
        }
        let freed = freed.saturating_sub(buffers);
        self.memory.shrink(freed);
        Ok(freed)
    }

    /// What the first spilled partition brings: the pages that collect its probe rows, and the filter over its keys.
    fn first_spill_bytes(&self, build: &BuildSide) -> usize {
        if build.any_spilled() {
            return 0;
        }
        self.options.write_buffer_bytes() + self.spilled_keys.bytes_to_come()
    }

    /// Writes the pages of one table and takes it out of the build side; its probe rows are spilled from now on.
    fn spill_table(&self, probing: &mut Probing, number: usize) -> Result<()> {
        let pages = &mut probing.pages[number];
        let mut file = PartitionFile::new(Arc::clone(&self.space), self.options.extent_bytes);
        file.write_blocking(pages.resident.clone()).map_err(spill_error)?;
        probing.probe.spill(number).map_err(spill_error)?;
        pages.resident.iter().for_each(|page| self.spilled_keys.add(page));
        // Only now: had the spill failed, the table would go on serving these pages.
        pages.resident.clear();
        pages.file = Some(Arc::new(file));
        pages.earlier = probing.build.visits_of(number);
        let build = probing.build.without(number).with_spilled_keys(self.spilled_keys.filter());
        probing.build = Arc::new(build);
        self.hash_metrics.spilled_partitions.add(1);
        Ok(())
    }
}

/// One of `count` bitmaps, for the keys of a range, and the memory for it, if there is enough.
fn key_bitmap(
    range: KeyRange,
    count: usize,
    memory_limit: Option<usize>,
    memory: &HeldMemory,
) -> Option<(KeyBitmap, HeldMemory)> {
    let bytes = range.bitmap_bytes(memory_limit, count)?;
    let memory = memory.another();
    memory.try_grow(bytes).then(|| (KeyBitmap::new(range), memory))
}

/// Partitions when memory is plentiful, as log2.
pub const MOST_PARTITION_BITS: u32 = 6;
/// Fewer build rows than this are not worth a task per partition.
const SMALL_BUILD_ROWS: u64 = 100_000;

fn bytes_of(table: Option<&Arc<PartitionTable>>) -> usize {
    table.map_or(0, |table| table.memory_bytes())
}

fn resident_table_bytes(build: &BuildSide) -> usize {
    build.tables().iter().map(|table| bytes_of(table.as_ref())).sum()
}

impl Reclaim for JoinState {
    fn reclaimable_bytes(&self) -> usize {
        let Some(stage) = self.stage.try_read() else { return 0 };
        match &*stage {
            Stage::Building(partitions) => partitions.reclaimable_bytes(),
            Stage::Probing(probing) => {
                let buffers = self.first_spill_bytes(&probing.build);
                resident_table_bytes(&probing.build).saturating_sub(buffers)
            }
            Stage::Probed => 0,
        }
    }

    fn io_per_byte(&self) -> f64 {
        let is_building = self.stage.try_read().is_some_and(|stage| matches!(*stage, Stage::Building(_)));
        self.spill_cost.io_per_byte(is_building)
    }

    fn reclaim(&self, bytes: usize) -> usize {
        let building = match self.stage.try_read().as_deref() {
            Some(Stage::Building(partitions)) => Some(Arc::clone(partitions)),
            _ => None,
        };
        let freed = match building {
            Some(partitions) => partitions.reclaim(bytes).map_err(spill_error),
            None => self.reclaim_probing(bytes),
        };
        freed.unwrap_or_else(|error| {
            log::warn!("a join could not give memory back: {error}");
            0
        })
    }
}
