//! The files of a log: each has a part of it, all of the same length.
//!
//! ```text
//!   …0003.log  …0004.log  …0005.log  …0006.log
//!   │ no longer needed    │ records  │ made ready ahead
//!   └─ renamed to …0007.log
//! ```
//!
//! File n has the bytes from n times its length on. Files are filled with zeros when they are new, and used again under
//! another name later, so that writing neither allocates space nor changes metadata: making a commit last is one transfer.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use nandina_device::{
    AlignedBuffer, Batch, Device, Error as DeviceError, File, FileClass, OpenMode, Request,
};

use super::block::{self, BLOCK_BYTES};
use crate::error::{Error, Result};
use crate::page_file::backup_error;

const SUFFIX: &str = ".log";
/// Bytes of zeros, or of a copy, that are written at once.
const PIECE_BYTES: u64 = 1 << 20;
/// Files that are kept to be used again, beside the one being written.
const SPARE_FILES: u64 = 2;

/// The files of a log, those that may be read and those made ready.
#[derive(Debug, Clone)]
pub struct LogFiles {
    device: Device,
    file_bytes: u64,
    files: BTreeMap<u64, File>,
    /// Names have changed that a loss of power would change back.
    has_new_names: bool,
}

impl LogFiles {
    /// Opens what is there.
    pub fn open(device: Device, file_bytes: u64) -> Result<Self> {
        // Whether those who made or renamed what is there came to sync the folder is not known.
        let mut log = Self { device, file_bytes, files: BTreeMap::new(), has_new_names: true };
        log.open_all(OpenMode::ReadWrite)?;
        Ok(log)
    }

    /// Opens what is there to read it only. Files have the length of the longest one; others were not made ready to their end.
    pub fn open_to_read(device: Device) -> Result<Self> {
        let mut log = Self { device, file_bytes: 1, files: BTreeMap::new(), has_new_names: false };
        log.open_all(OpenMode::Read)?;
        let mut lengths = BTreeMap::new();
        for (number, file) in &log.files {
            lengths.insert(*number, file.len().map_err(|source| log.read_error(source))?);
        }
        log.file_bytes = lengths.values().copied().filter(|bytes| is_file_size(*bytes)).max().unwrap_or(1);
        log.files.retain(|number, _| lengths.get(number) == Some(&log.file_bytes));
        Ok(log)
    }

    fn open_all(&mut self, mode: OpenMode) -> Result<()> {
        let names = self.device.list().map_err(|source| self.read_error(source))?;
        for number in names.iter().filter_map(|name| number_of(name)) {
            let file = self.device.open_file(&name_of(number), FileClass::Log, mode);
            self.files.insert(number, file.map_err(|source| self.read_error(source))?);
        }
        Ok(())
    }

    /// The file that a byte of the log is in, where in it, and how many bytes there are from there on.
    pub fn place(&self, lsn: u64) -> Option<(&File, u64, u64)> {
        let file = self.files.get(&(lsn / self.file_bytes))?;
        let offset = lsn % self.file_bytes;
        Some((file, offset, self.file_bytes - offset))
    }

    /// The first byte that there is a file for.
    pub fn begin(&self) -> u64 {
        self.files.first_key_value().map_or(0, |(number, _)| number * self.file_bytes)
    }

    /// Behind the last byte that there is a file for.
    pub fn end(&self) -> u64 {
        self.files.last_key_value().map_or(0, |(number, _)| (number + 1) * self.file_bytes)
    }

    /// Begins to read bytes of the log, all in one file.
    pub fn read(&self, lsn: u64, bytes: usize) -> Option<Batch> {
        let (file, offset, _) = self.place(lsn)?;
        let buffer = self.device.buffer(bytes);
        Some(file.submit(vec![Request::read(offset, buffer)]))
    }

