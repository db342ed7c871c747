//! Tables of segments whose rows are changed: against a model, and through power loss at every event and requests that fail.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arrow_array::cast::AsArray as _;
use arrow_array::types::UInt64Type;
use arrow_array::{RecordBatch, UInt64Array};
use nandina_device::block_on;
use nandina_simulation::{CrashOutcome, FaultPlan};
use nandina_storage::*;

use crate::changeable_rows::{Random, Row, batch, by_key, random_row, schema};
use crate::setup::simulated;

pub(crate) type Rows = BTreeMap<i64, (Row, u64)>;

/// All rows that a transaction sees, by their first column, and their ids.
pub(crate) fn all(transaction: &Transaction, name: &str) -> Result<Rows> {
    let table = transaction.table(name)?;
    let has_heap = table.has_changeable_rows();
    let deleted = if has_heap { Some(Arc::new(transaction.deleted_rows(&table)?)) } else { None };
    let scan = table.scan(ScanOptions { row_ids: Some("id".into()), deleted, ..ScanOptions::default() })?;
    let mut reader = scan.reader();
    let mut found = BTreeMap::new();
    let mut add = |rows: &RecordBatch, ids: &[u64]| {
        for (key, row) in by_key(rows, ids) {
            assert!(found.insert(key, row).is_none(), "each key once");
        }
    };
    while let Some(rows) = reader.next_blocking() {
        let rows = rows?;
        add(&rows, rows.column(3).as_primitive::<UInt64Type>().values());
    }
    if has_heap {
        let (pages, mut ids) = (transaction.pages(&table)?, Vec::new());
        let mut rows = table.row_codec()?.decoder(&[0, 1, 2]).unwrap();
        transaction.read_pages(&table, pages.slice(0..pages.len()), &mut rows, Some(&mut ids))?;
        add(&rows.finish().unwrap(), &ids);
    }
    Ok(found)
}

pub(crate) fn rows_of(transaction: &Transaction) -> BTreeMap<i64, Row> {
    all(transaction, "t").unwrap().into_iter().map(|(key, (row, _))| (key, row)).collect()
}

pub(crate) fn append(table: &Table, rows: &[Row]) -> Result<()> {
    let writer = table.writer(WriteMode::Append, WriteOptions::default())?;
    let mut lane = writer.lane();
    block_on(lane.append(&batch(rows)))?;
    block_on(lane.finish())?;
    block_on(writer.commit()).map(drop)
}

pub(crate) fn vacuum(store: &Store) -> Result<CommitSummary> {
    block_on(store.vacuum("t", WriteOptions::default()))
}

pub(crate) fn definition() -> TableDefinition {
    TableDefinition::new("t", schema()).with_page_bytes(MIN_PAGE_BYTES)
}

#[test]
fn random_changes_match_a_model() {
    for seed in 1..=20 {
        let mut random = Random(seed * 104_729);
        let (device, _simulation) = simulated();
        let mut store = Store::open(device.clone(), Mode::Write).unwrap();
        store.create_table(definition(), IfExists::Fail).unwrap();
        let (mut model, mut next): (BTreeMap<i64, Row>, i64) = (BTreeMap::new(), 0);
        for step in 0..30 {
            if random.below(3) == 0 {
                let keys = next..next + 1 + random.below(300) as i64;
                next = keys.end;
                let rows: Vec<Row> = keys.map(|key| random_row(&mut random, key)).collect();
                append(&store.table("t").unwrap(), &rows).unwrap();
                model.extend(rows.into_iter().map(|row| (row.0, row)));
            }
            // It begins before the first change is possible, and sees what comes of it.
            let mut transaction = store.begin().unwrap();
            transaction.begin_changes().unwrap();
            if step > 2 {
                store.make_changeable(&store.table("t").unwrap()).unwrap();
                let mut changed = model.clone();
                for _ in 0..random.below(4) {
                    change(&mut random, &mut transaction, &mut changed, &mut next);
                    assert_eq!(rows_of(&transaction), changed);
                }
                let other = store.begin().unwrap();
                if random.below(3) > 0 {
                    transaction.commit().unwrap();
                    assert_eq!(rows_of(&other), model);
                    model = changed;
                } else {
                    drop(transaction);
                }
            } else {
                drop(transaction);
            }
            assert_eq!(rows_of(&store.begin().unwrap()), model);
            if random.below(5) == 0 {
                let (before, seen) = (store.begin().unwrap(), model.clone());
                vacuum(&store).unwrap();
                assert_eq!(rows_of(&store.begin().unwrap()), model);
                assert!(!store.table("t").unwrap().has_changeable_rows());
                assert_eq!(rows_of(&before), seen);
            }
            if random.below(6) == 0 {
                drop(store);
                store = Store::open(device.clone(), Mode::Write).unwrap();
                assert_eq!(rows_of(&store.begin().unwrap()), model);
            }
        }
        vacuum(&store).unwrap();
        assert_eq!(store.table("t").unwrap().rows(), model.len() as u64);
    }
}

