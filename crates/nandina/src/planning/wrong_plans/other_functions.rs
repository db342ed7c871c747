//! Functions that are others, or expressions.
//!
//! | call | written as |
//! |---|---|
//! | `date_part('month', x)`, `EXTRACT(month FROM x)` | `month(x)` |
//! | `date_part(['year', 'month'], x)` | `named_struct('year', year(x), 'month', month(x))` |
//! | `date_part(part, x)` | `date_part_of(part, x)` |
//! | `add(a, b)`, `mod(a, b)` and so on | `a + b`, `a % b` |
//! | `age(x)` | `age(current_date, x)` |
//! | `timezone('UTC', x)` | `x AT TIME ZONE 'UTC'` |
//! | `struct_insert(s, a := 1)`, `struct_update` | `struct_concat(s, named_struct('a', 1))` |
//! | `encode(x)`, `decode(x)` without an encoding | `bytes_of_text(x)`, `text_of_bytes(x)` |
//! | `a ^@ b` | `starts_with(a, b)` |
//! | `~x` | `bits_not(x)` |
//! | `constant_or_null(x, y)` | `CASE WHEN y IS NULL THEN NULL ELSE x END` |
//! | `regexp_split_to_table(x, p)` | `unnest(string_split_regex(x, p))` |
//! | `string_agg(x)` | `string_agg(x, ',')` |
//! | `weighted_avg(x, w)` | `sum(x * w) / sum(w)` of rows that have both |
//! | `percentile_disc(f) WITHIN GROUP (ORDER BY x)` | `quantile_disc(x, f)` |
//! | `reservoir_quantile(x, f, 1000)` | `quantile_disc(x, f)`, which is exact |
//! | `approx_quantile(x, [f, g])` | `make_array(approx_quantile(x, f), approx_quantile(x, g))` |

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, CastKind, DataType, ExactNumberInfo, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArguments, Ident, ObjectName, UnaryOperator, Value,
};

use crate::error::{Error, Result};
use crate::planning::trees::{call, take};

/// The part that is left to DataFusion, which looks for years in ranges of time.
const YEAR: &str = "year";

pub(super) fn write_out(expr: &mut Expr) -> Result<()> {
    let written = match expr {
        Expr::Extract { field, expr: value, .. } => {
            let name = field.to_string().trim_matches('\'').to_lowercase();
            match name == YEAR {
                true => None,
                false => Some(part(&name, take(value))?),
            }
        }
        Expr::BinaryOp { left, op: BinaryOperator::PGStartsWith, right } => {
            Some(call("starts_with", [take(left), take(right)]))
        }
        Expr::UnaryOp { op: UnaryOperator::BitwiseNot, expr } => Some(call("bits_not", [take(expr)])),
        Expr::Function(function) => of_function(function)?,
        _ => None,
    };
    if let Some(written) = written {
        *expr = written;
    }
    Ok(())
}

fn of_function(function: &mut Function) -> Result<Option<Expr>> {
    let name = function.name.to_string().to_lowercase();
    match name.as_str() {
        "percentile_disc" => return percentile(function, "quantile_disc"),
        "percentile_cont" if has_list(function) => return percentile(function, "quantile_cont"),
        "reservoir_quantile" => return Ok(exact_quantile(function)),
        "approx_quantile" => return Ok(quantiles(function)),
        "struct_insert" | "struct_update" => return changed_struct(function, &name),
        "weighted_avg" | "wavg" => return weighted_average(function),
        "string_agg" | "group_concat" | "listagg" => separate(function),
        _ => {}
    }
    if function.over.is_some() || function.filter.is_some() {
        return Ok(None);
    }
    let Some(mut arguments) = arguments(function) else { return Ok(None) };
    let operator = match name.as_str() {
        "add" => BinaryOperator::Plus,
        "subtract" => BinaryOperator::Minus,
        "multiply" => BinaryOperator::Multiply,
        "divide" => BinaryOperator::DuckIntegerDivide,
        "mod" => BinaryOperator::Modulo,
        "date_part" | "datepart" => return date_part(&mut arguments),
        "age" => {
            let [value] = arguments.as_mut_slice() else { return Ok(None) };
            return Ok(Some(call("age", [call("current_date", []), take(value)])));
        }
        "encode" | "decode" if arguments.len() == 1 => {
            let function = if name == "encode" { "bytes_of_text" } else { "text_of_bytes" };
            return Ok(Some(call(function, arguments)));
        }
        "constant_or_null" => return Ok(unless_null(arguments)),
        "regexp_split_to_table" => {
            return Ok(Some(call("unnest", [call("string_split_regex", arguments)])));
        }
        "array_extract" | "list_extract" | "list_element" => {
            let [value, field] = arguments.as_mut_slice() else { return Ok(None) };
            // The field of a struct.
            return Ok(constant(field).is_some().then(|| call("get_field", [take(value), take(field)])));
        }
        "timezone" => {
            return Ok(match arguments.as_mut_slice() {
                [zone, value] => Some(Expr::AtTimeZone {
                    timestamp: Box::new(take(value)),
                    time_zone: Box::new(take(zone)),
                }),
                _ => None,
            });
        }
        _ => return Ok(None),
    };
    let [left, right] = arguments.as_mut_slice() else { return Ok(None) };
    Ok(Some(Expr::Nested(Box::new(binary(take(left), operator, take(right))))))
}

