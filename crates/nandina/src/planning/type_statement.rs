//! `CREATE TYPE mood AS ENUM ('sad', 'happy')`, `CREATE TYPE id AS BIGINT` and `DROP TYPE mood`.

use datafusion::sql::sqlparser::ast::DataType;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

use crate::error::{Error, Result};
use crate::planning::syntax;
use crate::statement_text::tokens;

/// A statement about a type.
#[derive(Debug, PartialEq)]
pub(crate) enum TypeStatement {
    Create { name: String, if_not_exists: bool, or_replace: bool, of: DataType },
    Drop { name: String, if_exists: bool },
}

/// Recognises statements about types; others are `None`.
pub(crate) fn parse(text: &str) -> Result<Option<TypeStatement>> {
    let mut words = tokens(text).map(|(_, token)| token.to_ascii_uppercase());
    let is_of_type = match words.next().as_deref() {
        Some("CREATE") => match words.next().as_deref() {
            Some("OR") => words.nth(1).as_deref() == Some("TYPE"),
            word => word == Some("TYPE"),
        },
        Some("DROP") => words.next().as_deref() == Some("TYPE"),
        _ => false,
    };
    if !is_of_type {
        return Ok(None);
    }
    syntax::part(text, statement).map(Some).map_err(|error| Error::Syntax {
        message: format!("{error}; write CREATE TYPE name AS ENUM ('a', 'b'), or another type behind AS"),
    })
}

fn statement(parser: &mut Parser) -> std::result::Result<TypeStatement, ParserError> {
    if parser.parse_keywords(&[Keyword::DROP, Keyword::TYPE]) {
        let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        return Ok(TypeStatement::Drop { name: name(parser)?, if_exists });
    }
    parser.expect_keyword(Keyword::CREATE)?;
    let or_replace = parser.parse_keywords(&[Keyword::OR, Keyword::REPLACE]);
    parser.expect_keyword(Keyword::TYPE)?;
    let if_not_exists = parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]);
    let name = name(parser)?;
    parser.expect_keyword(Keyword::AS)?;
    Ok(TypeStatement::Create { name, if_not_exists, or_replace, of: parser.parse_data_type()? })
}

fn name(parser: &mut Parser) -> std::result::Result<String, ParserError> {
    Ok(parser.parse_identifier()?.value.to_lowercase())
}
