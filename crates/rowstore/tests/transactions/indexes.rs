use std::collections::BTreeMap;
use std::ops::Bound;

use nandina_rowstore::heap::RowId;
use nandina_rowstore::heap::directory::TableId;
use nandina_rowstore::transaction::index::{HasRow, IsSingle};
use nandina_rowstore::tree::Tree;
use nandina_rowstore::{Error, Result, RowStore, Transaction};
use nandina_simulation::CrashOutcome;

use crate::setup::{Devices, Random, STORE_ID, options};

fn store(devices: &Devices) -> Result<RowStore> {
    RowStore::open(devices.pages.clone(), devices.log.clone(), STORE_ID, &options())
}

/// A table with a unique key, the first four bytes of its rows.
#[derive(Debug, Clone, Copy)]
struct Keyed {
    table: TableId,
    index: Tree,
}

fn key_of(bytes: &[u8]) -> &[u8] {
    &bytes[..4]
}

impl Keyed {
    fn get(self, transaction: &Transaction<'_>, key: u32) -> Result<Option<(RowId, Vec<u8>)>> {
        let key = key.to_be_bytes();
        for entry in transaction.index_range(self.index, Bound::Included(&key), Bound::Included(&key), false)
        {
            let (_, row) = entry?;
            match transaction.get(self.table, row) {
                Ok(Some(bytes)) if key_of(&bytes) == key => return Ok(Some((row, bytes))),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn insert(self, transaction: &mut Transaction<'_>, key: u32, payload: &[u8]) -> Result<RowId> {
        let key = key.to_be_bytes();
        let row = transaction.insert(self.table, &[&key, payload].concat())?;
        transaction.index_insert(self.index, &key, row, Some(&|bytes| key_of(bytes) == key))?;
        Ok(row)
    }

    fn change_key(self, transaction: &mut Transaction<'_>, from: u32, to: u32) -> Result<bool> {
        let Some((row, bytes)) = self.get(transaction, from)? else { return Ok(false) };
        let to = to.to_be_bytes();
        transaction.update(self.table, row, &[&to, &bytes[4..]].concat())?;
        assert!(transaction.index_remove(self.index, &from.to_be_bytes(), row)?);
        transaction.index_insert(self.index, &to, row, Some(&|bytes| key_of(bytes) == to))?;
        Ok(true)
    }

    fn delete(self, transaction: &mut Transaction<'_>, key: u32) -> Result<bool> {
        let Some((row, _)) = self.get(transaction, key)? else { return Ok(false) };
        assert!(transaction.index_remove(self.index, &key.to_be_bytes(), row)?);
        transaction.delete(self.table, row)
    }

    /// All that a transaction sees, by the index; the same as by the table.
    fn all(self, transaction: &Transaction<'_>, context: &str) -> BTreeMap<u32, Vec<u8>> {
        let number = |key: &[u8]| u32::from_be_bytes(key.try_into().unwrap());
        let mut found = Vec::new();
        for entry in transaction.index_range(self.index, Bound::Unbounded, Bound::Unbounded, false) {
            let (key, row) = entry.unwrap();
            if let Some(bytes) = transaction.get(self.table, row).unwrap()
                && key_of(&bytes) == key
            {
                found.push((number(&key), bytes[4..].to_vec()));
            }
        }
        assert!(found.is_sorted_by(|one, next| one.0 < next.0), "{context}: keys are unique");
        let rows = transaction.scan(self.table).unwrap().map(|row| row.unwrap().1);
        let rows: BTreeMap<u32, Vec<u8>> =
            rows.map(|bytes| (number(key_of(&bytes)), bytes[4..].to_vec())).collect();
        let found: BTreeMap<u32, Vec<u8>> = found.into_iter().collect();
        assert!(found == rows, "{context}: {} keys of {} rows", found.len(), rows.len());
        found
    }
}

/// One transaction of some changes; what is there after it.
fn run(
    keyed: Keyed,
    transaction: &mut Transaction<'_>,
    rows: &mut BTreeMap<u32, Vec<u8>>,
    random: &mut Random,
) -> Result<()> {
    for _ in 0..1 + random.below(5) {
        let (key, other) = (random.below(80) as u32, random.below(80) as u32);
        let savepoint = transaction.savepoint();
        match random.below(6) {
            0..3 => {
                let payload = vec![key as u8; random.below(30) as usize];
                match keyed.insert(transaction, key, &payload) {
                    Ok(_) => assert!(rows.insert(key, payload).is_none(), "key {key} is unique"),
                    Err(Error::DuplicateKey { .. }) => {
                        assert!(rows.contains_key(&key), "key {key} is free");
                        transaction.roll_back_to(savepoint)?;
                    }
                    Err(error) => return Err(error),
                }
            }
            3 => assert_eq!(keyed.delete(transaction, key)?, rows.remove(&key).is_some()),
            _ => match keyed.change_key(transaction, key, other) {
                Ok(is_there) => {
                    let payload = rows.remove(&key);
                    assert_eq!(is_there, payload.is_some());
                    payload.map(|payload| rows.insert(other, payload));
                }
                Err(Error::DuplicateKey { .. }) => {
                    assert!(key != other && rows.contains_key(&other));
                    transaction.roll_back_to(savepoint)?;
                }
                Err(error) => return Err(error),
            },
        }
    }
    Ok(())
}

fn keyed(store: &RowStore) -> Result<Keyed> {
    Ok(Keyed { table: store.create_table()?, index: store.create_index()? })
}

#[test]
fn unique_keys_lead_to_the_rows_that_have_them() {
    let devices = Devices::new();
    let store = store(&devices).unwrap();
    let keyed = keyed(&store).unwrap();
    let mut random = Random::new(21);
    let mut committed = BTreeMap::new();
    let mut readers = Vec::new();
    for number in 0..600 {
        let mut transaction = store.begin();
        let mut rows = committed.clone();
        run(keyed, &mut transaction, &mut rows, &mut random).unwrap();
        if number % 20 == 0 {
            assert_eq!(keyed.all(&transaction, "within"), rows);
        }
        if random.below(4) == 0 {
            transaction.roll_back().unwrap();
        } else {
            transaction.commit().unwrap();
            committed = rows;
        }
        if number % 50 == 0 {
            readers.push((store.begin(), committed.clone()));
        }
        if readers.len() > 3 {
            let (reader, rows) = readers.remove(0);
            assert_eq!(keyed.all(&reader, "a reader"), rows);
        }
    }
    readers.iter().for_each(|(reader, rows)| assert_eq!(keyed.all(reader, "a reader"), *rows));
    readers.clear();
    assert_eq!(keyed.all(&store.begin(), "at the end"), committed);
    store.purge_all().unwrap();
    let entries = keyed.index.range(store.pages(), Bound::Unbounded, Bound::Unbounded).count();
    assert_eq!(entries, committed.len(), "nothing is left of keys that are gone");
}

#[test]
fn filled_indexes_are_as_if_keys_had_been_added() {
    let devices = Devices::new();
    let store = store(&devices).unwrap();
    let keyed = keyed(&store).unwrap();
    let mut rows = BTreeMap::new();
    let mut transaction = store.begin();
    for key in (0..80_u32).filter(|key| key % 3 > 0) {
        let payload = vec![key as u8; 25];
        transaction.insert(keyed.table, &[&key.to_be_bytes(), payload.as_slice()].concat()).unwrap();
        rows.insert(key, payload);
    }
    transaction.commit().unwrap();
    let sorted = || {
        let mut keys: Vec<(Vec<u8>, RowId)> = store
            .begin()
            .scan(keyed.table)
            .unwrap()
            .map(|row| row.map(|(row, bytes)| (key_of(&bytes).to_vec(), row)).unwrap())
            .collect();
        keys.sort_unstable();
        keys
    };
    let fill = |index: Tree, keys: Vec<(Vec<u8>, RowId)>, is_unique: bool| {
        store.fill_index(index, 90, is_unique, keys.into_iter().map(|(key, row)| Ok((key.into(), row))))
    };
    fill(keyed.index, sorted(), true).unwrap();
    assert_eq!(keyed.all(&store.begin(), "filled"), rows);

    // Two rows with one key.
    let other = store.create_index().unwrap();
    let twice: Vec<(Vec<u8>, RowId)> =
        sorted().into_iter().flat_map(|(key, row)| [(key.clone(), row), (key, RowId(row.0 + 1))]).collect();
    let error = fill(other, twice.clone(), true).unwrap_err();
    assert!(matches!(error, Error::DuplicateKey { row } if row == twice[1].1), "{error}");
    store.drop_index(other).unwrap();
    fill(other, twice.clone(), false).unwrap();
    let all = store.begin().index_range(other, Bound::Unbounded, Bound::Unbounded, false).count();
    assert_eq!(all, twice.len());
    store.drop_index(other).unwrap();

    let mut random = Random::new(31);
    for number in 0..300 {
        let (mut transaction, mut changed) = (store.begin(), rows.clone());
        run(keyed, &mut transaction, &mut changed, &mut random).unwrap();
        if number % 4 == 0 {
            transaction.roll_back().unwrap();
        } else {
            transaction.commit().unwrap();
            rows = changed;
        }
    }
    assert_eq!(keyed.all(&store.begin(), "at the end"), rows);
    // Undo entries name keys that the index had before, and has again.
    store.drop_index(keyed.index).unwrap();
    fill(keyed.index, sorted(), true).unwrap();
    let reader = store.begin();
    for (from, to) in rows.keys().flat_map(|&key| [(key, key + 1000), (key + 1000, key)]) {
        let mut transaction = store.begin();
        assert!(keyed.change_key(&mut transaction, from, to).unwrap());
        transaction.commit().unwrap();
    }
    store.drop_index(keyed.index).unwrap();
    fill(keyed.index, sorted(), true).unwrap();
    drop(reader);
    store.purge_all().unwrap();
    assert_eq!(keyed.all(&store.begin(), "filled again"), rows);
    drop(store);
    let store = self::store(&devices).unwrap();
    store.purge_all().unwrap();
    assert_eq!(keyed.all(&store.begin(), "opened again"), rows);
}

fn build(store: &RowStore, keyed: Keyed, is_unique: bool) -> Result<()> {
    build_with(store, keyed, is_unique, &|_, _| Ok(false), &[])
}

/// Builds an index that leads to rows elsewhere, too.
fn build_with(
    store: &RowStore,
    keyed: Keyed,
    is_unique: bool,
    elsewhere: HasRow<'_>,
    others: &[(u32, RowId)],
) -> Result<()> {
    let has_key = |key: &[u8], bytes: &[u8]| key_of(bytes) == key;
    let unique: Option<IsSingle<'_>> = is_unique.then_some((&|_: &[u8]| Ok(true)) as IsSingle<'_>);
    store.build_index(keyed.index, keyed.table, unique, &has_key, elsewhere, |transaction, add| {
        let rows = transaction.scan(keyed.table).unwrap();
        let mut keys: Vec<(Vec<u8>, RowId)> =
            rows.map(|row| row.map(|(row, bytes)| (key_of(&bytes).to_vec(), row)).unwrap()).collect();
        keys.extend(others.iter().map(|(key, row)| (key.to_be_bytes().to_vec(), *row)));
        keys.sort_unstable();
        keys.into_iter().try_for_each(|(key, row)| add(&key, row))
    })
}

#[test]
fn an_index_is_built_while_threads_change_its_table() {
    const THREADS: u32 = 3;
    const KEYS: u32 = 400;
    for seed in 0..6 {
        let devices = Devices::new();
        let store = store(&devices).unwrap();
        let keyed = keyed(&store).unwrap();
        // Each thread has keys, and rows, of its own.
        let own = |thread: u32, number: u64| thread + THREADS * number as u32;
        let mut transaction = store.begin();
        for key in (0..KEYS).filter(|key| key % 4 > 0) {
            transaction.insert(keyed.table, &[&key.to_be_bytes()[..], &[7; 40]].concat()).unwrap();
        }
        transaction.commit().unwrap();
        // The index is known to transactions that begin once it is.
        let is_known = parking_lot::RwLock::new(false);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (store, is_known, is_over) = (&store, &is_known, &is_over);
                scope.spawn(move || {
                    let mut random = Random::new(seed * 100 + u64::from(thread));
                    let mut steps = 0;
                    while steps < 60 || !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        steps += 1;
                        let known = is_known.read();
                        let mut transaction = store.begin();
                        let rows = transaction.scan(keyed.table).unwrap().map(Result::unwrap);
                        let rows: BTreeMap<u32, (RowId, Vec<u8>)> = rows
                            .map(|(row, bytes)| {
                                (u32::from_be_bytes(key_of(&bytes).try_into().unwrap()), (row, bytes))
                            })
                            .collect();
                        for _ in 0..3 {
                            let key = own(thread, random.below(u64::from(KEYS / THREADS)));
                            let bytes = key.to_be_bytes();
                            match rows.get(&key) {
                                Some((row, old)) => {
                                    // One that was changed by this transaction already has gone.
                                    if transaction.get(keyed.table, *row).unwrap().as_ref() != Some(old) {
                                        continue;
                                    }
                                    if *known {
                                        transaction.index_remove(keyed.index, &bytes, *row).unwrap();
                                    }
                                    assert!(transaction.delete(keyed.table, *row).unwrap());
                                }
                                None => {
                                    let content = [&bytes[..], &[9; 40]].concat();
                                    let savepoint = transaction.savepoint();
                                    let row = transaction.insert(keyed.table, &content).unwrap();
                                    if *known {
                                        let has_key = |found: &[u8]| key_of(found) == bytes;
                                        let added = transaction.index_insert(
                                            keyed.index,
                                            &bytes,
                                            row,
                                            Some(&has_key),
                                        );
                                        match added {
                                            Ok(()) => {}
                                            // This transaction has added it before.
                                            Err(Error::DuplicateKey { .. }) => {
                                                transaction.roll_back_to(savepoint).unwrap();
                                            }
                                            Err(error) => panic!("{error}"),
                                        }
                                    }
                                }
                            }
                        }
                        if random.below(4) == 0 {
                            transaction.roll_back().unwrap();
                        } else {
                            transaction.commit().unwrap();
                        }
                    }
                });
            }
            *is_known.write() = true;
            build(&store, keyed, false).unwrap();
            keyed.index.shape(store.pages()).unwrap();
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let transaction = store.begin();
        let mut rows: Vec<(Vec<u8>, RowId)> = transaction
            .scan(keyed.table)
            .unwrap()
            .map(|row| row.map(|(row, bytes)| (key_of(&bytes).to_vec(), row)).unwrap())
            .collect();
        rows.sort_unstable();
        let has_row = |(key, row): &(Vec<u8>, RowId)| {
            let bytes = transaction.get(keyed.table, *row).unwrap_or(None);
            bytes.is_some_and(|bytes| key_of(&bytes) == *key)
        };
        let all = transaction.index_range(keyed.index, Bound::Unbounded, Bound::Unbounded, false);
        let mut found: Vec<(Vec<u8>, RowId)> = all.map(Result::unwrap).filter(has_row).collect();
        found.sort_unstable();
        assert!(found == rows, "seed {seed}: {} keys of {} rows", found.len(), rows.len());
        drop(transaction);
        store.purge_all().unwrap();
        let entries = keyed.index.range(store.pages(), Bound::Unbounded, Bound::Unbounded).count();
        assert_eq!(entries, rows.len(), "nothing is left of keys that are gone");
    }
}

