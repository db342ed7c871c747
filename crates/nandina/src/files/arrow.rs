//! Checks of files of Arrow's IPC format before they are read.
//!
//! The reader believes what it reads: it asks for as much memory as a damaged length says, and a request that the system
//! refuses ends the process. So all lengths are held against the size of the file, and those of buffers that are compressed
//! against what their bytes can hold.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use arrow::ipc::reader::FileReader;
use arrow::ipc::{Message, RecordBatch, root_as_footer, root_as_message};
use nandina_exec::scan::guard::guarded;

use crate::error::{Error, Result, panic_message};
use crate::files::names::{describe, display};

const MAGIC: &[u8] = b"ARROW1";
/// Begins a message, before its length.
const CONTINUES: [u8; 4] = [0xFF; 4];
/// Bytes of a file before its first message.
const FILE_START: u64 = 8;
/// Bytes of a message before its metadata.
const PREFIX: u64 = 8;
/// Length of the footer, and the magic.
const FILE_END: u64 = 4 + MAGIC.len() as u64;
/// What a byte can be made of: a run of 128 KB in four bytes of zstd. LZ4 has 255.
const MOST_EXPANSION: u64 = 1 << 15;

/// Why a file cannot be read.
type Reason = String;

/// Refuses a file whose lengths cannot be right. A stream has neither magic nor footer, but the same messages.
pub(crate) fn check(path: &Path) -> Result<()> {
    let unreadable = |error: std::io::Error| Error::file(display(path), describe(&error));
    let file = File::open(path).map_err(unreadable)?;
    let bytes = file.metadata().map_err(unreadable)?.len();
    let checked = Lengths { file: &file, bytes }.check();
    checked.map_err(|reason| Error::file(display(path), format!("not a readable Arrow IPC file ({reason})")))
}

struct Lengths<'a> {
    file: &'a File,
    bytes: u64,
}

