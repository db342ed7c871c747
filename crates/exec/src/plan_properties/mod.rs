//! What is known of an operator's rows before it runs, where DataFusion knows too much.

mod equivalences;
mod mixed_partitions;

pub(crate) use equivalences::{without_missing_keys, without_padded_sides};
pub(crate) use mixed_partitions::{has_constants_of_partitions, mixing_partitions, mixing_rows};
