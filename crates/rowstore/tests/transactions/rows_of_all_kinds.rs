use nandina_rowstore::RowStore;
use nandina_rowstore::heap::RowId;
use nandina_rowstore::page::PageId;

use crate::model::{Open, Rows};
use crate::setup::{Devices, Random, STORE_ID, options};

fn store(devices: &Devices) -> RowStore {
    RowStore::open(devices.pages.clone(), devices.log.clone(), STORE_ID, &options()).unwrap()
}

/// Transactions take turns, in a store with few frames.
fn take_turns(seed: u64, steps: usize) {
    let devices = Devices::new();
    let store = store(&devices);
    let table = store.create_table().unwrap();
    let mut random = Random::new(seed);
    let mut committed = Rows::new();
    let mut open: Vec<Open<'_>> = Vec::new();
    for step in 0..steps {
        let context = format!("seed {seed}, step {step}");
        if open.is_empty() || open.len() < 4 && random.below(6) == 0 {
            open.push(Open::begin(&store, &committed));
        }
        let mut one = open.swap_remove(random.below(open.len() as u64) as usize);
        match random.below(14) {
            0 => one.commit(&mut committed),
            1 if random.below(2) == 0 => one.transaction.roll_back().unwrap(),
            1 => drop(one),
            2 => {
                one.check(table, &context);
                open.push(one);
            }
            _ => {
                let others: Vec<&Open<'_>> = open.iter().collect();
                one.step(table, &mut random, &committed, &others);
                open.push(one);
            }
        }
        if step % 150 == 0 {
            store.pages().checkpoint().unwrap();
        }
    }
    open.iter().for_each(|one| one.check(table, "at the end"));
    drop(open);
    Open::begin(&store, &committed).check(table, "all others are gone");
    store.pages().log().wait_until_all_durable().unwrap();
    drop(store);
    let store = crate::rows_of_all_kinds::store(&devices);
    Open::begin(&store, &committed).check(table, "opened again");
}

#[test]
fn several_transactions_see_what_they_should() {
    (0..12).for_each(|seed| take_turns(seed, 700));
}

#[test]
#[ignore = "two million steps take minutes: cargo test --release -p nandina-rowstore -- --ignored"]
fn transactions_see_what_they_should_for_long() {
    (100..120).for_each(|seed| take_turns(seed, 100_000));
}

#[test]
fn space_is_given_back() {
    let devices = Devices::new();
    let store = store(&devices);
    let table = store.create_table().unwrap();
    let mut rows = Vec::new();
    let fill = |rows: &mut Vec<RowId>, length: usize| {
        let mut transaction = store.begin();
        for number in 0..400 {
            rows.push(transaction.insert(table, &vec![number as u8; length]).unwrap());
        }
        transaction.commit().unwrap();
        let mut transaction = store.begin();
        for row in rows.drain(..) {
            assert!(transaction.delete(table, row).unwrap());
        }
        transaction.commit().unwrap();
        store.purge_all().unwrap();
        store.pages().used_pages().unwrap()
    };
    let first = fill(&mut rows, 300);
    for _ in 0..5 {
        let again = fill(&mut rows, 300);
        assert!(again <= first + 4, "{again} pages after {first}");
    }
    // Long rows leave nothing behind, whether they were deleted, changed or rolled back.
    let first = fill(&mut rows, 20_000);
    assert!(first < 100, "{first} pages");
    for _ in 0..3 {
        let mut transaction = store.begin();
        let row = transaction.insert(table, &[1; 100_000]).unwrap();
        transaction.update(table, row, &[2; 50_000]).unwrap();
        transaction.roll_back().unwrap();
        let mut transaction = store.begin();
        let row = transaction.insert(table, &[1; 100_000]).unwrap();
        transaction.commit().unwrap();
        for length in [70_000, 3, 30_000, 0] {
            let mut transaction = store.begin();
            transaction.update(table, row, &vec![3; length]).unwrap();
            transaction.commit().unwrap();
        }
        let mut transaction = store.begin();
        transaction.delete(table, row).unwrap();
        transaction.commit().unwrap();
        store.purge_all().unwrap();
        let again = store.pages().used_pages().unwrap();
        assert!(again <= first + 8, "{again} pages after {first}");
    }
}

#[test]
fn a_reader_that_stays_sees_its_state_and_costs_only_space() {
    let devices = Devices::new();
    let store = store(&devices);
    let table = store.create_table().unwrap();
    let mut committed = Rows::new();
    let mut random = Random::new(5);
    let mut writer = Open::begin(&store, &committed);
    (0..200).for_each(|_| writer.step(table, &mut random, &committed, &[]));
    writer.commit(&mut committed);
    let reader = Open::begin(&store, &committed);
    let before = store.pages().used_pages().unwrap();
    for _ in 0..60 {
        let mut writer = Open::begin(&store, &committed);
        let now = committed.clone();
        (0..20).for_each(|_| writer.step(table, &mut random, &now, &[]));
        writer.commit(&mut committed);
    }
    reader.check(table, "after many changes");
    let most = store.pages().used_pages().unwrap();
    assert!(most > before);
    drop(reader);
    store.purge_all().unwrap();
    let after = store.pages().used_pages().unwrap();
    assert!(after < most, "{after} pages of {most}");
    Open::begin(&store, &committed).check(table, "without the reader");
}

#[test]
fn a_transaction_may_be_larger_than_memory_and_rolled_back() {
    let devices = Devices::new();
    let store = store(&devices);
    let table = store.create_table().unwrap();
    let mut transaction = store.begin();
    let rows: Vec<RowId> =
        (0..3000).map(|number| transaction.insert(table, &[number as u8; 100]).unwrap()).collect();
    transaction.commit().unwrap();
    let used = store.pages().used_pages().unwrap();
    assert!(used > 80, "{used} pages in 16 frames");
    let mut transaction = store.begin();
    for row in &rows {
        assert!(transaction.update(table, *row, &[7; 130]).unwrap());
    }
    transaction.roll_back().unwrap();
    let transaction = store.begin();
    for (number, row) in rows.iter().enumerate() {
        assert_eq!(transaction.get(table, *row).unwrap(), Some(vec![number as u8; 100]));
    }
}

#[test]
fn ids_of_rows_that_are_not_there_are_none() {
    let devices = Devices::new();
    let store = store(&devices);
    let (table, other) = (store.create_table().unwrap(), store.create_table().unwrap());
    let mut transaction = store.begin();
    let row = transaction.insert(table, b"here").unwrap();
    assert_eq!(transaction.get(table, RowId::new(row.page(), 77)).unwrap(), None);
    for wrong in [RowId::new(table.0, 0), RowId::new(PageId(row.page().0 + 1), 0)] {
        if wrong.page() == row.page() {
            continue;
        }
        transaction.get(table, wrong).map(|_| ()).unwrap_err();
        transaction.update(table, wrong, b"x").map(|_| ()).unwrap_err();
    }
    let error = transaction.get(other, row).unwrap_err().to_string();
    assert!(error.contains(&format!("no row {row}")), "{error}");
    assert!(transaction.scan(nandina_rowstore::heap::directory::TableId(row.page())).is_err());
}
