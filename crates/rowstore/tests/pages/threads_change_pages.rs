use std::sync::atomic::{AtomicBool, Ordering};

use nandina_rowstore::StoreOptions;
use nandina_rowstore::page::{HEADER_BYTES, PageId};
use nandina_rowstore::tier::Access;

use crate::setup::{CELLS, Devices, Random, options};

const THREADS: u64 = 6;
const PAGES: u64 = 150;
const CHANGES: u64 = 3000;
/// Each page begins with this amount.
const AMOUNT: u64 = 1000;

fn amount(page: &[u8]) -> u64 {
    u64::from_le_bytes(*page[HEADER_BYTES..].first_chunk().unwrap())
}

/// Threads move amounts between pages, which are more than there are frames; the sum stays.
#[test]
fn amounts_move_between_pages() {
    let devices = Devices::new();
    let options = StoreOptions { frames: 48, ..options() };
    let store = devices.open_with(&options).unwrap();
    let mut pages: Vec<PageId> = Vec::new();
    for _ in 0..PAGES {
        let mut change = store.change();
        let page = store.allocate(&mut change, CELLS).unwrap();
        pages.push(change.id(page));
        change.write(page, HEADER_BYTES, &AMOUNT.to_le_bytes());
        change.commit().unwrap();
    }
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (store, pages) = (&store, &pages);
                scope.spawn(move || {
                    let mut random = Random::new(thread + 1);
                    for number in 0..CHANGES {
                        let (one, other) = (random.below(PAGES), random.below(PAGES));
                        if one == other {
                            continue;
                        }
                        // In the order of the pages, so that no two threads wait for each other.
                        let mut change = store.change();
                        let low = change.latch(pages[one.min(other) as usize]).unwrap();
                        let high = change.latch(pages[one.max(other) as usize]).unwrap();
                        let (from, to) = (amount(change.page(low)), amount(change.page(high)));
                        let moved = random.below(from + 1);
                        change.write(low, HEADER_BYTES, &(from - moved).to_le_bytes());
                        change.write(high, HEADER_BYTES, &(to + moved).to_le_bytes());
                        let lsn = change.commit().unwrap();
                        if number % 64 == 0 {
                            store.log().wait_until_durable(lsn).unwrap();
                        }
                        if number % 100 == 0 {
                            store.checkpoint_if_due().unwrap();
                        }
                        if number % 50 == 0 {
                            let some: Vec<PageId> =
                                (0..4).map(|_| pages[random.below(PAGES) as usize]).collect();
                            store.pool().prefetch(&some, Access::Random);
                        }
                    }
                })
            })
            .collect();
        let (store, is_done) = (&store, &is_done);
        scope.spawn(move || {
            // Shrinks and grows meanwhile.
            let mut frames = 48;
            while !is_done.load(Ordering::Relaxed) {
                frames = if frames == 48 { 32 } else { 48 };
                store.pool().resize(frames).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        is_done.store(true, Ordering::Relaxed);
    });
    let sum = |store: &nandina_rowstore::PageStore| -> u64 {
        pages.iter().map(|page| amount(&store.read(*page, Access::Random).unwrap())).sum()
    };
    assert_eq!(sum(&store), PAGES * AMOUNT);
    store.log().wait_until_all_durable().unwrap();
    devices.crash(nandina_simulation::CrashOutcome::LoseUnsynced);
    drop(store);
    assert_eq!(sum(&devices.open_with(&options).unwrap()), PAGES * AMOUNT);
}
