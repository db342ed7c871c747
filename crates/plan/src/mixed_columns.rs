//! Columns of floating-point numbers that meet columns of decimals, in unions, as keys of joins and in `IN` with a query.
//!
//! Both are taken for floating-point numbers, as in [`meanings`](crate::meanings). DataFusion takes them for decimals.
//!
//! What meets a `VARIANT`, or a value of a `UNION`, in a union becomes one, and different `ENUM`s are texts there.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Fields};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, Result, plan_err};
use datafusion::logical_expr::expr::InSubquery;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, ExprSchemable, Join, LogicalPlan, Projection, Union};
use datafusion::optimizer::AnalyzerRule;

use crate::meanings::numbers::{as_decimal, settle};
use crate::meanings::variants::settle_branches;
use crate::nodes::{has_sub_queries, input_schema};

/// Casts decimals in unions and keys of joins.
#[derive(Debug)]
pub struct MixedColumns;

impl AnalyzerRule for MixedColumns {
    fn name(&self) -> &str {
        "mixed_columns"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut has_new_types = false;
        plan.transform_up_with_subqueries(|node| {
            let node = if has_new_types { node.recompute_schema()? } else { node };
            let settled = match node {
                LogicalPlan::Union(union) if has_new_types => {
                    of_one_kind(Union::try_new_with_loose_types(union.inputs)?)?
                }
                LogicalPlan::Union(union) => of_one_kind(union)?,
                LogicalPlan::Join(join) => keys_of_one_kind(join)?,
                other => Transformed::no(other),
            };
            let settled = settled.transform_data(members_of_one_kind)?;
            has_new_types |= settled.transformed;
            Ok(settled)
        })
        .data()
    }
}

/// Refuses structs with other fields in the branches of a union: casts to the first one's would lose values.
fn check_fields(column: &str, types: &[DataType]) -> Result<()> {
    let mut structs = types.iter().filter_map(|of| match of {
        DataType::Struct(fields) => Some(fields),
        _ => None,
    });
    let Some(first) = structs.next() else { return Ok(()) };
    // Those of rows without names are matched by their places.
    let is_unnamed = |name: &str| name == "c0";
    for fields in structs {
        let mut names = [first, fields].into_iter().flatten().map(|field| field.name());
        let has = |all: &Fields, name: &str| all.iter().any(|field| field.name().eq_ignore_ascii_case(name));
        let are_same = first.iter().all(|field| has(fields, field.name()))
            && fields.iter().all(|field| has(first, field.name()));
        if !are_same && !names.any(|name| is_unnamed(name)) {
            return plan_err!(
                "column '{column}': the structs that a union puts together have other fields; cast them to one type"
            );
        }
    }
    Ok(())
}

/// A union whose columns are each of one kind of numbers.
fn of_one_kind(union: Union) -> Result<Transformed<LogicalPlan>> {
    let mut branches: Vec<Vec<Expr>> = union.inputs.iter().map(|branch| columns_of(branch)).collect();
    let mut is_new = vec![false; branches.len()];
    for at in 0..union.schema.fields().len() {
        let types: Vec<DataType> =
            union.inputs.iter().map(|branch| branch.schema().field(at).data_type().clone()).collect();
        check_fields(union.schema.field(at).name(), &types)?;
        let mut columns: Vec<&mut Expr> = branches.iter_mut().map(|columns| &mut columns[at]).collect();
        let before: Vec<Expr> = columns.iter().map(|column| Expr::clone(column)).collect();
        for (column, branch) in columns.iter_mut().zip(&union.inputs) {
            if let Some(constant) = constant_at(branch, at) {
                **column = constant;
            }
        }
        let is_settled = settle(&mut columns, &types) || settle_branches(&mut columns, &types);
        let all = columns.into_iter().zip(before).zip(&union.inputs).zip(&mut is_new).zip(&types);
        for ((((column, before), branch), is_new), data_type) in all {
            let is_cast = is_settled && column.get_type(branch.schema())? != *data_type;
            if is_cast {
                *column = std::mem::take(column).alias(branch.schema().field(at).name());
                *is_new = true;
            } else {
                *column = before;
            }
        }
    }
    if !is_new.contains(&true) {
        return Ok(Transformed::no(LogicalPlan::Union(union)));
    }
    let branches = union.inputs.into_iter().zip(branches).zip(is_new);
    let branches = branches.map(|((branch, columns), is_new)| match is_new {
        true => Ok(Arc::new(LogicalPlan::Projection(Projection::try_new(columns, branch)?))),
        false => Ok(branch),
    });
    let union = Union::try_new_with_loose_types(branches.collect::<Result<_>>()?)?;
    Ok(Transformed::yes(LogicalPlan::Union(union)))
}

fn columns_of(branch: &LogicalPlan) -> Vec<Expr> {
    let columns = branch.schema().iter();
    columns.map(|(qualifier, field)| Expr::Column(Column::new(qualifier.cloned(), field.name()))).collect()
}

/// The constant in a column of a branch, if it can be written as a decimal.
fn constant_at(branch: &LogicalPlan, at: usize) -> Option<Expr> {
    match branch {
        LogicalPlan::Projection(projection) => {
            let constant = projection.expr.get(at)?.clone().unalias();
            as_decimal(&constant).is_some().then_some(constant)
        }
        LogicalPlan::SubqueryAlias(alias) => constant_at(&alias.input, at),
        _ => None,
    }
}

/// A join that compares floating-point numbers where one of two keys is a decimal.
fn keys_of_one_kind(mut join: Join) -> Result<Transformed<LogicalPlan>> {
    let mut is_new = false;
    for (left, right) in &mut join.on {
        let types = [left.get_type(join.left.schema())?, right.get_type(join.right.schema())?];
        is_new |= settle(&mut [left, right], &types);
    }
    Ok(Transformed::new_transformed(LogicalPlan::Join(join), is_new))
}

/// `IN` with a query, of one kind of numbers.
fn members_of_one_kind(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !has_sub_queries(&plan)? {
        return Ok(Transformed::no(plan));
    }
    let schema = input_schema(&plan)?;
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expression| {
        let name = names.save(&expression);
        let settled = expression.transform_up(|part| match part {
            Expr::InSubquery(membership) => members(membership, &schema),
            other => Ok(Transformed::no(other)),
        })?;
        Ok(settled.update_data(|expression| name.restore(expression)))
    })
}

fn members(mut membership: InSubquery, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let query = &membership.subquery.subquery;
    // A query of several columns is refused further on.
    let [column] = &mut *columns_of(query) else { return Ok(Transformed::no(Expr::InSubquery(membership))) };
    let (mut tested, mut wanted) = (membership.expr.as_ref().clone(), std::mem::take(column));
    let types = [tested.get_type(schema), wanted.get_type(query.schema())];
    let types = types.map(|data_type| data_type.unwrap_or(DataType::Null));
    if !settle(&mut [&mut tested, &mut wanted], &types) {
        return Ok(Transformed::no(Expr::InSubquery(membership)));
    }
    membership.expr = Box::new(tested);
    if wanted.try_as_col().is_none() {
        let name = query.schema().field(0).name();
        let query = Projection::try_new(vec![wanted.alias(name)], Arc::clone(query))?;
        membership.subquery = membership.subquery.with_plan(Arc::new(LogicalPlan::Projection(query)));
    }
    Ok(Transformed::yes(Expr::InSubquery(membership)))
}
