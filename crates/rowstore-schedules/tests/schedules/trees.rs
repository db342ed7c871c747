//! Trees whose nodes are split and merged by several threads.

use std::ops::Bound;
use std::sync::Arc;

use scheduled_rowstore::tree::Tree;
use scheduled_rowstore::{PageStore, Result};

use crate::{Devices, schedules, together};

/// Of so many bytes that a node has seven of them.
const KEY_BYTES: usize = 500;

fn key(number: usize) -> Vec<u8> {
    let mut key = vec![b'k'; KEY_BYTES];
    // At the end, so that separators are as long as keys.
    key[KEY_BYTES - 8..].copy_from_slice(&(number as u64).to_be_bytes());
    key
}

fn create(store: &PageStore) -> Tree {
    let mut change = store.change();
    let tree = Tree::create(store, &mut change).unwrap();
    change.commit().unwrap();
    tree
}

fn numbers(tree: Tree, store: &PageStore) -> Vec<usize> {
    let keys = tree.range(store, Bound::Unbounded, Bound::Unbounded).map(Result::unwrap);
    keys.map(|key| u64::from_be_bytes(*key.last_chunk().unwrap()) as usize).collect()
}

#[test]
fn threads_split_and_merge_the_same_nodes() {
    schedules(|| {
        let devices = Devices::new();
        let store = devices.page_store(24);
        let tree = create(&store);
        // Two levels, soon three.
        for number in 0..12 {
            tree.insert(&store, &key(10 * number), |_| Ok(())).unwrap();
        }
        let shared = Arc::new((store, tree));
        together(&shared, 3, |number, (store, tree)| {
            let nothing = |_: &mut _| Ok(());
            match number {
                // One adds keys next to each other, one takes all of those away that were there, one reads.
                0 => {
                    for step in 0..16 {
                        assert!(tree.insert(store, &key(41 + step), nothing).unwrap().is_some() || step == 9);
                    }
                }
                1 => {
                    for step in 0..12 {
                        assert!(tree.remove(store, &key(10 * step), nothing).unwrap().is_some());
                    }
                }
                _ => {
                    for _ in 0..3 {
                        let found = numbers(*tree, store);
                        assert!(found.is_sorted_by(|one, next| one < next), "{found:?}");
                        let backward = tree.range_backward(store, Bound::Unbounded, Bound::Unbounded);
                        assert!(backward.map(Result::unwrap).is_sorted_by(|one, next| one > next));
                    }
                }
            }
        });
        let (store, tree) = &*shared;
        let mut found = numbers(*tree, store);
        // Key 50 is one of both: it is there if it was added after it was taken away.
        found.retain(|number| *number != 50);
        let right: Vec<usize> = (41..57).filter(|number| *number != 50).collect();
        assert_eq!(found, right);
        tree.shape(store).unwrap();
    });
}
