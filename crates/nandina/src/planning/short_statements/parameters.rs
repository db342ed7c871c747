//! Parameters in plans: of which types they are, and where they may stand.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
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

/// Whether all parameters of a plan stand where their types alone decide what is meant. Those of a query are in conditions.
pub(super) fn stand_well(plan: &LogicalPlan, changes_rows: bool) -> Result<bool> {
    let mut do_all = true;
    plan.apply_with_subqueries(|node| {
        let none = Arc::new(DFSchema::empty());
        let input = node.inputs().first().map_or(&none, |input| input.schema());
        let may_be_value = changes_rows && !matches!(node, LogicalPlan::Filter(_));
        node.apply_expressions(|expr| {
            do_all = do_all && stands_well(expr, input, may_be_value)?;
            Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
        })
    })?;
    Ok(do_all)
}

fn stands_well(expr: &Expr, schema: &DFSchema, may_be_value: bool) -> Result<bool> {
    let inside = |expr: &Expr| stands_well(expr, schema, false);
    match expr {
        Expr::Placeholder(_) => Ok(may_be_value),
        Expr::Alias(alias) => stands_well(&alias.expr, schema, may_be_value),
        Expr::Cast(Cast { expr, .. }) => stands_well(expr, schema, may_be_value),
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
        other => stands_well(other, schema, false),
    }
}

fn has_parameter(expr: &Expr) -> bool {
    expr.exists(|expr| Ok(matches!(expr, Expr::Placeholder(_)))).unwrap_or(true)
}

/// Whether two expressions are compared as what both are, if one of them is a parameter.
fn are_alike(left: &Expr, right: &Expr, schema: &DFSchema) -> Result<bool> {
    let is_parameter = |expr: &Expr| matches!(expr, Expr::Placeholder(_));
    if !is_parameter(left) && !is_parameter(right) {
        return Ok(true);
    }
    let (left, right) = (left.get_type(schema)?, right.get_type(schema)?);
    let are_texts = left.is_string() && right.is_string();
    Ok(left == right || are_texts || left.is_numeric() && right.is_numeric())
}

fn is_number(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    Ok(expr.get_type(schema)?.is_numeric())
}
