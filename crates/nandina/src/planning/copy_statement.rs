//! `COPY` as Postgres and DuckDB write it.
//!
//! ```text
//!   COPY t (a, b) TO 'x.csv' │ WITH (HEADER, DELIMITER '|')     options behind the file
//!   COPY (SELECT …) TO 'x.gz'│ (FORMAT csv, COMPRESSION gzip)
//!   COPY t FROM 'x.csv'      │ DELIMITER '|' CSV HEADER         as in Postgres before 9
//!        └── the head ───────┴─ the options, which DataFusion's parser does not know
//! ```
//!
//! What the options mean is said in [`copy_options`](super::copy_options) and, of reading, in
//! [`files::reading`](crate::files::reading). DataFusion's own form (`STORED AS CSV PARTITIONED BY (a) OPTIONS (…)`) is left to its parser.

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::error::{Error, Result};
use crate::files::option_value::OptionValue;
use crate::planning::syntax::Sql;
use crate::statement_text;

/// Where rows go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    To,
    From,
}

/// The text of a statement in this form.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CopyText<'a> {
    pub direction: Direction,
    /// All in front of the options, which ends with the file.
    pub head: &'a str,
    options: &'a str,
    /// What stands between `COPY` and the direction.
    source: &'a str,
    before_source: &'a str,
    behind_source: &'a str,
}

/// An option's name, in lower case, and its value.
pub(crate) type CopyOption = (String, OptionValue);

impl<'a> CopyText<'a> {
    /// The parts of `COPY … TO 'file'` or `COPY … FROM 'file'`, also behind `EXPLAIN`; none if it is another statement.
    pub(crate) fn of(text: &'a str) -> Option<Self> {
        let mut tokens = statement_text::tokens(text).peekable();
        let is = |token: &str, word: &str| token.eq_ignore_ascii_case(word);
        let (_, first) = tokens.peek()?;
        let copies = match () {
            () if is(first, "copy") => tokens.next()?,
            () if is(first, "explain") => tokens.by_ref().take(8).find(|(_, token)| is(token, "copy"))?,
            () => return None,
        };
        let source_begin = copies.0 + copies.1.len();
        let mut depth = 0_usize;
        while let Some((begin, token)) = tokens.next() {
            match token {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth = depth.saturating_sub(1),
                _ if depth > 0 || !(is(token, "to") || is(token, "from")) => {}
                _ => {
                    let direction = if is(token, "to") { Direction::To } else { Direction::From };
                    let (file_begin, file) = tokens.next().filter(|(_, file)| file.starts_with('\''))?;
                    let mut end = file_begin + file.len();
                    // A quote inside of the name is doubled.
                    while let Some((next, more)) = tokens.peek()
                        && *next == end
                        && more.starts_with('\'')
                    {
                        end += more.len();
                        tokens.next();
                    }
                    let (head, options) = text.split_at(end);
                    return Some(CopyText {
                        direction,
                        head,
                        options,
                        source: text.get(source_begin..begin)?,
                        before_source: text.get(..source_begin)?,
                        behind_source: head.get(begin..)?,
                    });
                }
            }
        }
        None
    }

    /// The options; none if they are written as DataFusion does.
    pub(crate) fn options(&self) -> Result<Option<Vec<CopyOption>>> {
        let Some((_, first)) = statement_text::tokens(self.options).next() else {
            return Ok(Some(Vec::new()));
        };
        if self.direction == Direction::To
            && ["stored", "partitioned", "options"].iter().any(|word| first.eq_ignore_ascii_case(word))
        {
            return Ok(None);
        }
        let parsed = Parser::new(&Sql::PLAIN).try_with_sql(self.options).and_then(|mut parser| {
            let options = parse_options(&mut parser)?;
            parser.expect_token(&Token::EOF)?;
            Ok(options)
        });
        parsed.map(Some).map_err(|error| match error {
            ParserError::ParserError(reason) | ParserError::TokenizerError(reason) => Error::Syntax {
                message: format!(
                    "the options of COPY: {}; write (NAME value, …)",
                    reason.replace("Expected", "expected")
                ),
            },
            error => Error::Syntax { message: error.to_string() },
        })
    }

    /// The head for DataFusion's parser, which knows no list of columns behind the table.
    pub(crate) fn head_to_parse(&self) -> String {
        let mut tokens = statement_text::tokens(self.source);
        let is_query = tokens.next().is_none_or(|(_, token)| token == "(");
        match tokens.find(|(_, token)| *token == "(") {
            Some((at, _)) if !is_query && self.direction == Direction::To => {
                let (table, columns) = self.source.split_at(at);
                let columns = columns.trim().trim_start_matches('(').trim_end_matches(')');
                format!("{} (SELECT {columns} FROM {table}) {}", self.before_source, self.behind_source)
            }
            _ => self.head.to_owned(),
        }
    }
}

