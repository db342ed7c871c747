//! Macros: `CREATE MACRO add(a, b := 5) AS a + b`, written out where they are called, before anything is planned.
//!
//! ```text
//!   SELECT add(x) FROM t                      SELECT (x + 5) FROM t
//!   FROM above(3)                             FROM (SELECT … WHERE x > 3) AS above
//! ```
//!
//! A macro is kept as the statement that made it. Parameters are replaced wherever their name stands by itself; what is
//! put in their place is in parentheses, and read as a part of the calling statement.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, Query,
    TableAlias, TableFactor, VisitorMut,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::catalog_statement::reference;
use super::wrong_plans::{normalized, visit_queries};
use super::{nesting, new_parser};
use crate::catalog::names::{Names, Place};
use crate::error::{Error, Result};
use crate::planning::walk::WalkMut as _;

/// Most calls that are written out in one statement: more are a macro that calls itself.
const MOST_CALLS: usize = 2000;

/// One way to call a macro.
#[derive(Debug, Clone)]
pub(crate) struct Overload {
    parameters: Vec<Parameter>,
    body: Body,
}

#[derive(Debug, Clone)]
struct Parameter {
    name: String,
    of: Option<DataType>,
    default: Option<Expr>,
}

#[derive(Debug, Clone)]
enum Body {
    Value(Box<Expr>),
    Table(Box<Query>),
}

/// What stands behind the name of a macro: `(a, b := 5) AS a + b, (a) AS TABLE SELECT a`.
pub(crate) fn parse_overloads(parser: &mut Parser<'_>) -> Result<Vec<Overload>, ParserError> {
    parser.parse_comma_separated(|parser| {
        parser.expect_token(&Token::LParen)?;
        let mut parameters: Vec<Parameter> = Vec::new();
        while !parser.consume_token(&Token::RParen) {
            if !parameters.is_empty() {
                parser.expect_token(&Token::Comma)?;
            }
            let parameter = parse_parameter(parser)?;
            if parameters.iter().any(|other| other.name == parameter.name) {
                return Err(ParserError::ParserError(format!(
                    "parameter '{}' is there twice",
                    parameter.name
                )));
            }
            parameters.push(parameter);
        }
        parser.expect_keyword_is(Keyword::AS)?;
        let body = match parser.parse_keyword(Keyword::TABLE) {
            true => Body::Table(parser.parse_query()?),
            false => Body::Value(Box::new(parser.parse_expr()?)),
        };
        Ok(Overload { parameters, body })
    })
}

fn parse_parameter(parser: &mut Parser<'_>) -> Result<Parameter, ParserError> {
    let name = normalized(&parser.parse_identifier()?);
    let is_typed = !matches!(
        parser.peek_token().token,
        Token::Comma | Token::RParen | Token::Assignment | Token::RArrow
    );
    let of = if is_typed { Some(parser.parse_data_type()?) } else { None };
    let has_default = parser.consume_token(&Token::Assignment) || parser.consume_token(&Token::RArrow);
    let default = if has_default { Some(parser.parse_expr()?) } else { None };
    Ok(Parameter { name, of, default })
}

/// Writes out the macros that a statement calls.
pub(crate) fn write_out(state: &SessionState, statement: &mut Statement) -> Result<()> {
    let Some(names) = state.config().get_extension::<Names>() else { return Ok(()) };
    let mut calls = Calls { state, names, known: HashMap::new(), written_out: 0 };
    if let ControlFlow::Break(error) = visit_queries(statement, &mut calls) {
        return Err(error);
    }
    if calls.written_out > 0 {
        // Inserted expressions make a statement deeper.
        nesting::settle(statement)?;
    }
    Ok(())
}

struct Calls<'a> {
    state: &'a SessionState,
    names: Arc<Names>,
    /// What the names of functions mean: none are no macros.
    known: HashMap<String, Option<Arc<Vec<Overload>>>>,
    written_out: usize,
}

