//! Tables of rows that are changed in place.
//!
//! ```text
//!   table:  | directory page | ─► | directory page | ─► …        which heap pages it has, and which of them have room
//!                  │ │ │
//!                  ▼ ▼ ▼
//!              heap pages ─── long rows ──► | overflow page | ─► | overflow page | ─► …
//! ```
//!
//! A row keeps its id as long as it is there. One that is too long for its page, or has become so, has its bytes in overflow pages.
//!
//! | file | subject |
//! |---|---|
//! | `slotted` | what a heap page looks like |
//! | `directory` | the pages of a table |
//! | `overflow` | bytes of long rows |

pub mod directory;
pub mod overflow;
pub mod slotted;

use crate::page::PageId;

/// The place of a row: page (48 bits) and slot (16).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(pub u64);

impl RowId {
    /// Indexes may lead to what is no row of this store: ids with this bit mean something to those who have added them alone.
    pub const ELSEWHERE: u64 = 1 << 63;

    pub fn new(page: PageId, slot: usize) -> Self {
        Self(page.0 << 16 | slot as u64)
    }

    pub fn page(self) -> PageId {
        PageId(self.0 >> 16)
    }

    pub fn slot(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    pub fn is_elsewhere(self) -> bool {
        self.0 & Self::ELSEWHERE != 0
    }
}

impl std::fmt::Display for RowId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.page(), self.slot())
    }
}
