//! The control block: what must be known before the log and any page can be read.
//!
//! ```text
//!   0        8         12           16       24         32     40         44
//!   | magic  | version | page bytes | log id | sequence | redo | checksum |
//! ```
//!
//! There are two, written in turns: when the write of one is torn, the other one holds.

use std::sync::Arc;

use nandina_device::{BLOCK_BYTES, Error as DeviceError, File};

use crate::error::{Error, Result};
use crate::log::Lsn;

const MAGIC: [u8; 8] = *b"NandRows";
const VERSION: u32 = 1;
const CHECKSUM_AT: usize = 40;
const BYTES: usize = 44;
const COPIES: u64 = 2;

/// See the [module documentation](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    pub page_bytes: u32,
    /// Which log belongs to these pages.
    pub log_id: u64,
    /// Counts what was written here.
    pub sequence: u64,
    /// Changes before it are in the page file.
    pub redo: Lsn,
}

/// Whether pages can have so many bytes: edits name bytes of a page by 16 bits.
pub fn is_page_size(bytes: usize) -> bool {
    bytes.is_power_of_two() && (BLOCK_BYTES..=32 << 10).contains(&bytes)
}

pub fn write(file: &File, control: &Control) -> Result<(), DeviceError> {
    let mut block = file.device().buffer(BLOCK_BYTES);
    block.fill(0);
    let fields = MAGIC
        .into_iter()
        .chain(VERSION.to_le_bytes())
        .chain(control.page_bytes.to_le_bytes())
        .chain(control.log_id.to_le_bytes())
        .chain(control.sequence.to_le_bytes())
        .chain(control.redo.0.to_le_bytes());
    block.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
    let checksum = crc32c::crc32c(block.get(..CHECKSUM_AT).unwrap_or_default());
    block.iter_mut().skip(CHECKSUM_AT).zip(checksum.to_le_bytes()).for_each(|(to, from)| *to = from);
    let offset = control.sequence % COPIES * BLOCK_BYTES as u64;
    file.write_blocking(offset, block).and_then(|()| file.sync())
}

/// The later one of the two.
pub fn read(file: &File) -> Result<Control> {
    let unusable =
        |reason: &str| Error::NoPageFile { path: file.path().to_path_buf(), reason: reason.into() };
    let failed = |source| Error::PagesRead { path: file.path().to_path_buf(), source: Arc::new(source) };
    if file.len().map_err(failed)? < COPIES * BLOCK_BYTES as u64 {
        return Err(unusable("it is too short"));
    }
    let blocks =
        file.read_blocking(0, file.device().buffer(COPIES as usize * BLOCK_BYTES)).map_err(failed)?;
    let found = blocks.chunks(BLOCK_BYTES).filter_map(parse);
    match found.max_by_key(|(_, control)| control.sequence) {
        None => Err(unusable("neither of its control blocks is whole; restore the database from a backup")),
        Some((VERSION, control)) if is_page_size(control.page_bytes as usize) => Ok(control),
        Some((version, control)) => Err(unusable(&format!(
            "it has format version {version} and pages of {} bytes; this program knows version {VERSION}",
            control.page_bytes
        ))),
    }
}

fn parse(block: &[u8]) -> Option<(u32, Control)> {
    let bytes: &[u8; BYTES] = block.first_chunk()?;
    let long = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let short = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let is_whole =
        bytes.starts_with(&MAGIC) && crc32c::crc32c(bytes.get(..CHECKSUM_AT)?) == short(CHECKSUM_AT)?;
    let control =
        Control { page_bytes: short(12)?, log_id: long(16)?, sequence: long(24)?, redo: Lsn(long(32)?) };
    is_whole.then_some((short(8)?, control))
}
