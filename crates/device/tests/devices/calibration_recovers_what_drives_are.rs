//! Calibrating a simulated drive finds the parameters that it was made from.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use nandina_device::Device;
use nandina_device::calibration::Calibration;
use nandina_device::profile::{DeviceProfile, ProfileKind, ReadPoint};
use nandina_simulation::drive::DriveModel;
use nandina_simulation::{Contents, FaultPlan, Simulation, SimulationOptions};

fn simulated(model: &str) -> (Device, Simulation) {
    let model = DriveModel::named(model).unwrap();
    let contents = Contents::Forgotten;
    nandina_simulation::on_drive(SimulationOptions { contents, ..SimulationOptions::of(model) })
}

fn calibrated(model: &str, calibration: &Calibration) -> DeviceProfile {
    let (device, simulation) = simulated(model);
    simulation.fill_drive();
    let profile = calibration.run(&device, &mut |_| true).unwrap();
    assert_eq!(profile.nonsense(), None);
    assert_eq!(device.list().unwrap(), Vec::<String>::new(), "nothing is left behind");
    profile
}

#[track_caller]
fn assert_within(found: f64, truth: f64, share: f64, what: &str) {
    assert!((found / truth - 1.0).abs() <= share, "{what}: found {found}, it is {truth}");
}

#[test]
fn a_volume_with_a_request_limit() {
    let profile = calibrated("cloud-volume", &Calibration::full().with_scratch_bytes(256 << 20));
    let reads = &profile.reads;
    // 3,000 requests and 125 MB a second: 333 µs for a small one, and 8 µs per kilobyte from 42 kB on.
    let depth = reads.useful_depth(4096);
    assert_within(reads.cost_micros(4096, u64::MAX, depth), 333.3, 0.10, "4 KiB");
    assert_within(reads.full_bandwidth(), 125e6, 0.10, "bandwidth");
    assert_within(profile.writes.full_bandwidth(), 125e6, 0.10, "write bandwidth");
    assert!(
        (32 << 10..=64 << 10).contains(&reads.smallest_full_read_bytes()),
        "{}",
        reads.smallest_full_read_bytes()
    );
}

#[test]
fn a_disk_has_bands_and_hardly_any_depth() {
    let profile = calibrated("disk", &Calibration::full().with_scratch_bytes(8 << 30));
    let costs = &profile.reads.pages()[0];
    let (near, far) = (costs.micros[0][0], *costs.micros[0].last().unwrap());
    assert_within(near, 110.0, 0.10, "a page in sequence");
    assert!(far > 40.0 * near, "{far} against {near}");
    assert!(costs.useful_depth() <= 8, "{}", costs.useful_depth());
    assert!(profile.sizes().gap_bytes >= 512 << 10, "{:?}", profile.sizes());
    assert_eq!(profile.sizes().page_bytes, 4 << 20);
}

#[test]
fn a_quick_calibration_is_quick_on_every_drive() {
    for model in DriveModel::NAMES {
        let profile = calibrated(model, &Calibration::quick());
        assert_eq!(profile.kind, ProfileKind::Quick);
        assert!(profile.seconds <= 2.2, "{model}: {} s", profile.seconds);
        assert!(profile.bytes_written <= 256 << 20, "{model}: {} bytes", profile.bytes_written);
        assert!(profile.noise.repeated_points > 0);
    }
}

#[test]
fn one_worker_with_a_ring_measures_what_many_workers_do() {
    for model in DriveModel::NAMES {
        let (device, simulation) = simulated(model);
        simulation.fill_drive();
        let points = [1, 4, 16].map(|depth| ReadPoint { page_bytes: 4096, band_pages: 16384, depth });
        let calibration = Calibration::full().with_scratch_bytes(64 << 20);
        for (point, (single, many)) in
            points.iter().zip(calibration.compare_workers(&device, &points).unwrap())
        {
            assert!((single / many - 1.0).abs() < 0.25, "{model}, {point:?}: {single} and {many}");
        }
    }
}

