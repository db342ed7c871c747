//! Changes of what tables are: what they leave of rows and of those who are reading and writing them, and power loss at every event.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt64Array};
use arrow_cast::display::array_value_to_string;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use nandina_device::block_on;
use nandina_simulation::{CrashOutcome, FaultPlan};
use nandina_storage::*;

use crate::changeable_rows::{Row, batch, schema};
use crate::setup::simulated;

/// Rows of a table as a transaction sees them, as texts, sorted.
fn rows_of(transaction: &Transaction, name: &str) -> Vec<String> {
    let table = transaction.table(name).unwrap();
    let has_heap = table.has_changeable_rows();
    let mut batches = Vec::new();
    if table.has_segments() {
        let deleted = has_heap.then(|| Arc::new(transaction.deleted_rows(&table).unwrap()));
        let mut reader = table.scan(ScanOptions { deleted, ..ScanOptions::default() }).unwrap().reader();
        while let Some(rows) = reader.next_blocking() {
            batches.push(rows.unwrap());
        }
    }
    if has_heap {
        let pages = transaction.pages(&table).unwrap();
        let columns: Vec<usize> = (0..table.schema().fields().len()).collect();
        let mut rows = table.row_codec().unwrap().decoder(&columns).unwrap();
        transaction.read_pages(&table, pages.slice(0..pages.len()), &mut rows, None).unwrap();
        batches.push(rows.finish().unwrap());
    }
    let mut rows = Vec::new();
    for batch in &batches {
        for row in 0..batch.num_rows() {
            let value = |column: &ArrayRef| array_value_to_string(column, row).unwrap();
            rows.push(batch.columns().iter().map(value).collect::<Vec<_>>().join(","));
        }
    }
    rows.sort();
    rows
}

fn write(writer: &TableWriter, rows: &RecordBatch) -> Result<()> {
    let mut lane = writer.lane();
    block_on(lane.append(rows))?;
    block_on(lane.finish())
}

fn append(table: &Table, rows: &RecordBatch) -> Result<()> {
    let writer = table.writer(WriteMode::Append, WriteOptions::default())?;
    write(&writer, rows)?;
    block_on(writer.commit()).map(drop)
}

fn some(keys: std::ops::Range<i64>) -> Vec<Row> {
    keys.map(|key| (key, Some(key % 3), format!("row {key}"))).collect()
}

fn named(names: [&str; 3], required: [bool; 3]) -> SchemaRef {
    let fields = schema()
        .fields()
        .iter()
        .zip(names)
        .zip(required)
        .map(|((field, name), required)| field.as_ref().clone().with_name(name).with_nullable(!required))
        .collect::<Vec<_>>();
    Arc::new(Schema::new(fields))
}

fn change(name: &str, schema: SchemaRef, rules: &TableRules) -> TableChange {
    TableChange {
        name: name.to_owned(),
        schema,
        rules: rules.clone(),
        dropped_indexes: Vec::new(),
        is_stricter: false,
    }
}

fn definition() -> TableDefinition {
    TableDefinition::new("t", schema()).with_page_bytes(MIN_PAGE_BYTES)
}

fn made(keys: std::ops::Range<i64>) -> Store {
    let (device, _simulation) = simulated();
    let store = Store::open(device, Mode::Write).unwrap();
    store.create_table(definition(), IfExists::Fail).unwrap();
    append(&store.table("t").unwrap(), &batch(&some(keys))).unwrap();
    store
}

fn is_changing(result: Result<()>) -> bool {
    matches!(result, Err(StorageError::TableChanging { .. }))
}

#[test]
fn names_change_and_rows_stay() {
    let store = made(0..1000);
    let (before, seen) = (store.begin().unwrap(), rows_of(&store.begin().unwrap(), "t"));
    let old = store.table("t").unwrap();
    let (table, state) = store.table_to_alter("t").unwrap();
    let other = named(["a", "b", "c"], [false; 3]);
    store.alter_table(&state, change("u", Arc::clone(&other), table.rules())).unwrap();
    assert!(!store.has_table("t"));
    let table = store.table("u").unwrap();
    assert_eq!((table.schema(), table.rows(), table.pages()), (&other, 1000, old.pages()));
    assert_eq!(rows_of(&store.begin().unwrap(), "u"), seen);
    assert_eq!(table.statistics().unwrap().columns[0].nulls, 0);
    // A handle of the old one neither writes nor changes anything more.
    let gone = append(&old, &batch(&some(0..1))).unwrap_err();
    assert!(matches!(gone, StorageError::TableGone { .. }), "{gone}");
    let gone = store.alter_table(&state, change("v", Arc::clone(&other), table.rules())).unwrap_err();
    assert!(matches!(gone, StorageError::TableGone { .. }), "{gone}");
    // It is read on, also when the rows are gone.
    append(&table, &batch(&some(1000..1010))).unwrap();
    store.drop_table("u").unwrap();
    assert_eq!(rows_of(&before, "t"), seen);
    assert_eq!(before.table("t").unwrap().schema(), &schema());
}

