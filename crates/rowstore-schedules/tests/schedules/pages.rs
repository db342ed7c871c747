//! Pages that threads read and change while they leave memory and come back.

use std::sync::Arc;

use scheduled_rowstore::PageStore;
use scheduled_rowstore::page::{HEADER_BYTES, PageId, PageKind, long_at};
use scheduled_rowstore::tier::Access;

use crate::{Devices, schedules, together};

const CELLS: PageKind = PageKind(100);
/// More than there are frames.
const PAGES: usize = 20;
const FRAMES: usize = 16;

fn create(store: &PageStore, pages: usize) -> Vec<PageId> {
    let new = |_| {
        let mut change = store.change();
        let page = store.allocate(&mut change, CELLS).unwrap();
        let id = change.id(page);
        change.commit().unwrap();
        id
    };
    (0..pages).map(new).collect()
}

/// Adds one to the number of a page.
fn count_up(store: &PageStore, page: PageId) {
    let mut change = store.change();
    let latched = change.latch(page).unwrap();
    let next = long_at(change.page(latched), HEADER_BYTES) + 1;
    change.write(latched, HEADER_BYTES, &next.to_le_bytes());
    change.commit().unwrap();
}

#[test]
fn no_change_is_lost_while_pages_leave_memory() {
    schedules(|| {
        let devices = Devices::new();
        let store = devices.page_store(FRAMES);
        let pages = create(&store, PAGES);
        let shared = Arc::new((store, pages));
        together(&shared, 3, |number, (store, pages)| {
            for step in 0..6 {
                // The first page is changed by all, the others by turns.
                count_up(store, pages[0]);
                let page = pages[(number * 7 + step * 5) % PAGES];
                store.pool().prefetch(&[page, pages[(step * 3) % PAGES]], Access::Random);
                count_up(store, page);
                if number == 0 && step % 3 == 2 {
                    store.checkpoint().unwrap();
                }
            }
        });
        let (store, pages) = Arc::into_inner(shared).unwrap();
        let counts = |store: &PageStore| -> Vec<u64> {
            let count = |page: &PageId| long_at(&store.read(*page, Access::Random).unwrap(), HEADER_BYTES);
            pages.iter().map(count).collect()
        };
        let found = counts(&store);
        assert_eq!(found.iter().sum::<u64>(), 3 * 6 * 2, "{found:?}");
        store.log().wait_until_all_durable().unwrap();
        drop(store);
        // From the log and what was written back.
        assert_eq!(counts(&devices.page_store(FRAMES)), found);
    });
}

#[test]
fn pages_that_are_given_back_are_taken_once() {
    schedules(|| {
        let devices = Devices::new();
        let shared = Arc::new(devices.page_store(FRAMES));
        let used = shared.used_pages().unwrap();
        together(&shared, 3, |number, store| {
            for step in 0..4 {
                let mine = create(store, 2);
                for page in &mine {
                    count_up(store, *page);
                }
                if number == 1 && step == 2 {
                    store.checkpoint().unwrap();
                }
                for page in mine {
                    assert_eq!(long_at(&store.read(page, Access::Random).unwrap(), HEADER_BYTES), 1);
                    let mut change = store.change();
                    change.latch(page).unwrap();
                    store.free(&mut change, page).unwrap();
                    change.commit().unwrap();
                }
            }
        });
        assert_eq!(shared.used_pages().unwrap(), used);
    });
}
