//! The second copy of pages that are being written.
//!
//! ```text
//!   0          4       8            4096
//!   | checksum | count | page ids … | image | image | …
//! ```
//!
//! It has the pages that were written last. They are in their places, and durable there, before others come here.

use std::sync::Arc;

use bytes::Bytes;
use nandina_device::{BLOCK_BYTES, Device, File, FileClass, OpenMode, Request};

use crate::error::{Error, Result};
use crate::page::{self, PageId};

pub const NAME: &str = "rows.double";
const IDS_AT: usize = 8;
/// As many page numbers as there is room for.
pub const MOST_PAGES: usize = (BLOCK_BYTES - IDS_AT) / size_of::<u64>();

/// See the [module documentation](self).
pub struct DoubleWrite {
    file: File,
    page_bytes: usize,
}

impl DoubleWrite {
    pub fn open(device: &Device, page_bytes: usize) -> Result<Self> {
        let failed = |source| Error::PagesWrite { path: device.path().join(NAME), source: Arc::new(source) };
        let file = if device.exists(NAME).map_err(failed)? {
            device.open_file(NAME, FileClass::Table, OpenMode::ReadWrite).map_err(failed)?
        } else {
            let file = device.create(NAME, FileClass::Table).map_err(failed)?;
            device.sync_directory().map_err(failed)?;
            file
        };
        Ok(Self { file, page_bytes })
    }

    /// The file as it is, if it is there.
    pub fn open_to_read(device: &Device, page_bytes: usize) -> Result<Option<Self>> {
        let failed = |source| Error::PagesRead { path: device.path().join(NAME), source: Arc::new(source) };
        if !device.exists(NAME).map_err(failed)? {
            return Ok(None);
        }
        let file = device.open_file(NAME, FileClass::Table, OpenMode::Read).map_err(failed)?;
        Ok(Some(Self { file, page_bytes }))
    }

    /// Makes copies of pages durable.
    pub fn write(&self, pages: &[(PageId, Bytes)]) -> Result<()> {
        assert!(pages.len() <= MOST_PAGES, "no more pages are written together than fit");
        let mut head = self.file.device().buffer(BLOCK_BYTES);
        head.fill(0);
        let count = (pages.len() as u32).to_le_bytes().into_iter();
        let ids = pages.iter().flat_map(|(page, _)| page.0.to_le_bytes());
        head.iter_mut().skip(size_of::<u32>()).zip(count.chain(ids)).for_each(|(to, from)| *to = from);
        let checksum = checksum_of(&head);
        head.iter_mut().zip(checksum.to_le_bytes()).for_each(|(to, from)| *to = from);
        let images = pages.iter().map(|(_, image)| image.clone().into());
        let buffers = std::iter::once(head.into()).chain(images).collect();
        let request = Request::Write { offset: 0, buffers };
        let written = self.file.submit(vec![request]).wait().and_then(|_| self.file.sync());
        written.map_err(|source| self.error(source))
    }

    /// The pages that were written last, as far as they are whole here.
    pub fn images(&self) -> Result<Vec<(PageId, Bytes)>> {
        let length = self.file.len().map_err(|source| self.error(source))?;
        if length < BLOCK_BYTES as u64 {
            return Ok(Vec::new());
        }
        let read = |offset: u64, bytes: usize| {
            let buffer = self.file.read_blocking(offset, self.file.device().buffer(bytes));
            buffer.map_err(|source| self.error(source))
        };
        let head = read(0, BLOCK_BYTES)?;
        let Some(pages) = parse(&head) else { return Ok(Vec::new()) };
        let there = ((length - BLOCK_BYTES as u64) / self.page_bytes as u64) as usize;
        let mut images = Vec::new();
        for (at, page) in pages.into_iter().enumerate().take(there) {
            let image = read((BLOCK_BYTES + at * self.page_bytes) as u64, self.page_bytes)?;
            // Where a copy is not whole, its page has not been touched.
            if page::verify(&image) == Some(page) {
                images.push((page, image.freeze()));
            }
        }
        Ok(images)
    }

    fn error(&self, source: nandina_device::Error) -> Error {
        Error::PagesWrite { path: self.file.path().to_path_buf(), source: Arc::new(source) }
    }
}

fn checksum_of(head: &[u8]) -> u32 {
    crc32c::crc32c(head.get(size_of::<u32>()..).unwrap_or_default())
}

fn parse(head: &[u8]) -> Option<Vec<PageId>> {
    let (checksum, rest) = head.split_first_chunk::<4>()?;
    let (count, ids) = rest.split_first_chunk::<4>()?;
    let (ids, _) = ids.as_chunks::<8>();
    let ids = ids.get(..u32::from_le_bytes(*count) as usize)?;
    (u32::from_le_bytes(*checksum) == checksum_of(head))
        .then(|| ids.iter().map(|id| PageId(u64::from_le_bytes(*id))).collect())
}
