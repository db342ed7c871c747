//! From text to a syntax tree: the SQL of DuckDB and Postgres, read by `sqlparser`.
//!
//! ```text
//!   text ─ split into tokens ─► tokens ─ rewrite ([tokens]) ─► tokens ─ parse ([dialect]) ─► tree
//! ```

pub(crate) mod amounts;
pub(crate) mod calls;
mod dialect;
mod exclusions;
mod lambdas;
pub(crate) mod merges;
mod tokens;

use std::collections::VecDeque;

use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{DataType, Expr, Query};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

pub(crate) use dialect::Sql;
pub(crate) use exclusions::EXCLUSION;
pub(crate) use lambdas::lambda;

use crate::error::{Error, Result};

/// The statements in a text, whose brackets are at most so deep.
pub(crate) fn statements(text: &str, most_levels: usize) -> Result<VecDeque<Statement>> {
    let tokens = tokens(text)?;
    let dialect = if has_insert_as(&tokens) { &Sql::INSERT_AS } else { &Sql::PLAIN };
    let builder = DFParserBuilder::new(tokens).with_dialect(dialect).with_recursion_limit(most_levels);
    Ok(builder.build()?.parse_statements()?)
}

/// Whether a statement begins with `INSERT INTO t AS x`.
fn has_insert_as(tokens: &[TokenWithSpan]) -> bool {
    let tokens = tokens.iter().map(|token| &token.token);
    let mut words = tokens.filter(|token| !matches!(token, Token::Whitespace(_))).take(12);
    let is = |token: Option<&Token>, keyword: Keyword| matches!(token, Some(Token::Word(word)) if word.quote_style.is_none() && word.keyword == keyword);
    words.any(|token| is(Some(token), Keyword::INTO))
        && matches!(words.next(), Some(Token::Word(_)))
        && loop {
            match words.next() {
                Some(Token::Period) if matches!(words.next(), Some(Token::Word(_))) => {}
                token => break is(token, Keyword::AS),
            }
        }
}

/// The query that a text is.
pub(crate) fn query(text: &str) -> Result<Query> {
    part(text, |parser| parser.parse_query()).map(|query| *query)
}

/// The expression that a text is.
pub(crate) fn expression(text: &str) -> Result<Expr> {
    part(text, |parser| parser.parse_expr())
}

/// The type that a text is the name of.
pub(crate) fn data_type(text: &str) -> Result<DataType> {
    part(text, |parser| parser.parse_data_type())
}

/// A parser at the beginning of a text.
pub(crate) fn parser(text: &str) -> Result<Parser<'static>> {
    Ok(Parser::new(&Sql::PLAIN).with_tokens_with_locations(tokens(text)?))
}

/// What a text is, read to its end.
pub(crate) fn part<T>(
    text: &str,
    read: impl FnOnce(&mut Parser) -> std::result::Result<T, ParserError>,
) -> Result<T> {
    let mut parser = parser(text)?;
    let part = read(&mut parser).and_then(|part| parser.expect_token(&Token::EOF).map(|_| part));
    part.map_err(syntax_error)
}

fn tokens(text: &str) -> Result<Vec<TokenWithSpan>> {
    let split = Tokenizer::new(&Sql::PLAIN, text).tokenize_with_location();
    split.map(tokens::rewrite).map_err(|error| syntax_error(ParserError::from(error)))
}

fn syntax_error(error: ParserError) -> Error {
    Error::from_parser(error)
}
