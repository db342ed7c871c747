//! Names, small files and locks.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use crate::setup;

use nandina_device::{Device, DeviceOptions, FileClass, OpenMode};
use setup::{KIB4, all_devices, filled};

#[test]
fn files_are_created_listed_renamed_and_removed() {
    for setup in all_devices() {
        let device = &setup.device;
        let file = device.create("b", FileClass::Table).unwrap();
        assert!(device.create("b", FileClass::Table).unwrap_err().is_already_there(), "{}", setup.name);
        device.create("a", FileClass::Table).unwrap();
        assert_eq!(device.list().unwrap(), ["a", "b"]);
        file.write_blocking(0, filled(device, KIB4, 8)).unwrap();
        device.rename("b", "a").unwrap();
        device.sync_directory().unwrap();
        assert_eq!(device.list().unwrap(), ["a"]);
        assert!(device.exists("a").unwrap() && !device.exists("b").unwrap());
        let reopened = device.open_file("a", FileClass::Table, OpenMode::Read).unwrap();
        assert_eq!(reopened.read_blocking(0, device.buffer(KIB4)).unwrap()[1], 8);
        device.remove("a").unwrap();
        assert!(device.open_file("a", FileClass::Table, OpenMode::Read).unwrap_err().is_not_found());
        assert!(device.remove("a").unwrap_err().is_not_found());
        assert_eq!(reopened.read_blocking(0, device.buffer(KIB4)).unwrap()[1], 8, "open handles stay usable");
    }
}

#[test]
fn directories_nest() {
    for setup in all_devices() {
        let device = &setup.device;
        device.create_directory("inner").unwrap();
        let inner = device.subdirectory("inner").unwrap();
        inner.create("data", FileClass::Temp).unwrap();
        assert!(device.exists("inner/data").unwrap(), "{}", setup.name);
        assert_eq!(device.list().unwrap(), ["inner"]);
        assert_eq!(inner.list().unwrap(), ["data"]);
        assert!(device.remove_directory("inner").is_err(), "not empty");
        inner.remove("data").unwrap();
        device.remove_directory("inner").unwrap();
        assert!(device.list().unwrap().is_empty());
        assert!(inner.create("data", FileClass::Temp).unwrap_err().is_not_found());
        assert!(inner.list().is_err());
    }
}

#[test]
fn names_stay_inside() {
    for setup in all_devices() {
        for name in ["", "/etc/passwd", "../secret", "a/../../b", "./a"] {
            let error = setup.device.create(name, FileClass::Other).unwrap_err().to_string();
            assert!(error.contains("is not a name inside a device directory"), "{name}: {error}");
        }
    }
}

#[test]
fn small_files_are_replaced_whole() {
    for setup in all_devices() {
        let device = &setup.device;
        assert!(device.read_small("manifest").unwrap_err().is_not_found());
        device.write_small("manifest", b"a rather long first version").unwrap();
        device.write_small("manifest", b"short").unwrap();
        assert_eq!(device.read_small("manifest").unwrap(), b"short", "{}", setup.name);
        assert_eq!(device.list().unwrap(), ["manifest"], "nothing else is left");
        let figures = device.counters().of(FileClass::Catalog);
        assert_eq!((figures.bytes_written, figures.bytes_read), (32, 5));
    }
}

#[test]
fn a_lock_has_one_holder() {
    for setup in all_devices() {
        let device = &setup.device;
        let held = device.try_lock("lock").unwrap().unwrap();
        assert!(device.try_lock("lock").unwrap().is_none(), "{}", setup.name);
        assert!(device.try_lock("other").unwrap().is_some());
        drop(held);
        assert!(device.try_lock("lock").unwrap().is_some());
    }
}

#[test]
fn sizes_change_and_space_is_given_back() {
    for setup in all_devices() {
        let device = &setup.device;
        let file = device.create("data", FileClass::Table).unwrap();
        assert!(file.is_empty().unwrap());
        file.allocate(0, 1 << 20).unwrap();
        assert_eq!(file.len().unwrap(), 1 << 20, "{}", setup.name);
        assert_eq!(file.read_blocking(8192, device.buffer(KIB4)).unwrap()[9], 0);
        file.write_blocking(0, filled(device, 1 << 20, 3)).unwrap();
        file.punch_hole(KIB4 as u64, KIB4 as u64).unwrap();
        assert_eq!(file.len().unwrap(), 1 << 20);
        assert_eq!(file.read_blocking(0, device.buffer(KIB4)).unwrap()[9], 3);
        assert_eq!(file.read_blocking(8192, device.buffer(KIB4)).unwrap()[9], 3);
        file.truncate(KIB4 as u64).unwrap();
        assert_eq!(file.len().unwrap(), KIB4 as u64);
        assert!(file.read_blocking(8192, device.buffer(KIB4)).is_err());
    }
}

#[test]
fn a_device_needs_an_existing_directory() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    assert!(Device::open(&missing, DeviceOptions::default()).unwrap_err().is_not_found());
    std::fs::write(&missing, b"").unwrap();
    let error = Device::open(&missing, DeviceOptions::default()).unwrap_err().to_string();
    assert!(error.starts_with("cannot open directory "), "{error}");
}
