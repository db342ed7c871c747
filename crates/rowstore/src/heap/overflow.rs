//! Bytes of rows that are too long for a heap page.
//!
//! ```text
//!   overflow page:  | next page | length | bytes … |
//!   reference:      | length | first page |            the content of the row
//! ```

#![allow(
    clippy::indexing_slicing,
    reason = "places within a page follow from what is in it, which its checksum covers"
)]

use crate::change::Change;
use crate::error::Result;
use crate::page::{self, HEADER_BYTES, PageId, PageKind};
use crate::store::PageStore;
use crate::tier::Access;

pub const OVERFLOW_KIND: PageKind = PageKind(7);

const NEXT_AT: usize = HEADER_BYTES;
const LENGTH_AT: usize = HEADER_BYTES + 8;
const BYTES_AT: usize = HEADER_BYTES + 10;

/// What a heap page has of a long row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    pub length: u64,
    /// Zero where nothing is left of it.
    pub first: PageId,
}

impl Reference {
    pub const BYTES: usize = 16;

    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..].copy_from_slice(&self.first.0.to_le_bytes());
        bytes
    }

    pub fn parse(content: &[u8]) -> Option<Self> {
        let (length, first) = content.split_first_chunk::<8>()?;
        let first = <[u8; 8]>::try_from(first).ok()?;
        Some(Self { length: u64::from_le_bytes(*length), first: PageId(u64::from_le_bytes(first)) })
    }
}

/// Bytes that a page holds.
pub fn part_bytes(store: &PageStore) -> usize {
    store.page_bytes() - BYTES_AT
}

/// Writes one part, in front of those that follow.
pub fn write<'a>(store: &'a PageStore, change: &mut Change<'a>, part: &[u8], next: PageId) -> Result<PageId> {
    let page = store.allocate(change, OVERFLOW_KIND)?;
    change.write(page, NEXT_AT, &next.0.to_le_bytes());
    change.write(page, LENGTH_AT, &(part.len() as u16).to_le_bytes());
    change.write(page, BYTES_AT, part);
    Ok(change.id(page))
}

/// All bytes of a row.
pub fn read(store: &PageStore, reference: Reference) -> Result<Vec<u8>> {
    /// Room for longer rows comes as they are read: the length may be anything where the page is damaged.
    const MOST_AT_FIRST: u64 = 1 << 20;
    let mut bytes = Vec::with_capacity(reference.length.min(MOST_AT_FIRST) as usize);
    let mut next = reference.first;
    while (bytes.len() as u64) < reference.length {
        let page = overflow_page(store, next)?;
        let length = usize::from(u16::from_le_bytes([page[LENGTH_AT], page[LENGTH_AT + 1]]));
        let part = page.get(BYTES_AT..BYTES_AT + length).filter(|part| !part.is_empty());
        bytes.extend_from_slice(
            part.ok_or_else(|| store.damaged(next, "the row goes on and the page is empty"))?,
        );
        next = following(&page);
    }
    Ok(bytes)
}

/// The pages from one on, at most so many, and the one that follows them; none of them is zero. `latched` is the page of the row, which
/// is none of them.
pub fn pages(
    store: &PageStore,
    first: PageId,
    most: usize,
    latched: Option<PageId>,
) -> Result<(Vec<PageId>, PageId)> {
    let (mut pages, mut next) = (Vec::new(), first);
    while next != PageId(0) && pages.len() < most {
        if latched == Some(next) {
            return Err(store.damaged(next, "a row has bytes there, and it has none of a row"));
        }
        let page = overflow_page(store, next)?;
        pages.push(next);
        next = following(&page);
    }
    Ok((pages, next))
}

fn overflow_page(store: &PageStore, id: PageId) -> Result<crate::pool::PageRead<'_>> {
    let page = store.read(id, Access::Sequential)?;
    if page::kind(&page) == OVERFLOW_KIND {
        Ok(page)
    } else {
        Err(store.damaged(id, "a row has bytes there, and it has none of a row"))
    }
}

fn following(page: &[u8]) -> PageId {
    let mut field = [0; 8];
    field.copy_from_slice(&page[NEXT_AT..NEXT_AT + 8]);
    PageId(u64::from_le_bytes(field))
}
