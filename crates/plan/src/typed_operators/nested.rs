//! Lists and structs are compared with nulls inside behind all values, as `ORDER BY` sorts them. Arrow's comparisons put
//! them first.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, make_comparator};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};

use crate::meanings::call_giving;

/// Whether values of a type can have nulls inside.
pub(super) fn has_order_of_its_own(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) | DataType::Struct(_)
    )
}

/// A comparison of nested values by their order. Which are equal does not depend on it.
pub(super) fn comparison(operation: &BinaryExpr, types: &[DataType; 2]) -> Option<Expr> {
    let are_nested = types.iter().all(has_order_of_its_own);
    let operands = || (operation.left.as_ref().clone(), operation.right.as_ref().clone());
    match operation.op {
        _ if !are_nested => None,
        Operator::Lt => Some(less(operands())),
        Operator::Gt => Some(less(swapped(operands()))),
        Operator::LtEq => Some(Expr::Not(Box::new(less(swapped(operands()))))),
        Operator::GtEq => Some(Expr::Not(Box::new(less(operands())))),
        _ => None,
    }
}

fn swapped((left, right): (Expr, Expr)) -> (Expr, Expr) {
    (right, left)
}

pub(super) fn between(between: Between, compared: &DataType) -> Transformed<Expr> {
    if !has_order_of_its_own(compared) {
        return Transformed::no(Expr::Between(between));
    }
    let Between { expr, negated, low, high } = between;
    let is_below = less((expr.as_ref().clone(), *low));
    let is_inside = Expr::Not(Box::new(is_below)).and(Expr::Not(Box::new(less((*high, *expr)))));
    Transformed::yes(if negated { Expr::Not(Box::new(is_inside)) } else { is_inside })
}

fn less((left, right): (Expr, Expr)) -> Expr {
    call_giving(DataType::Boolean, "nested_less", are_less, vec![left, right])
}

fn are_less(sides: &[ArrayRef]) -> Result<ArrayRef> {
    let [left, right] = sides else {
        return internal_err!("a comparison has two sides, not {}", sides.len());
    };
    let options = SortOptions { descending: false, nulls_first: false };
    let compare = make_comparator(left.as_ref(), right.as_ref(), options)?;
    let is_less = (0..left.len()).map(|row| compare(row, row).is_lt()).collect();
    let nulls = NullBuffer::union(left.logical_nulls().as_ref(), right.logical_nulls().as_ref());
    Ok(Arc::new(BooleanArray::new(is_less, nulls)))
}
