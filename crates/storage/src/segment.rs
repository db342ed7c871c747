//! A segment file: what one write statement stored. Never changed once the manifest names it.
//!
//! ```text
//!  header (4 KiB multiple)                     0  u32 magic "NSEG"
//!  stripe: pages, each in slots of the         4  u16 format version   6  u16 reserved
//!          table's page size                   8  u64 segment id
//!  page index of the stripe (a PAX page)      16  u32 page size       20  u32 schema length
//!  … more stripes …                           24  u8[36] reserved
//!  directory (a PAX page)                     60  u32 crc32c of bytes 0..60 and the schema
//!                                             64  schema: an Arrow IPC schema message
//! ```
//!
//! The manifest says where the directory is, the directory where everything else is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arrow_buffer::Buffer;
use nandina_device::{AlignedBuffer, Completion, Device, File, FileClass, IoAccount, OpenMode, Request};
use nandina_pages::{Page, PageError, PageMeta, PageSchema, Verify, decode_mini_page};

use crate::error::{Result, StorageError};
use crate::ids::{PageNumber, SegmentId, TableId};
use crate::manifest::SegmentRecord;
use crate::page_index::{Directory, IndexLayout, Stripe, StripeIndex};
use crate::read_plan::{Needed, plan};

pub(crate) const BLOCK_BYTES: u64 = 4096;
const MAGIC: &[u8; 4] = b"NSEG";
const VERSION: u16 = 1;
const FIXED_HEADER_BYTES: usize = 64;

/// Page indexes up to this length are read in one piece instead of header first, then columns.
const SMALL_INDEX_BYTES: u64 = 64 << 10;

/// What all segments of a table have in common.
#[derive(Debug)]
pub(crate) struct TableShape {
    pub id: TableId,
    pub name: String,
    pub page_bytes: usize,
    pub layout: IndexLayout,
}

impl TableShape {
    pub fn page_schema(&self) -> &Arc<PageSchema> {
        &self.layout.table
    }
}

/// A segment that a snapshot refers to. Its file is removed when it is obsolete and the last snapshot lets go of it.
#[derive(Debug)]
pub(crate) struct Segment {
    pub record: SegmentRecord,
    pub shape: Arc<TableShape>,
    device: Device,
    file: OnceLock<File>,
    directory: OnceLock<Arc<Directory>>,
    obsolete: AtomicBool,
}

pub(crate) fn file_name(id: SegmentId) -> String {
    format!("segment-{id}.pax")
}

/// The id in a segment file's name.
pub(crate) fn id_in_name(name: &str) -> Option<SegmentId> {
    let digits = name.strip_prefix("segment-")?.strip_suffix(".pax")?;
    digits.parse().ok().map(SegmentId)
}

pub(crate) fn encode_header(id: SegmentId, page_bytes: usize, schema: &[u8]) -> Vec<u8> {
    let mut header = vec![0; (FIXED_HEADER_BYTES + schema.len()).next_multiple_of(BLOCK_BYTES as usize)];
    let mut fixed = Vec::with_capacity(FIXED_HEADER_BYTES);
    fixed.extend(MAGIC);
    fixed.extend(VERSION.to_le_bytes());
    fixed.extend([0; 2]);
    fixed.extend(id.0.to_le_bytes());
    fixed.extend((page_bytes as u32).to_le_bytes());
    fixed.extend((schema.len() as u32).to_le_bytes());
    fixed.resize(FIXED_HEADER_BYTES - 4, 0);
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&fixed), schema);
    fixed.extend(checksum.to_le_bytes());
    for (target, source) in header.iter_mut().zip(fixed.iter().chain(schema)) {
        *target = *source;
    }
    header
}

impl Segment {
    pub fn new(record: SegmentRecord, shape: Arc<TableShape>, device: Device) -> Self {
        let (file, directory, obsolete) = Default::default();
        Self { record, shape, device, file, directory, obsolete }
    }

    pub fn file_name(&self) -> String {
        file_name(self.record.id)
    }

