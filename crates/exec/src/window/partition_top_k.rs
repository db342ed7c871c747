//! The best order keys of every partition so far, and the rows that cannot be among its first ones for them.
//!
//! An order key is as many bytes of the row format as an integer has room for. What lies behind is not compared: a row
//! whose bytes are behind those of `k` others is behind them in all of its bytes, too.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::row::Rows;
use datafusion::common::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::physical_expr::{PhysicalExprRef, PhysicalSortExpr};
use nandina_pages::prefetch::{AHEAD, prefetch};
use parking_lot::Mutex;

use crate::keys::{GroupTable, KeyHasher, KeyLayout, KeyedRows};
use crate::memory::{MemoryGovernor, Reclaim, ReclaimHandle};
use crate::sort::spec::KeyEncoder;

/// The rank that rows are asked for by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankedBy {
    /// Equal rows in any order.
    RowNumber,
    /// As many as rows come before it, equal ones not counted.
    Rank,
}

/// Bytes of an order key.
const ORDER_BYTES: usize = size_of::<u128>();
/// No row's key: comes behind all.
const NO_KEY: u128 = u128::MAX;
/// What of a partition's row is unknown.
const NO_GROUP: usize = usize::MAX;
/// Rows that are looked up at a time: so many partitions are noted at once, at most.
const PORTION_ROWS: usize = 1024;
/// Whether the filter pays is looked at this often.
const ROWS_PER_VERDICT: usize = 1 << 16;
/// A filter that lets through more than this many tenths is given up.
const MOST_TENTHS_KEPT: usize = 9;

/// Which rows are wanted.
#[derive(Debug)]
pub struct TopK {
    partition_by: Vec<PhysicalExprRef>,
    layout: KeyLayout,
    stored: Vec<DataType>,
    /// None if all rows of a partition are equal.
    encoder: Option<KeyEncoder>,
    /// The whole order key is compared.
    is_exact: bool,
    pub ranked_by: RankedBy,
    pub k: usize,
}

impl TopK {
    /// The first `k` rows, at least 1, of each partition. `None` if keys have types that cannot be told apart here as
    /// window functions do.
    pub fn try_new(
        partition_by: Vec<PhysicalExprRef>,
        order_by: Vec<PhysicalSortExpr>,
        schema: &SchemaRef,
        ranked_by: RankedBy,
        k: usize,
    ) -> Result<Option<Self>> {
        let types = partition_by.iter().map(|key| key.data_type(schema)).collect::<Result<Vec<_>>>()?;
        // Windows tell both zeros apart, keys in stored form do not.
        if k == 0 || types.iter().any(has_floats) {
            return Ok(None);
        }
        let Ok(layout) = KeyLayout::try_new(&types) else { return Ok(None) };
        let stored = layout.fields().map(|field| field.data_type().clone()).collect();
        let width = |by: &PhysicalSortExpr| Ok(by.expr.data_type(schema)?.primitive_width());
        let widths = order_by.iter().map(width).collect::<Result<Option<Vec<_>>>>()?;
        // A byte of each says whether it is null. One byte is left, so that no key is `NO_KEY`.
        let is_exact =
            widths.is_some_and(|widths| widths.iter().map(|width| width + 1).sum::<usize>() < ORDER_BYTES);
        let encoder = match order_by.is_empty() {
            true => None,
            false => match KeyEncoder::try_new(order_by, schema) {
                Ok(encoder) => Some(encoder),
                Err(_) => return Ok(None),
            },
        };
        Ok(Some(Self { partition_by, layout, stored, encoder, is_exact, ranked_by, k }))
    }

    /// Whether a row whose key is that of the last wanted one so far may be dropped.
    fn drops_equal(&self) -> bool {
        self.ranked_by == RankedBy::RowNumber && self.is_exact
    }
}

fn has_floats(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => has_floats(values),
        data_type => data_type.is_floating() || data_type.is_nested(),
    }
}

/// The best keys of one input's partitions.
pub struct PartitionTopK {
    top: Arc<TopK>,
    hasher: KeyHasher,
    held: Arc<Held>,
    most_bytes: usize,
    seen_rows: usize,
    kept_rows: usize,
    _handle: Option<ReclaimHandle>,
}

/// The state that is dropped when others need the memory.
struct Held {
    /// None once it has been given up.
    known: Mutex<Option<Known>>,
    reservation: MemoryReservation,
}

