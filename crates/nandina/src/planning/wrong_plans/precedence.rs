//! Operators bind as they do in Postgres and DuckDB: `^` more tightly than all others, `||` less than arithmetic.
//!
//! ```text
//!   2 ^ 2 + 1        parsed as 2 ^ (2 + 1), meant as (2 ^ 2) + 1
//!   'a' || 5 % 3     parsed as ('a' || 5) % 3, meant as 'a' || (5 % 3)
//! ```
//!
//! The parser takes all that follows `IS DISTINCT FROM` for its right side; `AND` and `OR` behind it are not.
//!
//! Parentheses are nodes of their own, so that a tree of binary operators, read from left to right, is the text as
//! written.
#![allow(
    clippy::indexing_slicing,
    reason = "operands are numbered here: a wrong number must not lose a condition"
)]

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, ObjectName, UnaryOperator, Value,
};

/// How tightly an operator binds; none for those that the parser does right.
fn tightness(operator: &BinaryOperator) -> Option<u8> {
    match operator {
        BinaryOperator::BitwiseXor => Some(4),
        BinaryOperator::Multiply
        | BinaryOperator::Divide
        | BinaryOperator::DuckIntegerDivide
        | BinaryOperator::Modulo => Some(3),
        BinaryOperator::Plus | BinaryOperator::Minus => Some(2),
        BinaryOperator::StringConcat
        | BinaryOperator::BitwiseAnd
        | BinaryOperator::BitwiseOr
        | BinaryOperator::PGBitwiseXor
        | BinaryOperator::PGBitwiseShiftLeft
        | BinaryOperator::PGBitwiseShiftRight => Some(1),
        _ => None,
    }
}

/// Gives `AND` and `OR` back what `IS DISTINCT FROM` has taken from them.
pub(super) fn settle_conditions(expr: &mut Expr) {
    if !takes_too_much(expr) {
        return;
    }
    let (mut operands, mut operators) = (Vec::new(), Vec::new());
    take_conditions_apart(std::mem::replace(expr, nothing()), &mut operands, &mut operators);
    *expr = build(operands, operators);
}

fn is_and_or(expr: &Expr) -> bool {
    matches!(expr, Expr::BinaryOp { op: BinaryOperator::And | BinaryOperator::Or, .. })
}

/// Whether the right side of an `IS DISTINCT FROM` at the end of a condition goes on behind it.
fn takes_too_much(expr: &Expr) -> bool {
    match expr {
        Expr::IsDistinctFrom(_, right) | Expr::IsNotDistinctFrom(_, right) => {
            is_and_or(right) || takes_too_much(right)
        }
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => takes_too_much(expr),
        Expr::BinaryOp { right, .. } if is_and_or(expr) => takes_too_much(right),
        _ => false,
    }
}

/// Conditions in the order of the text, and the operators between them. The last of `operands` is the first one found.
fn take_conditions_apart(expr: Expr, operands: &mut Vec<Expr>, operators: &mut Vec<(BinaryOperator, u8)>) {
    let first = operands.len();
    match expr {
        Expr::BinaryOp { left, op: op @ (BinaryOperator::And | BinaryOperator::Or), right } => {
            take_conditions_apart(*left, operands, operators);
            let tightness = if op == BinaryOperator::And { 2 } else { 1 };
            operators.push((op, tightness));
            take_conditions_apart(*right, operands, operators);
        }
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => {
            take_conditions_apart(*expr, operands, operators);
            wrap(operands, first, |expr| Expr::UnaryOp { op: UnaryOperator::Not, expr });
        }
        Expr::IsDistinctFrom(left, right) => {
            take_conditions_apart(*right, operands, operators);
            wrap(operands, first, |right| Expr::IsDistinctFrom(left, right));
        }
        Expr::IsNotDistinctFrom(left, right) => {
            take_conditions_apart(*right, operands, operators);
            wrap(operands, first, |right| Expr::IsNotDistinctFrom(left, right));
        }
        other => operands.push(other),
    }
}

fn wrap(operands: &mut [Expr], at: usize, wrapped: impl FnOnce(Box<Expr>) -> Expr) {
    operands[at] = wrapped(Box::new(std::mem::replace(&mut operands[at], nothing())));
}

/// Builds a tree of operators anew, each with the operands that it is meant to have.
pub(super) fn settle(expr: &mut Expr) {
    if !matches!(expr, Expr::BinaryOp { op, .. } if tightness(op).is_some()) {
        return;
    }
    let (mut operands, mut operators) = (Vec::new(), Vec::new());
    take_apart(std::mem::replace(expr, nothing()), &mut operands, &mut operators);
    *expr = build(operands, operators);
}