fn change(
    random: &mut Random,
    transaction: &mut Transaction,
    model: &mut BTreeMap<i64, Row>,
    next: &mut i64,
) {
    let table = transaction.table("t").unwrap();
    let share = 1 + random.below(8);
    let seen = all(transaction, "t").unwrap();
    let picked: Vec<(Row, u64)> = seen.into_values().filter(|_| random.below(share) == 0).collect();
    let ids = UInt64Array::from_iter_values(picked.iter().map(|(_, id)| *id));
    match random.below(3) {
        0 => {
            let keys = *next..*next + random.below(5) as i64;
            *next = keys.end;
            let rows: Vec<Row> = keys.map(|key| random_row(random, key)).collect();
            transaction.insert(&table, &batch(&rows)).unwrap();
            model.extend(rows.into_iter().map(|row| (row.0, row)));
        }
        1 => {
            assert_eq!(transaction.delete(&table, &ids).unwrap(), picked.len() as u64);
            assert_eq!(transaction.delete(&table, &ids).unwrap(), 0, "they are deleted already");
            picked.iter().for_each(|(row, _)| drop(model.remove(&row.0)));
        }
        _ => {
            let rows: Vec<Row> = picked.iter().map(|(row, _)| random_row(random, row.0)).collect();
            transaction.update(&table, &ids, &batch(&rows), &mut Deferred::default()).unwrap();
            model.extend(rows.into_iter().map(|row| (row.0, row)));
        }
    }
}

fn writer(table: &Table) -> TableWriter {
    table.writer(WriteMode::Overwrite, WriteOptions::default()).unwrap()
}

/// One that has begun before a table was changed, and sees it as it was, changes nothing behind those who have replaced its rows.
#[test]
fn rows_that_have_been_replaced_are_not_changed() {
    let (device, _simulation) = simulated();
    let store = Store::open(device, Mode::Write).unwrap();
    store.create_table(definition(), IfExists::Fail).unwrap();
    append(&store.table("t").unwrap(), &[(1, None, "a".to_owned()), (2, None, "b".to_owned())]).unwrap();
    let mut old = store.begin().unwrap();
    assert_eq!(rows_of(&old).len(), 2);
    let change = |key: i64| {
        store.make_changeable(&store.table("t").unwrap()).unwrap();
        let mut transaction = store.begin().unwrap();
        let table = transaction.table("t").unwrap();
        let id = all(&transaction, "t").unwrap()[&key].1;
        let ids = UInt64Array::from(vec![id]);
        let rows = batch(&[(key, None, "changed".to_owned())]);
        transaction.update(&table, &ids, &rows, &mut Deferred::default()).unwrap();
        transaction.commit().unwrap();
    };
    change(1);
    vacuum(&store).unwrap();
    store.make_changeable(&store.table("t").unwrap()).unwrap();
    old.begin_changes().unwrap();
    let table = old.table("t").unwrap();
    assert!(!table.has_changeable_rows());
    let error = old.insert(&table, &batch(&[(3, None, String::new())])).unwrap_err().to_string();
    assert!(error.contains("another transaction"), "{error}");
    assert_eq!(rows_of(&old).len(), 2);
    // Nor what has been changed before its first change, which it does not see.
    let mut old = store.begin().unwrap();
    assert!(old.table("t").unwrap().has_changeable_rows());
    change(2);
    old.begin_changes().unwrap();
    let found = rows_of(&old);
    assert_eq!(found[&2].2, "b");
    let ids = UInt64Array::from(vec![all(&old, "t").unwrap()[&2].1]);
    let table = old.table("t").unwrap();
    let error = old.delete(&table, &ids).unwrap_err().to_string();
    assert!(error.contains("another transaction"), "{error}");
}

