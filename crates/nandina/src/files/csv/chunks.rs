//! CSV text in chunks of whole records.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::physical_plan::metrics::Count;
use memchr::memchr_iter;

use super::encoding::Encoding;
use super::records::{Found, RecordEnds, Syntax};
use crate::byte_size;
use crate::error::{Error, Result};

/// Some whole records of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chunk {
    pub text: Vec<u8>,
    /// How many there are.
    pub records: usize,
    /// The line of the file that the text begins in, counted from 1.
    pub first_line: u64,
}

/// How much is read at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChunkSize {
    /// A chunk is larger only if a record is.
    pub usual_bytes: usize,
    /// The longest record.
    pub most_bytes: usize,
    /// Lines in front of the first record, which are left out.
    pub skipped_lines: usize,
    pub encoding: Encoding,
}

/// Cuts a file into chunks.
pub(super) struct Chunks {
    path: String,
    input: Box<dyn Read + Send>,
    size: ChunkSize,
    ends: RecordEnds,
    /// What has been read behind the last chunk: the beginning of a record.
    rest: Vec<u8>,
    /// The line that `rest` begins in.
    line: u64,
}

/// Counts the bytes of a file that are read.
struct Counted {
    file: File,
    bytes: Count,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl Chunks {
    /// Opens a file. `bytes_scanned` counts the bytes read, as stored in the file.
    pub fn open(
        path: &Path,
        compression: FileCompressionType,
        syntax: Syntax,
        size: ChunkSize,
        bytes_scanned: Count,
    ) -> Result<Self> {
        let shown = path.display().to_string();
        if syntax.comment.is_some() && syntax.terminator.is_some_and(|terminator| terminator != b'\n') {
            // The parser ends a comment with the line, which it does not know then.
            return Err(Error::unsupported("CSV files have comments or a terminator of their own, not both"));
        }
        let file = File::open(path).map_err(|error| Error::file(&shown, error.to_string()))?;
        let input = compression.convert_read(Counted { file, bytes: bytes_scanned })?;
        Self::of(shown, size.encoding.decoded(input), syntax, size)
    }

    fn of(path: String, mut input: Box<dyn Read + Send>, syntax: Syntax, size: ChunkSize) -> Result<Self> {
        let mut start = Vec::new();
        let read = input.by_ref().take(BYTE_ORDER_MARK.len() as u64).read_to_end(&mut start);
        read.map_err(|error| Error::file(&path, error.to_string()))?;
        if start != BYTE_ORDER_MARK {
            input = Box::new(Cursor::new(start).chain(input));
        }
        let ends = RecordEnds::new(syntax);
        let mut chunks = Chunks { path, input, size, ends, rest: Vec::new(), line: 1 };
        chunks.skip_lines(size.skipped_lines)?;
        Ok(chunks)
    }

    /// Leaves lines out, whatever is in them.
    fn skip_lines(&mut self, mut lines: usize) -> Result<()> {
        const PIECE_BYTES: u64 = 64 << 10;
        let mut piece = Vec::new();
        while lines > 0 {
            piece.clear();
            let read = self.input.by_ref().take(PIECE_BYTES).read_to_end(&mut piece);
            if read.map_err(|error| Error::file(&self.path, error.to_string()))? == 0 {
                return Ok(());
            }
            let mut ends = memchr_iter(b'\n', &piece).take(lines);
            let mut end = 0;
            for line_end in ends.by_ref() {
                (end, lines) = (line_end + 1, lines - 1);
                self.line += 1;
            }
            if lines == 0 {
                let behind = Cursor::new(piece.split_off(end));
                let input = std::mem::replace(&mut self.input, Box::new(std::io::empty()));
                self.input = Box::new(behind.chain(input));
            }
        }
        Ok(())
    }

    /// The next records. None: there are no more.
    pub fn next(&mut self) -> Result<Option<Chunk>> {
        let mut text = std::mem::take(&mut self.rest);
        loop {
            let known = text.len();
            let wanted = self.size.usual_bytes as u64;
            let read = self.input.by_ref().take(wanted).read_to_end(&mut text);
            let read = read.map_err(|error| Error::file(&self.path, error.to_string()))?;
            if read == 0 {
                return self.last(text);
            }
            let (_, piece) = text.split_at(known);
            if let Some(Found { last_end, records }) = self.ends.find(piece) {
                let rest = text.split_off(known + last_end);
                let chunk = self.chunk(std::mem::replace(&mut text, rest), records);
                if records > 0 {
                    self.rest = text;
                    return Ok(Some(chunk));
                }
                // Empty lines only.
            }
            if text.len() > self.size.most_bytes {
                return Err(self.too_long());
            }
        }
    }

    /// The text after the last end of a record.
    fn last(&mut self, text: Vec<u8>) -> Result<Option<Chunk>> {
        if self.ends.is_in_quotes() {
            let message = format!(
                "the record that begins in line {} ends inside quotes: the closing one is missing, or the file is \
                 incomplete",
                self.line
            );
            return Err(Error::file(&self.path, message));
        }
        // A comment is no record; neither is the end of an empty line.
        let records = usize::from(!text.is_empty());
        Ok((records > 0).then(|| self.chunk(text, records)))
    }

    fn chunk(&mut self, text: Vec<u8>, records: usize) -> Chunk {
        let first_line = self.line;
        self.line += memchr_iter(b'\n', &text).count() as u64;
        Chunk { text, records, first_line }
    }

    fn too_long(&self) -> Error {
        let hint = if self.ends.is_in_quotes() { "; a quote may not be closed" } else { "" };
        let most = byte_size::format(self.size.most_bytes as u64);
        let message = format!("the record that begins in line {} is longer than {most}{hint}", self.line);
        Error::file(&self.path, message)
    }
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.bytes.add(read);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNTAX: Syntax =
        Syntax { delimiter: b',', quote: b'"', escape: None, comment: None, terminator: None };

    fn chunks(text: &'static str, usual_bytes: usize) -> Chunks {
        let size = ChunkSize { usual_bytes, most_bytes: 30, skipped_lines: 0, encoding: Encoding::Utf8 };
        Chunks::of("x.csv".to_owned(), Box::new(text.as_bytes()), SYNTAX, size).unwrap()
    }

    #[test]
    fn every_chunk_has_whole_records_and_knows_its_line() {
        let text = "\u{feff}a,b\n1,\"x\ny\"\n\n2,z\n3,end";
        let lines: Vec<&str> = text.trim_start_matches('\u{feff}').split_inclusive('\n').collect();
        for usual_bytes in 1..text.len() {
            let mut chunks = chunks(text, usual_bytes);
            let (mut all, mut records) = (String::new(), 0);
            while let Some(chunk) = chunks.next().unwrap() {
                let chunk_text = String::from_utf8(chunk.text).unwrap();
                let rest = lines[chunk.first_line as usize - 1..].concat();
                assert!(rest.starts_with(&chunk_text), "{chunk_text:?} does not begin {rest:?}");
                all += &chunk_text;
                records += chunk.records;
            }
            // Empty lines may be left out.
            assert_eq!(all.replace("\n\n", "\n"), "a,b\n1,\"x\ny\"\n2,z\n3,end");
            assert_eq!(records, 4, "in chunks of {usual_bytes}");
        }
    }

    #[test]
    fn lines_in_front_are_left_out() {
        let size = ChunkSize { usual_bytes: 100, most_bytes: 30, skipped_lines: 2, encoding: Encoding::Utf8 };
        let text: Box<dyn Read + Send> = Box::new("an \"open\n\na,b\n1,2\n".as_bytes());
        let mut chunks = Chunks::of("x.csv".to_owned(), text, SYNTAX, size).unwrap();
        let chunk = chunks.next().unwrap().unwrap();
        assert_eq!((chunk.text.as_slice(), chunk.first_line), (b"a,b\n1,2\n".as_slice(), 3));
        let text: Box<dyn Read + Send> = Box::new("one".as_bytes());
        assert_eq!(Chunks::of("x.csv".to_owned(), text, SYNTAX, size).unwrap().next().unwrap(), None);
    }

    #[test]
    fn an_open_quote_is_an_error_with_its_line() {
        let mut broken = chunks("a,b\n1,\"x\n2,y\n", 100);
        broken.next().unwrap();
        let message = broken.next().unwrap_err().to_string();
        assert!(
            message.starts_with("file 'x.csv': the record that begins in line 2 ends inside quotes"),
            "{message}"
        );
        let mut long = chunks("a\n\"34567890123456789012345678901234567890", 4);
        long.next().unwrap();
        let message = long.next().unwrap_err().to_string();
        assert!(message.contains("line 2 is longer than 30 B; a quote may not be closed"), "{message}");
    }
}
