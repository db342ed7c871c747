//! A page: the unit that is read, changed in memory and written back.
//!
//! ```text
//!   0          4      6      8         16    24
//!   | checksum | kind | zero | page id | LSN | content … |
//! ```
//!
//! The LSN is that of the last change of it. The checksum is made when the page is written.

#![allow(clippy::indexing_slicing, reason = "a page is longer than its header")]

use crate::log::Lsn;

/// Bytes in front of a page's content.
pub const HEADER_BYTES: usize = 24;

const KIND_AT: usize = 4;
const ID_AT: usize = 8;
const LSN_AT: usize = 16;

/// The number of a page: its place in the page file, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u64);

impl PageId {
    /// Of its number.
    pub const BITS: u32 = 48;
    /// No page.
    pub const NONE: Self = Self(u64::MAX);
}

impl std::fmt::Display for PageId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// What a page is used for; numbers are given by those who use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageKind(pub u16);

/// A number of eight bytes, the lowest first.
pub fn long_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

/// A number of two bytes, the lowest first.
pub fn short_at(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

pub fn id(bytes: &[u8]) -> PageId {
    PageId(long_at(bytes, ID_AT))
}

pub fn kind(bytes: &[u8]) -> PageKind {
    PageKind(u16::from_le_bytes([bytes[KIND_AT], bytes[KIND_AT + 1]]))
}

pub fn lsn(bytes: &[u8]) -> Lsn {
    Lsn(long_at(bytes, LSN_AT))
}

pub fn set_lsn(bytes: &mut [u8], lsn: Lsn) {
    bytes[LSN_AT..HEADER_BYTES].copy_from_slice(&lsn.0.to_le_bytes());
}

/// Makes an empty page of what is there. Its LSN stays: it has just not been changed at another one.
pub fn format(bytes: &mut [u8], id: PageId, kind: PageKind) {
    let lsn = lsn(bytes);
    bytes.fill(0);
    set_lsn(bytes, lsn);
    bytes[KIND_AT..KIND_AT + 2].copy_from_slice(&kind.0.to_le_bytes());
    bytes[ID_AT..ID_AT + 8].copy_from_slice(&id.0.to_le_bytes());
}

/// Gives a page the checksum of what is in it.
pub fn seal(bytes: &mut [u8]) {
    let checksum = crc32c::crc32c(&bytes[KIND_AT..]);
    bytes[..KIND_AT].copy_from_slice(&checksum.to_le_bytes());
}

/// Whether this is a page as it was sealed, and which one.
pub fn verify(bytes: &[u8]) -> Option<PageId> {
    let is_whole = crc32c::crc32c(&bytes[KIND_AT..]).to_le_bytes() == bytes[..KIND_AT];
    is_whole.then(|| id(bytes))
}