/// Copies of the arguments of a call, if they are plain.
pub(super) fn arguments(function: &Function) -> Option<Vec<Expr>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let plain = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    if list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
        return None;
    }
    list.args.iter().map(plain).collect()
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    let nested = |expr| Box::new(Expr::Nested(Box::new(expr)));
    Expr::BinaryOp { left: nested(left), op, right: nested(right) }
}

fn text(text: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(text.to_owned()).with_empty_span())
}

fn constant(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.to_lowercase()),
            _ => None,
        },
        _ => None,
    }
}

fn date_part(arguments: &mut [Expr]) -> Result<Option<Expr>> {
    let [name, value] = arguments else { return Ok(None) };
    if let Some(known) = constant(name) {
        return match known == YEAR {
            true => Ok(None),
            false => part(&known, take(value)).map(Some),
        };
    }
    if let Expr::Array(names) = name {
        let names: Option<Vec<String>> = names.elem.iter().map(constant).collect();
        if let Some(names) = names.filter(|names| !names.is_empty()) {
            let mut fields = Vec::with_capacity(2 * names.len());
            for name in names {
                fields.extend([text(&name), part(&name, value.clone())?]);
            }
            return Ok(unless_null(vec![call("named_struct", fields), take(value)]));
        }
    }
    Ok(Some(call("date_part_of", [take(name), take(value)])))
}

/// A part of a point in time, as the function that is called like it.
fn part(name: &str, value: Expr) -> Result<Expr> {
    match nandina_functions::function_of_part(name) {
        Some(function) => Ok(call(function, [value])),
        None => Err(Error::unsupported(format!(
            "'{name}' is no part of a date; there are year, month, day, hour and so on"
        ))),
    }
}

/// A quantile of all values in the place of that of a sample of them.
fn exact_quantile(function: &Function) -> Option<Expr> {
    let arguments = arguments(function)?;
    let [value, fraction, ..] = arguments.as_slice() else { return None };
    Some(called_like(function, "quantile_disc", [value.clone(), fraction.clone()]))
}

/// A list of quantiles, if their fractions are one.
fn quantiles(function: &Function) -> Option<Expr> {
    let arguments = arguments(function)?;
    let [value, fractions] = arguments.as_slice() else { return None };
    let is_list = |list: &Function| {
        let names = ["list_value", "array_value", "make_array"];
        names.iter().any(|name| list.name.to_string().eq_ignore_ascii_case(name))
    };
    let fractions = match fractions {
        Expr::Array(list) => list.elem.clone(),
        Expr::Function(list) if is_list(list) => self::arguments(list)?,
        _ => return None,
    };
    let quantile = |fraction| called_like(function, "approx_quantile", [value.clone(), fraction]);
    Some(call("make_array", fractions.into_iter().map(quantile)))
}

/// A call with the filter and the window of another one.
fn called_like(function: &Function, name: &str, arguments: impl IntoIterator<Item = Expr>) -> Expr {
    let mut called = call(name, arguments);
    if let Expr::Function(called) = &mut called {
        (called.filter, called.over) = (function.filter.clone(), function.over.clone());
    }
    called
}

fn has_list(function: &Function) -> bool {
    matches!(arguments(function).as_deref(), Some([Expr::Array(_)]))
}

