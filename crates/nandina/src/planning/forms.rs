//! What DataFusion does not know, written as what it does.
//!
//! | statement | written as |
//! |---|---|
//! | `a SEMI JOIN b`, `a ANTI JOIN b` | `a LEFT SEMI JOIN b`, `a LEFT ANTI JOIN b` |
//! | `a ASOF JOIN b …` | `(a ASOF JOIN b …)`, a relation of its own that has a planner |
//! | `INTERVAL (x) DAY` | `to_days(x)` |
//! | `(a, b) = (x, y)`, `<`, `IN ((1, 2), …)` | comparisons of their parts |
//! | `SELECT a + 1, b … ORDER BY ALL` | `ORDER BY 1, 2`, or `SELECT * FROM (…) ORDER BY ALL` |
//! | `(VALUES (1, 2)) AS t` | `… AS t(col0, col1)` |
//! | `if(a, b, c)`, `count_star()`, `ARRAY(SELECT …)` | `CASE`, `count(*)`, a query with `array_agg` |
//! | `f(x).a`, `lambda x: x.a` | `f(x)['a']`, `lambda x: x['a']` |
//! | `l[2:]`, `l[5:1:-1]`, `(x).f()`, `t.x.f(y)` | `list_slice(l, 2, [])`, `f(x)`, `f(t.x, y)`: [`accesses`] |
//! | `DISTINCT ON (a) … ORDER BY b` | a query over it, by `distinct_on` |
//! | `ORDER BY #1`, `GROUP BY #1` | `ORDER BY 1`, `GROUP BY 1` |
//! | `WHERE count`, `HAVING 1` | `WHERE CAST(count AS BOOLEAN)`, `HAVING CAST(1 AS BOOLEAN)` |

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, CaseWhen, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, GroupByExpr, Ident, Interval, Join, JoinOperator, ObjectName, OrderByExpr,
    OrderByKind, Query, Select, SelectItem, SetExpr, Subscript, TableAlias, TableAliasColumnDef, TableFactor,
    TableWithJoins, UnaryOperator, Value, VisitorMut,
};

use crate::error::{Error, Result};
use crate::planning::trees::{call, take};
use crate::planning::walk::WalkMut as _;
use crate::planning::wrong_plans::{normalized, visit_queries};
use crate::planning::{accesses, distinct_on, syntax};

/// Writes them.
pub(crate) fn write(statement: &mut Statement) -> Result<()> {
    match visit_queries(statement, &mut Forms::default()) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(refusal) => Err(refusal),
    }
}

#[derive(Default)]
struct Forms {
    /// How many tables have been given a name.
    unnamed: usize,
}

impl VisitorMut for Forms {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        if let Some(order) = &mut query.order_by
            && let OrderByKind::Expressions(orders) = &mut order.kind
        {
            orders.iter_mut().for_each(|order| number_position(&mut order.expr));
        }
        match distinct_on::write(query).and_then(|()| order_by_all(query)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            keys.iter_mut().for_each(number_position);
        }
        select.from.iter_mut().for_each(settle_joins);
        select.selection.iter_mut().chain(&mut select.having).for_each(as_condition);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        if let TableFactor::Derived { subquery, alias, .. } = factor {
            name_values(subquery, alias, &mut self.unnamed);
        }
        if let TableFactor::NestedJoin { table_with_joins, .. } = factor
            && !is_asof_alone(table_with_joins)
        {
            settle_joins(table_with_joins);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let written = match expr {
            Expr::Interval(interval) => length(interval),
            Expr::BinaryOp { left, op, right } => match (left.as_mut(), right.as_mut()) {
                (Expr::Tuple(left), Expr::Tuple(right)) if left.len() == right.len() => {
                    of_rows(left, op, right)
                }
                _ => None,
            },
            Expr::InList { expr: row, list, negated } => in_rows(row, list, *negated),
            Expr::Function(function) => of_function(function),
            Expr::CompoundFieldAccess { root, access_chain } => {
                let called = accesses::write(root, access_chain);
                if called.is_none() {
                    settle_accesses(matches!(root.as_ref(), Expr::Identifier(_)), access_chain);
                }
                called
            }
            Expr::Lambda(lambda) => {
                let names = lambda.params.iter().map(|parameter| normalized(&parameter.name)).collect();
                let _ = lambda.body.as_mut().walk_mut(&mut FieldsOf(names));
                None
            }
            _ => None,
        };
        if let Some(written) = written {
            *expr = written;
        }
        ControlFlow::Continue(())
    }
}

