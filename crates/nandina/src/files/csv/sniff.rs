//! How the records of CSV are written, of those ways that are usual: which delimiter, quote, escape byte and comment, and
//! how many lines stand in front that are none.
//!
//! Of all combinations, that is taken which cuts the sample into records of the most fields, as many in each; of several, the
//! one that is more usual. Where none does, the delimiter is the one that occurs most often in the first line.

use std::path::PathBuf;

use super::dialect::CsvDialect;
use super::records::{Syntax, records_of};

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written {
    pub syntax: Syntax,
    /// Lines in front of the first record.
    pub skipped_lines: usize,
}

/// Records that are looked at.
const MOST_RECORDS: usize = 1000;
/// Lines in front of the records that are left out at most.
const MOST_SKIPPED: usize = 30;

/// How a sample is written, as far as it is not said.
pub(super) fn sniff(
    sample: &str,
    is_cut: bool,
    said: &CsvDialect,
    usual: Syntax,
    files: &[PathBuf],
) -> Written {
    let by_first_line = likely_delimiter(sample, files);
    let delimiters = match said.delimiter {
        Some(delimiter) => vec![delimiter],
        None => {
            let mut all = vec![by_first_line];
            all.extend([b',', b'|', b';', b'\t'].into_iter().filter(|other| *other != by_first_line));
            all
        }
    };
    let mut quotes = vec![usual.quote];
    if said.quote.is_none() && !sample.contains('"') && sample.contains('\'') {
        quotes.push(b'\'');
    }
    let mut escapes = vec![usual.escape];
    if said.escape.is_none() && sample.contains("\\\"") {
        escapes.push(Some(b'\\'));
    }
    let mut comments = vec![usual.comment];
    if said.comment.is_none() && sample.lines().any(|line| line.starts_with('#')) {
        comments.push(Some(b'#'));
    }
    let mut best: Option<(Written, usize)> = None;
    for &comment in &comments {
        for &escape in &escapes {
            for &quote in &quotes {
                for &delimiter in &delimiters {
                    let syntax = Syntax { delimiter, quote, escape, comment, ..usual };
                    let Some((written, fields)) = consistent(sample, is_cut, said, syntax) else { continue };
                    let is_better = best.is_none_or(|(known, most)| {
                        // Values in quotes are more alike with the quotes that they have.
                        let finds_quotes =
                            quote == b'\'' && known.syntax.quote != quote && is_quoted_by(sample, syntax);
                        let skips_less = written.skipped_lines < known.skipped_lines;
                        fields > most || fields == most && (skips_less || finds_quotes)
                    });
                    if is_better {
                        best = Some((written, fields));
                    }
                }
            }
        }
    }
    // One field in each record says nothing where the first line has several.
    let first_line = sample.lines().next().unwrap_or_default();
    let is_one = |fields: usize| fields == 1 && first_line.as_bytes().contains(&by_first_line);
    let known = best.filter(|(written, fields)| written.skipped_lines > 0 || !is_one(*fields));
    known.map(|(written, _)| written).unwrap_or(Written {
        syntax: Syntax { delimiter: said.delimiter.unwrap_or(by_first_line), ..usual },
        skipped_lines: said.skipped_lines,
    })
}

/// How many fields all records have, and in which line they begin; none if they do not have the same number.
fn consistent(sample: &str, is_cut: bool, said: &CsvDialect, syntax: Syntax) -> Option<(Written, usize)> {
    let text = sample.as_bytes();
    let mut counts: Vec<(u64, usize)> = Vec::new();
    for record in records_of(text, 1, syntax).take(MOST_RECORDS) {
        counts.push((record.line, fields_of(record.text, syntax)?));
    }
    if is_cut && counts.len() < MOST_RECORDS {
        // The last one goes on.
        counts.pop();
    }
    let (_, fields) = *counts.last()?;
    let alike = counts.iter().rev().take_while(|(_, count)| *count == fields).count();
    let before = counts.len() - alike;
    let skipped = counts.get(..before)?;
    if before == 0 {
        return Some((Written { syntax, skipped_lines: said.skipped_lines }, fields));
    }
    // Lines of text in front of a table: titles, dates, who made it.
    let are_titles = skipped.iter().all(|(_, count)| *count == 1);
    let may_skip = said.skipped_lines == 0 && said.header != Some(true) && !said.pads_with_nulls;
    if !may_skip || !are_titles || fields < 2 || alike < 2 || before > MOST_SKIPPED {
        return None;
    }
    let (line, _) = *counts.get(before)?;
    Some((Written { syntax, skipped_lines: line as usize - 1 }, fields))
}