#[test]
fn of_two_transactions_one_deletes_a_row() {
    let (device, _simulation) = simulated();
    let store = Store::open(device, Mode::Write).unwrap();
    store.create_table(definition(), IfExists::Fail).unwrap();
    append(&store.table("t").unwrap(), &[(1, None, "a".to_owned()), (2, None, "b".to_owned())]).unwrap();
    store.make_changeable(&store.table("t").unwrap()).unwrap();
    let table = store.table("t").unwrap();
    let id_of = |key: i64| UInt64Array::from(vec![all(&store.begin().unwrap(), "t").unwrap()[&key].1]);
    let (mut first, mut second) = (store.begin().unwrap(), store.begin().unwrap());
    let (one, two) = (id_of(1), id_of(2));
    first.delete(&table, &one).unwrap();
    let error = second.delete(&table, &one).unwrap_err().to_string();
    assert!(error.contains("another transaction"), "{error}");
    drop(second);
    let mut third = store.begin().unwrap();
    first.commit().unwrap();
    let error = third.delete(&table, &one).unwrap_err().to_string();
    assert!(error.contains("another transaction"), "{error}");
    drop(third);
    // One that was rolled back is in nobody's way.
    let mut fourth = store.begin().unwrap();
    fourth.delete(&table, &two).unwrap();
    drop(fourth);
    let mut fifth = store.begin().unwrap();
    assert_eq!(fifth.delete(&table, &two).unwrap(), 1);
    // Rows are not replaced while others change them, nor where they have meanwhile.
    let overwrite = |writer: TableWriter| block_on(writer.commit());
    let error = overwrite(writer(&table)).unwrap_err().to_string();
    assert!(error.contains("are being changed by a transaction that is open"), "{error}");
    let early = writer(&table);
    drop(fifth);
    let mut other = store.begin().unwrap();
    other.insert(&table, &batch(&[(3, None, "c".to_owned())])).unwrap();
    other.commit().unwrap();
    let error = overwrite(early).unwrap_err().to_string();
    assert!(error.contains("or have been meanwhile"), "{error}");
    let mut sixth = store.begin().unwrap();
    overwrite(writer(&table)).unwrap();
    // Then they are not there any more.
    let error = sixth.delete(&table, &two).unwrap_err().to_string();
    assert!(error.contains("another transaction"), "{error}");
    assert_eq!(rows_of(&sixth).len(), 2);
    drop(sixth);
    assert!(rows_of(&store.begin().unwrap()).is_empty());
    assert!(!store.table("t").unwrap().has_changeable_rows());
}

