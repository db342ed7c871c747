//! Text in other encodings, made UTF-8 while it is read.

use std::io::{Error, ErrorKind, Read, Result};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Encoding {
    #[default]
    Utf8,
    Latin1,
    /// In the order that the byte order mark says, else little-endian.
    Utf16,
}

impl Encoding {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name.to_lowercase().replace(['-', '_'], "").as_str() {
            "utf8" => Encoding::Utf8,
            "latin1" | "iso88591" => Encoding::Latin1,
            "utf16" => Encoding::Utf16,
            _ => return None,
        })
    }

    /// The text of a file as UTF-8.
    pub(super) fn decoded(self, input: Box<dyn Read + Send>) -> Box<dyn Read + Send> {
        match self {
            Encoding::Utf8 => input,
            Encoding::Latin1 | Encoding::Utf16 => Box::new(Decoded {
                input,
                encoding: self,
                is_big_endian: None,
                rest: Vec::new(),
                text: Vec::new(),
                at: 0,
            }),
        }
    }
}

struct Decoded {
    input: Box<dyn Read + Send>,
    encoding: Encoding,
    is_big_endian: Option<bool>,
    /// Bytes that have not been decoded, as a letter goes on behind them.
    rest: Vec<u8>,
    /// UTF-8 of which all before `at` has been handed on.
    text: Vec<u8>,
    at: usize,
}

const PIECE_BYTES: u64 = 64 << 10;

impl Decoded {
    /// Decodes the next piece. Whether there was one.
    fn refill(&mut self) -> Result<bool> {
        let read = self.input.by_ref().take(PIECE_BYTES).read_to_end(&mut self.rest)?;
        self.text.clear();
        self.at = 0;
        if read == 0 && !self.rest.is_empty() {
            return Err(Error::new(ErrorKind::InvalidData, "the text ends inside of a letter of UTF-16"));
        }
        let mut text = String::new();
        if self.encoding == Encoding::Latin1 {
            text.extend(self.rest.drain(..).map(char::from));
        } else {
            self.decode_utf16(&mut text)?;
        }
        self.text = text.into_bytes();
        Ok(read > 0)
    }

    fn decode_utf16(&mut self, text: &mut String) -> Result<()> {
        if self.is_big_endian.is_none() && self.rest.len() >= 2 {
            self.is_big_endian = Some(self.rest.starts_with(&[0xfe, 0xff]));
        }
        let is_big_endian = self.is_big_endian.unwrap_or(false);
        let (pairs, _) = self.rest.as_chunks::<2>();
        let unit = |pair: &[u8; 2]| match is_big_endian {
            true => u16::from_be_bytes(*pair),
            false => u16::from_le_bytes(*pair),
        };
        let mut units: Vec<u16> = pairs.iter().map(unit).collect();
        // The first half of a letter waits for the second.
        if units.last().is_some_and(|last| (0xd800..0xdc00).contains(last)) {
            units.pop();
        }
        let used = 2 * units.len();
        for letter in char::decode_utf16(units) {
            let letter = letter.map_err(|_| Error::new(ErrorKind::InvalidData, "the text is not UTF-16"))?;
            text.push(letter);
        }
        self.rest.drain(..used);
        Ok(())
    }
}

impl Read for Decoded {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        while self.at == self.text.len() {
            if !self.refill()? {
                return Ok(0);
            }
        }
        let (_, waiting) = self.text.split_at(self.at);
        let taken = waiting.len().min(buffer.len());
        let (now, _) = waiting.split_at(taken);
        buffer.split_at_mut(taken).0.copy_from_slice(now);
        self.at += taken;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(encoding: Encoding, bytes: Vec<u8>) -> Result<String> {
        let mut text = String::new();
        encoding.decoded(Box::new(std::io::Cursor::new(bytes))).read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn letters_are_decoded() {
        assert_eq!(decoded(Encoding::Latin1, b"a,\xfc\n".to_vec()).unwrap(), "a,ü\n");
        let text = "a,ü,𝄞\n".repeat(20_000);
        let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(decoded(Encoding::Utf16, little).unwrap(), text);
        let big: Vec<u8> =
            [0xfe, 0xff].into_iter().chain(text.encode_utf16().flat_map(u16::to_be_bytes)).collect();
        assert_eq!(decoded(Encoding::Utf16, big).unwrap(), format!("\u{feff}{text}"));
        assert!(decoded(Encoding::Utf16, vec![b'a']).is_err());
        assert!(decoded(Encoding::Utf16, vec![0, 0xdc, b'a', 0]).is_err());
    }
}
