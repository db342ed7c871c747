//! Spilled pages, compressed where the device and not the processor is what a query waits for.
//!
//! ```text
//!   sealed page ──► controller: packs? ──┬─ no ──► as it lies in memory ──────────┐
//!                     ▲    ▲             └─ yes ─► packed page ─► ring ─► group ──┴─► partition file
//!            policy ──┘    └── measured: time, processor time, the device's
//!                              time and bytes, cost and gain of packing
//! ```
//!
//! Pages are compressed one by one, by the worker that filled them, with LZ4: a worker that waits for the device anyway
//! packs 0.8 to 1.1 GB/s and unpacks 3, to between a third and a half. Packed pages that are written together become
//! one [group](packed), so that the device's alignment is paid for once. Reading unpacks a page when it is asked for,
//! by the worker that asks.
//!
//! Invariants
//! - A page that does not shrink by an eighth is written as it is.
//! - A page that was packed is verified like any other, after it has been unpacked.
//! - While packing, one page exists in both forms; while unpacking, the packed bytes and one page exist.

mod controller;
mod outgoing;
mod packed;
mod policy;

use std::fmt;
use std::str::FromStr;

pub(crate) use controller::Controller;
pub(crate) use outgoing::Outgoing;
pub(crate) use packed::{Group, MAX_GROUP_BYTES};

use crate::error::{Result, SpillError};
use crate::space_policy::named;

/// Whether spilled pages are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Where measurements say that it saves time. Never on a simulated device, whose time they do not know.
    #[default]
    Auto,
    /// Wherever pages shrink.
    On,
    Off,
}

impl Compression {
    pub const ALL: [Self; 3] = [Self::Auto, Self::On, Self::Off];

    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

impl FromStr for Compression {
    type Err = SpillError;

    fn from_str(text: &str) -> Result<Self> {
        named(text, &Self::ALL, Self::name)
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_are_written() {
        for compression in Compression::ALL {
            assert_eq!(compression.to_string().to_uppercase().parse::<Compression>().unwrap(), compression);
        }
        let message = "yes".parse::<Compression>().unwrap_err().to_string();
        assert_eq!(message, "'yes' is not one of auto, on, off");
    }
}
