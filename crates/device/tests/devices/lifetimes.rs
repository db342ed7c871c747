//! Batches, files and devices may be dropped at any moment.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use crate::setup;

use std::time::{Duration, Instant};

use nandina_device::{BLOCK_BYTES, DeviceOptions, FileClass, OpenMode, Request};
use setup::{KIB4, all_devices, filled, real_devices};

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_dropped_batch_withdraws_the_waiting_and_lets_the_started_end() {
    for setup in real_devices(&DeviceOptions { max_depth: 2, ..DeviceOptions::default() }) {
        let device = &setup.device;
        let file = device.create("data", FileClass::Table).unwrap();
        file.write_blocking(0, filled(device, 1 << 20, 1)).unwrap();
        for _ in 0..20 {
            let reads = (0..200).map(|i| Request::read(i * KIB4 as u64, device.buffer(KIB4))).collect();
            drop(file.submit(reads));
        }
        // The device still serves: no seat is lost.
        let reads = (0..200).map(|i| Request::read(i * KIB4 as u64, device.buffer(KIB4))).collect();
        assert_eq!(file.submit(reads).wait().unwrap().len(), 200, "{}", setup.name);
        wait_until("the end of dropped requests", || device.counters().total().in_flight == 0);
        assert!(device.counters().total().read_requests < 20 * 200 + 200, "some were withdrawn");
    }
}

#[test]
fn buffers_come_back_to_the_pool_after_everything_is_dropped() {
    for setup in all_devices() {
        let device = &setup.device;
        let file = device.create("data", FileClass::Table).unwrap();
        file.write_blocking(0, filled(device, 64 * KIB4, 1)).unwrap();
        device.buffer_pool().shrink();
        let reads = (0..64).map(|i| Request::read(i * KIB4 as u64, device.buffer(KIB4))).collect();
        drop(file.submit(reads));
        wait_until("the return of all buffers", || device.buffer_pool().retained_bytes() == 64 * BLOCK_BYTES);
        let again: Vec<_> = (0..64).map(|_| device.buffer(KIB4)).collect();
        assert_eq!(device.buffer_pool().retained_bytes(), 0, "{}: reused, not allocated", setup.name);
        drop(again);
    }
}

#[test]
fn a_device_closed_with_requests_in_flight_ends_them_first() {
    for setup in real_devices(&DeviceOptions::default()) {
        let path = setup.device.path().to_path_buf();
        let file = setup.device.create("data", FileClass::Table).unwrap();
        file.allocate(0, 4 << 20).unwrap();
        for _ in 0..10 {
            let device = nandina_device::Device::open(&path, DeviceOptions::default()).unwrap();
            let file = device.open_file("data", FileClass::Table, OpenMode::ReadWrite).unwrap();
            let writes = (0..16).map(|i| Request::write(i << 18, filled(&device, 1 << 18, 3))).collect();
            let batch = file.submit(writes);
            drop(device);
            drop(file);
            drop(batch);
        }
        let all = file.read_blocking(0, setup.device.buffer(4 << 20));
        assert!(all.unwrap().len() == 4 << 20, "{}", setup.name);
    }
}

#[test]
fn no_more_than_max_depth_are_in_flight() {
    for max_depth in [1, 3, 16] {
        for setup in real_devices(&DeviceOptions { max_depth, ..DeviceOptions::default() }) {
            let device = &setup.device;
            let file = device.create("data", FileClass::Table).unwrap();
            file.write_blocking(0, filled(device, 1 << 20, 1)).unwrap();
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..5 {
                            let reads = (0..50)
                                .map(|i| Request::read(i * KIB4 as u64, device.buffer(KIB4)))
                                .collect();
                            assert_eq!(file.submit(reads).wait().unwrap().len(), 50);
                        }
                    });
                }
            });
            let figures = device.counters().total();
            assert_eq!(figures.read_requests, 1000);
            assert!(figures.peak_in_flight <= max_depth as u64, "{}: {}", setup.name, figures.peak_in_flight);
            assert!(figures.peak_in_flight >= max_depth.min(3) as u64, "the depth is used");
            assert!(figures.mean_queue_depth() <= max_depth as f64);
        }
    }
}

#[test]
fn the_submitting_thread_may_end_before_its_requests() {
    for setup in real_devices(&DeviceOptions::default()) {
        let device = &setup.device;
        let file = device.create("data", FileClass::Table).unwrap();
        file.allocate(0, 16 << 20).unwrap();
        for value in 1..=10 {
            let batch = std::thread::scope(|scope| {
                let submit = || {
                    let writes = (0..64).map(|i| Request::write(i << 18, filled(device, 1 << 18, value)));
                    file.submit(writes.collect())
                };
                scope.spawn(submit).join().unwrap()
            });
            assert_eq!(batch.wait().unwrap().len(), 64, "{}", setup.name);
            let all = file.read_blocking(0, device.buffer(16 << 20)).unwrap();
            assert!(all.iter().all(|&byte| byte == value), "{}", setup.name);
        }
    }
}
