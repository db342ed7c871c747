//! Trees that get all of their keys at once, in order, and trees that lose all of them.
//!
//! ```text
//!   keys in order ─► last leaf, in memory ─► full: into its page, with a separator and an empty last leaf behind it
//! ```
//!
//! Each leaf is written once, as full as was asked for, and is linked by the same change: the tree is one at every moment, and a crash
//! leaves one with the first of the keys. Inner nodes are filled as by keys that are added in order.

use super::node::{self, Node, Parts, leaf_bytes, separator};
use super::{TREE_KIND, Tree};
use crate::error::{Error, Result};
use crate::page::PageId;
use crate::pool::PageWrite;
use crate::store::PageStore;

/// Leaves that are given back by one change. The map of each stays latched to its end.
const CLEARED: usize = 6;

/// The last leaf of a tree, as it is going to be.
struct LastLeaf {
    /// Bytes that a leaf takes at most, unless it has one key.
    most_bytes: usize,
    lower: Vec<u8>,
    keys: Vec<Vec<u8>>,
    /// The leaf could end behind so many of its keys, which have so many bytes.
    fitting: usize,
    fitting_bytes: usize,
}

impl LastLeaf {
    fn push(&mut self, key: Vec<u8>) {
        assert!(self.keys.last().is_none_or(|last| *last < key), "keys come in order, each once");
        self.keys.push(key);
    }

    /// Bytes of keys and leaf if it ended behind so many keys, the last one of which has not been counted yet.
    fn bytes_with(&self, keys: usize) -> (usize, usize) {
        let key_bytes = self.fitting_bytes + self.keys[keys - 1].len();
        let upper = self.keys.get(keys).map(|next| separator(&self.keys[keys - 1], next));
        (key_bytes, leaf_bytes(&self.lower, upper.as_deref(), keys, key_bytes))
    }

    /// The keys of a leaf that the tree gets, if there are enough for one: the next one goes beyond it.
    fn full(&mut self) -> Option<usize> {
        while self.fitting + 1 < self.keys.len() {
            let (key_bytes, bytes) = self.bytes_with(self.fitting + 1);
            if bytes > self.most_bytes && self.fitting > 0 {
                return Some(self.fitting);
            }
            self.fitting += 1;
            self.fitting_bytes = key_bytes;
        }
        None
    }

    /// Takes the first keys out. Others are behind them.
    fn split(&mut self, keys: usize) -> (Parts, Vec<u8>) {
        let separator = separator(&self.keys[keys - 1], &self.keys[keys]);
        let rest = self.keys.split_off(keys);
        let parts = Parts {
            level: 0,
            lower: std::mem::replace(&mut self.lower, separator.clone()),
            upper: Some(separator.clone()),
            keys: std::mem::replace(&mut self.keys, rest),
            children: Vec::new(),
        };
        (self.fitting, self.fitting_bytes) = (0, 0);
        (parts, separator)
    }

    /// The last leaf, if what is left fits into one.
    fn last(&mut self) -> Option<Parts> {
        let bytes = self.keys.iter().map(Vec::len).sum();
        let fits =
            self.keys.len() < 2 || leaf_bytes(&self.lower, None, self.keys.len(), bytes) <= self.most_bytes;
        fits.then(|| Parts {
            lower: std::mem::take(&mut self.lower),
            keys: std::mem::take(&mut self.keys),
            ..Parts::empty()
        })
    }
}

impl Tree {
    /// Gives a tree that is empty its keys, which come in order. Leaves are so full, in percent from 50 on. Others may read
    /// the tree, but not change it.
    pub fn fill(
        self,
        store: &PageStore,
        percent: usize,
        keys: impl IntoIterator<Item = Result<Vec<u8>>>,
    ) -> Result<()> {
        {
            let root = self.read(store, self.root)?;
            assert!(
                Node(&root).is_leaf() && Node(&root).count() == 0,
                "a tree that is filled is empty before"
            );
        }
        let mut leaf = LastLeaf {
            most_bytes: store.page_bytes() * percent.clamp(50, 100) / 100,
            lower: Vec::new(),
            keys: Vec::new(),
            fitting: 0,
            fitting_bytes: 0,
        };
        for key in keys {
            let (key, most_bytes) = (key?, Self::most_key_bytes(store));
            if key.len() > most_bytes {
                return Err(Error::KeyTooLong { bytes: key.len(), most_bytes });
            }
            leaf.push(key);
            while let Some(keys) = leaf.full() {
                self.add_leaf(store, leaf.split(keys))?;
            }
        }
        loop {
            if let Some(last) = leaf.last() {
                return self.set_last_leaf(store, &last);
            }
            // Without a fence behind them, keys take more bytes.
            let fitting = leaf.fitting;
            self.add_leaf(store, leaf.split(fitting))?;
            assert!(leaf.full().is_none(), "the keys of one leaf fit into two");
        }
    }

