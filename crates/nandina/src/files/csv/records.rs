//! Where records of CSV text end.
//!
//! A line break inside quotes is part of a value, so whether one ends a record depends on every quote before it, back to
//! the beginning of the file. [`RecordEnds`] is told the text piece by piece, and keeps the state it needs between two
//! pieces. It takes quotes as the parser does (`csv-core`): only at the start of a field do they open a quoted value, a
//! doubled one stands for itself, and text behind the closing quote belongs to the value.

use datafusion::common::config::CsvOptions;
use memchr::{memchr, memchr2, memchr3};

/// The bytes that have a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Syntax {
    pub delimiter: u8,
    pub quote: u8,
    pub escape: Option<u8>,
    pub comment: Option<u8>,
    /// None: `\n`, `\r` and `\r\n`.
    pub terminator: Option<u8>,
}

/// Finds the ends of records in text that comes in pieces.
#[derive(Debug, Clone)]
pub(super) struct RecordEnds {
    syntax: Syntax,
    state: State,
    /// The byte before the next piece; a record begins where there is none, too.
    previous: Option<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Outside of quotes.
    Plain,
    Quoted,
    /// Behind a quote inside quotes: it is one of two, or the end of the value.
    BehindQuote,
    /// Behind the escape byte inside quotes.
    BehindEscape,
    /// To the end of the line.
    Comment,
}

/// What a piece of text holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    /// Where the last record ends: behind its terminator.
    pub last_end: usize,
    /// How many end there or before.
    pub records: usize,
}

impl Syntax {
    pub fn of(options: &CsvOptions) -> Self {
        Syntax {
            delimiter: options.delimiter,
            quote: options.quote,
            escape: options.escape,
            comment: options.comment,
            terminator: options.terminator,
        }
    }

    fn ends_record(self, byte: u8) -> bool {
        match self.terminator {
            None => matches!(byte, b'\n' | b'\r'),
            Some(terminator) => byte == terminator,
        }
    }
}

impl RecordEnds {
    pub fn new(syntax: Syntax) -> Self {
        RecordEnds { syntax, state: State::Plain, previous: None }
    }

    /// Whether the text so far ends inside quotes that are still open.
    pub fn is_in_quotes(&self) -> bool {
        matches!(self.state, State::Quoted | State::BehindEscape)
    }

    /// Goes on with the next piece of the text. None: no record ends in it.
    pub fn find(&mut self, piece: &[u8]) -> Option<Found> {
        let mut found: Option<Found> = None;
        let mut at = 0;
        while let (_, rest @ [_, ..]) = piece.split_at(at) {
            let skipped = match self.state {
                State::Plain => self.step_in_plain(rest, |is_record, behind| {
                    let records = found.map_or(0, |found| found.records) + usize::from(is_record);
                    found = Some(Found { last_end: at + behind, records });
                }),
                State::Quoted => self.step_in_quotes(rest),
                State::BehindQuote => {
                    if rest.first() == Some(&self.syntax.quote) {
                        self.state = State::Quoted;
                        self.previous = Some(self.syntax.quote);
                        1
                    } else {
                        self.state = State::Plain;
                        0
                    }
                }
                State::BehindEscape => {
                    self.state = State::Quoted;
                    self.previous = rest.first().copied();
                    1
                }
                State::Comment => self.step_in_comment(rest),
            };
            at += skipped;
        }
        found
    }

