//! Statements about the catalog, and others that DataFusion does not plan, by their syntax.
//!
//! ```sql
//! ATTACH 'other' AS o (READ_ONLY);   USE o.sales;   CREATE SCHEMA s;   CREATE SEQUENCE ids START 5;
//! CREATE MACRO twice(x) AS 2 * x;    PREPARE p AS SELECT ?;            EXECUTE p(1);   CHECKPOINT;
//! ```

use datafusion::common::TableReference;
use datafusion::sql::sqlparser::ast::{Expr, FunctionArg, Ident, ObjectName, UnaryOperator, Value};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;
use nandina_storage::Sequence;

use super::macros;
use super::wrong_plans::normalized;
use crate::error::{Error, Result};

/// What to do about an object that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfThere {
    Fail,
    Keep,
    Replace,
}

#[derive(Debug)]
pub(crate) enum CatalogStatement {
    CreateSchema {
        name: Vec<String>,
        if_there: IfThere,
    },
    DropSchema {
        name: Vec<String>,
        if_exists: bool,
        cascade: bool,
    },
    CreateSequence {
        name: TableReference,
        sequence: Box<Sequence>,
        if_there: IfThere,
        is_temporary: bool,
    },
    DropSequence {
        name: TableReference,
        if_exists: bool,
    },
    CreateMacro {
        name: TableReference,
        if_there: IfThere,
        is_temporary: bool,
        statement: String,
    },
    DropMacro {
        name: TableReference,
        if_exists: bool,
    },
    /// `ALTER VIEW … RENAME TO`
    RenameView {
        view: TableReference,
        if_exists: bool,
        name: String,
    },
    Attach {
        path: String,
        name: Option<String>,
        is_read_only: bool,
        if_there: IfThere,
    },
    Detach {
        name: String,
        if_exists: bool,
    },
    Use {
        name: Vec<String>,
    },
    /// `PREPARE name (types) AS`, and where the text of the statement begins.
    Prepare {
        name: String,
        types: Vec<datafusion::sql::sqlparser::ast::DataType>,
        text: String,
    },
    Execute {
        name: String,
        arguments: Vec<FunctionArg>,
    },
    Deallocate {
        name: Option<String>,
    },
    /// `DESCRIBE t` and `DESCRIBE SELECT …`, of this query.
    Describe {
        query: String,
    },
    Show(Shown),
    Checkpoint,
    /// `VACUUM INTO 'directory'`
    Backup {
        directory: String,
    },
    /// `VACUUM`, of all tables or of one.
    Vacuum {
        table: Option<ObjectName>,
    },
    /// What it asks for is done anyway: everything that is acknowledged is lasting, and statistics are always known.
    Nothing,
}

impl CatalogStatement {
    /// Whether it changes what others see, or waits until others do not.
    pub(crate) fn changes_database(&self) -> bool {
        match self {
            Self::CreateSchema { .. }
            | Self::DropSchema { .. }
            | Self::CreateSequence { .. }
            | Self::DropSequence { .. }
            | Self::CreateMacro { .. }
            | Self::DropMacro { .. }
            | Self::RenameView { .. }
            | Self::Attach { .. }
            | Self::Detach { .. }
            | Self::Backup { .. }
            | Self::Vacuum { .. } => true,
            Self::Use { .. }
            | Self::Prepare { .. }
            | Self::Execute { .. }
            | Self::Deallocate { .. }
            | Self::Describe { .. }
            | Self::Show(_)
            | Self::Checkpoint
            | Self::Nothing => false,
        }
    }
}

/// What `SHOW` and some of `PRAGMA` list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    AllTables,
    Databases,
    Schemas,
}

/// First words of statements that may be of these.
const FIRST_WORDS: [&str; 18] = [
    "alter",
    "attach",
    "detach",
    "use",
    "create",
    "drop",
    "prepare",
    "execute",
    "deallocate",
    "describe",
    "desc",
    "show",
    "checkpoint",
    "force",
    "vacuum",
    "analyze",
    "call",
    "pragma",
];

