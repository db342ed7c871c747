//! The hash table that finds the group of a key.
//!
//! ```text
//!            slots: open addressing, linear probing            groups, in order of their first rows
//!   hash ──► ┌──── tag (32) ────┬── group + 1 (32) ──┐  ──►   hashes │ key columns
//!            │ hash bits 24..56 │ 0: the slot is free │
//! ```
//!
//! A batch is probed in steps that each run over many rows: find the first slot with the row's tag or a free one, which
//! becomes a new group; append the keys of new groups; compare the keys of all others. 32 equal tag bits mean equal
//! keys nearly always; the rows for which they do not are looked up again one by one.
//!
//! The low bits of a hash choose the slot. Its top bits choose the partition and are the same throughout one table.

use std::ops::Range;

use arrow::array::{ArrayRef, UInt64Array};
use arrow::datatypes::DataType;
use datafusion::common::Result;

use super::columns::{BatchKey, GroupKey};
use nandina_pages::prefetch::{AHEAD, prefetch};

/// Rows that are probed at a time: few enough that what each step leaves for the next stays in the first-level cache.
const STEP_ROWS: usize = 1024;
/// Slots of an empty table.
const FIRST_SLOTS: usize = 2 * STEP_ROWS;
/// Where the tag lies in a hash.
const TAG_SHIFT: u32 = 24;

/// Groups by their keys.
pub struct GroupTable {
    slots: Vec<u64>,
    hashes: Vec<u64>,
    keys: Vec<GroupKey>,
    /// Rows of the current step that made new groups, that found one, and that found the wrong one.
    new_rows: Vec<u32>,
    found_rows: Vec<u32>,
    lost_rows: Vec<u32>,
}

impl GroupTable {
    /// No groups yet, of keys of these stored types.
    pub fn try_new<'a>(types: impl IntoIterator<Item = &'a DataType>) -> Result<Self> {
        Ok(Self {
            slots: Vec::new(),
            hashes: Vec::new(),
            keys: types.into_iter().map(GroupKey::try_new).collect::<Result<_>>()?,
            new_rows: Vec::new(),
            found_rows: Vec::new(),
            lost_rows: Vec::new(),
        })
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// The hashes of the groups' keys.
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// Bytes held, spare capacity included.
    pub fn memory_bytes(&self) -> usize {
        (self.slots.capacity() + self.hashes.capacity()) * size_of::<u64>()
            + self.keys.iter().map(GroupKey::memory_bytes).sum::<usize>()
    }

    /// The group of every row, new ones for keys that have none.
    pub fn find_or_insert(&mut self, keys: &[BatchKey], hashes: &[u64], groups: &mut Vec<usize>) {
        groups.clear();
        groups.resize(hashes.len(), 0);
        for first in (0..hashes.len()).step_by(STEP_ROWS) {
            let rows = first..hashes.len().min(first + STEP_ROWS);
            self.reserve(rows.len());
            self.probe(rows, hashes, groups);
            for (column, key) in self.keys.iter_mut().zip(keys) {
                column.append(key, &self.new_rows);
            }
            for (column, key) in self.keys.iter().zip(keys) {
                column.retain_equal(key, groups, &mut self.found_rows, &mut self.lost_rows);
            }
            for row in std::mem::take(&mut self.lost_rows) {
                groups[row as usize] = self.find_exactly(keys, row, hashes[row as usize]);
            }
        }
    }

    /// Finds groups by their tags.
    fn probe(&mut self, rows: Range<usize>, hashes: &[u64], groups: &mut [usize]) {
        self.new_rows.clear();
        self.found_rows.clear();
        let mask = self.slots.len() - 1;
        for row in rows {
            if let Some(&ahead) = hashes.get(row + AHEAD) {
                prefetch(&self.slots, ahead as usize & mask);
            }
            let hash = hashes[row];
            let mut slot = hash as usize & mask;
            groups[row] = loop {
                let entry = self.slots[slot];
                if entry == 0 {
                    self.slots[slot] = entry_of(hash, self.hashes.len());
                    self.hashes.push(hash);
                    self.new_rows.push(row as u32);
                    break self.hashes.len() - 1;
                }
                if entry >> 32 == tag(hash) {
                    self.found_rows.push(row as u32);
                    break group_of(entry);
                }
                slot = (slot + 1) & mask;
            };
        }
    }

    /// Finds or makes the group of one row, comparing keys all along.
    fn find_exactly(&mut self, keys: &[BatchKey], row: u32, hash: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let entry = self.slots[slot];
            if entry == 0 {
                self.slots[slot] = entry_of(hash, self.hashes.len());
                self.hashes.push(hash);
                for (column, key) in self.keys.iter_mut().zip(keys) {
                    column.append(key, &[row]);
                }
                return self.hashes.len() - 1;
            }
            let group = group_of(entry);
            let equal = |(column, key): (&GroupKey, &BatchKey)| column.is_equal(key, row as usize, group);
            if entry >> 32 == tag(hash) && self.keys.iter().zip(keys).all(equal) {
                return group;
            }
            slot = (slot + 1) & mask;
        }
    }

    /// Calls `found` with every row whose key has a group, and the group.
    pub fn for_each_known(&self, keys: &[BatchKey], hashes: &[u64], mut found: impl FnMut(usize, usize)) {
        if self.slots.is_empty() {
            return;
        }
        let mask = self.slots.len() - 1;
        for (row, &hash) in hashes.iter().enumerate() {
            if let Some(&ahead) = hashes.get(row + AHEAD) {
                prefetch(&self.slots, ahead as usize & mask);
            }
            let mut slot = hash as usize & mask;
            while self.slots[slot] != 0 {
                let entry = self.slots[slot];
                let group = group_of(entry);
                let equal = |(column, key): (&GroupKey, &BatchKey)| column.is_equal(key, row, group);
                if entry >> 32 == tag(hash) && self.keys.iter().zip(keys).all(equal) {
                    found(row, group);
                    break;
                }
                slot = (slot + 1) & mask;
            }
        }
    }

    /// Makes room for so many more groups: at most five of eight slots are ever taken.
    fn reserve(&mut self, more: usize) {
        let needed = (self.len() + more) * 8 / 5;
        if needed <= self.slots.len() {
            return;
        }
        let count = needed.next_power_of_two().max(FIRST_SLOTS);
        // Dropped first: the two need not exist at once.
        self.slots = Vec::new();
        self.slots = vec![0; count];
        let mask = count - 1;
        for (group, &hash) in self.hashes.iter().enumerate() {
            if let Some(&ahead) = self.hashes.get(group + AHEAD) {
                prefetch(&self.slots, ahead as usize & mask);
            }
            let mut slot = hash as usize & mask;
            while self.slots[slot] != 0 {
                slot = (slot + 1) & mask;
            }
            self.slots[slot] = entry_of(hash, group);
        }
    }

    /// Hashes and keys of all groups; none remain.
    pub fn take(&mut self) -> Result<(UInt64Array, Vec<ArrayRef>)> {
        self.slots = Vec::new();
        let hashes = UInt64Array::from(std::mem::take(&mut self.hashes));
        Ok((hashes, self.keys.iter_mut().map(GroupKey::take).collect::<Result<_>>()?))
    }
}