    /// Copies the files that have what is between two places. Behind it are zeros: of groups that are being written a later one could
    /// come along without the one before it.
    pub fn copy(&self, from: u64, end: u64, to: &Device) -> Result<()> {
        let failed = |source| backup_error(to, source);
        for (number, file) in self.files.range(from / self.file_bytes..=end / self.file_bytes) {
            let copy = to.create(&name_of(*number), FileClass::Log).map_err(failed)?;
            for offset in (0..self.file_bytes).step_by(PIECE_BYTES as usize) {
                let bytes = PIECE_BYTES.min(self.file_bytes - offset) as usize;
                let piece = file.read_blocking(offset, self.device.buffer(bytes));
                let mut piece = piece.map_err(|source| self.read_error(source))?;
                let known = end.saturating_sub(number * self.file_bytes + offset) as usize;
                piece.iter_mut().skip(known).for_each(|byte| *byte = 0);
                copy.write_blocking(offset, piece).map_err(failed)?;
            }
            copy.sync().map_err(failed)?;
        }
        to.sync_directory().map_err(failed)
    }

    /// Removes what there is of a copy that has not been finished.
    pub fn discard_copy(to: &Device) -> Result<(), DeviceError> {
        let names = to.list()?;
        names.iter().filter(|name| number_of(name).is_some()).try_for_each(|name| to.remove(name))
    }

    /// Whether a directory has files of a log.
    pub fn is_in(device: &Device) -> Result<bool, DeviceError> {
        Ok(device.list()?.iter().any(|name| number_of(name).is_some()))
    }

    /// Where blocks are to be written, for which files have been made ready.
    pub fn writes(&self, lsn: u64, blocks: AlignedBuffer) -> Vec<(File, u64, Bytes)> {
        let blocks: Bytes = blocks.freeze();
        let mut writes = Vec::new();
        let mut done = 0;
        while done < blocks.len() {
            let Some((file, offset, room)) = self.place(lsn + done as u64) else {
                unreachable!("files are made before records are taken for them")
            };
            let end = blocks.len().min(done + room as usize);
            writes.push((file.clone(), offset, blocks.slice(done..end)));
            done = end;
        }
        writes
    }

    /// Makes files ready for all bytes up to `end`.
    pub fn make_ready(&mut self, from: u64, end: u64) -> Result<()> {
        let first = self.files.last_key_value().map_or(from / self.file_bytes, |(number, _)| number + 1);
        for number in first..end.div_ceil(self.file_bytes) {
            self.has_new_names = true;
            let made = self.create(number);
            if made.is_err() {
                // Half a file is in the way.
                let _ = self.device.remove(&name_of(number));
            }
            let file = made.map_err(|source| self.full_error(source))?;
            self.files.insert(number, file);
        }
        self.sync_names()
    }

    /// No record goes into a file before its name is durable.
    fn sync_names(&mut self) -> Result<()> {
        if self.has_new_names {
            self.device.sync_directory().map_err(|source| self.full_error(source))?;
            self.has_new_names = false;
        }
        Ok(())
    }

    /// Makes what has been read between two places durable: a process that ended may not have come to that.
    pub fn sync(&self, from: u64, end: u64) -> Result<()> {
        let numbers = from / self.file_bytes..end.div_ceil(self.file_bytes).max(from / self.file_bytes);
        for (_, file) in self.files.range(numbers) {
            file.sync().map_err(|source| self.read_error(source))?;
        }
        Ok(())
    }

    fn create(&self, number: u64) -> Result<File, DeviceError> {
        let file = self.device.create(&name_of(number), FileClass::Log)?;
        file.allocate(0, self.file_bytes)?;
        for offset in (0..self.file_bytes).step_by(PIECE_BYTES as usize) {
            let mut zeros = self.device.buffer(PIECE_BYTES.min(self.file_bytes - offset) as usize);
            zeros.fill(0);
            file.write_blocking(offset, zeros)?;
        }
        file.sync()?;
        Ok(file)
    }

