//! Changes of pages: what happens to several pages together, or not at all.
//!
//! A change latches the pages, edits them in memory, and notes each edit in a record: bytes that are written, bytes that move
//! within the page, an empty page. Committing appends the record to the log, and gives its LSN to all pages; dropping the
//! change undoes the edits. After a crash the same edits are made again (`redo`), on pages that do not have them yet.
//!
//! ```text
//!   record:  1 | page id, bytes of edits, edits | page id, bytes of edits, edits | …
//!   edit:    0, kind                 an empty page of this kind
//!            1, at, length, bytes    written at this place
//!            2, from, to, length     moved within the page; they may overlap
//! ```
//!
//! Edits name bytes of one page and know nothing of what they mean: one way to do and to do again serves all kinds of pages.
//! Redo is *physical*, page by page. Undo is *logical*: a transaction is rolled back by other changes, made by those who know
//! what its rows are, as in ARIES (Mohan et al., TODS 1992).

#![allow(clippy::indexing_slicing, reason = "edits are of bytes of a page, which those who make them know")]

use std::ops::Range;

use crate::error::{Error, Result};
use crate::log::{Lsn, MOST_RECORD_BYTES};
use crate::page::{self, HEADER_BYTES, PageId, PageKind};
use crate::pool::{BufferPool, PageWrite};
use crate::space::{Hint, SpaceLock};
use crate::sync::Mutex;
use crate::tier::Access;

/// Begins a record that has changes of pages.
const CHANGE: u8 = 1;
/// The id of a page and the length of its edits.
const PAGE_HEAD_BYTES: usize = 12;
/// What there is room for from the start, so that a change of a short row allocates once for each list: pages that it changes,
/// places in them that it overwrites, and the bytes of edits of one page.
const PAGES: usize = 4;
const REPLACED: usize = 16;
const EDITS_BYTES: usize = 240;
const FORMAT: u8 = 0;
const WRITE: u8 = 1;
const MOVE: u8 = 2;

/// See the [module documentation](self).
pub struct Change<'a> {
    pool: &'a BufferPool,
    pages: Vec<ChangedPage<'a>>,
    /// What the edits replaced, in their order, and its bytes.
    replaced: Vec<Replaced>,
    replaced_bytes: Vec<u8>,
    /// The right to change maps of pages, and where free pages were looked for before.
    space: Option<(SpaceLock<'a>, Hint)>,
}

struct ChangedPage<'a> {
    page: PageWrite<'a>,
    edits: Vec<u8>,
    /// It was not in memory before, and is not to be if the change is dropped.
    is_new: bool,
}

struct Replaced {
    page: usize,
    at: usize,
    /// Where its bytes begin, which end where the next ones begin.
    from: usize,
}

/// A page of a [`Change`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changed(usize);

impl<'a> Change<'a> {
    pub fn new(pool: &'a BufferPool) -> Self {
        Self {
            pool,
            pages: Vec::with_capacity(PAGES),
            replaced: Vec::with_capacity(REPLACED),
            replaced_bytes: Vec::with_capacity(2 * EDITS_BYTES),
            space: None,
        }
    }

    /// Takes a page into the change that has been latched already.
    pub fn add(&mut self, page: PageWrite<'a>) -> Changed {
        self.pages.push(ChangedPage { page, edits: Vec::with_capacity(EDITS_BYTES), is_new: false });
        Changed(self.pages.len() - 1)
    }

    /// Latches a page, if this change has not done so already.
    pub fn latch(&mut self, page: PageId) -> Result<Changed> {
        match self.latched(page) {
            Some(latched) => Ok(latched),
            None => Ok(self.add(self.pool.write(page, Access::Random)?)),
        }
    }

    /// A page that this change has latched.
    pub fn latched(&self, page: PageId) -> Option<Changed> {
        self.pages.iter().position(|changed| changed.page.id() == page).map(Changed)
    }

    /// An empty page, whatever it was before.
    pub fn create(&mut self, page: PageId, kind: PageKind) -> Result<Changed> {
        let changed = match self.latched(page) {
            // It was given back by this very change.
            Some(changed) => changed,
            None => {
                let (latched, is_new) = self.pool.create(page, kind)?;
                self.pages.push(ChangedPage {
                    page: latched,
                    edits: Vec::with_capacity(EDITS_BYTES),
                    is_new,
                });
                Changed(self.pages.len() - 1)
            }
        };
        let page_bytes = self.pool.page_bytes();
        if !self.pages[changed.0].is_new {
            self.replace(changed, 0..page_bytes);
        }
        let ChangedPage { page: latched, edits, .. } = &mut self.pages[changed.0];
        page::format(latched.bytes_mut(), page, kind);
        edits.push(FORMAT);
        edits.extend_from_slice(&kind.0.to_le_bytes());
        Ok(changed)
    }

