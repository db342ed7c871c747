//! Which SQL the parser reads: the words and operators of DuckDB and Postgres, with Postgres' precedence.

use std::any::TypeId;

use datafusion::sql::sqlparser::ast::{
    ColumnOption, Expr, GeneratedAs, SequenceOptions, TypedString, UnaryOperator,
};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::lambdas;
use crate::planning::trees::call;

type Parsed<T> = Result<T, ParserError>;

/// The dialect of Nandina.
#[derive(Debug)]
pub(crate) struct Sql {
    /// Whether the table of an `INSERT` has a name of the statement's own behind it. Without `AS`, as the parser would read it too, every
    /// other word behind the table would be one.
    inserts_as: bool,
}

impl Sql {
    pub(crate) const PLAIN: Self = Self { inserts_as: false };
    pub(crate) const INSERT_AS: Self = Self { inserts_as: true };
}

/// Types that may stand before a text (`UUID '…'`) and are no keywords of the parser there.
const TYPES_OF_TEXTS: [&str; 17] = [
    "bit",
    "bitstring",
    "blob",
    "bytea",
    "hugeint",
    "json",
    "time_ns",
    "timestamp_ms",
    "timestamp_ns",
    "timestamp_s",
    "timestamptz",
    "timestamptz_ns",
    "timetz",
    "ubigint",
    "uhugeint",
    "uinteger",
    "uuid",
];

macro_rules! has {
    ($($flag:ident),* $(,)?) => { $(fn $flag(&self) -> bool { true })* };
}

impl Dialect for Sql {
    /// The parser asks for this where there is no method to ask for: the generic dialect knows the most.
    fn dialect(&self) -> TypeId {
        TypeId::of::<GenericDialect>()
    }

    fn is_delimited_identifier_start(&self, c: char) -> bool {
        GenericDialect.is_delimited_identifier_start(c)
    }

    fn is_identifier_start(&self, c: char) -> bool {
        GenericDialect.is_identifier_start(c)
    }

    fn is_identifier_part(&self, c: char) -> bool {
        GenericDialect.is_identifier_part(c)
    }

    has!(
        allow_extract_custom,
        allow_extract_single_quotes,
        supports_alter_column_type_using,
        support_map_literal_syntax,
        supports_array_typedef_with_brackets,
        supports_bitwise_shift_operators,
        supports_column_definition_trailing_commas,
        supports_comma_separated_set_assignments,
        supports_comma_separated_trim,
        supports_comment_on,
        supports_detach,
        supports_dictionary_syntax,
        supports_empty_projections,
        supports_explain_with_utility_options,
        supports_extract_comma_syntax,
        supports_filter_during_aggregation,
        supports_from_first_select,
        supports_from_trailing_commas,
        supports_group_by_expr,
        supports_group_by_with_modifier,
        supports_in_empty_list,
        supports_install,
        supports_left_associative_joins_without_parens,
        supports_limit_comma,
        supports_load_extension,
        supports_map_literal_with_angle_brackets,
        supports_named_fn_args_with_assignment_operator,
        supports_nested_comments,
        supports_notnull_operator,
        supports_numeric_literal_underscores,
        supports_order_by_all,
        supports_parens_around_table_factor,
        supports_parenthesized_set_variables,
        supports_projection_trailing_commas,
        supports_select_wildcard_except,
        supports_select_wildcard_exclude,
        supports_select_wildcard_ilike,
        supports_select_wildcard_rename,
        supports_select_wildcard_replace,
        supports_start_transaction_modifier,
        supports_string_escape_constant,
        supports_struct_literal,
        supports_trailing_commas,
        supports_unicode_string_literal,
        supports_update_order_by,
        supports_values_as_table_factor,
        supports_window_clause_named_window_reference,
        supports_window_function_null_treatment_arg,
    );

    /// The parser reads options of identity columns in one order only.
    fn parse_column_option(&self, parser: &mut Parser) -> Parsed<Option<Parsed<Option<ColumnOption>>>> {
        let generated_as = if parser.parse_keywords(&[
            Keyword::GENERATED,
            Keyword::ALWAYS,
            Keyword::AS,
            Keyword::IDENTITY,
        ]) {
            GeneratedAs::Always
        } else if parser.parse_keywords(&[
            Keyword::GENERATED,
            Keyword::BY,
            Keyword::DEFAULT,
            Keyword::AS,
            Keyword::IDENTITY,
        ]) {
            GeneratedAs::ByDefault
        } else {
            return Ok(None);
        };
        let mut options = Vec::new();
        if parser.consume_token(&Token::LParen) {
            while !parser.consume_token(&Token::RParen) {
                options.push(sequence_option(parser)?);
            }
        }
        Ok(Some(Ok(Some(ColumnOption::Generated {
            generated_as,
            sequence_options: Some(options),
            generation_expr: None,
            generation_expr_mode: None,
            generated_keyword: true,
        }))))
    }