#[test]
fn names_that_are_taken_are_refused() {
    let store = made(0..10);
    store.create_table(TableDefinition::new("u", schema()), IfExists::Fail).unwrap();
    let (table, state) = store.table_to_alter("t").unwrap();
    let error = store.alter_table(&state, change("u", schema(), table.rules())).unwrap_err();
    assert!(matches!(error, StorageError::TableExists { .. }), "{error}");
    assert_eq!(rows_of(&store.begin().unwrap(), "t").len(), 10);
}

#[test]
fn what_is_asked_of_rows_is_asked_of_all() {
    let store = made(0..10);
    let stricter = |table: &Table| TableChange {
        is_stricter: true,
        ..change("t", named(["id", "group", "text"], [true, true, false]), table.rules())
    };
    // Rows that have come to it.
    let (table, state) = store.table_to_alter("t").unwrap();
    append(&table, &batch(&some(10..20))).unwrap();
    assert!(!store.is_unchanged(&state));
    assert!(is_changing(store.alter_table(&state, stricter(&table))));
    // Rows that have been changed, or may yet be.
    store.make_changeable(&table).unwrap();
    let mut open = store.begin().unwrap();
    let in_it = open.table("t").unwrap();
    let (table, state) = store.table_to_alter("t").unwrap();
    store.check_settled(&state).unwrap();
    open.insert(&in_it, &batch(&[(20, Some(2), String::new())])).unwrap();
    assert!(is_changing(store.alter_table(&state, stricter(&table))));
    let (table, state) = store.table_to_alter("t").unwrap();
    assert!(is_changing(store.check_settled(&state)));
    open.commit().unwrap();
    store.check_settled(&state).unwrap();
    // Rows that are being written, by those that have begun before, come too late.
    let writer = table.writer(WriteMode::Append, WriteOptions::default()).unwrap();
    write(&writer, &batch(&[(21, None, String::new())])).unwrap();
    let mut late = store.begin().unwrap();
    let seen = late.table("t").unwrap();
    store.alter_table(&state, stricter(&table)).unwrap();
    assert!(matches!(block_on(writer.commit()).unwrap_err(), StorageError::TableGone { .. }));
    let error = late.insert(&seen, &batch(&[(22, None, String::new())])).unwrap_err();
    assert!(matches!(error, StorageError::TableGone { .. }), "{error}");
    assert_eq!(rows_of(&late, "t").len(), 21);
    let error = append(&store.table("t").unwrap(), &batch(&[(23, None, String::new())])).unwrap_err();
    assert!(matches!(error, StorageError::NullValue { .. }), "{error}");
}

#[test]
fn rules_change_beside_those_who_write() {
    let store = made(0..10);
    let (table, state) = store.table_to_alter("t").unwrap();
    let writer = table.writer(WriteMode::Append, WriteOptions::default()).unwrap();
    write(&writer, &batch(&some(10..20))).unwrap();
    let mut rules = TableRules::default();
    rules.defaults.push(ColumnDefault { column: "group".to_owned(), expression: "7".to_owned() });
    store.alter_table(&state, change("t", schema(), &rules)).unwrap();
    block_on(writer.commit()).unwrap();
    assert_eq!(store.table("t").unwrap().rules(), &rules);
    assert_eq!(rows_of(&store.begin().unwrap(), "t").len(), 20);
    // Of two that change rules the second one is told.
    assert!(is_changing(store.alter_table(&state, change("t", schema(), &TableRules::default()))));
}

#[test]
fn a_table_takes_the_place_of_what_it_was_made_of() {
    let store = made(0..10);
    let (table, state) = store.table_to_alter("t").unwrap();
    let anew = |state: &TableState| {
        let definition = definition().in_place_of(state.clone());
        let writer =
            store.create_table_with_rows(definition, IfExists::Replace, WriteOptions::default()).unwrap();
        write(&writer, &batch(&some(50..60))).unwrap();
        writer
    };
    let writer = anew(&state);
    append(&table, &batch(&some(10..20))).unwrap();
    assert!(matches!(block_on(writer.commit()).unwrap_err(), StorageError::TableChanging { .. }));
    assert_eq!(rows_of(&store.begin().unwrap(), "t").len(), 20);
    let (_, state) = store.table_to_alter("t").unwrap();
    let before = store.begin().unwrap();
    block_on(anew(&state).commit()).unwrap();
    assert_eq!(rows_of(&store.begin().unwrap(), "t").len(), 10);
    assert_eq!(rows_of(&before, "t").len(), 20);
    let writer = anew(&state);
    assert!(matches!(block_on(writer.commit()).unwrap_err(), StorageError::TableGone { .. }));
}

