//! Pages that are complete.

use std::sync::Arc;

use arrow_buffer::Buffer;
use bytes::Bytes;
use nandina_device::AlignedBuffer;
use nandina_pages::{Page, PageSchema, Verify};

use crate::error::Result;

/// A page that will not grow any more: encoded, checksummed, padded to 4 KiB, ready to be written as it is.
#[derive(Clone, Debug)]
pub struct SealedPage {
    pub(crate) bytes: Bytes,
    rows: u32,
}

impl SealedPage {
    /// A page of so many rows that has been encoded into `buffer`.
    pub fn new(buffer: AlignedBuffer, rows: u32) -> Self {
        Self { bytes: buffer.freeze(), rows }
    }

    /// Rows in the page.
    pub fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Bytes the page occupies in memory, and on the device if it is not packed.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Opens the page where it lies, without copying.
    pub fn open(&self, schema: &Arc<PageSchema>) -> Result<Page> {
        Ok(Page::open(Buffer::from(self.bytes.clone()), Arc::clone(schema), Verify::Trusted)?)
    }
}
