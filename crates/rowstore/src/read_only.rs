//! Pages of a store that is only read, to get out what is in it: also where its log is damaged, or gone.
//!
//! ```text
//!   a page as it would be ◄── its records in the log ◄── its copy in the double write, if it was torn ◄── page file
//! ```
//!
//! Nothing on the device is changed. What recovery does to all pages is done to each of them when it is read; the edits for that are
//! in memory, as many bytes as recovery would read of the log. Where reading the log ends early, pages are as they had been written
//! or as far as their records are there: what a transaction did may be found in part, and a long row may have bytes of another.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use nandina_device::{AlignedBuffer, Batch, Device, Error as DeviceError, File, Request};

use crate::change::{self, PageEdits};
use crate::error::{Error, Result};
use crate::log::{self, Lsn};
use crate::page::{self, PageId};
use crate::page_file::{self, Control};
use crate::tier::{Access, PageTier, WriteReason, WrittenPage};

/// See the [module documentation](self).
pub struct ReadOnlyPages {
    file: File,
    page_bytes: usize,
    length: u64,
    /// Pages that were being written when the store was last used.
    copies: HashMap<PageId, Bytes>,
    /// From the last record on that makes the page anew.
    edits: HashMap<PageId, Vec<(Lsn, Vec<u8>)>>,
}

impl ReadOnlyPages {
    /// The pages in a directory, with what the log in another one has of them; what is wrong with the log, if something is.
    pub fn open(pages: &Device, log: Device) -> Result<(Self, Control, Option<Error>)> {
        let (file, control) = page_file::open_to_read(pages)?;
        let length = file.len().map_err(|source| page_file::read_error(pages, source))?;
        let page_bytes = control.page_bytes as usize;
        let copies = page_file::copies(pages, page_bytes)?.into_iter().collect();
        let mut edits: HashMap<PageId, Vec<(Lsn, Vec<u8>)>> = HashMap::new();
        let path = log.path().to_path_buf();
        let read = log::read_only(log, control.log_id, control.redo, |lsn, record| {
            let of_pages = change::pages_of(record).ok_or_else(|| Error::LogDamaged {
                path: path.clone(),
                offset: lsn.0,
                reason: "a record is none that this program writes",
            })?;
            for of_page in of_pages {
                let known = edits.entry(of_page.page).or_default();
                if of_page.creates().is_some() {
                    known.clear();
                }
                known.push((lsn, of_page.bytes().to_vec()));
            }
            Ok(())
        });
        Ok((Self { file, page_bytes, length, copies, edits }, control, read.err()))
    }

    fn offset(&self, page: PageId) -> u64 {
        page.0.min(1 << PageId::BITS) * self.page_bytes as u64
    }

    fn read_only(&self) -> Error {
        Error::ReadOnly { path: self.file.path().to_path_buf() }
    }

    /// Makes the changes that are in the log; `None` if one cannot be of such a page.
    fn redo(&self, page: PageId, buffer: &mut AlignedBuffer) -> Option<()> {
        let Some(edits) = self.edits.get(&page) else { return Some(()) };
        for (lsn, bytes) in edits {
            let edits = PageEdits::new(page, bytes);
            match (page::verify(buffer) == Some(page), edits.creates().is_some()) {
                (false, true) => buffer.fill(0),
                // What is not whole is not made to look so.
                (false, false) => return Some(()),
                (true, _) if page::lsn(buffer) >= *lsn => continue,
                (true, _) => {}
            }
            edits.apply(buffer)?;
            page::set_lsn(buffer, *lsn);
            page::seal(buffer);
        }
        Some(())
    }
}

impl PageTier for ReadOnlyPages {
    fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    fn reads_many(&self) -> bool {
        false
    }

    fn read(&self, pages: Vec<(PageId, AlignedBuffer)>) -> Batch {
        let requests = pages.into_iter().map(|(page, buffer)| Request::read(self.offset(page), buffer));
        self.file.submit(requests.collect())
    }

    fn read_one(&self, page: PageId, mut buffer: AlignedBuffer) -> Result<AlignedBuffer, DeviceError> {
        let offset = self.offset(page);
        if offset + self.page_bytes as u64 <= self.length {
            buffer = self.file.read_blocking(offset, buffer)?;
        } else {
            buffer.fill(0);
        }
        if page::verify(&buffer) != Some(page)
            && let Some(copy) = self.copies.get(&page)
        {
            buffer.copy_from_slice(copy);
        }
        if self.redo(page, &mut buffer).is_none() {
            // Not a page of anything, which is reported as damage.
            buffer.fill(0);
        }
        Ok(buffer)
    }

    fn write(&self, _pages: &[WrittenPage], _images: AlignedBuffer, _reason: WriteReason) -> Result<()> {
        Err(self.read_only())
    }

    fn evicted(&self, _page: PageId, _image: &[u8], _access: Access) {}

    fn first_update(&self, _page: PageId) {}

    fn grow(&self, _end: PageId) -> Result<()> {
        Err(self.read_only())
    }

    fn damaged(&self, page: PageId, reason: &'static str) -> Error {
        Error::PageDamaged { path: self.file.path().to_path_buf(), page, reason }
    }

    fn read_error(&self, source: DeviceError) -> Error {
        Error::PagesRead { path: self.file.path().to_path_buf(), source: Arc::new(source) }
    }
}
