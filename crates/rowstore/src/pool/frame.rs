//! A frame: memory for one page, its latch, and what is known of the page without latching it.

use std::ops::Deref;
use std::time::Duration;

use nandina_device::{AlignedBuffer, Device};

use crate::log::Lsn;
use crate::page::PageId;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::tier::Access;

/// Ends a chain of frames, see `table`.
pub const NO_FRAME: u32 = u32::MAX;
/// A page that was used so often stays as long as one that was used more often (S3-FIFO counts up to three).
const MOST_USES: u8 = 3;
/// The page has come and has not been used yet: what it was read for is no use of a page that is there.
const NEW: u8 = u8::MAX;
/// After so long, a thread that waits for a latch looks whether the frame still has the page that it wants.
const LATCH_PATIENCE: Duration = Duration::from_millis(2);

pub struct Frame {
    latch: RwLock<Content>,
    /// The page of the content; looked at without the latch, and again with it.
    page: AtomicU64,
    /// The next frame of the same bucket of the page table.
    pub next: AtomicU32,
    /// How often the page was used since the replacement last looked.
    uses: AtomicU8,
    is_random: AtomicBool,
    dirty: Mutex<Dirty>,
}

pub struct Content {
    pub page: PageId,
    /// Empty where the frame has no memory.
    pub bytes: AlignedBuffer,
}

impl Content {
    /// The memory of the frame; new memory, if it has none.
    pub fn take_bytes(&mut self, device: &Device, page_bytes: usize) -> AlignedBuffer {
        let bytes = std::mem::replace(&mut self.bytes, device.buffer(0));
        if bytes.len() == page_bytes { bytes } else { device.buffer(page_bytes) }
    }
}

/// Which changes are not on the device.
#[derive(Debug, Clone, Copy, Default)]
struct Dirty {
    /// The first of them.
    first: Option<Missing>,
    is_being_written: bool,
    /// The first since the page was copied to be written.
    next: Option<Missing>,
}

/// A change that is not on the device.
#[derive(Debug, Clone, Copy)]
struct Missing {
    /// All before this LSN are there.
    since: Lsn,
    makes_page: bool,
}

impl Frame {
    pub fn new(nothing: AlignedBuffer) -> Self {
        Self {
            latch: RwLock::new(Content { page: PageId::NONE, bytes: nothing }),
            page: AtomicU64::new(PageId::NONE.0),
            next: AtomicU32::new(NO_FRAME),
            uses: AtomicU8::new(0),
            is_random: AtomicBool::new(true),
            dirty: Mutex::default(),
        }
    }

    pub fn page(&self) -> PageId {
        PageId(self.page.load(Ordering::Acquire))
    }

