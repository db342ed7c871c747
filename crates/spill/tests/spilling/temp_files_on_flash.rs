//! What the policies of temporary space do to a flash drive that is nearly full of other data.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use std::collections::VecDeque;
use std::time::Duration;

use nandina_device::calibration::Calibration;
use nandina_device::{Device, File, FileClass, Request};
use nandina_simulation::drive::{DriveFigures, DriveModel, FlashParameters};
use nandina_simulation::{Contents, Simulation, SimulationOptions};
use nandina_spill::{Discard, Extent, Preallocation, QuerySpace, TempOptions, TempSpace};

const MIB: u64 = 1 << 20;
const CAPACITY: u64 = 512 * MIB;
const OTHER_DATA: u64 = 384 * MIB;
const UNIT: u64 = 64 << 10;

/// Few dies of small blocks, so that the drive has enough of them to choose from.
fn drive() -> DriveModel {
    DriveModel::Flash(FlashParameters {
        channels: 2,
        dies_per_channel: 2,
        pages_per_block: 32,
        capacity_bytes: CAPACITY,
        ..FlashParameters::sata_ssd()
    })
}

struct Bench {
    device: Device,
    simulation: Simulation,
    space: std::sync::Arc<TempSpace>,
    _other_data: File,
}

impl Bench {
    /// A drive all of which was written once, three quarters of which hold data that stays.
    fn new(preallocation: Preallocation, discard: Discard, is_mounted_with_discard: bool) -> Self {
        let contents = Contents::Volatile;
        let model = SimulationOptions::of(drive());
        let simulated = SimulationOptions { discard: is_mounted_with_discard, contents, ..model };
        let (device, simulation) = nandina_simulation::on_drive(simulated);
        simulation.fill_drive();
        let other_data = device.create("other data", FileClass::Temp).unwrap();
        other_data.allocate(0, OTHER_DATA).unwrap();
        let options = TempOptions { preallocation, discard, ..TempOptions::default() };
        let space = TempSpace::open(device.clone(), options).unwrap();
        Self { device, simulation, space, _other_data: other_data }
    }

    /// Partitions that fill in turns and are freed one after the other, while those of the next join fill: 48 MiB at
    /// once in each join.
    fn joins(&self, joins: usize, partitions: usize) -> DriveFigures {
        let query = self.space.query("join");
        let mut full: VecDeque<Vec<Extent>> = VecDeque::new();
        for _ in 0..joins {
            let mut filling: Vec<Vec<Extent>> = (0..partitions).map(|_| Vec::new()).collect();
            let mut at = vec![0; partitions];
            let units = 48 * MIB / UNIT / partitions as u64;
            for unit in 0..units {
                let writes = filling.iter_mut().zip(&mut at).map(|(extents, at)| write(&query, extents, at));
                self.device.submit_many(writes.collect(), None).wait().unwrap();
                // As many partitions of the join before are freed as this one has filled.
                if unit % units.div_ceil(partitions as u64) == 0 {
                    full.pop_front();
                }
            }
            full.clear();
            full.extend(filling);
        }
        drop(full);
        self.simulation.pass(Duration::from_secs(10));
        self.simulation.drive_figures()
    }
}

fn write(query: &QuerySpace, extents: &mut Vec<Extent>, at: &mut u64) -> (File, Request) {
    if extents.is_empty() || *at == MIB {
        extents.push(query.allocate(MIB as usize).unwrap());
        *at = 0;
    }
    let extent = extents.last().unwrap();
    let request = Request::write(extent.offset() + *at, query.device().buffer(UNIT as usize));
    *at += UNIT;
    (extent.file().clone(), request)
}

#[test]
fn a_drive_that_is_told_what_is_free_moves_less() {
    let moved = |is_mounted_with_discard| {
        let bench = Bench::new(Preallocation::Fallocate, Discard::Immediate, is_mounted_with_discard);
        let before = bench.joins(8, 16);
        let after = bench.joins(8, 16);
        assert_eq!(after.trim_commands > 0, is_mounted_with_discard);
        assert_eq!(after.bytes_written, 16 * 48 * MIB);
        (after.moved_bytes - before.moved_bytes) as f64 / (after.bytes_written - before.bytes_written) as f64
    };
    let (told, untold) = (moved(true), moved(false));
    assert!(told < 0.8 * untold, "{told} bytes moved per byte written, {untold} without TRIM");
}

#[test]
fn recycled_space_needs_no_trim() {
    let bench = Bench::new(Preallocation::Recycle, Discard::Deferred, true);
    let figures = bench.joins(4, 16);
    assert_eq!((figures.trim_commands, figures.bytes_trimmed), (0, 0));
    // No more than two joins were there at once.
    let kept_bytes = bench.space.kept_bytes();
    assert!((48 * MIB..=128 * MIB).contains(&kept_bytes), "{kept_bytes}");
    drop(bench.space);
    bench.simulation.pass(Duration::from_secs(10));
    assert_eq!(
        bench.simulation.drive_figures().bytes_trimmed,
        kept_bytes,
        "all at the end, when the space is closed"
    );
}

#[test]
fn files_that_grow_without_reservation_end_in_more_and_smaller_trims() {
    let trims = |preallocation| {
        let bench = Bench::new(preallocation, Discard::Immediate, true);
        let figures = bench.joins(4, 16);
        assert!(figures.bytes_trimmed >= 4 * 48 * MIB, "all that was written is given back");
        (figures.trim_commands, figures.trim_nanos)
    };
    let (grown, reserved) = (trims(Preallocation::None), trims(Preallocation::Fallocate));
    assert!(grown.0 > reserved.0 && grown.1 > reserved.1, "{grown:?}, reserved {reserved:?}");
}

#[test]
fn deferred_discards_are_fewer_and_larger() {
    let trims = |discard| {
        let bench = Bench::new(Preallocation::Fallocate, discard, true);
        let figures = bench.joins(8, 16);
        drop(bench.space);
        bench.simulation.pass(Duration::from_secs(10));
        figures.trim_commands
    };
    let (immediate, deferred) = (trims(Discard::Immediate), trims(Discard::Deferred));
    assert!(deferred * 4 < immediate, "{deferred} commands, {immediate} at once");
}

#[test]
fn what_is_known_of_the_device_decides_by_default() {
    for (model, discards_at_once) in [("nvme", true), ("sata-ssd", false)] {
        let options = SimulationOptions::of(DriveModel::named(model).unwrap());
        let contents = Contents::Volatile;
        let (device, simulation) =
            nandina_simulation::on_drive(SimulationOptions { discard: true, contents, ..options });
        device.set_profile(Calibration::quick().run(&device, &mut |_| true).unwrap());
        let space = TempSpace::open(device, TempOptions::default()).unwrap();
        let query = space.query("join");
        let (first, second) = (query.allocate(MIB as usize).unwrap(), query.allocate(MIB as usize).unwrap());
        // A drive counts what it has ended, and is still ending what the calibration gave back.
        let trims = || {
            simulation.pass(Duration::from_secs(1));
            simulation.drive_figures().trim_commands
        };
        let (trims_before, kept_before) = (trims(), space.kept_bytes());
        drop(first);
        assert_eq!(trims() > trims_before, discards_at_once, "{model}");
        assert_eq!(space.kept_bytes() - kept_before, if discards_at_once { 0 } else { MIB }, "{model}");
        drop(second);
    }
}