    /// Goes to the next byte that has a meaning outside of quotes, and behind it. `end` is told whether what ends there is
    /// a record (an empty line is none), and where.
    fn step_in_plain(&mut self, rest: &[u8], end: impl FnOnce(bool, usize)) -> usize {
        let Syntax { quote, terminator, delimiter, comment, .. } = self.syntax;
        let begins_record = self.begins_record();
        if begins_record && comment.is_some() && rest.first() == comment.as_ref() {
            self.state = State::Comment;
            return 1;
        }
        let next = match terminator {
            None => memchr3(quote, b'\n', b'\r', rest),
            Some(terminator) => memchr2(quote, terminator, rest),
        };
        let Some(next) = next else {
            self.previous = rest.last().copied();
            return rest.len();
        };
        let byte = rest.get(next).copied();
        let previous = if next == 0 { self.previous } else { rest.get(next - 1).copied() };
        self.previous = byte;
        if byte.is_some_and(|byte| self.syntax.ends_record(byte)) {
            end(!(next == 0 && begins_record), next + 1);
        } else if previous.is_none_or(|previous| previous == delimiter || self.syntax.ends_record(previous)) {
            self.state = State::Quoted;
        }
        next + 1
    }

    fn begins_record(&self) -> bool {
        self.previous.is_none_or(|previous| self.syntax.ends_record(previous))
    }

    /// Goes behind the next quote or escape byte.
    fn step_in_quotes(&mut self, rest: &[u8]) -> usize {
        let Syntax { quote, escape, .. } = self.syntax;
        let next = match escape {
            Some(escape) => memchr2(quote, escape, rest),
            None => memchr(quote, rest),
        };
        let Some(next) = next else { return rest.len() };
        // An escape byte that is the quote itself is a doubled quote.
        self.state = if rest.get(next) == Some(&quote) { State::BehindQuote } else { State::BehindEscape };
        // What follows the closing quote is not at the start of a field, whatever that quote follows.
        self.previous = Some(quote);
        next + 1
    }

    fn step_in_comment(&mut self, rest: &[u8]) -> usize {
        let Some(next) = memchr(b'\n', rest) else { return rest.len() };
        self.state = State::Plain;
        self.previous = None;
        next + 1
    }
}

/// A record with the lines that it begins in, counted from that of the text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record<'a> {
    pub line: u64,
    pub text: &'a [u8],
}

