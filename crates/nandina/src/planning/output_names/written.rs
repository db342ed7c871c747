//! Expressions as names: every operator with brackets around it, in the spelling of DuckDB.

use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, CastKind, DataType, DuplicateTreatment, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArgumentClause, FunctionArguments, LambdaFunction, ObjectName, OrderByExpr,
    Subscript, UnaryOperator, Value, WindowSpec, WindowType,
};

use crate::planning::syntax::EXCLUSION;
use crate::planning::wrong_plans::normalized;

/// The name of a column with these values.
pub(super) fn text(expr: &Expr) -> String {
    match expr {
        Expr::Identifier(name) => normalized(name),
        Expr::CompoundIdentifier(path) => path.iter().map(normalized).collect::<Vec<_>>().join("."),
        Expr::Nested(inner) => text(inner),
        Expr::Value(value) => match &value.value {
            Value::Null => "NULL".to_owned(),
            Value::Boolean(truth) => truth.to_string(),
            other => other.to_string(),
        },
        Expr::BinaryOp { left, op: op @ (BinaryOperator::And | BinaryOperator::Or), right } => {
            // Chains of one operator stand in one pair of brackets.
            let mut terms = vec![text(right)];
            let mut rest = left.as_ref();
            while let Expr::BinaryOp { left, op: same, right } = rest
                && same == op
            {
                terms.push(text(right));
                rest = left;
            }
            terms.push(text(rest));
            terms.reverse();
            format!("({})", terms.join(&format!(" {op} ")))
        }
        Expr::BinaryOp { left, op, right } => {
            format!("({} {} {})", text(left), operator(op), text(right))
        }
        Expr::UnaryOp { op: UnaryOperator::Minus, expr: number } if matches!(**number, Expr::Value(_)) => {
            format!("-{}", text(number))
        }
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => format!("(NOT {})", text(expr)),
        Expr::UnaryOp { op, expr } => format!("({op}({}))", text(expr)),
        Expr::IsNull(expr) => format!("({} IS NULL)", text(expr)),
        Expr::IsNotNull(expr) => format!("({} IS NOT NULL)", text(expr)),
        Expr::IsTrue(expr) => format!("({} IS TRUE)", text(expr)),
        Expr::IsNotTrue(expr) => format!("({} IS NOT TRUE)", text(expr)),
        Expr::IsFalse(expr) => format!("({} IS FALSE)", text(expr)),
        Expr::IsNotFalse(expr) => format!("({} IS NOT FALSE)", text(expr)),
        Expr::IsDistinctFrom(left, right) => format!("({} IS DISTINCT FROM {})", text(left), text(right)),
        Expr::IsNotDistinctFrom(left, right) => {
            format!("({} IS NOT DISTINCT FROM {})", text(left), text(right))
        }
        Expr::InList { expr, list, negated } => {
            negation(*negated, format!("({} IN ({}))", text(expr), texts(list)))
        }
        Expr::InSubquery { expr, subquery, negated } => {
            negation(*negated, format!("({} = ANY({subquery}))", text(expr)))
        }
        Expr::Between { expr, negated, low, high } => {
            negation(*negated, format!("({} BETWEEN {} AND {})", text(expr), text(low), text(high)))
        }
        Expr::Like { negated, any: false, expr, pattern, escape_char: None } => {
            format!("({} {}~~ {})", text(expr), if *negated { "!" } else { "" }, text(pattern))
        }
        Expr::ILike { negated, any: false, expr, pattern, escape_char: None } => {
            format!("({} {}~~* {})", text(expr), if *negated { "!" } else { "" }, text(pattern))
        }
        Expr::Cast { kind, expr, data_type, .. } => {
            let cast =
                if matches!(kind, CastKind::TryCast | CastKind::SafeCast) { "TRY_CAST" } else { "CAST" };
            format!("{cast}({} AS {})", text(expr), type_name(data_type))
        }
        Expr::Extract { field, expr, .. } => format!("date_part('{field}', {})", text(expr)),
        Expr::Ceil { expr, .. } => format!("ceil({})", text(expr)),
        Expr::Floor { expr, .. } => format!("floor({})", text(expr)),
        Expr::Position { expr, r#in } => format!("position({}, {})", text(r#in), text(expr)),
        Expr::Substring { expr, substring_from, substring_for, .. } => {
            let parts = [Some(expr), substring_from.as_ref(), substring_for.as_ref()];
            let parts: Vec<String> = parts.into_iter().flatten().map(|part| text(part)).collect();
            format!("substring({})", parts.join(", "))
        }
        Expr::Case { operand, conditions, else_result, .. } => {
            let branches: String = conditions
                .iter()
                .map(|branch| {
                    let condition = match operand {
                        Some(operand) => format!("({} = {})", text(operand), text(&branch.condition)),
                        None => text(&branch.condition),
                    };
                    format!(" WHEN ({condition}) THEN ({})", text(&branch.result))
                })
                .collect();
            let otherwise = else_result.as_ref().map_or("NULL".to_owned(), |otherwise| text(otherwise));
            format!("CASE {branches} ELSE {otherwise} END")
        }
        Expr::Exists { subquery, negated } => negation(*negated, format!("EXISTS({subquery})")),
        Expr::Tuple(values) => format!("row({})", texts(values)),
        Expr::Array(array) => format!("[{}]", texts(&array.elem)),
        Expr::CompoundFieldAccess { root, access_chain } => {
            let accesses: String = access_chain.iter().map(access).collect();
            format!("{}{accesses}", text(root))
        }
        Expr::Function(function) => call(function),
        Expr::Lambda(LambdaFunction { params, body, .. }) => {
            let names: Vec<String> = params.iter().map(|parameter| normalized(&parameter.name)).collect();
            format!("(lambda {}: {})", names.join(", "), text(body))
        }
        other => other.to_string(),
    }
}

fn texts(list: &[Expr]) -> String {
    list.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn negation(negated: bool, text: String) -> String {
    if negated { format!("(NOT {text})") } else { text }
}

fn operator(operator: &BinaryOperator) -> String {
    match operator {
        BinaryOperator::NotEq => "!=".to_owned(),
        BinaryOperator::BitwiseXor => "^".to_owned(),
        other => other.to_string(),
    }
}

fn access(access: &AccessExpr) -> String {
    match access {
        AccessExpr::Dot(field) => format!(".{}", text(field)),
        AccessExpr::Subscript(Subscript::Index { index }) => format!("[{}]", text(index)),
        AccessExpr::Subscript(slice) => format!("[{slice}]"),
    }
}

fn call(function: &Function) -> String {
    let name = function_name(&function.name);
    let mut written = match &function.args {
        FunctionArguments::None => name,
        FunctionArguments::Subquery(query) => format!("{name}({query})"),
        FunctionArguments::List(list) => {
            let is_star = matches!(
                list.args.as_slice(),
                [] | [FunctionArg::Unnamed(
                    FunctionArgExpr::Wildcard | FunctionArgExpr::WildcardWithOptions(_)
                )]
            );
            let arguments: Vec<String> = list.args.iter().map(argument).collect();
            match name.as_str() {
                "count" if is_star && list.clauses.is_empty() => "count_star()".to_owned(),
                "coalesce" | "grouping" => format!("{}({})", name.to_uppercase(), arguments.join(", ")),
                _ => {
                    let distinct = match list.duplicate_treatment {
                        Some(DuplicateTreatment::Distinct) => "DISTINCT ",
                        _ => "",
                    };
                    let clauses: String = list.clauses.iter().map(clause).collect();
                    format!("{name}({distinct}{}{clauses})", arguments.join(", "))
                }
            }
        }
    };
    if !function.within_group.is_empty() {
        written.push_str(&format!(" WITHIN GROUP (ORDER BY {})", orders(&function.within_group)));
    }
    if let Some(filter) = &function.filter {
        written.push_str(&format!(" FILTER (WHERE {})", text(filter)));
    }
    if let Some(treatment) = &function.null_treatment {
        written.push_str(&format!(" {treatment}"));
    }
    match &function.over {
        Some(WindowType::WindowSpec(window)) => written.push_str(&format!(" OVER ({})", over(window))),
        Some(WindowType::NamedWindow(name)) => written.push_str(&format!(" OVER {}", normalized(name))),
        None => {}
    }
    written
}

fn function_name(name: &ObjectName) -> String {
    let parts = name.0.iter().map(|part| part.as_ident().map_or_else(|| part.to_string(), normalized));
    parts.collect::<Vec<_>>().join(".")
}

fn argument(argument: &FunctionArg) -> String {
    let value = |value: &FunctionArgExpr| match value {
        FunctionArgExpr::Expr(expr) => text(expr),
        other => other.to_string(),
    };
    match argument {
        FunctionArg::Unnamed(unnamed) => value(unnamed),
        FunctionArg::Named { name, arg, .. } => format!("{} := {}", normalized(name), value(arg)),
        FunctionArg::ExprNamed { name, arg, .. } => format!("{} := {}", text(name), value(arg)),
    }
}

fn clause(clause: &FunctionArgumentClause) -> String {
    match clause {
        FunctionArgumentClause::OrderBy(by) => format!(" ORDER BY {}", orders(by)),
        other => format!(" {other}"),
    }
}

fn orders(orders: &[OrderByExpr]) -> String {
    let order = |order: &OrderByExpr| {
        let direction = match order.options.asc {
            Some(true) => " ASC",
            Some(false) => " DESC",
            None => "",
        };
        let nulls = match order.options.nulls_first {
            Some(true) => " NULLS FIRST",
            Some(false) => " NULLS LAST",
            None => "",
        };
        format!("{}{direction}{nulls}", text(&order.expr))
    };
    orders.iter().map(order).collect::<Vec<_>>().join(", ")
}

fn over(window: &WindowSpec) -> String {
    let mut parts = Vec::new();
    parts.extend(window.window_name.as_ref().map(normalized));
    let (exclusion, keys) = match window.partition_by.split_first() {
        Some((first, rest)) => match excluded(first) {
            Some(excluded) => (Some(excluded), rest),
            None => (None, window.partition_by.as_slice()),
        },
        None => (None, [].as_slice()),
    };
    if !keys.is_empty() {
        parts.push(format!("PARTITION BY {}", texts(keys)));
    }
    if !window.order_by.is_empty() {
        parts.push(format!("ORDER BY {}", orders(&window.order_by)));
    }
    if let Some(frame) = &window.window_frame {
        parts.push(match &frame.end_bound {
            Some(end) => format!("{} BETWEEN {} AND {end}", frame.units, frame.start_bound),
            None => format!("{} {}", frame.units, frame.start_bound),
        });
    }
    parts.extend(exclusion.map(|excluded| format!("EXCLUDE {excluded}")));
    parts.join(" ")
}

/// What a frame leaves out, which stands among the keys of partitions.
fn excluded(key: &Expr) -> Option<&str> {
    let Expr::Value(value) = key else { return None };
    let Value::SingleQuotedString(text) = &value.value else { return None };
    Some(match text.strip_prefix(EXCLUSION)? {
        "CURRENT" => "CURRENT ROW",
        "NO" => "NO OTHERS",
        other => other,
    })
}

/// A type under the name that DuckDB gives it.
fn type_name(data_type: &DataType) -> String {
    let written = data_type.to_string().to_uppercase();
    match written.as_str() {
        "INT" | "INT4" | "SIGNED" => "INTEGER".to_owned(),
        "INT2" => "SMALLINT".to_owned(),
        "INT8" | "LONG" => "BIGINT".to_owned(),
        "TEXT" | "STRING" | "CHARACTER VARYING" => "VARCHAR".to_owned(),
        "DOUBLE PRECISION" | "FLOAT8" => "DOUBLE".to_owned(),
        "REAL" | "FLOAT4" => "FLOAT".to_owned(),
        "BOOL" => "BOOLEAN".to_owned(),
        _ => written.replace(", ", ",").replace(',', ", "),
    }
}
