//! Tables whose rows are changed one by one: against a model, with indexes, and through crashes between the steps of making and
//! dropping them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use nandina_simulation::{CrashOutcome, FaultPlan};
use nandina_storage::*;

use crate::setup::simulated;

pub(crate) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("group", DataType::Int64, true),
        Field::new("text", DataType::Utf8, true),
    ]))
}

pub(crate) fn index(name: &str, columns: &[usize], is_unique: bool) -> IndexDefinition {
    IndexDefinition { name: name.to_owned(), columns: columns.to_vec(), is_unique, is_primary: false }
}

fn definition(name: &str) -> TableDefinition {
    TableDefinition::new(name, schema())
        .with_rows(vec![index("by_id", &[0], true), index("by_group", &[1, 0], false)])
}

pub(crate) type Row = (i64, Option<i64>, String);

pub(crate) fn batch(rows: &[Row]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|row| Some(row.0)).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|row| row.1).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|row| Some(row.2.as_str())).collect::<StringArray>()),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

/// All rows that a transaction sees, by their first column, and their ids.
fn all(transaction: &Transaction, table: &Table) -> BTreeMap<i64, (Row, u64)> {
    let pages = transaction.pages(table).unwrap();
    let mut rows = table.row_codec().unwrap().decoder(&[0, 1, 2]).unwrap();
    let mut ids = Vec::new();
    transaction.read_pages(table, pages.slice(0..pages.len()), &mut rows, Some(&mut ids)).unwrap();
    by_key(&rows.finish().unwrap(), &ids)
}

pub(crate) fn by_key(rows: &RecordBatch, ids: &[u64]) -> BTreeMap<i64, (Row, u64)> {
    let (keys, groups) =
        (rows.column(0).as_primitive::<Int64Type>(), rows.column(1).as_primitive::<Int64Type>());
    let texts = rows.column(2).as_string::<i32>();
    let row = |at: usize| {
        let group = arrow_array::Array::is_valid(groups, at).then(|| groups.value(at));
        (keys.value(at), ((keys.value(at), group, texts.value(at).to_owned()), ids[at]))
    };
    let found: BTreeMap<_, _> = (0..rows.num_rows()).map(row).collect();
    assert_eq!(found.len(), rows.num_rows(), "each key once");
    found
}

fn found(transaction: &Transaction, table: &Table, index: usize, value: i64) -> BTreeMap<i64, (Row, u64)> {
    let value: ArrayRef = Arc::new(Int64Array::from(vec![value]));
    let ids = transaction.find(table, index, &[value]).unwrap();
    let mut rows = table.row_codec().unwrap().decoder(&[0, 1, 2]).unwrap();
    let mut seen = Vec::new();
    transaction.read_rows(table, &ids, &mut rows, Some(&mut seen)).unwrap();
    by_key(&rows.finish().unwrap(), &seen)
}

fn check(transaction: &Transaction, table: &Table, model: &BTreeMap<i64, Row>) {
    let seen = all(transaction, table);
    let rows: BTreeMap<i64, Row> = seen.iter().map(|(key, (row, _))| (*key, row.clone())).collect();
    assert_eq!(&rows, model);
    for key in 0..60 {
        let of_key = found(transaction, table, 0, key);
        let of_key: Vec<&Row> = of_key.values().map(|(row, _)| row).filter(|row| row.0 == key).collect();
        assert_eq!(of_key, model.get(&key).into_iter().collect::<Vec<_>>(), "key {key}");
    }
    for group in 0..4 {
        let of_group = found(transaction, table, 1, group);
        let of_group: Vec<&Row> =
            of_group.values().map(|(row, _)| row).filter(|row| row.1 == Some(group)).collect();
        let expected: Vec<&Row> = model.values().filter(|row| row.1 == Some(group)).collect();
        assert_eq!(of_group, expected, "group {group}");
    }
}

pub(crate) struct Random(pub u64);

impl Random {
    /// xorshift64*
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % bound
    }
}

pub(crate) fn random_row(random: &mut Random, key: i64) -> Row {
    let group = (random.below(5) > 0).then(|| random.below(4) as i64);
    let length = if random.below(40) == 0 { 30_000 } else { random.below(80) };
    (key, group, "t".repeat(length as usize))
}

