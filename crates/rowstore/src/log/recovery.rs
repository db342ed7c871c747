//! Reading a log after it was closed, or after a crash.
//!
//! The log ends with its last whole group: one of which blocks are missing was not on the device when the power failed,
//! and nobody was told that it was. A block behind the end may have reached the device before those in front of it; but
//! if one says that the device had more than there is, something was lost, and reading fails.

use bytes::Bytes;
use nandina_device::{Batch, Completion};

use super::block::{self, BLOCK_BYTES, Block, Header, PAYLOAD_BYTES, address, payload_byte};
use super::files::LogFiles;
use super::{LENGTH_BYTES, Lsn};
use crate::error::Result;

/// Bytes that are read at once.
const READ_BYTES: u64 = 1 << 20;

/// Where a log goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEnd {
    pub lsn: u64,
    /// The checksum of the last block.
    pub chain: u32,
}

/// Hands over all records from `start` on. `start` is the address of a record, or [`Log::next`](super::Log::next) of another time.
pub fn read_all(
    files: &LogFiles,
    log_id: u64,
    start: Lsn,
    mut take: impl FnMut(Lsn, &[u8]) -> Result<()>,
) -> Result<LogEnd> {
    let mut blocks = Blocks::new(files);
    let first_lsn = start.0 - start.0 % BLOCK_BYTES as u64;
    let begins_group = start.0 == first_lsn;
    let before = blocks.before(first_lsn, log_id)?;
    let mut end = LogEnd { lsn: first_lsn, chain: before.unwrap_or(0) };
    // Of the group whose blocks are being read.
    let mut group = Group { is_whole: begins_group, ..Group::new(first_lsn, payload_byte(start.0)) };
    let mut at = end;
    // The first block that is read may come behind one that has been released.
    let mut chain = before;
    while let Some(block) = blocks.whole(at.lsn)? {
        let Block { header, payload, checksum } = block;
        let is_next = header.log_id == log_id
            && header.lsn == at.lsn
            && chain.is_none_or(|chain| header.chain == chain)
            && group.takes(&header);
        if !is_next {
            break;
        }
        chain = Some(checksum);
        group.left = Some(header.left);
        group.bytes.extend_from_slice(payload);
        at = LogEnd { lsn: at.lsn + BLOCK_BYTES as u64, chain: checksum };
        if header.left == 0 {
            group.hand_over(files, &mut take)?;
            group = Group::new(at.lsn, 0);
            end = at;
        }
    }
    if end.lsn == first_lsn && start.0 != first_lsn {
        return Err(files.damaged(start.0, "the record that changes begin with is not there"));
    }
    let mut behind = end.lsn.max(files.begin());
    while behind < files.end() {
        let lost = blocks.whole(behind)?.is_some_and(|block| {
            block.header.log_id == log_id && block.header.lsn == behind && block.header.durable > end.lsn
        });
        if lost {
            return Err(files.damaged(end.lsn, "records were here, and others come behind them"));
        }
        behind += BLOCK_BYTES as u64;
    }
    Ok(end)
}

/// Records that were written together.
struct Group {
    base: u64,
    bytes: Vec<u8>,
    /// Blocks that are to follow those that are there.
    left: Option<u32>,
    /// Reading did not begin in the middle of it.
    is_whole: bool,
    /// Bytes before the first record that is wanted.
    skipped: usize,
}

impl Group {
    fn new(base: u64, skipped: usize) -> Self {
        Self { base, bytes: Vec::new(), left: None, is_whole: true, skipped }
    }

    /// Whether a block is the next one of this group. All before a group is durable when it is written: so its blocks tell
    /// where it begins, if reading did not begin in the middle of it.
    fn takes(&self, header: &Header) -> bool {
        let is_next = self.left.is_none_or(|left| left.checked_sub(1) == Some(header.left));
        let is_of_group = !self.is_whole || header.durable == self.base;
        is_next && is_of_group
    }

    fn hand_over(&self, files: &LogFiles, take: &mut impl FnMut(Lsn, &[u8]) -> Result<()>) -> Result<()> {
        let mut at = self.skipped;
        while at < self.bytes.len() {
            let lsn = address(self.base, at);
            let rest = self.bytes.get(at..).unwrap_or_default();
            let record = rest
                .split_first_chunk::<LENGTH_BYTES>()
                .and_then(|(length, rest)| rest.get(..u32::from_le_bytes(*length) as usize));
            let record =
                record.ok_or_else(|| files.damaged(lsn, "a record is longer than what was written"))?;
            take(Lsn(lsn), record)?;
            at += LENGTH_BYTES + record.len();
        }
        Ok(())
    }
}

/// The blocks of a log, one after the other; what follows is being read meanwhile.
struct Blocks<'a> {
    files: &'a LogFiles,
    first: u64,
    bytes: Bytes,
    ahead: Option<(u64, Batch)>,
}

impl<'a> Blocks<'a> {
    fn new(files: &'a LogFiles) -> Self {
        Self { files, first: 0, bytes: Bytes::new(), ahead: None }
    }

    /// The checksum of the block in front of `lsn`, if it is still there.
    fn before(&mut self, lsn: u64, log_id: u64) -> Result<Option<u32>> {
        let Some(before) = lsn.checked_sub(BLOCK_BYTES as u64) else { return Ok(None) };
        let block = self.whole(before)?;
        let block = block.filter(|block| block.header.log_id == log_id && block.header.lsn == before);
        Ok(block.map(|block| block.checksum))
    }

    /// The block at `lsn`; `None` if there is none, or not all of it has been written.
    fn whole(&mut self, lsn: u64) -> Result<Option<Block<'_>>> {
        let has = |first: u64, bytes: usize| (first..first + bytes as u64).contains(&lsn);
        if !has(self.first, self.bytes.len()) {
            let batch = match self.ahead.take().filter(|(first, _)| *first == lsn) {
                Some((_, batch)) => Some(batch),
                None => self.read(lsn)?,
            };
            let Some(batch) = batch else { return Ok(None) };
            let completions = batch.wait().map_err(|source| self.files.read_error(source))?;
            let buffer = completions.into_iter().next().and_then(Completion::into_buffer);
            let Some(buffer) = buffer else { unreachable!("a read ends with its buffer") };
            (self.first, self.bytes) = (lsn, buffer.freeze());
            let next = lsn + self.bytes.len() as u64;
            self.ahead = self.read(next)?.map(|batch| (next, batch));
        }
        let at = (lsn - self.first) as usize;
        Ok(self.bytes.get(at..at + BLOCK_BYTES).and_then(block::read))
    }

    /// Begins to read from `lsn` on, within its file. Of a file that was not made ready to its end, nothing is read.
    fn read(&self, lsn: u64) -> Result<Option<Batch>> {
        let Some((file, offset, room)) = self.files.place(lsn) else { return Ok(None) };
        let file_bytes = file.len().map_err(|source| self.files.read_error(source))?;
        let is_whole = file_bytes == offset + room;
        Ok(is_whole.then(|| self.files.read(lsn, room.min(READ_BYTES) as usize)).flatten())
    }
}

/// Blocks that a group of so many bytes of records has.
pub fn blocks_of(bytes: usize) -> usize {
    bytes.div_ceil(PAYLOAD_BYTES)
}
