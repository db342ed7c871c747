//! A segment file: what one write statement stored. Never changed once the manifest names it.
//!
//! ```text
//!  header (4 KiB multiple)                     0  u32 magic "NSEG"
//!  stripe: pages, each in slots of the         4  u16 format version   6  u16 reserved
//!          table's page size                   8  u64 segment id
//!  page index of the stripe (a PAX page)      16  u32 page size       20  u32 schema length
//!  … more stripes …                           24  u64 database id     32  u8[28] reserved
//!  directory (a PAX page)                     60  u32 crc32c of bytes 0..60 and the schema
//!                                             64  schema: an Arrow IPC schema message
//! ```
//!
//! The manifest says where the directory is, the directory where everything else is. Whatever says where a part is also
//! has its checksum, so that an intact part in the place of another one is noticed:
//!
//! ```text
//!  manifest ──crc──► directory ──crc──► page index ──crc──► mini-pages
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arrow_buffer::Buffer;
use nandina_device::{AlignedBuffer, Completion, Device, File, FileClass, IoAccount, OpenMode, Request};
use nandina_pages::{Page, PageError, PageMeta, PageSchema, Verify, decode_mini_page};

use crate::error::{Result, StorageError};
use crate::ids::{DatabaseId, PageNumber, SegmentId, TableId};
use crate::manifest::SegmentRecord;
use crate::page_index::{Directory, IndexLayout, Stripe, StripeIndex};
use crate::read_cache::SegmentKey;
use crate::read_plan::{Needed, Place, plan};

pub(crate) const BLOCK_BYTES: u64 = 4096;
const MAGIC: &[u8; 4] = b"NSEG";
/// Version 2 added the database's identity and the checksums of page indexes; segments of version 1 are read as ever.
const VERSION: u16 = 2;
const OLDEST_VERSION: u16 = 1;
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
    database: DatabaseId,
    key: SegmentKey,
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

pub(crate) fn encode_header(
    database: DatabaseId,
    id: SegmentId,
    page_bytes: usize,
    schema: &[u8],
) -> Vec<u8> {
    let mut header = Vec::new();
    header.extend(MAGIC);
    header.extend(VERSION.to_le_bytes());
    header.extend([0; 2]);
    header.extend(id.0.to_le_bytes());
    header.extend((page_bytes as u32).to_le_bytes());
    header.extend((schema.len() as u32).to_le_bytes());
    header.extend(database.0.to_le_bytes());
    header.resize(FIXED_HEADER_BYTES - 4, 0);
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&header), schema);
    header.extend(checksum.to_le_bytes());
    header.extend(schema);
    header.resize(header.len().next_multiple_of(BLOCK_BYTES as usize), 0);
    header
}

#[derive(Debug)]
struct Header {
    version: u16,
    segment: SegmentId,
    page_bytes: usize,
    /// `None` in version 1.
    database: Option<DatabaseId>,
}

/// Bytes of header and schema, from the fixed part of a header.
fn described_bytes(fixed: &[u8; FIXED_HEADER_BYTES]) -> usize {
    FIXED_HEADER_BYTES + u32_at(fixed, 20) as usize
}

fn u32_at(fixed: &[u8; FIXED_HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]])
}

/// `location` names the file in errors.
fn decode_header(bytes: &[u8], location: &str) -> Result<Header> {
    let damaged = |reason: &str| StorageError::damaged(format!("{location}, header"), reason);
    let fixed = bytes.first_chunk::<FIXED_HEADER_BYTES>().ok_or_else(|| damaged("it is cut off"))?;
    if fixed.first_chunk::<4>() != Some(MAGIC) {
        return Err(damaged("it is not a Nandina segment file"));
    }
    let version = u32_at(fixed, 4) as u16;
    if !(OLDEST_VERSION..=VERSION).contains(&version) {
        let (file, found) = (location.to_owned(), version.into());
        return Err(StorageError::Version { file, found, supported: VERSION.into() });
    }
    let covered = fixed.first_chunk::<60>().zip(bytes.get(FIXED_HEADER_BYTES..described_bytes(fixed)));
    let (figures, schema) = covered.ok_or_else(|| damaged("it is cut off"))?;
    if u32_at(fixed, 60) != crc32c::crc32c_append(crc32c::crc32c(figures), schema) {
        return Err(damaged("its checksum does not match"));
    }
    let u64_at = |at: usize| u64::from(u32_at(fixed, at + 4)) << 32 | u64::from(u32_at(fixed, at));
    Ok(Header {
        version,
        segment: SegmentId(u64_at(8)),
        page_bytes: u32_at(fixed, 16) as usize,
        database: (version > OLDEST_VERSION).then(|| DatabaseId(u64_at(24))),
    })
}

