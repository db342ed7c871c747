//! Indexes of tables with segments: against a model, beside others who change rows, and through power loss at every event.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::{ArrayRef, Int64Array, UInt64Array};
use nandina_device::block_on;
use nandina_simulation::{CrashOutcome, FaultPlan};
use nandina_storage::*;

use crate::changeable_rows::{Random, Row, batch, by_key, index, random_row};
use crate::changed_segments::{Rows, all, append, definition, meanwhile, rows_of, vacuum};
use crate::setup::simulated;

/// Keys are below this when they are added, and below the other when they have moved on.
const KEYS: u64 = 60;
const LAST_KEY: i64 = 200;
const GROUPS: i64 = 4;

type Model = BTreeMap<i64, Row>;

fn by_id() -> IndexDefinition {
    index("by_id", &[0], true)
}

fn by_group() -> IndexDefinition {
    index("by_group", &[1, 0], false)
}

/// A store with a table of these rows, in a segment for each slice.
fn made(segments: &[&[Row]]) -> Store {
    let (device, _simulation) = simulated();
    let store = Store::open(device, Mode::Write).unwrap();
    store.create_table(definition(), IfExists::Fail).unwrap();
    for rows in segments {
        append(&store.table("t").unwrap(), rows).unwrap();
    }
    store
}

fn row(key: i64, group: Option<i64>) -> Row {
    (key, group, format!("row {key}"))
}

fn create(store: &Store, definition: IndexDefinition) -> Result<()> {
    store.create_index(&store.table("t").unwrap(), definition)
}

fn index_names(store: &Store) -> Vec<String> {
    store.table("t").unwrap().indexes().map(|(_, index)| index.name.clone()).collect()
}

fn values(values: impl IntoIterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<Int64Array>())
}

/// Rows with these ids, wherever they are.
fn rows_with(transaction: &Transaction, table: &Table, ids: &[u64]) -> Rows {
    let (in_segments, in_heap) = by_place(ids);
    let fetched = table.fetch_blocking(&in_segments, &[0, 1, 2], &FetchOptions::default()).unwrap();
    let fetched_ids: Vec<u64> = in_segments.iter().map(|row| row.to_bits()).collect();
    let mut found = by_key(&fetched, &fetched_ids);
    let mut rows = table.row_codec().unwrap().decoder(&[0, 1, 2]).unwrap();
    let mut seen = Vec::new();
    transaction.read_rows(table, &in_heap, &mut rows, Some(&mut seen)).unwrap();
    for (key, row) in by_key(&rows.finish().unwrap(), &seen) {
        assert!(found.insert(key, row).is_none(), "key {key} is found twice");
    }
    found
}

/// What an index finds by values of its first column.
fn found(transaction: &Transaction, table: &Table, number: usize, of_first: ArrayRef) -> Model {
    let ids = transaction.find(table, number, &[of_first]).unwrap();
    assert!(ids.is_sorted());
    rows_with(transaction, table, &ids).into_iter().map(|(key, (row, _))| (key, row)).collect()
}

/// Holds what a transaction sees, and what indexes find of it, against a model.
fn check(transaction: &Transaction, model: &Model) {
    assert_eq!(&rows_of(transaction), model);
    let table = transaction.table("t").unwrap();
    for (number, index) in transaction.indexes(&table).unwrap() {
        if index.columns == [0] {
            assert_eq!(&found(transaction, &table, number, values((0..LAST_KEY).map(Some))), model);
            for key in [0, 7, 33] {
                let of_key = found(transaction, &table, number, values([Some(key)]));
                let of_key: Vec<&Row> = of_key.values().filter(|row| row.0 == key).collect();
                assert_eq!(of_key, model.get(&key).into_iter().collect::<Vec<_>>(), "key {key}");
            }
        } else {
            let groups = values((0..GROUPS).map(Some).chain([None]));
            assert_eq!(&found(transaction, &table, number, groups), model);
            check_ranges(transaction, &table, number, model);
        }
    }
}

