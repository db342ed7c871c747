//! A spilled partition: both sides are on the device.

use std::sync::Arc;

use nandina_spill::PartitionFile;

use super::build_side::EarlierVisits;
use crate::join::kind::SideRows;
use crate::join::spec::JoinSpec;

/// The files of both sides.
#[derive(Debug)]
pub struct SpilledPair {
    pub build: Arc<PartitionFile>,
    pub probe: Arc<PartitionFile>,
    /// How often its rows have been scattered.
    pub level: u32,
    /// Whether scattering it again would not make it smaller: one hot key.
    pub unsplittable: bool,
    /// Which build rows have matched already. They tie the rows to their places in the file.
    pub earlier: Option<EarlierVisits>,
}

impl SpilledPair {
    /// The same pair with the sides exchanged.
    pub fn swapped(self) -> Self {
        Self { build: self.probe, probe: self.build, ..self }
    }

    /// Whether the pair can give any output row.
    pub fn produces_rows(&self, spec: &JoinSpec) -> bool {
        let alone = |rows: SideRows| rows.emits(false);
        match (self.build.rows() > 0, self.probe.rows() > 0) {
            (true, true) => true,
            (true, false) => alone(spec.kind.build_rows) || self.earlier.is_some(),
            (false, true) => alone(spec.kind.probe_rows),
            (false, false) => false,
        }
    }
}
