//! Nodes: sorted keys of a part of the tree, in a page.
//!
//! ```text
//!   24      26      28       30      32      36      40            48
//!   | count | cells | prefix | level | lower | upper | upper child | slot, slot, … → | free | ← cell … fences |
//!   slot:  | offset | bytes | head |         cell:  | key without the prefix … | child (of an inner node) |
//! ```
//!
//! All keys of a node are at least its lower fence and less than its upper one, so that they begin with what both fences have in
//! common: this *prefix* is not in the cells (Graefe, *Write-Optimized B-Trees*, VLDB 2004; Bayer and Unterauer, *Prefix B-Trees*,
//! TODS 1977). The head of a slot has the first four bytes of what is in the cell, so that searching seldom looks at cells.

#![allow(
    clippy::indexing_slicing,
    reason = "places within a page follow from what is in it, which its checksum covers"
)]

use std::cmp::Ordering;

use crate::change::{Change, Changed};
use crate::page::{HEADER_BYTES, PageId};

const COUNT_AT: usize = HEADER_BYTES;
const CELLS_AT: usize = HEADER_BYTES + 2;
const PREFIX_AT: usize = HEADER_BYTES + 4;
const LEVEL_AT: usize = HEADER_BYTES + 6;
const LOWER_AT: usize = HEADER_BYTES + 8;
const UPPER_AT: usize = HEADER_BYTES + 12;
const UPPER_CHILD_AT: usize = HEADER_BYTES + 16;
const SLOTS_AT: usize = HEADER_BYTES + 24;
const SLOT_BYTES: usize = 8;
const CHILD_BYTES: usize = 8;
/// The length of an upper fence that is not there.
const UNBOUNDED: usize = u16::MAX as usize;

/// How full the left node may be after a split at the end of a level. Some room is left for keys that come out of order.
const MOST_FILLED_PERCENT: usize = 95;

/// One part in so many of a page is the longest key: a node has several keys and both fences.
pub const KEY_PART: usize = 8;

/// A node, to read.
#[derive(Clone, Copy)]
pub struct Node<'p>(pub &'p [u8]);

/// Where a key is, or would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    At(usize),
    Before(usize),
}

impl<'p> Node<'p> {
    fn short(self, at: usize) -> usize {
        usize::from(u16::from_le_bytes([self.0[at], self.0[at + 1]]))
    }

    pub fn count(self) -> usize {
        self.short(COUNT_AT)
    }

    /// Zero for leaves.
    pub fn level(self) -> u8 {
        self.0[LEVEL_AT]
    }

    pub fn is_leaf(self) -> bool {
        self.level() == 0
    }

    fn child_bytes(self) -> usize {
        if self.is_leaf() { 0 } else { CHILD_BYTES }
    }

