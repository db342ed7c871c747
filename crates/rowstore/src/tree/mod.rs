//! B+trees: sorted sets of keys, from which indexes are made.
//!
//! ```text
//!   root ── X: it and a child, where the child has to be split or merged
//!     │
//!   inner ── S: latched until its child is (hand over hand)
//!     │
//!   leaf ── S to read, X to add or remove a key
//! ```
//!
//! A key is a string of bytes, compared as such, up to a part of a page; an index appends the row id to the bytes of its columns. No key
//! is the beginning of another one.
//!
//! Adding a key latches inner nodes to read only, in the hope that the leaf has room. Where it has not, nodes are split on the way
//! down, each by one change of pages that is whole by itself: the tree is one at every moment, and the key is looked for again from the
//! root. A node that has become small is merged with its neighbour in the same way. Nodes do not know their neighbours: reading on
//! from a leaf goes down again from the root to its fence, and reads the next leaves ahead when it passes their parent.
//!
//! The root stays in its page. `bulk` fills a tree with keys in order, and clears one.

#![allow(clippy::indexing_slicing, reason = "children are as many as a node says")]

mod bulk;
pub mod node;

use std::ops::Bound;

use self::node::{KEY_PART, Node, Parts, Place};
use crate::change::Change;
use crate::error::{Error, Result};
use crate::log::Lsn;
use crate::page::{self, PageId, PageKind};
use crate::pool::{PageRead, PageWrite};
use crate::store::PageStore;
use crate::tier::Access;

pub const TREE_KIND: PageKind = PageKind(8);

/// A node is merged with its neighbour where both together take less than so many of four parts of a page.
const MERGED_QUARTERS: usize = 3;
/// A node is small if it takes less than one of so many parts of a page.
const SMALL_PART: usize = 4;
/// Leaves that are read ahead.
const LEAVES_AHEAD: usize = 16;
/// Keys that a range takes from its first leaf, and how many times as many each time after that.
const FIRST_KEYS: usize = 8;
const GROWTH: usize = 4;

/// See the [module documentation](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tree {
    root: PageId,
}

