use std::collections::BTreeSet;

use nandina_device::{FileClass, OpenMode};
use nandina_rowstore::StoreOptions;
use nandina_rowstore::page::{HEADER_BYTES, PageId};
use nandina_rowstore::tier::Access;

use crate::model::Model;
use crate::setup::{CELLS, Devices, options};

/// Pages in a store, each with its number in it.
fn pages(
    devices: &Devices,
    options: &StoreOptions,
    count: u64,
) -> (nandina_rowstore::PageStore, Vec<PageId>) {
    let store = devices.open_with(options).unwrap();
    let mut pages = Vec::new();
    for _ in 0..count {
        let mut change = store.change();
        let page = store.allocate(&mut change, CELLS).unwrap();
        let id = change.id(page);
        change.write(page, HEADER_BYTES, &id.0.to_le_bytes());
        change.commit().unwrap();
        pages.push(id);
    }
    store.checkpoint().unwrap();
    (store, pages)
}

fn has(page: &[u8], id: PageId) -> bool {
    page[HEADER_BYTES..HEADER_BYTES + 8] == id.0.to_le_bytes()
}

#[test]
fn new_pages_are_written_once() {
    let devices = Devices::new();
    let (store, pages) = pages(&devices, &options(), 400);
    let copies = devices.pages.open_file("rows.double", FileClass::Table, OpenMode::Read).unwrap();
    let copied = || copies.len().unwrap() as usize / store.page_bytes();
    // In front of the copies there is a block, and those of the pages that say which ones are free are among them.
    assert!(copied() <= 3, "{} copies", copied());
    for page in &pages[..12] {
        let mut change = store.change();
        let page = change.latch(*page).unwrap();
        change.write(page, HEADER_BYTES + 8, b"changed");
        change.commit().unwrap();
    }
    store.checkpoint().unwrap();
    assert!(copied() > 10, "{} copies", copied());
}

#[test]
fn pages_that_are_used_again_outlast_a_scan() {
    let devices = Devices::new();
    let options = StoreOptions { frames: 64, ..options() };
    let (store, pages) = pages(&devices, &options, 400);
    let (hot, cold) = pages.split_at(30);
    for _ in 0..4 {
        hot.iter().for_each(|page| assert!(has(&store.read(*page, Access::Random).unwrap(), *page)));
    }
    let before = store.pool().statistics().misses;
    for page in cold {
        assert!(has(&store.read(*page, Access::Sequential).unwrap(), *page));
    }
    assert_eq!(store.pool().statistics().misses - before, cold.len() as u64);
    let before = store.pool().statistics().misses;
    hot.iter().for_each(|page| assert!(has(&store.read(*page, Access::Random).unwrap(), *page)));
    let missed = store.pool().statistics().misses - before;
    assert!(missed <= 3, "{missed} of {} pages were lost to a scan", hot.len());
}

#[test]
fn prefetched_pages_are_read_together_and_once() {
    let devices = Devices::new();
    let options = StoreOptions { frames: 64, ..options() };
    let (store, pages) = pages(&devices, &options, 200);
    let before = store.pool().statistics().misses;
    for some in pages.chunks(16) {
        store.pool().prefetch(some, Access::Sequential);
        store.pool().prefetch(some, Access::Sequential);
        for page in some {
            assert!(has(&store.read(*page, Access::Sequential).unwrap(), *page));
        }
    }
    let missed = store.pool().statistics().misses - before;
    assert!(missed <= 2 * pages.len() as u64, "{missed}");
    let io = devices.pages.counters().of(nandina_device::FileClass::Table);
    assert!(io.read_requests <= pages.len() as u64 + 40, "{} reads", io.read_requests);
    // What nobody comes for is in nobody's way.
    for some in pages.chunks(16) {
        store.pool().prefetch(some, Access::Sequential);
    }
    for page in &pages {
        assert!(has(&store.read(*page, Access::Random).unwrap(), *page));
    }
}

#[test]
fn a_pool_grows_and_shrinks() {
    let devices = Devices::new();
    let (store, pages) = pages(&devices, &options(), 200);
    for frames in [16, 64, 20, 64, 16] {
        store.pool().resize(frames).unwrap();
        assert_eq!(store.pool().frames(), frames);
        for _ in 0..2 {
            for page in &pages[..frames / 2] {
                assert!(has(&store.read(*page, Access::Random).unwrap(), *page));
            }
        }
        let before = store.pool().statistics().misses;
        for page in &pages[..frames / 2] {
            store.read(*page, Access::Random).unwrap();
        }
        assert_eq!(store.pool().statistics().misses, before, "{frames} frames");
    }
}

