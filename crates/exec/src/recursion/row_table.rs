//! A hash table of rows by their keys, in which each is there once.

use arrow::array::{ArrayRef, AsArray, BooleanArray, UInt64Array};
use arrow::compute::filter;
use arrow::datatypes::UInt64Type;
use datafusion::common::Result;

use super::keys::RowKeys;
use crate::keys::{GroupTable, KeyedRows};

/// Rows with numbers.
pub struct RowTable {
    table: GroupTable,
    numbers: Vec<usize>,
}

impl RowTable {
    pub fn try_new(keys: &RowKeys) -> Result<Self> {
        Ok(Self { table: keys.table()?, numbers: Vec::new() })
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Bytes held, spare capacity included.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + self.numbers.capacity() * size_of::<usize>()
    }

    /// The hashes of all rows by their numbers.
    pub fn hashes(&self) -> &[u64] {
        self.table.hashes()
    }

    /// Adds rows, and calls `added` with the places, in their order, and the numbers of those that were not there.
    /// Numbers need not follow the order: rows whose hashes are nearly those of others get theirs later.
    pub fn add(&mut self, rows: &KeyedRows, mut added: impl FnMut(usize, usize)) {
        let known = self.len();
        self.table.find_or_insert(&rows.batch_keys(), &rows.hashes, &mut self.numbers);
        let mut came_before = vec![false; self.len() - known];
        for (place, &number) in self.numbers.iter().enumerate() {
            if let Some(new) = number.checked_sub(known)
                && !std::mem::replace(&mut came_before[new], true)
            {
                added(place, number);
            }
        }
    }

    /// Calls `found` with the numbers of those of `rows` that are there.
    pub fn for_each_known(&self, rows: &KeyedRows, mut found: impl FnMut(usize)) {
        self.table.for_each_known(&rows.batch_keys(), &rows.hashes, |_, number| found(number));
    }

    /// Takes all rows out; hashes and keys of those that are wanted.
    pub fn take(&mut self, is_wanted: impl Fn(usize) -> bool) -> Result<(UInt64Array, Vec<ArrayRef>)> {
        let wanted = BooleanArray::from((0..self.len()).map(is_wanted).collect::<Vec<_>>());
        let (hashes, keys) = self.table.take()?;
        self.numbers = Vec::new();
        if wanted.true_count() == wanted.len() {
            return Ok((hashes, keys));
        }
        let hashes = filter(&hashes, &wanted)?.as_primitive::<UInt64Type>().clone();
        let keys = keys.iter().map(|key| filter(key, &wanted)).collect::<Result<_, _>>()?;
        Ok((hashes, keys))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Array, Float64Array, RecordBatch};
    use arrow::buffer::ScalarBuffer;
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    fn keys() -> RowKeys {
        RowKeys::try_new(Arc::new(Schema::new(vec![Field::new("x", DataType::Float64, true)]))).unwrap()
    }

    fn rows(keys: &RowKeys, values: Vec<Option<f64>>) -> KeyedRows {
        keys.of(&RecordBatch::try_from_iter([("x", Arc::new(Float64Array::from(values)) as _)]).unwrap())
            .unwrap()
    }

    /// The places and numbers of rows that were added.
    fn added(table: &mut RowTable, rows: &KeyedRows) -> Vec<(usize, usize)> {
        let mut added = Vec::new();
        table.add(rows, |place, number| added.push((place, number)));
        added
    }

    #[test]
    fn a_row_is_new_once() {
        let keys = keys();
        let mut table = RowTable::try_new(&keys).unwrap();
        let first =
            rows(&keys, vec![Some(1.0), None, Some(0.0), Some(1.0), Some(-0.0), Some(f64::NAN), None]);
        assert_eq!(added(&mut table, &first), [(0, 0), (1, 1), (2, 2), (5, 3)]);
        let second = rows(&keys, vec![Some(f64::NAN), Some(2.0), None]);
        assert_eq!(added(&mut table, &second), [(1, 4)]);
        let mut found = Vec::new();
        table.for_each_known(&rows(&keys, vec![Some(3.0), None, Some(2.0)]), |number| found.push(number));
        assert_eq!(found, [1, 4]);
        let (hashes, taken) = table.take(|number| number != 0).unwrap();
        assert_eq!((hashes.len(), taken[0].len(), taken[0].null_count(), table.len()), (4, 4, 1, 0));
    }

    #[test]
    fn rows_of_nearly_equal_hashes_are_told_apart_in_their_order() {
        let keys = keys();
        let mut table = RowTable::try_new(&keys).unwrap();
        let mut alike = rows(&keys, vec![Some(1.0), Some(2.0), Some(3.0), Some(2.0)]);
        alike.hashes = ScalarBuffer::from(vec![42, 42, 7, 42]);
        // The second has to be looked at again, behind the third.
        assert_eq!(added(&mut table, &alike), [(0, 0), (1, 2), (2, 1)]);
    }
}
