//! An import that runs out of space fails with a clear message; the database is as before, and no file is left.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use crate::setup;

use nandina_simulation::FaultPlan;
use nandina_storage::*;
use setup::*;

#[test]
fn at_every_amount_of_space() {
    let (device, handle) = simulated();
    let store = Store::open(device.clone(), Mode::Write).unwrap();
    create(&store, "kept", 0..2000);
    let files = device.list().unwrap();
    let mut imported = false;
    for blocks in 0..400 {
        handle.set_plan(FaultPlan::none().capacity(blocks * 4096));
        let result = import(&store);
        handle.set_plan(FaultPlan::none());
        match result {
            Ok(()) => {
                imported = true;
                assert_batches_equal(&read(&store.table("new").unwrap()), &rows(0..10_000));
                break;
            }
            Err(error) => {
                assert!(error.is_no_space(), "{error}");
                let message = error.to_string();
                assert!(message.starts_with("no space left "), "{message}");
                assert!(message.contains("segment-") || message.contains("nandina.manifest"), "{message}");
                assert_eq!(device.list().unwrap(), files, "{blocks} blocks");
                assert!(!store.has_table("new"));
                assert_batches_equal(&read(&store.table("kept").unwrap()), &rows(0..2000));
            }
        }
    }
    assert!(imported);
    drop(store);
    let store = Store::open(device, Mode::Write).unwrap();
    assert_eq!(store.table_names(), ["kept", "new"]);
}

const PLENTY_BYTES: u64 = 1 << 40;

fn import(store: &Store) -> Result<()> {
    let writer = store.create_table_with_rows(definition("new"), IfExists::Fail, WriteOptions::default())?;
    let mut lane = writer.lane();
    for part in 0..10 {
        lane.append_blocking(&rows(part * 1000..(part + 1) * 1000))?;
    }
    lane.finish_blocking()?;
    writer.commit_blocking().map(drop)
}

#[test]
fn tables_can_be_dropped_without_any_space_left() {
    let (device, handle) = simulated();
    let store = Store::open(device.clone(), Mode::Write).unwrap();
    create(&store, "kept", 0..2000);
    create(&store, "dropped", 0..2000);
    drop(store);
    for named in ["dropped", "kept"] {
        handle.set_plan(FaultPlan::none().capacity(PLENTY_BYTES));
        let used_bytes = PLENTY_BYTES - device.free_bytes().unwrap();
        handle.set_plan(FaultPlan::none().capacity(used_bytes));
        let store = Store::open(device.clone(), Mode::Write).unwrap();
        let error = store.create_table(definition("new"), IfExists::Fail).unwrap_err();
        assert!(error.is_no_space(), "{error}: the reserve is not for what takes more space");
        store.drop_table(named).unwrap();
        handle.set_plan(FaultPlan::none());
        // With what the table took the reserve is there again, at the next change or opening.
        drop(store);
        let store = Store::open(device.clone(), Mode::Write).unwrap();
        assert!(!store.has_table(named));
        assert!(device.exists("nandina.reserve").unwrap());
    }
}
