//! `PREPARE`, `EXECUTE` and `DEALLOCATE`.
//!
//! A prepared statement is kept as it was parsed, and planned each time with its arguments in the place of its
//! parameters: types, files and limits that depend on them are those of the arguments, and tables are as they are then.
//!
//! ```sql
//! PREPARE p AS SELECT ? + $name;   -- `?` are $1, $2, … in the order of the text
//! EXECUTE p(1, name := 2);
//! ```

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    DataType, Expr, FunctionArg, FunctionArgExpr, Value, ValueWithSpan, VisitorMut,
};
use nandina_functions::sql_type;
use parking_lot::Mutex;

use super::macros::cast;
use super::syntax;
use super::wrong_plans::{normalized, visit_queries};
use crate::error::{Error, Result};
use crate::{statement_text, suggestion};

/// The prepared statements of a session.
#[derive(Default)]
pub(crate) struct PreparedStatements(Mutex<HashMap<String, Prepared>>);

#[derive(Clone)]
pub(crate) struct Prepared {
    /// With `$1` in the place of `?`.
    text: Arc<str>,
    statement: Statement,
    /// `1`, `2`, …, or names.
    parameters: BTreeSet<String>,
    /// As they were declared, for the first ones.
    types: Vec<DataType>,
    /// How many it has, where they are `$1`, `$2` and so on, of any types.
    numbered: Option<usize>,
}

impl PreparedStatements {
    pub(crate) fn put(&self, name: String, prepared: Prepared) {
        self.0.lock().insert(name, prepared);
    }

    pub(crate) fn get(&self, name: &str) -> Result<Prepared> {
        let known = self.0.lock();
        known.get(name).cloned().ok_or_else(|| unknown(name, &known))
    }

    /// The text of one that takes so many values.
    pub(crate) fn text_of(&self, name: &str, values: usize) -> Option<Arc<str>> {
        let known = self.0.lock();
        let prepared = known.get(name).filter(|prepared| prepared.takes_values(values));
        prepared.map(|prepared| Arc::clone(&prepared.text))
    }

    /// Forgets one, or all.
    pub(crate) fn remove(&self, name: Option<&str>) -> Result<()> {
        let mut known = self.0.lock();
        match name {
            None => known.clear(),
            Some(name) => {
                let removed = known.remove(name);
                removed.ok_or_else(|| unknown(name, &known))?;
            }
        }
        Ok(())
    }
}

fn unknown(name: &str, known: &HashMap<String, Prepared>) -> Error {
    let hint = suggestion::phrase(name, known.keys().map(String::as_str));
    Error::Query {
        message: format!("there is no prepared statement '{name}'{hint}; PREPARE {name} AS … makes it"),
    }
}

/// A text in which each `?` has its number.
pub(crate) fn numbered(text: &str) -> String {
    let mut numbered = String::with_capacity(text.len());
    let (mut copied, mut number) = (0, 0);
    for (at, token) in statement_text::tokens(text) {
        if token == "?" {
            number += 1;
            numbered.push_str(text.get(copied..at).unwrap_or_default());
            numbered.push_str(&format!("${number}"));
            copied = at + 1;
        }
    }
    numbered.push_str(text.get(copied..).unwrap_or_default());
    numbered
}

impl Prepared {
    /// A statement that was parsed from this text.
    pub(crate) fn new(text: String, mut statement: Statement, types: Vec<DataType>) -> Self {
        let mut found = Found(BTreeSet::new());
        match visit_queries(&mut statement, &mut found) {
            ControlFlow::Continue(()) => {}
            ControlFlow::Break(never) => match never {},
        }
        let parameters = found.0;
        let has = |number: usize| parameters.contains(&number.to_string());
        let are_numbered = types.is_empty() && (1..=parameters.len()).all(has);
        let numbered = are_numbered.then_some(parameters.len());
        Prepared { text: text.into(), statement, parameters, types, numbered }
    }

    pub(crate) fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Whether it takes so many values as `$1`, `$2` and so on, of any types.
    pub(crate) fn takes_values(&self, count: usize) -> bool {
        self.numbered == Some(count)
    }

    pub(crate) fn has_parameters(&self) -> bool {
        !self.parameters.is_empty()
    }

    pub(crate) fn statement(self) -> Statement {
        self.statement
    }

    /// The statement with these arguments.
    pub(crate) fn with(mut self, name: &str, arguments: &[FunctionArg]) -> Result<Statement> {
        let mut values = HashMap::new();
        for (position, argument) in arguments.iter().enumerate() {
            let (parameter, value) = match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => ((position + 1).to_string(), value),
                FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
                    (normalized(name), value)
                }
                other => {
                    return Err(Error::unsupported(format!("'{other}' is no value for EXECUTE {name}")));
                }
            };
            let value = match self.types.get(position) {
                Some(of) => cast(value.clone(), of.clone()),
                None => value.clone(),
            };
            values.insert(parameter, value);
        }
        let missing: Vec<&String> =
            self.parameters.iter().filter(|parameter| !values.contains_key(*parameter)).collect();
        let is_unknown = values.keys().any(|given| !self.parameters.contains(given));
        if !missing.is_empty() || is_unknown {
            let parameters: Vec<String> =
                self.parameters.iter().map(|parameter| format!("${parameter}")).collect();
            return Err(Error::Query {
                message: format!(
                    "prepared statement '{name}' has {} parameters ({}), and is given {} arguments",
                    parameters.len(),
                    parameters.join(", "),
                    arguments.len()
                ),
            });
        }
        match visit_queries(&mut self.statement, &mut Values(&values)) {
            ControlFlow::Continue(()) => Ok(self.statement),
            ControlFlow::Break(never) => match never {},
        }
    }
}

/// A value as an argument of `EXECUTE`.
pub(crate) fn argument(value: &ScalarValue) -> Result<FunctionArg> {
    let expr = match value {
        ScalarValue::Null => Expr::Value(Value::Null.into()),
        ScalarValue::Boolean(Some(value)) => Expr::Value(Value::Boolean(*value).into()),
        _ => {
            let texts = nandina_functions::texts_of(&value.to_array()?)?;
            let text = if value.is_null() {
                Value::Null
            } else {
                Value::SingleQuotedString(texts.value(0).to_owned())
            };
            let text = Expr::Value(text.into());
            if value.data_type().is_string() && !value.is_null() {
                text
            } else {
                cast(text, syntax::data_type(&sql_type(&value.data_type()))?)
            }
        }
    };
    Ok(FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)))
}

/// The name of a parameter, without its `$`.
fn parameter(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(ValueWithSpan { value: Value::Placeholder(name), .. }) => {
            Some(name.trim_start_matches(['$', ':']).to_lowercase())
        }
        _ => None,
    }
}

struct Found(BTreeSet<String>);

impl VisitorMut for Found {
    type Break = std::convert::Infallible;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        self.0.extend(parameter(expr));
        ControlFlow::Continue(())
    }
}

struct Values<'a>(&'a HashMap<String, Expr>);

impl VisitorMut for Values<'_> {
    type Break = std::convert::Infallible;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if let Some(value) = parameter(expr).and_then(|name| self.0.get(&name)) {
            *expr = match value {
                // A limit must be a number and nothing else.
                Expr::Value(_) => value.clone(),
                value => Expr::Nested(Box::new(value.clone())),
            };
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_marks_get_numbers() {
        assert_eq!(
            numbered("SELECT ? + ?, 'is it?' -- ?\n, \"?\" LIMIT ?"),
            "SELECT $1 + $2, 'is it?' -- ?\n, \"?\" LIMIT $3"
        );
    }
}
