//! Heap pages: rows of one table, each in a cell that its slot names.
//!
//! ```text
//!   24      32          40       42      44      46      48
//!   | table | directory | entry  | slots | cells | room  | slot, slot, … → | free | ← cell … cell |
//!   slot:  | offset | bytes |              cell:  | writer, flags | undo | length | content … | slack |
//! ```
//!
//! A cell never gets smaller while the transaction that changed its row may be rolled back: so the row as it was fits in again,
//! whatever other rows do. Slack is taken away when the page runs out of room.

#![allow(
    clippy::indexing_slicing,
    reason = "places within a page follow from what is in it, which its checksum covers"
)]

use super::overflow::Reference;
use crate::change::{Change, Changed};
use crate::page::{self, HEADER_BYTES, PageId, PageKind, long_at, short_at};
use crate::undo::{TransactionId, UndoAddress};

pub const HEAP_KIND: PageKind = PageKind(5);

const TABLE_AT: usize = HEADER_BYTES;
const DIRECTORY_AT: usize = HEADER_BYTES + 8;
const ENTRY_AT: usize = HEADER_BYTES + 16;
const COUNT_AT: usize = HEADER_BYTES + 18;
const CELLS_AT: usize = HEADER_BYTES + 20;
const ROOM_AT: usize = HEADER_BYTES + 22;
const SLOTS_AT: usize = HEADER_BYTES + 24;
const SLOT_BYTES: usize = 4;

const LENGTH_AT: usize = 16;
/// In front of a row's content.
pub const CELL_HEAD_BYTES: usize = 18;
/// Every cell has room for the reference to a long row.
pub const LEAST_CONTENT_BYTES: usize = 16;

/// The row is deleted, for those who see its last version.
pub const DELETED: u8 = 1;
/// The content says where the bytes are.
pub const LONG: u8 = 2;

const FLAGS_SHIFT: u32 = 56;

/// What stands in front of a row: who wrote this version, and where the one before it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowHead {
    pub writer: TransactionId,
    pub flags: u8,
    pub undo: UndoAddress,
}

impl RowHead {
    pub const BYTES: usize = 16;

    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let writer = self.writer.0 | u64::from(self.flags) << FLAGS_SHIFT;
        bytes[..8].copy_from_slice(&writer.to_le_bytes());
        bytes[8..].copy_from_slice(&self.undo.0.to_le_bytes());
        bytes
    }

    pub fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        let (writer, undo) = (long_at(bytes, 0), long_at(bytes, 8));
        Self {
            writer: TransactionId(writer & ((1 << FLAGS_SHIFT) - 1)),
            flags: (writer >> FLAGS_SHIFT) as u8,
            undo: UndoAddress(undo),
        }
    }

    pub fn is_deleted(self) -> bool {
        self.flags & DELETED != 0
    }

    pub fn is_long(self) -> bool {
        self.flags & LONG != 0
    }
}

/// Whether all rows are within the page, and take no more than there is.
pub fn is_sound(page: &[u8]) -> bool {
    let (cells, slots_end) = (short_at(page, CELLS_AT), SLOTS_AT + slots(page) * SLOT_BYTES);
    if slots_end > cells || cells > page.len() {
        return false;
    }
    let mut used = 0;
    for number in 0..slots(page) {
        let Some((at, bytes)) = slot(page, number) else { unreachable!("the page has so many slots") };
        if bytes == 0 {
            continue;
        }
        used += bytes;
        let is_within = at >= cells && at + bytes <= page.len() && bytes >= cell_bytes(0);
        let row = if is_within { row(page, number) } else { None };
        let Some((head, content)) = row.filter(|(_, content)| CELL_HEAD_BYTES + content.len() <= bytes)
        else {
            return false;
        };
        if head.is_long() && content.len() != Reference::BYTES {
            return false;
        }
    }
    slots_end + used <= page.len()
}

/// Where the directory of the table names a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryEntry {
    pub page: PageId,
    pub number: usize,
}

/// Whether this is a heap page of a table.
pub fn is_of_table(page: &[u8], table: PageId) -> bool {
    page::kind(page) == HEAP_KIND && long_at(page, TABLE_AT) == table.0
}

/// The table of a heap page.
pub fn table(page: &[u8]) -> PageId {
    PageId(long_at(page, TABLE_AT))
}