struct Known {
    table: GroupTable,
    /// Of each group the `k` least order keys so far, as a binary heap with the greatest in front.
    heaps: Vec<u128>,
    /// New partitions are not noted any more.
    is_full: bool,
}

impl Reclaim for Held {
    fn reclaimable_bytes(&self) -> usize {
        self.reservation.size()
    }

    /// Nothing is written, but rows that it would have dropped are sorted: many for each partition.
    fn io_per_byte(&self) -> f64 {
        64.0
    }

    fn reclaim(&self, _bytes: usize) -> usize {
        let given_up = self.known.try_lock().and_then(|mut known| known.take());
        given_up.map_or(0, |_| self.reservation.free())
    }
}

impl PartitionTopK {
    /// Takes at most `most_bytes` of `pool`.
    pub fn try_new(
        top: Arc<TopK>,
        most_bytes: usize,
        pool: &Arc<dyn MemoryPool>,
        partition: usize,
    ) -> Result<Self> {
        let known = Known { table: GroupTable::try_new(&top.stored)?, heaps: Vec::new(), is_full: false };
        let reservation = MemoryConsumer::new(format!("TopKFilter[{partition}]")).register(pool);
        let held = Arc::new(Held { known: Mutex::new(Some(known)), reservation });
        let handle = MemoryGovernor::register_reclaimer(pool, Arc::<Held>::downgrade(&held));
        let hasher = KeyHasher::new(0);
        Ok(Self { top, hasher, held, most_bytes, seen_rows: 0, kept_rows: 0, _handle: handle })
    }

    /// Those of `rows` that may be among the first of their partition.
    pub fn candidates(&mut self, rows: RecordBatch) -> Result<RecordBatch> {
        let held = Arc::clone(&self.held);
        let mut slot = held.known.lock();
        let Some(known) = &mut *slot else { return Ok(rows) };
        let keys = self.top.encoder.as_ref().map(|encoder| encoder.keys(&rows)).transpose()?;
        let mut keep = Vec::with_capacity(rows.num_rows());
        let mut groups = Vec::new();
        for first in (0..rows.num_rows()).step_by(PORTION_ROWS) {
            let portion = rows.slice(first, PORTION_ROWS.min(rows.num_rows() - first));
            known.is_full |= known.bytes_with(&self.top, portion.num_rows()) > self.most_bytes;
            known.find(&self.top, &self.hasher, &portion, &mut groups)?;
            known.note(&self.top, &groups, first, keys.as_ref(), &mut keep);
        }
        let keep = BooleanArray::from(keep);
        self.seen_rows += keep.len();
        self.kept_rows += keep.true_count();
        // Others may have to spill for it, and this very filter is among the holders that are asked: it is locked then.
        let is_refused = held.reservation.try_resize(known.memory_bytes()).is_err();
        if is_refused || !self.pays(known.is_full) {
            *slot = None;
            held.reservation.free();
        }
        match keep.has_false() {
            true => Ok(filter_record_batch(&rows, &keep)?),
            false => Ok(rows),
        }
    }

    /// Whether enough of the last rows were dropped, looked at now and then.
    fn pays(&mut self, is_full: bool) -> bool {
        if self.seen_rows < ROWS_PER_VERDICT {
            return true;
        }
        let drops_enough = self.kept_rows * 10 <= self.seen_rows * MOST_TENTHS_KEPT;
        (self.seen_rows, self.kept_rows) = (0, 0);
        // While partitions are still being noted, their second rows may be yet to come.
        drops_enough || !is_full
    }

    /// Bytes held now.
    pub fn memory_bytes(&self) -> usize {
        self.held.reservation.size()
    }
}