    pub fn lower(self) -> &'p [u8] {
        let (at, bytes) = (self.short(LOWER_AT), self.short(LOWER_AT + 2));
        &self.0[at..at + bytes]
    }

    /// `None` for the last node of a level.
    pub fn upper(self) -> Option<&'p [u8]> {
        let (at, bytes) = (self.short(UPPER_AT), self.short(UPPER_AT + 2));
        (bytes != UNBOUNDED).then(|| &self.0[at..at + bytes])
    }

    pub fn prefix(self) -> &'p [u8] {
        &self.lower()[..self.short(PREFIX_AT)]
    }

    fn slot(self, number: usize) -> (usize, usize) {
        let at = SLOTS_AT + number * SLOT_BYTES;
        (self.short(at), self.short(at + 2))
    }

    /// A key without the prefix.
    pub fn suffix(self, number: usize) -> &'p [u8] {
        let (at, bytes) = self.slot(number);
        &self.0[at..at + bytes]
    }

    pub fn key(self, number: usize) -> Vec<u8> {
        [self.prefix(), self.suffix(number)].concat()
    }

    /// Appends a key.
    pub fn copy_key(self, number: usize, to: &mut Vec<u8>) {
        to.extend_from_slice(self.prefix());
        to.extend_from_slice(self.suffix(number));
    }

    fn head(self, number: usize) -> u32 {
        let at = SLOTS_AT + number * SLOT_BYTES + 4;
        u32::from_le_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    /// The child in front of a separator; that behind the last one, if it is asked for one more.
    pub fn child(self, number: usize) -> PageId {
        let at = if number == self.count() {
            UPPER_CHILD_AT
        } else {
            let (at, bytes) = self.slot(number);
            at + bytes
        };
        let mut field = [0; 8];
        field.copy_from_slice(&self.0[at..at + 8]);
        PageId(u64::from_le_bytes(field))
    }

    /// Whether a node is what a child of this one must be: of the level below, between the keys beside it.
    pub fn has_child(self, number: usize, child: Node<'_>) -> bool {
        let is_key = |number: usize, key: &[u8]| key.strip_prefix(self.prefix()) == Some(self.suffix(number));
        let is_above = match number.checked_sub(1) {
            None => child.lower() == self.lower(),
            Some(before) => is_key(before, child.lower()),
        };
        let is_below = match child.upper() {
            upper if number == self.count() => upper == self.upper(),
            upper => upper.is_some_and(|upper| is_key(number, upper)),
        };
        u16::from(child.level()) + 1 == u16::from(self.level()) && is_above && is_below
    }

    /// Where a key is, or would be. It is between the fences, but for searches of what is behind or before them.
    pub fn search(self, key: &[u8]) -> Place {
        let prefix = self.prefix();
        let common = key.len().min(prefix.len());
        match key[..common].cmp(&prefix[..common]) {
            Ordering::Less => return Place::Before(0),
            Ordering::Greater => return Place::Before(self.count()),
            Ordering::Equal if key.len() < prefix.len() => return Place::Before(0),
            Ordering::Equal => {}
        }
        let suffix = &key[prefix.len()..];
        let head = head_of(suffix);
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low.midpoint(high);
            let order = self.head(middle).cmp(&head).then_with(|| self.suffix(middle).cmp(suffix));
            match order {
                Ordering::Equal => return Place::At(middle),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        Place::Before(low)
    }

    /// The child that has a key, by its number.
    pub fn child_for(self, key: &[u8]) -> usize {
        match self.search(key) {
            Place::At(number) => number + 1,
            Place::Before(number) => number,
        }
    }

    /// The child that has the keys right before one, by its number.
    pub fn child_before(self, key: &[u8]) -> usize {
        match self.search(key) {
            Place::At(number) | Place::Before(number) => number,
        }
    }

    /// Bytes between slots and cells.
    fn gap(self) -> usize {
        self.short(CELLS_AT) - SLOTS_AT - self.count() * SLOT_BYTES
    }

    /// Bytes that are in use.
    pub fn used(self) -> usize {
        let cells: usize = (0..self.count()).map(|number| self.slot(number).1 + self.child_bytes()).sum();
        let upper = self.upper().map_or(0, <[u8]>::len);
        SLOTS_AT + self.count() * SLOT_BYTES + cells + self.lower().len() + upper
    }

    /// Whether a key of so many bytes fits in, with its child.
    pub fn has_room(self, key_bytes: usize) -> bool {
        let needed = SLOT_BYTES + key_bytes.saturating_sub(self.prefix().len()) + self.child_bytes();
        self.gap() >= needed || self.0.len() - self.used() >= needed
    }

    /// Whether fences and keys are within the page, and take no more than there is.
    fn is_sound(self) -> bool {
        let (cells, end) = (self.short(CELLS_AT), self.0.len());
        let slots_end = SLOTS_AT + self.count() * SLOT_BYTES;
        let is_within = |at: usize, bytes: usize| at >= cells && at + bytes <= end;
        let fence = |at: usize| (self.short(at), self.short(at + 2));
        let (lower, upper) = (fence(LOWER_AT), fence(UPPER_AT));
        let is_fenced = is_within(lower.0, lower.1) && (upper.1 == UNBOUNDED || is_within(upper.0, upper.1));
        slots_end <= cells
            && cells <= end
            && is_fenced
            && self.short(PREFIX_AT) == prefix_bytes(self.lower(), self.upper())
            && (0..self.count()).all(|number| {
                let (at, bytes) = self.slot(number);
                is_within(at, bytes + self.child_bytes())
            })
            && self.used() <= end
            && self.is_in_order()
    }

    /// Whether keys ascend, between the fences, and heads are theirs.
    fn is_in_order(self) -> bool {
        let prefix = self.prefix().len();
        let mut before = &self.lower()[prefix..];
        for number in 0..self.count() {
            let suffix = self.suffix(number);
            let follows = if number == 0 { before <= suffix } else { before < suffix };
            if !follows || self.head(number) != head_of(suffix) {
                return false;
            }
            before = suffix;
        }
        self.count() == 0 || self.upper().is_none_or(|upper| before < &upper[prefix..])
    }

    /// Everything in it, as parts to build others from.
    pub fn parts(self) -> Parts {
        let keys = (0..self.count()).map(|number| self.key(number)).collect();
        let children = if self.is_leaf() {
            Vec::new()
        } else {
            (0..=self.count()).map(|number| self.child(number)).collect()
        };
        Parts {
            level: self.level(),
            lower: self.lower().to_vec(),
            upper: self.upper().map(<[u8]>::to_vec),
            keys,
            children,
        }
    }
}

/// Whether a page has what a node must have.
pub fn is_sound(page: &[u8]) -> bool {
    Node(page).is_sound()
}

/// The first four bytes, in the order of their values.
fn head_of(suffix: &[u8]) -> u32 {
    let mut head = [0; 4];
    let bytes = suffix.len().min(4);
    head[..bytes].copy_from_slice(&suffix[..bytes]);
    u32::from_be_bytes(head)
}

/// What all keys between two fences begin with.
fn prefix_bytes(lower: &[u8], upper: Option<&[u8]>) -> usize {
    lower.iter().zip(upper.unwrap_or_default()).take_while(|(low, high)| low == high).count()
}

/// Bytes in use of a leaf between these fences, with so many keys, of so many bytes together.
pub fn leaf_bytes(lower: &[u8], upper: Option<&[u8]>, keys: usize, key_bytes: usize) -> usize {
    let cells = key_bytes + keys * SLOT_BYTES - keys * prefix_bytes(lower, upper);
    SLOTS_AT + cells + lower.len() + upper.map_or(0, <[u8]>::len)
}

/// What a node consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    pub level: u8,
    pub lower: Vec<u8>,
    pub upper: Option<Vec<u8>>,
    pub keys: Vec<Vec<u8>>,
    /// One more than keys, or none for a leaf.
    pub children: Vec<PageId>,
}

