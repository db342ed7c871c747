//! `CHECK`: rows that come into a table keep what it asks for.
//!
//! ```text
//!   CREATE TABLE t (a INTEGER CHECK (a > 0))
//!   Insert into t ◄── Projection: must_hold(a, a > 0, 'CHECK (a > 0) of table t') AS a, … ◄── rows, as the table's columns
//! ```
//!
//! As in SQL, a row fails only where a check is false: null is not.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _};
use arrow::datatypes::{DataType, FieldRef, Fields};
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::common::{DFSchema, DataFusionError, Result as DataFusionResult, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::{
    ColumnarValue, DmlStatement, Expr as PlannedExpr, ExprSchemable as _, LogicalPlan, LogicalPlanBuilder,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, WriteOp, cast, lit,
};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, ExprWithAlias, Ident, SelectItem, SetExpr, VisitorMut};

use super::{macros, new_parser};
use super::{syntax, wrong_plans};
use crate::catalog::names::Names;
use crate::error::{Error, Result};
use crate::planning::walk::WalkMut as _;

/// A check as it is kept: about columns of the one table, by their bare names.
pub(super) fn kept(check: &Expr) -> Result<String> {
    struct BareNames;
    impl VisitorMut for BareNames {
        type Break = ();

        fn pre_visit_query(&mut self, _: &mut datafusion::sql::sqlparser::ast::Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Expr::CompoundIdentifier(path) = expr
                && let Some(column) = path.pop()
            {
                *expr = Expr::Identifier(column);
            }
            ControlFlow::Continue(())
        }
    }
    let mut bare = check.clone();
    match bare.walk_mut(&mut BareNames) {
        ControlFlow::Continue(()) => Ok(bare.to_string()),
        ControlFlow::Break(()) => {
            Err(Error::unsupported(format!("CHECK ({check}): sub-queries in checks are not supported")))
        }
    }
}

/// Lets a plan that inserts check its rows.
pub(crate) fn add(state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
    let Some(names) = state.config().get_extension::<Names>() else { return Ok(plan) };
    let checked = plan.transform_down(|node| match node {
        LogicalPlan::Dml(dml) if matches!(dml.op, WriteOp::Insert(_)) => {
            let place = names.find(&dml.table_name);
            let checks = place.map(|place| place.tables.rules(&place).checks).unwrap_or_default();
            let mut rows = with_nulls(dml.input.as_ref().clone())?;
            for check in &checks {
                rows = checked(state, rows, check, dml.table_name.table()).map_err(DataFusionError::from)?;
            }
            let input = Arc::new(rows);
            let dml = DmlStatement { input, ..dml };
            Ok(Transformed::yes(LogicalPlan::Dml(dml)))
        }
        other => Ok(Transformed::no(other)),
    });
    Ok(checked.data()?)
}

/// The same rows, where `VALUES` may have nulls. DataFusion has them be as the columns of the table are, and then says which column of
/// `VALUES` has a null; those who write rows say which one of the table.
fn with_nulls(rows: LogicalPlan) -> DataFusionResult<LogicalPlan> {
    let nullable = rows.transform_up(|node| match node {
        LogicalPlan::Values(mut values) => {
            let nullable = |field: &FieldRef| field.as_ref().clone().with_nullable(true);
            let fields: Fields = values.schema.fields().iter().map(nullable).collect();
            let metadata = values.schema.metadata().clone();
            values.schema = Arc::new(DFSchema::from_unqualified_fields(fields, metadata)?);
            Ok(Transformed::yes(LogicalPlan::Values(values)))
        }
        other => Ok(Transformed::yes(other.recompute_schema()?)),
    });
    nullable.data()
}

/// Rows that fail where a check of their table is false of one of them.
pub(super) fn checked(
    state: &SessionState,
    rows: LogicalPlan,
    check: &str,
    table: &str,
) -> Result<LogicalPlan> {
    with_check(state, rows, check, format!("CHECK ({check}) of table '{table}' fails for a row"))
}

/// Rows that fail where one of them has a null in a column of their table that has none.
pub(super) fn not_null(
    state: &SessionState,
    rows: LogicalPlan,
    column: &str,
    table: &str,
) -> Result<LogicalPlan> {
    let check = format!("{} IS NOT NULL", Ident::with_quote('"', column));
    let message =
        format!("table '{table}': column '{column}' is NOT NULL, but a row without a value was given");
    with_check(state, rows, &check, message)
}

