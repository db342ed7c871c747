//! Temporary space: bounded, recycled, and gone afterwards.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use std::sync::Arc;

use nandina_device::{Device, DeviceOptions, FileClass, Request};
use nandina_simulation::{CrashOutcome, FaultPlan};
use nandina_spill::{Discard, Extent, SpillError, TempOptions, TempSpace};

const MIB: usize = 1 << 20;
/// What extents are rounded up to.
const GRAIN: u64 = 64 << 10;

fn on_disk() -> (tempfile::TempDir, Device) {
    let directory = tempfile::tempdir().unwrap();
    let device = Device::open(directory.path(), DeviceOptions::default()).unwrap();
    (directory, device)
}

fn space(device: &Device, quota_bytes: Option<u64>) -> Arc<TempSpace> {
    TempSpace::open(device.clone(), TempOptions { quota_bytes, ..TempOptions::default() }).unwrap()
}

fn file_bytes(space: &TempSpace) -> u64 {
    let names = space.device().list().unwrap();
    let files = names.iter().filter(|name| name.starts_with("extents-"));
    let open = |name: &String| {
        space.device().open_file(name, FileClass::Temp, nandina_device::OpenMode::Read).unwrap()
    };
    files.map(|name| open(name).len().unwrap()).sum()
}

#[test]
fn extents_hold_what_is_written_to_them() {
    let (_directory, device) = on_disk();
    let space = space(&device, None);
    let query = space.query("test");
    let extents: Vec<Extent> = (1..=8).map(|i| query.allocate(i * 100_000).unwrap()).collect();
    for (extent, value) in extents.iter().zip(1..) {
        let mut buffer = device.buffer(extent.len_bytes() as usize);
        buffer.fill(value);
        extent.file().submit_for(vec![Request::write(extent.offset(), buffer)], query.io()).wait().unwrap();
    }
    for (extent, value) in extents.iter().zip(1u8..) {
        let buffer = device.buffer(extent.len_bytes() as usize);
        let read = extent.file().read_blocking(extent.offset(), buffer).unwrap();
        assert!(read.iter().all(|&byte| byte == value));
    }
    let written: u64 = extents.iter().map(Extent::len_bytes).sum();
    assert_eq!(query.io().statistics().bytes_written, written);
    assert_eq!(device.counters().of(FileClass::Temp).bytes_written, written);
}

#[test]
fn the_quota_bounds_all_queries_together() {
    let (_directory, device) = on_disk();
    let space = space(&device, Some(4 * MIB as u64));
    let (first, second) = (space.query("first"), space.query("join of a and b"));
    let held = first.allocate(3 * MIB).unwrap();
    let error = second.allocate(2 * MIB).unwrap_err();
    assert!(matches!(error, SpillError::QuotaExceeded { quota_bytes: 4_194_304, used_bytes: 3_145_728, .. }));
    let message = error.to_string();
    assert!(message.contains("join of a and b needs 2097152 more bytes"), "{message}");
    assert!(message.contains("raise the quota"), "{message}");
    let small = second.allocate(MIB).unwrap();
    assert_eq!((space.used_bytes(), first.used_bytes(), second.used_bytes()), (4 << 20, 3 << 20, 1 << 20));
    drop(held);
    let large = second.allocate(2 * MIB).unwrap();
    assert_eq!((second.used_bytes(), second.peak_bytes(), first.peak_bytes()), (3 << 20, 3 << 20, 3 << 20));
    space.set_quota_bytes(Some(3 * MIB as u64));
    assert!(first.allocate(1).is_err());
    space.set_quota_bytes(None);
    first.allocate(1).unwrap();
    drop((small, large));
    assert_eq!(space.used_bytes(), 0);
}

