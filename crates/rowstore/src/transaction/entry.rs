//! What undo entries of rows have in them.
//!
//! ```text
//!   insert:          | row |
//!   update, delete:  | row | writer, flags | undo | content as it was (of an update) |
//! ```

use crate::heap::RowId;
use crate::heap::slotted::RowHead;
use crate::undo::Entry;

const ROW_BYTES: usize = 8;

/// A row as it was.
#[derive(Debug, Clone, Copy)]
pub struct OldRow<'e> {
    pub row: RowId,
    pub head: RowHead,
    pub content: &'e [u8],
}

/// Where the content begins in an entry.
pub const CONTENT_AT: usize = ROW_BYTES + RowHead::BYTES;

impl<'e> OldRow<'e> {
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(CONTENT_AT + self.content.len());
        bytes.extend_from_slice(&self.row.0.to_le_bytes());
        bytes.extend_from_slice(&self.head.to_bytes());
        bytes.extend_from_slice(self.content);
        bytes
    }

    pub fn parse(entry: &'e Entry) -> Option<Self> {
        let (row, rest) = entry.body.split_first_chunk::<ROW_BYTES>()?;
        let (head, content) = rest.split_first_chunk()?;
        Some(Self { row: RowId(u64::from_le_bytes(*row)), head: RowHead::parse(head), content })
    }
}

/// The row of an insert.
pub fn inserted(entry: &Entry) -> Option<RowId> {
    Some(RowId(u64::from_le_bytes(*entry.body.first_chunk()?)))
}
