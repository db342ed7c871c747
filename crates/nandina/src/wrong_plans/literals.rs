//! Literals that DataFusion's planner would change.
//!
//! - A number that no integer and no floating-point number holds becomes a decimal.
//! - An interval is written in months, days and nanoseconds: Arrow forgets fractions of years and months.

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, ExactNumberInfo, Expr, Interval, UnaryOperator, Value,
};
use nandina_plan::parse_interval;

use crate::error::{Error, Result};

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
    *expr = Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(Expr::Value(Value::SingleQuotedString(digits.clone()).with_empty_span())),
        data_type: DataType::Decimal(ExactNumberInfo::PrecisionAndScale(
            precision as u64,
            fraction.len() as i64,
        )),
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