/// `percentile_disc(f) WITHIN GROUP (ORDER BY x)`.
fn percentile(function: &mut Function, quantile: &str) -> Result<Option<Expr>> {
    let Some(fraction) = arguments(function) else { return Ok(None) };
    let ([fraction], [order]) = (fraction.as_slice(), function.within_group.as_slice()) else {
        return Ok(None);
    };
    let mut fraction = fraction.clone();
    let is_negative = |fraction: &Expr| matches!(fraction, Expr::UnaryOp { op: UnaryOperator::Minus, .. });
    let has_negative = match &fraction {
        Expr::Array(list) => list.elem.iter().any(is_negative),
        one => is_negative(one),
    };
    if has_negative {
        return Err(Error::unsupported("the fraction of a percentile must be a number between 0 and 1"));
    }
    let negative = |fraction: Expr| Expr::UnaryOp {
        op: UnaryOperator::Minus,
        expr: Box::new(Expr::Nested(Box::new(fraction))),
    };
    // Counted from the other end.
    match &mut fraction {
        _ if order.options.asc != Some(false) => {}
        Expr::Array(list) => list.elem.iter_mut().for_each(|fraction| *fraction = negative(take(fraction))),
        one => *one = negative(take(one)),
    }
    let mut written = call(quantile, [order.expr.clone(), fraction]);
    if let Expr::Function(written) = &mut written {
        written.filter = function.filter.take();
        written.over = function.over.take();
    }
    Ok(Some(written))
}

/// Fields that a call adds to a struct, or changes in it.
fn changed_struct(function: &Function, name: &str) -> Result<Option<Expr>> {
    let FunctionArguments::List(list) = &function.args else { return Ok(None) };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(value)), fields @ ..] = list.args.as_slice() else {
        return Ok(None);
    };
    let mut named = Vec::new();
    for field in fields {
        match super::packed_structs::field(field) {
            Some((field, value)) => named.extend([text(&field), value]),
            None => return Ok(None),
        }
    }
    if named.is_empty() {
        return Ok(None);
    }
    let function = if name == "struct_insert" { "struct_concat" } else { "struct_update" };
    Ok(Some(call(function, [value.clone(), call("named_struct", named)])))
}

/// Gives a call of `string_agg` the separator that it has without one.
fn separate(function: &mut Function) {
    if let FunctionArguments::List(list) = &mut function.args
        && list.args.len() == 1
    {
        list.args.push(FunctionArg::Unnamed(FunctionArgExpr::Expr(text(","))));
        function.name = ObjectName::from(vec![Ident::new("string_agg")]);
    }
    // What is distinct is ordered by itself, and not by its text.
    if let FunctionArguments::List(list) = &mut function.args
        && list.duplicate_treatment.is_none()
        && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(value))) = list.args.first_mut()
        && !matches!(value, Expr::Cast { .. } | Expr::Value(_))
    {
        *value = Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(take(value)),
            data_type: DataType::Varchar(None),
            array: false,
            format: None,
        };
    }
}

/// The first of these, or null where one of the others is.
fn unless_null(mut arguments: Vec<Expr>) -> Option<Expr> {
    if arguments.len() < 2 {
        return None;
    }
    let value = arguments.remove(0);
    let conditions = arguments.into_iter().map(|other| CaseWhen {
        condition: Expr::IsNull(Box::new(other)),
        result: crate::planning::trees::null(),
    });
    Some(Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: conditions.collect(),
        else_result: Some(Box::new(value)),
    })
}

fn weighted_average(function: &mut Function) -> Result<Option<Expr>> {
    let Some([value, weight]) = arguments(function).and_then(|all| <[Expr; 2]>::try_from(all).ok()) else {
        return Err(Error::unsupported(
            "weighted_avg takes values and weights, without DISTINCT or ORDER BY",
        ));
    };
    let double = |expr: &Expr| Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(expr.clone()),
        data_type: DataType::Double(ExactNumberInfo::None),
        array: false,
        format: None,
    };
    let weights = Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen {
            condition: Expr::IsNotNull(Box::new(value.clone())),
            result: double(&weight),
        }],
        else_result: None,
    };
    let function: &Function = function;
    let sum = |of: Expr| called_like(function, "sum", [of]);
    let products = sum(binary(double(&value), BinaryOperator::Multiply, double(&weight)));
    Ok(Some(Expr::Nested(Box::new(binary(products, BinaryOperator::Divide, sum(weights))))))
}