/// Rows of which one fails with a message if a check is false of it.
///
/// It is part of what is computed of them, not a filter: filters become one, and a join with a sub-query that leaves rows out may then be
/// above the check.
fn with_check(state: &SessionState, rows: LogicalPlan, check: &str, message: String) -> Result<LogicalPlan> {
    let check = condition(state, &rows, check)?;
    let mut columns: Vec<PlannedExpr> =
        rows.schema().columns().into_iter().map(PlannedExpr::Column).collect();
    if let (Some(first), Some((qualifier, field))) = (columns.first_mut(), rows.schema().iter().next()) {
        let value = std::mem::take(first);
        let checked = ScalarUDF::from(MustHold::new()).call(vec![value, check, lit(message)]);
        *first = checked.alias_qualified(qualifier.cloned(), field.name());
    }
    Ok(LogicalPlanBuilder::from(rows).project(columns)?.build()?)
}

/// Lets a plan fail with a message where a check is false of a row, also where none of its columns is wanted.
pub(super) fn checked_or(
    state: &SessionState,
    rows: LogicalPlan,
    check: &str,
    message: String,
) -> Result<LogicalPlan> {
    let check = condition(state, &rows, check)?;
    let holds = ScalarUDF::from(MustHold::new()).call(vec![lit(true), check, lit(message)]);
    Ok(LogicalPlanBuilder::from(rows).filter(holds)?.build()?)
}

/// A check as an expression of rows.
fn condition(state: &SessionState, rows: &LogicalPlan, check: &str) -> Result<PlannedExpr> {
    let expr = new_parser(state, check)?.parse_expr().map_err(Error::from_parser)?;
    let expr = as_in_queries(state, expr)?;
    let expr = ExprWithAlias { expr, alias: None };
    let expr = state.create_logical_expr_from_sql_expr(expr, rows.schema())?;
    Ok(match expr.get_type(rows.schema())? {
        DataType::Boolean => expr,
        _ => cast(expr, DataType::Boolean),
    })
}

/// An expression with what is done to those of queries before they are planned.
fn as_in_queries(state: &SessionState, expr: Expr) -> Result<Expr> {
    use datafusion::sql::sqlparser::ast::Statement as SqlStatement;
    let mut query = syntax::query("SELECT 1")?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.projection = vec![SelectItem::UnnamedExpr(expr)];
    }
    let mut statement = Statement::Statement(Box::new(SqlStatement::Query(Box::new(query))));
    macros::write_out(state, &mut statement)?;
    wrong_plans::avoid(&mut statement)?;
    if let Statement::Statement(inner) = statement
        && let SqlStatement::Query(query) = *inner
        && let SetExpr::Select(select) = *query.body
        && let Some(SelectItem::UnnamedExpr(expr)) = select.projection.into_iter().next()
    {
        return Ok(expr);
    }
    Err(Error::bug("a check is no expression any more"))
}

/// Its first argument, or an error for a row for which the second is false: the third.
#[derive(Debug, PartialEq, Eq, Hash)]
struct MustHold {
    signature: Signature,
}

impl MustHold {
    fn new() -> Self {
        // Volatile: it must not be computed before there are rows.
        MustHold { signature: Signature::any(3, Volatility::Volatile) }
    }
}

impl ScalarUDFImpl for MustHold {
    fn name(&self) -> &str {
        "must_hold"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        match types {
            [value, _, _] => Ok(value.clone()),
            _ => Err(Error::bug("must_hold has three arguments").into()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let rows = args.number_rows;
        let [value, checked, message] = args.args.as_slice() else {
            return Err(Error::bug("must_hold has three arguments").into());
        };
        let checked = checked.to_array(rows)?;
        let checked = checked.as_boolean();
        let fails = (0..checked.len()).any(|row| checked.is_valid(row) && !checked.value(row));
        if fails {
            let message = match message {
                ColumnarValue::Scalar(ScalarValue::Utf8(Some(message))) => message.clone(),
                _ => "a CHECK fails for a row".to_owned(),
            };
            return Err(Error::Query { message }.into());
        }
        Ok(value.clone())
    }
}
