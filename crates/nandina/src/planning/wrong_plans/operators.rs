//! Operators that are functions.

use datafusion::sql::sqlparser::ast::{BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr};

use crate::planning::trees::{call, take};

/// Writes `a ^ b` as `power(a, b)` of floating-point numbers, as in DuckDB and Postgres, and the accesses to JSON `a -> 'b'`
/// and `a ->> 'b'` as the functions that they are.
pub(super) fn write_as_function(expr: &mut Expr) {
    let Expr::BinaryOp { left, op, right } = expr else { return };
    let name = match op {
        BinaryOperator::BitwiseXor => "power",
        BinaryOperator::Arrow => "json_extract",
        BinaryOperator::LongArrow => "json_extract_string",
        _ => return,
    };
    let operands = [take(left), take(right)];
    *expr = match name {
        "power" => call(name, operands.map(double)),
        _ => call(name, operands),
    };
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
