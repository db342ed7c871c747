//! Functions of the elements of a list, and lists that are made by them.
//!
//! ```text
//!   list_filter(l, x -> x > 1)          list_filter(l, lambda x: x > 1)
//!   [x + 1 for x in l if x > 1]    =    list_transform(list_filter(l, lambda x: x > 1), lambda x: x + 1)
//! ```
//!
//! `->` is also the access to a field of a JSON text. It begins a lambda where an argument of one of the functions that take
//! one begins.

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, LambdaFunction, LambdaFunctionParameter, LambdaSyntax, OneOrManyWithParens, Value,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, Word};

use crate::planning::trees::call;

/// Functions that take a lambda.
const FUNCTIONS: [&str; 14] = [
    "any_match",
    "apply",
    "array_any_match",
    "array_apply",
    "array_filter",
    "array_reduce",
    "array_transform",
    "filter",
    "list_any_match",
    "list_apply",
    "list_filter",
    "list_reduce",
    "list_transform",
    "reduce",
];

/// `lambda x, y: …`
pub(super) fn of_keyword(parser: &mut Parser) -> Result<Expr, ParserError> {
    parser.expect_keyword(Keyword::LAMBDA)?;
    let parameters = parser.parse_comma_separated(|parser| parser.parse_identifier())?;
    parser.expect_token(&Token::Colon)?;
    Ok(lambda(parameters, parser.parse_expr()?))
}

/// Whether `lambda` begins one here, and is no column's name: names and a colon follow.
pub(super) fn has_parameters(parser: &Parser) -> bool {
    let mut at = 1;
    loop {
        let is_name = matches!(parser.peek_nth_token_ref(at).token, Token::Word(_));
        match (is_name, &parser.peek_nth_token_ref(at + 1).token) {
            (true, Token::Colon) => return true,
            (true, Token::Comma) => at += 2,
            _ => return false,
        }
    }
}

/// `x -> …`, if the name and the arrow here are a lambda.
pub(super) fn of_name(parser: &mut Parser) -> Result<Option<Expr>, ParserError> {
    if !is_argument(parser) {
        return Ok(None);
    }
    let parameter = parser.parse_identifier()?;
    parser.expect_token(&Token::Arrow)?;
    Ok(Some(lambda(vec![parameter], parser.parse_expr()?)))
}

/// `(x, y) -> …`, if that is what the bracket here begins.
pub(super) fn of_names_in_brackets(parser: &mut Parser) -> Result<Option<Expr>, ParserError> {
    let mut at = 1;
    while matches!(parser.peek_nth_token_ref(at).token, Token::Word(_)) {
        at += 1;
        match parser.peek_nth_token_ref(at).token {
            Token::Comma => at += 1,
            _ => break,
        }
    }
    let ends = parser.peek_nth_token_ref(at).token == Token::RParen
        && parser.peek_nth_token_ref(at + 1).token == Token::Arrow;
    if !ends || !is_argument(parser) {
        return Ok(None);
    }
    parser.expect_token(&Token::LParen)?;
    let parameters = parser.parse_comma_separated(|parser| parser.parse_identifier())?;
    parser.expect_token(&Token::RParen)?;
    parser.expect_token(&Token::Arrow)?;
    Ok(Some(lambda(parameters, parser.parse_expr()?)))
}

/// `[x + 1 for x in l if x > 1]`, if that is what begins with a bracket here begins.
pub(super) fn comprehension(parser: &mut Parser) -> Result<Option<Expr>, ParserError> {
    if !has_for(parser) {
        return Ok(None);
    }
    parser.expect_token(&Token::LBracket)?;
    let element = parser.parse_expr()?;
    parser.expect_keyword(Keyword::FOR)?;
    let parameters = parser.parse_comma_separated(|parser| parser.parse_identifier())?;
    parser.expect_keyword(Keyword::IN)?;
    let list = parser.parse_expr()?;
    let condition = match parser.parse_keyword(Keyword::IF) {
        true => Some(parser.parse_expr()?),
        false => None,
    };
    parser.expect_token(&Token::RBracket)?;
    Ok(Some(match condition {
        None => call("list_transform", [list, lambda(parameters, element)]),
        Some(condition) if parameters.len() == 1 => {
            let kept = call("list_filter", [list, lambda(parameters.clone(), condition)]);
            call("list_transform", [kept, lambda(parameters, element)])
        }
        // The number of an element is that in the whole list.
        Some(condition) => {
            let text = |text: &str| Expr::Value(Value::SingleQuotedString(text.to_owned()).with_empty_span());
            let both = call("named_struct", [text("is_kept"), condition, text("value"), element]);
            let pair = Ident::new("pair");
            let field = |name| {
                let field = call("get_field", [Expr::Identifier(pair.clone()), text(name)]);
                lambda(vec![pair.clone()], field)
            };
            let kept = call(
                "list_filter",
                [call("list_transform", [list, lambda(parameters, both)]), field("is_kept")],
            );
            call("list_transform", [kept, field("value")])
        }
    }))
}

/// A lambda with these parameters.
pub(crate) fn lambda(parameters: Vec<Ident>, body: Expr) -> Expr {
    let parameter = |name| LambdaFunctionParameter { name, data_type: None };
    Expr::Lambda(LambdaFunction {
        params: OneOrManyWithParens::Many(parameters.into_iter().map(parameter).collect()),
        body: Box::new(body),
        syntax: LambdaSyntax::LambdaKeyword,
    })
}

/// Whether an argument of a function that takes a lambda begins here.
fn is_argument(parser: &Parser) -> bool {
    let before = |index: usize| index.checked_sub(1).map(|index| (index, &parser.token_at(index).token));
    // Brackets that are closed before the argument, and not opened yet on the way back.
    let mut closed = 0_usize;
    let mut at = parser.index();
    let mut is_first = true;
    while let Some((index, token)) = before(at) {
        at = index;
        if matches!(token, Token::Whitespace(_)) {
            continue;
        }
        if std::mem::take(&mut is_first) && !matches!(token, Token::Comma | Token::LParen) {
            return false;
        }
        match token {
            Token::RParen | Token::RBracket | Token::RBrace => closed += 1,
            Token::LParen if closed == 0 => {
                let name = before(at).map(|(_, token)| token);
                return matches!(name, Some(Token::Word(word)) if takes_lambda(word));
            }
            Token::LParen | Token::LBracket | Token::LBrace => match closed.checked_sub(1) {
                Some(less) => closed = less,
                None => return false,
            },
            _ => {}
        }
    }
    false
}

fn takes_lambda(word: &Word) -> bool {
    FUNCTIONS.iter().any(|function| word.value.eq_ignore_ascii_case(function))
}

/// Whether a `for` stands between the bracket that opens here and the one that closes it.
fn has_for(parser: &Parser) -> bool {
    let mut open = 0_usize;
    for at in 0.. {
        match &parser.peek_nth_token_ref(at).token {
            Token::LBracket | Token::LParen | Token::LBrace => open += 1,
            Token::RBracket | Token::RParen | Token::RBrace if open <= 1 => return false,
            Token::RBracket | Token::RParen | Token::RBrace => open -= 1,
            Token::Word(word) if open == 1 && word.keyword == Keyword::FOR => return true,
            Token::EOF => return false,
            _ => {}
        }
    }
    false
}