pub fn directory_entry(page: &[u8]) -> DirectoryEntry {
    DirectoryEntry { page: PageId(long_at(page, DIRECTORY_AT)), number: short_at(page, ENTRY_AT) }
}

/// Whether the directory says that there is room for rows.
pub fn is_with_room(page: &[u8]) -> bool {
    page[ROOM_AT] == 1
}

pub fn set_with_room(change: &mut Change<'_>, page: Changed, has_room: bool) {
    change.write(page, ROOM_AT, &[u8::from(has_room)]);
}

/// Fills in what an empty heap page has.
pub fn create(change: &mut Change<'_>, page: Changed, table: PageId, entry: DirectoryEntry) {
    let mut head = Vec::with_capacity(SLOTS_AT - TABLE_AT);
    head.extend_from_slice(&table.0.to_le_bytes());
    head.extend_from_slice(&entry.page.0.to_le_bytes());
    head.extend_from_slice(&(entry.number as u16).to_le_bytes());
    head.extend_from_slice(&0_u16.to_le_bytes());
    head.extend_from_slice(&(change.page(page).len() as u16).to_le_bytes());
    head.push(1);
    change.write(page, TABLE_AT, &head);
}

pub fn slots(page: &[u8]) -> usize {
    short_at(page, COUNT_AT)
}

fn slot(page: &[u8], number: usize) -> Option<(usize, usize)> {
    (number < slots(page)).then(|| {
        let at = SLOTS_AT + number * SLOT_BYTES;
        (short_at(page, at), short_at(page, at + 2))
    })
}

/// The row of a slot: what stands in front of it, and its content.
pub fn row(page: &[u8], number: usize) -> Option<(RowHead, &[u8])> {
    let (at, bytes) = slot(page, number).filter(|(_, bytes)| *bytes > 0)?;
    let cell = page.get(at..at + bytes)?;
    let head = RowHead::parse(cell.first_chunk()?);
    let length = short_at(cell, LENGTH_AT);
    Some((head, cell.get(CELL_HEAD_BYTES..CELL_HEAD_BYTES + length)?))
}

/// Bytes of content for which a cell of a row has room, whatever else is in the page.
pub fn reserved_bytes(page: &[u8], number: usize) -> usize {
    place_of(page, number).1 - CELL_HEAD_BYTES
}

fn cell_bytes(content: usize) -> usize {
    CELL_HEAD_BYTES + content.max(LEAST_CONTENT_BYTES)
}

/// The longest content that an empty page has room for.
pub fn most_content_bytes(page_bytes: usize) -> usize {
    page_bytes - SLOTS_AT - SLOT_BYTES - CELL_HEAD_BYTES
}

/// Bytes between slots and cells.
fn gap(page: &[u8]) -> usize {
    let cells = short_at(page, CELLS_AT);
    cells - (SLOTS_AT + slots(page) * SLOT_BYTES)
}

/// Bytes that would be free if cells had no slack, where `may_shrink` tells of whose rows that is allowed.
pub fn free_bytes(page: &[u8], may_shrink: &impl Fn(TransactionId) -> bool) -> usize {
    let used: usize = (0..slots(page)).map(|number| least_bytes(page, number, may_shrink)).sum();
    page.len() - SLOTS_AT - slots(page) * SLOT_BYTES - used
}

fn least_bytes(page: &[u8], number: usize, may_shrink: &impl Fn(TransactionId) -> bool) -> usize {
    let Some((_, bytes)) = slot(page, number) else { return 0 };
    match row(page, number) {
        Some((head, content)) if may_shrink(head.writer) => cell_bytes(content.len()),
        _ => bytes,
    }
}

/// Adds a row; its slot, if there is room.
pub fn insert(
    change: &mut Change<'_>,
    page: Changed,
    head: impl FnOnce(usize) -> RowHead,
    content: &[u8],
    may_shrink: &impl Fn(TransactionId) -> bool,
) -> Option<usize> {
    let number = slot_for(change.page(page));
    let is_new = number == slots(change.page(page));
    let slot_bytes = if is_new { SLOT_BYTES } else { 0 };
    make_room(change, page, slot_bytes + cell_bytes(content.len()), may_shrink)?;
    if is_new {
        change.write(page, COUNT_AT, &(number as u16 + 1).to_le_bytes());
    }
    place(change, page, number, head(number), content);
    Some(number)
}

