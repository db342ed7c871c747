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
mod tokens;

use std::collections::VecDeque;

use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{DataType, Expr, Query};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

pub(crate) use dialect::Sql;
pub(crate) use exclusions::EXCLUSION;
pub(crate) use lambdas::lambda;

use crate::error::{Error, Result};

/// The statements in a text, whose brackets are at most so deep.
pub(crate) fn statements(text: &str, most_levels: usize) -> Result<VecDeque<Statement>> {
    let builder = DFParserBuilder::new(tokens(text)?).with_dialect(&Sql).with_recursion_limit(most_levels);
    Ok(builder.build()?.parse_statements()?)
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
    Ok(Parser::new(&Sql).with_tokens_with_locations(tokens(text)?))
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
    let split = Tokenizer::new(&Sql, text).tokenize_with_location();
    split.map(tokens::rewrite).map_err(|error| syntax_error(ParserError::from(error)))
}

fn syntax_error(error: ParserError) -> Error {
    Error::from_parser(error)
}