impl Parts {
    /// A tree without keys.
    pub fn empty() -> Self {
        Self { level: 0, lower: Vec::new(), upper: None, keys: Vec::new(), children: Vec::new() }
    }

    fn prefix_bytes(&self) -> usize {
        prefix_bytes(&self.lower, self.upper.as_deref())
    }

    pub fn used(&self) -> usize {
        let key_bytes = self.keys.iter().map(Vec::len).sum();
        let children = if self.level == 0 { 0 } else { self.keys.len() * CHILD_BYTES };
        leaf_bytes(&self.lower, self.upper.as_deref(), self.keys.len(), key_bytes) + children
    }

    /// Two nodes with the keys of this one, and the key that separates them. The last node of a level leaves most of its keys where
    /// they are: keys that grow would leave every node half empty otherwise.
    pub fn split(self, page_bytes: usize) -> (Self, Vec<u8>, Self) {
        if self.upper.is_none() {
            // All but one, if the upper fence makes keys so much shorter.
            for percent in [100, 90] {
                let parts = self.clone().split_behind(percent);
                if parts.0.used() <= page_bytes * MOST_FILLED_PERCENT / 100 {
                    return parts;
                }
            }
        }
        self.split_behind(50)
    }

    /// Leaves keys with so many percent of all bytes on the left.
    fn split_behind(mut self, percent: usize) -> (Self, Vec<u8>, Self) {
        let left = self.keys.iter().map(Vec::len).sum::<usize>() * percent / 100;
        let mut bytes = 0;
        let middle = self.keys.iter().position(|key| {
            bytes += key.len();
            bytes > left
        });
        let last = self.keys.len() - 1;
        if self.level == 0 {
            let middle = middle.unwrap_or(last).clamp(1, last);
            let right = self.keys.split_off(middle);
            let separator = separator(&self.keys[middle - 1], &right[0]);
            let right = Self {
                level: 0,
                lower: separator.clone(),
                upper: self.upper.take(),
                keys: right,
                children: Vec::new(),
            };
            self.upper = Some(separator.clone());
            return (self, separator, right);
        }
        let middle = middle.unwrap_or(last).clamp(1, last - 1);
        let keys = self.keys.split_off(middle + 1);
        let children = self.children.split_off(middle + 1);
        let Some(separator) = self.keys.pop() else { unreachable!("the key in the middle is there") };
        let right =
            Self { level: self.level, lower: separator.clone(), upper: self.upper.take(), keys, children };
        self.upper = Some(separator.clone());
        (self, separator, right)
    }

    /// One node with the keys of two neighbours, between which their parent has a separator.
    pub fn merge(mut self, separator: Vec<u8>, right: Self) -> Self {
        if self.level > 0 {
            self.keys.push(separator);
        }
        self.keys.extend(right.keys);
        self.children.extend(right.children);
        self.upper = right.upper;
        self
    }

