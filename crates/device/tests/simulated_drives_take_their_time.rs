//! A device on a drive model takes as long as the model says: in virtual time exactly, paced at least.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use nandina_device::{Device, DeviceOptions, Error, File, FileClass, Request};
use nandina_simulation::drive::DriveModel;
use nandina_simulation::{FaultPlan, PacedDrive, SimulationOptions};

const PAGE: usize = 4096;

fn volume() -> DriveModel {
    DriveModel::named("cloud-volume").unwrap()
}

fn file_of(device: &Device, pages: usize) -> File {
    let file = device.create("file", FileClass::Other).unwrap();
    let mut buffer = device.buffer(pages * PAGE);
    for (page, bytes) in buffer.chunks_mut(PAGE).enumerate() {
        bytes.fill(page as u8);
    }
    file.write_blocking(0, buffer).unwrap();
    file
}

fn reads(device: &Device, pages: impl Iterator<Item = u64>) -> Vec<Request> {
    pages.map(|page| Request::read(page * PAGE as u64, device.buffer(PAGE))).collect()
}

#[test]
fn virtual_time_passes_without_real_time() {
    let started = Instant::now();
    let (device, simulation) = nandina_simulation::on_drive(SimulationOptions::of(volume()));
    let file = file_of(&device, 64);
    let before = device.now();
    // 9,000 requests at 3,000 a second.
    for _ in 0..90 {
        file.submit(reads(&device, (0..100).map(|page| page % 64))).wait().unwrap();
    }
    let took = device.now() - before;
    assert!((2.5..3.2).contains(&took.as_secs_f64()), "{took:?}");
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(simulation.drive_figures().read_commands, 9000);
    let total = device.counters().total();
    assert!((total.busy_nanos as f64 / took.as_nanos() as f64 - 1.0).abs() < 0.05, "{}", total.busy_nanos);
    assert!(total.mean_queue_depth() > 30.0, "{}", total.mean_queue_depth());
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = |seed| {
        let (device, _) =
            nandina_simulation::on_drive(SimulationOptions { seed, ..SimulationOptions::of(volume()) });
        let started = device.now();
        let file = file_of(&device, 256);
        let mut ends = Vec::new();
        let mut batch = file.submit(reads(&device, (0..200).map(|page| page * 7 % 256)));
        while let Some(next) = batch.next_blocking() {
            ends.push((next.unwrap().0, device.now() - started));
        }
        ends
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn tasks_overlap_in_virtual_time() {
    let (device, _) = nandina_simulation::on_drive(SimulationOptions::of(DriveModel::named("disk").unwrap()));
    let file = file_of(&device, 1024);
    let one = |first: u64| {
        let (device, file) = (device.clone(), file.clone());
        async move {
            for step in 0..4 {
                let page = (first + step * 257) % 1024;
                let completions = file.submit(reads(&device, [page].into_iter())).wait_async().await.unwrap();
                assert_eq!(completions.len(), 1);
            }
        }
    };
    let time = |tasks: u64| {
        let before = device.now();
        let all = futures::future::join_all((0..tasks).map(|task| one(task * 101)));
        futures::executor::block_on(all);
        device.now() - before
    };
    let (alone, together) = (time(1), time(16));
    assert!(alone > Duration::from_millis(1), "{alone:?}");
    assert!(together < alone * 12, "{together:?} for 16 tasks, {alone:?} for one");
}

#[test]
fn contents_and_faults_are_those_of_the_medium() {
    let options = SimulationOptions::of(volume());
    let (device, simulation) = nandina_simulation::on_drive(options);
    let file = file_of(&device, 8);
    let buffer = file.read_blocking(5 * PAGE as u64, device.buffer(PAGE)).unwrap();
    assert!(buffer.iter().all(|byte| *byte == 5));

    simulation.set_plan(FaultPlan::none().fail_request(simulation.requests() + 1));
    let before = device.now();
    let mut batch = file.submit(reads(&device, 0..3));
    let mut failed = 0;
    while let Some(next) = batch.next_blocking() {
        failed += usize::from(matches!(next, Err(Error::Request { .. })));
    }
    assert_eq!(failed, 1);
    assert!(device.now() > before, "failures take their time too");
    file.sync().unwrap();
}

#[test]
fn passing_time_lets_requests_end() {
    let (device, simulation) = nandina_simulation::on_drive(SimulationOptions::of(volume()));
    let file = file_of(&device, 8);
    let mut batch = file.submit(reads(&device, 0..1));
    assert!(batch.try_next().is_none());
    simulation.pass(Duration::from_millis(50));
    assert!(batch.try_next().unwrap().is_ok());
    let before = device.now();
    simulation.pass(Duration::from_secs(3600));
    assert_eq!(device.now() - before, Duration::from_secs(3600));
}

#[test]
fn a_paced_device_really_waits() {
    let directory = tempfile::tempdir().unwrap();
    let paced = PacedDrive { model: volume(), seed: 1, discard: true };
    let device = paced.open(directory.path(), &DeviceOptions::default()).unwrap();
    let file = file_of(&device, 64);
    let started = Instant::now();
    for _ in 0..10 {
        file.submit(reads(&device, (0..60).map(|page| page % 64))).wait().unwrap();
    }
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(180), "600 requests at 3,000 a second took only {took:?}");

    // Blocking one at a time, from a task, and whatever a file can do.
    let started = Instant::now();
    let buffer = file.read_blocking(0, device.buffer(PAGE)).unwrap();
    assert!(buffer.iter().all(|byte| *byte == 0));
    futures::executor::block_on(file.submit(reads(&device, 0..2)).wait_async()).unwrap();
    file.sync().unwrap();
    file.punch_hole(0, PAGE as u64).unwrap();
    file.truncate(0).unwrap();
    drop(file);
    device.remove("file").unwrap();
    assert!(started.elapsed() >= Duration::from_micros(900), "{:?}", started.elapsed());
    assert_eq!(device.identity().name, format!("simulated {}", volume().name()));
}

#[test]
fn files_that_were_there_before_are_read_at_the_drives_speed() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("old"), vec![7; 64 * PAGE]).unwrap();
    let paced = PacedDrive { model: volume(), seed: 1, discard: false };
    let device = paced.open(directory.path(), &DeviceOptions::default()).unwrap();
    let file = device.open_file("old", FileClass::Other, nandina_device::OpenMode::Read).unwrap();
    let started = Instant::now();
    for round in 0..5 {
        file.submit(reads(&device, (0..60).map(|page| (page + round) % 64))).wait().unwrap();
    }
    assert!(started.elapsed() >= Duration::from_millis(80), "{:?}", started.elapsed());
}