#[inline]
fn tag(hash: u64) -> u64 {
    u64::from((hash >> TAG_SHIFT) as u32)
}

#[inline]
fn entry_of(hash: u64, group: usize) -> u64 {
    tag(hash) << 32 | (group as u64 + 1)
}

#[inline]
fn group_of(entry: u64) -> usize {
    (entry as u32 - 1) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::Int64Type;

    use super::*;

    /// Groups `batches` of keys with the hashes that `hash` gives, and compares with a map.
    fn groups_are_right(batches: &[Vec<i64>], hash: impl Fn(i64) -> u64) {
        let mut table = GroupTable::try_new([&DataType::Int64]).unwrap();
        let (mut right, mut order) = (HashMap::new(), Vec::new());
        let mut groups = Vec::new();
        for batch in batches {
            let keys: ArrayRef = Arc::new(Int64Array::from(batch.clone()));
            let hashes: Vec<u64> = batch.iter().map(|&key| hash(key)).collect();
            table.find_or_insert(&[BatchKey::of(&keys)], &hashes, &mut groups);
            for (key, group) in batch.iter().zip(&groups) {
                let known = *right.entry(*key).or_insert(*group);
                assert_eq!(known, *group, "key {key}");
            }
        }
        assert_eq!(table.len(), right.len());
        let (hashes, keys) = table.take().unwrap();
        order.extend(keys[0].as_primitive::<Int64Type>().values().iter().copied());
        assert_eq!(hashes.len(), order.len());
        for (group, key) in order.iter().enumerate() {
            assert_eq!(right[key], group);
            assert_eq!(hashes.value(group), hash(*key));
        }
        assert_eq!(table.len(), 0);
    }

    fn mixed(key: i64) -> u64 {
        (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0x9fb2_1c65_1e98_df25)
    }

    #[test]
    fn keys_find_their_groups_while_the_table_grows() {
        let batches: Vec<Vec<i64>> =
            (0..40).map(|batch| (0..3000).map(|row| (row * 7 + batch * 331) % 50_000).collect()).collect();
        groups_are_right(&batches, mixed);
    }

    #[test]
    fn equal_hashes_are_not_equal_keys() {
        let batches: Vec<Vec<i64>> =
            (0..3).map(|batch| (0..300).map(|row| row % 97 + batch).collect()).collect();
        groups_are_right(&batches, |_| 42);
        groups_are_right(&batches, |key| mixed(key % 5));
    }

    #[test]
    fn keys_are_found_without_making_groups() {
        let mut table = GroupTable::try_new([&DataType::Int64]).unwrap();
        let batch = |keys: Vec<i64>, hash: fn(i64) -> u64| {
            let hashes: Vec<u64> = keys.iter().map(|&key| hash(key)).collect();
            (vec![BatchKey::of(&(Arc::new(Int64Array::from(keys)) as ArrayRef))], hashes)
        };
        let known = |table: &GroupTable, keys: Vec<i64>, hash| {
            let (keys, hashes) = batch(keys, hash);
            let mut found = Vec::new();
            table.for_each_known(&keys, &hashes, |row, group| found.push((row, group)));
            found
        };
        assert_eq!(known(&table, vec![1, 2], mixed), []);
        for hash in [mixed as fn(i64) -> u64, |_| 42] {
            let (keys, hashes) = batch((0..300).collect(), hash);
            table.find_or_insert(&keys, &hashes, &mut Vec::new());
            assert_eq!(known(&table, vec![299, 300, 7, -1, 7], hash), [(0, 299), (2, 7), (4, 7)]);
            assert_eq!(table.len(), 300);
            table.take().unwrap();
        }
    }

    #[test]
    fn empty_batches_make_no_groups() {
        groups_are_right(&[vec![], vec![1], vec![]], mixed);
    }
}
