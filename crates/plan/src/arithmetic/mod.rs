//! Arithmetic that is refused where it would be wrong, and casts to integers that round.

mod checked;
mod rounding;

pub use checked::CheckedIntegers;
pub use rounding::RoundingCasts;
