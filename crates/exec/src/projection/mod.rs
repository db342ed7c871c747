//! Computed columns: long texts a few rows at a time, decimals in 64 bits.

mod bounded;
mod narrow_decimal;

pub use bounded::BoundedProjectionExec;
pub use narrow_decimal::NarrowDecimal;