    fn supports_insert_table_alias(&self) -> bool {
        self.inserts_as
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        match precedence {
            Precedence::Period => 200,
            Precedence::DoubleColon => 140,
            Precedence::AtTz => 110,
            Precedence::Caret => 100,
            Precedence::MulDivModOp => 90,
            Precedence::PlusMinus => 80,
            Precedence::Xor => 75,
            Precedence::Ampersand | Precedence::Pipe | Precedence::Colon | Precedence::PgOther => 70,
            Precedence::Between | Precedence::Like => 60,
            Precedence::Eq => 50,
            Precedence::Is => 40,
            Precedence::UnaryNot => 30,
            Precedence::And => 20,
            Precedence::Or => 10,
        }
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Parsed<u8>> {
        let precedence = match &parser.peek_token_ref().token {
            // Texts are put together, and bits moved, after numbers are computed.
            Token::StringConcat | Token::ShiftLeft | Token::ShiftRight | Token::Sharp => Precedence::PgOther,
            Token::Tilde
            | Token::TildeAsterisk
            | Token::ExclamationMarkTilde
            | Token::ExclamationMarkTildeAsterisk => Precedence::PgOther,
            Token::DoubleTilde
            | Token::DoubleTildeAsterisk
            | Token::ExclamationMarkDoubleTilde
            | Token::ExclamationMarkDoubleTildeAsterisk => Precedence::Like,
            _ => return None,
        };
        Some(Ok(self.prec_value(precedence)))
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Parsed<Expr>> {
        match &parser.peek_token_ref().token {
            Token::Minus => Some(self.signed(parser, UnaryOperator::Minus)),
            Token::Plus => Some(self.signed(parser, UnaryOperator::Plus)),
            Token::LBracket => lambdas::comprehension(parser).transpose(),
            Token::LParen if is_keyword(parser, 1, Keyword::FROM) => Some(sub_query(parser)),
            Token::LParen => lambdas::of_names_in_brackets(parser).transpose(),
            Token::Word(word) if word.quote_style.is_none() => match &parser.peek_nth_token_ref(1).token {
                Token::SingleQuotedString(_) if is_type_of_texts(&word.value) => Some(typed_text(parser)),
                Token::Arrow => lambdas::of_name(parser).transpose(),
                Token::Word(_) if word.keyword == Keyword::LAMBDA && lambdas::has_parameters(parser) => {
                    Some(lambdas::of_keyword(parser))
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn parse_infix(&self, parser: &mut Parser, left: &Expr, _precedence: u8) -> Option<Parsed<Expr>> {
        let Token::Word(word) = &parser.peek_token_ref().token else { return None };
        match word.keyword {
            Keyword::IS => self.distinct_from(parser, left).transpose(),
            Keyword::IN => self.in_list(parser, left, false).transpose(),
            Keyword::NOT if is_keyword(parser, 1, Keyword::IN) => {
                self.in_list(parser, left, true).transpose()
            }
            _ => None,
        }
    }
}

impl Sql {
    /// A sign binds more tightly than `^`: `-2 ^ 2` is 4.
    fn signed(&self, parser: &mut Parser, op: UnaryOperator) -> Parsed<Expr> {
        parser.advance_token();
        let operand = parser.parse_subexpr(self.prec_value(Precedence::Caret))?;
        Ok(Expr::UnaryOp { op, expr: Box::new(operand) })
    }

    /// `a IS [NOT] DISTINCT FROM b`: the parser would take `AND c` behind it for a part of `b`.
    fn distinct_from(&self, parser: &mut Parser, left: &Expr) -> Parsed<Option<Expr>> {
        let negated = is_keyword(parser, 1, Keyword::NOT);
        let at = 1 + usize::from(negated);
        let is_distinct =
            is_keyword(parser, at, Keyword::DISTINCT) && is_keyword(parser, at + 1, Keyword::FROM);
        if !is_distinct {
            return Ok(None);
        }
        (0..at + 2).for_each(|_| parser.advance_token());
        let right = Box::new(parser.parse_subexpr(self.prec_value(Precedence::Is))?);
        let left = Box::new(left.clone());
        Ok(Some(match negated {
            false => Expr::IsDistinctFrom(left, right),
            true => Expr::IsNotDistinctFrom(left, right),
        }))
    }

    /// Whether `((SELECT …), …)` begins at a token, of which the parser would read a query alone.
    fn begins_list_of_queries(&self, parser: &Parser, at: usize) -> bool {
        let token = |at: usize| &parser.peek_nth_token_ref(at).token;
        if *token(at) != Token::LParen || *token(at + 1) != Token::LParen {
            return false;
        }
        let mut open = 0_usize;
        for at in at + 1.. {
            match token(at) {
                Token::LParen => open += 1,
                Token::RParen if open <= 1 => return *token(at + 1) == Token::Comma,
                Token::RParen => open -= 1,
                Token::EOF => return false,
                _ => {}
            }
        }
        false
    }

    /// `x [NOT] IN l`, where `l` is a list and not a list of values in brackets.
    fn in_list(&self, parser: &mut Parser, left: &Expr, negated: bool) -> Parsed<Option<Expr>> {
        let at = 1 + usize::from(negated);
        if self.begins_list_of_queries(parser, at) {
            (0..at).for_each(|_| parser.advance_token());
            parser.expect_token(&Token::LParen)?;
            let list = parser.parse_comma_separated(|parser| parser.parse_expr())?;
            parser.expect_token(&Token::RParen)?;
            return Ok(Some(Expr::InList { expr: Box::new(left.clone()), list, negated }));
        }
        let is_value = match &parser.peek_nth_token_ref(at).token {
            Token::Word(word) => word.keyword != Keyword::UNNEST,
            Token::LBracket => true,
            _ => false,
        };
        if !is_value {
            return Ok(None);
        }
        (0..at).for_each(|_| parser.advance_token());
        let list = parser.parse_subexpr(self.prec_value(Precedence::Between))?;
        let contains = call("array_has", [list, left.clone()]);
        Ok(Some(match negated {
            false => contains,
            true => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(contains) },
        }))
    }
}

fn is_type_of_texts(word: &str) -> bool {
    TYPES_OF_TEXTS.iter().any(|name| word.eq_ignore_ascii_case(name))
}

fn sequence_option(parser: &mut Parser) -> Parsed<SequenceOptions> {
    if parser.parse_keyword(Keyword::START) {
        let with = parser.parse_keyword(Keyword::WITH);
        return Ok(SequenceOptions::StartWith(parser.parse_expr()?, with));
    }
    if parser.parse_keyword(Keyword::INCREMENT) {
        let by = parser.parse_keyword(Keyword::BY);
        return Ok(SequenceOptions::IncrementBy(parser.parse_expr()?, by));
    }
    let no = parser.parse_keyword(Keyword::NO);
    if parser.parse_keyword(Keyword::CYCLE) {
        return Ok(SequenceOptions::Cycle(no));
    }
    if parser.parse_keyword(Keyword::MINVALUE) {
        return Ok(SequenceOptions::MinValue(if no { None } else { Some(parser.parse_expr()?) }));
    }
    if parser.parse_keyword(Keyword::MAXVALUE) {
        return Ok(SequenceOptions::MaxValue(if no { None } else { Some(parser.parse_expr()?) }));
    }
    parser.expected("START, INCREMENT, MINVALUE, MAXVALUE or CYCLE", parser.peek_token())
}

fn is_keyword(parser: &Parser, at: usize, keyword: Keyword) -> bool {
    matches!(&parser.peek_nth_token_ref(at).token, Token::Word(word) if word.keyword == keyword)
}

/// `(FROM t SELECT a)`
fn sub_query(parser: &mut Parser) -> Parsed<Expr> {
    parser.expect_token(&Token::LParen)?;
    let query = parser.parse_query()?;
    parser.expect_token(&Token::RParen)?;
    Ok(Expr::Subquery(query))
}

/// `UUID '…'`
fn typed_text(parser: &mut Parser) -> Parsed<Expr> {
    let data_type = parser.parse_data_type()?;
    let value = parser.parse_value()?;
    Ok(Expr::TypedString(TypedString { data_type, value, uses_odbc_syntax: false }))
}