/// Whether a text may be one of these statements, by its first word.
pub(crate) fn may_be_one(text: &str) -> bool {
    let first = text.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
    FIRST_WORDS.iter().any(|word| first.eq_ignore_ascii_case(word))
}

/// Recognises one of these statements, where [`may_be_one`] says so; others are `None`.
pub(crate) fn parse(parser: &mut Parser<'_>, text: &str) -> Option<Result<CatalogStatement>> {
    let parsed = statement(parser, text).transpose()?;
    let parsed = parsed.map_err(Error::from_parser).and_then(|statement| {
        while parser.consume_token(&Token::SemiColon) {}
        match parser.peek_token().token {
            Token::EOF => Ok(statement),
            other => Err(Error::Syntax { message: format!("expected end of statement, found: {other}") }),
        }
    });
    Some(parsed)
}

fn statement(parser: &mut Parser<'_>, text: &str) -> Result<Option<CatalogStatement>, ParserError> {
    let Token::Word(first) = parser.next_token().token else { return Ok(None) };
    Ok(Some(match first.value.to_ascii_lowercase().as_str() {
        "alter" if word(parser, "VIEW") => return alter_view(parser),
        "attach" => attach(parser)?,
        "detach" => {
            word(parser, "DATABASE");
            let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
            CatalogStatement::Detach { name: normalized(&parser.parse_identifier()?), if_exists }
        }
        "use" => CatalogStatement::Use { name: parts(&parser.parse_object_name(false)?) },
        "vacuum" if parser.parse_keyword(Keyword::INTO) => {
            CatalogStatement::Backup { directory: parser.parse_literal_string()? }
        }
        "checkpoint" => {
            rest(parser);
            CatalogStatement::Checkpoint
        }
        "vacuum" => vacuum(parser)?,
        "analyze" => rest(parser),
        "force" if word(parser, "CHECKPOINT") => {
            rest(parser);
            CatalogStatement::Checkpoint
        }
        "call" => {
            let name = parser.parse_object_name(false)?.to_string().to_lowercase();
            // Nothing is logged into tables.
            match name.as_str() {
                "disable_logging" | "truncate_duckdb_logs" => rest(parser),
                _ => return Ok(None),
            }
        }
        "create" => return create(parser, text),
        "drop" => return drop_object(parser),
        "prepare" => prepare(parser, text)?,
        "execute" => {
            let name = normalized(&parser.parse_identifier()?);
            let mut arguments = Vec::new();
            if parser.consume_token(&Token::LParen) && !parser.consume_token(&Token::RParen) {
                arguments = parser.parse_comma_separated(Parser::parse_function_args)?;
                parser.expect_token(&Token::RParen)?;
            }
            CatalogStatement::Execute { name, arguments }
        }
        "deallocate" => {
            word(parser, "PREPARE");
            let name = parser.parse_identifier()?;
            let is_all = name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all");
            CatalogStatement::Deallocate { name: (!is_all).then(|| normalized(&name)) }
        }
        "describe" | "desc" => {
            word(parser, "TABLE");
            return described(parser, text).map(Some);
        }
        "show" if word(parser, "COLUMNS") => {
            word(parser, "FROM");
            return described(parser, text).map(Some);
        }
        "show" if word(parser, "DATABASES") => CatalogStatement::Show(Shown::Databases),
        "show" if word(parser, "SCHEMAS") => CatalogStatement::Show(Shown::Schemas),
        "show" if parser.parse_keyword(Keyword::ALL) && word(parser, "TABLES") => {
            CatalogStatement::Show(Shown::AllTables)
        }
        "pragma" => return pragma(parser),
        _ => return Ok(None),
    }))
}

/// Takes a word that need not be one of the parser's keywords.
fn word(parser: &mut Parser<'_>, expected: &str) -> bool {
    let is_next = matches!(
        parser.peek_token().token,
        Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected)
    );
    if is_next {
        parser.advance_token();
    }
    is_next
}

