//! Operators bind as they do in Postgres and DuckDB: `^` more tightly than all others, `||` less than arithmetic.
//!
//! ```text
//!   2 ^ 2 + 1        parsed as 2 ^ (2 + 1), meant as (2 ^ 2) + 1
//!   'a' || 5 % 3     parsed as ('a' || 5) % 3, meant as 'a' || (5 % 3)
//! ```
//!
//! Parentheses are nodes of their own, so that a tree of binary operators, read from left to right, is what was written.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, ObjectName, Value,
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

/// Builds a tree of operators anew, each with the operands that it is meant to have.
pub(super) fn settle(expr: &mut Expr) {
    if !matches!(expr, Expr::BinaryOp { op, .. } if tightness(op).is_some()) {
        return;
    }
    let (mut operands, mut operators) = (Vec::new(), Vec::new());
    take_apart(std::mem::replace(expr, nothing()), &mut operands, &mut operators);
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
    if let Some(whole) = built.pop() {
        *expr = whole;
    }
    assert!(built.is_empty(), "every operator has two operands");
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
        return;
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
    fn powers_bind_most_tightly() {
        let power = |a: &str, b: &str| format!("power(CAST({a} AS DOUBLE), CAST({b} AS DOUBLE))");
        assert_eq!(settled("2 ^ 2 + 1"), format!("({} + 1)", power("2", "2")));
        assert_eq!(settled("3 * 2 ^ 2"), format!("(3 * {})", power("2", "2")));
        assert_eq!(settled("2 ^ 3 ^ 2"), power(&power("2", "3"), "2"));
    }
}
