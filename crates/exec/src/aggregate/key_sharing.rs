//! Keys that are never in the same grouping set share a stored column.
//!
//! ```text
//!   GROUPING SETS ((k, a), (k, b))      keys  k  a  b  id        stored  k  a or b  id
//!                                             1  7  ∅   1                1     7     1
//!                                             1  ∅  7   2                1     7     2
//! ```
//!
//! The grouping id tells whose value it is: a bit for every key, from the last one up, that is set where the key is not
//! in the set. Groups are as wide as their largest set then, in memory and on the device.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray};
use arrow::compute::{cast, nullif};
use arrow::datatypes::{DataType, UInt64Type};
use datafusion::common::Result;

/// In which column every key is stored.
#[derive(Debug)]
pub struct KeySharing {
    /// Of every key, the grouping id included.
    columns: Vec<usize>,
    /// The keys of every column.
    keys: Vec<Vec<usize>>,
    /// Whether a key is left out of a set, for every set.
    left_out: Vec<Vec<bool>>,
}

impl KeySharing {
    /// Shares columns among keys of `types`; `left_out` tells for every set which of them are not in it. Further keys, such
    /// as the grouping id, are in all sets.
    pub fn new(types: &[&DataType], left_out: &[Vec<bool>]) -> Self {
        let mut sharing = Self { columns: Vec::new(), keys: Vec::new(), left_out: left_out.to_vec() };
        for key in 0..types.len() {
            let fits = |others: &Vec<usize>| {
                types[others[0]] == types[key] && others.iter().all(|&other| sharing.are_apart(key, other))
            };
            let column = sharing.keys.iter().position(fits).unwrap_or_else(|| {
                sharing.keys.push(Vec::new());
                sharing.keys.len() - 1
            });
            sharing.keys[column].push(key);
            sharing.columns.push(column);
        }
        sharing
    }

    /// Whether no set has both keys.
    fn are_apart(&self, one: usize, other: usize) -> bool {
        self.left_out.iter().all(|set| set.get(one) == Some(&true) || set.get(other) == Some(&true))
    }

    /// A key of every column, whose type it has.
    pub fn columns(&self) -> impl Iterator<Item = usize> {
        self.keys.iter().map(|keys| keys[0])
    }

    /// The column that a key is stored in.
    pub fn column(&self, key: usize) -> usize {
        self.columns.get(key).copied().unwrap_or(key)
    }

    /// The columns for the keys of a set.
    pub fn shared(&self, set: usize, keys: &[ArrayRef]) -> Vec<ArrayRef> {
        let is_in = |key: &&usize| self.left_out[set].get(**key) != Some(&true);
        let column = |of: &Vec<usize>| Arc::clone(&keys[*of.iter().find(is_in).unwrap_or(&of[0])]);
        self.keys.iter().map(column).collect()
    }

    /// The keys that are in `columns`, of rows of any sets, as they are stored.
    pub fn separated(&self, columns: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        if self.keys.len() == self.columns.len() {
            return Ok(columns.to_vec());
        }
        // Keys that are left out of sets come before the id, which is the last one.
        let last = self.columns.len() - 1;
        let ids = cast(&columns[self.columns[last]], &DataType::UInt64)?;
        let part = |key: usize, column: &ArrayRef| {
            let bit = last - 1 - key;
            let left_out = ids.as_primitive::<UInt64Type>().values().iter().map(|id| id >> bit & 1 == 1);
            nullif(column.as_ref(), &BooleanArray::from(left_out.collect::<Vec<_>>()))
        };
        let mut keys = Vec::with_capacity(self.columns.len());
        for (key, &column) in self.columns.iter().enumerate() {
            let values = &columns[column];
            let is_alone = self.keys[column].len() == 1;
            keys.push(if is_alone { Arc::clone(values) } else { part(key, values)? });
        }
        Ok(keys)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray, UInt8Array, new_null_array};

    use super::*;

    const INT: DataType = DataType::Int64;
    const TEXT: DataType = DataType::Utf8;
    const ID: DataType = DataType::UInt8;

    #[test]
    fn keys_of_one_type_and_different_sets_share() {
        // ((k, a), (k, b), (k, t)) with ids 0b0011, 0b0101 and 0b0110.
        let sets =
            [vec![false, false, true, true], vec![false, true, false, true], vec![false, true, true, false]];
        let sharing = KeySharing::new(&[&INT, &INT, &INT, &TEXT, &ID], &sets);
        assert_eq!(sharing.columns().collect::<Vec<_>>(), [0, 1, 3, 4]);
        let ints = |value: i64| -> ArrayRef { Arc::new(Int64Array::from(vec![Some(value), None])) };
        let (k, a, b) = (ints(1), ints(2), ints(3));
        let t: ArrayRef = Arc::new(StringArray::from(vec!["x", "y"]));
        let (no_int, no_text) = (new_null_array(&INT, 2), new_null_array(&TEXT, 2));
        let id = |id: u8| -> ArrayRef { Arc::new(UInt8Array::from(vec![id; 2])) };
        for (set, keys) in [
            vec![Arc::clone(&k), a, Arc::clone(&no_int), Arc::clone(&no_text), id(0b011)],
            vec![Arc::clone(&k), Arc::clone(&no_int), b, no_text, id(0b101)],
            vec![k, Arc::clone(&no_int), no_int, t, id(0b110)],
        ]
        .iter()
        .enumerate()
        {
            let columns = sharing.shared(set, keys);
            assert_eq!(columns.len(), 4);
            assert_eq!(&sharing.separated(&columns).unwrap(), keys, "set {set}");
        }
    }

    #[test]
    fn keys_of_one_set_do_not_share() {
        let rollup = [vec![false, false], vec![false, true], vec![true, true]];
        assert_eq!(KeySharing::new(&[&INT, &INT, &ID], &rollup).columns().count(), 3);
        assert_eq!(KeySharing::new(&[&INT, &INT], &[vec![false, false]]).columns().count(), 2);
        let apart = [vec![false, true], vec![true, false]];
        assert_eq!(KeySharing::new(&[&INT, &TEXT, &ID], &apart).columns().count(), 3);
        assert_eq!(KeySharing::new(&[&INT, &INT, &ID], &apart).columns().count(), 2);
    }

    #[test]
    fn an_id_is_no_key_of_a_set_even_if_it_has_the_type() {
        let apart = [vec![false, true], vec![true, false]];
        let sharing = KeySharing::new(&[&ID, &ID, &ID], &apart);
        assert_eq!(sharing.columns().collect::<Vec<_>>(), [0, 2]);
    }
}