/// The slot that a row would get.
pub fn slot_for(page: &[u8]) -> usize {
    (0..slots(page))
        .find(|number| slot(page, *number).is_some_and(|(_, bytes)| bytes == 0))
        .unwrap_or(slots(page))
}

/// Whether a row could be added.
pub fn has_room(page: &[u8], content: usize, may_shrink: &impl Fn(TransactionId) -> bool) -> bool {
    let needed = SLOT_BYTES + cell_bytes(content);
    gap(page) >= needed || free_bytes(page, may_shrink) >= needed
}

/// Writes a cell at the end of the free bytes, of which there are enough.
fn place(change: &mut Change<'_>, page: Changed, number: usize, head: RowHead, content: &[u8]) {
    let bytes = cell_bytes(content.len());
    let at = short_at(change.page(page), CELLS_AT) - bytes;
    let mut cell = Vec::with_capacity(CELL_HEAD_BYTES + content.len());
    cell.extend_from_slice(&head.to_bytes());
    cell.extend_from_slice(&(content.len() as u16).to_le_bytes());
    cell.extend_from_slice(content);
    change.write(page, at, &cell);
    change.write(page, CELLS_AT, &(at as u16).to_le_bytes());
    set_slot(change, page, number, at, bytes);
}

fn set_slot(change: &mut Change<'_>, page: Changed, number: usize, at: usize, bytes: usize) {
    let [low, high] = (at as u16).to_le_bytes();
    let [less, more] = (bytes as u16).to_le_bytes();
    change.write(page, SLOTS_AT + number * SLOT_BYTES, &[low, high, less, more]);
}

/// Gives a row other content; whether there is room for it.
pub fn update(
    change: &mut Change<'_>,
    page: Changed,
    number: usize,
    head: RowHead,
    content: &[u8],
    may_shrink: &impl Fn(TransactionId) -> bool,
) -> bool {
    if content.len() <= reserved_bytes(change.page(page), number) {
        set_head(change, page, number, head);
        let (at, _) = place_of(change.page(page), number);
        change.write(page, at + LENGTH_AT, &(content.len() as u16).to_le_bytes());
        change.write(page, at + CELL_HEAD_BYTES, content);
        return true;
    }
    // The cell as it is stays until the new one is written; what it took is free afterwards.
    if make_room(change, page, cell_bytes(content.len()), may_shrink).is_none() {
        return false;
    }
    place(change, page, number, head, content);
    true
}

pub fn set_head(change: &mut Change<'_>, page: Changed, number: usize, head: RowHead) {
    let (at, _) = place_of(change.page(page), number);
    change.write(page, at, &head.to_bytes());
}

fn place_of(page: &[u8], number: usize) -> (usize, usize) {
    let Some(place) = slot(page, number).filter(|(_, bytes)| *bytes > 0) else {
        unreachable!("the row of slot {number} is there")
    };
    place
}

/// Takes a row away; its slot is free.
pub fn remove(change: &mut Change<'_>, page: Changed, number: usize) {
    place_of(change.page(page), number);
    set_slot(change, page, number, 0, 0);
}

/// Moves cells together until there are so many bytes between slots and cells.
fn make_room(
    change: &mut Change<'_>,
    page: Changed,
    bytes: usize,
    may_shrink: &impl Fn(TransactionId) -> bool,
) -> Option<()> {
    let before = change.page(page);
    if gap(before) >= bytes {
        return Some(());
    }
    if free_bytes(before, may_shrink) < bytes {
        return None;
    }
    let mut end = before.len();
    let mut cells = Vec::new();
    let mut slots_after = Vec::with_capacity(slots(before) * SLOT_BYTES);
    for number in 0..slots(before) {
        let kept = least_bytes(before, number, may_shrink);
        if kept > 0 {
            let (at, _) = place_of(before, number);
            end -= kept;
            cells.push(&before[at..at + kept]);
        }
        let at = if kept > 0 { end } else { 0 };
        slots_after.extend_from_slice(&(at as u16).to_le_bytes());
        slots_after.extend_from_slice(&(kept as u16).to_le_bytes());
    }
    cells.reverse();
    let cells = cells.concat();
    change.write(page, end, &cells);
    change.write(page, SLOTS_AT, &slots_after);
    change.write(page, CELLS_AT, &(end as u16).to_le_bytes());
    Some(())
}