#[test]
fn an_index_that_is_built_tells_of_keys_that_are_there_twice() {
    let devices = Devices::new();
    let store = store(&devices).unwrap();
    let keyed = keyed(&store).unwrap();
    let mut transaction = store.begin();
    let mut rows = Vec::new();
    for key in [1_u32, 2, 3, 2] {
        rows.push(transaction.insert(keyed.table, &key.to_be_bytes()).unwrap());
    }
    transaction.commit().unwrap();
    let error = build(&store, keyed, true).unwrap_err();
    assert!(matches!(error, Error::DuplicateKey { row } if row == rows[3]), "{error}");
    store.drop_index(keyed.index).unwrap();
    let mut transaction = store.begin();
    transaction.delete(keyed.table, rows[1]).unwrap();
    transaction.commit().unwrap();
    build(&store, keyed, true).unwrap();
    assert_eq!(keyed.all(&store.begin(), "built").len(), 3);
}

#[test]
fn keys_may_lead_elsewhere() {
    let devices = Devices::new();
    let store = store(&devices).unwrap();
    let keyed = keyed(&store).unwrap();
    let mut transaction = store.begin();
    let here = transaction.insert(keyed.table, &1_u32.to_be_bytes()).unwrap();
    transaction.commit().unwrap();
    let other = |number: u64| RowId(RowId::ELSEWHERE | number << 16);
    assert!(other(7).is_elsewhere() && !here.is_elsewhere());
    // Of rows that are elsewhere, the caller says which of them are there.
    let others = [(1, other(7)), (2, other(8)), (2, other(9))];
    let is_there = |_: &Transaction<'_>, row: RowId| Ok(row == other(9));
    build_with(&store, keyed, true, &is_there, &others).unwrap();
    let found = |key: u32| -> Vec<RowId> {
        let (transaction, key) = (store.begin(), key.to_be_bytes());
        let range = transaction.index_range(keyed.index, Bound::Included(&key), Bound::Included(&key), false);
        range.rows().map(Result::unwrap).collect()
    };
    assert_eq!((found(1), found(2)), (vec![here, other(7)], vec![other(8), other(9)]));
    // Rows of this store are held against each other alone.
    let mut transaction = store.begin();
    assert!(
        matches!(keyed.insert(&mut transaction, 1, b""), Err(Error::DuplicateKey { row }) if row == here)
    );
    drop(transaction);
    let mut transaction = store.begin();
    keyed.insert(&mut transaction, 2, b"").unwrap();
    transaction.commit().unwrap();
    assert_eq!(found(2).len(), 3);
    store.drop_index(keyed.index).unwrap();
    let error = build_with(&store, keyed, true, &|_, _| Ok(true), &others).unwrap_err();
    assert!(matches!(error, Error::DuplicateKey { row } if row == other(7)), "{error}");
}

