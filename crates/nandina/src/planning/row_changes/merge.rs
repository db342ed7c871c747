//! `MERGE`: rows of one table decide what becomes of those of another.
//!
//! ```text
//!   MERGE INTO t USING s ON t.k = s.k WHEN MATCHED AND s.a > 0 THEN UPDATE SET a = s.a WHEN NOT MATCHED THEN INSERT …
//!   ─►  SELECT t."row id", CASE WHEN t."row id" IS NOT NULL AND (s.a > 0) THEN 2 WHEN … THEN 1 END AS action,
//!              CASE WHEN … THEN s.a WHEN … THEN … END, …
//!       FROM (SELECT *, true AS "in source" FROM s) AS s LEFT JOIN rows_to_change() AS t ON t.k = s.k
//!       WHERE action IS NOT NULL
//! ```
//!
//! A clause with `DO NOTHING` is one whose action is null: the row is not in the result, whatever comes behind. That of `ERROR` is a
//! function that fails.

mod clauses;
mod source;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::execution::SessionState;
use datafusion::logical_expr::registry::FunctionRegistry as _;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, Merge, MergeClauseKind, OutputClause, SelectItem, TableFactor, Value,
    VisitorMut, With,
};
use nandina_exec::rows::{MergeAction, ROW_ID, RowChange};
use nandina_functions::sql_type;

use self::source::Source;
use super::target::{self, Target, value_name};
use super::{Changing, planned};
use crate::catalog::names::Names;
use crate::error::{Error, Result};
use crate::planning::syntax;
use crate::planning::walk::WalkMut as _;

/// A column that the rows of the source have, and those beside them do not.
const IN_SOURCE: &str = "in source";

/// `with`: common table expressions before the statement.
pub(super) async fn plan(
    state: &SessionState,
    names: &Arc<Names>,
    merge: &Merge,
    with: Option<&With>,
) -> Result<Changing> {
    let target = Target::of(state, names, &merge.table).await?;
    let returning = match &merge.output {
        None => None,
        Some(OutputClause::Returning { select_items, .. }) => Some(select_items.clone()),
        Some(OutputClause::Output { .. }) => {
            return Err(Error::unsupported("MERGE … OUTPUT is not supported"));
        }
    };
    let source = Source::of(state, merge, with).await?;
    let branches = clauses::branches(state, &target, &source, &merge.clauses)?;
    let keeps_target =
        merge.clauses.iter().any(|clause| clause.clause_kind == MergeClauseKind::NotMatchedBySource);
    let join = if keeps_target { "FULL" } else { "LEFT" };
    let text = format!(
        "(SELECT *, true AS {} FROM {SOURCE}) AS {} {join} JOIN {} ON {ON}",
        Ident::with_quote('"', IN_SOURCE),
        source.alias,
        target.rows_to_change(),
    );
    let on = source.condition(&target, &merge.on)?;
    let from = From { text, source: Some(merge.source.clone()), on, with: with.cloned() };
    merging(state, target, from, branches, returning).await
}

/// What becomes of rows for which a condition is true, and none of those before.
pub(super) struct Branch {
    pub condition: Expr,
    pub outcome: Outcome,
}

pub(super) enum Outcome {
    /// With the value of each column.
    Change(MergeAction, Vec<Expr>),
    /// The row stays as it is, or is not inserted.
    Nothing,
    /// The statement fails with a message, or with another one if that is null.
    Failure { message: Box<Expr>, otherwise: String },
}

impl Outcome {
    /// The action of a row as a text, in which `part` gives the names of parts.
    fn action(&self, part: impl Fn(usize) -> String) -> String {
        let action = match self {
            Outcome::Change(action, _) => (*action as i8).to_string(),
            Outcome::Nothing => "NULL".to_owned(),
            Outcome::Failure { .. } => {
                let (message, otherwise) = (part(1), part(2));
                format!(
                    "{FAILURE}(CASE WHEN ({message}) IS NULL THEN {otherwise} ELSE CAST(({message}) AS VARCHAR) END)"
                )
            }
        };
        format!("CAST({action} AS TINYINT)")
    }

    /// The value of a column as such a text.
    fn value(&self, number: usize, part: impl Fn(usize) -> String) -> String {
        match self {
            Outcome::Change(..) => format!("({})", part(number + 1)),
            Outcome::Nothing | Outcome::Failure { .. } => "NULL".to_owned(),
        }
    }

