//! Several devices of one machine: one clock, one power switch.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::future::Future as _;
use std::task::Context;
use std::time::Duration;

use nandina_device::{
    Device, FileClass, FlowId, IoAccount, OpenMode, Priority, Request, thread_processor_time,
};
use nandina_simulation::drive::{DriveModel, VolumeParameters};
use nandina_simulation::{CrashOutcome, FaultPlan, Machine, Simulation, SimulationOptions};

const BLOCK: usize = nandina_device::BLOCK_BYTES;

/// A drive on which every request takes this long.
fn drive_of(micros: u64) -> SimulationOptions {
    let parameters = VolumeParameters {
        name: format!("{micros} µs"),
        capacity_bytes: 1 << 30,
        requests_per_second: 1_000_000_000,
        bytes_per_second: 1 << 40,
        latency_nanos: micros * 1000,
        jitter_nanos: 0,
        link_bytes_per_second: 1 << 60,
        ..VolumeParameters::cloud_volume()
    };
    SimulationOptions::of(DriveModel::Volume(parameters))
}

fn block(device: &Device, byte: u8) -> nandina_device::AlignedBuffer {
    let mut block = device.buffer(BLOCK);
    block.fill(byte);
    block
}

fn write(device: &Device, name: &str, byte: u8) {
    let file = device.create(name, FileClass::Other).unwrap();
    file.write_blocking(0, block(device, byte)).unwrap();
}

fn read(device: &Device, name: &str) -> Option<u8> {
    let file = device.open_file(name, FileClass::Other, OpenMode::Read).ok()?;
    Some(file.read_blocking(0, device.buffer(BLOCK)).ok()?[0])
}

fn pair() -> (Machine, (Device, Simulation), (Device, Simulation)) {
    let machine = Machine::new();
    let (log, data) = (machine.drive("/log", drive_of(100)), machine.drive("/data", drive_of(350)));
    (machine, log, data)
}

#[test]
fn the_earliest_event_of_all_drives_comes_next() {
    let (machine, (log, _), (data, _)) = pair();
    let begun = machine.now();
    let [fast, slow] = [&log, &data].map(|device| device.create("file", FileClass::Other).unwrap());
    let mut long = slow.submit(vec![Request::write(0, block(&data, 1))]);
    // Three writes after one another on the fast drive fit into one on the slow drive.
    for at in 1..=3 {
        fast.write_blocking(0, block(&log, 2)).unwrap();
        assert_eq!((machine.now() - begun).as_micros(), at * 100);
        assert!(long.try_next().is_none());
    }
    long.next_blocking().unwrap().unwrap();
    assert_eq!((machine.now() - begun).as_micros(), 350);
    assert_eq!(log.now(), data.now());
}

#[test]
fn waiting_for_one_drive_lets_the_others_end() {
    let (machine, (log, _), (data, _)) = pair();
    let fast = log.create("file", FileClass::Other).unwrap();
    let slow = data.create("file", FileClass::Other).unwrap();
    let mut short = fast.submit(vec![Request::write(0, block(&log, 1))]);
    slow.write_blocking(0, block(&data, 1)).unwrap();
    assert!(short.try_next().unwrap().is_ok(), "it ended meanwhile");
    assert_eq!(log.counters().total().busy_nanos, 100_000);
    assert_eq!(machine.events(), 4, "two files and two writes");
}

#[test]
fn tasks_and_timers_share_the_clock() {
    let (machine, (log, _), (data, _)) = pair();
    let begun = machine.now();
    let file = data.create("file", FileClass::Other).unwrap();
    let elapsed = || (machine.now() - begun).as_micros();
    let write = async {
        file.submit(vec![Request::write(0, block(&log, 1))]).wait_async().await.unwrap();
        elapsed()
    };
    let sleeper = |micros| {
        let machine = machine.clone();
        async move {
            machine.sleep(Duration::from_micros(micros)).await;
            (machine.now() - begun).as_micros()
        }
    };
    let times =
        futures::executor::block_on(async { futures::join!(write, sleeper(400), sleeper(50), sleeper(0)) });
    assert_eq!(times, (350, 400, 50, 0));
    assert_eq!(elapsed(), 400);
    // Nobody sleeps until a second has gone by any more: there is nothing to wait for before the write ends.
    let mut dropped = Box::pin(machine.sleep(Duration::from_secs(1)));
    let waker = futures::task::noop_waker();
    assert!(dropped.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(dropped);
    file.write_blocking(0, block(&data, 1)).unwrap();
    assert_eq!(elapsed(), 750);
    machine.pass(Duration::from_micros(100));
    assert_eq!(elapsed(), 850);
}

#[test]
fn computing_takes_as_much_time_as_is_charged() {
    let (machine, (log, _), _) = pair();
    let file = log.create("file", FileClass::Other).unwrap();
    let mut batch = file.submit(vec![Request::write(0, block(&log, 1))]);
    let begun = machine.now();
    let sum = machine.compute(10.0, || {
        let started = thread_processor_time();
        let mut sum = 0u64;
        while thread_processor_time() - started < Duration::from_millis(5) {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(1));
        }
        sum
    });
    assert_ne!(sum, 0);
    let took = (machine.now() - begun).as_millis();
    assert!((50..100).contains(&took), "{took} ms of 5 ms, ten times slower");
    assert!(batch.try_next().unwrap().is_ok(), "requests go on meanwhile");
}