    /// Takes the right to change maps of pages, if this change has not done so already.
    pub(crate) fn lock_space(&mut self, lock: &'a Mutex<Hint>) -> &mut Hint {
        let (hint, _) = self.space.get_or_insert_with(|| {
            let hint = lock.lock();
            let before = *hint;
            (hint, before)
        });
        hint
    }

    pub fn page(&self, changed: Changed) -> &[u8] {
        &self.pages[changed.0].page
    }

    pub fn id(&self, changed: Changed) -> PageId {
        self.pages[changed.0].page.id()
    }

    /// What to report of a page whose content cannot be.
    pub fn damaged(&self, changed: Changed, reason: &'static str) -> Error {
        self.pool.tier().damaged(self.id(changed), reason)
    }

    /// Writes bytes to a page.
    pub fn write(&mut self, changed: Changed, at: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        assert!(at >= HEADER_BYTES, "the header of a page is not changed");
        let target = self.replace(changed, at..at + bytes.len());
        target.copy_from_slice(bytes);
        let edits = &mut self.pages[changed.0].edits;
        edits.push(WRITE);
        edits.extend_from_slice(&(at as u16).to_le_bytes());
        edits.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        edits.extend_from_slice(bytes);
    }

    /// Moves bytes within a page.
    pub fn shift(&mut self, changed: Changed, from: Range<usize>, to: usize) {
        if from.is_empty() || from.start == to {
            return;
        }
        assert!(from.start.min(to) >= HEADER_BYTES, "the header of a page is not changed");
        self.replace(changed, to..to + from.len());
        let ChangedPage { page, edits, .. } = &mut self.pages[changed.0];
        page.bytes_mut().copy_within(from.clone(), to);
        edits.push(MOVE);
        for field in [from.start, to, from.len()] {
            edits.extend_from_slice(&(field as u16).to_le_bytes());
        }
    }

    /// Keeps what is about to be replaced.
    fn replace(&mut self, changed: Changed, range: Range<usize>) -> &mut [u8] {
        let target = &mut self.pages[changed.0].page.bytes_mut()[range.clone()];
        self.replaced.push(Replaced { page: changed.0, at: range.start, from: self.replaced_bytes.len() });
        self.replaced_bytes.extend_from_slice(target);
        target
    }

    /// Appends the change to the log; its place there. It is durable when the log says so.
    pub fn commit(mut self) -> Result<Lsn> {
        let changed = self.pages.iter().filter(|changed| !changed.edits.is_empty());
        let bytes: usize = changed.clone().map(|changed| PAGE_HEAD_BYTES + changed.edits.len()).sum();
        let mut record = Vec::with_capacity(1 + bytes);
        record.push(CHANGE);
        for ChangedPage { page, edits, .. } in changed.clone() {
            record.extend_from_slice(&page.id().0.to_le_bytes());
            record.extend_from_slice(&(edits.len() as u32).to_le_bytes());
            record.extend_from_slice(edits);
        }
        if record.len() == 1 {
            return Ok(Lsn::default());
        }
        assert!(record.len() <= MOST_RECORD_BYTES, "a change is of few pages");
        // Before the record is appended, so that no checkpoint misses the pages.
        let next = self.pool.log().next();
        let mut were_clean = Vec::new();
        for ChangedPage { page, edits, .. } in changed {
            let marked = page.frame().mark_dirty(next, edits.first() == Some(&FORMAT));
            if marked.is_first {
                self.pool.tier().first_update(page.id());
            }
            if marked.was_clean {
                were_clean.push(page.frame());
            }
        }
        let appended = self.pool.log().append(&record);
        let lsn = appended.inspect_err(|_| were_clean.iter().for_each(|frame| frame.mark_clean()))?;
        for ChangedPage { page, edits, is_new } in &mut self.pages {
            if !edits.is_empty() {
                page::set_lsn(page.bytes_mut(), lsn);
            }
            *is_new = false;
        }
        self.replaced.clear();
        self.space = None;
        Ok(lsn)
    }
}