impl Tree {
    /// Makes a tree without keys, as part of a change.
    pub fn create<'a>(store: &'a PageStore, change: &mut Change<'a>) -> Result<Self> {
        let page = store.allocate(change, TREE_KIND)?;
        Parts::empty().write(change, page);
        Ok(Self { root: change.id(page) })
    }

    /// The tree whose root is in a page.
    pub fn at(root: PageId) -> Self {
        Self { root }
    }

    pub fn root(self) -> PageId {
        self.root
    }

    /// The longest key.
    pub fn most_key_bytes(store: &PageStore) -> usize {
        store.page_bytes() / KEY_PART
    }

    /// Whether there is such a key.
    pub fn contains(self, store: &PageStore, key: &[u8]) -> Result<bool> {
        let leaf = self.leaf(store, |node| node.child_for(key))?;
        Ok(matches!(Node(&leaf).search(key), Place::At(_)))
    }

    /// Goes down to a leaf.
    fn leaf(self, store: &PageStore, child: impl Fn(Node<'_>) -> usize) -> Result<PageRead<'_>> {
        let mut page = self.read(store, self.root)?;
        while !Node(&page).is_leaf() {
            let node = Node(&page);
            let number = child(node);
            // The parent is latched until its child is.
            let below = self.read(store, other_page(store, node.child(number), &[page.id()])?)?;
            check_child(store, node, number, &below)?;
            page = below;
        }
        Ok(page)
    }

    fn read(self, store: &PageStore, page: PageId) -> Result<PageRead<'_>> {
        self.check(store, store.read(page, Access::Random)?, PageRead::id)
    }

    fn write(self, store: &PageStore, page: PageId) -> Result<PageWrite<'_>> {
        self.check(store, store.write(page, Access::Random)?, PageWrite::id)
    }

    /// A child of a node that is latched to be changed, beside another one that may be.
    fn child_to_change<'a>(
        self,
        store: &'a PageStore,
        parent: &PageWrite<'a>,
        number: usize,
        sibling: Option<PageId>,
    ) -> Result<PageWrite<'a>> {
        let node = Node(parent);
        let latched = [parent.id(), sibling.unwrap_or(PageId::NONE)];
        let child = self.write(store, other_page(store, node.child(number), &latched)?)?;
        check_child(store, node, number, &child)?;
        Ok(child)
    }

    fn check<P: std::ops::Deref<Target = [u8]>>(
        self,
        store: &PageStore,
        page: P,
        id: impl Fn(&P) -> PageId,
    ) -> Result<P> {
        if page::kind(&page) == TREE_KIND {
            Ok(page)
        } else {
            Err(store.damaged(id(&page), "it is no node of a tree, though one leads to it"))
        }
    }

    /// The leaf that a key belongs to, to be changed.
    fn leaf_to_change<'a>(self, store: &'a PageStore, key: &[u8]) -> Result<PageWrite<'a>> {
        loop {
            let root = self.read(store, self.root)?;
            if Node(&root).is_leaf() {
                drop(root);
                let root = self.write(store, self.root)?;
                if Node(&root).is_leaf() {
                    return Ok(root);
                }
                // It has been split in between.
                continue;
            }
            let mut parent = root;
            loop {
                let node = Node(&parent);
                let number = node.child_for(key);
                let child = other_page(store, node.child(number), &[parent.id()])?;
                if node.level() == 1 {
                    let leaf = self.write(store, child)?;
                    check_child(store, node, number, &leaf)?;
                    return Ok(leaf);
                }
                let below = self.read(store, child)?;
                check_child(store, node, number, &below)?;
                parent = below;
            }
        }
    }

    /// Adds a key; whether it was not there. `with` adds to the same change.
    pub fn insert<'a>(
        self,
        store: &'a PageStore,
        key: &[u8],
        with: impl FnOnce(&mut Change<'a>) -> Result<()>,
    ) -> Result<Option<Lsn>> {
        if key.len() > Self::most_key_bytes(store) {
            return Err(Error::KeyTooLong { bytes: key.len(), most_bytes: Self::most_key_bytes(store) });
        }
        loop {
            let leaf = self.leaf_to_change(store, key)?;
            let Place::Before(number) = Node(&leaf).search(key) else { return Ok(None) };
            if !Node(&leaf).has_room(key.len()) {
                drop(leaf);
                self.split_for(store, key)?;
                continue;
            }
            let mut change = store.change();
            let leaf = change.add(leaf);
            node::insert(&mut change, leaf, number, key, None);
            with(&mut change)?;
            return change.commit().map(Some);
        }
    }

    /// Removes a key; whether it was there. `with` adds to the same change.
    pub fn remove<'a>(
        self,
        store: &'a PageStore,
        key: &[u8],
        with: impl FnOnce(&mut Change<'a>) -> Result<()>,
    ) -> Result<Option<Lsn>> {
        let leaf = self.leaf_to_change(store, key)?;
        let Place::At(number) = Node(&leaf).search(key) else { return Ok(None) };
        let mut change = store.change();
        let leaf = change.add(leaf);
        node::remove(&mut change, leaf, number);
        with(&mut change)?;
        let is_small = Node(change.page(leaf)).used() < store.page_bytes() / SMALL_PART;
        let lsn = change.commit()?;
        if is_small {
            self.merge_at(store, key)?;
        }
        Ok(Some(lsn))
    }

    /// Splits the first node on the way to a key that has no room: for the key, or for a separator of any length.
    fn split_for(self, store: &PageStore, key: &[u8]) -> Result<()> {
        let most = Self::most_key_bytes(store);
        let is_full = |node: Node<'_>| !node.has_room(if node.is_leaf() { key.len() } else { most });
        let root = self.write(store, self.root)?;
        if is_full(Node(&root)) {
            return Self::split_root(store, root);
        }
        let mut parent = root;
        while !Node(&parent).is_leaf() {
            let number = Node(&parent).child_for(key);
            let child = self.child_to_change(store, &parent, number, None)?;
            if is_full(Node(&child)) {
                return Self::split_child(store, parent, number, child);
            }
            parent = child;
        }
        // Another thread has made room.
        Ok(())
    }

    /// Moves what is in the root to two children.
    fn split_root<'a>(store: &'a PageStore, root: PageWrite<'a>) -> Result<()> {
        let parts = Node(&root).parts().split(store.page_bytes());
        Self::put_two_below(store, root, parts)
    }

    /// Writes two children and the root above them. The children have what it had, and may have more.
    fn put_two_below<'a>(
        store: &'a PageStore,
        root: PageWrite<'a>,
        (left, separator, right): (Parts, Vec<u8>, Parts),
    ) -> Result<()> {
        let node = Node(&root);
        let (level, lower, upper) =
            (node.level() + 1, node.lower().to_vec(), node.upper().map(<[u8]>::to_vec));
        let mut change = store.change();
        let root = change.add(root);
        let mut children = Vec::new();
        for parts in [left, right] {
            let page = store.allocate(&mut change, TREE_KIND)?;
            parts.write(&mut change, page);
            children.push(change.id(page));
        }
        Parts { level, lower, upper, keys: vec![separator], children }.write(&mut change, root);
        change.commit().map(drop)
    }

    /// Moves the upper part of a child to a new page behind it.
    fn split_child<'a>(
        store: &'a PageStore,
        parent: PageWrite<'a>,
        number: usize,
        child: PageWrite<'a>,
    ) -> Result<()> {
        let parts = Node(&child).parts().split(store.page_bytes());
        Self::put_two_beside(store, parent, number, child, parts)
    }

    /// Writes a child and one on a new page behind it. Both have what the child had, and may have more.
    fn put_two_beside<'a>(
        store: &'a PageStore,
        parent: PageWrite<'a>,
        number: usize,
        child: PageWrite<'a>,
        (left, separator, right): (Parts, Vec<u8>, Parts),
    ) -> Result<()> {
        let mut change = store.change();
        let (parent, child) = (change.add(parent), change.add(child));
        let page = store.allocate(&mut change, TREE_KIND)?;
        right.write(&mut change, page);
        left.write(&mut change, child);
        let (left, right) = (change.id(child), change.id(page));
        // What led to the child leads to its upper part now, and the separator to the lower one.
        node::set_child(&mut change, parent, number, right);
        node::insert(&mut change, parent, number, &separator, Some(left));
        change.commit().map(drop)
    }

    /// Merges the lowest small node on the way to a key with one beside it, and takes a root away that has one child only.
    fn merge_at(self, store: &PageStore, key: &[u8]) -> Result<()> {
        let is_small = |node: Node<'_>| node.used() < store.page_bytes() / SMALL_PART;
        let mut parent = self.write(store, self.root)?;
        while !Node(&parent).is_leaf() {
            if Node(&parent).count() == 0 {
                return self.lower_root(store, parent);
            }
            let number = Node(&parent).child_for(key);
            let child = self.child_to_change(store, &parent, number, None)?;
            // A parent of few children goes first, so that no node but the root ever has one child only.
            if is_small(Node(&child)) && (Node(&child).is_leaf() || Node(&child).count() < 2) {
                return self.merge_child(store, parent, number, child);
            }
            parent = child;
        }
        Ok(())
    }

    fn merge_child<'a>(
        self,
        store: &'a PageStore,
        parent: PageWrite<'a>,
        number: usize,
        child: PageWrite<'a>,
    ) -> Result<()> {
        // Neighbours are latched from left to right.
        let is_last = number == Node(&parent).count();
        let left_number = if is_last { number - 1 } else { number };
        let (left, right) = if is_last {
            drop(child);
            let left = self.child_to_change(store, &parent, left_number, None)?;
            let right = self.child_to_change(store, &parent, number, Some(left.id()))?;
            (left, right)
        } else {
            let right = self.child_to_change(store, &parent, number + 1, Some(child.id()))?;
            (child, right)
        };
        let separator = Node(&parent).key(left_number);
        let merged = Node(&left).parts().merge(separator, Node(&right).parts());
        if merged.used() * 4 > store.page_bytes() * MERGED_QUARTERS {
            return Ok(());
        }
        let mut change = store.change();
        let mut parts = Node(&parent).parts();
        let is_root = parent.id() == self.root;
        parts.keys.remove(left_number);
        let gone = parts.children.remove(left_number + 1);
        let parent = change.add(parent);
        let (left, _) = (change.add(left), change.add(right));
        if is_root && parts.keys.is_empty() {
            // The only child takes the place of the root.
            let only = change.id(left);
            merged.write(&mut change, parent);
            store.free(&mut change, only)?;
        } else {
            merged.write(&mut change, left);
            parts.write(&mut change, parent);
        }
        store.free(&mut change, gone)?;
        change.commit().map(drop)
    }

    fn lower_root<'a>(self, store: &'a PageStore, root: PageWrite<'a>) -> Result<()> {
        let child = self.child_to_change(store, &root, 0, None)?;
        let parts = Node(&child).parts();
        let mut change = store.change();
        let (root, child) = (change.add(root), change.add(child));
        parts.write(&mut change, root);
        let gone = change.id(child);
        store.free(&mut change, gone)?;
        change.commit().map(drop)
    }

    /// The keys of a range, in order.
    pub fn range(self, store: &PageStore, lower: Bound<Vec<u8>>, upper: Bound<Vec<u8>>) -> Range<'_> {
        Range {
            tree: self,
            store,
            lower,
            upper,
            keys: Keys::default(),
            at_once: FIRST_KEYS,
            is_ahead: false,
            is_backward: false,
            is_over: false,
        }
    }

    /// The keys of a range, from the last one on.
    pub fn range_backward(
        self,
        store: &PageStore,
        lower: Bound<Vec<u8>>,
        upper: Bound<Vec<u8>>,
    ) -> Range<'_> {
        Range { is_backward: true, ..self.range(store, lower, upper) }
    }

    /// Levels, and nodes of each from the leaves on.
    pub fn shape(self, store: &PageStore) -> Result<Vec<usize>> {
        let mut shape = Vec::new();
        self.count_nodes(store, self.root, &mut shape)?;
        Ok(shape)
    }

    fn count_nodes(self, store: &PageStore, page: PageId, shape: &mut Vec<usize>) -> Result<()> {
        let (level, children) = {
            let page = self.read(store, page)?;
            (usize::from(Node(&page).level()), Node(&page).parts().children)
        };
        if shape.len() <= level {
            shape.resize(level + 1, 0);
        }
        shape[level] += 1;
        children.into_iter().try_for_each(|child| self.count_nodes(store, child, shape))
    }
}

