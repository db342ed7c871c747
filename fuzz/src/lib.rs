//! What the fuzz targets feed their input to.

pub mod inputs;
pub mod page_decoder;
