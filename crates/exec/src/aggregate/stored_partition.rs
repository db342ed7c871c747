//! Groups of one partition, between the input and their merge.

use std::sync::Arc;

use datafusion::common::Result;
use nandina_spill::{PartitionFile, QuerySpace, SealedPage};

use super::metrics::AggregateMetrics;
use crate::error::spill_error;
use crate::memory::HeldMemory;

/// A complete partition: in memory or on the device.
pub struct StoredPartition {
    pub resident: Vec<SealedPage>,
    pub file: Option<Arc<PartitionFile>>,
    pub rows: u64,
    /// For the resident pages.
    pub memory: HeldMemory,
}

impl StoredPartition {
    /// Bytes of all pages.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes() as u64 + self.file.as_ref().map_or(0, |file| file.bytes())
    }

    /// Writes the resident pages to the device, blocking the thread. The bytes that frees.
    pub fn spill(
        &mut self,
        space: &Arc<QuerySpace>,
        extent_bytes: usize,
        metrics: &AggregateMetrics,
    ) -> Result<usize> {
        let mut file = PartitionFile::new(Arc::clone(space), extent_bytes);
        file.write_blocking(self.resident.clone()).map_err(spill_error)?;
        assert!(self.file.is_none(), "a partition is in memory or on the device");
        self.file = Some(Arc::new(file));
        self.resident.clear();
        metrics.spilled_partitions.add(1);
        metrics.spill.spilled_rows.add(self.rows as usize);
        let freed = self.memory.bytes();
        self.memory.shrink(freed);
        Ok(freed)
    }
}
