//! B+trees against sorted sets.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::BTreeSet;
use std::ops::Bound;

use nandina_rowstore::tree::Tree;
use nandina_rowstore::{PageStore, Result, StoreOptions};
use nandina_simulation::CrashOutcome;

use self::setup::{Devices, PAGE_BYTES, Random, options};

mod bulk;
#[path = "../pages/setup.rs"]
#[allow(dead_code, reason = "for tests of pages")]
mod setup;

type Keys = BTreeSet<Vec<u8>>;

fn create(store: &PageStore) -> Result<Tree> {
    let mut change = store.change();
    let tree = Tree::create(store, &mut change)?;
    store.set_root(&mut change, 8, tree.root().0)?;
    change.commit()?;
    Ok(tree)
}

/// A key of one of several kinds: numbers, texts with much in common, long ones. None is the beginning of another.
fn key(kind: u64, random: &mut Random) -> Vec<u8> {
    let number = random.below(5000);
    let text = match kind {
        0 => return [b"\x01".as_slice(), &number.to_be_bytes()].concat(),
        1 => format!("customer/order/line/{number:09}/of-this-year"),
        2 => format!("{:0width$}", number, width = 6 + (number * 37 % 480) as usize),
        _ => format!("{}{number}", "abc".repeat((number % 4) as usize)),
    };
    [text.as_bytes(), &[0]].concat()
}

fn all(tree: Tree, store: &PageStore) -> Vec<Vec<u8>> {
    tree.range(store, Bound::Unbounded, Bound::Unbounded).map(Result::unwrap).collect()
}

fn check(tree: Tree, store: &PageStore, keys: &Keys, context: &str) {
    let found = all(tree, store);
    assert!(found.iter().eq(keys.iter()), "{context}: {} keys of {}", found.len(), keys.len());
}

fn step(
    tree: Tree,
    store: &PageStore,
    keys: &mut Keys,
    kind: u64,
    random: &mut Random,
    share: u64,
) -> Result<()> {
    let key = key(kind, random);
    if random.below(10) < share {
        let is_new = tree.insert(store, &key, |_| Ok(()))?.is_some();
        assert_eq!(is_new, keys.insert(key));
    } else {
        let was_there = tree.remove(store, &key, |_| Ok(()))?.is_some();
        assert_eq!(was_there, keys.remove(&key));
    }
    Ok(())
}

/// Grows, stays, shrinks, to nothing at last.
fn grow_and_shrink(kind: u64, seed: u64, steps: usize) {
    let devices = Devices::new();
    let store = devices.open().unwrap();
    let tree = create(&store).unwrap();
    let mut random = Random::new(seed);
    let mut keys = Keys::new();
    let empty = store.used_pages().unwrap();
    for (phase, share) in [9, 5, 2, 7, 0].into_iter().enumerate() {
        for number in 0..steps {
            step(tree, &store, &mut keys, kind, &mut random, share).unwrap();
            if number % 500 == 0 {
                store.checkpoint_if_due().unwrap();
            }
        }
        check(tree, &store, &keys, &format!("kind {kind}, phase {phase}"));
        ranges(tree, &store, &keys, kind, &mut random);
        let shape = tree.shape(&store).unwrap();
        let used = store.used_pages().unwrap();
        assert_eq!(used - empty + 1, shape.iter().sum::<usize>() as u64, "every page is a node: {shape:?}");
    }
    for key in std::mem::take(&mut keys) {
        assert!(tree.remove(&store, &key, |_| Ok(())).unwrap().is_some());
    }
    check(tree, &store, &keys, "without keys");
    assert!(tree.shape(&store).unwrap().iter().sum::<usize>() <= 3, "{:?}", tree.shape(&store));
}

#[test]
fn a_tree_has_the_keys_of_a_sorted_set() {
    (0..4).for_each(|kind| grow_and_shrink(kind, kind + 7, 6000));
}

#[test]
#[ignore = "six million keys take minutes: cargo test --release -p nandina-rowstore -- --ignored"]
fn trees_have_the_keys_of_sorted_sets_for_long() {
    (0..4).for_each(|kind| grow_and_shrink(kind, kind + 70, 300_000));
}

/// Ranges with and without bounds, both ways.
fn ranges(tree: Tree, store: &PageStore, keys: &Keys, kind: u64, random: &mut Random) {
    for _ in 0..60 {
        let bound = |random: &mut Random| match random.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(key(kind, random)),
            _ => Bound::Excluded(key(kind, random)),
        };
        let (lower, upper) = (bound(random), bound(random));
        let is_within = |key: &&Vec<u8>| {
            let above = match &lower {
                Bound::Unbounded => true,
                Bound::Included(lower) => *key >= lower,
                Bound::Excluded(lower) => *key > lower,
            };
            let below = match &upper {
                Bound::Unbounded => true,
                Bound::Included(upper) => *key <= upper,
                Bound::Excluded(upper) => *key < upper,
            };
            above && below
        };
        let right: Vec<&Vec<u8>> = keys.iter().filter(is_within).collect();
        let forward = tree.range(store, lower.clone(), upper.clone()).map(Result::unwrap);
        assert!(forward.eq(right.iter().copied().cloned()), "{lower:?} to {upper:?}");
        let backward = tree.range_backward(store, lower.clone(), upper.clone()).map(Result::unwrap);
        assert!(backward.eq(right.iter().rev().copied().cloned()), "back from {upper:?} to {lower:?}");
    }
}