/// Casts what may be a number to the truth value that a condition is.
fn as_condition(condition: &mut Expr) {
    let may_be_number = match condition {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Subquery(_) => true,
        Expr::Cast { data_type, .. } => !matches!(data_type, DataType::Boolean | DataType::Bool),
        Expr::Value(value) => matches!(value.value, Value::Number(..)),
        Expr::BinaryOp { op, .. } => matches!(
            op,
            BinaryOperator::Plus | BinaryOperator::Minus | BinaryOperator::Multiply | BinaryOperator::Modulo
        ),
        _ => false,
    };
    if may_be_number {
        *condition = Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(take(condition)),
            data_type: DataType::Boolean,
            array: false,
            format: None,
        };
    }
}

/// Names `(VALUES …)` and its columns as DuckDB does.
fn name_values(query: &Query, alias: &mut Option<TableAlias>, unnamed: &mut usize) {
    let SetExpr::Values(values) = query.body.as_ref() else { return };
    let Some(row) = values.rows.first() else { return };
    let alias = alias.get_or_insert_with(|| {
        *unnamed += 1;
        let name = Ident::new(format!("unnamed_subquery{unnamed}"));
        TableAlias { explicit: true, name, columns: Vec::new(), at: None }
    });
    if alias.columns.is_empty() {
        let column = |at| TableAliasColumnDef { name: Ident::new(format!("col{at}")), data_type: None };
        alias.columns = (0..row.content.len()).map(column).collect();
    }
}

/// Writes out what `ORDER BY ALL` orders by, but for columns that `*` stands for.
fn order_by_all(query: &mut Query) -> Result<()> {
    let Some(order) = &mut query.order_by else { return Ok(()) };
    let OrderByKind::All(options) = &order.kind else { return Ok(()) };
    let has_unknown_columns = match query.body.as_ref() {
        SetExpr::Select(select) => select.projection.iter().any(|item| !is_one_column(item)),
        _ => true,
    };
    let is_plain = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) => matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)),
        SelectItem::ExprWithAlias { .. } => false,
        _ => true,
    };
    match query.body.as_mut() {
        SetExpr::Select(select) if !has_unknown_columns => {
            let by = |position: usize| OrderByExpr {
                expr: Expr::Value(Value::Number(position.to_string(), false).with_empty_span()),
                options: *options,
                with_fill: None,
            };
            order.kind = OrderByKind::Expressions((1..=select.projection.len()).map(by).collect());
            Ok(())
        }
        SetExpr::Select(select) if select.projection.iter().all(is_plain) => Ok(()),
        body => wrapped(body),
    }
}

/// Whether an output is one column for certain.
fn is_one_column(item: &SelectItem) -> bool {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            !matches!(expr, Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("unnest"))
        }
        _ => false,
    }
}

/// Functions that are other expressions.
fn of_function(function: &mut Function) -> Option<Expr> {
    if let Some(called) = accesses::of_column(function) {
        return Some(called);
    }
    let name = function.name.to_string().to_lowercase();
    match (name.as_str(), &mut function.args) {
        ("if" | "iif", FunctionArguments::List(list)) => {
            let mut values = list.args.iter_mut().map(|argument| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(take(expr)),
                _ => None,
            });
            let (condition, result, otherwise) = (values.next()??, values.next()??, values.next()??);
            Some(Expr::Case {
                case_token: AttachedToken::empty(),
                end_token: AttachedToken::empty(),
                operand: None,
                conditions: vec![CaseWhen { condition, result }],
                else_result: Some(Box::new(otherwise)),
            })
        }
        ("count_star", FunctionArguments::List(list)) if list.args.is_empty() => {
            function.name = ObjectName::from(vec![Ident::new("count")]);
            list.args.push(FunctionArg::Unnamed(FunctionArgExpr::Wildcard));
            None
        }
        ("array", FunctionArguments::Subquery(query)) => collected(query),
        _ => None,
    }
}

