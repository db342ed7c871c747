//! Transactions that change the same rows.

use std::sync::Arc;

use scheduled_rowstore::heap::RowId;
use scheduled_rowstore::heap::directory::TableId;
use scheduled_rowstore::{Error, Result, RowStore, Transaction};

use crate::{Devices, schedules, together};

const ACCOUNTS: usize = 3;
const EACH: u64 = 10;

fn amount(transaction: &Transaction<'_>, table: TableId, row: RowId) -> u64 {
    let bytes = transaction.get(table, row).unwrap().unwrap();
    u64::from_le_bytes(bytes.try_into().unwrap())
}

fn transfer(store: &RowStore, table: TableId, from: RowId, to: RowId) -> Result<()> {
    let mut transaction = store.begin();
    let (left, right) = (amount(&transaction, table, from), amount(&transaction, table, to));
    transaction.update(table, from, &(left - 1).to_le_bytes())?;
    transaction.update(table, to, &(right + 1).to_le_bytes())?;
    transaction.commit()
}

#[test]
fn sums_stay_what_they_are() {
    schedules(|| {
        let devices = Devices::new();
        let store = devices.row_store(24);
        let table = store.create_table().unwrap();
        let mut transaction = store.begin();
        let rows: Vec<RowId> =
            (0..ACCOUNTS).map(|_| transaction.insert(table, &EACH.to_le_bytes()).unwrap()).collect();
        transaction.commit().unwrap();
        let shared = Arc::new((store, table, rows));
        together(&shared, 3, |number, (store, table, rows)| {
            for step in 0..3 {
                if number == 2 {
                    let reader = store.begin();
                    let sum: u64 = rows.iter().map(|row| amount(&reader, *table, *row)).sum();
                    assert_eq!(sum, EACH * ACCOUNTS as u64, "one state is seen");
                    continue;
                }
                let from = rows[(number + step) % ACCOUNTS];
                let to = rows[(2 * number + step + 1) % ACCOUNTS];
                match transfer(store, *table, from, to) {
                    Ok(()) | Err(Error::Conflict) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let (store, table, rows) = &*shared;
        let reader = store.begin();
        let sum: u64 = rows.iter().map(|row| amount(&reader, *table, *row)).sum();
        assert_eq!(sum, EACH * ACCOUNTS as u64);
    });
}

#[test]
fn one_of_those_who_add_the_same_key_succeeds_at_most() {
    schedules(|| {
        let devices = Devices::new();
        let store = devices.row_store(24);
        let (table, tree) = (store.create_table().unwrap(), store.create_index().unwrap());
        let shared = Arc::new((store, table, tree));
        together(&shared, 3, |number, (store, table, tree)| {
            for _ in 0..2 {
                let mut transaction = store.begin();
                let row = transaction.insert(*table, b"the key").unwrap();
                let has_key = |bytes: &[u8]| bytes == b"the key";
                match transaction.index_insert(*tree, b"the key\0", row, Some(&has_key)) {
                    // One that was there is taken away again by one thread.
                    Ok(()) if number == 0 => {
                        assert!(transaction.index_remove(*tree, b"the key\0", row).unwrap());
                        assert!(transaction.delete(*table, row).unwrap());
                        transaction.commit().unwrap();
                    }
                    Ok(()) => transaction.commit().unwrap(),
                    Err(Error::Conflict | Error::DuplicateKey { .. }) => transaction.roll_back().unwrap(),
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let (store, table, _) = &*shared;
        let there = store.begin().scan(*table).unwrap().map(Result::unwrap).count();
        assert!(there <= 1, "{there} rows have a key that must be unique");
    });
}