#[test]
fn what_a_row_is_now() {
    let devices = Devices::new();
    let store = store(&devices).unwrap();
    let keyed = keyed(&store).unwrap();
    let mut first = store.begin();
    let row = keyed.insert(&mut first, 1, b"a").unwrap();
    let newest = |transaction: &Transaction<'_>| transaction.newest(keyed.table, row);
    let (own, other) = (newest(&first).unwrap(), newest(&store.begin()));
    assert_eq!(own.map(|bytes| bytes.len()), Some(5));
    assert!(matches!(other, Err(Error::Conflict)));
    let early = store.begin();
    first.commit().unwrap();
    assert!(early.get(keyed.table, row).unwrap().is_none() && newest(&early).unwrap().is_some());
    let mut second = store.begin();
    assert!(keyed.delete(&mut second, 1).unwrap());
    assert!(newest(&second).unwrap().is_none() && matches!(newest(&early), Err(Error::Conflict)));
    second.commit().unwrap();
    assert!(newest(&early).unwrap().is_none());
}

#[test]
fn keys_not_yet_committed_count() {
    let devices = Devices::new();
    let store = store(&devices).unwrap();
    let keyed = keyed(&store).unwrap();
    let (mut first, mut second) = (store.begin(), store.begin());
    keyed.insert(&mut first, 1, b"first").unwrap();
    assert!(matches!(keyed.insert(&mut second, 1, b"second"), Err(Error::Conflict)));
    drop(second);
    first.commit().unwrap();
    let mut second = store.begin();
    assert!(matches!(keyed.insert(&mut second, 1, b"second"), Err(Error::DuplicateKey { .. })));
    drop(second);
    // Who deletes the row may still be rolled back.
    let (mut first, mut second) = (store.begin(), store.begin());
    assert!(keyed.delete(&mut first, 1).unwrap());
    assert!(matches!(keyed.insert(&mut second, 1, b"second"), Err(Error::Conflict)));
    second.roll_back().unwrap();
    keyed.insert(&mut first, 1, b"again").unwrap();
    first.commit().unwrap();
    assert_eq!(keyed.all(&store.begin(), "at the end"), BTreeMap::from([(1, b"again".to_vec())]));
}