impl Lengths<'_> {
    fn check(&self) -> std::result::Result<(), Reason> {
        if self.bytes < FILE_START {
            return Err("it is too short to be one".to_owned());
        }
        let start = self.read(0, FILE_START)?;
        if start.starts_with(MAGIC) {
            self.check_blocks()?;
            let file = self.file.try_clone().map_err(|error| error.to_string())?;
            return match guarded(|| FileReader::try_new_buffered(file, None)) {
                Ok(opened) => opened.map(drop).map_err(|error| error.to_string()),
                Err(panic) => Err(panic_message(&*panic).to_owned()),
            };
        }
        self.check_stream()
    }

    /// The record batches and dictionaries that the footer of a file lists.
    fn check_blocks(&self) -> std::result::Result<(), Reason> {
        let footer_end = self.bytes.checked_sub(FILE_END).ok_or("it has no footer")?;
        let end = self.read(footer_end, FILE_END)?;
        let (length, magic) = end.split_at(4);
        if magic != MAGIC {
            return Err("it has no footer".to_owned());
        }
        let length = u64::from(length_of(length));
        let footer =
            self.read(footer_end.checked_sub(length).ok_or("its footer is longer than the file")?, length)?;
        let footer = root_as_footer(&footer).map_err(|error| format!("its footer is damaged: {error}"))?;
        let blocks =
            footer.recordBatches().into_iter().flatten().chain(footer.dictionaries().into_iter().flatten());
        for block in blocks {
            let (offset, metadata, body) = (block.offset(), block.metaDataLength(), block.bodyLength());
            let [Ok(offset), Ok(body)] = [offset, body].map(u64::try_from) else {
                return Err("a block lies before its beginning".to_owned());
            };
            let metadata = u64::try_from(metadata).map_err(|_| "a block has a negative length")?;
            let end = offset.checked_add(metadata).and_then(|end| end.checked_add(body));
            if metadata < PREFIX || end.is_none_or(|end| end > self.bytes) {
                return Err("a block ends behind its end".to_owned());
            }
            let message = self.read(offset, metadata)?;
            let prefix = if message.starts_with(&CONTINUES) { PREFIX } else { PREFIX / 2 } as usize;
            self.check_message(message.get(prefix..).unwrap_or_default(), offset + metadata)?;
        }
        Ok(())
    }

    /// All messages of a stream, one behind the other.
    fn check_stream(&self) -> std::result::Result<(), Reason> {
        let mut offset = 0;
        while offset + PREFIX <= self.bytes {
            let prefix = self.read(offset, PREFIX)?;
            // Streams of old versions begin with the length.
            let (length, prefix_bytes) = match prefix.strip_prefix(&CONTINUES) {
                Some(length) => (length_of(length), PREFIX),
                None => (length_of(&prefix), PREFIX / 2),
            };
            if length == 0 {
                return Ok(());
            }
            let body = offset + prefix_bytes + u64::from(length);
            if body > self.bytes {
                return Err(match offset {
                    0 => "it begins neither with ARROW1 nor with a message that it could hold".to_owned(),
                    _ => "a message ends behind its end".to_owned(),
                });
            }
            let message = self.read(offset + prefix_bytes, u64::from(length))?;
            let body_bytes = self.check_message(&message, body)?;
            offset = body
                .checked_add(body_bytes)
                .filter(|&end| end <= self.bytes)
                .ok_or("a message ends behind its end")?;
        }
        Ok(())
    }

    /// Buffers of a message whose body begins at `body`. Returns the body's length.
    fn check_message(&self, metadata: &[u8], body: u64) -> std::result::Result<u64, Reason> {
        let message: Message<'_> =
            root_as_message(metadata).map_err(|error| format!("a message is damaged: {error}"))?;
        let body_bytes =
            u64::try_from(message.bodyLength()).map_err(|_| "a message has a negative length")?;
        let batch = message.header_as_record_batch();
        let batch = batch.or_else(|| message.header_as_dictionary_batch().and_then(|batch| batch.data()));
        if let Some(batch) = batch {
            self.check_buffers(&batch, body)?;
        }
        Ok(body_bytes)
    }

    fn check_buffers(&self, batch: &RecordBatch<'_>, body: u64) -> std::result::Result<(), Reason> {
        let is_compressed = batch.compression().is_some();
        for buffer in batch.buffers().into_iter().flatten() {
            let [Ok(offset), Ok(length)] = [buffer.offset(), buffer.length()].map(u64::try_from) else {
                return Err("a buffer has a negative length".to_owned());
            };
            let begin = body.checked_add(offset);
            let end = begin.and_then(|begin| begin.checked_add(length));
            let (Some(begin), true) = (begin, end.is_some_and(|end| end <= self.bytes)) else {
                return Err("a buffer ends behind its end".to_owned());
            };
            if !is_compressed || length < 8 {
                continue;
            }
            let claimed = self.read(begin, 8)?;
            let claimed = i64::from_le_bytes(claimed.try_into().map_err(|_| "a buffer is cut off")?);
            // -1 stands for bytes that are not compressed.
            let is_possible = claimed == -1
                || u64::try_from(claimed)
                    .is_ok_and(|claimed| claimed <= length.saturating_mul(MOST_EXPANSION));
            if !is_possible {
                return Err(format!("a buffer of {length} bytes claims to hold {claimed}"));
            }
        }
        Ok(())
    }

    fn read(&self, offset: u64, length: u64) -> std::result::Result<Vec<u8>, Reason> {
        if offset.checked_add(length).is_none_or(|end| end > self.bytes) {
            return Err("it is cut off".to_owned());
        }
        let mut bytes = vec![0; length as usize];
        self.file.read_exact_at(&mut bytes, offset).map_err(|error| describe(&error))?;
        Ok(bytes)
    }
}

/// The first four bytes as a length.
fn length_of(bytes: &[u8]) -> u32 {
    let Some(length) = bytes.first_chunk() else { unreachable!("a length is read as four bytes or more") };
    u32::from_le_bytes(*length)
}
