//! Trees that are filled with keys in order, and cleared.

use nandina_rowstore::page::PageId;
use nandina_rowstore::tree::Tree;
use nandina_rowstore::{PageStore, Result};
use nandina_simulation::CrashOutcome;

use super::setup::{Devices, PAGE_BYTES, Random};
use super::{Keys, all, check, create, key, ranges, step};

/// So many keys of a kind, if there are as many.
fn keys_of(kind: u64, count: usize) -> Keys {
    let mut random = Random::new(kind + 90);
    (0..3 * count).map(|_| key(kind, &mut random)).collect::<Keys>().into_iter().take(count).collect()
}

fn fill(tree: Tree, store: &PageStore, percent: usize, keys: &Keys) -> Result<()> {
    tree.fill(store, percent, keys.iter().cloned().map(Ok))
}

#[test]
fn filled_trees_are_as_if_keys_had_been_added() {
    for kind in 0..4 {
        let (mut at_half, mut at_most) = (0, 0);
        for (percent, count) in [(50, 3000), (90, 1), (90, 2), (90, 40), (90, 3000), (100, 3000), (100, 0)] {
            let context = format!("{count} keys of kind {kind} at {percent} %");
            let devices = Devices::new();
            let store = devices.open().unwrap();
            let empty = store.used_pages().unwrap();
            let tree = create(&store).unwrap();
            let mut keys = keys_of(kind, count);
            fill(tree, &store, percent, &keys).unwrap();
            check(tree, &store, &keys, &context);
            let mut random = Random::new(kind + 5);
            ranges(tree, &store, &keys, kind, &mut random);
            let shape = tree.shape(&store).unwrap();
            let nodes = shape.iter().sum::<usize>() as u64;
            assert_eq!(store.used_pages().unwrap() - empty, nodes, "{context}: every page is a node");
            match percent {
                50 => at_half = shape[0],
                100 => at_most = at_most.max(shape[0]),
                _ => {}
            }
            // It goes on as others do, from wherever it is.
            for share in [8, 2] {
                for number in 0..2000 {
                    step(tree, &store, &mut keys, kind, &mut random, share).unwrap();
                    if number % 500 == 0 {
                        store.checkpoint_if_due().unwrap();
                    }
                }
                check(tree, &store, &keys, &format!("{context}, then changed"));
            }
            tree.clear(&store).unwrap();
            assert_eq!(store.used_pages().unwrap() - empty, 1, "{context}: all pages but the root are free");
            fill(tree, &store, percent, &keys).unwrap();
            check(tree, &store, &keys, &format!("{context}, again"));
        }
        assert!(at_half * 2 > at_most * 3 && at_most > 1, "kind {kind}: {at_half} and {at_most} leaves");
    }
}

#[test]
fn full_leaves_are_full() {
    let devices = Devices::new();
    let store = devices.open().unwrap();
    let tree = create(&store).unwrap();
    let keys: Keys = (0..20_000_u64).map(|number| number.to_be_bytes().to_vec()).collect();
    fill(tree, &store, 100, &keys).unwrap();
    // A slot and two bytes of a key each: a leaf has keys of one prefix of six bytes, but where that changes.
    let leaves = tree.shape(&store).unwrap()[0];
    assert!(leaves * PAGE_BYTES < 20_000 * 10 * 21 / 20, "{leaves} leaves");
    check(tree, &store, &keys, "numbers");
}

#[test]
fn what_fails_leaves_the_first_keys() {
    let devices = Devices::new();
    let store = devices.open().unwrap();
    let empty = store.used_pages().unwrap();
    let tree = create(&store).unwrap();
    let keys = keys_of(1, 1000);
    let too_long = vec![u8::MAX; Tree::most_key_bytes(&store) + 1];
    let error = tree.fill(&store, 90, keys.iter().cloned().chain([too_long]).map(Ok)).unwrap_err();
    assert!(error.to_string().contains("too long"), "{error}");
    assert!(keys.iter().cloned().collect::<Vec<_>>().starts_with(&all(tree, &store)));
    tree.clear(&store).unwrap();
    assert_eq!(store.used_pages().unwrap() - empty, 1);
}

#[test]
#[should_panic(expected = "keys come in order")]
fn keys_out_of_order_are_not_taken() {
    let devices = Devices::new();
    let store = devices.open().unwrap();
    let tree = create(&store).unwrap();
    let _ = tree.fill(&store, 90, [vec![2], vec![1]].map(Ok));
}

#[test]
fn power_fails_while_a_tree_is_filled_and_cleared() {
    let keys = keys_of(2, 900);
    let sorted: Vec<Vec<u8>> = keys.iter().cloned().collect();
    let fill_it = |store: &PageStore| -> Result<()> {
        let tree = create(store)?;
        fill(tree, store, 90, &keys)?;
        store.checkpoint()
    };
    let the_tree = |store: &PageStore| {
        let root = store.root(8).unwrap();
        (root != 0).then(|| Tree::at(PageId(root)))
    };
    let clear_it = |store: &PageStore| the_tree(store).map_or(Ok(()), |tree| tree.clear(store));
    let (filling, empty) = {
        let devices = Devices::new();
        let store = devices.open().unwrap();
        let empty = store.used_pages().unwrap();
        fill_it(&store).unwrap();
        (devices.machine.events(), empty)
    };
    for event in (0..filling).step_by(3) {
        let devices = Devices::new();
        devices.machine.lose_power_at(event);
        let _ = devices.open().and_then(|store| fill_it(&store));
        devices.crash(CrashOutcome::Random { seed: event });
        let store = devices.open().unwrap();
        if let Some(tree) = the_tree(&store) {
            assert!(sorted.starts_with(&all(tree, &store)), "event {event}");
            let nodes = tree.shape(&store).unwrap().iter().sum::<usize>() as u64;
            assert_eq!(store.used_pages().unwrap() - empty, nodes, "event {event}");
        }
        // Again while it is cleared, and then to its end.
        devices.machine.lose_power_at(devices.machine.events() + event % 40);
        let _ = clear_it(&store).and_then(|()| store.checkpoint());
        drop(store);
        devices.crash(CrashOutcome::Random { seed: event + 1 });
        let store = devices.open().unwrap();
        let Some(tree) = the_tree(&store) else { continue };
        if event % 2 == 0 {
            // An entry of an older transaction takes a key away.
            tree.remove(&store, &sorted[0], |_| Ok(())).unwrap();
        }
        tree.clear(&store).unwrap();
        assert_eq!(store.used_pages().unwrap() - empty, 1, "event {event}: all pages but the root are free");
        fill(tree, &store, 90, &keys).unwrap();
        check(tree, &store, &keys, "again");
    }
}