#[test]
fn latched_pages_stay_and_too_many_are_refused() {
    let devices = Devices::new();
    let (store, pages) = pages(&devices, &options(), 40);
    let latched: Vec<_> = pages[..15].iter().map(|page| store.read(*page, Access::Random).unwrap()).collect();
    for page in &pages {
        assert!(has(&store.read(*page, Access::Random).unwrap(), *page));
    }
    assert!(latched.iter().zip(&pages).all(|(page, id)| has(page, *id)));
    let _last = store.read(pages[15], Access::Random).unwrap();
    let error = store.read(pages[16], Access::Random).unwrap_err().to_string();
    assert!(error.contains("all 16 pages") && error.contains("more memory"), "{error}");
    drop(latched);
    assert!(has(&store.read(pages[16], Access::Random).unwrap(), pages[16]));
}

#[test]
fn pages_given_back_are_used_again_and_groups_are_added() {
    let devices = Devices::new();
    let (store, pages) = pages(&devices, &StoreOptions { frames: 64, ..options() }, 300);
    let mut change = store.change();
    for page in pages.iter().step_by(3) {
        store.free(&mut change, *page).unwrap();
    }
    change.commit().unwrap();
    let free: BTreeSet<PageId> = pages.iter().step_by(3).copied().collect();
    let mut taken = BTreeSet::new();
    for _ in 0..free.len() {
        let mut change = store.change();
        let page = store.allocate(&mut change, CELLS).unwrap();
        taken.insert(change.id(page));
        change.commit().unwrap();
    }
    assert_eq!(taken, free);
    // More than the bits of one map.
    let group = 8 * (4096 - HEADER_BYTES) as u64;
    for number in 0..group {
        let mut change = store.change();
        store.allocate(&mut change, CELLS).unwrap();
        change.commit().unwrap();
        if number % 500 == 0 {
            store.checkpoint_if_due().unwrap();
        }
    }
    assert_eq!(store.used_pages().unwrap(), 300 + group + 3);
    store.log().wait_until_all_durable().unwrap();
    drop(store);
    let store = devices.open().unwrap();
    assert_eq!(store.used_pages().unwrap(), 300 + group + 3);
}

#[test]
fn the_log_stays_short_while_pages_are_changed() {
    let devices = Devices::new();
    let store = devices.open().unwrap();
    let mut model = Model::default();
    for _ in 0..3000 {
        model.step(&store, 5).unwrap();
        store.checkpoint_if_due().unwrap();
        let bytes = store.log_bytes();
        assert!(bytes <= (128 << 10) + (64 << 10), "{bytes} bytes of log");
    }
    model.check(&store, "after many changes");
    store.log().wait_until_all_durable().unwrap();
    drop(store);
    model.check(&devices.open().unwrap(), "opened again");
    let files = devices.log.list().unwrap().iter().filter(|name| name.ends_with(".log")).count();
    assert!(files <= 8, "{files} files of the log");
}

#[test]
fn a_full_disk_refuses_pages_and_keeps_those_there() {
    let devices = Devices::new();
    devices.of_pages.set_plan(nandina_simulation::FaultPlan::none().capacity(2 << 20));
    let store = devices.open().unwrap();
    let mut count = 0;
    let error = loop {
        let mut change = store.change();
        match store.allocate(&mut change, CELLS) {
            Ok(page) => change.write(page, HEADER_BYTES, &[1]),
            Err(error) => break error.to_string(),
        }
        change.commit().unwrap();
        count += 1;
    };
    assert!(error.contains("no room for more pages") && error.contains("free space"), "{error}");
    assert!(count > 100, "{count}");
    assert_eq!(store.used_pages().unwrap(), count + 2);
    store.log().wait_until_all_durable().unwrap();
    drop(store);
    let store = devices.open().unwrap();
    assert_eq!(store.used_pages().unwrap(), count + 2);
    devices.of_pages.set_plan(nandina_simulation::FaultPlan::none());
    let mut change = store.change();
    store.allocate(&mut change, CELLS).unwrap();
    change.commit().unwrap();
    assert_eq!(store.used_pages().unwrap(), count + 3);
}

#[test]
fn a_pool_full_of_changed_pages_shrinks() {
    let devices = Devices::new();
    let options = StoreOptions { frames: 1500, most_frames: 1500, most_log_bytes: 64 << 20, ..options() };
    let store = devices.open_with(&options).unwrap();
    for _ in 0..1400 {
        let mut change = store.change();
        store.allocate(&mut change, CELLS).unwrap();
        change.commit().unwrap();
    }
    store.pool().resize(16).unwrap();
    assert!(store.pool().statistics().written > 1380, "{:?}", store.pool().statistics());
    assert_eq!(store.used_pages().unwrap(), 1402);
}