#[test]
fn keys_in_order_fill_nodes_and_long_ones_are_refused() {
    let devices = Devices::new();
    let store = devices.open().unwrap();
    let tree = create(&store).unwrap();
    let empty = store.used_pages().unwrap();
    for number in 0..20_000_u64 {
        tree.insert(&store, &number.to_be_bytes(), |_| Ok(())).unwrap();
        if number % 1000 == 0 {
            store.checkpoint_if_due().unwrap();
        }
    }
    // A slot and a key each. Once a node has an upper fence, keys are shorter, and it has room for others.
    let used = (store.used_pages().unwrap() - empty) as usize * PAGE_BYTES;
    assert!(used < 20_000 * 16 * 9 / 8, "{used} bytes");

    let texts = create(&store).unwrap();
    let text = |number: u64| format!("{:04}{}", number, "x".repeat(200)).into_bytes();
    let before = store.used_pages().unwrap();
    (0..2000).for_each(|number| assert!(texts.insert(&store, &text(number), |_| Ok(())).unwrap().is_some()));
    let used = (store.used_pages().unwrap() - before) as usize * PAGE_BYTES;
    assert!(used < 2000 * 212 * 5 / 4, "{used} bytes");
    // Between the others, and at the end by longer ones.
    for number in 0..2000 {
        assert!(texts.insert(&store, &[&text(number)[..], b"y"].concat(), |_| Ok(())).unwrap().is_some());
        let long = [&text(number + 2000)[..4], &vec![b'z'; 400]].concat();
        assert!(texts.insert(&store, &long, |_| Ok(())).unwrap().is_some());
    }
    assert_eq!(all(texts, &store).len(), 6000);
    assert!(all(texts, &store).is_sorted());
    assert!(tree.contains(&store, &77_u64.to_be_bytes()).unwrap());
    assert!(!tree.contains(&store, &77_777_u64.to_be_bytes()).unwrap());
    let most = Tree::most_key_bytes(&store);
    assert!(tree.insert(&store, &vec![9; most], |_| Ok(())).unwrap().is_some());
    let error = tree.insert(&store, &vec![9; most + 1], |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("too long"), "{error}");
}

#[test]
fn threads_add_remove_and_read_at_once() {
    let devices = Devices::new();
    let options = StoreOptions { frames: 64, ..options() };
    let store = devices.open_with(&options).unwrap();
    let tree = create(&store).unwrap();
    const THREADS: u64 = 4;
    let own = |thread: u64, number: u64| [&number.to_be_bytes()[..], &[thread as u8]].concat();
    let sets: Vec<Keys> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let store = &store;
                scope.spawn(move || {
                    let mut random = Random::new(thread + 3);
                    let mut keys = Keys::new();
                    for number in 0..8000 {
                        let key = own(thread, random.below(2000));
                        let share = if number < 4000 { 7 } else { 4 };
                        if random.below(10) < share {
                            let is_new = tree.insert(store, &key, |_| Ok(())).unwrap().is_some();
                            assert_eq!(is_new, keys.insert(key));
                        } else {
                            let was_there = tree.remove(store, &key, |_| Ok(())).unwrap().is_some();
                            assert_eq!(was_there, keys.remove(&key));
                        }
                        if number % 400 == 0 {
                            // Of its own keys, a thread sees exactly those that are there.
                            let seen =
                                tree.range(store, Bound::Unbounded, Bound::Unbounded).map(Result::unwrap);
                            assert!(seen.filter(|key| key[8] == thread as u8).eq(keys.iter().cloned()));
                            store.checkpoint_if_due().unwrap();
                        }
                    }
                    keys
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let keys: Keys = sets.into_iter().flatten().collect();
    check(tree, &store, &keys, "all threads");
    store.log().wait_until_all_durable().unwrap();
    devices.crash(CrashOutcome::LoseUnsynced);
    drop(store);
    let store = devices.open_with(&options).unwrap();
    check(tree, &store, &keys, "after a crash");
}

#[test]
fn power_fails_while_nodes_are_split_and_merged() {
    const STEPS: usize = 1500;
    let run = |store: &PageStore, histories: &mut Vec<Keys>| -> Result<()> {
        let tree = create(store)?;
        let mut random = Random::new(1);
        let mut keys = Keys::new();
        for number in 0..STEPS {
            let share = if number < STEPS * 2 / 3 { 8 } else { 1 };
            step(tree, store, &mut keys, 2, &mut random, share)?;
            histories.push(keys.clone());
            if number % 100 == 99 {
                store.checkpoint()?;
            }
        }
        Ok(())
    };
    let (events, histories) = {
        let devices = Devices::new();
        let store = devices.open().unwrap();
        let mut histories = Vec::new();
        run(&store, &mut histories).unwrap();
        let shape = Tree::at(nandina_rowstore::page::PageId(store.root(8).unwrap())).shape(&store).unwrap();
        assert!(shape.len() >= 2, "{shape:?}");
        (devices.machine.events(), histories)
    };
    for event in (0..events).step_by(7) {
        let devices = Devices::new();
        devices.machine.lose_power_at(event);
        let _ = devices.open().and_then(|store| run(&store, &mut Vec::new()));
        devices.crash(CrashOutcome::Random { seed: event });
        let store = devices.open().unwrap();
        let root = store.root(8).unwrap();
        if root == 0 {
            continue;
        }
        let tree = Tree::at(nandina_rowstore::page::PageId(root));
        let found: Keys = all(tree, &store).into_iter().collect();
        assert!(found.is_empty() || histories.contains(&found), "event {event}: {} keys", found.len());
        let used = store.used_pages().unwrap();
        assert_eq!(used - 2, tree.shape(&store).unwrap().iter().sum::<usize>() as u64, "event {event}");
    }
}