impl Drop for Change<'_> {
    /// Undoes the edits of a change that has not been committed.
    fn drop(&mut self) {
        if let Some((hint, before)) = &mut self.space {
            **hint = *before;
        }
        for Replaced { page, at, from } in self.replaced.drain(..).rev() {
            let bytes = &self.replaced_bytes[from..];
            self.pages[page].page.bytes_mut()[at..at + bytes.len()].copy_from_slice(bytes);
            self.replaced_bytes.truncate(from);
        }
        for ChangedPage { page, .. } in self.pages.drain(..).filter(|changed| changed.is_new) {
            self.pool.discard(page);
        }
    }
}

/// The edits of one page, as a record has them.
#[derive(Debug, Clone, Copy)]
pub struct PageEdits<'r> {
    pub page: PageId,
    edits: &'r [u8],
}

/// The pages that a record changes; `None` if it is no record of changes.
pub fn pages_of(record: &[u8]) -> Option<Vec<PageEdits<'_>>> {
    let mut rest = record.strip_prefix(&[CHANGE])?;
    let mut pages = Vec::new();
    while !rest.is_empty() {
        let (page, behind) = rest.split_first_chunk::<8>()?;
        let (length, behind) = behind.split_first_chunk::<4>()?;
        let (edits, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        pages.push(PageEdits { page: PageId(u64::from_le_bytes(*page)), edits });
        rest = behind;
    }
    Some(pages)
}

/// One edit of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edit<'r> {
    /// An empty page, whatever was there before.
    Format(PageKind),
    Write {
        at: usize,
        bytes: &'r [u8],
    },
    Move {
        from: usize,
        to: usize,
        length: usize,
    },
}

impl<'r> PageEdits<'r> {
    /// Edits of a page, as [`bytes`](Self::bytes) gave them.
    pub fn new(page: PageId, edits: &'r [u8]) -> Self {
        Self { page, edits }
    }

    pub fn bytes(&self) -> &'r [u8] {
        self.edits
    }

    /// The kind of page that is made, whatever was there before.
    pub fn creates(&self) -> Option<PageKind> {
        match self.edits().next()? {
            Some(Edit::Format(kind)) => Some(kind),
            _ => None,
        }
    }

    /// The edits in their order; `None` ends them where there is none that this program writes.
    pub fn edits(&self) -> impl Iterator<Item = Option<Edit<'r>>> {
        let mut rest = self.edits;
        std::iter::from_fn(move || {
            let edit = (!rest.is_empty()).then(|| next_edit(&mut rest))?;
            if edit.is_none() {
                rest = &[];
            }
            Some(edit)
        })
    }

    /// Makes the edits; `None` if they are none of such a page.
    pub fn apply(&self, page: &mut [u8]) -> Option<()> {
        for edit in self.edits() {
            match edit? {
                Edit::Format(kind) => page::format(page, self.page, kind),
                Edit::Write { at, bytes } => {
                    let target = page.get_mut(at..at + bytes.len()).filter(|_| at >= HEADER_BYTES)?;
                    target.copy_from_slice(bytes);
                }
                Edit::Move { from, to, length } => {
                    let is_inside = from.min(to) >= HEADER_BYTES && from.max(to) + length <= page.len();
                    is_inside.then(|| page.copy_within(from..from + length, to))?;
                }
            }
        }
        Some(())
    }
}

fn next_edit<'r>(rest: &mut &'r [u8]) -> Option<Edit<'r>> {
    let number = |rest: &mut &'r [u8]| {
        let (field, behind) = rest.split_first_chunk::<2>()?;
        *rest = behind;
        Some(u16::from_le_bytes(*field))
    };
    let (tag, behind) = rest.split_first()?;
    *rest = behind;
    Some(match *tag {
        FORMAT => Edit::Format(PageKind(number(rest)?)),
        WRITE => {
            let (at, length) = (usize::from(number(rest)?), usize::from(number(rest)?));
            let (bytes, behind) = rest.split_at_checked(length)?;
            *rest = behind;
            Edit::Write { at, bytes }
        }
        MOVE => {
            let (from, to, length) = (number(rest)?, number(rest)?, number(rest)?);
            Edit::Move { from: from.into(), to: to.into(), length: length.into() }
        }
        _ => return None,
    })
}