impl Calls<'_> {
    fn named(&mut self, name: &ObjectName) -> Result<Option<Arc<Vec<Overload>>>> {
        let Ok(reference) = reference(name) else { return Ok(None) };
        let key = reference.to_string();
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let statement = statement_of(&self.names, &reference);
        let overloads =
            statement.map(|statement| overloads_of(self.state, &statement)).transpose()?.map(Arc::new);
        self.known.insert(key, overloads.clone());
        Ok(overloads)
    }

    fn count(&mut self, name: &ObjectName) -> Result<()> {
        self.written_out += 1;
        if self.written_out > MOST_CALLS {
            return Err(Error::unsupported(format!(
                "macro '{name}' is called more than {MOST_CALLS} times; a macro cannot call itself"
            )));
        }
        Ok(())
    }

    fn value(&mut self, expr: &Expr) -> Result<Option<Expr>> {
        let Expr::Function(function) = expr else { return Ok(None) };
        let Some(overloads) = self.named(&function.name)? else { return Ok(None) };
        let arguments = match &function.args {
            FunctionArguments::List(list) => list.args.as_slice(),
            _ => &[],
        };
        let Some((overload, values)) = bound(&overloads, arguments) else {
            return Err(mismatch(&function.name, &overloads));
        };
        let Body::Value(body) = &overload.body else {
            let name = &function.name;
            return Err(Error::unsupported(format!("macro '{name}' is a table; write it behind FROM")));
        };
        if function.over.is_some() || function.filter.is_some() {
            return Err(Error::unsupported(format!(
                "macro '{}' cannot have OVER or FILTER; write them in the macro",
                function.name
            )));
        }
        self.count(&function.name)?;
        let mut body = body.clone();
        match Arguments(&values).put_into(|arguments| body.walk_mut(arguments)) {
            ControlFlow::Continue(()) => Ok(Some(Expr::Nested(body))),
            ControlFlow::Break(never) => match never {},
        }
    }

    fn table(&mut self, factor: &TableFactor) -> Result<Option<TableFactor>> {
        let TableFactor::Table { name, alias, args: Some(arguments), .. } = factor else { return Ok(None) };
        let Some(overloads) = self.named(name)? else { return Ok(None) };
        let Some((overload, values)) = bound(&overloads, &arguments.args) else {
            return Err(mismatch(name, &overloads));
        };
        let Body::Table(body) = &overload.body else {
            return Err(Error::unsupported(format!(
                "macro '{name}' is a value; it cannot stand behind FROM"
            )));
        };
        self.count(name)?;
        let mut subquery = body.clone();
        match Arguments(&values).put_into(|arguments| subquery.walk_mut(arguments)) {
            ControlFlow::Continue(()) => {}
            ControlFlow::Break(never) => match never {},
        }
        let own_name = name.0.last().and_then(|part| part.as_ident()).cloned();
        let own_alias =
            || own_name.map(|name| TableAlias { explicit: true, name, columns: Vec::new(), at: None });
        let alias = alias.clone().or_else(own_alias);
        Ok(Some(TableFactor::Derived { lateral: false, subquery, alias, sample: None }))
    }
}

