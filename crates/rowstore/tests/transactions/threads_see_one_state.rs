use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nandina_rowstore::heap::RowId;
use nandina_rowstore::{Error, RowStore, StoreOptions};
use nandina_simulation::CrashOutcome;

use crate::setup::{Devices, Random, STORE_ID, options};

const ROWS: u64 = 300;
const AMOUNT: u64 = 100;
const THREADS: u64 = 4;
const TRANSFERS: u64 = 600;

fn amount(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*bytes.first_chunk().unwrap())
}

/// Amounts move between rows that change their lengths as well, while readers add all of them up.
#[test]
fn the_sum_of_all_rows_never_changes() {
    let devices = Devices::new();
    let options = StoreOptions { frames: 40, ..options() };
    let open = || RowStore::open(devices.pages.clone(), devices.log.clone(), STORE_ID, &options).unwrap();
    let store = open();
    let table = store.create_table().unwrap();
    let mut transaction = store.begin();
    let content = |amount: u64, filler: u64| [&amount.to_le_bytes()[..], &vec![7; filler as usize]].concat();
    let rows: Vec<RowId> =
        (0..ROWS).map(|number| transaction.insert(table, &content(AMOUNT, number % 200)).unwrap()).collect();
    transaction.commit().unwrap();
    let sum = |store: &RowStore| -> u64 {
        let transaction = store.begin();
        transaction.scan(table).unwrap().map(|row| amount(&row.unwrap().1)).sum()
    };
    let (done, conflicts, is_over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (store, rows, done, conflicts) = (&store, &rows, &done, &conflicts);
                scope.spawn(move || {
                    let mut random = Random::new(thread + 99);
                    for number in 0..TRANSFERS {
                        let (from, to) =
                            (rows[random.below(ROWS) as usize], rows[random.below(ROWS) as usize]);
                        if from == to {
                            continue;
                        }
                        let mut transaction = store.begin();
                        let mut transfer = || -> Result<(), Error> {
                            let from_amount = amount(&transaction.get(table, from)?.unwrap());
                            let to_amount = amount(&transaction.get(table, to)?.unwrap());
                            let moved = random.below(from_amount + 1);
                            let filler = if random.below(50) == 0 { 6000 } else { random.below(400) };
                            assert!(transaction.update(
                                table,
                                from,
                                &content(from_amount - moved, filler)
                            )?);
                            assert!(transaction.update(table, to, &content(to_amount + moved, filler))?);
                            Ok(())
                        };
                        match transfer() {
                            Ok(()) if number % 7 == 0 => transaction.roll_back().unwrap(),
                            Ok(()) => {
                                transaction.commit().unwrap();
                                done.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(Error::Conflict) => {
                                conflicts.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (store, is_over) = (&store, &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        assert_eq!(sum(store), ROWS * AMOUNT);
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    assert!(done.load(Ordering::Relaxed) > 1000, "{done:?} transfers, {conflicts:?} conflicts");
    assert_eq!(sum(&store), ROWS * AMOUNT);
    devices.crash(CrashOutcome::LoseUnsynced);
    drop(store);
    assert_eq!(sum(&open()), ROWS * AMOUNT);
}
