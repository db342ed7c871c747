//! The joins on a model of a drive that is nearly full of other data, in virtual time.

use bytes::Bytes;
use nandina_bench::random::Random;
use nandina_device::{Device, File, FileClass};
use nandina_simulation::drive::DriveModel;
use nandina_simulation::{Contents, SimulationOptions};
use nandina_spill::{Discard, Preallocation, TempOptions, TempSpace};
use std::time::Duration;

use crate::workload::{Space, Workload};

const CAPACITY_BYTES: u64 = 4 << 30;
const MIB: u64 = 1 << 20;
/// The free space is in as many pieces, so that it is not in one.
const OTHER_FILES: u64 = 24;
/// Rounds before those that are measured: the drive has seen all of its free space in use.
const WARM_UP_ROUNDS: u64 = 3;
const ROUNDS: u64 = 2;

/// How space is managed: by whoever spills, and by the file system below.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Combination {
    pub management: Management,
    /// Whether the file system is mounted so that freed ranges become TRIM commands.
    pub is_mounted_with_discard: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Management {
    FilePerPartition { fallocate: bool },
    Extents { preallocation: Preallocation, discard: Discard },
}

impl Combination {
    /// The paper's, then ours.
    pub fn all() -> impl Iterator<Item = Self> {
        let paper = [false, true].map(|fallocate| Management::FilePerPartition { fallocate });
        let ours = Preallocation::ALL.into_iter().flat_map(|preallocation| {
            Discard::ALL.map(|discard| Management::Extents { preallocation, discard })
        });
        paper.into_iter().chain(ours).flat_map(|management| {
            [false, true].map(|is_mounted_with_discard| Self { management, is_mounted_with_discard })
        })
    }

    /// The paper's, and of ours those that differ.
    pub fn compared() -> impl Iterator<Item = Self> {
        let ours = |preallocation, discard, is_mounted_with_discard| Self {
            management: Management::Extents { preallocation, discard },
            is_mounted_with_discard,
        };
        Self::all().take(4).chain([
            ours(Preallocation::Fallocate, Discard::Immediate, true),
            ours(Preallocation::Fallocate, Discard::Deferred, true),
            ours(Preallocation::Recycle, Discard::Deferred, true),
            ours(Preallocation::Recycle, Discard::Deferred, false),
        ])
    }
}

/// Where, and what.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    pub drive: &'static str,
    /// Share of the drive that other data takes, in percent.
    pub full_percent: u64,
    pub workload: Workload,
}

/// Of one round of all joins.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    pub seconds: f64,
    pub write_amplification: f64,
    pub erases: f64,
    pub trims: f64,
    pub trim_seconds: f64,
    pub trimmed_mib: f64,
    pub written_mib: f64,
    /// Commands that writes of spilled data became.
    pub writes: f64,
}

impl Setting {
    /// As much is spilled at once as fits into six tenths of what is free.
    pub fn new(drive: &'static str, full_percent: u64, partitions: usize, joins_at_once: usize) -> Self {
        let free_bytes = CAPACITY_BYTES / 100 * (100 - full_percent);
        let join_bytes = free_bytes * 6 / 10 / joins_at_once as u64;
        let joins_each = 3usize.div_ceil(joins_at_once);
        Self { drive, full_percent, workload: Workload { partitions, joins_at_once, joins_each, join_bytes } }
    }

    pub fn run(&self, combination: Combination) -> Outcome {
        let mut model = DriveModel::named(self.drive).unwrap();
        if let DriveModel::Flash(parameters) = &mut model {
            let scale = parameters.capacity_bytes / CAPACITY_BYTES;
            parameters.capacity_bytes = CAPACITY_BYTES;
            parameters.burst_bytes /= scale;
        }
        let (device, simulation) = nandina_simulation::on_drive(SimulationOptions {
            discard: combination.is_mounted_with_discard,
            contents: Contents::Volatile,
            ..SimulationOptions::of(model)
        });
        simulation.fill_drive();
        let input = self.fill(&device);
        let rest = || simulation.pass(Duration::from_secs(60));
        rest();
        let space = match combination.management {
            Management::FilePerPartition { fallocate } => {
                Space::FilePerPartition { device: device.clone(), fallocate }
            }
            Management::Extents { preallocation, discard } => {
                let options = TempOptions { preallocation, discard, ..TempOptions::default() };
                Space::Extents(TempSpace::open(device.clone(), options).unwrap())
            }
        };
        let contents = Bytes::from_owner(device.buffer(MIB as usize));
        for round in 0..WARM_UP_ROUNDS {
            self.workload.run(&space, &input, &contents, round);
        }
        rest();
        let (before, started) = (simulation.drive_figures(), device.now());
        for round in 0..ROUNDS {
            self.workload.run(&space, &input, &contents, WARM_UP_ROUNDS + round);
        }
        let (after, ended) = (simulation.drive_figures(), device.now());
        let per_round = |from: u64, to: u64| (to - from) as f64 / ROUNDS as f64;
        let mib = |bytes: f64| bytes / MIB as f64;
        let written = per_round(before.bytes_written, after.bytes_written);
        let programmed = per_round(before.flash_bytes_written, after.flash_bytes_written);
        Outcome {
            seconds: (ended - started).as_secs_f64() / ROUNDS as f64,
            write_amplification: programmed / written,
            erases: per_round(before.erases, after.erases),
            trims: per_round(before.trim_commands, after.trim_commands),
            trim_seconds: per_round(before.trim_nanos, after.trim_nanos) / 1e9,
            trimmed_mib: mib(per_round(before.bytes_trimmed, after.bytes_trimmed)),
            written_mib: mib(written),
            writes: per_round(before.write_commands, after.write_commands),
        }
    }

    /// Files take all of the drive; then some of them go, until no more than the wanted share is full. The drive has
    /// been written to as a whole before, so that nothing has to be written here. Returns a file that stays.
    fn fill(&self, device: &Device) -> File {
        let input = device.create("input", FileClass::Temp).unwrap();
        input.allocate(0, CAPACITY_BYTES / 4).unwrap();
        let mut random = Random::new(2);
        let free_bytes = CAPACITY_BYTES / 100 * (100 - self.full_percent);
        let kept_bytes = CAPACITY_BYTES - CAPACITY_BYTES / 4 - free_bytes;
        let share = |all: u64, random: &mut Random| {
            let parts: Vec<u64> = (0..OTHER_FILES).map(|_| 1 + random.below(4) as u64).collect();
            let sum: u64 = parts.iter().sum();
            parts.into_iter().map(|part| all / sum * part / 4096 * 4096).collect::<Vec<u64>>()
        };
        let (kept, removed) = (share(kept_bytes, &mut random), share(free_bytes, &mut random));
        for (number, (kept, removed)) in kept.into_iter().zip(removed).enumerate() {
            for (name, bytes) in [("kept", kept), ("removed", removed)] {
                let file = device.create(&format!("{name}-{number}"), FileClass::Temp).unwrap();
                file.allocate(0, bytes).unwrap();
            }
        }
        for number in 0..OTHER_FILES {
            device.remove(&format!("removed-{number}")).unwrap();
        }
        input
    }
}