#[test]
fn vacuum_gives_way_to_changes() {
    let (device, _simulation) = simulated();
    let store = Store::open(device, Mode::Write).unwrap();
    store.create_table(definition(), IfExists::Fail).unwrap();
    append(&store.table("t").unwrap(), &long_rows(0..2000)).unwrap();
    append(&store.table("t").unwrap(), &long_rows(2000..4000)).unwrap();
    assert_eq!(vacuum(&store).unwrap(), CommitSummary::default(), "there is nothing to be done");
    store.make_changeable(&store.table("t").unwrap()).unwrap();
    let table = store.table("t").unwrap();
    append(&table, &[(8000, None, "more".to_owned())]).unwrap();
    let table = store.table("t").unwrap();
    let id_of = |key: i64| UInt64Array::from(vec![all(&store.begin().unwrap(), "t").unwrap()[&key].1]);
    let (seven, eight) = (id_of(7), id_of(8));
    let mut transaction = store.begin().unwrap();
    transaction.delete(&table, &seven).unwrap();
    let error = vacuum(&store).unwrap_err().to_string();
    assert!(error.contains("are being changed by a transaction that is open"), "{error}");
    transaction.commit().unwrap();
    let mut late = store.begin().unwrap();
    // Only the segment that has lost a row is written again, and the small one, beside rows that have come.
    let mut other = store.begin().unwrap();
    other.insert(&table, &batch(&[(9000, None, "heap".to_owned())])).unwrap();
    other.commit().unwrap();
    assert_eq!(vacuum(&store).unwrap().rows, 2001);
    let (now, found) = (store.table("t").unwrap(), rows_of(&store.begin().unwrap()));
    assert_eq!((now.rows(), found.len()), (4001, 4001));
    assert!(!found.contains_key(&7) && found.contains_key(&8000) && found.contains_key(&9000));
    let error = late.delete(&table, &eight).unwrap_err().to_string();
    assert!(error.contains("another transaction"), "{error}");
    assert_eq!(rows_of(&late).len(), 4000);
}

/// A segment of 2000 of them is not a small one.
fn long_rows(keys: std::ops::Range<i64>) -> Vec<Row> {
    let text = |key: i64| -> String {
        let mut random = Random(key as u64 * 7919 + 1);
        (0..800).map(|_| char::from(b'!' + random.below(90) as u8)).collect()
    };
    keys.map(|key| (key, None, text(key))).collect()
}

fn segment_files(device: &nandina_device::Device) -> usize {
    device.list().unwrap().iter().filter(|name| name.ends_with(".pax")).count()
}

fn vacuum_in_background(store: &Store) -> Result<bool> {
    block_on(store.vacuum_in_background("t", WriteOptions::default(), &|| false))
}

#[test]
fn small_segments_are_put_together() {
    let (device, _simulation) = simulated();
    let mut store = Store::open(device.clone(), Mode::Write).unwrap();
    store.create_table(definition(), IfExists::Fail).unwrap();
    append(&store.table("t").unwrap(), &long_rows(0..2000)).unwrap();
    for key in 2000..2040 {
        append(&store.table("t").unwrap(), &[(key, Some(key), "small".to_owned())]).unwrap();
    }
    assert_eq!(segment_files(&device), 41);
    let work = store.vacuum_work("t").unwrap().unwrap();
    assert_eq!((work.heap, work.segments, work.small_segments), (None, 41, 40));
    let (before, expected) = (store.begin().unwrap(), rows_of(&store.begin().unwrap()));
    // One that keeps rows in their places may not have begun to change any.
    let kept = store.keep_rows();
    assert!(!vacuum_in_background(&store).unwrap());
    drop(kept);
    assert!(vacuum_in_background(&store).unwrap());
    let table = store.table("t").unwrap();
    assert!(!table.has_changeable_rows());
    assert_eq!(table.rows(), 2040);
    assert_eq!(rows_of(&store.begin().unwrap()), expected);
    assert_eq!(store.vacuum_work("t").unwrap(), None);
    // Readers keep their files until they end.
    assert_eq!((rows_of(&before), segment_files(&device)), (expected.clone(), 42));
    drop(before);
    assert_eq!(segment_files(&device), 2);
    assert_eq!(vacuum(&store).unwrap(), CommitSummary::default());
    drop((table, store));
    store = Store::open(device.clone(), Mode::Write).unwrap();
    assert_eq!(rows_of(&store.begin().unwrap()), expected);
    // They go with what is written again for other reasons.
    store.make_changeable(&store.table("t").unwrap()).unwrap();
    let mut transaction = store.begin().unwrap();
    transaction.insert(&transaction.table("t").unwrap(), &batch(&[(5000, None, String::new())])).unwrap();
    transaction.commit().unwrap();
    assert!(vacuum_in_background(&store).unwrap());
    assert_eq!((store.table("t").unwrap().rows(), segment_files(&device)), (2041, 2));
}