impl VisitorMut for Calls<'_> {
    type Break = Error;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        match self.value(expr) {
            // The visitor goes on inside, where the body and the arguments may call others.
            Ok(Some(written_out)) => *expr = written_out,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        match self.table(factor) {
            Ok(Some(written_out)) => *factor = written_out,
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

/// The statement that made a macro.
fn statement_of(names: &Names, reference: &TableReference) -> Option<String> {
    names.find_with(reference, |place: &Place| {
        let name = place.qualified();
        let made = place.tables.objects().macros.into_iter().find(|made| made.name == name)?;
        Some(made.statement)
    })
}

fn overloads_of(state: &SessionState, statement: &str) -> Result<Vec<Overload>> {
    let mut parser = new_parser(state, statement)?;
    let parsed = loop {
        if parser.peek_token().token == Token::LParen {
            break parse_overloads(&mut parser);
        }
        if parser.next_token().token == Token::EOF {
            break Err(ParserError::ParserError("a macro has parameters in parentheses".to_owned()));
        }
    };
    parsed.map_err(Error::from_parser)
}

/// The first overload that can be called with these arguments, and the values of its parameters.
fn bound<'a>(
    overloads: &'a [Overload],
    arguments: &[FunctionArg],
) -> Option<(&'a Overload, HashMap<&'a str, Expr>)> {
    overloads.iter().find_map(|overload| overload.bound(arguments).map(|values| (overload, values)))
}

impl Overload {
    fn bound(&self, arguments: &[FunctionArg]) -> Option<HashMap<&str, Expr>> {
        let mut values: HashMap<&str, Expr> = HashMap::new();
        for (position, argument) in arguments.iter().enumerate() {
            let (parameter, value) = match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => (self.parameters.get(position)?, value),
                FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
                    let name = normalized(name);
                    (self.parameters.iter().find(|parameter| parameter.name == name)?, value)
                }
                _ => return None,
            };
            let value = Expr::Nested(Box::new(value.clone()));
            let value = match &parameter.of {
                Some(of) => cast(value, of.clone()),
                None => value,
            };
            if values.insert(&parameter.name, value).is_some() {
                return None;
            }
        }
        for parameter in &self.parameters {
            if !values.contains_key(parameter.name.as_str()) {
                let default = Expr::Nested(Box::new(parameter.default.clone()?));
                values.insert(&parameter.name, default);
            }
        }
        Some(values)
    }

    fn shown(&self) -> String {
        let parameter = |parameter: &Parameter| match &parameter.default {
            Some(default) => format!("{} := {default}", parameter.name),
            None => parameter.name.clone(),
        };
        format!("({})", self.parameters.iter().map(parameter).collect::<Vec<_>>().join(", "))
    }
}

pub(super) fn cast(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

fn mismatch(name: &ObjectName, overloads: &[Overload]) -> Error {
    let shown: Vec<String> = overloads.iter().map(|overload| format!("{name}{}", overload.shown())).collect();
    Error::Query { message: format!("macro '{name}' is called as {}", shown.join(" or ")) }
}

/// Puts values in the place of parameters.
struct Arguments<'a>(&'a HashMap<&'a str, Expr>);

impl Arguments<'_> {
    fn put_into<T>(mut self, visit: impl FnOnce(&mut Self) -> T) -> T {
        visit(&mut self)
    }
}

impl VisitorMut for Arguments<'_> {
    type Break = std::convert::Infallible;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        match expr {
            Expr::Identifier(name) => {
                if let Some(value) = self.0.get(normalized(name).as_str()) {
                    *expr = value.clone();
                }
            }
            // A field of a parameter.
            Expr::CompoundIdentifier(path) => {
                if let Some((first, fields)) = path.split_first()
                    && let Some(value) = self.0.get(normalized(first).as_str())
                {
                    let field = |field: &Ident| {
                        use datafusion::sql::sqlparser::ast::AccessExpr;
                        AccessExpr::Dot(Expr::Identifier(field.clone()))
                    };
                    *expr = Expr::CompoundFieldAccess {
                        root: Box::new(value.clone()),
                        access_chain: fields.iter().map(field).collect(),
                    };
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    /// `FROM table_name`, where the argument is the name of a table.
    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<Self::Break> {
        let [part] = relation.0.as_slice() else { return ControlFlow::Continue(()) };
        let value = part.as_ident().and_then(|name| self.0.get(normalized(name).as_str()));
        let Some(Expr::Nested(value)) = value else { return ControlFlow::Continue(()) };
        match value.as_ref() {
            Expr::Identifier(name) => *relation = ObjectName::from(vec![name.clone()]),
            Expr::CompoundIdentifier(path) => *relation = ObjectName::from(path.clone()),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
