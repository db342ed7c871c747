//! What pages should hold: a map of pages to their bytes, changed as the store is.

use std::collections::BTreeMap;
use std::ops::Range;

use nandina_rowstore::page::{HEADER_BYTES, PageId};
use nandina_rowstore::tier::Access;
use nandina_rowstore::{PageStore, Result};

use crate::setup::{CELLS, PAGE_BYTES, Random};

/// Where a page counts the changes: the first page, which is never given back.
pub const COUNT_ROOT: usize = 0;
const FIRST_ROOT: usize = 1;
/// Pages in use grow to about so many.
const MOST_PAGES: u64 = 60;

pub type Pages = BTreeMap<PageId, Vec<u8>>;

/// What is in the store after so many changes.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub pages: Pages,
    pub changes: u64,
}

impl Model {
    /// Makes the next change, in the store and then here. All that is random follows from the number of the change.
    pub fn step(&mut self, store: &PageStore, seed: u64) -> Result<nandina_rowstore::log::Lsn> {
        let number = self.changes + 1;
        let mut random = Random::new(seed ^ (number << 20));
        let mut pages = self.pages.clone();
        if random.below(3) == 0 {
            // One that is dropped leaves everything as it was.
            let mut dropped = store.change();
            for page in pages.keys().take(2).copied().collect::<Vec<_>>() {
                let latched = dropped.latch(page)?;
                dropped.write(latched, 500, b"no one sees this");
                if random.below(2) == 0 {
                    store.free(&mut dropped, page)?;
                }
            }
            store.allocate(&mut dropped, CELLS)?;
            store.allocate(&mut dropped, CELLS)?;
        }
        let mut change = store.change();
        let known: Vec<PageId> = pages.keys().copied().collect();
        if known.is_empty() || random.below(MOST_PAGES) > known.len() as u64 {
            let new = store.allocate(&mut change, CELLS)?;
            let id = change.id(new);
            assert!(!pages.contains_key(&id), "page {id} is in use");
            pages.insert(id, change.page(new)[HEADER_BYTES..].to_vec());
            assert!(pages[&id].iter().all(|byte| *byte == 0), "a new page is empty");
        } else if known.len() > 4 && random.below(4) == 0 {
            let old = known[random.below(known.len() as u64) as usize];
            change.latch(old)?;
            store.free(&mut change, old)?;
            pages.remove(&old);
            if random.below(3) == 0 {
                // It may be the same one.
                let new = store.allocate(&mut change, CELLS)?;
                assert!(
                    change.page(new)[HEADER_BYTES..].iter().all(|byte| *byte == 0),
                    "a new page is empty"
                );
                pages.insert(change.id(new), vec![0; PAGE_BYTES - HEADER_BYTES]);
            }
        }
        for _ in 0..random.below(4) {
            let Some(page) = pages.keys().nth(random.below(pages.len().max(1) as u64) as usize).copied()
            else {
                continue;
            };
            let latched = change.latch(page)?;
            let content = pages.get_mut(&page).unwrap();
            let range = part(&mut random, content.len());
            if random.below(3) == 0 {
                let to = random.below((content.len() - range.len()) as u64) as usize;
                change.shift(
                    latched,
                    HEADER_BYTES + range.start..HEADER_BYTES + range.end,
                    HEADER_BYTES + to,
                );
                content.copy_within(range, to);
            } else {
                let bytes: Vec<u8> = range.clone().map(|at| (at as u64 * 7 + number) as u8).collect();
                change.write(latched, HEADER_BYTES + range.start, &bytes);
                content[range].copy_from_slice(&bytes);
            }
        }
        store.set_root(&mut change, COUNT_ROOT, number)?;
        store.set_root(&mut change, FIRST_ROOT + (number % 8) as usize, number)?;
        let lsn = change.commit()?;
        (self.pages, self.changes) = (pages, number);
        Ok(lsn)
    }

    /// Whether the store has exactly this.
    pub fn check(&self, store: &PageStore, context: &str) {
        assert_eq!(store.root(COUNT_ROOT).unwrap(), self.changes, "{context}");
        for (page, content) in &self.pages {
            let read = store.read(*page, Access::Random).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert!(read[HEADER_BYTES..] == *content, "{context}: page {page}");
        }
        // The root page and one map.
        assert_eq!(store.used_pages().unwrap(), self.pages.len() as u64 + 2, "{context}");
    }
}

fn part(random: &mut Random, bytes: usize) -> Range<usize> {
    assert_eq!(bytes, PAGE_BYTES - HEADER_BYTES);
    let most = if random.below(8) == 0 { 2000 } else { 40 };
    let length = 1 + random.below(most) as usize;
    let start = random.below((bytes - length) as u64) as usize;
    start..start + length
}