/// When vacuum has begun, others do something.
pub(crate) fn meanwhile(store: &Store, others: impl FnOnce() + Send) -> Result<bool> {
    let others = Mutex::new(Some(others));
    let must_stop = || {
        if let Some(others) = others.lock().unwrap().take() {
            others();
        }
        false
    };
    block_on(store.vacuum_in_background("t", WriteOptions::default(), &must_stop))
}

#[test]
fn rows_that_are_added_meanwhile_stay_in_a_heap() {
    let (device, _simulation) = simulated();
    let store = Store::open(device.clone(), Mode::Write).unwrap();
    store.create_table(definition(), IfExists::Fail).unwrap();
    append(&store.table("t").unwrap(), &long_rows(0..40)).unwrap();
    let insert = |rows: &[Row]| {
        store.make_changeable(&store.table("t").unwrap()).unwrap();
        let mut transaction = store.begin().unwrap();
        transaction.insert(&transaction.table("t").unwrap(), &batch(rows)).unwrap();
        transaction
    };
    insert(&long_rows(40..50)).commit().unwrap();
    let mut seen = None;
    assert!(
        meanwhile(&store, || {
            insert(&long_rows(50..60)).commit().unwrap();
            drop(insert(&long_rows(60..70)));
            seen = Some(store.begin().unwrap());
        })
        .unwrap()
    );
    let seen = seen.unwrap();
    let table = store.table("t").unwrap();
    assert_eq!((table.rows(), table.has_changeable_rows()), (50, true));
    let now = store.begin().unwrap();
    let expected: BTreeMap<i64, Row> = long_rows(0..60).into_iter().map(|row| (row.0, row)).collect();
    assert_eq!((rows_of(&now), rows_of(&seen)), (expected.clone(), expected.clone()));
    assert_eq!(now.rows(&now.table("t").unwrap()).unwrap(), 60);
    drop((seen, now, table));
    // What is changed meanwhile in other ways, or not committed yet, is for another time.
    let mut open = None;
    assert!(!meanwhile(&store, || open = Some(insert(&long_rows(70..71)))).unwrap());
    drop(open);
    let delete = || {
        let mut transaction = store.begin().unwrap();
        let id = all(&transaction, "t").unwrap()[&55].1;
        transaction.delete(&transaction.table("t").unwrap(), &UInt64Array::from(vec![id])).unwrap();
        transaction.commit().unwrap();
    };
    assert!(!meanwhile(&store, delete).unwrap());
    let mut kept = None;
    assert!(!meanwhile(&store, || kept = Some(store.keep_rows())).unwrap());
    drop(kept);
    assert!(vacuum_in_background(&store).unwrap());
    assert!(!store.table("t").unwrap().has_changeable_rows());
    drop(store);
    let store = Store::open(device, Mode::Write).unwrap();
    let mut expected = expected;
    expected.remove(&55);
    assert_eq!(rows_of(&store.begin().unwrap()), expected);
}