/// All tables: their columns, rules, indexes and rows.
type State = Vec<(String, SchemaRef, TableRules, Vec<String>, Vec<String>)>;

fn state(store: &Store) -> State {
    let transaction = store.begin().unwrap();
    let table = |name: String| {
        let table = store.table(&name).unwrap();
        let indexes = table.indexes().map(|(_, index)| index.name.clone()).collect();
        let rows = rows_of(&transaction, &name);
        (name, Arc::clone(table.schema()), table.rules().clone(), indexes, rows)
    };
    store.table_names().into_iter().map(table).collect()
}

/// Statements; `done` is told after each that was acknowledged.
fn run(device: nandina_device::Device, mut done: impl FnMut(usize, &Store)) -> Result<()> {
    let store = Store::open(device, Mode::Write)?;
    done(0, &store);
    store.create_table(definition(), IfExists::Fail)?;
    done(1, &store);
    append(&store.table("t")?, &batch(&some(0..20)))?;
    done(2, &store);
    let (table, before) = store.table_to_alter("t")?;
    store.alter_table(&before, change("u", named(["a", "b", "c"], [false, false, true]), table.rules()))?;
    done(3, &store);
    store.make_changeable(&store.table("u")?)?;
    done(4, &store);
    let mut transaction = store.begin()?;
    let table = transaction.table("u")?;
    transaction.insert(&table, &batch(&some(20..25)))?;
    transaction.commit()?;
    done(5, &store);
    let (_, before) = store.table_to_alter("u")?;
    let mut rules = TableRules::default();
    rules.add_check(Some("small".to_owned()), "b < 3".to_owned());
    let schema = named(["key", "b", "c"], [true, false, true]);
    let stricter = TableChange { is_stricter: true, ..change("u", schema, &rules) };
    store.alter_table(&before, stricter)?;
    done(6, &store);
    // Rows that are written anew, with another column.
    let schema = Arc::new(Schema::new(vec![Field::new("key", DataType::UInt64, false)]));
    let keys = |keys: std::ops::Range<u64>| {
        RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(UInt64Array::from_iter_values(keys))])
            .unwrap()
    };
    let (_, before) = store.table_to_alter("u")?;
    let definition = TableDefinition::new("u", Arc::clone(&schema)).with_page_bytes(MIN_PAGE_BYTES);
    let options = WriteOptions::default();
    let anew = definition.clone().in_place_of(before);
    let writer = store.create_table_with_rows(anew, IfExists::Replace, options)?;
    write(&writer, &keys(0..25))?;
    block_on(writer.commit())?;
    done(7, &store);
    // With a key.
    let (_, before) = store.table_to_alter("u")?;
    let index =
        IndexDefinition { name: "u_pkey".to_owned(), columns: vec![0], is_unique: true, is_primary: true };
    let new = store.new_rows(definition.with_rows(vec![index]).in_place_of(before), IfExists::Replace)?;
    let mut transaction = new.begin();
    transaction.insert(new.table(), &keys(0..25))?;
    transaction.commit()?;
    new.finish()?;
    done(8, &store);
    let (table, before) = store.table_to_alter("u")?;
    let dropped_indexes = vec!["u_pkey".to_owned()];
    let keyless = TableChange { dropped_indexes, ..change("t", Arc::clone(table.schema()), table.rules()) };
    store.alter_table(&before, keyless)?;
    done(9, &store);
    Ok(())
}

const LAST: usize = 9;

#[test]
fn what_was_acknowledged_survives_every_crash() {
    let (device, simulation) = simulated();
    let mut states = Vec::new();
    run(device, |_, store| states.push(state(store))).unwrap();
    assert_eq!(states.len(), LAST + 1);
    assert_eq!(states[6][0].4.len(), 25);
    assert_eq!(states[LAST][0].4.len(), 25);
    let (device, counted) = simulated();
    run(device, |_, _| {}).unwrap();
    let events = counted.events();
    assert!(events > 40, "{events} events");
    drop(simulation);
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
            let store = Store::open(device, Mode::Write).unwrap_or_else(|error| panic!("{context}: {error}"));
            let found = state(&store);
            let before = acknowledged.unwrap_or(0);
            let next = acknowledged.map_or(0, |number| number + 1).min(LAST);
            assert!(found == states[before] || found == states[next], "{context}: {found:?}");
        }
    }
}
