//! Stores that are only read, to get out what is in them.

use std::collections::BTreeMap;

use nandina_device::{Device, FileClass, OpenMode};
use nandina_rowstore::heap::RowId;
use nandina_rowstore::heap::directory::TableId;
use nandina_rowstore::{Error, Result, RowStore};
use nandina_simulation::{CrashOutcome, FaultPlan};

use crate::setup::{Devices, Random, STORE_ID, options};

const FRAMES: usize = 16;

fn open(devices: &Devices) -> Result<RowStore> {
    RowStore::open(devices.pages.clone(), devices.log.clone(), STORE_ID, &options())
}

type Rows = BTreeMap<RowId, Vec<u8>>;

fn rows(store: &RowStore, table: TableId) -> Result<Rows> {
    store.begin().scan(table)?.collect()
}

/// All bytes of all files.
fn bytes_of(device: &Device) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| {
        let file = device.open_file(&name, FileClass::Other, OpenMode::Read).unwrap();
        let buffer = device.buffer(file.len().unwrap() as usize);
        let bytes = file.read_blocking(0, buffer).unwrap().to_vec();
        (name, bytes)
    };
    device.list().unwrap().into_iter().map(read).collect()
}

/// Rows that are changed by some transactions, of which the last ones are in the log alone, and one is not committed.
fn filled(devices: &Devices, seed: u64) -> (TableId, Rows) {
    let store = open(devices).unwrap();
    let table = store.create_table().unwrap();
    let mut random = Random::new(seed);
    let mut ids: Vec<RowId> = Vec::new();
    for number in 0..40_u8 {
        let mut transaction = store.begin();
        for _ in 0..4 {
            let length = if random.below(20) == 0 { 9000 } else { random.below(300) };
            let bytes = vec![number; length as usize];
            match ids.get(random.below(2 * ids.len().max(1) as u64) as usize) {
                Some(id) => drop(transaction.update(table, *id, &bytes).unwrap()),
                None => ids.push(transaction.insert(table, &bytes).unwrap()),
            }
        }
        transaction.commit().unwrap();
        if number == 20 {
            store.pages().checkpoint().unwrap();
        }
    }
    let right = rows(&store, table).unwrap();
    let mut unfinished = store.begin();
    unfinished.update(table, ids[0], b"nobody sees this").unwrap();
    unfinished.insert(table, b"nor this").unwrap();
    unfinished.delete(table, ids[1]).unwrap();
    store.pages().log().wait_until_all_durable().unwrap();
    // As a process that is killed.
    std::mem::forget(unfinished);
    drop(store);
    (table, right)
}

#[test]
fn what_was_committed_is_seen_and_nothing_is_changed() {
    for seed in 0..10 {
        let devices = Devices::new();
        let (table, right) = filled(&devices, seed);
        devices.crash(CrashOutcome::Random { seed });
        let before = (bytes_of(&devices.pages), bytes_of(&devices.log));
        let (store, damage) =
            RowStore::open_read_only(devices.pages.clone(), devices.log.clone(), FRAMES).unwrap();
        assert!(damage.is_none(), "{damage:?}");
        assert_eq!(rows(&store, table).unwrap(), right, "seed {seed}");
        let refused = store.begin().insert(table, b"a row").unwrap_err();
        assert!(matches!(refused, Error::ReadOnly { .. }), "{refused}");
        let id = *right.keys().next().unwrap();
        assert!(matches!(store.begin().update(table, id, b"x"), Err(Error::ReadOnly { .. })));
        assert!(matches!(store.create_table(), Err(Error::ReadOnly { .. })));
        let copy = Devices::new();
        assert!(matches!(store.pages().backup(&copy.pages, &copy.log), Err(Error::ReadOnly { .. })));
        store.pages().checkpoint().unwrap();
        assert_eq!(rows(&store, table).unwrap(), right, "seed {seed}");
        drop(store);
        assert_eq!((bytes_of(&devices.pages), bytes_of(&devices.log)), before, "seed {seed}");
        // The store is what it was.
        assert_eq!(rows(&open(&devices).unwrap(), table).unwrap(), right, "seed {seed}");
    }
}

#[test]
fn a_store_whose_log_is_damaged_gives_out_its_rows() {
    let (mut given, mut refused) = (0, 0);
    for seed in 0..60 {
        let devices = Devices::new();
        let (table, right) = filled(&devices, seed);
        let names: Vec<String> =
            devices.log.list().unwrap().into_iter().filter(|name| name.ends_with(".log")).collect();
        let name = &names[seed as usize % names.len()];
        let file = devices.log.open_file(name, FileClass::Other, OpenMode::ReadWrite).unwrap();
        let block = seed * 5 % (file.len().unwrap() / 4096) * 4096;
        let mut bytes = file.read_blocking(block, devices.log.buffer(4096)).unwrap();
        bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
        file.write_blocking(block, bytes).unwrap();
        file.sync().unwrap();
        let (store, damage) =
            RowStore::open_read_only(devices.pages.clone(), devices.log.clone(), FRAMES).unwrap();
        // Each row is one that has been, though not all of one moment.
        match (rows(&store, table), damage) {
            (Ok(found), None) => assert_eq!(found, right, "seed {seed}: what is damaged was not needed"),
            (Ok(found), Some(damage)) => {
                assert!(matches!(damage, Error::LogDamaged { .. }), "{damage}");
                assert!(open(&devices).is_err());
                // The pages of long rows may be those of other rows by then.
                for bytes in found.values().filter(|bytes| (1..300).contains(&bytes.len())) {
                    assert!(bytes.iter().all(|byte| *byte == bytes[0]) || bytes.starts_with(b"no"));
                }
                given += usize::from(found.len() > 10);
            }
            (Err(error), Some(_)) => {
                refused += 1;
                assert!(matches!(error, Error::PageDamaged { .. }), "{error}");
            }
            (Err(error), None) => panic!("seed {seed}: {error}"),
        }
    }
    assert!(given > 3 && given > 3 * refused, "{given} damaged stores gave their rows, {refused} did not");
}

#[test]
fn a_store_without_its_log_gives_out_what_was_written_back() {
    let devices = Devices::new();
    let store = open(&devices).unwrap();
    let table = store.create_table().unwrap();
    let mut transaction = store.begin();
    for number in 0..200_u8 {
        transaction.insert(table, &[number; 50]).unwrap();
    }
    transaction.commit().unwrap();
    let right = rows(&store, table).unwrap();
    store.pages().checkpoint().unwrap();
    drop(store);
    let (other, _simulation) = devices.machine.memory("other log", FaultPlan::none());
    assert!(RowStore::open(devices.pages.clone(), other.clone(), STORE_ID, &options()).is_err());
    let (store, damage) = RowStore::open_read_only(devices.pages.clone(), other, FRAMES).unwrap();
    assert!(damage.is_some());
    assert_eq!(rows(&store, table).unwrap(), right);
}