#[test]
fn freed_extents_are_handed_out_again() {
    let (_directory, device) = on_disk();
    let space = space(&device, None);
    let query = space.query("test");
    let _anchor = query.allocate(MIB).unwrap();
    let mut extents: Vec<Extent> = (0..64).map(|_| query.allocate(MIB).unwrap()).collect();
    let _end = query.allocate(MIB).unwrap();
    let size = file_bytes(&space);
    for _ in 0..10 {
        // Freed in an order that makes neighbours of them one by one.
        let (even, odd): (Vec<_>, Vec<_>) = extents.drain(..).enumerate().partition(|(i, _)| i % 2 == 0);
        drop(even);
        drop(odd);
        let whole = query.allocate(64 * MIB).unwrap();
        drop(whole);
        extents = (0..64).map(|_| query.allocate(MIB).unwrap()).collect();
        assert_eq!(file_bytes(&space), size);
    }
}

#[test]
fn an_empty_space_takes_no_room() {
    let (_directory, device) = on_disk();
    let options = TempOptions { discard: Discard::Immediate, ..TempOptions::default() };
    let space = TempSpace::open(device.clone(), options).unwrap();
    let query = space.query("test");
    let extents: Vec<Extent> = (0..4).map(|_| query.allocate(20 * MIB).unwrap()).collect();
    assert!(file_bytes(&space) >= 80 << 20);
    drop(extents);
    assert_eq!((file_bytes(&space), space.kept_bytes()), (0, 0));
    assert_eq!(query.allocate(1).unwrap().len_bytes(), GRAIN);
}

#[test]
fn everything_is_gone_when_the_last_user_is() {
    let (directory, device) = on_disk();
    let space = space(&device, None);
    let query = space.query("test");
    let extent = query.allocate(MIB).unwrap();
    drop(space);
    assert_eq!(device.list().unwrap().len(), 1, "a query keeps its space");
    drop(query);
    // A write that is still in flight has only its extent.
    assert!(device.list().unwrap().is_empty());
    assert!(std::fs::read_dir(directory.path()).unwrap().next().is_none());
    drop(extent);
}

#[test]
fn what_a_killed_process_left_is_removed_and_the_living_are_kept() {
    let (_directory, device) = on_disk();
    let living = space(&device, None);
    let extent = living.query("living").allocate(MIB).unwrap();
    // What kill -9 leaves: a folder with files and a lock that nobody holds.
    device.create_directory("nandina-temp-4000000-7").unwrap();
    for name in ["owner.lock", "extents-0", "extents-1"] {
        device.create(&format!("nandina-temp-4000000-7/{name}"), FileClass::Temp).unwrap();
    }
    // Killed before it could lock.
    device.create_directory("nandina-temp-4000001-0").unwrap();
    device.create("somebody else's file", FileClass::Other).unwrap();

    let other = space(&device, None);
    let names = device.list().unwrap();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names.iter().all(|name| !name.contains("-400000")), "{names:?}");
    drop(other);
    extent.file().write_blocking(extent.offset(), device.buffer(4096)).unwrap();
}

#[test]
fn a_power_failure_leaves_nothing_after_the_next_start() {
    let (device, faults) = nandina_simulation::in_memory(FaultPlan::none());
    let before = space(&device, None);
    let extent = before.query("test").allocate(MIB).unwrap();
    faults.crash(CrashOutcome::KeepAll);
    std::mem::forget((before, extent));
    assert_eq!(device.list().unwrap().len(), 1);
    let after = space(&device, None);
    assert_eq!(device.list().unwrap().len(), 1, "only the new one");
    drop(after);
    assert!(device.list().unwrap().is_empty());
}

#[test]
fn a_full_disk_is_an_error_and_the_space_stays_usable() {
    let (device, _) = nandina_simulation::in_memory(FaultPlan::none().capacity(10 * MIB as u64));
    let space = space(&device, None);
    let query = space.query("sort");
    let held = query.allocate(8 * MIB).unwrap();
    let error = query.allocate(4 * MIB).unwrap_err();
    assert!(matches!(error, SpillError::DiskFull { wanted_bytes: 4_194_304, .. }), "{error}");
    assert!(error.to_string().contains("sort needs 4194304 more bytes"), "{error}");
    assert_eq!(space.used_bytes(), 8 << 20, "nothing is reserved for the failed one");
    query.allocate(2 * MIB).unwrap();
    drop(held);
    assert_eq!(query.allocate(10 * MIB).unwrap().len_bytes(), 10 << 20);
}