    /// Nothing before `lsn` is read any more: files before it are made ready to be used again, or removed.
    pub fn release_before(&mut self, lsn: u64, end: u64) -> Result<()> {
        let needed = lsn / self.file_bytes;
        while let Some(entry) = self.files.first_entry().filter(|entry| *entry.key() < needed) {
            let (old, file) = entry.remove_entry();
            drop(file);
            self.has_new_names = true;
            let spare = self.end().saturating_sub(end) / self.file_bytes;
            let renamed =
                if spare < SPARE_FILES { self.reuse(old, needed) } else { self.device.remove(&name_of(old)) };
            renamed.map_err(|source| self.full_error(source))?;
        }
        self.sync_names()
    }

    /// A log always has the file that it is read from: `needed`, if there is none behind the old one.
    fn reuse(&mut self, old: u64, needed: u64) -> Result<(), DeviceError> {
        let number = self.files.last_key_value().map_or(needed, |(number, _)| number + 1);
        self.device.rename(&name_of(old), &name_of(number))?;
        let file = self.device.open_file(&name_of(number), FileClass::Log, OpenMode::ReadWrite)?;
        self.files.insert(number, file);
        Ok(())
    }

    /// Removes what a crash left behind: files from before `start`, and ones that were not made ready to their end, or
    /// before those in front of them were.
    pub fn tidy(&mut self, start: u64, log_id: u64) -> Result<()> {
        let mut doomed = Vec::new();
        let mut next = start / self.file_bytes;
        for (&number, file) in &self.files {
            let is_whole = file.len().map_err(|source| self.read_error(source))? == self.file_bytes;
            if number == next && is_whole {
                next += 1;
            } else {
                if !is_whole && self.is_used(file, log_id)? {
                    let path = file.path().to_path_buf();
                    let reason = "it is not as long as the log's files are";
                    return Err(Error::LogDamaged { path, offset: 0, reason });
                }
                doomed.push(number);
            }
        }
        for number in &doomed {
            self.files.remove(number);
            self.device.remove(&name_of(*number)).map_err(|source| self.full_error(source))?;
        }
        self.has_new_names |= !doomed.is_empty();
        self.sync_names()
    }

    /// Whether a file begins with a block of this log.
    fn is_used(&self, file: &File, log_id: u64) -> Result<bool> {
        if file.len().map_err(|source| self.read_error(source))? < BLOCK_BYTES as u64 {
            return Ok(false);
        }
        let buffer = file.read_blocking(0, self.device.buffer(BLOCK_BYTES));
        let buffer = buffer.map_err(|source| self.read_error(source))?;
        Ok(block::read(&buffer).is_some_and(|block| block.header.log_id == log_id))
    }

    pub fn read_error(&self, source: DeviceError) -> Error {
        Error::LogRead { path: self.device.path().to_path_buf(), source: Arc::new(source) }
    }

    fn full_error(&self, source: DeviceError) -> Error {
        Error::LogFull { path: self.device.path().to_path_buf(), source: Arc::new(source) }
    }

    pub fn failed_error(&self, source: DeviceError) -> Error {
        Error::LogFailed { path: self.device.path().to_path_buf(), source: Arc::new(source) }
    }

    pub fn damaged(&self, lsn: u64, reason: &'static str) -> Error {
        let path = self.place(lsn).map_or_else(|| self.device.path(), |(file, ..)| file.path()).to_path_buf();
        Error::LogDamaged { path, offset: lsn % self.file_bytes, reason }
    }
}

/// Whether files of so many bytes can be those of a log.
pub fn is_file_size(bytes: u64) -> bool {
    bytes >= 16 * BLOCK_BYTES as u64 && bytes.is_multiple_of(BLOCK_BYTES as u64)
}

fn name_of(number: u64) -> String {
    format!("{number:016x}{SUFFIX}")
}

fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(SUFFIX)?;
    u64::from_str_radix(digits, 16).ok().filter(|number| name_of(*number) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_form() {
        assert_eq!(number_of(&name_of(0x1f)), Some(0x1f));
        assert_eq!(
            (number_of("1f.log"), number_of("000000000000001F.log"), number_of("x.log")),
            (None, None, None)
        );
    }
}
