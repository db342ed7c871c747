//! What DataFusion 55 would plan and answer wrongly: written differently, or refused, before it is planned.
//!
//! | statement | what happens | here |
//! |---|---|---|
//! | `x > ANY (SELECT x FROM t)` inside a query of the same `t` | the outer `x` is taken for the inner one | the sub-query gets a name of its own |
//! | `FROM t` | no columns | `SELECT * FROM t` |
//! | `SELECT * FROM b LEFT JOIN a USING (k)` | `k` is the right table's, in a sub-query that of a table outside | [`merged_columns`] |
//! | `a NATURAL JOIN b` | as with `USING` | `USING`: [`lookups`](super::lookups) |
//! | `FROM t, unnest(t.l)` | `l` is not found | [`lateral_unnest`] |
//! | `OVER (w ORDER BY x) … WINDOW w AS (PARTITION BY y)` | `w` is forgotten | [`named_windows`] |
//! | `any_value(x ORDER BY y)` | the order is forgotten | `first_value`, without nulls |
//! | `array_agg(x ORDER BY 1)` | ordered by the first column of the input | not ordered |
//! | `struct_pack(a := 1)` | is refused | `named_struct('a', 1)` |
//! | `2 ^ 3` | bits in place of powers | `power(2, 3)` |
//! | `a ~ ANY(l)` | is refused | a function of the elements: [`operators`] |
//! | `json -> 'a'`, `json_group_array(x)`, `CAST(x AS JSON)` | are refused, or any text | functions: [`operators`], [`json_aggregates`] |
//! | `1234567890123456789.5::DECIMAL(38, 1)` | goes through a floating-point number | a cast of a text |
//! | `VALUES (1::DECIMAL), (1e-20)` | two decimals | two floating-point numbers: [`literals`] |
//! | `12345678901234567890123`, `INTERVAL '0.05 year'` | digits and fractions are lost | [`literals`] |
//! | `* REPLACE (x AS name)` | a name that is no column's is passed over | it is looked up |
//! | `CAST(x AS UUID)`, `TRY(CAST(x AS INT))` | any text, no function | a function, `TRY_CAST`: [`special_casts`] |
//! | `TABLESAMPLE`, `FOR UPDATE`, `COLLATE` and the like | are forgotten | refused: [`ignored_words`] |
//! | `[t.a]` in a sub-query | no column of the query outside is found | `make_array(t.a)` |
//! | `date_part('era', x)`, `add(a, b)`, `weighted_avg(x, w)` and so on | unknown | other functions: [`other_functions`] |
//! | `union_value(a := 1)`, `x::VARIANT IS DISTINCT FROM y` | refused | other functions: [`variants`] |
//! | `RIGHT` and `FULL JOIN … USING (k)`, `NATURAL` | `k` is the left table's, null where only the right has a row | [`merged_columns`] |

mod ignored_words;
mod json_aggregates;
mod lateral_unnest;
mod literals;
mod merged_columns;
mod named_windows;
mod operators;
mod other_functions;
mod packed_structs;
mod special_casts;
mod variants;

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Function, FunctionArgumentClause, FunctionArguments, Ident,
    NullTreatment, ObjectName, OrderByExpr, Query, Select, SelectFlavor, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Statement as SqlStatement, TableFactor, TableWithJoins,
    UnaryOperator, Value, VisitorMut,
};

use merged_columns::Surroundings;

use crate::error::{Error, Result};
use crate::planning::syntax;
use crate::planning::trees::{call, take};
use crate::planning::walk::WalkMut as _;

/// Changes what can be written differently, and refuses the rest. Gives the names of common table expressions.
pub(crate) fn avoid(statement: &mut Statement) -> Result<HashSet<String>> {
    let mut visitor = Avoid::default();
    match visit_queries(statement, &mut visitor) {
        ControlFlow::Continue(()) => Ok(visitor.expressions),
        ControlFlow::Break(refusal) => Err(refusal),
    }
}

/// Visits the queries and expressions of a statement.
pub(crate) fn visit_queries<V: VisitorMut>(
    statement: &mut Statement,
    visitor: &mut V,
) -> ControlFlow<V::Break> {
    match statement {
        Statement::Statement(inner) => inner.walk_mut(visitor),
        Statement::Explain(explain) => visit_queries(&mut explain.statement, visitor),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => query.walk_mut(visitor),
            CopyToSource::Relation(_) => ControlFlow::Continue(()),
        },
        _ => ControlFlow::Continue(()),
    }
}

