//! Amounts of rows, as calls of functions that the parser can read.
//!
//! ```text
//!   LIMIT 10 %                                ─►  LIMIT "__percent" (10)
//!   FROM t TABLESAMPLE reservoir(10 ROWS)     ─►  FROM t TABLESAMPLE ("__sample" ('rows', 10, NULL))
//!   FROM t WHERE a USING SAMPLE 10% (bernoulli, 7)
//!                                             ─►  FROM t WHERE a CONNECT BY "__sample" ('percent', 10, 7)
//! ```
//!
//! `CONNECT BY` is a clause of Oracle's that the tree keeps. It stands before `GROUP BY`.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};

pub(crate) const PERCENT: &str = "__percent";
pub(crate) const SAMPLE: &str = "__sample";

/// The amount behind a `LIMIT` at a place if it is one in percent: what is written, and how many tokens that replaces.
pub(super) fn limit(tokens: &[TokenWithSpan], at: usize) -> Option<(Vec<Token>, usize)> {
    let end = match token(tokens, at + 1)? {
        Token::LParen => closing_bracket(tokens, at + 1)? + 1,
        Token::Number(..) | Token::Placeholder(_) => at + 2,
        _ => return None,
    };
    match token(tokens, end)? {
        Token::Mod if !begins_operand(token(tokens, end + 1)) => {}
        Token::Word(word) if is(word, "percent") => {}
        _ => return None,
    }
    let mut written = vec![Token::make_keyword("LIMIT"), Token::make_word(PERCENT, Some('"')), Token::LParen];
    written.extend(tokens.get(at + 1..end)?.iter().map(|token| token.token.clone()));
    written.push(Token::RParen);
    Some((written, end + 1 - at))
}

/// The sample that is described from a place on, and how many tokens do.
pub(super) fn sample(tokens: &[TokenWithSpan], at: usize) -> Option<(Vec<Token>, usize)> {
    let mut next = at;
    let mut method = None;
    let mut seed = Token::make_keyword("NULL");
    if let Some(Token::Word(word)) = token(tokens, at) {
        method = Some(word.value.to_lowercase());
        next += 1;
    }
    let is_in_brackets = token(tokens, next) == Some(&Token::LParen);
    next += usize::from(is_in_brackets);
    let amount =
        token(tokens, next).filter(|token| matches!(token, Token::Number(..) | Token::Placeholder(_)))?;
    next += 1;
    let unit = match token(tokens, next) {
        Some(Token::Mod) => Some("percent"),
        Some(Token::Word(word)) if is(word, "percent") => Some("percent"),
        Some(Token::Word(word)) if is(word, "rows") => Some("rows"),
        _ => None,
    };
    next += usize::from(unit.is_some());
    if is_in_brackets {
        (token(tokens, next)? == &Token::RParen).then_some(())?;
        next += 1;
    } else if token(tokens, next) == Some(&Token::LParen)
        && let Some(Token::Word(word)) = token(tokens, next + 1)
    {
        method = Some(word.value.to_lowercase());
        next += 2;
        if token(tokens, next) == Some(&Token::Comma) {
            seed = token(tokens, next + 1)?.clone();
            next += 2;
        }
        (token(tokens, next)? == &Token::RParen).then_some(())?;
        next += 1;
    }
    if let Some(Token::Word(word)) = token(tokens, next)
        && (is(word, "repeatable") || is(word, "seed"))
        && token(tokens, next + 1) == Some(&Token::LParen)
        && token(tokens, next + 3) == Some(&Token::RParen)
    {
        seed = token(tokens, next + 2)?.clone();
        next += 4;
    }
    // Percentages of a reservoir are exact, those of the other methods a probability for each row.
    let kind = match (method.as_deref(), unit) {
        (None | Some("reservoir"), None | Some("rows")) => "rows",
        (Some("reservoir"), Some("percent")) => "reservoir",
        (None | Some("bernoulli" | "system"), Some("percent")) => "percent",
        (Some("bernoulli" | "system"), None) => "percent",
        (Some("bernoulli" | "system"), Some("rows")) => "rows",
        _ => return None,
    };
    let mut written = vec![Token::make_word(SAMPLE, Some('"')), Token::LParen];
    written.extend([Token::SingleQuotedString(kind.to_owned()), Token::Comma, amount.clone()]);
    written.extend([Token::Comma, seed, Token::RParen]);
    Some((written, next - at))
}

fn token(tokens: &[TokenWithSpan], at: usize) -> Option<&Token> {
    tokens.get(at).map(|token| &token.token)
}

fn is(word: &Word, name: &str) -> bool {
    word.quote_style.is_none() && word.value.eq_ignore_ascii_case(name)
}

fn closing_bracket(tokens: &[TokenWithSpan], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    tokens.iter().enumerate().skip(open).find_map(|(at, token)| {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    })
}

/// Whether a `%` before a token is an operator.
fn begins_operand(next: Option<&Token>) -> bool {
    match next {
        None | Some(Token::EOF | Token::SemiColon | Token::RParen | Token::Comma) => false,
        Some(Token::Word(word)) => !matches!(
            word.keyword,
            Keyword::OFFSET | Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT | Keyword::ORDER
        ),
        Some(_) => true,
    }
}