#[test]
fn the_power_fails_for_all_devices_and_each_has_its_outcome() {
    for (kept, lost) in [("/log", "/data"), ("/data", "/log")] {
        let (machine, (log, log_simulation), (data, _)) = pair();
        for device in [&log, &data] {
            write(device, "synced", 1);
            device.open_file("synced", FileClass::Other, OpenMode::ReadWrite).unwrap().sync().unwrap();
            device.sync_directory().unwrap();
            write(device, "unsynced", 2);
        }
        machine.lose_power_at(machine.events());
        assert!(log.create("during", FileClass::Other).is_err());
        assert!(!machine.has_power() && !log_simulation.has_power());
        assert!(data.create("after", FileClass::Other).is_err(), "the other device has no power either");
        assert_eq!(read(&data, "synced"), None);

        machine.crash(|root| if root == kept { CrashOutcome::KeepAll } else { CrashOutcome::LoseUnsynced });
        for device in [&log, &data] {
            assert_eq!(read(device, "synced"), Some(1));
            let expected = (device.path().to_str() == Some(kept)).then_some(2);
            assert_eq!(read(device, "unsynced"), expected, "{} kept, {lost} lost", kept);
        }
    }
}

#[test]
fn one_device_can_take_the_power_from_all() {
    let machine = Machine::new();
    let (log, log_simulation) = machine.memory("/log", FaultPlan::none());
    let (data, _) = machine.memory("/data", FaultPlan::none());
    write(&data, "file", 1);
    log_simulation.set_plan(FaultPlan::none().power_loss_at(log_simulation.events() + 1));
    write(&data, "other", 1);
    log.create("file", FileClass::Other).unwrap();
    assert!(log.create("other", FileClass::Other).is_err());
    assert!(data.create("third", FileClass::Other).is_err());
    log_simulation.crash(CrashOutcome::KeepAll);
    assert_eq!(read(&data, "other"), Some(1));
}

#[test]
fn a_sync_is_counted_and_urgent_as_its_account_says() {
    let (machine, (log, _), (data, _)) = pair();
    let file = log.create("file", FileClass::Other).unwrap();
    let account = IoAccount::of_flow(FlowId::unique(), Priority::Point);
    let mut batch = log.batch(Some(&account));
    batch.add(vec![(file.clone(), Request::write(0, block(&log, 1)))]);
    assert_eq!(batch.add_sync(&file), 1);
    batch.wait().unwrap();
    assert_eq!((account.statistics().sync_requests, account.statistics().write_requests), (1, 1));

    // Behind hundreds of writes that nobody waits for, a commit does not wait for all of them.
    let background = IoAccount::of_flow(FlowId::unique(), Priority::Background);
    let writes = (0..2000).map(|at| Request::write(at * BLOCK as u64, block(&log, 1))).collect();
    let behind = file.submit_for(writes, &background);
    let begun = machine.now();
    file.submit_sync(Some(&account)).wait().unwrap();
    let (urgent, left) = (machine.now() - begun, behind.len());
    behind.wait().unwrap();
    let all = machine.now() - begun;
    assert!(urgent * 2 < all && left > 0, "{urgent:?} of {all:?}");

    let other = data.create("file", FileClass::Other).unwrap();
    let mut batch = log.batch(None);
    batch.add_sync(&other);
    assert!(batch.wait().unwrap_err().to_string().contains("/data/file"), "another device's file");
}