/// A statement that is accepted whatever follows.
/// What is behind `VACUUM` of Postgres and DuckDB: how, and which table and columns.
fn vacuum(parser: &mut Parser<'_>) -> Result<CatalogStatement, ParserError> {
    if parser.consume_token(&Token::LParen) {
        while !parser.consume_token(&Token::RParen) {
            if parser.peek_token().token == Token::EOF {
                return parser.expected(")", parser.peek_token());
            }
            parser.advance_token();
        }
    }
    while ["FULL", "FREEZE", "VERBOSE", "ANALYZE"].iter().any(|how| word(parser, how)) {}
    let is_all = matches!(parser.peek_token().token, Token::EOF | Token::SemiColon);
    let table = if is_all { None } else { Some(parser.parse_object_name(false)?) };
    rest(parser);
    Ok(CatalogStatement::Vacuum { table })
}

fn rest(parser: &mut Parser<'_>) -> CatalogStatement {
    while !matches!(parser.peek_token().token, Token::EOF | Token::SemiColon) {
        parser.advance_token();
    }
    CatalogStatement::Nothing
}

fn alter_view(parser: &mut Parser<'_>) -> Result<Option<CatalogStatement>, ParserError> {
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let view = parser.parse_object_name(false)?;
    if !parser.parse_keywords(&[Keyword::RENAME, Keyword::TO]) {
        return Err(ParserError::ParserError(
            "ALTER VIEW v is followed by RENAME TO w; CREATE OR REPLACE VIEW v changes what it is".to_owned(),
        ));
    }
    let name = normalized(&parser.parse_identifier()?);
    Ok(Some(CatalogStatement::RenameView { view: reference(&view)?, if_exists, name }))
}

fn attach(parser: &mut Parser<'_>) -> Result<CatalogStatement, ParserError> {
    word(parser, "DATABASE");
    let mut if_there = IfThere::Fail;
    if parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]) {
        if_there = IfThere::Keep;
    }
    let path = parser.parse_literal_string()?;
    let name = match parser.parse_keyword(Keyword::AS) {
        true => Some(normalized(&parser.parse_identifier()?)),
        false => None,
    };
    let mut is_read_only = false;
    if parser.consume_token(&Token::LParen) {
        loop {
            let option = parser.parse_identifier()?.value.to_ascii_lowercase();
            let value = match parser.peek_token().token {
                Token::Comma | Token::RParen => None,
                _ => Some(parser.parse_expr()?.to_string()),
            };
            let is_on =
                !value.is_some_and(|value| ["false", "0", "off"].contains(&value.to_lowercase().as_str()));
            match option.as_str() {
                "read_only" | "readonly" => is_read_only = is_on,
                "read_write" => is_read_only = !is_on,
                // They choose how another engine's file is laid out.
                "row_group_size" | "storage_version" | "block_size" => {}
                "type" => {
                    return Err(ParserError::ParserError(
                        "ATTACH has no option TYPE: databases are directories of Nandina's".to_owned(),
                    ));
                }
                other => {
                    return Err(ParserError::ParserError(format!(
                        "ATTACH has no option '{other}'; there is: read_only"
                    )));
                }
            }
            if !parser.consume_token(&Token::Comma) {
                break;
            }
        }
        parser.expect_token(&Token::RParen)?;
    }
    Ok(CatalogStatement::Attach { path, name, is_read_only, if_there })
}

/// `CREATE SCHEMA`, `SEQUENCE`, `MACRO` and `FUNCTION`.
fn create(parser: &mut Parser<'_>, text: &str) -> Result<Option<CatalogStatement>, ParserError> {
    let mut if_there = IfThere::Fail;
    if parser.parse_keywords(&[Keyword::OR, Keyword::REPLACE]) {
        if_there = IfThere::Replace;
    }
    let is_temporary = parser.parse_one_of_keywords(&[Keyword::TEMP, Keyword::TEMPORARY]).is_some();
    let kinds = ["SCHEMA", "SEQUENCE", "MACRO", "FUNCTION"];
    let Some(kind) = kinds.into_iter().find(|kind| word(parser, kind)) else { return Ok(None) };
    if parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS]) {
        if_there = IfThere::Keep;
    }
    let name = parser.parse_object_name(false)?;
    Ok(Some(match kind {
        "SCHEMA" => CatalogStatement::CreateSchema { name: parts(&name), if_there },
        "SEQUENCE" => {
            let sequence = Box::new(sequence_options(parser)?);
            CatalogStatement::CreateSequence { name: reference(&name)?, sequence, if_there, is_temporary }
        }
        _ => {
            macros::parse_overloads(parser)?;
            let statement = text.trim().trim_end_matches(';').to_owned();
            CatalogStatement::CreateMacro { name: reference(&name)?, if_there, is_temporary, statement }
        }
    }))
}