/// How many fields a record has; none if a value in quotes goes on behind them, or to the end.
fn fields_of(record: &[u8], syntax: Syntax) -> Option<usize> {
    let Syntax { delimiter, quote, escape, .. } = syntax;
    let end = record.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1);
    let mut bytes = record.get(..end)?.iter().copied().peekable();
    let mut fields = 1;
    loop {
        if bytes.next_if_eq(&quote).is_some() {
            loop {
                match bytes.next()? {
                    byte if Some(byte) == escape && bytes.peek().is_some() => drop(bytes.next()),
                    byte if byte == quote && bytes.next_if_eq(&quote).is_none() => break,
                    _ => {}
                }
            }
            match bytes.next() {
                None => return Some(fields),
                Some(byte) if byte == delimiter => fields += 1,
                Some(_) => return None,
            }
            continue;
        }
        loop {
            match bytes.next() {
                None => return Some(fields),
                Some(byte) if byte == delimiter => break,
                Some(_) => {}
            }
        }
        fields += 1;
    }
}

/// Whether a field begins and ends with the quote.
fn is_quoted_by(sample: &str, syntax: Syntax) -> bool {
    let quote = char::from(syntax.quote);
    let fields = sample.lines().flat_map(|line| line.split(char::from(syntax.delimiter)));
    fields.into_iter().any(|field| field.len() > 1 && field.starts_with(quote) && field.ends_with(quote))
}

/// The delimiter that occurs most often in the first line.
fn likely_delimiter(start: &str, files: &[PathBuf]) -> u8 {
    let first_line = start.lines().next().unwrap_or_default();
    let extension = files.first().and_then(|file| file.extension()).and_then(|extension| extension.to_str());
    let usual = match extension {
        Some("tsv") => b'\t',
        Some("tbl") => b'|',
        _ => b',',
    };
    let occurrences = |delimiter: u8| first_line.bytes().filter(|byte| *byte == delimiter).count();
    let mut best = usual;
    for candidate in [b',', b';', b'\t', b'|'] {
        if occurrences(candidate) > occurrences(best) {
            best = candidate;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Syntax =
        Syntax { delimiter: b',', quote: b'"', escape: None, comment: None, terminator: None };

    fn found(sample: &str) -> (char, char, Option<char>, Option<char>, usize) {
        let Written { syntax, skipped_lines } = sniff(sample, false, &CsvDialect::default(), USUAL, &[]);
        let letter = |byte: Option<u8>| byte.map(char::from);
        (
            char::from(syntax.delimiter),
            char::from(syntax.quote),
            letter(syntax.escape),
            letter(syntax.comment),
            skipped_lines,
        )
    }

    #[test]
    fn the_way_of_writing_is_found() {
        assert_eq!(found("a,b\n1,2\n"), (',', '"', None, None, 0));
        assert_eq!(found("a;b;c\n1,5;2;3\n"), (';', '"', None, None, 0));
        // Commas in texts are not as many in every line.
        assert_eq!(found("name|text\nx|a, b, c\ny|d\n"), ('|', '"', None, None, 0));
        assert_eq!(found("id,note\n1,'a, b'\n2,'c'\n"), (',', '\'', None, None, 0));
        assert_eq!(found("id,note\n1,it's\n2,c\n"), (',', '"', None, None, 0));
        assert_eq!(found("id,note\n1,\"say \\\"x\\\", or\"\n2,c\n"), (',', '"', Some('\\'), None, 0));
        assert_eq!(found("# made by x, y, z\nid,note\n1,a\n"), (',', '"', None, Some('#'), 0));
        assert_eq!(found("#id,note\n1,a\n"), (',', '"', None, None, 0));
        assert_eq!(found("Report\nof today\n\nid,note\n1,a\n2,b\n"), (',', '"', None, None, 3));
        assert_eq!(found("a,b\n1,2\n3,4,5\n6,7\n"), (',', '"', None, None, 0));
        assert_eq!(found("one\ntwo\n"), (',', '"', None, None, 0));
        assert_eq!(found(""), (',', '"', None, None, 0));
    }

    #[test]
    fn the_delimiter_is_found_in_the_first_line() {
        assert_eq!(likely_delimiter("a;b;c\n1,5;2;3", &[]), b';');
        assert_eq!(likely_delimiter("a,b\n", &[]), b',');
        assert_eq!(likely_delimiter("", &[PathBuf::from("x.tsv")]), b'\t');
    }

    #[test]
    fn fields_are_counted() {
        for (record, fields) in [
            ("a,b\n", Some(2)),
            ("\n", Some(1)),
            ("\"a,b\",c\r\n", Some(2)),
            ("\"a\"\"b\"", Some(1)),
            ("a\"b,c", Some(2)),
            ("\"a\"b,c", None),
            ("\"a", None),
            ("a,", Some(2)),
        ] {
            assert_eq!(fields_of(record.as_bytes(), USUAL), fields, "{record:?}");
        }
    }
}