    /// Writes a page that has exactly this.
    pub fn write(&self, change: &mut Change<'_>, page: Changed) {
        let page_bytes = change.page(page).len();
        assert!(self.used() <= page_bytes, "a node fits into its page");
        let prefix = self.prefix_bytes();
        let mut slots = Vec::with_capacity(self.keys.len() * SLOT_BYTES);
        // From the end of the page backwards, turned round at last.
        let mut cells: Vec<Vec<u8>> = Vec::with_capacity(self.keys.len() + 2);
        let mut end = page_bytes;
        let mut place = |cells: &mut Vec<Vec<u8>>, bytes: Vec<u8>| {
            end -= bytes.len();
            cells.push(bytes);
            end as u16
        };
        let lower_at = place(&mut cells, self.lower.clone());
        let upper_at = place(&mut cells, self.upper.clone().unwrap_or_default());
        for (number, key) in self.keys.iter().enumerate() {
            let suffix = &key[prefix..];
            let mut cell = suffix.to_vec();
            if let Some(child) = self.children.get(number) {
                cell.extend_from_slice(&child.0.to_le_bytes());
            }
            let at = place(&mut cells, cell);
            slots.extend_from_slice(&slot(at as usize, suffix));
        }
        cells.reverse();
        let cells = cells.concat();
        let upper_bytes = self.upper.as_ref().map_or(UNBOUNDED, Vec::len) as u16;
        let upper_child = if self.level == 0 { PageId(0) } else { self.children[self.keys.len()] };
        let mut head = Vec::with_capacity(SLOTS_AT - COUNT_AT + slots.len());
        let fields =
            [self.keys.len() as u16, (page_bytes - cells.len()) as u16, prefix as u16, u16::from(self.level)];
        fields.into_iter().for_each(|field| head.extend_from_slice(&field.to_le_bytes()));
        let fences = [lower_at, self.lower.len() as u16, upper_at, upper_bytes];
        fences.into_iter().for_each(|field| head.extend_from_slice(&field.to_le_bytes()));
        head.extend_from_slice(&upper_child.0.to_le_bytes());
        head.extend_from_slice(&slots);
        change.write(page, COUNT_AT, &head);
        change.write(page, page_bytes - cells.len(), &cells);
    }
}

fn slot(at: usize, suffix: &[u8]) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[..2].copy_from_slice(&(at as u16).to_le_bytes());
    slot[2..4].copy_from_slice(&(suffix.len() as u16).to_le_bytes());
    slot[4..].copy_from_slice(&head_of(suffix).to_le_bytes());
    slot
}

/// The shortest key that is greater than one and not greater than the other.
pub fn separator(left: &[u8], right: &[u8]) -> Vec<u8> {
    let common = left.iter().zip(right).take_while(|(low, high)| low == high).count();
    right[..right.len().min(common + 1)].to_vec()
}

/// Adds a key to a node that has room, in front of the key that is at a place now. In an inner node, `child` is in front of it,
/// and what was there is behind it.
pub fn insert(change: &mut Change<'_>, page: Changed, number: usize, key: &[u8], child: Option<PageId>) {
    let node = Node(change.page(page));
    let suffix = &key[node.prefix().len()..];
    let bytes = suffix.len() + node.child_bytes();
    if node.gap() < SLOT_BYTES + bytes {
        // Cells that were removed are in the way.
        node.parts().write(change, page);
    }
    let node = Node(change.page(page));
    let (count, at) = (node.count(), node.short(CELLS_AT) - bytes);
    let mut cell = suffix.to_vec();
    child.iter().for_each(|child| cell.extend_from_slice(&child.0.to_le_bytes()));
    let slot_at = SLOTS_AT + number * SLOT_BYTES;
    let head = [((count + 1) as u16).to_le_bytes(), (at as u16).to_le_bytes()].concat();
    change.write(page, at, &cell);
    change.shift(page, slot_at..SLOTS_AT + count * SLOT_BYTES, slot_at + SLOT_BYTES);
    change.write(page, slot_at, &slot(at, suffix));
    change.write(page, COUNT_AT, &head);
}

/// Takes a key out of a leaf.
pub fn remove(change: &mut Change<'_>, page: Changed, number: usize) {
    let count = Node(change.page(page)).count();
    let slot_at = SLOTS_AT + number * SLOT_BYTES;
    change.shift(page, slot_at + SLOT_BYTES..SLOTS_AT + count * SLOT_BYTES, slot_at);
    change.write(page, COUNT_AT, &((count - 1) as u16).to_le_bytes());
}

/// Gives the child at a place another number.
pub fn set_child(change: &mut Change<'_>, page: Changed, number: usize, child: PageId) {
    let node = Node(change.page(page));
    let at = if number == node.count() {
        UPPER_CHILD_AT
    } else {
        let (at, bytes) = node.slot(number);
        at + bytes
    };
    change.write(page, at, &child.0.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_short() {
        assert_eq!(separator(b"abcde", b"abxyz"), b"abx");
        assert_eq!(separator(b"ab", b"abxyz"), b"abx");
        assert_eq!(separator(b"a", b"b"), b"b");
    }
}