pub(super) fn sequence_options(parser: &mut Parser<'_>) -> Result<Sequence, ParserError> {
    let (mut start, mut increment, mut least, mut greatest, mut cycles) = (None, 1, None, None, false);
    loop {
        if word(parser, "START") {
            word(parser, "WITH");
            start = Some(whole_number(parser)?);
        } else if word(parser, "INCREMENT") {
            word(parser, "BY");
            increment = whole_number(parser)?;
        } else if word(parser, "MINVALUE") {
            least = Some(whole_number(parser)?);
        } else if word(parser, "MAXVALUE") {
            greatest = Some(whole_number(parser)?);
        } else if word(parser, "CYCLE") {
            cycles = true;
        } else if word(parser, "NO") {
            if word(parser, "CYCLE") {
                cycles = false;
            } else if !word(parser, "MINVALUE") && !word(parser, "MAXVALUE") {
                return Err(ParserError::ParserError(
                    "NO is followed by CYCLE, MINVALUE or MAXVALUE".to_owned(),
                ));
            }
        } else {
            break;
        }
    }
    let refuse = |message: &str| Err(ParserError::ParserError(message.to_owned()));
    if increment == 0 {
        return refuse("INCREMENT must not be zero");
    }
    let is_down = increment < 0;
    let least = least.unwrap_or(if is_down { i64::MIN } else { 1 });
    let greatest = greatest.unwrap_or(if is_down { -1 } else { i64::MAX });
    let start = start.unwrap_or(if is_down { greatest } else { least });
    if least > greatest {
        return refuse("MINVALUE must be below MAXVALUE");
    }
    if !(least..=greatest).contains(&start) {
        return refuse("START must be between MINVALUE and MAXVALUE");
    }
    Ok(Sequence { name: String::new(), start, increment, least, greatest, cycles, given: None, owner: None })
}

fn whole_number(parser: &mut Parser<'_>) -> Result<i64, ParserError> {
    let written = parser.parse_expr()?;
    let digits = match &written {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => format!("-{expr}"),
        Expr::UnaryOp { op: UnaryOperator::Plus, expr } => expr.to_string(),
        other => other.to_string(),
    };
    digits.parse().map_err(|_| ParserError::ParserError(format!("expected a whole number, found: {written}")))
}

fn drop_object(parser: &mut Parser<'_>) -> Result<Option<CatalogStatement>, ParserError> {
    let kinds = ["SCHEMA", "SEQUENCE", "MACRO", "FUNCTION"];
    let Some(kind) = kinds.into_iter().find(|kind| word(parser, kind)) else { return Ok(None) };
    if kind == "MACRO" || kind == "FUNCTION" {
        word(parser, "TABLE");
    }
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let name = parser.parse_object_name(false)?;
    let cascade = word(parser, "CASCADE");
    word(parser, "RESTRICT");
    Ok(Some(match kind {
        "SCHEMA" => CatalogStatement::DropSchema { name: parts(&name), if_exists, cascade },
        "SEQUENCE" => CatalogStatement::DropSequence { name: reference(&name)?, if_exists },
        _ => CatalogStatement::DropMacro { name: reference(&name)?, if_exists },
    }))
}