fn parse_options(parser: &mut Parser<'_>) -> Result<Vec<CopyOption>, ParserError> {
    let has_with = parser.peek_token_ref().token.to_string().eq_ignore_ascii_case("with");
    if has_with {
        parser.next_token();
    }
    if !parser.consume_token(&Token::LParen) {
        return parse_old_options(parser);
    }
    let mut options = Vec::new();
    while !parser.consume_token(&Token::RParen) {
        let name = option_name(parser)?;
        let _ = [Token::Eq, Token::Assignment, Token::RArrow].iter().any(|sign| parser.consume_token(sign));
        let value = match parser.peek_token_ref().token {
            Token::Comma | Token::RParen => OptionValue::Flag(true),
            _ if name == "order_by" => order_value(parser)?,
            _ => option_value(parser)?,
        };
        options.push((name, value));
        if !parser.consume_token(&Token::Comma) {
            parser.expect_token(&Token::RParen)?;
            break;
        }
    }
    Ok(options)
}

/// `DELIMITER '|' NULL '' CSV HEADER QUOTE '"' FORCE QUOTE a, b`
fn parse_old_options(parser: &mut Parser<'_>) -> Result<Vec<CopyOption>, ParserError> {
    let mut options = Vec::new();
    while parser.peek_token_ref().token != Token::EOF {
        let name = option_name(parser)?;
        let is_next = |parser: &Parser<'_>, word: &str| {
            parser.peek_token_ref().token.to_string().eq_ignore_ascii_case(word)
        };
        if is_next(parser, "as") {
            parser.next_token();
        }
        let option = match name.as_str() {
            "csv" | "binary" | "text" => ("format".to_owned(), OptionValue::Word(name)),
            "header" => (name, OptionValue::Flag(true)),
            "force" => {
                let word = option_name(parser)?;
                let mut columns = vec![option_value(parser)?];
                while parser.consume_token(&Token::Comma) {
                    columns.push(option_value(parser)?);
                }
                let value = match columns.as_slice() {
                    [OptionValue::All] => OptionValue::All,
                    _ => OptionValue::List(columns),
                };
                (format!("force_{word}"), value)
            }
            _ => (name, option_value(parser)?),
        };
        options.push(option);
    }
    Ok(options)
}

fn option_name(parser: &mut Parser<'_>) -> Result<String, ParserError> {
    let found = parser.next_token();
    match found.token {
        Token::Word(word) => Ok(word.value.to_lowercase()),
        Token::SingleQuotedString(name) => Ok(name.to_lowercase()),
        other => Err(ParserError::ParserError(format!("Expected the name of an option, found: {other}"))),
    }
}

/// `(a DESC, b)`: each as a text.
fn order_value(parser: &mut Parser<'_>) -> Result<OptionValue, ParserError> {
    let has_brackets = parser.consume_token(&Token::LParen);
    let orders = match has_brackets {
        true => parser.parse_comma_separated(Parser::parse_order_by_expr)?,
        false => vec![parser.parse_order_by_expr()?],
    };
    if has_brackets {
        parser.expect_token(&Token::RParen)?;
    }
    Ok(OptionValue::List(orders.iter().map(|order| OptionValue::Text(order.to_string())).collect()))
}

fn option_value(parser: &mut Parser<'_>) -> Result<OptionValue, ParserError> {
    if parser.consume_token(&Token::Mul) {
        return Ok(OptionValue::All);
    }
    if parser.consume_token(&Token::LParen) {
        if parser.consume_token(&Token::Mul) {
            parser.expect_token(&Token::RParen)?;
            return Ok(OptionValue::All);
        }
        parser.prev_token();
    }
    let value: Expr = parser.parse_expr()?;
    OptionValue::of(&value)
        .ok_or_else(|| ParserError::ParserError(format!("Expected a constant, found: {value}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Vec<CopyOption> {
        CopyText::of(text).unwrap().options().unwrap().unwrap()
    }

    #[test]
    fn options_are_read_in_every_form() {
        let flag = |name: &str| (name.to_owned(), OptionValue::Flag(true));
        let text = |name: &str, text: &str| (name.to_owned(), OptionValue::Text(text.to_owned()));
        let csv = ("format".to_owned(), OptionValue::Word("csv".to_owned()));
        let expected = [csv.clone(), flag("header"), text("delimiter", "|")];
        assert_eq!(options("COPY t TO 'x' (FORMAT csv, HEADER, DELIMITER '|')"), expected);
        assert_eq!(options("copy t from 'it''s' with (format csv, header, delimiter '|')"), expected);
        assert_eq!(options("COPY t FROM 'x' WITH CSV HEADER DELIMITER AS '|'"), expected);
        assert_eq!(options("COPY (SELECT 'to' FROM t) TO 'x'"), []);
        let quoted = options("COPY t TO 'x' CSV FORCE QUOTE *");
        assert_eq!(quoted, [csv, ("force_quote".to_owned(), OptionValue::All)]);
    }

    #[test]
    fn other_statements_are_left_alone() {
        for text in ["SELECT 1", "COPY t TO STDOUT", "EXPLAIN SELECT 'copy' FROM t", "COPY t"] {
            assert_eq!(CopyText::of(text), None, "{text}");
        }
        let own = CopyText::of("COPY t TO 'x' STORED AS CSV").unwrap();
        assert_eq!(own.options().unwrap(), None);
    }
}