/// A transaction that has begun before a table was changeable sees nothing of what has been done to it since.
#[test]
fn pages_of_a_segment_that_is_gone_are_not_numbered_again() {
    let (device, _simulation) = simulated();
    let store = Store::open(device.clone(), Mode::Write).unwrap();
    store.create_table(definition(), IfExists::Fail).unwrap();
    append(&store.table("t").unwrap(), &long_rows(0..40)).unwrap();
    let insert = |rows: &[Row]| {
        store.make_changeable(&store.table("t").unwrap()).unwrap();
        let mut transaction = store.begin().unwrap();
        transaction.insert(&transaction.table("t").unwrap(), &batch(rows)).unwrap();
        transaction.commit().unwrap();
    };
    insert(&long_rows(40..41));
    let mut transaction = store.begin().unwrap();
    let ids: Vec<u64> = all(&transaction, "t").unwrap().values().map(|(_, id)| *id).collect();
    assert_eq!(transaction.delete(&transaction.table("t").unwrap(), &UInt64Array::from(ids)).unwrap(), 41);
    transaction.commit().unwrap();
    // Nothing is left for a segment, and what comes meanwhile goes on to a heap that knows the deleted rows.
    assert!(meanwhile(&store, || insert(&long_rows(50..51))).unwrap());
    assert_eq!(store.table("t").unwrap().rows(), 0);
    drop(store);
    let store = Store::open(device, Mode::Write).unwrap();
    append(&store.table("t").unwrap(), &long_rows(100..140)).unwrap();
    let expected: Vec<i64> = (50..51).chain(100..140).collect();
    let now = store.begin().unwrap();
    assert_eq!(rows_of(&now).into_keys().collect::<Vec<_>>(), expected);
    assert_eq!(now.rows(&now.table("t").unwrap()).unwrap(), 41);
    drop(now);
    vacuum(&store).unwrap();
    assert_eq!(rows_of(&store.begin().unwrap()).into_keys().collect::<Vec<_>>(), expected);
}

#[test]
fn a_heap_that_follows_another_one_has_been_changed() {
    let (device, _simulation) = simulated();
    let store = Store::open(device, Mode::Write).unwrap();
    store.create_table(definition(), IfExists::Fail).unwrap();
    append(&store.table("t").unwrap(), &long_rows(0..10)).unwrap();
    let mut old = store.begin().unwrap();
    let insert = |key: i64| {
        store.make_changeable(&store.table("t").unwrap()).unwrap();
        let mut transaction = store.begin().unwrap();
        transaction.insert(&transaction.table("t").unwrap(), &batch(&long_rows(key..key + 1))).unwrap();
        transaction.commit().unwrap();
    };
    insert(10);
    assert!(meanwhile(&store, || insert(11)).unwrap());
    assert!(store.table("t").unwrap().has_changeable_rows());
    old.begin_changes().unwrap();
    assert_eq!(rows_of(&old).len(), 10);
    assert_eq!(rows_of(&store.begin().unwrap()).len(), 12);
}

type State = Option<BTreeMap<i64, Row>>;

fn state(store: &Store) -> State {
    store.has_table("t").then(|| rows_of(&store.begin().unwrap()))
}

/// Statements; `done` is told after each that was acknowledged.
fn run(device: nandina_device::Device, mut done: impl FnMut(usize, &Store)) -> Result<()> {
    let rows = |keys: std::ops::Range<i64>| -> Vec<Row> {
        keys.map(|key| (key, Some(key % 3), "x".repeat(key as usize))).collect()
    };
    let store = Store::open(device, Mode::Write)?;
    done(0, &store);
    store.create_table(definition(), IfExists::Fail)?;
    done(1, &store);
    append(&store.table("t")?, &rows(0..40))?;
    done(2, &store);
    store.make_changeable(&store.table("t")?)?;
    done(3, &store);
    let ids_of = |transaction: &Transaction, is_wanted: &dyn Fn(i64) -> bool| -> Result<UInt64Array> {
        let rows = all(transaction, "t")?;
        let wanted = rows.values().filter(|(row, _)| is_wanted(row.0)).map(|(_, id)| *id);
        Ok(UInt64Array::from_iter_values(wanted))
    };
    let mut transaction = store.begin()?;
    let table = transaction.table("t")?;
    let ids = ids_of(&transaction, &|key| key % 2 == 0)?;
    transaction.delete(&table, &ids)?;
    transaction.commit()?;
    done(4, &store);
    let mut transaction = store.begin()?;
    let ids = ids_of(&transaction, &|key| key < 10)?;
    let changed: Vec<Row> = [1, 3, 5, 7, 9].map(|key| (key, None, "changed".to_owned())).to_vec();
    transaction.update(&table, &ids, &batch(&changed), &mut Deferred::default())?;
    transaction.insert(&table, &batch(&rows(100..103)))?;
    transaction.commit()?;
    done(5, &store);
    append(&table, &rows(40..50))?;
    done(6, &store);
    let mut transaction = store.begin()?;
    let table = transaction.table("t")?;
    let ids = ids_of(&transaction, &|key| key > 44 || key == 3)?;
    transaction.delete(&table, &ids)?;
    transaction.commit()?;
    done(7, &store);
    vacuum(&store)?;
    done(8, &store);
    Ok(())
}