#[test]
fn it_can_be_interrupted_at_any_moment() {
    let (device, _) = simulated("cloud-volume");
    let mut told = Vec::new();
    Calibration::quick()
        .run(&device, &mut |progress| {
            told.push(progress.share);
            true
        })
        .unwrap();
    assert!(told.is_sorted() && told.last() == Some(&1.0), "{told:?}");
    for stop in 0..told.len() {
        let (device, _) = simulated("cloud-volume");
        let mut count = 0;
        let outcome = Calibration::quick().run(&device, &mut |_| {
            count += 1;
            count <= stop
        });
        assert!(outcome.unwrap_err().to_string().contains("interrupted"));
        assert_eq!(device.list().unwrap(), Vec::<String>::new());
    }
}

#[test]
fn a_device_that_dies_meanwhile_is_an_error_and_leaves_nothing() {
    let model = DriveModel::named("cloud-volume").unwrap();
    for request in [0, 3, 40, 200, 500] {
        let faults = FaultPlan::none().fail_from(request);
        let options = SimulationOptions {
            contents: Contents::Forgotten,
            faults,
            ..SimulationOptions::of(model.clone())
        };
        let (device, _) = nandina_simulation::on_drive(options);
        let error = Calibration::quick().run(&device, &mut |_| true).unwrap_err();
        assert!(error.to_string().contains("nandina-calibration"), "{error}");
        assert_eq!(device.list().unwrap(), Vec::<String>::new());
    }
}

#[test]
fn a_nearly_full_device_is_left_alone() {
    let model = DriveModel::named("disk").unwrap();
    let faults = FaultPlan::none().capacity(100 << 20);
    let (device, simulation) =
        nandina_simulation::on_drive(SimulationOptions { faults, ..SimulationOptions::of(model) });
    let error = Calibration::quick().run(&device, &mut |_| true).unwrap_err();
    assert!(error.to_string().contains("100 MiB are free"), "{error}");
    assert!(Calibration::full().estimate(&device).is_err());
    assert_eq!(simulation.drive_figures().bytes_written, 0);
}

#[test]
fn estimates_come_before_the_work() {
    let (device, _) = simulated("cloud-volume");
    let quick = Calibration::quick().estimate(&device).unwrap();
    assert!(quick.seconds <= 2.0 && quick.bytes_written <= 256 << 20, "{quick:?}");
    let full = Calibration::full().estimate(&device).unwrap();
    assert!(full.seconds > 10.0 && full.bytes_written > 4 << 30, "{full:?}");
}

#[test]
fn a_real_directory_is_measured_and_left_clean() {
    let directory = tempfile::tempdir().unwrap();
    let device = Device::open(directory.path(), Default::default()).unwrap();
    let profile = Calibration::quick().run(&device, &mut |_| true).unwrap();
    assert!(profile.reads.is_sound() && profile.writes.is_sound());
    assert!(profile.bytes_written <= 256 << 20);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn what_a_trim_costs_is_found() {
    let costs = |model: &str, discard: bool| {
        let options = SimulationOptions::of(DriveModel::named(model).unwrap());
        let contents = Contents::Forgotten;
        let (device, _simulation) =
            nandina_simulation::on_drive(SimulationOptions { contents, discard, ..options });
        let profile = Calibration::quick().run(&device, &mut |_| true).unwrap();
        assert_eq!(profile.discards.unwrap().told, discard);
        device.set_profile(profile.clone());
        assert_eq!(device.discards_cheaply(), profile.discards_cheaply());
        (profile.discards.unwrap().micros_per_piece, profile.discards_cheaply())
    };
    // Twenty microseconds, queued; a millisecond during which nothing else happens.
    let (nvme, sata) = (costs("nvme", true), costs("sata-ssd", true));
    assert!(nvme.0 < 40.0 && nvme.1, "{nvme:?}");
    assert!((900.0..2_000.0).contains(&sata.0) && !sata.1, "{sata:?}");
    let untold = costs("nvme", false);
    assert!(untold.0 < 1.0 && !untold.1, "{untold:?}");
}