/// One statement on the transaction and the model; nothing is changed by one that fails.
fn step(random: &mut Random, transaction: &mut Transaction, table: &Table, model: &mut BTreeMap<i64, Row>) {
    let seen = all(transaction, table);
    let before = transaction.savepoint();
    let picked: Vec<(Row, u64)> = seen.values().filter(|_| random.below(3) == 0).cloned().collect();
    let ids = UInt64Array::from_iter_values(picked.iter().map(|(_, id)| *id));
    match random.below(4) {
        0 => {
            let keys: Vec<i64> = (0..random.below(4)).map(|_| random.below(60) as i64).collect();
            let rows: Vec<Row> = keys.iter().map(|key| random_row(random, *key)).collect();
            let mut changed = model.clone();
            let fits = rows.iter().all(|row| changed.insert(row.0, row.clone()).is_none());
            match transaction.insert(table, &batch(&rows)) {
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
        1 => {
            assert_eq!(transaction.delete(table, &ids).unwrap(), picked.len() as u64);
            picked.iter().for_each(|(row, _)| drop(model.remove(&row.0)));
        }
        // Of all picked rows the keys move by one: none of them may be in the way of another one.
        kind => {
            let by = if kind == 2 { 0 } else { 1 };
            let rows: Vec<Row> = picked.iter().map(|(row, _)| random_row(random, row.0 + by)).collect();
            let mut changed = model.clone();
            picked.iter().for_each(|(row, _)| drop(changed.remove(&row.0)));
            let fits = rows.iter().all(|row| changed.insert(row.0, row.clone()).is_none());
            let mut deferred = Deferred::default();
            transaction.update(table, &ids, &batch(&rows), &mut deferred).unwrap();
            match transaction.add_deferred(table, deferred) {
                Ok(()) => {
                    assert!(fits, "a key that is there twice");
                    *model = changed;
                }
                Err(StorageError::DuplicateKey { .. }) => {
                    assert!(!fits);
                    transaction.roll_back_to(before).unwrap();
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn random_statements_match_a_model() {
    for seed in 1..=12 {
        let mut random = Random(seed * 7919);
        let (device, _simulation) = simulated();
        let mut store = Store::open(device.clone(), Mode::Write).unwrap();
        store.set_pool_bytes(128 << 10).unwrap();
        let mut table = store.create_table(definition("t"), IfExists::Fail).unwrap();
        let mut model = BTreeMap::new();
        for _ in 0..40 {
            let mut transaction = store.begin().unwrap();
            let mut changed = model.clone();
            for _ in 0..random.below(4) {
                step(&mut random, &mut transaction, &table, &mut changed);
            }
            // Others do not see it yet.
            let other = store.begin().unwrap();
            if random.below(4) > 0 {
                transaction.commit().unwrap();
                check(&store.begin().unwrap(), &table, &changed);
                check(&other, &table, &model);
                model = changed;
            } else {
                drop(transaction);
                check(&other, &table, &model);
            }
            drop(other);
            if random.below(8) == 0 {
                drop((store, table));
                store = Store::open(device.clone(), Mode::Write).unwrap();
                table = store.table("t").unwrap();
                check(&store.begin().unwrap(), &table, &model);
            }
        }
    }
}

#[test]
fn a_writer_that_comes_second_is_told() {
    let (device, _simulation) = simulated();
    let store = Store::open(device, Mode::Write).unwrap();
    let table = store.create_table(definition("t"), IfExists::Fail).unwrap();
    let mut first = store.begin().unwrap();
    first.insert(&table, &batch(&[(1, None, "a".to_owned())])).unwrap();
    let mut second = store.begin().unwrap();
    let error = second.insert(&table, &batch(&[(1, None, "b".to_owned())])).unwrap_err();
    assert!(error.to_string().contains("another transaction"), "{error}");
    drop(second);
    first.commit().unwrap();
    let mut third = store.begin().unwrap();
    let error = third.insert(&table, &batch(&[(1, None, "b".to_owned())])).unwrap_err();
    assert_eq!(error.to_string(), "table \"t\" has a row with id = 1 already, which is unique (by_id)");
    let error = third.insert(&table, &RecordBatch::new_empty(Arc::new(Schema::empty()))).unwrap_err();
    assert!(error.to_string().contains("columns"), "{error}");
}

#[test]
fn indexes_come_and_go() {
    let (device, _simulation) = simulated();
    let store = Store::open(device.clone(), Mode::Write).unwrap();
    let before = store
        .create_table(TableDefinition::new("t", schema()).with_rows(Vec::new()), IfExists::Fail)
        .unwrap();
    let rows: Vec<Row> = (0..3000).map(|key| (key, Some(key % 7), format!("text {key}"))).collect();
    let mut transaction = store.begin().unwrap();
    transaction.insert(&before, &batch(&rows)).unwrap();
    transaction.commit().unwrap();
    store.create_index(&before, index("by_id", &[0], true)).unwrap();
    let error = store.create_index(&before, index("by_id", &[1], false)).unwrap_err().to_string();
    assert!(error.contains("there is an index"), "{error}");
    let error = store.create_index(&before, index("by_group", &[1], true)).unwrap_err().to_string();
    assert!(error.starts_with("table \"t\" has a row with group = "), "{error}");
    store.create_index(&before, index("by_group", &[1, 0], false)).unwrap();
    let table = store.table("t").unwrap();
    let names: Vec<&str> = table.indexes().map(|(_, index)| index.name.as_str()).collect();
    assert_eq!(names, ["by_id", "by_group"]);
    let transaction = store.begin().unwrap();
    assert_eq!(found(&transaction, &table, 0, 2999).len(), 1);
    assert_eq!(found(&transaction, &table, 1, 3).len(), 429);
    drop(transaction);
    store.drop_index(&table, "by_group").unwrap();
    assert!(store.drop_index(&table, "by_group").is_err());
    drop((before, table, store));
    let store = Store::open(device, Mode::Write).unwrap();
    let table = store.table("t").unwrap();
    assert_eq!(found(&store.begin().unwrap(), &table, 0, 17).len(), 1);
    assert_eq!(table.indexes().count(), 1);
}

/// Bytes of the file of pages.
fn page_file_bytes(device: &nandina_device::Device) -> u64 {
    device.read_small("rows.pages").unwrap().len() as u64
}

#[test]
fn what_is_dropped_is_used_again() {
    let (device, _simulation) = simulated();
    let store = Store::open(device.clone(), Mode::Write).unwrap();
    let fill = |name: &str| {
        let table = store.create_table(definition(name), IfExists::Fail).unwrap();
        let rows: Vec<Row> = (0..2000).map(|key| (key, Some(key % 7), "x".repeat(200))).collect();
        let mut transaction = store.begin().unwrap();
        transaction.insert(&table, &batch(&rows)).unwrap();
        transaction.insert(&table, &batch(&[(-1, None, "y".repeat(100_000))])).unwrap();
        transaction.commit().unwrap();
        let mut transaction = store.begin().unwrap();
        let ids: Vec<u64> = all(&transaction, &table).values().map(|(_, id)| *id).take(500).collect();
        transaction.delete(&table, &UInt64Array::from(ids)).unwrap();
        transaction.commit().unwrap();
    };
    fill("first");
    store.drop_table("first").unwrap();
    fill("second");
    let bytes = page_file_bytes(&device);
    for _ in 0..4 {
        store.drop_table("second").unwrap();
        fill("second");
    }
    let grown = page_file_bytes(&device);
    assert!(grown <= bytes + (64 << 10), "{bytes} bytes became {grown}");
    // Not while somebody may still see it.
    let reader = store.begin().unwrap();
    let table = store.table("second").unwrap();
    store.drop_table("second").unwrap();
    fill("third");
    assert_eq!(all(&reader, &table).len(), 1501);
    drop((reader, table));
    store.drop_table("third").unwrap();
    fill("fourth");
    assert!(page_file_bytes(&device) <= 2 * grown + (64 << 10));
}

/// Rows of each table, and the names of its indexes.
type State = Vec<(String, BTreeMap<i64, Row>, Vec<String>)>;

fn state(store: &Store) -> State {
    let transaction = store.begin().unwrap();
    let of_table = |name: String| {
        let table = transaction.snapshot().table(&name).unwrap();
        let seen = all(&transaction, &table);
        let mut indexes = Vec::new();
        for (number, index) in table.indexes() {
            // Each key leads to its row.
            for (row, id) in seen.values() {
                let values: Vec<ArrayRef> = match index.columns.as_slice() {
                    [0] => vec![Arc::new(Int64Array::from(vec![row.0]))],
                    _ => {
                        vec![Arc::new(Int64Array::from(vec![row.1])), Arc::new(Int64Array::from(vec![row.0]))]
                    }
                };
                assert!(transaction.find(&table, number, &values).unwrap().contains(id), "{name} {row:?}");
            }
            indexes.push(index.name.clone());
        }
        (name, seen.into_iter().map(|(key, (row, _))| (key, row)).collect(), indexes)
    };
    store.table_names().into_iter().map(of_table).collect()
}

/// Statements; `done` is told after each that was acknowledged.
fn run(device: nandina_device::Device, mut done: impl FnMut(usize, &Store)) -> Result<()> {
    let store = Store::open(device, Mode::Write)?;
    done(0, &store);
    let rows: Vec<Row> = (0..60).map(|key| (key, Some(key % 3), "x".repeat(key as usize * 5))).collect();
    let new = store.new_rows(definition("a"), IfExists::Fail)?;
    let mut transaction = new.begin();
    transaction.insert(new.table(), &batch(&rows))?;
    transaction.commit()?;
    let table = new.finish()?;
    done(1, &store);
    let mut transaction = store.begin()?;
    transaction.insert(&table, &batch(&[(100, None, "y".repeat(9000))]))?;
    let ids: Vec<u64> =
        all(&transaction, &table).values().filter(|(row, _)| row.0 % 2 == 0).map(|(_, id)| *id).collect();
    transaction.delete(&table, &UInt64Array::from(ids))?;
    transaction.commit()?;
    done(2, &store);
    store.create_index(&table, index("by_text_less", &[0], false))?;
    done(3, &store);
    store.drop_index(&table, "by_group")?;
    done(4, &store);
    let mut transaction = store.begin()?;
    let seen = all(&transaction, &table);
    let moved: Vec<Row> = seen.values().map(|(row, _)| (row.0 + 1, row.1, String::new())).collect();
    let mut deferred = Deferred::default();
    let ids = UInt64Array::from_iter_values(seen.values().map(|(_, id)| *id));
    transaction.update(&table, &ids, &batch(&moved), &mut deferred)?;
    transaction.add_deferred(&table, deferred)?;
    transaction.commit()?;
    done(5, &store);
    store.create_table(definition("b"), IfExists::Fail)?;
    done(6, &store);
    drop(table);
    store.drop_table("a")?;
    done(7, &store);
    Ok(())
}

const LAST: usize = 7;

#[test]
fn what_was_acknowledged_survives_every_crash() {
    let (device, simulation) = simulated();
    let mut states = Vec::new();
    run(device, |number, store| {
        assert_eq!(number, states.len());
        states.push(state(store));
    })
    .unwrap();
    assert_eq!(states.len(), LAST + 1);
    drop(simulation);
    let (device, simulation) = simulated();
    run(device, |_, _| {}).unwrap();
    let events = simulation.events();
    assert!(events > 60, "{events} events");
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
            store.create_table(definition("afterwards"), IfExists::Fail).unwrap();
            store.drop_table("afterwards").unwrap();
        }
    }
}

#[test]
fn requests_that_fail_leave_the_state_before_or_after() {
    let (device, simulation) = simulated();
    let mut states = Vec::new();
    run(device, |_, store| states.push(state(store))).unwrap();
    drop(simulation);
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

fn check_state(store: &Store, states: &[State], acknowledged: Option<usize>, context: &str) {
    let found = state(store);
    let before = acknowledged.unwrap_or(0);
    let next = acknowledged.map_or(0, |number| number + 1).min(LAST);
    assert!(found == states[before] || found == states[next], "{context}: {found:?}");
}