/// A page that is none of those that are latched, which would be waited for without end.
fn other_page(store: &PageStore, page: PageId, latched: &[PageId]) -> Result<PageId> {
    if latched.contains(&page) {
        Err(store.damaged(page, "a node of a tree leads back to it"))
    } else {
        Ok(page)
    }
}

/// Every way down checks each step (Graefe and Stonecipher, *Efficient Verification of B-tree Integrity*, BTW 2009): so it ends, and at the
/// leaf of the key.
fn check_child(store: &PageStore, parent: Node<'_>, number: usize, below: &[u8]) -> Result<()> {
    if parent.has_child(number, Node(below)) {
        Ok(())
    } else {
        Err(store.damaged(parent.child(number), "its fences are not the keys beside it in the node above"))
    }
}

/// See [`Tree::range`]. Keys that are added or removed meanwhile may or may not be among them.
#[derive(Debug)]
pub struct Range<'s> {
    tree: Tree,
    store: &'s PageStore,
    /// What has not been read yet.
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    /// Of the leaf that was read last.
    keys: Keys,
    /// Keys that are taken from a leaf: few at first, as many ranges end soon.
    at_once: usize,
    /// A whole leaf has been read.
    is_ahead: bool,
    is_backward: bool,
    is_over: bool,
}

/// Keys one behind the other.
#[derive(Debug, Default)]
struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// How many have been handed over.
    taken: usize,
}

