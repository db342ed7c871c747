//! What many threads have read and written at the same time, looked at as a whole.

mod checker;

use std::sync::atomic::{AtomicU64, Ordering};

use nandina_rowstore::heap::RowId;
use nandina_rowstore::heap::directory::TableId;
use nandina_rowstore::{Error, RowStore, StoreOptions, Transaction};
use nandina_simulation::CrashOutcome;

use self::checker::{Anomaly, Element, Key, Ran, Step, anomalies};
use crate::setup::{Devices, Random, STORE_ID, options};

const THREADS: u64 = 4;
const TRANSACTIONS: u64 = 500;
const LISTS: usize = 12;

/// Lists, each in a row of its own: short ones at first, which outgrow a page later.
struct Lists {
    table: TableId,
    rows: Vec<RowId>,
}

impl Lists {
    fn create(store: &RowStore) -> Self {
        let table = store.create_table().unwrap();
        let mut transaction = store.begin();
        let rows = (0..LISTS).map(|_| transaction.insert(table, &[]).unwrap()).collect();
        transaction.commit().unwrap();
        Self { table, rows }
    }

    fn read(&self, transaction: &Transaction<'_>, key: Key) -> Vec<Element> {
        let bytes = transaction.get(self.table, self.rows[key]).unwrap().unwrap();
        bytes.chunks_exact(8).map(|element| Element::from_le_bytes(element.try_into().unwrap())).collect()
    }

    /// Whether there was no conflict.
    fn append(&self, transaction: &mut Transaction<'_>, key: Key, element: Element) -> bool {
        let mut bytes = transaction.get(self.table, self.rows[key]).unwrap().unwrap();
        bytes.extend_from_slice(&element.to_le_bytes());
        match transaction.update(self.table, self.rows[key], &bytes) {
            Ok(is_there) => {
                assert!(is_there);
                true
            }
            Err(Error::Conflict) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// A transaction that reads all lists.
    fn read_all(&self, store: &RowStore, moment: &AtomicU64) -> Ran {
        let began = moment.fetch_add(1, Ordering::SeqCst);
        let transaction = store.begin();
        let steps = (0..LISTS).map(|key| Step::Read(key, self.read(&transaction, key))).collect();
        transaction.commit().unwrap();
        let ended = moment.fetch_add(1, Ordering::SeqCst);
        Ran { steps, taken_back: Vec::new(), is_committed: true, began, ended }
    }

    fn run_one(&self, store: &RowStore, moment: &AtomicU64, random: &mut Random) -> Ran {
        let began = moment.fetch_add(1, Ordering::SeqCst);
        let mut transaction = store.begin();
        let (mut steps, mut taken_back) = (Vec::new(), Vec::new());
        let mut savepoint = None;
        let mut is_conflict = false;
        for _ in 0..=random.below(5) {
            let key = random.below(LISTS as u64) as usize;
            match random.below(10) {
                0..5 => steps.push(Step::Read(key, self.read(&transaction, key))),
                5..9 => {
                    let element = moment.fetch_add(1, Ordering::SeqCst);
                    steps.push(Step::Append(key, element));
                    is_conflict = !self.append(&mut transaction, key, element);
                    if is_conflict {
                        break;
                    }
                }
                _ => match savepoint.take() {
                    None => savepoint = Some((transaction.savepoint(), steps.len())),
                    Some((point, from)) => {
                        transaction.roll_back_to(point).unwrap();
                        taken_back.extend(steps[from..].iter().filter_map(|step| match step {
                            Step::Append(_, element) => Some(*element),
                            Step::Read(..) => None,
                        }));
                    }
                },
            }
            std::thread::yield_now();
        }
        let is_committed = !is_conflict && random.below(10) > 0;
        if is_committed {
            transaction.commit().unwrap();
        } else {
            transaction.roll_back().unwrap();
        }
        let ended = moment.fetch_add(1, Ordering::SeqCst);
        Ran { steps, taken_back, is_committed, began, ended }
    }
}

/// What threads have done, and what is there after a crash at their end.
fn history(seed: u64) -> Vec<Ran> {
    let devices = Devices::new();
    let options = StoreOptions { frames: 40, ..options() };
    let open = || RowStore::open(devices.pages.clone(), devices.log.clone(), STORE_ID, &options).unwrap();
    let store = open();
    let lists = Lists::create(&store);
    let moment = AtomicU64::new(1);
    let mut history: Vec<Ran> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (store, lists, moment) = (&store, &lists, &moment);
                scope.spawn(move || {
                    let mut random = Random::new(seed * THREADS + thread);
                    (0..TRANSACTIONS).map(|_| lists.run_one(store, moment, &mut random)).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    devices.crash(CrashOutcome::LoseUnsynced);
    drop(store);
    history.push(lists.read_all(&open(), &moment));
    history
}

#[test]
fn histories_are_of_snapshot_isolation() {
    for seed in 1..=4 {
        let history = history(seed);
        assert_eq!(anomalies(&history).into_iter().collect::<Vec<_>>(), []);
        let committed = history.iter().filter(|ran| ran.is_committed).count();
        let overlapping = history[..history.len() - 1].iter().filter(|ran| ran.ended - ran.began > 8).count();
        assert!(committed > 500 && overlapping > 50, "{committed} committed, {overlapping} beside others");
    }
}

/// The checker sees a single mistake among thousands of steps.
#[test]
fn a_mistake_in_a_history_is_found() {
    let right = history(9);
    let mut random = Random::new(3);
    let mut kinds = std::collections::HashSet::new();
    for _ in 0..60 {
        let mut wrong = right.clone();
        let readers: Vec<usize> = (0..wrong.len() - 1)
            .filter(|number| {
                wrong[*number].is_committed
                    && matches!(&wrong[*number].steps[..], [Step::Read(_, list), ..] if list.len() > 1)
            })
            .collect();
        let reader = readers[random.below(readers.len() as u64) as usize];
        let began = wrong[reader].began;
        let Step::Read(key, list) = &mut wrong[reader].steps[0] else { unreachable!() };
        let key = *key;
        match random.below(3) {
            // A state from long before, a list in another order, one without its first element.
            0 => list.clear(),
            1 => list.swap(0, 1),
            _ => drop(list.remove(0)),
        }
        // Only what had ended before is sure to have been seen.
        let had_ended = right.iter().any(|ran| {
            let appends = |step: &Step| matches!(step, Step::Append(of, element) if *of == key && !ran.taken_back.contains(element));
            ran.is_committed && ran.ended < began && ran.steps.iter().any(appends)
        });
        let found = anomalies(&wrong);
        assert!(!found.is_empty() || !had_ended, "transaction {reader}");
        kinds.extend(found);
    }
    assert!(kinds.contains(&Anomaly::NoSnapshot) && kinds.contains(&Anomaly::Order), "{kinds:?}");
}
