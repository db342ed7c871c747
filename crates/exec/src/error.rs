//! Errors of the lower crates as DataFusion errors.

use datafusion::common::DataFusionError;

/// A device that could not be opened, read or written.
pub fn device_error(error: nandina_device::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// A page that could not be made, or was read from temporary space and is damaged.
pub fn pages_error(error: nandina_pages::PageError) -> DataFusionError {
    spill_error(error.into())
}

/// Temporary space that could not be had, written or read.
pub fn spill_error(error: nandina_spill::SpillError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