fn check_ranges(transaction: &Transaction, table: &Table, number: usize, model: &Model) {
    for group in 0..GROUPS {
        let (equal, upper) = (vec![values([Some(group)])], Some(values([Some(20)])));
        let range = KeyRange { equal, lower: None, upper };
        let ids = transaction.find_few(table, number, &range, usize::MAX).unwrap().unwrap();
        let is_asked = |row: &Row| row.1 == Some(group) && row.0 <= 20;
        let mut of_range = rows_with(transaction, table, &ids);
        of_range.retain(|_, (row, _)| is_asked(row));
        let expected: Vec<&Row> = model.values().filter(|row| is_asked(row)).collect();
        assert_eq!(of_range.values().map(|(row, _)| row).collect::<Vec<_>>(), expected, "group {group}");
        if ids.len() > 1 {
            assert_eq!(transaction.find_few(table, number, &range, 1).unwrap(), None);
            let group = [values([Some(group)])];
            let one = MostRows { all: 1, ..MostRows::ALL };
            assert_eq!(transaction.find_up_to(table, number, &group, one).unwrap(), None);
            let none_in_segments = MostRows { in_segments: 0, ..MostRows::ALL };
            let found = transaction.find_up_to(table, number, &group, none_in_segments).unwrap();
            if found.is_some() || !by_place(&ids).0.is_empty() {
                assert_eq!(found.is_some(), by_place(&ids).0.is_empty());
            }
        }
    }
}

/// Adds a segment of keys that are not there; none can be added where there is an index.
fn add_segment(random: &mut Random, store: &Store, model: &mut Model) {
    let table = store.table("t").unwrap();
    let mut keys: BTreeSet<i64> = (0..1 + random.below(40)).map(|_| random.below(KEYS) as i64).collect();
    keys.retain(|key| !model.contains_key(key));
    let rows: Vec<Row> = keys.into_iter().map(|key| random_row(random, key)).collect();
    match append(&table, &rows) {
        Ok(()) => {
            assert!(!table.has_indexes());
            model.extend(rows.into_iter().map(|row| (row.0, row)));
        }
        Err(error) => {
            assert!(table.has_indexes() && matches!(error, StorageError::HasIndexes { .. }), "{error}");
        }
    }
}

fn index_comes_or_goes(random: &mut Random, store: &Store) {
    let definition = if random.below(2) == 0 { by_id() } else { by_group() };
    if index_names(store).contains(&definition.name) {
        store.drop_index(&store.table("t").unwrap(), &definition.name).unwrap();
    } else {
        create(store, definition).unwrap();
    }
}