#[derive(Default)]
struct Avoid {
    /// The names of common table expressions so far.
    expressions: HashSet<String>,
    /// Comparisons with sub-queries so far; numbers their names.
    comparisons: usize,
    /// Expressions and lateral tables around, whose queries see columns outside of them.
    sub_queries: usize,
    /// Whether the next query is what an `INSERT` inserts.
    is_inserted: bool,
}

impl Avoid {
    fn surroundings(&self) -> Surroundings {
        match self.sub_queries {
            0 => Surroundings::Alone,
            _ => Surroundings::SubQuery,
        }
    }
}

impl VisitorMut for Avoid {
    type Break = Error;

    fn pre_visit_statement(&mut self, statement: &mut SqlStatement) -> ControlFlow<Error> {
        // Inserted values get the types of the table's columns, each by itself.
        self.is_inserted = matches!(statement, SqlStatement::Insert(_));
        broken_by(match statement {
            SqlStatement::CreateTable(create) => create.columns.iter().try_for_each(ignored_words::in_column),
            _ => Ok(()),
        })
    }

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        let expressions = query.with.iter().flat_map(|with| &with.cte_tables);
        self.expressions.extend(expressions.map(|expression| normalized(&expression.alias.name)));
        broken_by(ignored_words::in_query(query))?;
        broken_by(named_windows::replace(query))?;
        if !std::mem::take(&mut self.is_inserted) {
            literals::settle_values(&mut query.body);
        }
        broken_by(merged_columns::qualify_order(query, self.surroundings()))
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        if select.flavor == SelectFlavor::FromFirstNoSelect {
            select.flavor = SelectFlavor::Standard;
            select.projection = vec![SelectItem::Wildcard(Default::default())];
        }
        broken_by(ignored_words::in_select(select))?;
        merged_columns::unbracket(select);
        broken_by(lateral_unnest::write_out(select))?;
        select.projection.iter_mut().for_each(look_up_replaced);
        broken_by(merged_columns::qualify(select, self.surroundings()))?;
        broken_by(merged_columns::write_out(select))?;
        broken_by(merged_columns::write_conditions(select))
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        broken_by(ignored_words::in_table(factor))?;
        self.sub_queries += usize::from(is_lateral(factor));
        match factor {
            TableFactor::NestedJoin { table_with_joins, .. } => {
                broken_by(ignored_words::in_joins(table_with_joins))?;
                broken_by(merged_columns::write_conditions_of(table_with_joins))
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        self.sub_queries -= usize::from(is_lateral(factor));
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        if let Some(membership) = as_membership(expr) {
            *expr = membership;
        }
        operators::write_as_function(expr);
        operators::write_matches_of_elements(expr);
        json_aggregates::write_out(expr);
        broken_by(special_casts::write_out(expr))?;
        variants::write_out(expr);
        broken_by(other_functions::write_out(expr))?;
        match expr {
            Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } => {
                if let Expr::Subquery(query) = right.as_mut() {
                    self.comparisons += 1;
                    return broken_by(named(query, self.comparisons));
                }
            }
            Expr::Collate { expr: compared, collation } => {
                if !ignored_words::compares_bytes(&collation.to_string()) {
                    return ControlFlow::Break(Error::unsupported(format!(
                        "COLLATE {collation} is not supported: texts are compared byte by byte"
                    )));
                }
                *expr = take(compared);
            }
            Expr::Function(function) => {
                name_first_of_order(function);
                leave_out_constant_orders(function);
                packed_structs::name_fields(function);
            }
            Expr::Array(array) => *expr = call("make_array", std::mem::take(&mut array.elem)),
            Expr::Interval(_) | Expr::UnaryOp { .. } => return broken_by(literals::exact_interval(expr)),
            Expr::Value(_) => literals::exact_number(expr),
            Expr::Cast {
                kind: CastKind::Cast | CastKind::TryCast | CastKind::DoubleColon,
                expr,
                data_type,
                ..
            } => {
                keep_digits(expr, data_type);
            }
            _ => {}
        }
        self.sub_queries += usize::from(has_query(expr));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        self.sub_queries -= usize::from(has_query(expr));
        ControlFlow::Continue(())
    }
}

fn has_query(expr: &Expr) -> bool {
    matches!(expr, Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. })
}

fn is_lateral(factor: &TableFactor) -> bool {
    matches!(factor, TableFactor::Derived { lateral: true, .. })
}

