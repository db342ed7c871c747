//! Hashing rows by their keys, for partitions and hash tables.

use arrow::array::ArrayRef;
use datafusion::common::Result;
use datafusion::common::hash_utils::{RandomState, create_hashes};

/// The operators' own seed: it must differ from that of the exchange below them, inside one of whose partitions the
/// exchange's hash bits are constant.
const SEED: u64 = 0x6e61_6e64_696e_6121;

/// The hash function of an operator at one level of recursion: every level scatters by a hash of its own.
#[derive(Clone, Debug)]
pub struct KeyHasher(RandomState);

impl KeyHasher {
    pub fn new(level: u32) -> Self {
        Self(RandomState::with_seed(SEED.wrapping_add(u64::from(level).wrapping_mul(0x9e37_79b9_7f4a_7c15))))
    }

    /// Hashes rows by their keys into `hashes`.
    pub fn hash(&self, keys: &[ArrayRef], rows: usize, hashes: &mut Vec<u64>) -> Result<()> {
        hashes.clear();
        hashes.resize(rows, 0);
        create_hashes(keys, &self.0, hashes)?;
        // The top bits choose the partition, the next ones the bucket, the low ones tell entries apart: the
        // fast hash does not promise that all of them are equally good, this finalizer does.
        for hash in hashes.iter_mut() {
            let mut mixed = *hash ^ (*hash >> 32);
            mixed = mixed.wrapping_mul(0x9fb2_1c65_1e98_df25);
            *hash = mixed ^ (mixed >> 29);
        }
        Ok(())
    }
}