    /// Its parts, which are numbered from one.
    fn parts(self) -> Vec<Expr> {
        match self {
            Outcome::Change(_, values) => values,
            Outcome::Nothing => Vec::new(),
            Outcome::Failure { message, otherwise } => {
                vec![*message, Expr::Value(Value::SingleQuotedString(otherwise).with_empty_span())]
            }
        }
    }
}

/// The rows that decide, beside those of the target: a text in which [`ON`] and [`SOURCE`] stand for these.
pub(super) struct From {
    pub text: String,
    pub source: Option<TableFactor>,
    pub on: Expr,
    pub with: Option<With>,
}

/// Names in the texts of queries, in whose places parts of the statement are put: not every part could be read again as it is
/// written.
pub(super) const ON: &str = "\"join condition\"";
const SOURCE: &str = "\"merged rows\"";

/// `error`, under a name that no macro takes from it.
const FAILURE: &str = "\"failure of a clause\"";

/// The name that stands for a part of a branch: its condition (0), or one of its outcome (from 1 on).
fn place_of(branch: usize, part: usize) -> String {
    format!("part {part} of branch {branch}")
}

struct Parts<'s> {
    from: &'s From,
    of_branches: &'s HashMap<String, Expr>,
}

impl VisitorMut for Parts<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let (TableFactor::Table { name, .. }, Some(source)) = (&*factor, &self.from.source)
            && name.to_string() == SOURCE
        {
            *factor = source.clone();
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = expr {
            if name.to_string() == ON {
                *expr = self.from.on.clone();
            } else if let Some(part) = self.of_branches.get(&name.value) {
                *expr = part.clone();
            }
        }
        ControlFlow::Continue(())
    }
}

/// The plan of rows that `from` has beside rows of the target.
pub(super) async fn merging(
    state: &SessionState,
    target: Target,
    from: From,
    branches: Vec<Branch>,
    returning: Option<Vec<SelectItem>>,
) -> Result<Changing> {
    if branches.is_empty() {
        return Err(Error::unsupported("MERGE without WHEN does nothing"));
    }
    let part = |branch: usize, part: usize| Ident::with_quote('"', place_of(branch, part)).to_string();
    // What `of` makes of each branch.
    let case = |of: &dyn Fn(usize, &Outcome) -> String| {
        let branches = branches.iter().enumerate();
        let when = |(number, branch): (usize, &Branch)| {
            format!("WHEN ({}) THEN {}", part(number, 0), of(number, &branch.outcome))
        };
        format!("CASE {} END", branches.map(when).collect::<Vec<_>>().join(" "))
    };
    let action = case(&|branch, outcome| outcome.action(|number| part(branch, number)));
    let mut items = vec![
        format!("{}.{}", target.alias, Ident::with_quote('"', ROW_ID)),
        format!("{action} AS {}", Ident::with_quote('"', target::ACTION)),
    ];
    for (number, field) in target.fields().iter().enumerate() {
        let data_type = sql_type(field.data_type());
        let value = case(&|branch, outcome| {
            let value = outcome.value(number, |number| part(branch, number));
            format!("CAST({value} AS {data_type})")
        });
        items.push(format!("{value} AS {}", Ident::with_quote('"', value_name(number))));
    }
    let text = format!("SELECT {} FROM {} WHERE {action} IS NOT NULL", items.join(", "), from.text);
    let mut query = syntax::query(&text)?;
    let mut of_branches = HashMap::new();
    for (number, branch) in branches.into_iter().enumerate() {
        let parts = std::iter::once(branch.condition).chain(branch.outcome.parts()).enumerate();
        of_branches.extend(parts.map(|(part, expr)| (place_of(number, part), expr)));
    }
    let _ = query.walk_mut(&mut Parts { from: &from, of_branches: &of_branches });
    query.with = from.with;
    let mut own = state.clone();
    let error = own.udf("error")?;
    own.register_udf(Arc::new(error.as_ref().clone().with_aliases([FAILURE.trim_matches('"')])))?;
    let rows = planned(&own, &target, query).await?;
    let rows = target.columns(rows, vec![target::row_id(), target::action()])?;
    let rows = target.checked(state, rows)?;
    Ok(Changing { target, rows, change: RowChange::Merge, returning })
}

/// A condition, and another one if there is one.
pub(super) fn both(condition: Expr, other: Option<Expr>) -> Expr {
    match other {
        Some(other) => Expr::BinaryOp {
            left: Box::new(condition),
            op: BinaryOperator::And,
            right: Box::new(Expr::Nested(Box::new(other))),
        },
        None => condition,
    }
}