impl Keys {
    fn key(&self, number: usize) -> &[u8] {
        let begin = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[begin..self.ends[number]]
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.taken = 0;
    }

    fn last(&self) -> Option<&[u8]> {
        self.ends.len().checked_sub(1).map(|last| self.key(last))
    }
}

impl<'s> Range<'s> {
    /// What to report of a key that cannot be.
    pub fn damaged(&self, reason: &'static str) -> Error {
        self.store.damaged(self.tree.root, reason)
    }

    /// The next key. [`Iterator::next`] copies it.
    pub fn next_key(&mut self) -> Option<Result<&[u8]>> {
        while self.keys.taken == self.keys.ends.len() {
            if self.is_over {
                return None;
            }
            if let Err(error) = self.fill() {
                self.is_over = true;
                return Some(Err(error));
            }
        }
        self.keys.taken += 1;
        Some(Ok(self.keys.key(self.keys.taken - 1)))
    }

    /// Takes the next keys of a leaf.
    fn fill(&mut self) -> Result<()> {
        let leaf = self.next_leaf()?;
        let node = Node(&leaf);
        // Numbers of the keys that a bound stands before and behind.
        let before = |key: &[u8]| match node.search(key) {
            Place::At(number) | Place::Before(number) => number,
        };
        let behind = |key: &[u8]| match node.search(key) {
            Place::At(number) => number + 1,
            Place::Before(number) => number,
        };
        let from = match &self.lower {
            Bound::Unbounded => 0,
            Bound::Included(key) => before(key),
            Bound::Excluded(key) => behind(key),
        };
        let to = match &self.upper {
            Bound::Unbounded => node.count(),
            Bound::Included(key) => behind(key),
            Bound::Excluded(key) => before(key),
        };
        let to = to.max(from);
        let most = self.at_once;
        self.at_once = most.saturating_mul(GROWTH);
        if to - from > most {
            let taken = if self.is_backward { to - most..to } else { from..from + most };
            self.take(node, taken);
            let Some(last) = self.keys.last().map(<[u8]>::to_vec) else {
                unreachable!("some keys were taken")
            };
            let bound = if self.is_backward { &mut self.upper } else { &mut self.lower };
            *bound = Bound::Excluded(last);
            return Ok(());
        }
        self.take(node, from..to);
        self.is_ahead = true;
        if self.is_backward {
            match node.lower() {
                [] => self.is_over = true,
                lower => self.upper = Bound::Excluded(lower.to_vec()),
            }
        } else {
            match node.upper() {
                None => self.is_over = true,
                Some(upper) => self.lower = Bound::Included(upper.to_vec()),
            }
        }
        self.is_over |= match (&self.lower, &self.upper) {
            (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (
                Bound::Included(lower) | Bound::Excluded(lower),
                Bound::Included(upper) | Bound::Excluded(upper),
            ) => lower >= upper,
        };
        Ok(())
    }

    /// Takes these keys, all others having been handed over.
    fn take(&mut self, node: Node<'_>, numbers: std::ops::Range<usize>) {
        self.keys.clear();
        let mut take = |number: usize| {
            node.copy_key(number, &mut self.keys.bytes);
            self.keys.ends.push(self.keys.bytes.len());
        };
        if self.is_backward { numbers.rev().for_each(&mut take) } else { numbers.for_each(&mut take) }
    }

    fn next_leaf(&self) -> Result<PageRead<'s>> {
        let child = |node: Node<'_>| match (self.is_backward, &self.lower, &self.upper) {
            (false, Bound::Unbounded, _) => 0,
            (false, Bound::Included(key) | Bound::Excluded(key), _) => node.child_for(key),
            (true, _, Bound::Unbounded) => node.count(),
            (true, _, Bound::Included(key)) => node.child_for(key),
            (true, _, Bound::Excluded(key)) => node.child_before(key),
        };
        let mut page = self.tree.read(self.store, self.tree.root)?;
        while !Node(&page).is_leaf() {
            let node = Node(&page);
            let number = child(node);
            // From the second leaf on, those that follow are wanted too, probably.
            if node.level() == 1 && self.is_ahead {
                self.read_ahead(node, number);
            }
            let child = other_page(self.store, node.child(number), &[page.id()])?;
            let below = self.tree.read(self.store, child)?;
            check_child(self.store, node, number, &below)?;
            page = below;
        }
        Ok(page)
    }

    fn read_ahead(&self, parent: Node<'_>, number: usize) {
        if !number.is_multiple_of(LEAVES_AHEAD / 2) {
            return;
        }
        let numbers = if self.is_backward {
            number.saturating_sub(LEAVES_AHEAD)..number
        } else {
            number..(number + LEAVES_AHEAD).min(parent.count() + 1)
        };
        let pages: Vec<PageId> = numbers.map(|number| parent.child(number)).collect();
        self.store.pool().prefetch(&pages, Access::Sequential);
    }
}

impl Iterator for Range<'_> {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_key().map(|key| key.map(<[u8]>::to_vec))
    }
}