/// The records of a text, which begins in a line of a file. Those that are nothing but an empty line are left out.
pub(super) fn records_of(text: &[u8], first_line: u64, syntax: Syntax) -> impl Iterator<Item = Record<'_>> {
    let mut ends = RecordEnds::new(syntax);
    let (mut begin, mut end) = (0, 0);
    let (mut line, mut next_line) = (first_line, first_line);
    let mut lines = text.split_inclusive(|&byte| byte == b'\n');
    std::iter::from_fn(move || {
        for piece in lines.by_ref() {
            end += piece.len();
            next_line += 1;
            let is_empty = match ends.find(piece) {
                Some(found) => found.records == 0,
                None if end < text.len() => continue,
                None => false,
            };
            let mut record = Record { line, text: text.get(begin..end).unwrap_or_default() };
            // Comments in front of a record are none.
            while syntax.comment.is_some() && record.text.first() == syntax.comment.as_ref() {
                let behind = memchr(b'\n', record.text).map_or(record.text.len(), |at| at + 1);
                record = Record { line: record.line + 1, text: record.text.split_at(behind).1 };
            }
            (begin, line) = (end, next_line);
            if !is_empty && !record.text.is_empty() {
                return Some(record);
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use arrow::csv::ReaderBuilder;
    use arrow::datatypes::{DataType, Field, Schema};
    use proptest::prelude::*;
    use std::sync::Arc;

    use super::*;

    const PLAIN: Syntax =
        Syntax { delimiter: b',', quote: b'"', escape: None, comment: None, terminator: None };

    /// The ends of all records, found in pieces of so many bytes.
    fn ends(text: &str, piece_bytes: usize, syntax: Syntax) -> (Vec<usize>, bool) {
        let mut finder = RecordEnds::new(syntax);
        let mut ends = Vec::new();
        let mut begin = 0;
        for piece in text.as_bytes().chunks(piece_bytes) {
            let found = finder.find(piece);
            ends.extend(found.map(|found| begin + found.last_end));
            begin += piece.len();
        }
        (ends, finder.is_in_quotes())
    }

    #[test]
    fn quotes_hide_line_breaks() {
        for (text, expected) in [
            ("a,b\nc,d\n", vec![4, 8]),
            ("a,\"b\nc\"\nd\n", vec![8, 10]),
            ("\"a\"\"\n\"\nb\n", vec![7, 9]),
            // Only at the start of a field.
            ("a\",\"b\n\"\n", vec![8]),
            ("a\"b\nc\n", vec![4, 6]),
            ("\"a\"b\"\nc\n", vec![6, 8]),
            ("a\r\nb\r\n", vec![2, 3, 5, 6]),
        ] {
            assert_eq!(ends(text, 1, PLAIN), (expected, false), "{text:?}");
        }
    }

    #[test]
    fn escapes_and_comments_hide_quotes() {
        let escaped = Syntax { escape: Some(b'\\'), ..PLAIN };
        assert_eq!(ends("\"a\\\"\n\"\nb\n", 1, escaped), (vec![7, 9], false));
        let commented = Syntax { comment: Some(b'#'), ..PLAIN };
        assert_eq!(ends("# \"no\na\n", 1, commented), (vec![8], false));
        assert_eq!(ends("a#\"\nb\n", 1, commented), (vec![4, 6], false));
        let terminated = Syntax { terminator: Some(b';'), ..PLAIN };
        assert_eq!(ends("a\nb;\"c;\"\n;", 1, terminated), (vec![4, 10], false));
    }

    #[test]
    fn records_know_their_lines() {
        let syntax = Syntax { comment: Some(b'#'), ..PLAIN };
        let text = b"# one\na,\"b\nc\"\n\n# two\n# three\nd,e";
        let found: Vec<(u64, &[u8])> =
            records_of(text, 1, syntax).map(|record| (record.line, record.text)).collect();
        assert_eq!(found, [(2, b"a,\"b\nc\"\n".as_slice()), (7, b"d,e".as_slice())]);
    }

    #[test]
    fn open_quotes_are_noticed() {
        assert_eq!(ends("a,\"b\nc\n", 3, PLAIN), (vec![], true));
        assert_eq!(ends("a,\"b\"", 2, PLAIN), (vec![], false));
    }

    #[test]
    fn empty_lines_are_no_records() {
        let mut finder = RecordEnds::new(PLAIN);
        let found = finder.find(b"\n\na\r\n\r\nb\n\n").unwrap();
        assert_eq!((found.last_end, found.records), (10, 2));
    }

    /// The rows of a text, parsed whole.
    fn rows(text: &[u8], escape: Option<u8>) -> Vec<String> {
        let schema =
            Schema::new(vec![Field::new("a", DataType::Utf8, true), Field::new("b", DataType::Utf8, true)]);
        let mut builder = ReaderBuilder::new(Arc::new(schema))
            .with_header(false)
            .with_truncated_rows(true)
            .with_batch_size(100);
        if let Some(escape) = escape {
            builder = builder.with_escape(escape);
        }
        let reader = builder.build(text).unwrap();
        let mut rows = Vec::new();
        for batch in reader {
            let Ok(batch) = batch else { return vec!["broken".to_owned()] };
            rows.extend((0..batch.num_rows()).map(|row| format!("{:?}", batch.slice(row, 1))));
        }
        rows
    }

    proptest! {
        /// Whatever is cut at an end parses to the same rows in two parts.
        #[test]
        fn parts_have_the_rows_of_the_whole(
            text in "([ab,\"\n\r\\\\]|\"a\n\"|,\"){0,24}\n",
            piece_bytes in 1..9_usize,
            escape in prop_oneof![Just(None), Just(Some(b'\\'))],
        ) {
            let whole = rows(text.as_bytes(), escape);
            prop_assume!(whole != ["broken"]);
            let (ends, _) = ends(&text, piece_bytes, Syntax { escape, ..PLAIN });
            for end in ends {
                let (left, right) = text.as_bytes().split_at(end);
                let mut parts = rows(left, escape);
                parts.extend(rows(right, escape));
                prop_assert_eq!(&parts, &whole, "cut at {}", end);
            }
        }
    }
}
