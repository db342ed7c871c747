use nandina_rowstore::heap::RowId;
use nandina_rowstore::heap::directory::TableId;
use nandina_rowstore::{Result, RowStore};
use nandina_simulation::CrashOutcome;

use crate::model::{Changes, Rows, apply, bytes};
use crate::setup::{Devices, Random, STORE_ID, options};

const STEPS: u64 = 60;

fn open(devices: &Devices) -> Result<RowStore> {
    RowStore::open(devices.pages.clone(), devices.log.clone(), STORE_ID, &options())
}

/// What is committed, and what may be: a commit that did not return.
#[derive(Default)]
struct Expected {
    committed: Rows,
    uncertain: Option<Changes>,
    table: Option<TableId>,
}

/// Transactions of a few changes each, every third of which is rolled back, and one that stays open for long.
fn run(store: &RowStore, expected: &mut Expected, seed: u64) -> Result<()> {
    let table = match expected.table {
        Some(table) => table,
        None => *expected.table.insert(store.create_table()?),
    };
    let mut random = Random::new(seed);
    let mut long = store.begin();
    for step in 0..STEPS {
        let mut transaction = store.begin();
        let mut changed = Changes::new();
        long.insert(table, &bytes(&mut random))?;
        for _ in 0..1 + random.below(6) {
            let known: Vec<RowId> = expected.committed.keys().copied().collect();
            let row = known.get(random.below(known.len().max(1) as u64) as usize).copied();
            match (random.below(4), row) {
                (0, Some(row)) => {
                    if transaction.delete(table, row)? {
                        changed.insert(row, None);
                    }
                }
                (1 | 2, Some(row)) => {
                    let bytes = bytes(&mut random);
                    if transaction.update(table, row, &bytes)? {
                        changed.insert(row, Some(bytes));
                    }
                }
                _ => {
                    let bytes = bytes(&mut random);
                    changed.insert(transaction.insert(table, &bytes)?, Some(bytes));
                }
            }
        }
        if step % 3 == 2 {
            transaction.roll_back()?;
        } else {
            expected.uncertain = Some(changed.clone());
            transaction.commit()?;
            expected.uncertain = None;
            apply(changed, &mut expected.committed);
        }
        if step % 16 == 9 {
            store.pages().checkpoint()?;
        }
    }
    Ok(())
}

/// Whether all that was committed is there, and nothing of the rest.
fn check(store: &RowStore, expected: &mut Expected, context: &str) {
    let Some(table) = expected.table else { return };
    let seen = |context: &str| -> Rows {
        let transaction = store.begin();
        let rows = transaction.scan(table).unwrap_or_else(|error| panic!("{context}: {error}"));
        rows.map(|row| row.unwrap_or_else(|error| panic!("{context}: {error}"))).collect()
    };
    let seen = seen(context);
    if let Some(changed) = expected.uncertain.take() {
        let mut with = expected.committed.clone();
        apply(changed, &mut with);
        if seen == with {
            expected.committed = with;
        }
    }
    assert!(seen == expected.committed, "{context}: {} rows of {}", seen.len(), expected.committed.len());
}

#[test]
fn power_fails_at_any_event_and_again_while_transactions_are_taken_back() {
    let events = {
        let devices = Devices::new();
        let mut expected = Expected::default();
        let store = open(&devices).unwrap();
        run(&store, &mut expected, 1).unwrap();
        check(&store, &mut expected, "without a crash");
        devices.machine.events()
    };
    assert!(events > 300, "{events} events");
    let outcomes = |number: u64| match number % 4 {
        0 => CrashOutcome::LoseUnsynced,
        1 => CrashOutcome::KeepAll,
        _ => CrashOutcome::Random { seed: number },
    };
    for event in 0..events {
        let devices = Devices::new();
        let mut expected = Expected::default();
        devices.machine.lose_power_at(event);
        let _ = open(&devices).and_then(|store| run(&store, &mut expected, 1));
        devices.crash(outcomes(event));
        for again in 0..3 {
            let context = format!("event {event}, time {again}");
            devices.machine.lose_power_at(devices.machine.events() + 1 + (event * 7 + again * 31) % 61);
            match open(&devices) {
                Ok(store) => {
                    // What is there may have to be taken out of memory first, so only what can be read is looked at.
                    let _ = run(&store, &mut Expected { table: None, ..Expected::default() }, event);
                }
                Err(error) => assert!(!error.to_string().contains("damaged"), "{context}: {error}"),
            }
            devices.crash(outcomes(event + again + 1));
        }
        let context = format!("event {event}");
        let store = open(&devices).unwrap_or_else(|error| panic!("{context}: {error}"));
        // The table may not have been made durable before it was reported.
        if let Some(table) = expected.table
            && !expected.committed.is_empty()
        {
            expected.table = Some(table);
            check(&store, &mut expected, &context);
        }
        let mut later = Expected::default();
        run(&store, &mut later, 2).unwrap_or_else(|error| panic!("{context}: {error}"));
        check(&store, &mut later, &context);
        if !expected.committed.is_empty() {
            check(&store, &mut expected, &context);
        }
    }
}
