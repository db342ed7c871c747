//! `nextval('ids')` with the place of the sequence in the place of its name: plans of views are used by all sessions.

use std::ops::ControlFlow;

use datafusion::execution::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Value, VisitorMut,
};

use super::wrong_plans::visit_queries;
use crate::catalog::names::{Names, Place};
use crate::catalog::sequences::{SequenceFunction, full_name};
use crate::error::{Error, Result};
use crate::planning::walk::WalkMut as _;

pub(crate) fn complete(state: &SessionState, statement: &mut Statement) -> Result<()> {
    let Some(names) = state.config().get_extension::<Names>() else { return Ok(()) };
    match visit_queries(statement, &mut Sequences(&names)) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// Sequences that the default of a column names are first looked for where its table is.
pub(crate) fn complete_default(names: &Names, place: &Place, default: &mut Expr) {
    let names = names.within(&place.database, &place.schema);
    // Others are those of the session, which say what they miss.
    let _ = default.walk_mut(&mut Sequences(&names));
}

struct Sequences<'a>(&'a Names);

impl VisitorMut for Sequences<'_> {
    type Break = Error;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        let name = function.name.to_string().to_lowercase();
        let FunctionArguments::List(arguments) = &mut function.args else { return ControlFlow::Continue(()) };
        if SequenceFunction::NAMES.contains(&name.as_str())
            && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value)))] =
                arguments.args.as_mut_slice()
            && let Value::SingleQuotedString(written) = &mut value.value
            && !written.contains(':')
        {
            match full_name(self.0, written) {
                Ok(full) => *written = full,
                Err(error) => return ControlFlow::Break(error),
            }
        }
        ControlFlow::Continue(())
    }
}
