//! What goes wrong with a medium in memory, and what a loss of power leaves.

use std::collections::BTreeMap;

use nandina_device::FileClass;

/// Which requests fail, and how.
#[derive(Debug, Clone, Default)]
pub struct FaultPlan {
    pub(crate) faults: BTreeMap<u64, Fault>,
    pub(crate) damaged_read: Option<DamagedRead>,
    pub(crate) dead_from_request: Option<u64>,
    pub(crate) power_loss_at_event: Option<u64>,
    pub(crate) capacity_bytes: Option<u64>,
    pub(crate) has_no_holes: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    Error(i32),
    Short(usize),
    Torn(usize),
}

/// One read that comes back damaged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DamagedRead {
    pub(crate) first_request: u64,
    /// Of the byte of each sector, modulo its length.
    pub(crate) place: usize,
}

impl FaultPlan {
    pub fn none() -> Self {
        Self::default()
    }

    /// Request number `request` fails with an I/O error and moves nothing.
    pub fn fail_request(mut self, request: u64) -> Self {
        self.faults.insert(request, Fault::Error(libc::EIO));
        self
    }

    /// Every request from number `request` on fails: the device has died.
    pub fn fail_from(mut self, request: u64) -> Self {
        self.dead_from_request = Some(request);
        self
    }

    /// Request number `request` moves at most `bytes`; the rest is asked for again.
    pub fn short_transfer(mut self, request: u64, bytes: usize) -> Self {
        self.faults.insert(request, Fault::Short(bytes));
        self
    }

    /// Write number `request` changes only its first `bytes` and fails.
    pub fn torn_write(mut self, request: u64, bytes: usize) -> Self {
        self.faults.insert(request, Fault::Torn(bytes));
        self
    }

    /// The first read from request number `request` on reports success, but in each of its sectors a byte is not what was
    /// written: the one at `place`, modulo the sector's length.
    pub fn corrupt_read(mut self, request: u64, place: usize) -> Self {
        self.damaged_read = Some(DamagedRead { first_request: request, place });
        self
    }

    /// The power fails during event number `event` of this medium, for all of its machine.
    pub fn power_loss_at(mut self, event: u64) -> Self {
        self.power_loss_at_event = Some(event);
        self
    }

    pub(crate) fn capacity_at_most(mut self, bytes: u64) -> Self {
        self.capacity_bytes = Some(self.capacity_bytes.map_or(bytes, |capacity| capacity.min(bytes)));
        self
    }

    /// The file system cannot give back parts of a file, and says nothing about it.
    pub fn without_holes(mut self) -> Self {
        self.has_no_holes = true;
        self
    }

    /// The medium holds no more than this, in whole blocks.
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity_bytes = Some(bytes);
        self
    }
}

/// What survives of the changes that were not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashOutcome {
    LoseUnsynced,
    KeepAll,
    /// Each unsynced write survives whole, in part (any of its 512-byte sectors), or not at all; of the name changes
    /// a random number of the first survive, as on a journaling file system.
    Random {
        seed: u64,
    },
}

/// Whether a simulated device keeps the data written to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Contents {
    #[default]
    Kept,
    /// Until a crash, after which every file is empty, and those of temporary files not at all: for long experiments
    /// that do not look at what they spill.
    Volatile,
    /// Reads give zeros: for measurements that look at times and not at bytes.
    Forgotten,
}

impl Contents {
    /// Whether data written to a file of a class can be read again.
    pub(crate) fn keeps(self, class: FileClass) -> bool {
        match self {
            Contents::Kept => true,
            Contents::Volatile => class != FileClass::Temp,
            Contents::Forgotten => false,
        }
    }
}
