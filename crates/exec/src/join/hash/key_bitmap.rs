//! The keys of a build side as a bitmap, where they are integers of a known, narrow range.
//!
//! Exact, of a bit per possible key, whatever is spilled; and where the probe side comes in the order of its keys, as
//! the lines of orders do, it is read in order. A hash table is looked up at random, and only after hashing. Scans of the
//! probe side ask it, and so does the join about rows of spilled partitions.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::buffer::BooleanBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::Result;

/// Bitmaps are no longer than this, whatever the memory.
const MAX_BYTES: usize = 64 << 20;
/// The share of the memory limit that one may take: that of the orders of TPC-H at scale 10 is 7.5 MB.
const MEMORY_SHARE: usize = 8;

/// The smallest and the greatest key that there can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub least: i64,
    pub greatest: i64,
}

impl KeyRange {
    /// Bytes of a bitmap over it, one of `bitmaps`; `None` if that would be too long under `memory_limit`.
    pub fn bitmap_bytes(self, memory_limit: Option<usize>, bitmaps: usize) -> Option<usize> {
        let keys = self.greatest.checked_sub(self.least)?.checked_add(1)?;
        let bytes = usize::try_from(keys).ok()?.div_ceil(64) * size_of::<u64>();
        let most = memory_limit.map_or(MAX_BYTES, |limit| (limit / MEMORY_SHARE).min(MAX_BYTES));
        (bytes <= most / bitmaps.max(1)).then_some(bytes)
    }
}

/// Types whose values are integers that 64 signed bits hold.
pub fn has_bitmaps(data_type: &DataType) -> bool {
    data_type.is_integer() && *data_type != DataType::UInt64 || *data_type == DataType::Date32
}

/// Which keys of a range have been seen.
#[derive(Debug)]
pub struct KeyBitmap {
    range: KeyRange,
    words: Vec<AtomicU64>,
    /// A key outside the range came: the range was an estimate, and the bitmap says nothing.
    is_incomplete: AtomicBool,
}

impl KeyBitmap {
    /// No keys yet.
    pub fn new(range: KeyRange) -> Self {
        let keys = range.greatest.saturating_sub(range.least).max(0) as usize + 1;
        let words = (0..keys.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { range, words, is_incomplete: AtomicBool::new(false) }
    }

    /// The word and the bit of a key; `None` outside the range.
    #[inline]
    fn place(&self, key: i64) -> Option<(&AtomicU64, u64)> {
        let position = key.wrapping_sub(self.range.least) as u64;
        let word = self.words.get(usize::try_from(position / 64).ok()?)?;
        Some((word, 1 << (position % 64)))
    }

    /// Adds the keys of build rows; nulls are left out.
    pub fn insert(&self, keys: &ArrayRef) -> Result<()> {
        let keys = cast(keys, &DataType::Int64)?;
        let keys = keys.as_primitive::<Int64Type>();
        for key in keys.iter().flatten() {
            match self.place(key) {
                // A plain load first: repeated keys leave the cache line shared.
                Some((word, bit)) if word.load(Ordering::Relaxed) & bit == 0 => {
                    word.fetch_or(bit, Ordering::Relaxed);
                }
                Some(_) => {}
                None => self.is_incomplete.store(true, Ordering::Relaxed),
            }
        }
        Ok(())
    }

    /// Which of `keys` have been added: null is not. `None` if the bitmap does not hold all that were.
    pub fn holds(&self, keys: &ArrayRef) -> Result<Option<BooleanBuffer>> {
        if self.is_incomplete.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let keys = cast(keys, &DataType::Int64)?;
        let keys = keys.as_primitive::<Int64Type>();
        let held = BooleanArray::from_unary(keys, |key| {
            self.place(key).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
        });
        Ok(Some(match held.nulls() {
            Some(nulls) => held.values() & nulls.inner(),
            None => held.values().clone(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Date32Array, Int32Array, Int64Array};

    use super::*;

    fn held(bitmap: &KeyBitmap, keys: ArrayRef) -> Vec<bool> {
        bitmap.holds(&keys).unwrap().unwrap().iter().collect()
    }

    #[test]
    fn what_was_added_is_held_and_nothing_else() {
        let bitmap = KeyBitmap::new(KeyRange { least: -5, greatest: 130 });
        let keys: ArrayRef = Arc::new(Int32Array::from(vec![Some(-5), None, Some(130), Some(64)]));
        bitmap.insert(&keys).unwrap();
        let asked: ArrayRef = Arc::new(Int64Array::from(vec![
            Some(-5),
            Some(-6),
            Some(130),
            Some(131),
            Some(0),
            None,
            Some(64),
        ]));
        assert_eq!(held(&bitmap, asked), [true, false, true, false, false, false, true]);
        let far: ArrayRef = Arc::new(Int64Array::from(vec![i64::MIN, i64::MAX, 0]));
        assert_eq!(held(&bitmap, far), [false, false, false]);
        let days: ArrayRef = Arc::new(Date32Array::from(vec![64, 65]));
        assert_eq!(held(&bitmap, days), [true, false]);
    }

    #[test]
    fn a_key_outside_the_range_makes_it_useless() {
        let bitmap = KeyBitmap::new(KeyRange { least: 0, greatest: 9 });
        let keys: ArrayRef = Arc::new(Int64Array::from(vec![3, 10_000]));
        bitmap.insert(&keys).unwrap();
        assert_eq!(bitmap.holds(&keys).unwrap(), None);
    }

    #[test]
    fn only_narrow_ranges_have_bitmaps() {
        let range = |least, greatest| KeyRange { least, greatest };
        assert_eq!(range(1, 60_000_000).bitmap_bytes(Some(64 << 20), 1), Some(7_500_000));
        assert_eq!(range(1, 60_000_000).bitmap_bytes(Some(32 << 20), 1), None);
        assert_eq!(range(1, 60_000_000).bitmap_bytes(Some(64 << 20), 2), None);
        assert_eq!(range(i64::MIN, i64::MAX).bitmap_bytes(None, 1), None);
        assert_eq!(range(5, 4).bitmap_bytes(None, 1), Some(0));
    }
}
