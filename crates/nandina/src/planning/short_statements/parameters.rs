//! Parameters in plans: of which types they are, and where they may stand.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _, TreeNodeRecursion};
use datafusion::logical_expr::expr::{InList, Placeholder};
use datafusion::logical_expr::{
    Between, BinaryExpr, Cast, Expr, ExprSchemable as _, LogicalPlan, Operator, ScalarUDF, Values, cast,
};
use nandina_exec::rows::Parameter;

use crate::error::{Error, Result};

/// The number of a parameter, from 0.
pub(super) fn number(placeholder: &Placeholder) -> Option<usize> {
    placeholder.id.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(1)
}

/// A plan whose parameters have these types, and not those that the planner took from what stands beside them.
pub(super) fn with_types(plan: LogicalPlan, types: &[DataType]) -> Result<LogicalPlan> {
    let typed = |expr: Expr| {
        expr.transform_up(|expr| match expr {
            Expr::Placeholder(placeholder) => {
                let data_type = number(&placeholder).and_then(|number| types.get(number));
                let data_type = data_type.ok_or_else(|| Error::bug("a parameter has no type"))?;
                let field = Arc::new(Field::new(&placeholder.id, data_type.clone(), true));
                Ok(Transformed::yes(Expr::Placeholder(Placeholder::new_with_field(
                    placeholder.id,
                    Some(field),
                ))))
            }
            other => Ok(Transformed::no(other)),
        })
    };
    let plan = plan.transform_up_with_subqueries(|node| {
        let node = node.map_expressions(typed)?;
        let node = node.transform_data(|node| match node {
            LogicalPlan::Values(values) => Ok(Transformed::yes(LogicalPlan::Values(as_columns(values)?))),
            other => Ok(Transformed::no(other)),
        })?;
        node.map_data(LogicalPlan::recompute_schema)
    });
    Ok(plan.data()?)
}

/// Values that have the types of their columns.
fn as_columns(mut values: Values) -> datafusion::common::Result<Values> {
    for row in &mut values.values {
        for (value, field) in row.iter_mut().zip(values.schema.fields()) {
            if value.get_type(&DFSchema::empty())? != *field.data_type() {
                *value = cast(std::mem::take(value), field.data_type().clone());
            }
        }
    }
    Ok(values)
}

/// An expression whose parameters are functions of the values that a statement runs with.
pub(super) fn as_functions(expr: Expr, types: &[DataType]) -> Result<Expr> {
    let expr = expr.transform_up(|expr| match expr {
        Expr::Placeholder(placeholder) => {
            let number = number(&placeholder);
            match number.and_then(|number| Some((number, types.get(number)?))) {
                Some((number, data_type)) => {
                    let parameter = ScalarUDF::from(Parameter::new(number, data_type.clone()));
                    Ok(Transformed::yes(parameter.call(Vec::new())))
                }
                None => Err(Error::bug("a parameter has no type").into()),
            }
        }
        other => Ok(Transformed::no(other)),
    });
    Ok(expr.data()?)
}

/// Whether all parameters of a plan stand where their types alone decide what is meant. Those of a query are in conditions: elsewhere
/// columns would be named by them.
pub(super) fn stand_well(plan: &LogicalPlan, changes_rows: bool) -> Result<bool> {
    let mut do_all = true;
    plan.apply_with_subqueries(|node| {
        let none = Arc::new(DFSchema::empty());
        let input = node.inputs().first().map_or(&none, |input| input.schema());
        node.apply_expressions(|expr| {
            do_all = do_all
                && match node {
                    LogicalPlan::Filter(_) => stands_well(expr, input)?,
                    LogicalPlan::Values(_) if changes_rows => {
                        is_value(expr, true) || stands_well(expr, input)?
                    }
                    LogicalPlan::Projection(_) if changes_rows => {
                        is_value(expr, false) || stands_well(expr, input)?
                    }
                    _ => !has_parameter(expr),
                };
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(do_all)
}

/// Whether an expression is a parameter that is the value of a column. A floating-point number is one of a column of such numbers alone:
/// of what becomes of others, plans know more than the type. The type of the column is known where `VALUES` are.
fn is_value(expr: &Expr, is_column: bool) -> bool {
    let is_float = |placeholder: &Placeholder| {
        placeholder.field.as_ref().is_none_or(|field| field.data_type().is_floating())
    };
    match expr {
        Expr::Alias(alias) => is_value(&alias.expr, is_column),
        Expr::Placeholder(placeholder) => is_column || !is_float(placeholder),
        Expr::Cast(Cast { expr, field }) => match expr.as_ref() {
            Expr::Placeholder(placeholder) => !is_float(placeholder) || field.data_type().is_floating(),
            _ => false,
        },
        _ => false,
    }
}

fn stands_well(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    let inside = |expr: &Expr| stands_well(expr, schema);
    match expr {
        Expr::Placeholder(_) => Ok(false),
        Expr::Alias(alias) => inside(&alias.expr),
        Expr::Cast(Cast { expr, .. }) => inside(expr),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::And | Operator::Or => Ok(inside(left)? && inside(right)?),
            Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq => {
                Ok(are_alike(left, right, schema)? && is_alone(left, schema)? && is_alone(right, schema)?)
            }
            Operator::Plus | Operator::Minus | Operator::Multiply => {
                let are_numbers = is_number(left, schema)? && is_number(right, schema)?;
                Ok((are_numbers || !has_parameter(expr))
                    && are_alike(left, right, schema)?
                    && is_alone(left, schema)?
                    && is_alone(right, schema)?)
            }
            _ => Ok(!has_parameter(expr)),
        },
        Expr::Between(Between { expr, low, high, .. }) => Ok(are_alike(expr, low, schema)?
            && are_alike(expr, high, schema)?
            && inside(expr)?
            && is_alone(low, schema)?
            && is_alone(high, schema)?),
        Expr::InList(InList { expr, list, .. }) => {
            for value in list {
                if !are_alike(expr, value, schema)? || !is_alone(value, schema)? {
                    return Ok(false);
                }
            }
            inside(expr)
        }
        other => Ok(!has_parameter(other)),
    }
}

/// A parameter, or an expression in which they stand well.
fn is_alone(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    match expr {
        Expr::Placeholder(_) => Ok(true),
        other => stands_well(other, schema),
    }
}

fn has_parameter(expr: &Expr) -> bool {
    expr.exists(|expr| Ok(matches!(expr, Expr::Placeholder(_)))).unwrap_or(true)
}

/// Whether two expressions are of one kind, if one of them is a parameter: then what is between them is done in their own type, or in one
/// that holds both.
fn are_alike(left: &Expr, right: &Expr, schema: &DFSchema) -> Result<bool> {
    let is_parameter = |expr: &Expr| matches!(expr, Expr::Placeholder(_));
    if !is_parameter(left) && !is_parameter(right) {
        return Ok(true);
    }
    if is_parameter(left) && is_parameter(right) {
        return Ok(false);
    }
    let (left, right) = (left.get_type(schema)?, right.get_type(schema)?);
    let are_texts = left.is_string() && right.is_string();
    let is_exact =
        |data_type: &DataType| data_type.is_integer() || matches!(data_type, DataType::Decimal128(..));
    Ok(left == right || are_texts || is_exact(&left) && is_exact(&right))
}

fn is_number(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    Ok(expr.get_type(schema)?.is_numeric())
}
