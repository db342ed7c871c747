//! Pages with anything in them and right checksums: those of another program, or of a mistake in this one. All that may happen is an
//! error.
//!
//! Chains of pages that lead back to themselves are not among them, nor is what undo entries say.

use std::ops::Bound;

use nandina_device::{FileClass, OpenMode};
use nandina_rowstore::heap::directory::{DIRECTORY_KIND, TableId};
use nandina_rowstore::heap::overflow::OVERFLOW_KIND;
use nandina_rowstore::heap::slotted::HEAP_KIND;
use nandina_rowstore::page::{self, HEADER_BYTES, PageId, PageKind};
use nandina_rowstore::tree::{TREE_KIND, Tree};
use nandina_rowstore::{Result, RowStore};

use crate::setup::{Devices, PAGE_BYTES, Random, STORE_ID, options};

/// More rows than there are: a scan of so many does not end.
const MOST_ROWS: usize = 10_000;

fn open(devices: &Devices) -> Result<RowStore> {
    RowStore::open(devices.pages.clone(), devices.log.clone(), STORE_ID, &options())
}

fn key(number: u64) -> Vec<u8> {
    format!("key/of/a/row/{number:05}\0").into_bytes()
}

fn row(number: u64) -> Vec<u8> {
    let length = if number % 50 == 7 { 9000 } else { 60 + number % 90 };
    (0..length).map(|at| (at * 3 + number) as u8).collect()
}

/// Rows of all lengths with keys, some of them changed and deleted while a snapshot sees them, in pages on the device.
fn filled(devices: &Devices) -> (TableId, Tree) {
    let store = open(devices).unwrap();
    let (table, tree) = (store.create_table().unwrap(), store.create_index().unwrap());
    let mut rows = Vec::new();
    let mut transaction = store.begin();
    for number in 0..300 {
        let id = transaction.insert(table, &row(number)).unwrap();
        transaction.index_insert(tree, &key(number), id, None).unwrap();
        rows.push(id);
    }
    transaction.commit().unwrap();
    let reader = store.begin();
    let mut transaction = store.begin();
    for (number, id) in rows.iter().enumerate().step_by(7) {
        transaction.update(table, *id, &row(number as u64 + 1)).unwrap();
        if number % 3 == 0 {
            transaction.index_remove(tree, &key(number as u64), *id).unwrap();
            transaction.delete(table, *id).unwrap();
        }
    }
    transaction.commit().unwrap();
    store.pages().checkpoint().unwrap();
    drop(reader);
    (table, tree)
}

/// Reads and changes everything.
fn use_all(devices: &Devices, table: TableId, tree: Tree) -> Result<usize> {
    let store = open(devices)?;
    let mut transaction = store.begin();
    let mut count = 0;
    for found in transaction.scan(table)? {
        let (id, _) = found?;
        transaction.get(table, id)?;
        count += 1;
        assert!(count < MOST_ROWS, "the table has no end");
    }
    for is_backward in [false, true] {
        let keys = transaction.index_range(tree, Bound::Unbounded, Bound::Unbounded, is_backward);
        for (number, found) in keys.enumerate() {
            let (_, id) = found?;
            transaction.get(table, id)?;
            assert!(number < MOST_ROWS, "the index has no end");
        }
    }
    for number in (0..320).step_by(3) {
        let key = key(number);
        let found = transaction.index_range(tree, Bound::Included(&key), Bound::Included(&key), false);
        let found = found.rows().next().transpose()?;
        match found {
            Some(id) if number % 2 == 0 => {
                transaction.update(table, id, &row(number + 2))?;
            }
            Some(id) => {
                transaction.index_remove(tree, &key, id)?;
                transaction.delete(table, id)?;
            }
            None => {
                let id = transaction.insert(table, &row(number))?;
                transaction.index_insert(tree, &key, id, None)?;
            }
        }
    }
    transaction.commit()?;
    store.pages().checkpoint()?;
    Ok(count)
}

/// Changes something of a page of a kind, and gives it the right checksum; `None` if there is none.
fn damage(devices: &Devices, kind: PageKind, random: &mut Random) -> Option<PageId> {
    let file = devices.pages.open_file("rows.pages", FileClass::Other, OpenMode::ReadWrite).unwrap();
    let read = |page: u64| file.read_blocking(page * PAGE_BYTES as u64, devices.pages.buffer(PAGE_BYTES));
    let is_of_kind = |page: &u64| {
        read(*page)
            .is_ok_and(|bytes| page::verify(&bytes) == Some(PageId(*page)) && page::kind(&bytes) == kind)
    };
    let pages: Vec<u64> = (16..file.len().unwrap() / PAGE_BYTES as u64).filter(is_of_kind).collect();
    let page = *pages.get(random.below(pages.len().max(1) as u64) as usize)?;
    let mut bytes = read(page).unwrap();
    // Behind what leads to the next page of a chain.
    let (first, front) = match kind {
        OVERFLOW_KIND => (HEADER_BYTES + 8, 4),
        DIRECTORY_KIND => (HEADER_BYTES + 16, 120),
        _ => (HEADER_BYTES, 120),
    };
    for _ in 0..1 + random.below(3) {
        // What stands in front of the content, or anything.
        let most = if random.below(2) == 0 { front } else { PAGE_BYTES - first - 2 };
        let at = first + random.below(most as u64) as usize;
        match random.below(4) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.below(256) as u8,
            2 => bytes[at..at + 2].copy_from_slice(&(random.below(1 << 16) as u16).to_le_bytes()),
            _ => bytes[at..at + 2].fill(0),
        }
    }
    page::seal(&mut bytes);
    file.write_blocking(page * PAGE_BYTES as u64, bytes).unwrap();
    file.sync().unwrap();
    Some(PageId(page))
}

#[test]
fn pages_that_cannot_be_are_errors() {
    const ROUNDS: u64 = 60;
    for kind in [HEAP_KIND, TREE_KIND, DIRECTORY_KIND, OVERFLOW_KIND] {
        let (mut failed, mut whole) = (0, 0);
        for seed in 0..ROUNDS {
            let devices = Devices::new();
            let (table, tree) = filled(&devices);
            let mut random = Random::new(seed + 1000 * u64::from(kind.0));
            damage(&devices, kind, &mut random).unwrap();
            match use_all(&devices, table, tree) {
                Ok(_) => whole += 1,
                Err(error) => {
                    failed += 1;
                    assert!(error.to_string().contains(' '), "{error}");
                }
            }
        }
        println!("{kind:?}: {failed} of {ROUNDS} are errors, {whole} are noticed by nobody");
        assert!(failed > 0, "{kind:?}: nothing was noticed");
    }
}