/// One statement on the transaction and the model; nothing is changed by one that fails.
fn change(random: &mut Random, transaction: &mut Transaction, model: &mut Model, is_unique: bool) {
    let table = transaction.table("t").unwrap();
    let (share, seen) = (1 + random.below(6), all(transaction, "t").unwrap());
    let picked: Vec<(Row, u64)> = seen.into_values().filter(|_| random.below(share) == 0).collect();
    let ids = UInt64Array::from_iter_values(picked.iter().map(|(_, id)| *id));
    let (before, mut changed) = (transaction.savepoint(), model.clone());
    let (result, fits) = match random.below(4) {
        0 => {
            let mut keys: Vec<i64> = (0..random.below(5)).map(|_| random.below(KEYS) as i64).collect();
            if !is_unique {
                keys.retain(|key| !model.contains_key(key));
                keys.sort_unstable();
                keys.dedup();
            }
            let rows: Vec<Row> = keys.iter().map(|key| random_row(random, *key)).collect();
            let fits = rows.iter().all(|row| changed.insert(row.0, row.clone()).is_none());
            (transaction.insert(&table, &batch(&rows)), fits)
        }
        1 => {
            assert_eq!(transaction.delete(&table, &ids).unwrap(), picked.len() as u64);
            assert_eq!(transaction.delete(&table, &ids).unwrap(), 0, "they are deleted already");
            picked.iter().for_each(|(row, _)| drop(changed.remove(&row.0)));
            (Ok(()), true)
        }
        // Of all picked rows the keys move by one: none of them may be in the way of another one.
        kind => {
            let by = i64::from(kind == 2 && is_unique);
            let rows: Vec<Row> = picked.iter().map(|(row, _)| random_row(random, row.0 + by)).collect();
            picked.iter().for_each(|(row, _)| drop(changed.remove(&row.0)));
            let fits = rows.iter().all(|row| changed.insert(row.0, row.clone()).is_none());
            let mut deferred = Deferred::default();
            let updated = transaction.update(&table, &ids, &batch(&rows), &mut deferred);
            (updated.and_then(|()| transaction.add_deferred(&table, deferred)), fits)
        }
    };
    match result {
        Ok(()) => {
            assert!(fits, "a key that is there twice");
            *model = changed;
        }
        Err(StorageError::DuplicateKey { index, key, .. }) => {
            assert!(!fits && index == "by_id" && key.starts_with("id = "), "{index} {key}");
            transaction.roll_back_to(before).unwrap();
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn random_changes_match_a_model() {
    for seed in 1..=12 {
        let mut random = Random(seed * 15_485_863);
        let (device, _simulation) = simulated();
        let mut store = Store::open(device.clone(), Mode::Write).unwrap();
        store.set_pool_bytes(128 << 10).unwrap();
        store.create_table(definition(), IfExists::Fail).unwrap();
        let mut model = Model::new();
        for _ in 0..36 {
            match random.below(8) {
                0..3 => add_segment(&mut random, &store, &mut model),
                3..5 => index_comes_or_goes(&mut random, &store),
                5 => {
                    let (segments, has_indexes) =
                        (store.table("t").unwrap().rows(), store.table("t").unwrap().has_indexes());
                    vacuum(&store).unwrap();
                    let expected = if has_indexes { segments } else { model.len() as u64 };
                    assert_eq!(store.table("t").unwrap().rows(), expected);
                }
                6 => {
                    drop(store);
                    store = Store::open(device.clone(), Mode::Write).unwrap();
                }
                _ => {}
            }
            let (other, seen) = (store.begin().unwrap(), model.clone());
            store.make_changeable(&store.table("t").unwrap()).unwrap();
            let is_unique = index_names(&store).contains(&"by_id".to_owned());
            let (mut transaction, mut changed) = (store.begin().unwrap(), model.clone());
            for _ in 0..random.below(4) {
                change(&mut random, &mut transaction, &mut changed, is_unique);
                check(&transaction, &changed);
            }
            if random.below(4) > 0 {
                transaction.commit().unwrap();
                model = changed;
            } else {
                drop(transaction);
            }
            check(&other, &seen);
            check(&store.begin().unwrap(), &model);
        }
    }
}

fn id_of(store: &Store, key: i64) -> UInt64Array {
    UInt64Array::from(vec![all(&store.begin().unwrap(), "t").unwrap()[&key].1])
}

fn insert(store: &Store, rows: &[Row]) -> Result<()> {
    let mut transaction = store.begin()?;
    transaction.insert(&transaction.table("t")?, &batch(rows))?;
    transaction.commit()
}

#[test]
fn keys_of_segments_are_those_of_no_other_row() {
    let store = made(&[&[row(1, None), row(2, Some(1))], &[row(3, Some(1)), row(4, Some(2))]]);
    create(&store, by_id()).unwrap();
    let table = store.table("t").unwrap();
    let duplicate =
        |key: i64| format!("table \"t\" has a row with id = {key} already, which is unique (by_id)");
    for key in 1..=4 {
        assert_eq!(insert(&store, &[row(key, None)]).unwrap_err().to_string(), duplicate(key));
    }
    insert(&store, &[row(5, None)]).unwrap();
    // Who deletes a row may still be rolled back.
    let mut first = store.begin().unwrap();
    assert_eq!(first.delete(&table, &id_of(&store, 2)).unwrap(), 1);
    let error = insert(&store, &[row(2, None)]).unwrap_err();
    assert!(error.is_conflict(), "{error}");
    first.insert(&table, &batch(&[row(2, Some(3))])).unwrap();
    assert_eq!(first.insert(&table, &batch(&[row(2, None)])).unwrap_err().to_string(), duplicate(2));
    drop(first);
    assert_eq!(insert(&store, &[row(2, None)]).unwrap_err().to_string(), duplicate(2));
    // A key that is deleted may come again, and is found once.
    let early = store.begin().unwrap();
    let mut second = store.begin().unwrap();
    second.delete(&table, &id_of(&store, 2)).unwrap();
    second.insert(&table, &batch(&[row(2, Some(3))])).unwrap();
    second.commit().unwrap();
    let group_of_two = |transaction: &Transaction| {
        found(transaction, &table, 0, values([Some(2)])).values().map(|row| row.1).collect::<Vec<_>>()
    };
    assert_eq!(group_of_two(&store.begin().unwrap()), [Some(3)]);
    assert_eq!(group_of_two(&early), [Some(1)]);
    assert_eq!(insert(&store, &[row(2, None)]).unwrap_err().to_string(), duplicate(2));
    drop(early);
    // One that moves to the key of a segment, and two that change places.
    let mut third = store.begin().unwrap();
    let update = |transaction: &mut Transaction, ids: &[i64], rows: &[Row]| -> Result<()> {
        let seen = all(transaction, "t")?;
        let ids = UInt64Array::from_iter_values(ids.iter().map(|key| seen[key].1));
        let mut deferred = Deferred::default();
        transaction.update(&table, &ids, &batch(rows), &mut deferred)?;
        transaction.add_deferred(&table, deferred)
    };
    let before = third.savepoint();
    let error = update(&mut third, &[5], &[row(3, None)]).unwrap_err().to_string();
    assert_eq!(error, duplicate(3));
    third.roll_back_to(before).unwrap();
    update(&mut third, &[3, 4], &[row(4, None), row(3, None)]).unwrap();
    update(&mut third, &[1], &[row(9, None)]).unwrap();
    third.commit().unwrap();
    let mut absent = store.begin().unwrap();
    let rows = [row(1, None), row(3, None), row(2, None), row(9, None), row(1, None)];
    let added = absent.insert_absent(&table, &batch(&rows), None).unwrap();
    assert_eq!(added.iter().flatten().collect::<Vec<_>>(), [true, false, false, false, false]);
    absent.commit().unwrap();
    let keys: Vec<i64> = rows_of(&store.begin().unwrap()).into_keys().collect();
    assert_eq!(keys, [1, 2, 3, 4, 5, 9]);
}

#[test]
fn rows_that_have_a_key_twice_are_told() {
    let store = made(&[&[row(1, None), row(2, None), row(3, Some(7))], &[row(4, Some(7)), row(5, Some(8))]]);
    let unique = || index("one_of_group", &[1], true);
    let message = |key: i64| {
        format!("table \"t\" has a row with group = {key} already, which is unique (one_of_group)")
    };
    // Of two segments, and of a segment and the heap.
    assert_eq!(create(&store, unique()).unwrap_err().to_string(), message(7));
    assert!(!store.table("t").unwrap().has_indexes());
    append(&store.table("t").unwrap(), &[row(6, None)]).unwrap();
    let mut transaction = store.begin().unwrap();
    let table = transaction.table("t").unwrap();
    transaction.delete(&table, &id_of(&store, 4)).unwrap();
    transaction.insert(&table, &batch(&[row(7, Some(8)), row(8, None)])).unwrap();
    transaction.commit().unwrap();
    assert_eq!(create(&store, unique()).unwrap_err().to_string(), message(8));
    let mut transaction = store.begin().unwrap();
    transaction.delete(&transaction.table("t").unwrap(), &id_of(&store, 5)).unwrap();
    transaction.commit().unwrap();
    // Nulls are no other row's keys.
    create(&store, unique()).unwrap();
    assert_eq!(insert(&store, &[row(9, Some(7))]).unwrap_err().to_string(), message(7));
    insert(&store, &[row(9, None), row(10, Some(9))]).unwrap();
    let (transaction, table) = (store.begin().unwrap(), store.table("t").unwrap());
    let nulls = found(&transaction, &table, 0, values([None]));
    assert_eq!(nulls.into_keys().collect::<Vec<_>>(), [1, 2, 6, 8, 9]);
    let error = create(&store, index("one_of_group", &[0], false)).unwrap_err().to_string();
    assert!(error.contains("there is an index \"one_of_group\" already"), "{error}");
}

#[test]
fn segments_stay_as_long_as_there_is_an_index() {
    let rows: Vec<Row> = (0..30).map(|key| row(key, Some(key % 4))).collect();
    let store = made(&[&rows[..10], &rows[10..20]]);
    let writer = |mode: WriteMode| store.table("t").unwrap().writer(mode, WriteOptions::default());
    let write = |writer: TableWriter| -> Result<CommitSummary> {
        let mut lane = writer.lane();
        block_on(lane.append(&batch(&rows[20..])))?;
        block_on(lane.finish())?;
        block_on(writer.commit())
    };
    let is_refused = |result: Result<CommitSummary>| matches!(result, Err(StorageError::HasIndexes { .. }));
    // Those who have begun to write, or to vacuum, come too late.
    let one = writer(WriteMode::Append).unwrap();
    store.make_changeable(&store.table("t").unwrap()).unwrap();
    insert(&store, &rows[20..]).unwrap();
    let other = writer(WriteMode::Overwrite).unwrap();
    assert!(!meanwhile(&store, || create(&store, by_id()).unwrap()).unwrap());
    assert!(is_refused(write(one)) && is_refused(write(other)));
    assert!(matches!(writer(WriteMode::Append), Err(StorageError::HasIndexes { .. })));
    assert_eq!((vacuum(&store).unwrap(), store.vacuum_work("t").unwrap()), (CommitSummary::default(), None));
    let model: Model = rows.iter().map(|row| (row.0, row.clone())).collect();
    check(&store.begin().unwrap(), &model);
    assert_eq!(store.table("t").unwrap().rows(), 20);
    // They are put together once the index has gone, and it can come again.
    store.drop_index(&store.table("t").unwrap(), "by_id").unwrap();
    assert_eq!(vacuum(&store).unwrap().rows, 30);
    create(&store, by_id()).unwrap();
    create(&store, by_group()).unwrap();
    check(&store.begin().unwrap(), &model);
}

/// One that sees rows which were deleted before an index has come does not find them there.
#[test]
fn who_has_begun_before_an_index_does_without() {
    let store = made(&[&[row(1, Some(1)), row(2, Some(1))]]);
    // The row store is open before.
    store
        .create_table(TableDefinition::new("u", definition().schema).with_rows(Vec::new()), IfExists::Fail)
        .unwrap();
    let mut old = store.begin().unwrap();
    store.make_changeable(&store.table("t").unwrap()).unwrap();
    let mut transaction = store.begin().unwrap();
    transaction.delete(&transaction.table("t").unwrap(), &id_of(&store, 1)).unwrap();
    transaction.commit().unwrap();
    create(&store, by_id()).unwrap();
    let table = old.table("t").unwrap();
    assert!(table.has_changeable_rows() && old.indexes(&table).unwrap().is_empty());
    assert_eq!(rows_of(&old).len(), 2);
    // What it adds has keys all the same.
    old.insert(&table, &batch(&[row(3, Some(1))])).unwrap();
    let error = old.insert(&table, &batch(&[row(2, None)])).unwrap_err().to_string();
    assert!(error.contains("has a row with id = 2 already"), "{error}");
    drop(old);
    let model: Model = [(2, row(2, Some(1)))].into();
    check(&store.begin().unwrap(), &model);
}

#[test]
fn an_index_is_made_while_others_change_rows() {
    let rows: Vec<Row> = (0..KEYS as i64).map(|key| row(key, Some(key % 4))).collect();
    let store = made(&[&rows[..20], &rows[20..]]);
    store.make_changeable(&store.table("t").unwrap()).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (store, is_over) = (&store, &is_over);
            scope.spawn(move || {
                let mut random = Random(thread * 7919 + 1);
                while !is_over.load(Ordering::Relaxed) {
                    let mut transaction = store.begin().unwrap();
                    let key = 2 * random.below(KEYS / 2) as i64 + thread as i64;
                    match change_one(&mut random, &mut transaction, key) {
                        Ok(()) if random.below(4) > 0 => transaction.commit().unwrap(),
                        Ok(()) => drop(transaction),
                        Err(error) => assert!(error.is_conflict(), "{error}"),
                    }
                }
            });
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..5 {
                create(&store, by_id()).unwrap();
                create(&store, by_group()).unwrap();
                for _ in 0..10 {
                    let transaction = store.begin().unwrap();
                    check(&transaction, &rows_of(&transaction));
                }
                store.drop_index(&store.table("t").unwrap(), "by_id").unwrap();
                store.drop_index(&store.table("t").unwrap(), "by_group").unwrap();
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn rows_with_nulls_stay_in_an_index_that_is_made_while_their_deletion_is_rolled_back() {
    let rows: Vec<Row> = (0..2000).map(|key| row(key, None)).collect();
    let store = made(&[]);
    store.make_changeable(&store.table("t").unwrap()).unwrap();
    let mut transaction = store.begin().unwrap();
    transaction.insert(&transaction.table("t").unwrap(), &batch(&rows)).unwrap();
    transaction.commit().unwrap();
    let ids: Vec<u64> = all(&store.begin().unwrap(), "t").unwrap().values().map(|(_, id)| *id).collect();
    let model: Model = rows.into_iter().map(|row| (row.0, row)).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(3);
            while !is_over.load(Ordering::Relaxed) {
                let mut transaction = store.begin().unwrap();
                let table = transaction.table("t").unwrap();
                let some = (0..8).map(|_| ids[random.below(ids.len() as u64) as usize]);
                transaction.delete(&table, &UInt64Array::from_iter_values(some)).unwrap();
            }
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for is_unique in [false, true, false, true] {
                create(&store, index("by_group", &[1], is_unique)).unwrap();
                let transaction = store.begin().unwrap();
                let table = transaction.table("t").unwrap();
                for (number, _) in transaction.indexes(&table).unwrap() {
                    assert_eq!(found(&transaction, &table, number, values([None])), model);
                }
                drop(transaction);
                store.drop_index(&store.table("t").unwrap(), "by_group").unwrap();
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Adds the row with a key, or changes or deletes it where it is there.
fn change_one(random: &mut Random, transaction: &mut Transaction, key: i64) -> Result<()> {
    let table = transaction.table("t")?;
    let new = batch(&[random_row(random, key)]);
    let Some((_, id)) = all(transaction, "t")?.remove(&key) else { return transaction.insert(&table, &new) };
    let ids = UInt64Array::from(vec![id]);
    if random.below(2) == 0 {
        return transaction.delete(&table, &ids).map(drop);
    }
    let mut deferred = Deferred::default();
    transaction.update(&table, &ids, &new, &mut deferred)?;
    transaction.add_deferred(&table, deferred)
}

/// Rows, and names of indexes.
type State = Option<(Model, Vec<String>)>;

fn state(store: &Store) -> State {
    store.has_table("t").then(|| {
        let transaction = store.begin().unwrap();
        let rows = rows_of(&transaction);
        check(&transaction, &rows);
        (rows, index_names(store))
    })
}

/// Statements; `done` is told after each that was acknowledged.
fn run(device: nandina_device::Device, mut done: impl FnMut(usize, &Store)) -> Result<()> {
    let rows: Vec<Row> = (0..40).map(|key| (key, Some(key % 3), "x".repeat(key as usize))).collect();
    let store = Store::open(device, Mode::Write)?;
    done(0, &store);
    store.create_table(definition(), IfExists::Fail)?;
    done(1, &store);
    append(&store.table("t")?, &rows)?;
    done(2, &store);
    store.create_index(&store.table("t")?, by_id())?;
    done(3, &store);
    let mut transaction = store.begin()?;
    let table = transaction.table("t")?;
    let seen = all(&transaction, "t")?;
    let ids = |is_wanted: &dyn Fn(i64) -> bool| {
        let wanted = seen.values().filter(|(row, _)| is_wanted(row.0)).map(|(_, id)| *id);
        UInt64Array::from_iter_values(wanted)
    };
    transaction.delete(&table, &ids(&|key| key % 4 == 0))?;
    let mut deferred = Deferred::default();
    let changed = [row(2, None), row(1, Some(2))];
    transaction.update(&table, &ids(&|key| key == 1 || key == 2), &batch(&changed), &mut deferred)?;
    transaction.add_deferred(&table, deferred)?;
    transaction.insert(&table, &batch(&[row(4, None), row(50, Some(1))]))?;
    transaction.commit()?;
    done(4, &store);
    store.create_index(&store.table("t")?, by_group())?;
    done(5, &store);
    store.drop_index(&store.table("t")?, "by_id")?;
    done(6, &store);
    store.drop_index(&store.table("t")?, "by_group")?;
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
            if acknowledged >= Some(2) && !index_names(&store).contains(&"by_id".to_owned()) {
                create(&store, by_id()).unwrap_or_else(|error| panic!("{context}: {error}"));
                assert!(insert(&store, &[row(3, None)]).is_err(), "{context}");
                check(&store.begin().unwrap(), &rows_of(&store.begin().unwrap()));
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

#[test]
fn indexes_are_in_copies_and_for_those_who_read() {
    let (device, _simulation) = simulated();
    let (copy, _copy) = simulated();
    let rows: Vec<Row> = (0..30).map(|key| row(key, Some(key % 4))).collect();
    let mut model: Model = rows.iter().map(|row| (row.0, row.clone())).collect();
    {
        let store = Store::open(device.clone(), Mode::Write).unwrap();
        store.create_table(definition(), IfExists::Fail).unwrap();
        append(&store.table("t").unwrap(), &rows).unwrap();
        create(&store, by_id()).unwrap();
        create(&store, by_group()).unwrap();
        let mut transaction = store.begin().unwrap();
        transaction.delete(&transaction.table("t").unwrap(), &id_of(&store, 17)).unwrap();
        transaction.commit().unwrap();
        model.remove(&17);
        store.backup(&copy).unwrap();
    }
    for device in [device, copy] {
        for mode in [Mode::ReadOnly, Mode::Write] {
            let store = Store::open(device.clone(), mode).unwrap();
            let transaction = store.begin().unwrap();
            let table = transaction.table("t").unwrap();
            assert_eq!(transaction.indexes(&table).unwrap().len(), 2);
            check(&transaction, &model);
        }
    }
}
