//! `VARIANT`s are compared by what they are, of whatever type: by their keys. Values of a `UNION` are equal to nothing where
//! they have a member and it is null.
//!
//! `GROUP BY`, `DISTINCT`, `USING` and set operations keep `VARIANT`s of different types apart.

use std::cmp::Ordering;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};
use nandina_functions::{compare_unions, is_union, is_variant, variant_keys};

use super::compares;
use crate::meanings::call_giving;

/// The values of the call of a function.
type Kernel = fn(&[ArrayRef]) -> Result<ArrayRef>;

pub(super) fn comparison(operation: &BinaryExpr, types: &[DataType; 2]) -> Option<Expr> {
    if types.iter().all(is_variant) && compares(operation.op) {
        let [left, right] = [&operation.left, &operation.right].map(|side| Box::new(key(*side.clone())));
        return Some(Expr::BinaryExpr(BinaryExpr::new(left, operation.op, right)));
    }
    let are_unions = types.iter().all(is_union) && types[0] == types[1];
    let holds: (&'static str, Kernel) = match operation.op {
        _ if !are_unions => return None,
        Operator::Eq => ("union_equal", |sides| compared(sides, Ordering::is_eq)),
        Operator::NotEq => ("union_different", |sides| compared(sides, Ordering::is_ne)),
        Operator::Lt => ("union_less", |sides| compared(sides, Ordering::is_lt)),
        Operator::LtEq => ("union_at_most", |sides| compared(sides, Ordering::is_le)),
        Operator::Gt => ("union_greater", |sides| compared(sides, Ordering::is_gt)),
        Operator::GtEq => ("union_at_least", |sides| compared(sides, Ordering::is_ge)),
        _ => return None,
    };
    let sides = vec![*operation.left.clone(), *operation.right.clone()];
    Some(call_giving(DataType::Boolean, holds.0, holds.1, sides))
}

fn compared(sides: &[ArrayRef], holds: fn(Ordering) -> bool) -> Result<ArrayRef> {
    match sides {
        [left, right] => compare_unions(left, right, holds),
        _ => internal_err!("a comparison of {} sides", sides.len()),
    }
}

pub(super) fn between(
    between: Between,
    compared: &DataType,
    otherwise: impl FnOnce(Between) -> Transformed<Expr>,
) -> Transformed<Expr> {
    if !is_variant(compared) {
        return otherwise(between);
    }
    let Between { expr, negated, low, high } = between;
    let [expr, low, high] = [expr, low, high].map(|part| Box::new(key(*part)));
    Transformed::yes(Expr::Between(Between { expr, negated, low, high }))
}

pub(super) fn in_list(list: InList, compared: &DataType) -> Transformed<Expr> {
    if !is_variant(compared) {
        return Transformed::no(Expr::InList(list));
    }
    let InList { expr, list, negated } = list;
    let list = list.into_iter().map(key).collect();
    Transformed::yes(Expr::InList(InList { expr: Box::new(key(*expr)), list, negated }))
}

fn key(variant: Expr) -> Expr {
    call_giving(DataType::Binary, "variant_key", keys, vec![variant])
}

fn keys(variants: &[ArrayRef]) -> Result<ArrayRef> {
    match variants {
        [variants] => variant_keys(variants),
        _ => internal_err!("the key of {} VARIANTs", variants.len()),
    }
}
