//! Operators that are functions.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr, Ident, UnaryOperator,
};

use crate::planning::syntax;
use crate::planning::trees::{call, take};

/// Writes `a ^ b` as `power(a, b)` of floating-point numbers, as in DuckDB and Postgres, and the accesses to JSON `a -> 'b'`
/// and `a ->> 'b'` and the comparison of lists `a && b` as the functions that they are.
pub(super) fn write_as_function(expr: &mut Expr) {
    let Expr::BinaryOp { left, op, right } = expr else { return };
    let name = match op {
        BinaryOperator::BitwiseXor => "power",
        BinaryOperator::Arrow => "json_extract",
        BinaryOperator::LongArrow => "json_extract_string",
        BinaryOperator::PGOverlap => "array_has_any",
        _ => return,
    };
    let operands = [take(left), take(right)];
    *expr = match name {
        "power" => call(name, operands.map(double)),
        _ => call(name, operands),
    };
}

/// Writes `a ~ ANY(l)` and `a ~ ALL(l)` of a list as functions of its elements; DataFusion knows comparisons alone there.
pub(super) fn write_matches_of_elements(expr: &mut Expr) {
    let (left, op, right, is_all) = match expr {
        Expr::AnyOp { left, compare_op, right, .. } => (left, compare_op, right, false),
        Expr::AllOp { left, compare_op, right } => (left, compare_op, right, true),
        _ => return,
    };
    let is_match = matches!(
        op,
        BinaryOperator::PGRegexMatch
            | BinaryOperator::PGRegexIMatch
            | BinaryOperator::PGRegexNotMatch
            | BinaryOperator::PGRegexNotIMatch
    );
    if !is_match || matches!(right.as_ref(), Expr::Subquery(_)) {
        return;
    }
    let not = |expr| Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(Expr::Nested(Box::new(expr))) };
    let element = Ident::new("__matched");
    let matches = Expr::BinaryOp {
        left: Box::new(take(left)),
        op: op.clone(),
        right: Box::new(Expr::Identifier(element.clone())),
    };
    let condition = if is_all { not(matches) } else { matches };
    let any = call("array_any_match", [take(right), syntax::lambda(vec![element], condition)]);
    *expr = if is_all { not(any) } else { any };
}

fn double(expr: Expr) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(expr),
        data_type: DataType::Double(ExactNumberInfo::None),
        array: false,
        format: None,
    }
}
