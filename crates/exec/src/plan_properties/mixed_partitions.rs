//! The properties that rows keep when those of several partitions come together.
//!
//! The branches of a `UNION ALL` are partitions of their own. A column that has one value in each of them, another one in
//! each, is known as constant (*heterogeneous* in DataFusion), and orders leave it out. Our operators consume several
//! partitions where DataFusion's would have an exchange below, which forgets that. In a single partition it stays
//! constant.

use datafusion::physical_expr::{AcrossPartitions, EquivalenceProperties};
use datafusion::physical_plan::PlanProperties;

/// The same properties of rows that may come from any partition, without expressions that are constant only within
/// each.
pub fn mixing_partitions(properties: &PlanProperties) -> PlanProperties {
    let mut equivalences = properties.equivalence_properties().clone();
    equivalences.clear_per_partition_constants();
    properties.clone().with_eq_properties(equivalences)
}

/// The same where `inputs` partitions may come together, in no order either.
pub fn mixing_rows(properties: &PlanProperties, inputs: usize) -> PlanProperties {
    let mut equivalences = properties.equivalence_properties().clone();
    equivalences.clear_orderings();
    if inputs > 1 {
        equivalences.clear_per_partition_constants();
    }
    properties.clone().with_eq_properties(equivalences)
}

/// Whether something is constant within each partition, and not the same in all.
pub fn has_constants_of_partitions(equivalences: &EquivalenceProperties) -> bool {
    let of_partitions = |value: &AcrossPartitions| matches!(value, AcrossPartitions::Heterogeneous);
    equivalences.constants().iter().any(|constant| of_partitions(&constant.across_partitions))
}
