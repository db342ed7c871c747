//! Between the buffer pool and the page file: the place of a second-level cache.
//!
//! ```text
//!   buffer pool ── read, write, evicted, first_update ──► PageTier ──► page file
//!                                                             └──────► a cache on a faster device, if there is one
//! ```
//!
//! What a cache decides, it decides from these calls: which pages to keep when they leave memory (*admission*), what of
//! its copies is old (*first update*), what a checkpoint may leave in the cache. [`PageFile`](crate::page_file::PageFile)
//! alone keeps nothing: it reads pages from their file and writes them there.

use nandina_device::{AlignedBuffer, Batch};

use crate::error::Result;
use crate::page::PageId;

/// How a page was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// By itself: in an index, by row id.
    Random,
    /// With its neighbours.
    Sequential,
}

/// Why pages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteReason {
    /// They are about to leave memory.
    Eviction,
    /// The log must not begin before their first change any longer. They stay in memory.
    Checkpoint,
}

/// A page to be written.
#[derive(Debug, Clone, Copy)]
pub struct WrittenPage {
    pub page: PageId,
    pub access: Access,
    /// Its first change since it was last written makes it anew: where this write is torn, recovery makes it from the log.
    pub is_in_log: bool,
}

/// See the [module documentation](self).
pub trait PageTier: Send + Sync {
    fn page_bytes(&self) -> usize;

    /// Begins to read pages into these buffers, all at once. The batch has the requests in this order; whether what they
    /// bring is those pages is for the caller to check.
    fn read(&self, pages: Vec<(PageId, AlignedBuffer)>) -> Batch;

    /// Whether [`read`](Self::read) brings pages as [`read_one`](Self::read_one) does.
    fn reads_many(&self) -> bool {
        true
    }

    /// Reads one page, in this thread: nobody has to be woken for it.
    fn read_one(&self, page: PageId, buffer: AlignedBuffer) -> Result<AlignedBuffer, nandina_device::Error>;

    /// Writes sealed pages, which stand in `images` one behind the other, so that a crash from now on finds each of them
    /// whole, as it was before or as it is now, unless all of it is in the log. When it returns, they are durable.
    fn write(&self, pages: &[WrittenPage], images: AlignedBuffer, reason: WriteReason) -> Result<()>;

    /// A page that has not been changed since it was read or written leaves memory: the moment to admit it to a cache. The checksum in
    /// `image` may be an older one's.
    fn evicted(&self, page: PageId, image: &[u8], access: Access);

    /// A page that has not been changed since it was read or written is being changed.
    fn first_update(&self, page: PageId);

    /// Makes room for all pages before `end`.
    fn grow(&self, end: PageId) -> Result<()>;

    /// An error to report about a page that was read.
    fn damaged(&self, page: PageId, reason: &'static str) -> crate::Error;

    fn read_error(&self, source: nandina_device::Error) -> crate::Error;
}
