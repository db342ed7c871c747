//! A page as small as it gets, which is encoded before it is known whether it fits.

use crate::error::{PageError, Result};
use crate::format::{MiniPageMeta, PageIdentity, PageMeta, front_bytes, write_front};
use crate::mini_page::mini_page_checksum;
use crate::staging::{ColumnStaging, next_start};

/// Rows of a [`PageBuilder`](crate::PageBuilder), each column in its smallest [encoding](crate::Encoding). How long it
/// is cannot be told before; a writer tries. Keeps its capacity from page to page.
#[derive(Debug, Default)]
pub struct CompactPage {
    /// Room for header and directory, then mini-pages.
    bytes: Vec<u8>,
    columns: Vec<MiniPageMeta>,
    rows: usize,
}

impl CompactPage {
    pub(crate) fn fill<'a>(
        &mut self,
        columns: impl ExactSizeIterator<Item = (&'a ColumnStaging, &'a str)>,
        rows: usize,
    ) -> Result<()> {
        self.bytes.clear();
        self.columns.clear();
        self.rows = rows;
        self.bytes.resize(front_bytes(columns.len()), 0);
        for (staging, name) in columns {
            assert_eq!(staging.rows(), rows, "a page holds whole rows");
            let start = next_start(self.bytes.len());
            self.bytes.resize(start, 0);
            let encoding = staging.encode_compact(&mut self.bytes, name)?;
            let mini_page = &self.bytes[start..];
            let length_bytes = u32::try_from(mini_page.len()).map_err(|_| PageError::ValueTooLong {
                column: name.to_owned(),
                value_bytes: mini_page.len() as u64,
                max_bytes: u64::from(u32::MAX),
            })?;
            self.columns.push(MiniPageMeta {
                offset_bytes: start as u64,
                length_bytes,
                null_count: staging.null_count() as u32,
                encoding,
                checksum: mini_page_checksum(mini_page),
            });
        }
        Ok(())
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Header, directory and mini-pages.
    pub fn used_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Memory held, unused capacity included.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Writes the page into `out`, whose length becomes the page size, and zero-fills what follows.
    pub fn write(&self, identity: PageIdentity, out: &mut [u8]) -> Result<PageMeta> {
        let (needed_bytes, buffer_bytes) = (self.bytes.len(), out.len());
        let Some((page, rest)) = out.split_at_mut_checked(needed_bytes) else {
            return Err(PageError::BufferTooSmall { needed_bytes, buffer_bytes });
        };
        page.copy_from_slice(&self.bytes);
        rest.fill(0);
        let columns = self.columns.clone();
        let meta = PageMeta { identity, rows: self.rows as u32, used_bytes: needed_bytes, columns };
        write_front(out, &meta);
        Ok(meta)
    }
}