/// `ARRAY(SELECT …)` as a query for the list of all values.
fn collected(query: &mut Query) -> Option<Expr> {
    let order = query.order_by.as_ref().map(ToString::to_string);
    let is_by_value = |order: &String| {
        let by = order.trim_start_matches("ORDER BY ").split(' ').next().unwrap_or_default();
        by == "1" || output_of(query).is_some_and(|output| output.eq_ignore_ascii_case(by))
    };
    let direction = match &order {
        None => String::new(),
        Some(order) if is_by_value(order) => {
            let direction =
                order.trim_start_matches("ORDER BY ").split_once(' ').map_or("", |(_, rest)| rest);
            format!(" ORDER BY v {direction}")
        }
        Some(_) => return None,
    };
    let text = format!("SELECT coalesce(array_agg(v{direction}), []) FROM (SELECT 1) AS list(v)");
    let mut list = syntax::query(&text).ok()?;
    if let SetExpr::Select(select) = list.body.as_mut()
        && let Some(TableWithJoins { relation: TableFactor::Derived { subquery, .. }, .. }) =
            select.from.first_mut()
    {
        std::mem::swap(subquery.as_mut(), query);
    }
    Some(Expr::Subquery(Box::new(list)))
}

/// The name of the only output of a query.
fn output_of(query: &Query) -> Option<String> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    match select.projection.as_slice() {
        [SelectItem::ExprWithAlias { alias, .. }] => Some(alias.value.clone()),
        [SelectItem::UnnamedExpr(Expr::Identifier(name))] => Some(name.value.clone()),
        _ => None,
    }
}

/// Names fields by their texts, but for what may be the column of a table.
fn settle_accesses(begins_with_name: bool, chain: &mut [AccessExpr]) {
    let mut may_be_column = begins_with_name;
    for access in chain {
        may_be_column &= matches!(access, AccessExpr::Dot(_));
        if !may_be_column {
            settle_access(access);
        }
    }
}

fn settle_access(access: &mut AccessExpr) {
    if let AccessExpr::Dot(Expr::Identifier(name)) = access {
        let name = Value::SingleQuotedString(normalized(name)).with_empty_span();
        *access = AccessExpr::Subscript(Subscript::Index { index: Expr::Value(name) });
    }
}

/// Reads `x.a` as a field of the parameter `x`, and not as a column of a table.
struct FieldsOf(HashSet<String>);

impl VisitorMut for FieldsOf {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Array(list) = expr {
            // In the brackets DataFusion knows no parameters.
            *expr = call("make_array", list.elem.drain(..));
            return ControlFlow::Continue(());
        }
        if let Expr::CompoundIdentifier(path) = expr
            && let [first, fields @ ..] = path.as_slice()
            && self.0.contains(&normalized(first))
        {
            let access = |field: &Ident| {
                let name = Value::SingleQuotedString(normalized(field)).with_empty_span();
                AccessExpr::Subscript(Subscript::Index { index: Expr::Value(name) })
            };
            *expr = Expr::CompoundFieldAccess {
                root: Box::new(Expr::Identifier(first.clone())),
                access_chain: fields.iter().map(access).collect(),
            };
        }
        ControlFlow::Continue(())
    }
}

/// Puts a body into `SELECT * FROM (…)`.
fn wrapped(body: &mut SetExpr) -> Result<()> {
    let mut wrapper = syntax::query("SELECT * FROM (SELECT 1) AS all_rows")?;
    if let SetExpr::Select(select) = wrapper.body.as_mut()
        && let Some(TableWithJoins { relation: TableFactor::Derived { subquery, .. }, .. }) =
            select.from.first_mut()
    {
        std::mem::swap(subquery.body.as_mut(), body);
        *body = *wrapper.body;
    }
    Ok(())
}

/// `#1` as `1`.
fn number_position(expr: &mut Expr) {
    if let Expr::Identifier(name) = expr
        && name.quote_style.is_none()
        && let Some(digits) = name.value.strip_prefix('#')
        && digits.parse::<u32>().is_ok()
    {
        *expr = Expr::Value(Value::Number(digits.to_owned(), false).with_empty_span());
    }
}

/// Names the sides of semi and anti joins, and puts what an `ASOF` join ends into brackets.
fn settle_joins(tables: &mut TableWithJoins) {
    let mut settled: Vec<Join> = Vec::with_capacity(tables.joins.len());
    for mut join in std::mem::take(&mut tables.joins) {
        join.join_operator = match join.join_operator {
            JoinOperator::Semi(constraint) => JoinOperator::LeftSemi(constraint),
            JoinOperator::Anti(constraint) => JoinOperator::LeftAnti(constraint),
            other => other,
        };
        let is_asof = join.global;
        settled.push(join);
        if is_asof {
            let inside =
                TableWithJoins { relation: tables.relation.clone(), joins: std::mem::take(&mut settled) };
            tables.relation = TableFactor::NestedJoin { table_with_joins: Box::new(inside), alias: None };
        }
    }
    tables.joins = settled;
}