/// The tree of operators with the operands between which they stand.
fn build(operands: Vec<Expr>, operators: Vec<(BinaryOperator, u8)>) -> Expr {
    assert_eq!(operands.len(), operators.len() + 1, "every operator stands between two operands");
    // Every operator takes the operands to its sides as soon as one that binds no more tightly follows.
    let mut operands = operands.into_iter();
    let mut built: Vec<Expr> = operands.next().into_iter().collect();
    let mut waiting: Vec<(BinaryOperator, u8)> = Vec::new();
    for ((operator, tightness), operand) in operators.into_iter().zip(operands) {
        while let Some((_, before)) = waiting.last()
            && *before >= tightness
        {
            put_together(&mut built, &mut waiting);
        }
        waiting.push((operator, tightness));
        built.push(operand);
    }
    while !waiting.is_empty() {
        put_together(&mut built, &mut waiting);
    }
    built.remove(0)
}

fn take_apart(expr: Expr, operands: &mut Vec<Expr>, operators: &mut Vec<(BinaryOperator, u8)>) {
    match expr {
        Expr::BinaryOp { left, op, right } => match tightness(&op) {
            Some(tightness) => {
                take_apart(*left, operands, operators);
                operators.push((op, tightness));
                take_apart(*right, operands, operators);
            }
            None => operands.push(Expr::BinaryOp { left, op, right }),
        },
        other => operands.push(other),
    }
}

fn put_together(operands: &mut Vec<Expr>, operators: &mut Vec<(BinaryOperator, u8)>) {
    let (Some((operator, _)), Some(right), Some(left)) = (operators.pop(), operands.pop(), operands.pop())
    else {
        unreachable!("an operator waits for its second operand alone");
    };
    operands.push(match operator {
        BinaryOperator::BitwiseXor => power(left, right),
        op => Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) },
    });
}

fn power(base: Expr, exponent: Expr) -> Expr {
    let double = |expr| Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(expr),
        data_type: DataType::Double(ExactNumberInfo::None),
        array: false,
        format: None,
    };
    let argument = |expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(double(expr)));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new("power")]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: vec![argument(base), argument(exponent)],
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

fn nothing() -> Expr {
    Expr::Value(Value::Null.with_empty_span())
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::dialect::GenericDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn settled(text: &str) -> String {
        let mut expr = Parser::new(&GenericDialect {}).try_with_sql(text).unwrap().parse_expr().unwrap();
        settle(&mut expr);
        parenthesised(&expr)
    }

    fn parenthesised(expr: &Expr) -> String {
        match expr {
            Expr::BinaryOp { left, op, right } => {
                format!("({} {op} {})", parenthesised(left), parenthesised(right))
            }
            other => other.to_string(),
        }
    }

    #[test]
    fn operators_bind_as_in_postgres() {
        assert_eq!(settled("a + b * c - d"), "((a + (b * c)) - d)");
        assert_eq!(settled("a || 5 % 3"), "(a || (5 % 3))");
        assert_eq!(settled("a || b + c || d"), "((a || (b + c)) || d)");
        assert_eq!(settled("a - b - c"), "((a - b) - c)");
        assert_eq!(settled("a & b | c << d"), "(((a & b) | c) << d)");
        assert_eq!(settled("a * (b || c)"), "(a * (b || c))");
    }

    #[test]
    fn conditions_end_where_the_next_one_begins() {
        let settled = |text: &str| {
            let mut expr = Parser::new(&GenericDialect {}).try_with_sql(text).unwrap().parse_expr().unwrap();
            settle_conditions(&mut expr);
            parenthesised(&expr)
        };
        assert_eq!(settled("a IS DISTINCT FROM b AND c"), "(a IS DISTINCT FROM b AND c)");
        assert_eq!(
            settled("x AND NOT a IS NOT DISTINCT FROM b OR c AND d"),
            "((x AND NOT a IS NOT DISTINCT FROM b) OR (c AND d))"
        );
        assert_eq!(
            settled("a IS DISTINCT FROM b OR c IS DISTINCT FROM d AND e"),
            "(a IS DISTINCT FROM b OR (c IS DISTINCT FROM d AND e))"
        );
        assert_eq!(settled("a IS DISTINCT FROM (b AND c)"), "a IS DISTINCT FROM (b AND c)");
    }

    #[test]
    fn powers_bind_most_tightly() {
        let power = |a: &str, b: &str| format!("power(CAST({a} AS DOUBLE), CAST({b} AS DOUBLE))");
        assert_eq!(settled("2 ^ 2 + 1"), format!("({} + 1)", power("2", "2")));
        assert_eq!(settled("3 * 2 ^ 2"), format!("(3 * {})", power("2", "2")));
        assert_eq!(settled("2 ^ 3 ^ 2"), power(&power("2", "3"), "2"));
    }
}
