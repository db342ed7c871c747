//! The best order keys of every partition so far, and the rows that cannot be among its first ones for them.
//!
//! An order key is as many bytes of the row format as an integer has room for. What lies behind is not compared: a row
//! whose bytes are behind those of `k` others is behind them in all of its bytes, too.

#![allow(clippy::indexing_slicing, reason = "groups are those of the table, each of which has a heap")]

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::row::Rows;
use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::{PhysicalExprRef, PhysicalSortExpr};
use nandina_pages::prefetch::{AHEAD, prefetch};

use crate::aggregate::key_columns::BatchKey;
use crate::aggregate::key_layout::KeyLayout;
use crate::aggregate::table::GroupTable;
use crate::key_hasher::KeyHasher;
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
pub struct Leaders {
    top: Arc<TopK>,
    hasher: KeyHasher,
    /// None once the filter has been given up.
    known: Option<Known>,
    most_bytes: usize,
    reservation: MemoryReservation,
    seen_rows: usize,
    kept_rows: usize,
}

struct Known {
    table: GroupTable,
    /// Of each group the `k` least order keys so far, as a binary heap with the greatest in front.
    heaps: Vec<u128>,
    /// New partitions are not noted any more.
    is_full: bool,
}

impl Leaders {
    /// Takes at most about `most_bytes`, in `reservation`.
    pub fn try_new(top: Arc<TopK>, most_bytes: usize, reservation: MemoryReservation) -> Result<Self> {
        let known = Known { table: GroupTable::try_new(&top.stored)?, heaps: Vec::new(), is_full: false };
        let hasher = KeyHasher::new(0);
        Ok(Self { top, hasher, known: Some(known), most_bytes, reservation, seen_rows: 0, kept_rows: 0 })
    }

    /// Those of `rows` that may be among the first of their partition.
    pub fn candidates(&mut self, rows: RecordBatch) -> Result<RecordBatch> {
        let Some(known) = &mut self.known else { return Ok(rows) };
        let mut groups = Vec::new();
        known.find(&self.top, &self.hasher, &rows, &mut groups)?;
        let keys = self.top.encoder.as_ref().map(|encoder| encoder.keys(&rows)).transpose()?;
        let keep = known.keep(&self.top, &groups, keys.as_ref());
        self.seen_rows += keep.len();
        self.kept_rows += keep.true_count();
        self.account()?;
        match keep.has_false() {
            true => Ok(filter_record_batch(&rows, &keep)?),
            false => Ok(rows),
        }
    }

    /// Bytes held now.
    pub fn memory_bytes(&self) -> usize {
        self.reservation.size()
    }

    /// Reserves what is held, and gives the filter up where it is not granted or does not pay.
    fn account(&mut self) -> Result<()> {
        let Some(known) = &mut self.known else { return Ok(()) };
        let bytes = known.memory_bytes();
        known.is_full |= bytes > self.most_bytes;
        let is_refused = self.reservation.try_resize(bytes).is_err();
        let mut pays = true;
        if self.seen_rows >= ROWS_PER_VERDICT {
            // While partitions are still being noted, their second rows may be yet to come.
            pays = !known.is_full || self.kept_rows * 10 <= self.seen_rows * MOST_TENTHS_KEPT;
            (self.seen_rows, self.kept_rows) = (0, 0);
        }
        if is_refused || !pays {
            self.known = None;
            self.reservation.free();
        }
        Ok(())
    }
}

impl Known {
    fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + self.heaps.capacity() * ORDER_BYTES
    }

    /// The group of every row; `NO_GROUP` for those of partitions that are not known.
    fn find(
        &mut self,
        top: &TopK,
        hasher: &KeyHasher,
        rows: &RecordBatch,
        groups: &mut Vec<usize>,
    ) -> Result<()> {
        if top.partition_by.is_empty() {
            groups.resize(rows.num_rows(), 0);
            self.heaps.resize(top.k, NO_KEY);
            return Ok(());
        }
        let evaluate = |key: &PhysicalExprRef| key.evaluate(rows)?.into_array(rows.num_rows());
        let keys = top.partition_by.iter().map(evaluate).collect::<Result<Vec<ArrayRef>>>()?;
        let keys = top.layout.store(&keys)?;
        let mut hashes = Vec::new();
        hasher.hash(&keys, rows.num_rows(), &mut hashes)?;
        let keys: Vec<BatchKey> = keys.iter().map(BatchKey::of).collect();
        if self.is_full {
            groups.resize(rows.num_rows(), NO_GROUP);
            self.table.for_each_known(&keys, &hashes, |row, group| groups[row] = group);
        } else {
            self.table.find_or_insert(&keys, &hashes, groups);
            self.heaps.resize(self.table.len() * top.k, NO_KEY);
        }
        Ok(())
    }

    /// Notes the keys of rows, one after the other, and which of them may be wanted.
    fn keep(&mut self, top: &TopK, groups: &[usize], keys: Option<&Rows>) -> BooleanArray {
        let (k, drops_equal) = (top.k, top.drops_equal());
        let keep = groups.iter().enumerate().map(|(row, &group)| {
            if let Some(&ahead) = groups.get(row + AHEAD) {
                prefetch(&self.heaps, ahead.wrapping_mul(k));
            }
            if group == NO_GROUP {
                return true;
            }
            let key = keys.map_or(0, |keys| order_key(keys.row(row).data()));
            let heap = &mut self.heaps[group * k..(group + 1) * k];
            let last = heap[0];
            if key < last {
                replace_greatest(heap, key);
            }
            key < last || (key == last && !drops_equal)
        });
        keep.collect::<Vec<bool>>().into()
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
    use super::*;

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