fn prepare(parser: &mut Parser<'_>, text: &str) -> Result<CatalogStatement, ParserError> {
    let name = normalized(&parser.parse_identifier()?);
    let mut types = Vec::new();
    if parser.consume_token(&Token::LParen) {
        types = parser.parse_comma_separated(Parser::parse_data_type)?;
        parser.expect_token(&Token::RParen)?;
    }
    parser.expect_keyword_is(Keyword::AS)?;
    let text = remaining(parser, text);
    Ok(CatalogStatement::Prepare { name, types, text })
}

/// What is described: a query, or all columns of a table.
fn described(parser: &mut Parser<'_>, text: &str) -> Result<CatalogStatement, ParserError> {
    let words = ["SELECT", "WITH", "FROM", "VALUES", "TABLE", "PIVOT", "UNPIVOT"];
    let is_query = match parser.peek_token().token {
        Token::LParen => true,
        Token::Word(first) => {
            first.quote_style.is_none() && words.iter().any(|word| first.value.eq_ignore_ascii_case(word))
        }
        _ => false,
    };
    let query = match (is_query, parser.peek_token().token) {
        (true, _) => remaining(parser, text),
        (false, Token::SingleQuotedString(file)) => {
            parser.advance_token();
            format!("SELECT * FROM '{}'", file.replace('\'', "''"))
        }
        (false, _) => format!("SELECT * FROM {}", parser.parse_object_name(false)?),
    };
    Ok(CatalogStatement::Describe { query })
}

/// The text from the parser's place on, which it is moved behind.
fn remaining(parser: &mut Parser<'_>, text: &str) -> String {
    let start = parser.peek_token().span.start;
    rest(parser);
    let line_start = match start.line.saturating_sub(1) {
        0 => 0,
        lines => text.match_indices('\n').nth(lines as usize - 1).map_or(text.len(), |(at, _)| at + 1),
    };
    let line = text.get(line_start..).unwrap_or_default();
    let column = (start.column as usize).saturating_sub(1);
    let at = line.char_indices().nth(column).map_or(line.len(), |(at, _)| at);
    line.get(at..).unwrap_or_default().trim_end().trim_end_matches(';').to_owned()
}

/// Those that ask; those that set something are settings.
fn pragma(parser: &mut Parser<'_>) -> Result<Option<CatalogStatement>, ParserError> {
    let name = parser.parse_object_name(false)?.to_string().to_lowercase();
    let argument = if parser.consume_token(&Token::LParen) {
        let argument = parser.parse_expr()?;
        parser.expect_token(&Token::RParen)?;
        Some(match argument {
            Expr::Value(value) => match value.value {
                Value::SingleQuotedString(text) => text,
                other => other.to_string(),
            },
            other => other.to_string(),
        })
    } else {
        None
    };
    Ok(Some(match (name.as_str(), argument) {
        ("table_info" | "show", Some(table)) => {
            CatalogStatement::Describe { query: format!("SELECT * FROM {table}") }
        }
        ("show_databases" | "database_list", None) => CatalogStatement::Show(Shown::Databases),
        ("show_tables_expanded", None) => CatalogStatement::Show(Shown::AllTables),
        _ => return Ok(None),
    }))
}

/// The parts of a name as the planner knows them.
pub(crate) fn parts(name: &ObjectName) -> Vec<String> {
    name.0.iter().filter_map(|part| part.as_ident()).map(normalized).collect()
}

pub(crate) fn reference(name: &ObjectName) -> Result<TableReference, ParserError> {
    match parts(name).as_slice() {
        [name] => Ok(TableReference::bare(name.as_str())),
        [schema, name] => Ok(TableReference::partial(schema.as_str(), name.as_str())),
        [database, schema, name] => {
            Ok(TableReference::full(database.as_str(), schema.as_str(), name.as_str()))
        }
        _ => {
            Err(ParserError::ParserError(format!("'{name}' has too many parts; write database.schema.name")))
        }
    }
}

/// A name in quotes, as an object of the catalog is written.
pub(crate) fn object_name(parts: &[String]) -> ObjectName {
    ObjectName::from(parts.iter().map(|part| Ident::with_quote('"', part)).collect::<Vec<_>>())
}