const LAST: usize = 8;

fn states() -> Vec<State> {
    let (device, _simulation) = simulated();
    let mut states = Vec::new();
    run(device, |number, store| {
        assert_eq!(number, states.len());
        states.push(state(store));
    })
    .unwrap();
    assert_eq!(states.len(), LAST + 1);
    states
}

fn check_state(store: &Store, states: &[State], acknowledged: Option<usize>, context: &str) {
    let found = state(store);
    let before = acknowledged.unwrap_or(0);
    let next = acknowledged.map_or(0, |number| number + 1).min(LAST);
    assert!(found == states[before] || found == states[next], "{context}: {found:?}");
}

#[test]
fn what_was_acknowledged_survives_every_crash() {
    let states = states();
    let (device, simulation) = simulated();
    run(device, |_, _| {}).unwrap();
    let events = simulation.events();
    assert!(events > 40, "{events} events");
    for event in 0..events {
        for outcome in
            [CrashOutcome::LoseUnsynced, CrashOutcome::KeepAll, CrashOutcome::Random { seed: event }]
        {
            let (device, simulation) = simulated();
            simulation.set_plan(FaultPlan::none().power_loss_at(event));
            let mut acknowledged = None;
            let result = run(device.clone(), |number, _| acknowledged = Some(number));
            simulation.crash(outcome);
            let context = format!("event {event}, {outcome:?}, acknowledged {acknowledged:?}, {result:?}");
            let store =
                Store::open(device.clone(), Mode::Write).unwrap_or_else(|error| panic!("{context}: {error}"));
            check_state(&store, &states, acknowledged, &context);
            // And it works on.
            if let (true, Ok(table)) = (acknowledged >= Some(1), store.table("t")) {
                store.make_changeable(&table).unwrap();
                let mut transaction = store.begin().unwrap();
                let table = transaction.table("t").unwrap();
                let ids = all(&transaction, "t").unwrap().into_values().map(|(_, id)| id);
                let ids = UInt64Array::from_iter_values(ids);
                transaction.delete(&table, &ids).unwrap();
                transaction.commit().unwrap();
                assert_eq!(state(&store), Some(BTreeMap::new()), "{context}");
            }
        }
    }
}

#[test]
fn requests_that_fail_leave_the_state_before_or_after() {
    let states = states();
    let (device, simulation) = simulated();
    run(device, |_, _| {}).unwrap();
    for request in 0..simulation.requests() {
        let (device, simulation) = simulated();
        simulation.set_plan(FaultPlan::none().fail_request(request));
        let mut acknowledged = None;
        let result = run(device.clone(), |number, _| acknowledged = Some(number));
        let context = format!("request {request}, acknowledged {acknowledged:?}, {result:?}");
        let store = Store::open(device, Mode::Write).unwrap_or_else(|error| panic!("{context}: {error}"));
        check_state(&store, &states, acknowledged, &context);
    }
}
