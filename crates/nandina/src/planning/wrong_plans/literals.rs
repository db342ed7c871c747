//! Literals that DataFusion's planner would change.
//!
//! - A number that no integer and no floating-point number holds becomes a decimal.
//! - A column of `VALUES` with decimals and floating-point numbers, written as constants and casts, is one of the latter.
//! - An interval is written in months, days and nanoseconds: Arrow forgets fractions of years and months.

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, ExactNumberInfo, Expr, Interval, SetExpr, UnaryOperator, Value,
};
use nandina_functions::parse_interval;

use crate::error::{Error, Result};
use crate::planning::trees::take;

/// Significant digits that a floating-point number of 64 bits may need to be told from its neighbours; more are lost.
const DIGITS_OF_DOUBLE: usize = 17;
/// Digits of the longest decimal.
const DIGITS_OF_DECIMAL: usize = 76;

/// The decimal that a number with many digits stands for.
pub(super) fn exact_number(expr: &mut Expr) {
    let Expr::Value(value) = expr else { return };
    let Value::Number(digits, _) = &value.value else { return };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let are_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !are_digits(whole) || !are_digits(fraction) {
        return;
    }
    let significant = format!("{whole}{fraction}").trim_start_matches('0').len();
    let is_held = match digits.contains('.') {
        true => significant <= DIGITS_OF_DOUBLE,
        false => significant == 0 || whole.parse::<u64>().is_ok(),
    };
    let precision = significant.max(fraction.len());
    if is_held || precision > DIGITS_OF_DECIMAL {
        return;
    }
    *expr = decimal_of(digits, precision, fraction.len());
}

fn decimal_of(digits: &str, precision: usize, scale: usize) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(Expr::Value(Value::SingleQuotedString(digits.to_owned()).with_empty_span())),
        data_type: DataType::Decimal(ExactNumberInfo::PrecisionAndScale(precision as u64, scale as i64)),
        array: false,
        format: None,
    }
}

/// Decides the types of columns of `VALUES` that have decimals: floating-point numbers beside them make them such,
/// constants with a point are decimals of their own digits. DataFusion makes decimals of all.
pub(super) fn settle_values(body: &mut SetExpr) {
    let rows = match body {
        SetExpr::Values(values) => &mut values.rows,
        SetExpr::SetOperation { left, right, .. } => {
            settle_values(left);
            return settle_values(right);
        }
        _ => return,
    };
    let columns = rows.first().map_or(0, |row| row.content.len());
    for column in 0..columns {
        let cells = || rows.iter().filter_map(|row| row.content.get(column));
        if !cells().any(is_decimal) || !cells().all(is_number) {
            continue;
        }
        let settle = if cells().any(is_float) { as_double } else { as_decimal };
        rows.iter_mut().filter_map(|row| row.content.get_mut(column)).for_each(settle);
    }
}

/// Whether a cell is written as a number, or as a text that may be one. Types of other expressions are not known here.
fn is_number(cell: &Expr) -> bool {
    match cell {
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => is_number(inner),
        Expr::Value(value) => !matches!(value.value, Value::Boolean(_)),
        Expr::Cast { .. } => is_decimal(cell) || is_float(cell),
        _ => false,
    }
}

fn is_decimal(cell: &Expr) -> bool {
    match cell {
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => is_decimal(inner),
        Expr::Cast { data_type, .. } => {
            matches!(data_type, DataType::Decimal(_) | DataType::Numeric(_) | DataType::Dec(_))
        }
        _ => false,
    }
}

fn is_float(cell: &Expr) -> bool {
    match cell {
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => is_float(inner),
        // A constant with a point is a decimal of its own digits.
        Expr::Value(value) => matches!(&value.value, Value::Number(digits, _) if digits.contains(['e', 'E'])),
        Expr::Cast { data_type, .. } => matches!(
            data_type,
            DataType::Float(_)
                | DataType::Float4
                | DataType::Float8
                | DataType::Float32
                | DataType::Float64
                | DataType::Real
                | DataType::Double(_)
                | DataType::DoublePrecision
        ),
        _ => false,
    }
}

fn as_decimal(cell: &mut Expr) {
    match cell {
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => as_decimal(inner),
        Expr::Value(value) => {
            if let Value::Number(digits, _) = &value.value
                && let Some((whole, fraction)) = digits.split_once('.')
            {
                let precision = (whole.len() + fraction.len()).min(DIGITS_OF_DECIMAL);
                *cell = decimal_of(digits, precision, fraction.len());
            }
        }
        _ => {}
    }
}

fn as_double(cell: &mut Expr) {
    let value = take(cell);
    *cell = Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(value),
        data_type: DataType::Double(ExactNumberInfo::None),
        array: false,
        format: None,
    };
}

/// Writes an interval so that nothing of it is lost; one with a minus before it, too, which stands for all of its parts.
pub(super) fn exact_interval(expr: &mut Expr) -> Result<()> {
    let (is_negated, interval) = match expr {
        Expr::Interval(interval) => (false, interval),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr: negated } => match negated.as_mut() {
            Expr::Interval(interval) => (true, interval),
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    let Some(text) = text_of(interval)? else { return Ok(()) };
    let Some(parsed) = parse_interval(&text) else {
        return Err(Error::Syntax {
            message: format!("'{text}' is no interval; write numbers and units, as '1 day 2 hours'"),
        });
    };
    let sign = if is_negated { -1 } else { 1 };
    let [months, days] = [parsed.months, parsed.days].map(|part| sign * i64::from(part));
    let nanoseconds = i128::from(sign) * i128::from(parsed.nanoseconds);
    let exact = format!("{months} months {days} days {nanoseconds} nanoseconds");
    let mut written = interval.clone();
    *written.value = Expr::Value(Value::SingleQuotedString(exact).with_empty_span());
    written.leading_field = None;
    *expr = Expr::Interval(written);
    Ok(())
}

/// A number and its unit, or what else an interval says; none if that is for the planner to refuse.
fn text_of(interval: &Interval) -> Result<Option<String>> {
    let Interval { value, leading_field, last_field: None, .. } = interval else { return Ok(None) };
    let (sign, literal) = match value.as_ref() {
        Expr::Value(literal) => ("", literal),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
            Expr::Value(literal) => ("-", literal),
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    let number = match (&literal.value, &leading_field) {
        (Value::SingleQuotedString(text), _) => text,
        (Value::Number(number, _), Some(_)) => number,
        // Of INTERVAL 3 fortnights the parser has taken the unit for a name.
        (Value::Number(number, _), None) => {
            return Err(Error::unsupported(format!(
                "INTERVAL {number} has no unit that is known; write INTERVAL '{number} days'"
            )));
        }
        _ => return Ok(None),
    };
    Ok(Some(match leading_field {
        Some(unit) => format!("{sign}{number} {unit}"),
        None => format!("{sign}{number}"),
    }))
}
