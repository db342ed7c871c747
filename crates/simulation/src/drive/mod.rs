//! How long does a medium take? Models of hard disks and flash drives in virtual time.
//!
//! A [`Drive`] knows nothing of files and holds no data. It takes commands that name ranges of its addresses and says
//! when each of them has ended, in nanoseconds since it was switched on. Who drives it decides what a nanosecond is:
//! a number that is added up (virtual time), or a real one that is waited for (paced).
//!
//! ```text
//!   Command ─► host queue (as deep as the interface allows) ─► mechanics or flash ─► ended at …
//! ```
//!
//! Invariants
//! - The same commands at the same times, with the same seed, end at the same times.
//! - Times never go backwards: neither those of submissions nor those of completions.
//! - A drive works on by itself between events (collecting garbage, writing its buffer back); nothing is lost by
//!   asking seldom.

mod disk;
mod flash;
mod volume;

pub use disk::{DiskParameters, HardDisk};
pub use flash::{FlashDrive, FlashParameters};
pub use volume::{NetworkVolume, VolumeParameters};

use nandina_device::DeviceIdentity;

/// Nanoseconds since the drive was switched on.
pub type Nanos = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandKind {
    Read,
    Write,
    /// Ends when everything written before is safe from a loss of power.
    Flush,
    /// The range holds nothing that is needed any more.
    Trim,
}

/// A command to a drive. Address and length are multiples of [`nandina_device::BLOCK_BYTES`]; both are 0 for a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command {
    /// Chosen by the caller; told again when the command has ended.
    pub tag: u64,
    pub kind: CommandKind,
    pub address: u64,
    pub bytes: u64,
}

/// A command that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ended {
    pub at: Nanos,
    pub tag: u64,
}

/// What happened inside a drive since it was switched on. Flash figures are zero for a hard disk.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DriveFigures {
    pub read_commands: u64,
    pub write_commands: u64,
    pub flush_commands: u64,
    pub trim_commands: u64,
    pub bytes_read: u64,
    /// Bytes that the host wrote.
    pub bytes_written: u64,
    pub bytes_trimmed: u64,
    /// Time that trim commands kept the drive from other work.
    pub trim_nanos: u64,
    /// Bytes programmed into flash: what the host wrote, and what garbage collection moved.
    pub flash_bytes_written: u64,
    /// Bytes that garbage collection moved.
    pub moved_bytes: u64,
    /// Erased blocks, over all and of the most worn one.
    pub erases: u64,
    pub most_erases_of_a_block: u64,
    /// Distance that the arm of a hard disk travelled, in tracks, and time it took.
    pub seek_tracks: u64,
    pub seek_nanos: u64,
}

impl DriveFigures {
    /// Counts a command that concerns so many bytes.
    fn count(&mut self, kind: CommandKind, bytes: u64) {
        match kind {
            CommandKind::Read => {
                self.read_commands += 1;
                self.bytes_read += bytes;
            }
            CommandKind::Write => {
                self.write_commands += 1;
                self.bytes_written += bytes;
            }
            CommandKind::Flush => self.flush_commands += 1,
            CommandKind::Trim => {
                self.trim_commands += 1;
                self.bytes_trimmed += bytes;
            }
        }
    }

    /// Bytes programmed into flash per byte that the host wrote; 0 before the first write.
    pub fn write_amplification(&self) -> f64 {
        if self.bytes_written == 0 {
            0.0
        } else {
            self.flash_bytes_written as f64 / self.bytes_written as f64
        }
    }
}

/// A model of a drive. See the [module documentation](self).
pub trait Drive: Send {
    /// Addresses reach from 0 to this.
    fn capacity_bytes(&self) -> u64;

    /// Takes a command over at `now`, which is no earlier than any time named before.
    fn submit(&mut self, now: Nanos, command: Command);

    /// When the drive next has something to tell or to do if it is given no further command. `None` when it rests.
    fn next_event(&self) -> Option<Nanos>;

    /// Lets the drive work until `until`, inclusive; what ended is added in the order of its times.
    fn advance(&mut self, until: Nanos, ended: &mut Vec<Ended>);

    /// Brings the whole drive into the state of having been written to once, in order of addresses, without taking
    /// time and without counting. Hard disks have no such state.
    fn fill(&mut self) {}

    fn figures(&self) -> DriveFigures;
}

/// A kind of drive, from which any number of drives can be made.
#[derive(Debug, Clone, PartialEq)]
pub enum DriveModel {
    Flash(FlashParameters),
    Disk(DiskParameters),
    Volume(VolumeParameters),
}

impl DriveModel {
    /// The names that [`DriveModel::named`] knows.
    pub const NAMES: [&'static str; 8] =
        ["iodrive", "p300", "vertex3", "revodrive", "sata-ssd", "nvme", "disk", "cloud-volume"];

    /// A model that comes with Nandina: the devices of the papers it builds on, and today's.
    pub fn named(name: &str) -> Option<DriveModel> {
        Some(match name {
            "iodrive" => DriveModel::Flash(FlashParameters::fusion_io_drive()),
            "p300" => DriveModel::Flash(FlashParameters::micron_p300()),
            "vertex3" => DriveModel::Flash(FlashParameters::ocz_vertex3_max_iops()),
            "revodrive" => DriveModel::Flash(FlashParameters::revo_drive()),
            "sata-ssd" => DriveModel::Flash(FlashParameters::sata_ssd()),
            "nvme" => DriveModel::Flash(FlashParameters::nvme_ssd()),
            "disk" => DriveModel::Disk(DiskParameters::disk_7200_rpm()),
            "cloud-volume" => DriveModel::Volume(VolumeParameters::cloud_volume()),
            _ => return None,
        })
    }

    /// Bytes that a drive of this model holds.
    pub fn capacity_bytes(&self) -> u64 {
        match self {
            DriveModel::Flash(parameters) => parameters.capacity_bytes,
            DriveModel::Disk(parameters) => parameters.capacity_bytes,
            DriveModel::Volume(parameters) => parameters.capacity_bytes,
        }
    }

    /// The name of the modelled drive.
    pub fn name(&self) -> &str {
        match self {
            DriveModel::Flash(parameters) => &parameters.name,
            DriveModel::Disk(parameters) => &parameters.name,
            DriveModel::Volume(parameters) => &parameters.name,
        }
    }

    pub(crate) fn identity(&self) -> DeviceIdentity {
        DeviceIdentity::of_model(self.name(), self.capacity_bytes())
    }

    pub(crate) fn switch_on(&self, seed: u64) -> Box<dyn Drive> {
        match self {
            DriveModel::Flash(parameters) => Box::new(FlashDrive::new(parameters.clone(), seed)),
            DriveModel::Disk(parameters) => Box::new(HardDisk::new(parameters.clone(), seed)),
            DriveModel::Volume(parameters) => Box::new(NetworkVolume::new(parameters.clone(), seed)),
        }
    }
}