impl Known {
    fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + self.heaps.capacity() * ORDER_BYTES
    }

    /// Bytes at most once so many rows have made new groups: what has no room moves to twice the size.
    fn bytes_with(&self, top: &TopK, rows: usize) -> usize {
        2 * self.memory_bytes() + rows * top.k * ORDER_BYTES
    }

    /// The group of every row; `NO_GROUP` for those of partitions that are not known.
    fn find(
        &mut self,
        top: &TopK,
        hasher: &KeyHasher,
        rows: &RecordBatch,
        groups: &mut Vec<usize>,
    ) -> Result<()> {
        groups.clear();
        if top.partition_by.is_empty() {
            groups.resize(rows.num_rows(), 0);
            self.heaps.resize(top.k, NO_KEY);
            return Ok(());
        }
        let evaluate = |key: &PhysicalExprRef| key.evaluate(rows)?.into_array(rows.num_rows());
        let keys = top.partition_by.iter().map(evaluate).collect::<Result<Vec<ArrayRef>>>()?;
        let keyed = KeyedRows::hash(top.layout.store(&keys)?, rows.num_rows(), hasher)?;
        let (keys, hashes) = (keyed.batch_keys(), &keyed.hashes);
        if self.is_full {
            groups.resize(rows.num_rows(), NO_GROUP);
            self.table.for_each_known(&keys, hashes, |row, group| groups[row] = group);
        } else {
            self.table.find_or_insert(&keys, hashes, groups);
            self.heaps.resize(self.table.len() * top.k, NO_KEY);
        }
        Ok(())
    }

    /// Notes the keys of the rows from `first` on, one after the other, and which of them may be wanted.
    fn note(
        &mut self,
        top: &TopK,
        groups: &[usize],
        first: usize,
        keys: Option<&Rows>,
        keep: &mut Vec<bool>,
    ) {
        let (k, drops_equal) = (top.k, top.drops_equal());
        keep.extend(groups.iter().enumerate().map(|(row, &group)| {
            if let Some(&ahead) = groups.get(row + AHEAD) {
                prefetch(&self.heaps, ahead.wrapping_mul(k));
            }
            if group == NO_GROUP {
                return true;
            }
            let key = keys.map_or(0, |keys| order_key(keys.row(first + row).data()));
            let heap = &mut self.heaps[group * k..(group + 1) * k];
            let last = heap[0];
            if key < last {
                replace_greatest(heap, key);
            }
            key < last || (key == last && !drops_equal)
        }));
    }
}

/// The first bytes of a key, as an integer that compares as they do.
fn order_key(key: &[u8]) -> u128 {
    let mut bytes = [0; ORDER_BYTES];
    let length = key.len().min(ORDER_BYTES);
    bytes[..length].copy_from_slice(&key[..length]);
    u128::from_be_bytes(bytes)
}