    /// Writes the last leaf, and has an empty one behind it.
    fn add_leaf(self, store: &PageStore, (leaf, separator): (Parts, Vec<u8>)) -> Result<()> {
        let last = || Parts { lower: separator.clone(), ..Parts::empty() };
        loop {
            let (parent, page) = self.last_leaf(store, &leaf.lower)?;
            match parent {
                None => Self::put_two_below(store, page, (leaf, separator.clone(), last()))?,
                Some(parent) if !Node(&parent).has_room(separator.len()) => {
                    drop((parent, page));
                    self.split_for(store, &separator)?;
                    continue;
                }
                Some(parent) => {
                    let number = Node(&parent).count();
                    Self::put_two_beside(store, parent, number, page, (leaf, separator.clone(), last()))?;
                }
            }
            store.throttle()?;
            return store.checkpoint_if_due();
        }
    }

    fn set_last_leaf(self, store: &PageStore, leaf: &Parts) -> Result<()> {
        let (parent, page) = self.last_leaf(store, &leaf.lower)?;
        drop(parent);
        let mut change = store.change();
        let page = change.add(page);
        leaf.write(&mut change, page);
        change.commit().map(drop)
    }

    /// The last leaf, which is still empty, and the node above it.
    fn last_leaf<'s>(
        self,
        store: &'s PageStore,
        lower: &[u8],
    ) -> Result<(Option<PageWrite<'s>>, PageWrite<'s>)> {
        let (mut parent, mut page) = (None, self.write(store, self.root)?);
        while !Node(&page).is_leaf() {
            let child = self.child_to_change(store, &page, Node(&page).count(), None)?;
            parent = Some(std::mem::replace(&mut page, child));
        }
        let is_as_left = Node(&page).count() == 0 && Node(&page).lower() == lower;
        assert!(is_as_left, "a tree that is being filled gets no other keys");
        Ok((parent, page))
    }

    /// Takes all keys out of a tree that is not used any more, and gives its pages back, but for the root: transactions may still
    /// have keys to take away from it. It goes on where a crash has ended it.
    ///
    /// ```text
    ///   root: an empty leaf ─── upper child ──► what was the root, and has fewer and fewer leaves
    /// ```
    pub fn clear(self, store: &PageStore) -> Result<()> {
        let rest = {
            let root = self.write(store, self.root)?;
            let node = Node(&root);
            if node.is_leaf() { node.child(node.count()) } else { Self::set_apart(store, root)? }
        };
        if rest != PageId(0) {
            while Self::at(rest).clear_some(store)? {
                store.throttle()?;
                store.checkpoint_if_due()?;
            }
        }
        let root = self.write(store, self.root)?;
        let mut change = store.change();
        let root = change.add(root);
        Parts::empty().write(&mut change, root);
        if rest != PageId(0) {
            store.free(&mut change, rest)?;
        }
        change.commit().map(drop)
    }

    /// Moves what is in the root to another page, which an empty leaf leads to.
    fn set_apart<'a>(store: &'a PageStore, root: PageWrite<'a>) -> Result<PageId> {
        let parts = Node(&root).parts();
        let mut change = store.change();
        let root = change.add(root);
        let rest = store.allocate(&mut change, TREE_KIND)?;
        parts.write(&mut change, rest);
        let rest = change.id(rest);
        Parts::empty().write(&mut change, root);
        node::set_child(&mut change, root, 0, rest);
        change.commit().map(|_| rest)
    }

    /// Gives the first leaves back; whether there are more. A node whose last leaf goes becomes an empty leaf, and goes as such.
    fn clear_some(self, store: &PageStore) -> Result<bool> {
        let mut node = self.write(store, self.root)?;
        if Node(&node).is_leaf() {
            return Ok(false);
        }
        while Node(&node).level() > 1 {
            let child = self.write(store, Node(&node).child(0))?;
            if Node(&child).is_leaf() {
                break;
            }
            node = child;
        }
        let mut parts = Node(&node).parts();
        let gone: Vec<PageId> = if parts.keys.is_empty() {
            std::mem::replace(&mut parts, Parts::empty()).children
        } else {
            let at_once = if parts.level == 1 { CLEARED.min(parts.keys.len()) } else { 1 };
            parts.keys.drain(..at_once);
            parts.children.drain(..at_once).collect()
        };
        let mut change = store.change();
        let node = change.add(node);
        parts.write(&mut change, node);
        gone.into_iter().try_for_each(|page| store.free(&mut change, page))?;
        change.commit().map(|_| true)
    }
}