#[test]
fn threads_agree_who_has_a_key() {
    let devices = Devices::new();
    let store = store(&devices).unwrap();
    let keyed = keyed(&store).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let store = &store;
            scope.spawn(move || {
                let mut random = Random::new(thread + 40);
                for _ in 0..300 {
                    let mut transaction = store.begin();
                    let (key, other) = (random.below(30) as u32, random.below(30) as u32);
                    let done = match random.below(3) {
                        0 => keyed.insert(&mut transaction, key, &[thread as u8; 20]).map(drop),
                        1 => keyed.delete(&mut transaction, key).map(drop),
                        _ => keyed.change_key(&mut transaction, key, other).map(drop),
                    };
                    match done {
                        Ok(()) => transaction.commit().unwrap(),
                        Err(Error::Conflict | Error::DuplicateKey { .. }) => transaction.roll_back().unwrap(),
                        Err(error) => panic!("{error}"),
                    }
                    if random.below(20) == 0 {
                        keyed.all(&store.begin(), "meanwhile");
                    }
                }
            });
        }
    });
    keyed.all(&store.begin(), "at the end");
}

#[test]
fn power_fails_and_keys_agree_with_rows() {
    let work = |store: &RowStore,
                keyed: &mut Option<Keyed>,
                committed: &mut BTreeMap<u32, Vec<u8>>,
                maybe: &mut Option<BTreeMap<u32, Vec<u8>>>|
     -> Result<()> {
        let tables = match *keyed {
            Some(tables) => tables,
            None => *keyed.insert(self::keyed(store)?),
        };
        let mut random = Random::new(9);
        for number in 0..80 {
            let mut transaction = store.begin();
            let mut rows = committed.clone();
            run(tables, &mut transaction, &mut rows, &mut random)?;
            if number % 4 == 0 {
                transaction.roll_back()?;
            } else {
                *maybe = Some(rows.clone());
                transaction.commit()?;
                (*committed, *maybe) = (rows, None);
            }
            if number % 25 == 0 {
                store.pages().checkpoint()?;
            }
        }
        Ok(())
    };
    let events = {
        let devices = Devices::new();
        let store = store(&devices).unwrap();
        work(&store, &mut None, &mut BTreeMap::new(), &mut None).unwrap();
        devices.machine.events()
    };
    for event in 0..events {
        let devices = Devices::new();
        devices.machine.lose_power_at(event);
        let (mut keyed, mut committed, mut maybe) = (None, BTreeMap::new(), None);
        let _ = store(&devices).and_then(|store| work(&store, &mut keyed, &mut committed, &mut maybe));
        devices.crash(CrashOutcome::Random { seed: event });
        devices.machine.lose_power_at(devices.machine.events() + event % 29);
        let _ = store(&devices);
        devices.crash(if event % 2 == 0 {
            CrashOutcome::LoseUnsynced
        } else {
            CrashOutcome::Random { seed: event }
        });
        let store = store(&devices).unwrap_or_else(|error| panic!("event {event}: {error}"));
        let Some(keyed) = keyed else { continue };
        let found = keyed.all(&store.begin(), &format!("event {event}"));
        assert!(found == committed || Some(found) == maybe, "event {event}");
    }
}
