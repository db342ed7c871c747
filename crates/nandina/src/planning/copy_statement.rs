//! `COPY` as Postgres and DuckDB write it.
//!
//! ```text
//!   COPY t (a, b) TO 'x.csv' │ WITH (HEADER, DELIMITER '|')     options behind the file
//!   COPY (SELECT …) TO 'x.gz'│ (FORMAT csv, COMPRESSION gzip)
//!   COPY t FROM 'x.csv'      │ DELIMITER '|' CSV HEADER         as in Postgres before 9
//!        └── the head ───────┴─ the options, which DataFusion's parser does not know
//! ```
//!
//! DataFusion's own form (`STORED AS CSV PARTITIONED BY (a) OPTIONS (…)`) is left to its parser.

use std::path::Path;

use datafusion::sql::parser::{CopyToStatement, Statement};
use datafusion::sql::sqlparser::ast::{Expr, Value};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::error::{Error, Result};
use crate::files::names::{Format, absolute_path, compression_of};
use crate::files::option_value::OptionValue;
use crate::files::reading::unknown_option;
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
        let parsed = Parser::new(&Sql).try_with_sql(self.options).and_then(|mut parser| {
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

/// Options of all formats.
const ANY_FORMAT: [&str; 6] = [
    "append",
    "format",
    "overwrite_or_ignore",
    "partition_by",
    "per_thread_output",
    "write_partition_columns",
];
const CSV: [&str; 11] = [
    "compression",
    "dateformat",
    "delim",
    "delimiter",
    "escape",
    "force_quote",
    "header",
    "null",
    "nullstr",
    "quote",
    "timestampformat",
];
const JSON: [&str; 1] = ["compression"];
const PARQUET: [&str; 4] = ["compression", "compression_level", "row_group_size", "row_group_size_bytes"];

/// Gives the options to the `COPY … TO` in a statement.
pub(crate) fn give_options(statement: &mut Statement, options: Vec<CopyOption>) -> Result<()> {
    match statement {
        Statement::Explain(explain) => give_options(&mut explain.statement, options),
        Statement::CopyTo(copy) => give(copy, options),
        _ => Ok(()),
    }
}

fn give(copy: &mut CopyToStatement, options: Vec<CopyOption>) -> Result<()> {
    let said = options.iter().find(|(name, _)| name == "format");
    let format = match said {
        Some((_, value)) => value.text("format")?.to_lowercase(),
        None => match Format::of_name(&copy.target) {
            Some(format) => format.keyword().to_owned(),
            // It is refused with all formats that there are.
            None if options.is_empty() => return Ok(()),
            None => "csv".to_owned(),
        },
    };
    let Some(known) = Format::named(&format).map(Format::keyword) else {
        copy.stored_as = Some(format);
        return Ok(());
    };
    copy.stored_as = Some(known.to_owned());
    let own: &[&str] = match known {
        "csv" => &CSV,
        "json" => &JSON,
        "parquet" => &PARQUET,
        _ => &[],
    };
    let mut adds_files = false;
    let mut is_folder = false;
    let mut compression = compression_of(&copy.target).map(str::to_owned);
    let about = format!("COPY … TO '{}'", copy.target);
    for (option, value) in options {
        if option.contains('.') {
            // One of DataFusion's.
            let text = value.text(&option).unwrap_or_else(|_| value.to_string());
            copy.options.push((option, Value::SingleQuotedString(text)));
            continue;
        }
        let plain = |name: &str| name.replace('_', "");
        let listed = || own.iter().chain(&ANY_FORMAT).copied();
        let Some(name) =
            listed().find(|name| plain(name) == plain(&option) || (*name == "delim" && option == "sep"))
        else {
            return Err(unknown_option(&about, &option, listed()));
        };
        let mut set = |name: &str, text: String| {
            copy.options.push((format!("format.{name}"), Value::SingleQuotedString(text)));
        };
        match name {
            "format" => {}
            "append" | "overwrite_or_ignore" => {
                let is_on = value.flag(name)?;
                adds_files |= is_on && name == "append";
            }
            "per_thread_output" => is_folder |= value.flag(name)?,
            "partition_by" => {
                copy.partitioned_by = match &value {
                    OptionValue::All => return Err(value.refused(name, "a list of columns")),
                    value => value.texts(name)?,
                };
            }
            "write_partition_columns" => copy.options.push((
                "execution.keep_partition_by_columns".to_owned(),
                Value::SingleQuotedString(value.flag(name)?.to_string()),
            )),
            "header" => set("has_header", value.flag(name)?.to_string()),
            "delim" | "delimiter" => set("delimiter", one_byte(name, &value)?),
            "quote" => match value.byte(name)? {
                Some(_) => set("quote", one_byte(name, &value)?),
                None => set("quote_style", "Never".to_owned()),
            },
            "escape" => {
                // A quote that is escaped by itself is doubled, which is usual.
                let escape = one_byte(name, &value)?;
                if escape != "\"" {
                    set("escape", escape);
                    set("double_quote", "false".to_owned());
                }
            }
            "null" | "nullstr" => set("null_value", value.text(name)?),
            "force_quote" => match &value {
                OptionValue::All | OptionValue::Flag(true) => set("quote_style", "Always".to_owned()),
                value => return Err(value.refused(name, "*")),
            },
            "dateformat" => set("date_format", value.text(name)?),
            "timestampformat" => {
                set("timestamp_format", value.text(name)?);
                set("timestamp_tz_format", value.text(name)?);
            }
            "compression" if known == "parquet" => set("compression", value.text(name)?.to_lowercase()),
            "compression" => compression = Some(value.text(name)?.to_lowercase()),
            "row_group_size" => {
                let rows = value.count(name)?.ok_or_else(|| value.refused(name, "a count"))?;
                set("max_row_group_size", rows.to_string());
            }
            "row_group_size_bytes" => {
                let text = match &value {
                    OptionValue::Number(bytes) => bytes.clone(),
                    value => value.text(name)?,
                };
                let bytes = crate::byte_size::parse(&text, u64::MAX)
                    .map_err(|_| value.refused(name, "a number of bytes, as '64MB'"))?;
                set("max_row_group_bytes", bytes.to_string());
            }
            "compression_level" => {
                let level = value.count(name)?.ok_or_else(|| value.refused(name, "a count"))?;
                set("compression_level", level.to_string());
            }
            _ => unreachable!("the option {name} is listed, and not set"),
        }
    }
    if known == "parquet" {
        settle_parquet_compression(copy);
    } else if let Some(compression) = compression.filter(|_| known != "arrow") {
        let name = match compression.as_str() {
            "none" | "uncompressed" | "auto" => "uncompressed",
            "gz" => "gzip",
            "zst" => "zstd",
            "bz2" => "bzip2",
            other => other,
        };
        copy.options.push(("format.compression".to_owned(), Value::SingleQuotedString(name.to_owned())));
    }
    if !copy.partitioned_by.is_empty() {
        refuse_filled_folder(&copy.target, adds_files)?;
    } else if is_folder {
        if !copy.target.ends_with('/') {
            copy.target.push('/');
        }
    } else if !copy.target.ends_with('/') && Path::new(&copy.target).extension().is_none() {
        let one = Value::SingleQuotedString("true".to_owned());
        copy.options.push(("format.single_file_output".to_owned(), one));
    }
    Ok(())
}

fn one_byte(name: &str, value: &OptionValue) -> Result<String> {
    let byte = value.byte(name)?.ok_or_else(|| value.refused(name, "a single ASCII character"))?;
    Ok(char::from(byte).to_string())
}

/// Writes the way of compressing and its level as DataFusion does: `zstd(3)`.
fn settle_parquet_compression(copy: &mut CopyToStatement) {
    let mut take = |name: &str| {
        let at = copy.options.iter().position(|(option, _)| option == name)?;
        match copy.options.remove(at).1 {
            Value::SingleQuotedString(text) => Some(text),
            _ => None,
        }
    };
    let level = take("format.compression_level");
    let compression = take("format.compression").or_else(|| level.is_some().then(|| "zstd".to_owned()));
    let Some(compression) = compression else { return };
    let written = match (compression.as_str(), level) {
        ("none" | "uncompressed", _) => "uncompressed".to_owned(),
        ("lz4", _) => "lz4_raw".to_owned(),
        ("zstd", level) => format!("zstd({})", level.unwrap_or_else(|| "3".to_owned())),
        ("gzip", level) => format!("gzip({})", level.unwrap_or_else(|| "6".to_owned())),
        ("brotli", level) => format!("brotli({})", level.unwrap_or_else(|| "3".to_owned())),
        (other, _) => other.to_owned(),
    };
    copy.options.push(("format.compression".to_owned(), Value::SingleQuotedString(written)));
}

/// Files that are written into a folder are added to those that are there, which would be read with them.
fn refuse_filled_folder(target: &str, adds_files: bool) -> Result<()> {
    let path = absolute_path(target)?;
    let is_filled = std::fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_some());
    if is_filled && !adds_files {
        let message = "the folder is not empty, and no file in it would be replaced; remove it, write to another one, or \
                       say APPEND to add files";
        return Err(Error::file(target, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::parser::DFParserBuilder;

    fn options(text: &str) -> Vec<CopyOption> {
        CopyText::of(text).unwrap().options().unwrap().unwrap()
    }

    fn written(text: &str) -> String {
        let copy = CopyText::of(text).unwrap();
        let head = copy.head_to_parse();
        let mut statement = DFParserBuilder::new(head.as_str()).build().unwrap().parse_statement().unwrap();
        give_options(&mut statement, copy.options().unwrap().unwrap()).unwrap();
        statement.to_string()
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

    #[test]
    fn options_become_those_of_datafusion() {
        let copy = written("EXPLAIN COPY t (a, b) TO 'x.csv.gz' (HEADER 0)");
        assert!(copy.contains("COPY (SELECT a, b FROM t) TO x.csv.gz STORED AS csv OPTIONS"), "{copy}");
        assert!(
            copy.contains("'format.has_header' 'false'") && copy.contains("'format.compression' 'gzip'"),
            "{copy}"
        );
        let copy = written(
            "COPY t TO 'd' (FORMAT parquet, PARTITION_BY (a, b), COMPRESSION zstd, ROW_GROUP_SIZE 1000)",
        );
        assert!(copy.contains("STORED AS parquet"), "{copy}");
        assert!(copy.contains("'format.compression' 'zstd(3)'"), "{copy}");
        assert!(copy.contains("'format.max_row_group_size' '1000'"), "{copy}");
    }

    #[test]
    fn unknown_options_are_refused() {
        let copy = CopyText::of("COPY t TO 'x.csv' (HAEDER)").unwrap();
        let mut statement =
            DFParserBuilder::new(copy.head_to_parse().as_str()).build().unwrap().parse_statement().unwrap();
        let message = give_options(&mut statement, copy.options().unwrap().unwrap()).unwrap_err().to_string();
        assert!(
            message.starts_with("COPY … TO 'x.csv' has no option 'haeder'; did you mean 'header'?"),
            "{message}"
        );
        let broken = CopyText::of("COPY t TO 'x.csv' (HEADER true false)").unwrap().options();
        assert!(broken.unwrap_err().to_string().contains("the options of COPY: expected"));
    }
}
