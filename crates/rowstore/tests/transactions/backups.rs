//! Backups that are taken while others change the store.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nandina_rowstore::heap::RowId;
use nandina_rowstore::heap::directory::TableId;
use nandina_rowstore::{Error, Result, RowStore};
use nandina_simulation::{CrashOutcome, FaultPlan};

use crate::setup::{Devices, Random, STORE_ID, options};

fn open(devices: &Devices) -> Result<RowStore> {
    RowStore::open(devices.pages.clone(), devices.log.clone(), STORE_ID, &options())
}

const ROWS: usize = 40;
const EACH: u64 = 1000;

/// A number, in rows of which few fit into a page.
fn bytes(number: u64) -> Vec<u8> {
    let mut bytes = vec![7; 300];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().unwrap())
}

fn sum(store: &RowStore, table: TableId) -> (u64, u64) {
    let transaction = store.begin();
    let rows: Vec<u64> = transaction.scan(table).unwrap().map(|row| number(&row.unwrap().1)).collect();
    assert_eq!(rows.len(), ROWS + 1);
    (rows[0], rows[1..].iter().sum())
}

/// Moves something from one row to another one, and counts it in the first row.
fn transfer(store: &RowStore, table: TableId, rows: &[RowId], random: &mut Random) -> Result<u64> {
    let mut transaction = store.begin();
    let of = |row: RowId| number(&transaction.get(table, row).unwrap().unwrap());
    let from = rows[1 + random.below(ROWS as u64) as usize];
    let to = rows[1 + random.below(ROWS as u64) as usize];
    let (count, left, right) = (of(rows[0]) + 1, of(from), of(to));
    transaction.update(table, rows[0], &bytes(count))?;
    if from != to {
        transaction.update(table, from, &bytes(left - 1))?;
        transaction.update(table, to, &bytes(right + 1))?;
    }
    transaction.commit()?;
    Ok(count)
}

fn filled(store: &RowStore) -> (TableId, Vec<RowId>) {
    let table = store.create_table().unwrap();
    let mut transaction = store.begin();
    let mut rows = vec![transaction.insert(table, &bytes(0)).unwrap()];
    rows.extend((0..ROWS).map(|_| transaction.insert(table, &bytes(EACH)).unwrap()));
    transaction.commit().unwrap();
    (table, rows)
}

/// Ends those who write, also where a test fails.
struct Over<'t>(&'t AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_backup_has_one_state_while_others_write() {
    for seed in 0..8 {
        let devices = Devices::new();
        let store = open(&devices).unwrap();
        let (table, rows) = filled(&store);
        let (count, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let mut copies = Vec::new();
        std::thread::scope(|scope| {
            let _over = Over(&is_over);
            scope.spawn(|| {
                let mut random = Random::new(seed);
                while !is_over.load(Ordering::Relaxed) {
                    let done = transfer(&store, table, &rows, &mut random).unwrap();
                    count.store(done, Ordering::Release);
                }
            });
            for number in 1..=3 {
                let copy = Devices::new();
                while count.load(Ordering::Acquire) < 50 * number {
                    std::thread::yield_now();
                }
                let before = count.load(Ordering::Acquire);
                store.pages().backup(&copy.pages, &copy.log).unwrap();
                copies.push((before, count.load(Ordering::Acquire) + 1, copy));
            }
        });
        let last = count.load(Ordering::Acquire);
        for (before, after, copy) in copies {
            // What is in it is durable, and the copy a database like others.
            copy.crash(CrashOutcome::LoseUnsynced);
            let store = open(&copy).unwrap();
            let (first, total) = sum(&store, table);
            assert!((before..=after).contains(&first), "{first} of {before} to {after}");
            assert_eq!(total, EACH * ROWS as u64);
            transfer(&store, table, &rows, &mut Random::new(seed)).unwrap();
            drop(store);
            copy.crash(CrashOutcome::Random { seed });
            assert_eq!(sum(&open(&copy).unwrap(), table), (first + 1, EACH * ROWS as u64));
        }
        assert_eq!(sum(&store, table), (last, EACH * ROWS as u64));
    }
}

#[test]
fn a_backup_goes_to_an_empty_folder_and_is_none_before_it_is_whole() {
    let devices = Devices::new();
    let store = open(&devices).unwrap();
    let (table, _) = filled(&store);
    let copy = Devices::new();
    store.pages().backup(&copy.pages, &copy.log).unwrap();
    let again = store.pages().backup(&copy.pages, &copy.log).unwrap_err();
    assert!(matches!(again, Error::BackupExists { .. }), "{again}");
    // Each request of a backup fails once.
    let mut failed = 0;
    loop {
        let target = Devices::new();
        let (folder, _simulation) = target.machine.memory("copy", FaultPlan::none().fail_request(failed));
        match store.pages().backup(&folder, &folder) {
            Ok(()) => break,
            Err(error) => assert!(matches!(error, Error::BackupWrite { .. }), "{error}"),
        }
        failed += 1;
        // Nothing is in the way of another attempt.
        assert_eq!(folder.list().unwrap(), Vec::<String>::new());
        // The store goes on.
        assert_eq!(sum(&store, table), (0, EACH * ROWS as u64));
    }
    assert!(failed > 1, "{failed} writes failed");
}
