//! Rows that have been hashed by their keys, and how they lie in pages: hashes first.

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::UInt64Type;
use datafusion::common::Result;

use super::columns::BatchKey;
use super::hasher::KeyHasher;

/// Keys in stored form with their hashes.
pub struct KeyedRows {
    pub hashes: ScalarBuffer<u64>,
    pub keys: Vec<ArrayRef>,
}

impl KeyedRows {
    /// Hashes so many rows by their keys, which are in stored form.
    pub fn hash(keys: Vec<ArrayRef>, rows: usize, hasher: &KeyHasher) -> Result<Self> {
        let mut hashes = Vec::new();
        hasher.hash(&keys, rows, &mut hashes)?;
        Ok(Self { hashes: ScalarBuffer::from(hashes), keys })
    }

    /// The keys, ready to be compared with those of groups.
    pub fn batch_keys(&self) -> Vec<BatchKey> {
        self.keys.iter().map(BatchKey::of).collect()
    }
}

/// The hashes of stored rows.
pub fn hashes_of(stored: &RecordBatch) -> &ScalarBuffer<u64> {
    stored.column(0).as_primitive::<UInt64Type>().values()
}
