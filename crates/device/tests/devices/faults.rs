//! The simulated device fails as planned, and loses what a crash may lose.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use crate::setup;

use nandina_device::{Device, File, FileClass, OpenMode, Request};
use nandina_simulation::{CrashOutcome, FaultPlan};
use setup::{KIB4, filled};

fn with_file(plan: FaultPlan) -> (Device, nandina_simulation::Simulation, File) {
    let (device, faults) = nandina_simulation::in_memory(plan);
    let file = device.create("data", FileClass::Table).unwrap();
    (device, faults, file)
}

fn first_byte(device: &Device, file: &File, block: u64) -> u8 {
    file.read_blocking(block * KIB4 as u64, device.buffer(KIB4)).unwrap()[0]
}

#[test]
fn the_nth_request_fails_and_only_that() {
    let (device, faults, file) = with_file(FaultPlan::none().fail_request(2));
    let writes = (0..4).map(|i| Request::write(i * KIB4 as u64, filled(&device, KIB4, 7))).collect();
    let mut batch = file.submit(writes);
    let results: Vec<bool> =
        std::iter::from_fn(|| batch.next_blocking()).map(|piece| piece.is_ok()).collect();
    assert_eq!(results, [true, true, false, true]);
    assert_eq!(faults.requests(), 4);
    assert_eq!(first_byte(&device, &file, 2), 0, "the failed write moved nothing");
    assert_eq!(first_byte(&device, &file, 3), 7);
    assert_eq!(device.counters().total().failed_requests, 1);
}

#[test]
fn waiting_for_the_whole_reports_the_failure_with_its_place() {
    let (device, _, file) = with_file(FaultPlan::none().fail_request(1));
    let writes = (0..3).map(|i| Request::write(i * KIB4 as u64, filled(&device, KIB4, 7))).collect();
    let error = file.submit(writes).wait().unwrap_err().to_string();
    assert!(error.starts_with("write of 4096 bytes at offset 4096 of /simulated/data failed: "), "{error}");
}

#[test]
fn a_dead_device_fails_everything() {
    let (device, faults, file) = with_file(FaultPlan::none());
    file.write_blocking(0, filled(&device, KIB4, 1)).unwrap();
    faults.set_plan(FaultPlan::none().fail_from(faults.requests()));
    for _ in 0..3 {
        assert!(file.read_blocking(0, device.buffer(KIB4)).is_err());
        assert!(file.sync().is_err());
    }
}