    /// How errors name it.
    pub fn location(&self) -> String {
        self.device.path().join(self.file_name()).display().to_string()
    }

    /// From now on the file lives only as long as snapshots use it.
    pub fn set_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    /// The table-wide number of one of this segment's pages.
    pub fn page_number(&self, page: u64) -> PageNumber {
        PageNumber(self.record.first_page + page)
    }

    pub fn file(&self) -> Result<&File> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = self.device.open_file(&self.file_name(), FileClass::Table, OpenMode::Read)?;
        let length = file.len()?;
        if length < self.record.file_bytes {
            let reason = format!("it is {length} bytes long instead of {}", self.record.file_bytes);
            return Err(StorageError::damaged(self.location(), reason));
        }
        Ok(self.file.get_or_init(|| file))
    }

    /// The directory, read and checked together with the header at first use.
    pub async fn directory(&self, account: Option<&Arc<IoAccount>>) -> Result<Arc<Directory>> {
        if let Some(directory) = self.directory.get() {
            return Ok(Arc::clone(directory));
        }
        let file = self.file()?;
        let record = &self.record;
        let requests = [(0, record.header_bytes), (record.directory_offset, record.directory_bytes)];
        let misplaced = requests.iter().any(|&(offset, bytes)| {
            !(offset | bytes).is_multiple_of(BLOCK_BYTES) || offset.saturating_add(bytes) > record.file_bytes
        });
        if misplaced {
            return Err(StorageError::damaged(self.location(), "the manifest misplaces its directory"));
        }
        let mut buffers = read_all(file, &requests, account).await?.into_iter();
        let header = buffers.next().unwrap_or_else(|| self.device.buffer(0));
        self.check_header(&header)?;
        let page = Page::open(
            buffers.next().map(into_buffer).unwrap_or_default(),
            Arc::clone(&self.shape.layout.directory),
            Verify::Checksums,
        );
        let batch = page.and_then(|page| page.batch(None)).map_err(|error| self.in_directory(&error))?;
        let directory = Directory::new(batch, &self.location(), record.file_bytes)?;
        Ok(Arc::clone(self.directory.get_or_init(|| Arc::new(directory))))
    }

    fn in_directory(&self, error: &PageError) -> StorageError {
        StorageError::damaged(format!("{}, directory", self.location()), error.to_string())
    }

    fn check_header(&self, header: &[u8]) -> Result<()> {
        let damaged = |reason: &str| StorageError::damaged(format!("{}, header", self.location()), reason);
        let (fixed, rest) =
            header.split_first_chunk::<FIXED_HEADER_BYTES>().ok_or_else(|| damaged("it is cut off"))?;
        let u32_at = |at: usize| -> u32 {
            fixed.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
        };
        if fixed.first_chunk::<4>() != Some(MAGIC) {
            return Err(damaged("it is not a Nandina segment file"));
        }
        let version = u32_at(4) & 0xFFFF;
        if version != u32::from(VERSION) {
            let file = self.location();
            return Err(StorageError::Version { file, found: version, supported: VERSION.into() });
        }
        let schema = rest.get(..u32_at(20) as usize).ok_or_else(|| damaged("it is cut off"))?;
        let described = fixed.first_chunk::<60>().ok_or_else(|| damaged("it is cut off"))?;
        if u32_at(60) != crc32c::crc32c_append(crc32c::crc32c(described), schema) {
            return Err(damaged("its checksum does not match"));
        }
        let id = u64::from(u32_at(12)) << 32 | u64::from(u32_at(8));
        if id != self.record.id.0 || u32_at(16) as usize != self.shape.page_bytes {
            return Err(damaged("it belongs to another segment"));
        }
        Ok(())
    }

    /// Reads the given columns of a stripe's page index.
    pub async fn stripe_index(
        &self,
        stripe: &Stripe,
        columns: &[usize],
        account: Option<&Arc<IoAccount>>,
    ) -> Result<StripeIndex> {
        let file = self.file()?;
        let schema = &self.shape.layout.index;
        let damaged = |error: &PageError| {
            let file = format!("{}, index of page {}", self.location(), stripe.first_page);
            StorageError::damaged(file, error.to_string())
        };
        let front = PageMeta::front_bytes(schema.columns()) as u64;
        let first_bytes = if stripe.index_bytes <= SMALL_INDEX_BYTES {
            stripe.index_bytes
        } else {
            front.next_multiple_of(BLOCK_BYTES)
        };
        let first = read_all(file, &[(stripe.index_offset, first_bytes)], account).await?.pop();
        let first = first.map(into_buffer).unwrap_or_default();
        let meta = PageMeta::read(&first, stripe.index_bytes as usize).map_err(|error| damaged(&error))?;
        if meta.columns.len() != schema.columns() || u64::from(meta.rows) != stripe.pages {
            return Err(StorageError::damaged(self.location(), "a page index belongs to another table"));
        }
        let wanted: Vec<_> =
            columns.iter().filter_map(|&column| Some((column, *meta.columns.get(column)?))).collect();
        let needed: Vec<Needed> = wanted
            .iter()
            .map(|(_, mini_page)| Needed {
                offset: stripe.index_offset + mini_page.offset_bytes,
                length: mini_page.length_bytes.into(),
            })
            .collect();
        let (buffers, places) = if first_bytes == stripe.index_bytes {
            let in_first =
                |needed: &Needed| (0, (needed.offset - stripe.index_offset) as usize, needed.length as usize);
            (vec![first], needed.iter().map(in_first).collect::<Vec<_>>())
        } else {
            let sizes = file.device().sizes();
            let (extents, places) = plan(&needed, sizes.gap_bytes as u64, sizes.read_bytes as u64);
            let requests: Vec<_> = extents.iter().map(|extent| (extent.offset, extent.length)).collect();
            let buffers = read_all(file, &requests, account).await?.into_iter().map(into_buffer).collect();
            (buffers, places.iter().map(|place| (place.extent, place.start, place.length)).collect())
        };
        let mut arrays = Vec::with_capacity(wanted.len());
        for ((column, mini_page), (buffer, start, length)) in wanted.into_iter().zip(places) {
            let bytes = buffers.get(buffer).filter(|bytes| start + length <= bytes.len());
            let bytes = bytes.map(|bytes| bytes.slice_with_length(start, length)).unwrap_or_default();
            let field = schema.arrow().field(column);
            let array = decode_mini_page(bytes, field, meta.rows as usize, &mini_page)
                .map_err(|error| damaged(&error))?;
            arrays.push((column, array));
        }
        Ok(StripeIndex::new(arrays))
    }

    /// The error of asking for a column that there is not.
    pub fn no_column(&self, column: usize) -> StorageError {
        StorageError::NoColumn { table: self.shape.name.clone(), column }
    }

    /// An error of one page, with the names of file and page.
    pub fn in_page(&self, page: u64, error: PageError) -> StorageError {
        StorageError::Page { file: self.location(), page, source: error.in_page(page) }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if *self.obsolete.get_mut() {
            self.file.take();
            if let Err(error) = self.device.remove(&self.file_name()) {
                log::warn!("the file of a dropped table stays until the database is opened again: {error}");
            }
        }
    }
}

/// Reads several ranges as one unit; buffers in the order of the requests.
pub(crate) async fn read_all(
    file: &File,
    ranges: &[(u64, u64)],
    account: Option<&Arc<IoAccount>>,
) -> Result<Vec<AlignedBuffer>> {
    let device = file.device();
    let requests = ranges
        .iter()
        .map(|&(offset, bytes)| (file.clone(), Request::read(offset, device.buffer(bytes as usize))))
        .collect();
    let completions = device.submit_many(requests, account).wait_async().await?;
    Ok(completions.into_iter().filter_map(Completion::into_buffer).collect())
}

pub(crate) fn into_buffer(buffer: AlignedBuffer) -> Buffer {
    Buffer::from(buffer.freeze())
}