/// Whether these are the tables up to an `ASOF` join, in brackets for it alone.
pub(crate) fn is_asof_alone(tables: &TableWithJoins) -> bool {
    tables.joins.last().is_some_and(|join| join.global)
        && tables.joins.iter().filter(|join| join.global).count() == 1
}

/// The length that an interval of so many units has, if the number is none that is written.
fn length(interval: &mut Interval) -> Option<Expr> {
    let mut number = interval.value.as_mut();
    while let Expr::Nested(inner) = number {
        number = inner;
    }
    let signed = match &*number {
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => expr,
        other => other,
    };
    let (Some(unit), None) = (&interval.leading_field, &interval.last_field) else { return None };
    if matches!(signed, Expr::Value(_)) {
        // What is written in brackets is read as if it were not.
        *interval.value = take(number);
        return None;
    }
    let unit = unit.to_string().to_lowercase();
    let unit = match unit.trim_end_matches('s') {
        "century" => "centurie",
        "millennium" => "millennia",
        unit => unit,
    };
    let function = if unit == "millennia" { "to_millennia".to_owned() } else { format!("to_{unit}s") };
    Some(call(&function, [take(number)]))
}

/// A comparison of two rows by their values: as they are ordered, nulls last, and never unknown.
fn of_rows(left: &[Expr], operator: &BinaryOperator, right: &[Expr]) -> Option<Expr> {
    let boxed = |expr: &Expr| Box::new(expr.clone());
    let same = |a: &Expr, b: &Expr| Expr::Nested(Box::new(Expr::IsNotDistinctFrom(boxed(a), boxed(b))));
    let pairs = || left.iter().zip(right);
    let is_less = match operator {
        BinaryOperator::Eq => return all(pairs().map(|(a, b)| same(a, b)), BinaryOperator::And),
        BinaryOperator::NotEq => {
            let equal = of_rows(left, &BinaryOperator::Eq, right)?;
            return Some(Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(equal) });
        }
        BinaryOperator::Lt | BinaryOperator::LtEq => true,
        BinaryOperator::Gt | BinaryOperator::GtEq => false,
        _ => return None,
    };
    // Whether a value is before the other one, whichever of them is null.
    let before = |a: &Expr, b: &Expr| {
        let op = if is_less { BinaryOperator::Lt } else { BinaryOperator::Gt };
        let known = Expr::BinaryOp { left: boxed(a), op, right: boxed(b) };
        let (last, other) = if is_less { (b, a) } else { (a, b) };
        let by_null = all([Expr::IsNull(boxed(last)), Expr::IsNotNull(boxed(other))], BinaryOperator::And)?;
        Some(call("coalesce", [known, by_null]))
    };
    // The first values that differ decide.
    let or_equal = matches!(operator, BinaryOperator::LtEq | BinaryOperator::GtEq);
    let mut decided = Expr::Value(Value::Boolean(or_equal).with_empty_span());
    for (a, b) in pairs().rev() {
        let later = all([same(a, b), decided], BinaryOperator::And)?;
        decided = all([before(a, b)?, later], BinaryOperator::Or)?;
    }
    Some(decided)
}

/// Whether a row is one of a list of rows.
fn in_rows(row: &mut Expr, list: &mut [Expr], negated: bool) -> Option<Expr> {
    let Expr::Tuple(row) = row else { return None };
    let mut any = Vec::with_capacity(list.len());
    for other in list.iter_mut() {
        match other {
            Expr::Tuple(other) if other.len() == row.len() => {
                any.push(of_rows(row, &BinaryOperator::Eq, other)?);
            }
            _ => return None,
        }
    }
    let found = any_of(any)?;
    Some(if negated { Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(found) } } else { found })
}

/// Whether any of these is true, as a tree of few levels.
fn any_of(mut terms: Vec<Expr>) -> Option<Expr> {
    if terms.len() <= 1 {
        return terms.pop();
    }
    let right = terms.split_off(terms.len() / 2);
    all([any_of(terms)?, any_of(right)?], BinaryOperator::Or)
}

/// All of these with an operator between them, in brackets.
fn all(terms: impl IntoIterator<Item = Expr>, op: BinaryOperator) -> Option<Expr> {
    let together =
        |left, right| Expr::BinaryOp { left: Box::new(left), op: op.clone(), right: Box::new(right) };
    terms.into_iter().reduce(together).map(|terms| Expr::Nested(Box::new(terms)))
}
