//! The page header and the column directory, byte by byte. All integers are little endian.
//!
//! ```text
//! header (64 bytes)                          directory entry (20 bytes, one per column)
//!  0  u32 magic "NPAX"                        0  u32 position of the mini-page, in units of 64 bytes
//!  4  u16 format version                      4  u32 length in bytes, without padding
//!  6  u16 reserved (0)                        8  u32 null count
//!  8  u64 page number                        12  u32 crc32c of the mini-page
//! 16  u64 LSN (0 until there is a log)       16  u8  encoding
//! 24  u32 rows                               17  u8[3] reserved (0)
//! 28  u32 columns
//! 32  u64 page size in bytes
//! 40  u64 used bytes
//! 48  u8[12] reserved (0)
//! 60  u32 crc32c of bytes 0..60 and the directory
//! ```

use crate::error::{PageError, Result};

/// "NPAX", read as a little-endian integer.
pub const MAGIC: u32 = u32::from_le_bytes(*b"NPAX");
/// Version 2 added the encodings from `FrameOfReference` on; pages of version 1 are read as ever.
pub const FORMAT_VERSION: u16 = 2;
const OLDEST_FORMAT_VERSION: u16 = 1;
pub const HEADER_BYTES: usize = 64;
/// Start of every mini-page; Arrow's recommended alignment, a cache line.
pub const MINI_PAGE_ALIGNMENT: usize = 64;
pub(crate) const DIRECTORY_ENTRY_BYTES: usize = 20;

/// Which page this is. The LSN is reserved for a write-ahead log and 0 until there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageIdentity {
    pub page_number: u64,
    pub lsn: u64,
}

impl PageIdentity {
    pub fn new(page_number: u64) -> Self {
        Self { page_number, lsn: 0 }
    }
}

/// How the bytes of a mini-page are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Encoding {
    /// No bytes: every row is null.
    Null = 0,
    /// One bit per row, then validity.
    Bits = 1,
    /// Values of equal width, then validity.
    Fixed = 2,
    /// `rows + 1` offsets of 32 bits, validity, value bytes.
    Offsets32 = 3,
    /// `rows + 1` offsets of 64 bits, validity, value bytes.
    Offsets64 = 4,
    /// A tree of mini-pages: nested, dictionary, run-end and union columns.
    Nested = 5,
    /// Least value, then distances from it in as few bits as they need, then validity.
    FrameOfReference = 6,
    /// Distinct values once, and a code per row.
    Dictionary = 7,
    /// Lengths, validity, and value bytes that may be compressed.
    Compressed = 8,
}

impl Encoding {
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Null,
            1 => Self::Bits,
            2 => Self::Fixed,
            3 => Self::Offsets32,
            4 => Self::Offsets64,
            5 => Self::Nested,
            6 => Self::FrameOfReference,
            7 => Self::Dictionary,
            8 => Self::Compressed,
            _ => return None,
        })
    }

    /// Whether arrays point into the mini-page, or are decoded out of it.
    pub fn is_arrow(self) -> bool {
        !matches!(self, Self::FrameOfReference | Self::Dictionary | Self::Compressed)
    }
}

/// Where a mini-page stands in its page, and how to check it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MiniPageMeta {
    /// From the start of the page.
    pub offset_bytes: u64,
    pub length_bytes: u32,
    pub null_count: u32,
    pub encoding: Encoding,
    pub checksum: u32,
}

impl MiniPageMeta {
    /// Position in the page.
    pub fn range(&self) -> std::ops::Range<usize> {
        let start = self.offset_bytes as usize;
        start..start + self.length_bytes as usize
    }
}

/// What a page index keeps of a page, so that a scan need not read the page's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageMeta {
    pub identity: PageIdentity,
    pub rows: u32,
    /// Header, directory and mini-pages; what follows is zeros.
    pub used_bytes: usize,
    pub columns: Vec<MiniPageMeta>,
}

pub(crate) fn align_up(bytes: usize, alignment: usize) -> usize {
    bytes.next_multiple_of(alignment)
}

/// Header and directory.
pub(crate) fn front_bytes(columns: usize) -> usize {
    HEADER_BYTES + columns * DIRECTORY_ENTRY_BYTES
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk::<N>()).copied().unwrap_or([0; N])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

