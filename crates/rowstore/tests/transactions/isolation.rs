//! Anomalies, by the names that Adya, Berenson and the Hermitage tests give them.

use nandina_rowstore::heap::RowId;
use nandina_rowstore::heap::directory::TableId;
use nandina_rowstore::{Error, RowStore, Transaction};

use crate::setup::{Devices, STORE_ID, options};

/// Runs with a table of two rows, 10 and 20.
fn with_rows(run: impl FnOnce(&RowStore, TableId, RowId, RowId)) {
    let devices = Devices::new();
    let store = RowStore::open(devices.pages.clone(), devices.log.clone(), STORE_ID, &options()).unwrap();
    let table = store.create_table().unwrap();
    let mut transaction = store.begin();
    let one = transaction.insert(table, &[10]).unwrap();
    let two = transaction.insert(table, &[20]).unwrap();
    transaction.commit().unwrap();
    run(&store, table, one, two);
}

fn value(transaction: &Transaction<'_>, table: TableId, row: RowId) -> u8 {
    transaction.get(table, row).unwrap().unwrap()[0]
}

fn is_conflict<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Conflict))
}

#[test]
fn no_dirty_write() {
    with_rows(|store, table, one, two| {
        let (mut first, mut second) = (store.begin(), store.begin());
        first.update(table, one, &[11]).unwrap();
        assert!(is_conflict(second.update(table, one, &[12])));
        second.roll_back().unwrap();
        first.update(table, two, &[21]).unwrap();
        first.commit().unwrap();
        let after = store.begin();
        assert_eq!((value(&after, table, one), value(&after, table, two)), (11, 21));
    });
}

#[test]
fn no_aborted_read_and_no_intermediate_read() {
    with_rows(|store, table, one, _| {
        let (mut first, second) = (store.begin(), store.begin());
        first.update(table, one, &[101]).unwrap();
        assert_eq!(value(&second, table, one), 10);
        first.update(table, one, &[11]).unwrap();
        assert_eq!(value(&second, table, one), 10);
        assert_eq!(value(&first, table, one), 11);
        first.roll_back().unwrap();
        assert_eq!(value(&second, table, one), 10);
        assert_eq!(value(&store.begin(), table, one), 10);
    });
}

#[test]
fn no_circular_information_flow() {
    with_rows(|store, table, one, two| {
        let (mut first, mut second) = (store.begin(), store.begin());
        first.update(table, one, &[11]).unwrap();
        second.update(table, two, &[22]).unwrap();
        assert_eq!((value(&first, table, two), value(&second, table, one)), (20, 10));
        first.commit().unwrap();
        second.commit().unwrap();
    });
}

#[test]
fn no_observed_transaction_vanishes() {
    with_rows(|store, table, one, two| {
        let (mut first, mut second) = (store.begin(), store.begin());
        first.update(table, one, &[11]).unwrap();
        first.update(table, two, &[19]).unwrap();
        assert!(is_conflict(second.update(table, one, &[12])));
        first.commit().unwrap();
        // It has been changed since the second one began, even though that one ended.
        assert!(is_conflict(second.update(table, one, &[12])));
        drop(second);
        let mut third = store.begin();
        assert_eq!((value(&third, table, one), value(&third, table, two)), (11, 19));
        assert!(third.update(table, one, &[12]).unwrap());
        third.commit().unwrap();
        assert_eq!(value(&store.begin(), table, one), 12);
    });
}

#[test]
fn no_lost_update_and_no_read_skew() {
    with_rows(|store, table, one, two| {
        let (mut first, mut second) = (store.begin(), store.begin());
        assert_eq!((value(&first, table, one), value(&second, table, one)), (10, 10));
        second.update(table, one, &[12]).unwrap();
        second.update(table, two, &[18]).unwrap();
        second.commit().unwrap();
        assert_eq!(value(&first, table, two), 20, "of the state that it began with");
        assert!(is_conflict(first.update(table, one, &[11])));
        assert!(is_conflict(first.delete(table, two)));
    });
}

#[test]
fn no_phantoms() {
    with_rows(|store, table, one, _| {
        let first = store.begin();
        let count =
            |transaction: &Transaction<'_>| transaction.scan(table).unwrap().map(Result::unwrap).count();
        assert_eq!(count(&first), 2);
        let mut second = store.begin();
        second.insert(table, &[30]).unwrap();
        second.delete(table, one).unwrap();
        second.insert(table, &[40]).unwrap();
        second.commit().unwrap();
        assert_eq!(count(&first), 2);
        assert_eq!(value(&first, table, one), 10);
        assert_eq!(count(&store.begin()), 3);
    });
}

/// Snapshot isolation allows it: the two read what the other one writes.
#[test]
fn write_skew_is_possible() {
    with_rows(|store, table, one, two| {
        let (mut first, mut second) = (store.begin(), store.begin());
        assert_eq!((value(&first, table, two), value(&second, table, one)), (20, 10));
        first.update(table, one, &[11]).unwrap();
        second.update(table, two, &[21]).unwrap();
        first.commit().unwrap();
        second.commit().unwrap();
    });
}

#[test]
fn a_row_is_free_again_once_its_writer_has_rolled_back() {
    with_rows(|store, table, one, two| {
        let mut second = store.begin();
        let mut first = store.begin();
        let savepoint = first.savepoint();
        first.update(table, one, &[11]).unwrap();
        first.delete(table, two).unwrap();
        assert!(is_conflict(second.delete(table, one)));
        assert!(is_conflict(second.update(table, two, &[21])));
        first.roll_back_to(savepoint).unwrap();
        assert!(second.update(table, one, &[12]).unwrap());
        drop(first);
        assert!(second.update(table, two, &[22]).unwrap());
        second.commit().unwrap();
        let after = store.begin();
        assert_eq!((value(&after, table, one), value(&after, table, two)), (12, 22));
    });
}