#[test]
fn short_transfers_are_continued() {
    let plan =
        FaultPlan::none().short_transfer(0, KIB4).short_transfer(1, 3 * KIB4).short_transfer(3, 2 * KIB4);
    let (device, faults, file) = with_file(plan);
    let parts = (0..8u8).map(|i| filled(&device, KIB4, i + 1).into()).collect();
    file.submit(vec![Request::Write { offset: 0, buffers: parts }]).wait().unwrap();
    assert_eq!(faults.requests(), 3, "1 + 3 + 4 blocks");
    let all = file.read_blocking(0, device.buffer(8 * KIB4)).unwrap();
    assert_eq!(faults.requests(), 5, "2 + 6 blocks");
    let firsts: Vec<u8> = all.chunks(KIB4).map(|block| block[0]).collect();
    assert_eq!(firsts, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(device.counters().total().requests(), 2, "continuations are not requests of their own");
}

#[test]
fn a_torn_write_fails_and_leaves_its_first_part() {
    let (device, _, file) = with_file(FaultPlan::none().torn_write(1, 512));
    file.write_blocking(0, filled(&device, KIB4, 1)).unwrap();
    assert!(file.write_blocking(0, filled(&device, KIB4, 2)).is_err());
    let block = file.read_blocking(0, device.buffer(KIB4)).unwrap();
    assert!(block[..512].iter().all(|&byte| byte == 2) && block[512..].iter().all(|&byte| byte == 1));
}

#[test]
fn a_full_medium_says_so_and_keeps_what_it_has() {
    let (device, _, file) = with_file(FaultPlan::none().capacity(4 * KIB4 as u64));
    file.write_blocking(0, filled(&device, 3 * KIB4, 1)).unwrap();
    assert_eq!(device.free_bytes().unwrap(), KIB4 as u64);
    let error = file.write_blocking(3 * KIB4 as u64, filled(&device, 2 * KIB4, 2)).unwrap_err();
    assert!(error.is_no_space(), "{error}");
    assert!(file.allocate(0, 5 * KIB4 as u64).unwrap_err().is_no_space());
    file.write_blocking(0, filled(&device, 3 * KIB4, 3)).unwrap();
    assert_eq!(file.len().unwrap(), 3 * KIB4 as u64);
    file.punch_hole(0, 2 * KIB4 as u64).unwrap();
    file.write_blocking(3 * KIB4 as u64, filled(&device, 2 * KIB4, 4)).unwrap();
    assert_eq!(
        [first_byte(&device, &file, 0), first_byte(&device, &file, 2), first_byte(&device, &file, 4)],
        [0, 3, 4]
    );
    drop(file);
    device.remove("data").unwrap();
    assert_eq!(device.free_bytes().unwrap(), 4 * KIB4 as u64);
}

#[test]
fn a_crash_loses_what_was_not_synced() {
    let (device, faults, file) = with_file(FaultPlan::none());
    file.write_blocking(0, filled(&device, 2 * KIB4, 1)).unwrap();
    file.sync().unwrap();
    device.sync_directory().unwrap();
    file.write_blocking(KIB4 as u64, filled(&device, 2 * KIB4, 2)).unwrap();
    device.create("unsynced name", FileClass::Table).unwrap().sync().unwrap();
    assert_eq!(first_byte(&device, &file, 1), 2, "the live image has it");

    faults.crash(CrashOutcome::LoseUnsynced);
    assert_eq!(device.list().unwrap(), ["data"]);
    let file = device.open_file("data", FileClass::Table, OpenMode::ReadWrite).unwrap();
    assert_eq!(file.len().unwrap(), 2 * KIB4 as u64);
    assert_eq!(first_byte(&device, &file, 1), 1);
}

#[test]
fn a_lucky_crash_keeps_everything() {
    let (device, faults, file) = with_file(FaultPlan::none());
    file.write_blocking(0, filled(&device, KIB4, 5)).unwrap();
    faults.crash(CrashOutcome::KeepAll);
    let file = device.open_file("data", FileClass::Table, OpenMode::ReadWrite).unwrap();
    assert_eq!(first_byte(&device, &file, 0), 5);
}

#[test]
fn a_random_crash_mixes_sectors_and_repeats_with_its_seed() {
    let sectors_after = |seed| {
        let (device, faults, file) = with_file(FaultPlan::none());
        file.write_blocking(0, filled(&device, 16 * KIB4, 1)).unwrap();
        file.sync().unwrap();
        device.sync_directory().unwrap();
        for block in 0..16 {
            file.write_blocking(block * KIB4 as u64, filled(&device, KIB4, 2)).unwrap();
        }
        faults.crash(CrashOutcome::Random { seed });
        let file = device.open_file("data", FileClass::Table, OpenMode::Read).unwrap();
        let all = file.read_blocking(0, device.buffer(16 * KIB4)).unwrap();
        let sectors: Vec<u8> = all
            .chunks(512)
            .map(|sector| {
                assert!(sector.iter().all(|&byte| byte == sector[0]), "sectors are atomic");
                sector[0]
            })
            .collect();
        sectors
    };
    let sectors = sectors_after(11);
    let kinds: Vec<&str> = sectors
        .chunks(8)
        .map(|block| match block.iter().filter(|&&value| value == 2).count() {
            0 => "lost",
            8 => "kept",
            _ => "torn",
        })
        .collect();
    for kind in ["lost", "kept", "torn"] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
    assert_eq!(sectors, sectors_after(11));
    assert_ne!(sectors, sectors_after(12));
}

/// A small file is replaced at every event number at which the power can fail, with every kind of luck.
#[test]
fn replacing_a_small_file_is_atomic_and_durable() {
    let outcomes = (0..20)
        .map(|seed| CrashOutcome::Random { seed })
        .chain([CrashOutcome::LoseUnsynced, CrashOutcome::KeepAll]);
    for outcome in outcomes {
        for event in 0.. {
            let (device, faults) = nandina_simulation::in_memory(FaultPlan::none());
            device.write_small("manifest", b"old contents").unwrap();
            faults.set_plan(FaultPlan::none().power_loss_at(faults.events() + event));
            let replaced = device.write_small("manifest", b"new contents, longer");
            let finished = faults.has_power();
            assert_eq!(replaced.is_ok(), finished);
            faults.crash(outcome);
            let found = device.read_small("manifest").unwrap();
            assert!(
                found == b"new contents, longer" || (!finished && found == b"old contents"),
                "{outcome:?} {event}"
            );
            if finished {
                assert_eq!(event, 5, "create, write, sync, rename, sync directory");
                break;
            }
        }
    }
}

#[test]
fn without_power_nothing_works_until_the_crash() {
    let (device, faults, file) = with_file(FaultPlan::none());
    let lock = device.try_lock("lock").unwrap().unwrap();
    faults.set_plan(FaultPlan::none().power_loss_at(faults.events()));
    assert!(file.write_blocking(0, filled(&device, KIB4, 1)).is_err());
    assert!(!faults.has_power());
    assert!(file.sync().is_err());
    assert!(device.create("more", FileClass::Table).is_err());
    assert!(device.list().is_err());
    assert!(file.len().is_err());
    faults.crash(CrashOutcome::LoseUnsynced);
    assert!(device.try_lock("lock").unwrap().is_some(), "locks die with their holder");
    drop(lock);
    assert!(device.list().unwrap().contains(&"lock".to_owned()));
}