    /// Latches the frame to read, if it has this page.
    pub fn read(&self, page: PageId) -> Option<PageRead<'_>> {
        while self.page() == page {
            let Some(content) = self.latch.try_read_for(LATCH_PATIENCE) else { continue };
            if content.page != page {
                return None;
            }
            self.used();
            return Some(PageRead { content });
        }
        None
    }

    /// Latches the frame to change it, if it has this page.
    pub fn write(&self, page: PageId) -> Option<PageWrite<'_>> {
        while self.page() == page {
            let Some(content) = self.latch.try_write_for(LATCH_PATIENCE) else { continue };
            if content.page != page {
                return None;
            }
            self.used();
            return Some(PageWrite { frame: self, content });
        }
        None
    }

    /// Latches a frame that no thread can wait with: it is in no chain, so that others leave it as soon as they see that it
    /// has not the page that they want.
    pub fn take(&self) -> RwLockWriteGuard<'_, Content> {
        self.latch.write()
    }

    /// Latches the frame if nobody uses it.
    pub fn try_take(&self) -> Option<RwLockWriteGuard<'_, Content>> {
        self.latch.try_write()
    }

    /// Puts a page into the frame, which is in no chain.
    pub fn set<'a>(
        &'a self,
        mut content: RwLockWriteGuard<'a, Content>,
        page: PageId,
        access: Access,
    ) -> PageWrite<'a> {
        content.page = page;
        self.page.store(page.0, Ordering::Release);
        self.uses.store(NEW, Ordering::Relaxed);
        self.is_random.store(access == Access::Random, Ordering::Relaxed);
        PageWrite { frame: self, content }
    }

    /// Takes the page out of the frame, which is in no chain any more.
    pub fn clear(&self, content: &mut Content) {
        assert!(!self.is_dirty(), "what was changed is written before it leaves memory");
        content.page = PageId::NONE;
        self.page.store(PageId::NONE.0, Ordering::Release);
    }

    fn used(&self) {
        // Two threads at once may count one use: it is an estimate.
        match self.uses.load(Ordering::Relaxed) {
            NEW => self.uses.store(0, Ordering::Relaxed),
            uses if uses < MOST_USES => self.uses.store(uses + 1, Ordering::Relaxed),
            _ => {}
        }
    }

    pub fn uses(&self) -> u8 {
        match self.uses.load(Ordering::Relaxed) {
            NEW => 0,
            uses => uses,
        }
    }

    pub fn age(&self) {
        self.uses.store(self.uses().saturating_sub(1), Ordering::Relaxed);
    }

    pub fn forget_uses(&self) {
        self.uses.store(0, Ordering::Relaxed);
    }

    pub fn access(&self) -> Access {
        if self.is_random.load(Ordering::Relaxed) { Access::Random } else { Access::Sequential }
    }

    /// A later access by itself counts more than one with the neighbours.
    pub fn accessed(&self, access: Access) {
        if access == Access::Random && self.access() != access {
            self.is_random.store(true, Ordering::Relaxed);
        }
    }

    pub fn is_dirty(&self) -> bool {
        self.dirty.lock().first.is_some()
    }

    /// The LSN before which no change of the page is missing on the device, if one behind it may be.
    pub fn dirty_since(&self) -> Option<Lsn> {
        self.dirty.lock().first.map(|first| first.since)
    }

    /// The page is about to be changed at `lsn` or behind it, or made anew there, whatever was in it.
    pub fn mark_dirty(&self, lsn: Lsn, makes_page: bool) -> Marked {
        let mut dirty = self.dirty.lock();
        let missing = Missing { since: lsn, makes_page };
        let was_clean = dirty.first.is_none();
        dirty.first.get_or_insert(missing);
        let is_first = was_clean || dirty.is_being_written && dirty.next.is_none();
        if dirty.is_being_written {
            dirty.next.get_or_insert(missing);
        }
        Marked { was_clean, is_first }
    }

    /// A page that was clean has not been changed after all. It is latched, so that it has not been copied meanwhile.
    pub fn mark_clean(&self) {
        let mut dirty = self.dirty.lock();
        assert!(!dirty.is_being_written, "a page that was clean is not written");
        dirty.first = None;
    }

    /// Waits until nobody changes the page.
    pub fn wait_for_writer(&self) {
        drop(self.latch.read());
    }

    /// Copies the page to be written, unless there is nothing to write or it is being changed.
    pub fn copy_dirty(&self, to: &mut [u8]) -> Copied {
        let Some(content) = self.latch.try_read() else { return Copied::Latched };
        let mut dirty = self.dirty.lock();
        let Some(first) = dirty.first else { return Copied::Clean };
        assert!(!dirty.is_being_written, "pages are written by one thread at a time");
        dirty.is_being_written = true;
        to.copy_from_slice(&content.bytes);
        Copied::Done { page: content.page, is_in_log: first.makes_page }
    }

    /// What was copied is on the device, or was not written.
    pub fn written(&self, succeeded: bool) {
        let mut dirty = self.dirty.lock();
        let next = dirty.next.take();
        if succeeded {
            dirty.first = next;
        }
        dirty.is_being_written = false;
    }
}

/// What a page was when it was marked dirty.
#[derive(Debug, Clone, Copy)]
pub struct Marked {
    pub was_clean: bool,
    /// It was as it is on the device, or is being written as it was.
    pub is_first: bool,
}

/// What became of a page that was to be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copied {
    Done {
        page: PageId,
        /// See [`WrittenPage`](crate::tier::WrittenPage).
        is_in_log: bool,
    },
    Clean,
    Latched,
}

/// A page that is latched to read: others may read it, and nobody changes it.
pub struct PageRead<'a> {
    content: RwLockReadGuard<'a, Content>,
}

impl PageRead<'_> {
    pub fn id(&self) -> PageId {
        self.content.page
    }
}

impl Deref for PageRead<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.content.bytes
    }
}

/// A page that is latched to be changed: nobody else sees it. See [`Change`](crate::change::Change).
pub struct PageWrite<'a> {
    frame: &'a Frame,
    content: RwLockWriteGuard<'a, Content>,
}

impl<'a> PageWrite<'a> {
    pub fn id(&self) -> PageId {
        self.content.page
    }

    pub(crate) fn frame(&self) -> &'a Frame {
        self.frame
    }

    pub(super) fn into_content(self) -> RwLockWriteGuard<'a, Content> {
        self.content
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.content.bytes
    }

    /// Lets others read it, without anybody changing it in between.
    pub fn downgrade(self) -> PageRead<'a> {
        PageRead { content: RwLockWriteGuard::downgrade(self.content) }
    }
}

impl Deref for PageWrite<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.content.bytes
    }
}

impl std::fmt::Debug for PageRead<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PageRead").field(&self.id()).finish()
    }
}

impl std::fmt::Debug for PageWrite<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PageWrite").field(&self.id()).finish()
    }
}
