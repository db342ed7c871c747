//! Operators that are functions.

use datafusion::sql::sqlparser::ast::{BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr};

use crate::planning::trees::{call, take};

/// Writes `a ^ b` as `power(a, b)` of floating-point numbers, as in DuckDB and Postgres.
pub(super) fn write_as_function(expr: &mut Expr) {
    if let Expr::BinaryOp { left, op: BinaryOperator::BitwiseXor, right } = expr {
        let operands = [take(left), take(right)];
        *expr = call("power", operands.map(double));
    }
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
