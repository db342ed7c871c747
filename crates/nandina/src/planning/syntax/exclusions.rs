//! `EXCLUDE` in the frame of a window, which the parser does not know: read as a constant key of the partitions.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// How such a key begins; what is excluded follows.
pub(crate) const EXCLUSION: &str = "\u{1}exclude ";

/// What `EXCLUDE …)` at a place of a statement excludes, and how many tokens say so.
pub(super) fn exclusion(tokens: &[TokenWithSpan], at: usize) -> Option<(String, usize)> {
    let word = |at: usize| match &tokens.get(at)?.token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_uppercase()),
        _ => None,
    };
    let before = word(at.checked_sub(1)?)?;
    if !matches!(before.as_str(), "ROW" | "PRECEDING" | "FOLLOWING") {
        return None;
    }
    let (first, length) = match (word(at + 1)?.as_str(), word(at + 2).as_deref()) {
        ("NO", Some("OTHERS")) => ("NO", 3),
        ("CURRENT", Some("ROW")) => ("CURRENT", 3),
        ("GROUP", _) => ("GROUP", 2),
        ("TIES", _) => ("TIES", 2),
        _ => return None,
    };
    let ends = tokens.get(at + length).is_some_and(|token| token.token == Token::RParen);
    ends.then(|| (format!("{EXCLUSION}{first}"), length))
}

/// Puts what is excluded before the other keys of the window that is open.
pub(super) fn put_into_partition(written: &mut Vec<TokenWithSpan>, exclusion: String) {
    let mut closed = 0_usize;
    let open = written.iter().rposition(|token| match token.token {
        Token::RParen => {
            closed += 1;
            false
        }
        Token::LParen if closed > 0 => {
            closed -= 1;
            false
        }
        Token::LParen => true,
        _ => false,
    });
    let Some((open, span)) = open.and_then(|open| Some((open, written.get(open)?.span))) else { return };
    let is_word = |at: usize, keyword: Keyword| matches!(written.get(at).map(|token| &token.token), Some(Token::Word(word)) if word.keyword == keyword);
    let key = Token::SingleQuotedString(exclusion);
    let (at, tokens) = match is_word(open + 1, Keyword::PARTITION) && is_word(open + 2, Keyword::BY) {
        true => (open + 3, vec![key, Token::Comma]),
        false => (open + 1, vec![Token::make_keyword("PARTITION"), Token::make_keyword("BY"), key]),
    };
    written.splice(at..at, tokens.into_iter().map(|token| TokenWithSpan { token, span }));
}
