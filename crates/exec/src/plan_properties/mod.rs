//! Constants, equivalences and orders of an operator's output, where DataFusion's claims do not hold.

mod equivalences;
mod mixed_partitions;

pub(crate) use equivalences::{without_missing_keys, without_padded_sides};
pub(crate) use mixed_partitions::{has_constants_of_partitions, mixing_partitions, mixing_rows};