/// The database that a segment file says it is of; `None` if its header was not written whole, or does not say.
pub(crate) fn database_in_header(device: &Device, name: &str) -> Result<Option<DatabaseId>> {
    let file = device.open_file(name, FileClass::Table, OpenMode::Read)?;
    let whole_blocks = file.len()? / BLOCK_BYTES * BLOCK_BYTES;
    let read = |bytes: u64| file.read_blocking(0, device.buffer(bytes.min(whole_blocks) as usize));
    if whole_blocks == 0 {
        return Ok(None);
    }
    let mut bytes = read(BLOCK_BYTES)?;
    assert!(bytes.len() >= FIXED_HEADER_BYTES, "a read that is complete gives all it was asked for");
    let described = bytes.first_chunk().map_or(0, described_bytes) as u64;
    if bytes.starts_with(MAGIC) && described > BLOCK_BYTES {
        bytes = read(described.next_multiple_of(BLOCK_BYTES))?;
    }
    match decode_header(&bytes, &device.path().join(name).display().to_string()) {
        Ok(header) => Ok(header.database),
        Err(StorageError::Damaged { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Segment {
    pub fn new(record: SegmentRecord, shape: Arc<TableShape>, database: DatabaseId, device: Device) -> Self {
        let (file, directory, obsolete) = Default::default();
        Self { record, shape, database, key: SegmentKey::next(), device, file, directory, obsolete }
    }

    pub fn key(&self) -> SegmentKey {
        self.key
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
        let mut buffers = read_all(file, &requests, account).await?;
        let bytes = into_buffer(buffers.remove(1));
        let version = self.check_header(&buffers[0])?;
        let layout = &self.shape.layout;
        let schema = if version == OLDEST_VERSION { &layout.directory_1 } else { &layout.directory };
        let found = PageMeta::checksum(&bytes);
        let page = Page::open(bytes, Arc::clone(schema), Verify::Checksums);
        let batch = page.and_then(|page| page.batch(None)).map_err(|error| self.in_directory(&error))?;
        if record.directory_checksum.is_some_and(|checksum| checksum != found) {
            let file = format!("{}, directory", self.location());
            return Err(StorageError::damaged(file, "it is another one than the manifest names"));
        }
        let directory = Directory::new(batch, &self.location(), record.file_bytes)?;
        let rows = directory.stripes.iter().fold(0, |rows: u64, stripe| rows.saturating_add(stripe.rows));
        if rows != record.rows {
            let reason = format!("it has {rows} rows, the manifest says {}", record.rows);
            return Err(StorageError::damaged(self.location(), reason));
        }
        Ok(Arc::clone(self.directory.get_or_init(|| Arc::new(directory))))
    }

    fn in_directory(&self, error: &PageError) -> StorageError {
        StorageError::damaged(format!("{}, directory", self.location()), error.to_string())
    }

    /// The format version.
    fn check_header(&self, bytes: &[u8]) -> Result<u16> {
        let header = decode_header(bytes, &self.location())?;
        let foreign = |of: &str| {
            let file = format!("{}, header", self.location());
            StorageError::damaged(file, format!("it belongs to another {of}"))
        };
        if header.database.is_some_and(|database| database != self.database) {
            return Err(foreign("database"));
        }
        let is_of_record = header.database.is_some() == self.record.directory_checksum.is_some();
        if !is_of_record || header.segment != self.record.id || header.page_bytes != self.shape.page_bytes {
            return Err(foreign("segment"));
        }
        Ok(header.version)
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
        let first = read_all(file, &[(stripe.index_offset, first_bytes)], account).await?.remove(0);
        let first = into_buffer(first);
        let meta = PageMeta::read(&first, stripe.index_bytes as usize).map_err(|error| damaged(&error))?;
        if meta.columns.len() != schema.columns() || u64::from(meta.rows) != stripe.pages {
            return Err(StorageError::damaged(self.location(), "a page index belongs to another table"));
        }
        if stripe.index_checksum.is_some_and(|checksum| checksum != PageMeta::checksum(&first)) {
            let file = format!("{}, index of page {}", self.location(), stripe.first_page);
            return Err(StorageError::damaged(file, "it is another one than the directory names"));
        }
        let needed = |&column: &usize| Needed::mini_page(stripe.index_offset, &meta.columns[column]);
        let needed: Vec<Needed> = columns.iter().map(needed).collect();
        let (buffers, places) = if first_bytes == stripe.index_bytes {
            let in_first = |needed: &Needed| {
                let start = (needed.offset - stripe.index_offset) as usize;
                Place { extent: 0, start, length: needed.length as usize }
            };
            (vec![first], needed.iter().map(in_first).collect())
        } else {
            let sizes = file.device().sizes();
            let (extents, places) = plan(&needed, sizes.gap_bytes as u64, sizes.read_bytes as u64);
            let requests: Vec<_> = extents.iter().map(|extent| (extent.offset, extent.length)).collect();
            let buffers = read_all(file, &requests, account).await?;
            (buffers.into_iter().map(into_buffer).collect(), places)
        };
        let mut arrays = Vec::with_capacity(columns.len());
        for (&column, place) in columns.iter().zip(places) {
            let bytes = place.slice(buffers.get(place.extent));
            let (field, mini_page) = (schema.arrow().field(column), &meta.columns[column]);
            let array = decode_mini_page(bytes, field, meta.rows as usize, mini_page)
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
    let buffers: Vec<_> = completions.into_iter().filter_map(Completion::into_buffer).collect();
    assert_eq!(buffers.len(), ranges.len(), "each range is read into a buffer of its own");
    Ok(buffers)
}

pub(crate) fn into_buffer(buffer: AlignedBuffer) -> Buffer {
    Buffer::from(buffer.freeze())
}
