//! Which pages are used.
//!
//! ```text
//!   | root page | map | pages of the first group … | map | pages of the second group … | …
//! ```
//!
//! A map (space map, allocation bitmap) is a page with a bit for each page of its group, itself included. The root page says how many groups there are, and
//! has numbers for those above to begin with (`roots`). Both are pages like others: a page is taken or given back by the same
//! change that links it or unlinks it, so that none is lost in a crash.

#![allow(clippy::indexing_slicing, reason = "places within a page follow from its size")]

use crate::change::{Change, Changed};
use crate::error::Result;
use crate::page::{HEADER_BYTES, PageId, PageKind, long_at};
use crate::page_file::CONTROL_BYTES;
use crate::pool::BufferPool;
use crate::sync::{Mutex, MutexGuard};
use crate::tier::Access;

pub const ROOT_KIND: PageKind = PageKind(1);
pub const MAP_KIND: PageKind = PageKind(2);

const GROUPS_AT: usize = HEADER_BYTES;
const ROOTS_AT: usize = GROUPS_AT + 8;
/// Numbers for those above to begin with.
pub const ROOTS: usize = 32;

/// See the [module documentation](self).
#[derive(Debug)]
pub struct Space {
    root: PageId,
    /// Pages of a group.
    group_pages: u64,
    /// Held by the change that takes pages or gives them back: maps are latched by one change at a time, in whatever order.
    hint: Mutex<Hint>,
}

/// The right to change maps, which a change keeps to its end.
pub type SpaceLock<'a> = MutexGuard<'a, Hint>;

/// Where a page that is not used may be.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hint {
    group: u64,
    /// No page of the group before this one is free.
    from: u64,
}

impl Space {
    pub fn new(page_bytes: usize) -> Self {
        Self {
            root: PageId(CONTROL_BYTES.div_ceil(page_bytes as u64)),
            group_pages: 8 * (page_bytes - HEADER_BYTES) as u64,
            hint: Mutex::default(),
        }
    }

    pub fn root_page(&self) -> PageId {
        self.root
    }

    fn map(&self, group: u64) -> PageId {
        PageId(self.root.0 + 1 + group * self.group_pages)
    }

    /// The group of a page, and its place there.
    fn place(&self, page: PageId) -> (u64, u64) {
        let at = page.0 - self.root.0 - 1;
        (at / self.group_pages, at % self.group_pages)
    }

    /// Makes the root page and the first map of a new page file.
    pub fn create(&self, change: &mut Change<'_>) -> Result<()> {
        let root = change.create(self.root, ROOT_KIND)?;
        self.add_group(change, root, 0)?;
        Ok(())
    }

    fn add_group(&self, change: &mut Change<'_>, root: Changed, group: u64) -> Result<Changed> {
        let map = change.create(self.map(group), MAP_KIND)?;
        change.write(map, HEADER_BYTES, &[1]);
        change.write(root, GROUPS_AT, &(group + 1).to_le_bytes());
        Ok(map)
    }

    pub fn root(&self, pool: &BufferPool, number: usize) -> Result<u64> {
        let page = pool.read(self.root, Access::Random)?;
        Ok(long_at(&page, ROOTS_AT + 8 * number))
    }

    pub fn set_root(&self, change: &mut Change<'_>, number: usize, to: u64) -> Result<()> {
        assert!(number < ROOTS, "there are so many roots");
        let root = change.latch(self.root)?;
        change.write(root, ROOTS_AT + 8 * number, &to.to_le_bytes());
        Ok(())
    }

    /// Takes a page that is not used, and makes it an empty one of this kind. All other pages of the change are latched before,
    /// but for the root page, which is latched after maps.
    pub fn allocate<'a>(
        &'a self,
        pool: &'a BufferPool,
        change: &mut Change<'a>,
        kind: PageKind,
    ) -> Result<Changed> {
        let Hint { mut group, mut from } = *change.lock_space(&self.hint);
        loop {
            let map = self.map(group);
            // Full ones are not kept latched.
            let at = match change.latched(map) {
                Some(latched) => first_free(change.page(latched), from),
                None => first_free(&pool.read(map, Access::Random)?, from),
            };
            if let Some(at) = at {
                *change.lock_space(&self.hint) = Hint { group, from: at };
                return self.take(pool, change, group, at, kind);
            }
            (group, from) = (group + 1, 0);
            let root = change.latch(self.root)?;
            if long_at(change.page(root), GROUPS_AT) == group {
                pool.tier().grow(PageId(self.map(group).0 + 1))?;
                self.add_group(change, root, group)?;
                *change.lock_space(&self.hint) = Hint { group, from: 1 };
                return self.take(pool, change, group, 1, kind);
            }
        }
    }

    fn take<'a>(
        &'a self,
        pool: &'a BufferPool,
        change: &mut Change<'a>,
        group: u64,
        at: u64,
        kind: PageKind,
    ) -> Result<Changed> {
        let page = PageId(self.map(group).0 + at);
        pool.tier().grow(PageId(page.0 + 1))?;
        let map = change.latch(self.map(group))?;
        set_bit(change, map, at, true);
        change.create(page, kind)
    }

    /// Gives a page back, to which nothing leads any more. All other pages of the change are latched before.
    pub fn free<'a>(&'a self, change: &mut Change<'a>, page: PageId) -> Result<()> {
        let (group, at) = self.place(page);
        let hint = change.lock_space(&self.hint);
        if (group, at) < (hint.group, hint.from) {
            *hint = Hint { group, from: at };
        }
        let map = change.latch(self.map(group))?;
        if !is_used(change.page(map), at) {
            return Err(change.damaged(map, "a page that is given back is none that is used"));
        }
        set_bit(change, map, at, false);
        Ok(())
    }

    /// Pages that are used, maps and the root page included.
    pub fn used(&self, pool: &BufferPool) -> Result<u64> {
        let groups = long_at(&pool.read(self.root, Access::Random)?, GROUPS_AT);
        let mut used = 1;
        for group in 0..groups {
            let map = pool.read(self.map(group), Access::Random)?;
            used += map[HEADER_BYTES..].iter().map(|bits| u64::from(bits.count_ones())).sum::<u64>();
        }
        Ok(used)
    }
}

fn is_used(map: &[u8], at: u64) -> bool {
    map[HEADER_BYTES + (at / 8) as usize] >> (at % 8) & 1 == 1
}

fn first_free(map: &[u8], from: u64) -> Option<u64> {
    let first = from / 8;
    let bytes = map[HEADER_BYTES..].iter().zip(0..).skip(first as usize);
    let (bits, byte) = bytes
        .map(
            |(bits, byte)| if byte == first { (bits | ((1 << (from % 8)) - 1), byte) } else { (*bits, byte) },
        )
        .find(|(bits, _)| *bits != u8::MAX)?;
    Some(8 * byte + u64::from(bits.trailing_ones()))
}

fn set_bit(change: &mut Change<'_>, map: Changed, at: u64, is_used: bool) {
    let byte = HEADER_BYTES + (at / 8) as usize;
    let bit = 1 << (at % 8);
    let before = change.page(map)[byte];
    let after = if is_used { before | bit } else { before & !bit };
    change.write(map, byte, &[after]);
}