/// Puts `key`, which is less, in the place of the greatest of a heap.
fn replace_greatest(heap: &mut [u128], key: u128) {
    let mut place = 0;
    loop {
        let (left, right) = (2 * place + 1, 2 * place + 2);
        let Some(&left_key) = heap.get(left) else { break };
        let child = if heap.get(right).is_some_and(|&right_key| right_key > left_key) { right } else { left };
        if heap[child] <= key {
            break;
        }
        heap[place] = heap[child];
        place = child;
    }
    heap[place] = key;
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::{Field, Int64Type, Schema};
    use datafusion::physical_expr::expressions::col;

    use super::*;

    const MIB: usize = 1 << 20;

    fn batch(rows: impl Iterator<Item = (i64, i64)>) -> RecordBatch {
        let (keys, values): (Vec<i64>, Vec<i64>) = rows.unzip();
        let columns: Vec<ArrayRef> =
            vec![Arc::new(Int64Array::from(keys)), Arc::new(Int64Array::from(values))];
        RecordBatch::try_new(schema(), columns).unwrap()
    }

    fn schema() -> SchemaRef {
        let field = |name| Field::new(name, DataType::Int64, true);
        Arc::new(Schema::new(vec![field("key"), field("value")]))
    }

    /// Of the first two rows of each key, within a limit.
    fn top_k(most_bytes: usize, limit_bytes: usize) -> (PartitionTopK, Arc<dyn MemoryPool>) {
        let order = PhysicalSortExpr::new_default(col("value", &schema()).unwrap());
        let keys = vec![col("key", &schema()).unwrap()];
        let top = TopK::try_new(keys, vec![order], &schema(), RankedBy::RowNumber, 2).unwrap().unwrap();
        let pool: Arc<dyn MemoryPool> = Arc::new(MemoryGovernor::new(Some(limit_bytes)));
        (PartitionTopK::try_new(Arc::new(top), most_bytes, &pool, 0).unwrap(), pool)
    }

    /// The values that pass.
    fn passing(top_k: &mut PartitionTopK, rows: impl Iterator<Item = (i64, i64)>) -> Vec<i64> {
        let rows = top_k.candidates(batch(rows)).unwrap();
        rows.column(1).as_primitive::<Int64Type>().values().to_vec()
    }

    #[test]
    fn rows_behind_two_others_are_dropped() {
        let (mut top_k, pool) = top_k(MIB, MIB);
        let rows = [(1, 30), (2, 5), (1, 10), (1, 20), (2, 6), (1, 20), (1, 19), (2, 6), (1, 25)];
        assert_eq!(passing(&mut top_k, rows.into_iter()), [30, 5, 10, 20, 6, 19]);
        assert_eq!(passing(&mut top_k, [(1, 19), (2, 4), (3, 99)].into_iter()), [4, 99]);
        assert!(pool.reserved() > 0);
        drop(top_k);
        assert_eq!(pool.reserved(), 0);
    }

    #[test]
    fn partitions_beyond_the_share_pass_and_known_ones_do_not() {
        let (mut top_k, pool) = top_k(256 << 10, 64 * MIB);
        passing(&mut top_k, (0..2).map(|value| (7, value)));
        for first in 0..20 {
            let all = passing(&mut top_k, (0..1000).map(|key| (1000 + first * 1000 + key, 5)));
            assert_eq!(all.len(), 1000, "the first row of each");
        }
        assert!(pool.reserved() <= 256 << 10, "{} bytes", pool.reserved());
        assert_eq!(passing(&mut top_k, [(7, 3), (21_000 - 1, 9), (7, 0)].into_iter()), [9, 0]);
        assert_eq!(passing(&mut top_k, (0..5).map(|value| (20_999, value))).len(), 5);
    }

    #[test]
    fn a_filter_of_what_all_passes_is_given_up() {
        let (mut top_k, pool) = top_k(64 << 10, 64 * MIB);
        for first in 0..100 {
            passing(&mut top_k, (0..1000).map(|key| (first * 1000 + key, 5)));
        }
        assert_eq!(pool.reserved(), 0);
        assert_eq!(passing(&mut top_k, (0..3).map(|value| (0, value))), [0, 1, 2]);
    }

    #[test]
    fn others_get_the_memory_if_they_need_it() {
        let (mut top_k, pool) = top_k(MIB, MIB);
        passing(&mut top_k, (0..2).map(|value| (7, value)));
        assert_eq!(passing(&mut top_k, [(7, 8)].into_iter()), [0; 0]);
        let sort = MemoryConsumer::new("sort").register(&pool);
        sort.try_grow(MIB).unwrap();
        assert_eq!(pool.reserved(), MIB);
        assert_eq!(passing(&mut top_k, [(7, 8)].into_iter()), [8]);
    }

    #[test]
    fn without_memory_all_rows_pass() {
        let (mut top_k, pool) = top_k(MIB, MIB);
        let sort = MemoryConsumer::new("sort").register(&pool);
        sort.try_grow(MIB - 100).unwrap();
        assert_eq!(passing(&mut top_k, (0..4).map(|value| (7, value))).len(), 2, "what was looked at");
        assert_eq!(passing(&mut top_k, (4..6).map(|value| (7, value))), [4, 5]);
        assert_eq!(pool.reserved(), MIB - 100);
    }

    #[test]
    fn a_heap_keeps_the_least_keys() {
        let mut heap = vec![NO_KEY; 7];
        let keys: Vec<u128> = (0..200).map(|number| (number * 7919) % 211).collect();
        for (count, &key) in keys.iter().enumerate() {
            if key < heap[0] {
                replace_greatest(&mut heap, key);
            }
            let mut least = keys[..=count].to_vec();
            least.sort_unstable();
            least.resize(7.max(count + 1), NO_KEY);
            assert_eq!(heap.iter().max(), least.get(6), "after {count}");
            assert_eq!(heap[0], least[6]);
        }
    }

    #[test]
    fn order_keys_compare_as_bytes() {
        let mut keys: Vec<Vec<u8>> =
            vec![vec![], vec![1], vec![1, 0, 3], vec![0xff; 20], vec![2; 16], vec![0, 9]];
        keys.sort_unstable();
        assert!(keys.is_sorted_by_key(|key| order_key(key)));
        assert_eq!(order_key(&[1, 2]) >> 112, 0x0102);
    }
}