/// A name as the planner knows it.
pub(crate) fn normalized(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}

fn broken_by(result: Result<()>) -> ControlFlow<Error> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

/// `x = ANY (SELECT …)` as `x IN (SELECT …)`, `x <> ALL` as `NOT IN`, which is the same and is joined.
fn as_membership(expr: &mut Expr) -> Option<Expr> {
    let (left, right, negated) = match expr {
        Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => (left, right, false),
        Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => (left, right, true),
        _ => return None,
    };
    if !matches!(right.as_ref(), Expr::Subquery(_)) {
        return None;
    }
    let compared = take(left);
    let Expr::Subquery(subquery) = take(right) else { return None };
    Some(Expr::InSubquery { expr: Box::new(compared), subquery, negated })
}

/// Lets `any_value` with an order be the first value of it that is not null.
fn name_first_of_order(function: &mut Function) {
    let FunctionArguments::List(arguments) = &function.args else { return };
    let has_order =
        arguments.clauses.iter().any(|clause| matches!(clause, FunctionArgumentClause::OrderBy(_)));
    if has_order && function.name.to_string().eq_ignore_ascii_case("any_value") {
        function.name = ObjectName::from(vec![Ident::new("first_value")]);
        function.null_treatment = Some(NullTreatment::IgnoreNulls);
    }
}

/// Leaves numbers out of the order inside of a function: as any constants they order nothing, and are not the numbers of
/// columns.
fn leave_out_constant_orders(function: &mut Function) {
    let FunctionArguments::List(arguments) = &mut function.args else { return };
    let is_number =
        |by: &OrderByExpr| matches!(&by.expr, Expr::Value(value) if matches!(value.value, Value::Number(..)));
    arguments.clauses.retain_mut(|clause| match clause {
        FunctionArgumentClause::OrderBy(orders) => {
            orders.retain(|by| !is_number(by));
            !orders.is_empty()
        }
        _ => true,
    });
}

/// Lets what replaces a column of `*` fail if there is no such column.
fn look_up_replaced(item: &mut SelectItem) {
    let (options, table) = match item {
        SelectItem::Wildcard(options) => (options, None),
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(table), options) => {
            (options, Some(table.clone()))
        }
        _ => return,
    };
    for replaced in options.opt_replace.iter_mut().flat_map(|replace| &mut replace.items) {
        // DataFusion takes the name as it is written.
        replaced.column_name.value = normalized(&replaced.column_name);
        let table = table.iter().flat_map(|table| &table.0).filter_map(|part| part.as_ident().cloned());
        let mut path: Vec<Ident> = table.chain([replaced.column_name.clone()]).collect();
        let column = match path.len() {
            1 => Expr::Identifier(path.remove(0)),
            _ => Expr::CompoundIdentifier(path),
        };
        let value = take(&mut replaced.expr);
        replaced.expr = call(nandina_plan::REPLACED_COLUMN, [column, value]);
    }
}

/// Lets a number that is cast to a decimal be cast from its digits.
fn keep_digits(expr: &mut Expr, data_type: &DataType) {
    let is_decimal = matches!(data_type, DataType::Decimal(_) | DataType::Numeric(_) | DataType::Dec(_));
    let (sign, number) = match &*expr {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner } => ("-", inner.as_ref()),
        other => ("", other),
    };
    if let Expr::Value(value) = number
        && let Value::Number(digits, _) = &value.value
        && is_decimal
        && digits.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte))
    {
        let digits = format!("{sign}{digits}");
        *expr = Expr::Value(Value::SingleQuotedString(digits).with_empty_span());
    }
}

/// Puts a query into `SELECT * FROM (…) AS name`, so that no column of it bears the name of a table outside.
fn named(query: &mut Query, number: usize) -> Result<()> {
    let mut wrapper = syntax::query(&format!("SELECT * FROM (SELECT 1) AS __compared_{number}"))?;
    if let SetExpr::Select(select) = wrapper.body.as_mut()
        && let Some(TableWithJoins { relation: TableFactor::Derived { subquery, .. }, .. }) =
            select.from.first_mut()
    {
        std::mem::swap(subquery.as_mut(), query);
        *query = wrapper;
    }
    Ok(())
}

pub(crate) fn select_all_from(tables: TableWithJoins) -> Result<Query> {
    let mut query = syntax::query("SELECT *")?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.from.push(tables);
    }
    Ok(query)
}