/// Writes header and directory into the start of `page`, which must be long enough ([`front_bytes`]).
pub(crate) fn write_front(page: &mut [u8], meta: &PageMeta) {
    let page_bytes = page.len() as u64;
    let front = front_bytes(meta.columns.len());
    assert!(page.len() >= front, "page buffer is shorter than its header");
    page[..front].fill(0);
    put(page, 0, &MAGIC.to_le_bytes());
    put(page, 4, &FORMAT_VERSION.to_le_bytes());
    put(page, 8, &meta.identity.page_number.to_le_bytes());
    put(page, 16, &meta.identity.lsn.to_le_bytes());
    put(page, 24, &meta.rows.to_le_bytes());
    put(page, 28, &(meta.columns.len() as u32).to_le_bytes());
    put(page, 32, &page_bytes.to_le_bytes());
    put(page, 40, &(meta.used_bytes as u64).to_le_bytes());
    for (column, mini_page) in meta.columns.iter().enumerate() {
        let at = HEADER_BYTES + column * DIRECTORY_ENTRY_BYTES;
        let units = mini_page.offset_bytes / MINI_PAGE_ALIGNMENT as u64;
        put(page, at, &(units as u32).to_le_bytes());
        put(page, at + 4, &mini_page.length_bytes.to_le_bytes());
        put(page, at + 8, &mini_page.null_count.to_le_bytes());
        put(page, at + 12, &mini_page.checksum.to_le_bytes());
        put(page, at + 16, &[mini_page.encoding as u8]);
    }
    let checksum = front_checksum(page, front);
    put(page, 60, &checksum.to_le_bytes());
}

fn front_checksum(page: &[u8], front: usize) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&page[..60]), &page[HEADER_BYTES..front])
}

impl PageMeta {
    /// The checksum in a page's header. It covers the column directory with the checksums of all mini-pages, and so
    /// identifies the page's contents: a parent that stores it notices any other page in its place.
    pub fn checksum(front: &[u8]) -> u32 {
        u32_at(front, 60)
    }

    /// Bytes of header and directory of a page with so many columns.
    pub fn front_bytes(columns: usize) -> usize {
        front_bytes(columns)
    }

    /// Reads header and directory, with their checksum, from the start of a page of `page_bytes` bytes, of which
    /// only [`front_bytes`](Self::front_bytes) need be there.
    pub fn read(front: &[u8], page_bytes: usize) -> Result<Self> {
        read_front(front, page_bytes, true)
    }
}

/// Reads and checks header and directory from the start of `page`. Positions are checked against `page_bytes`.
pub(crate) fn read_front(page: &[u8], page_bytes: usize, verify_checksum: bool) -> Result<PageMeta> {
    if page.len() < HEADER_BYTES {
        return Err(PageError::Truncated {
            part: "header",
            found_bytes: page.len(),
            needed_bytes: HEADER_BYTES,
        });
    }
    let magic = u32_at(page, 0);
    if magic != MAGIC {
        return Err(PageError::Magic { found: magic, expected: MAGIC });
    }
    let page_number = u64_at(page, 8);
    let version = u16::from_le_bytes(array_at(page, 4));
    if !(OLDEST_FORMAT_VERSION..=FORMAT_VERSION).contains(&version) {
        return Err(PageError::Version { page_number, found: version, supported: FORMAT_VERSION });
    }
    let columns = u32_at(page, 28) as usize;
    let front = front_bytes(columns);
    if page.len() < front {
        return Err(PageError::Truncated {
            part: "column directory",
            found_bytes: page.len(),
            needed_bytes: front,
        });
    }
    if verify_checksum {
        let (found, computed) = (u32_at(page, 60), front_checksum(page, front));
        if found != computed {
            return Err(PageError::HeaderChecksum { page_number, found, computed });
        }
    }
    let used_bytes = u64_at(page, 40) as usize;
    if page_bytes < used_bytes {
        return Err(PageError::Truncated {
            part: "mini-pages",
            found_bytes: page_bytes,
            needed_bytes: used_bytes,
        });
    }
    let mut least_offset = front as u64;
    let directory = (0..columns)
        .map(|column| {
            let at = HEADER_BYTES + column * DIRECTORY_ENTRY_BYTES;
            let malformed = |reason: String| PageError::Malformed {
                page_number: Some(page_number),
                column: format!("#{column}"),
                reason,
            };
            let [encoding] = array_at(page, at + 16);
            let encoding = Encoding::from_byte(encoding)
                .ok_or_else(|| malformed(format!("unknown encoding {encoding}")))?;
            let mini_page = MiniPageMeta {
                offset_bytes: u64::from(u32_at(page, at)) * MINI_PAGE_ALIGNMENT as u64,
                length_bytes: u32_at(page, at + 4),
                null_count: u32_at(page, at + 8),
                checksum: u32_at(page, at + 12),
                encoding,
            };
            let end = mini_page.offset_bytes + u64::from(mini_page.length_bytes);
            if mini_page.offset_bytes < least_offset || end > page_bytes as u64 {
                return Err(malformed(format!(
                    "mini-page at {}..{end} overlaps the one before, or ends behind the page's {page_bytes} bytes",
                    mini_page.offset_bytes
                )));
            }
            least_offset = end;
            Ok(mini_page)
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(PageMeta {
        identity: PageIdentity { page_number, lsn: u64_at(page, 16) },
        rows: u32_at(page, 24),
        used_bytes,
        columns: directory,
    })
}
