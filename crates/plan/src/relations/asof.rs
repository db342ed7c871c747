//! `ASOF` joins: to every row of the left side, the last row of the right side that is not later.
//!
//! ```text
//!   l ASOF JOIN r ON l.k = r.k AND l.t >= r.t
//!
//!   rows of both           in order of k, t           every row of l sees the last one of r before it
//!   l (k, t, …)            r a 09:00                  l a 09:05 ─► r a 09:00
//!   r (k, t, …)            l a 09:05                  l a 09:20 ─► r a 09:10
//!                          r a 09:10                  l b 09:20 ─► none
//! ```
//!
//! A row of the right side has a partner if the next row is one of the left side, which `RIGHT` and `FULL` joins ask for.
//! What else a condition says of the right side says which of its rows are there; what it says of the left one, which rows
//! have a partner.
//!
//! That is a window over the union of both, which spills as any other. A value of the right side may be null; it is kept
//! in a struct then, so that the last one which is not null is that of the last row. The names of columns are those of
//! the sides; that of a condition `USING (k, t)` has the left side's alone.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Column, DFSchema, Result, ScalarValue, plan_err};
use datafusion::functions::core::expr_fn::{get_field, named_struct, nullif};
use datafusion::functions_window::lead_lag::lead_udwf;
use datafusion::functions_window::nth_value::last_value_udwf;
use datafusion::logical_expr::expr::{Alias, NullTreatment, WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::planner::RelationPlannerContext;
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, SortExpr, WindowFrame,
    WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition, WindowUDF, cast, col, lit, when,
};
use datafusion::sql::sqlparser::ast::{
    Ident, Join, JoinConstraint, JoinOperator, TableFactor, TableWithJoins,
};

/// The field of a struct that holds a value.
const VALUE: &str = "value";

/// Whether a join is an `ASOF` one. The parser knows no conditions for these, and reads the word as `GLOBAL`.
pub(super) fn is_asof(join: &Join) -> bool {
    join.global
}

/// What becomes of rows with and without partners.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Inner,
    Left,
    Right,
    Full,
    Semi,
    Anti,
}

impl Kind {
    /// Whether rows of the right side are kept that have no partner.
    fn keeps_right(self) -> bool {
        matches!(self, Kind::Right | Kind::Full)
    }
}

/// The conditions of a join: equal keys, and how the times compare.
struct Conditions {
    keys: Vec<(Expr, Expr)>,
    times: (Expr, Expr),
    operator: Operator,
    /// Columns of the right side that those of the left one stand for.
    merged: Vec<String>,
    /// What rows of the sides have to fulfil to be partners.
    of_left: Option<Expr>,
    of_right: Option<Expr>,
}

/// Plans the last join of these, which is an `ASOF` one, over all before it.
pub(super) fn plan(
    mut tables: TableWithJoins,
    context: &mut dyn RelationPlannerContext,
) -> Result<LogicalPlan> {
    let Some(join) = tables.joins.pop() else { return plan_err!("an ASOF join has two sides") };
    let (kind, constraint) = match join.join_operator {
        JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => (Kind::Inner, constraint),
        JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => (Kind::Left, constraint),
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => (Kind::Right, constraint),
        JoinOperator::FullOuter(constraint) => (Kind::Full, constraint),
        JoinOperator::Semi(constraint) | JoinOperator::LeftSemi(constraint) => (Kind::Semi, constraint),
        JoinOperator::Anti(constraint) | JoinOperator::LeftAnti(constraint) => (Kind::Anti, constraint),
        _ => {
            return plan_err!("an ASOF join is an inner, left, right, full, semi or anti join");
        }
    };
    let left = match tables.joins.is_empty() {
        true => tables.relation,
        false => TableFactor::NestedJoin { table_with_joins: Box::new(tables), alias: None },
    };
    let left = context.plan(left)?;
    let right = context.plan(join.relation)?;
    let conditions = match constraint {
        JoinConstraint::On(condition) => {
            let both = left.schema().join(right.schema())?;
            on(context.sql_to_expr(condition, &both)?, left.schema(), right.schema())?
        }
        JoinConstraint::Using(names) => {
            let names = names.iter().filter_map(|name| name.0.last()?.as_ident().cloned());
            using(names.collect(), context, left.schema(), right.schema())?
        }
        JoinConstraint::Natural | JoinConstraint::None => {
            return plan_err!("an ASOF join needs a condition, such as ON a.k = b.k AND a.t >= b.t");
        }
    };
    joined(left, right, kind, conditions)
}

fn on(condition: Expr, left: &DFSchema, right: &DFSchema) -> Result<Conditions> {
    let mut keys = Vec::new();
    let mut times = None;
    let (mut of_left, mut of_right): (Option<Expr>, Option<Expr>) = (None, None);
    for term in split_conjunction_owned(condition) {
        let (sides, operator) = match &term {
            Expr::BinaryExpr(BinaryExpr { left: a, op, right: b }) => (
                sides(a, b, left, right)?
                    .map(|(sides, is_swapped)| (sides, if is_swapped { op.swap() } else { Some(*op) })),
                *op,
            ),
            _ => (None, Operator::And),
        };
        match sides {
            Some((pair, Some(Operator::Eq))) if operator == Operator::Eq => keys.push(pair),
            Some((pair, Some(op @ (Operator::GtEq | Operator::Gt | Operator::LtEq | Operator::Lt))))
                if times.is_none() =>
            {
                times = Some((pair, op));
            }
            _ => {
                let is_of = |schema: &DFSchema| {
                    term.column_refs().into_iter().all(|column| schema.has_column(column))
                };
                let terms = match (is_of(left), is_of(right)) {
                    (true, _) => &mut of_left,
                    (false, true) => &mut of_right,
                    (false, false) => {
                        return plan_err!(
                            "the condition of an ASOF join is equalities and one inequality between the sides, and \
                             conditions of one side; '{}' is something else",
                            term.human_display()
                        );
                    }
                };
                *terms = Some(match terms.take() {
                    Some(before) => before.and(term),
                    None => term,
                });
            }
        }
    }
    let Some((times, operator)) = times else {
        return plan_err!("an ASOF join needs an inequality between the sides, such as a.t >= b.t");
    };
    Ok(Conditions { keys, times, operator, merged: Vec::new(), of_left, of_right })
}

/// The operands of a comparison, the left side's first, and whether they stood the other way round.
fn sides(a: &Expr, b: &Expr, left: &DFSchema, right: &DFSchema) -> Result<Option<((Expr, Expr), bool)>> {
    let is_of = |expr: &Expr, schema: &DFSchema| {
        let columns = expr.column_refs();
        !columns.is_empty() && columns.iter().all(|column| schema.has_column(column))
    };
    Ok(match () {
        () if is_of(a, left) && is_of(b, right) => Some(((a.clone(), b.clone()), false)),
        () if is_of(b, left) && is_of(a, right) => Some(((b.clone(), a.clone()), true)),
        () => None,
    })
}

fn using(
    names: Vec<Ident>,
    context: &mut dyn RelationPlannerContext,
    left: &DFSchema,
    right: &DFSchema,
) -> Result<Conditions> {
    let names: Vec<String> = names.into_iter().map(|name| context.normalize_ident(name)).collect();
    let column = |schema: &DFSchema, name: &str| -> Result<Expr> {
        Ok(Expr::Column(Column::from(schema.qualified_field_with_unqualified_name(name)?)))
    };
    let mut pairs = Vec::with_capacity(names.len());
    for name in &names {
        pairs.push((column(left, name)?, column(right, name)?));
    }
    let Some(times) = pairs.pop() else { return plan_err!("USING of an ASOF join names no column") };
    let operator = Operator::GtEq;
    Ok(Conditions { keys: pairs, times, operator, merged: names, of_left: None, of_right: None })
}

fn joined(left: LogicalPlan, right: LogicalPlan, kind: Kind, conditions: Conditions) -> Result<LogicalPlan> {
    let Conditions { mut keys, times, operator, merged, of_left: is_wanted_left, of_right: is_wanted_right } =
        conditions;
    if kind.keeps_right() && is_wanted_left.is_some() {
        return plan_err!(
            "a RIGHT or FULL ASOF join has equalities, one inequality and conditions of the right side alone"
        );
    }
    if kind.keeps_right() && !merged.is_empty() {
        return plan_err!("a RIGHT or FULL ASOF join has a condition with ON, and not with USING");
    }
    let (left_columns, right_columns) = (left.schema().columns(), right.schema().columns());
    let (left_schema, right_schema) = (Arc::clone(left.schema()), Arc::clone(right.schema()));
    // What both have, under the same names: keys, times, and columns that are null for rows of the other side.
    let key = |at: usize| format!("__asof_key_{at}");
    let (time, is_left) = ("__asof_time", "__asof_is_left");
    let of_left = |at: usize| format!("__asof_left_{at}");
    let of_right = |at: usize| format!("__asof_right_{at}");
    let none = |data_type: DataType| cast(lit(ScalarValue::Null), data_type);
    // A row of the right side without a key or a time is nobody's.
    let is_known = keys.iter().map(|(_, key)| key).chain([&times.1]).map(|value| value.clone().is_not_null());
    let is_known = is_known.chain(is_wanted_right.map(Expr::is_true));
    let Some(is_known) = is_known.reduce(Expr::and) else { return plan_err!("an ASOF join compares times") };
    let right = match kind.keeps_right() {
        true => {
            // It is among none of the left side.
            keys.push((lit(true), is_known));
            right
        }
        false => LogicalPlanBuilder::from(right).filter(is_known)?.build()?,
    };
    let mut left_row = Vec::new();
    let mut right_row = Vec::new();
    for (at, (left_key, right_key)) in keys.iter().enumerate() {
        left_row.push(left_key.clone().alias(key(at)));
        right_row.push(right_key.clone().alias(key(at)));
    }
    left_row.push(times.0.clone().alias(time));
    right_row.push(times.1.clone().alias(time));
    left_row.push(lit(true).alias(is_left));
    right_row.push(lit(false).alias(is_left));
    for (at, column) in left_columns.iter().enumerate() {
        let value = Expr::Column(column.clone());
        right_row.push(none(value.get_type(&left_schema)?).alias(of_left(at)));
        left_row.push(value.alias(of_left(at)));
    }
    for (at, column) in right_columns.iter().enumerate() {
        let value = Expr::Column(column.clone());
        let value = match value.nullable(&right_schema)? {
            true => named_struct(vec![lit(VALUE), value]),
            false => value,
        };
        left_row.push(none(value.get_type(&right_schema)?).alias(of_right(at)));
        right_row.push(value.alias(of_right(at)));
    }
    let left = LogicalPlanBuilder::from(left).project(left_row)?.build()?;
    let right = LogicalPlanBuilder::from(right).project(right_row)?.build()?;
    let rows = LogicalPlanBuilder::from(right).union(left)?;

    // Rows of the right side come first among equal times if equal is early enough.
    let is_ascending = matches!(operator, Operator::GtEq | Operator::Gt);
    let right_is_first = matches!(operator, Operator::GtEq | Operator::LtEq);
    // Nothing is before a time that is null.
    let order = vec![col(time).sort(is_ascending, true), col(is_left).sort(right_is_first, true)];
    let keys: Vec<Expr> = (0..keys.len()).map(|at| col(key(at))).collect();
    let seen = |at: usize| format!("__asof_seen_{at}");
    let last = |value: Expr, name: String| last_seen(value, keys.clone(), order.clone()).alias(name);
    let is_matched = "__asof_is_matched";
    let mut windows: Vec<Expr> =
        (0..right_columns.len()).map(|at| last(col(of_right(at)), seen(at))).collect();
    let row_of_right = nullif(col(is_left), lit(true));
    windows.push(last(row_of_right, is_matched.to_owned()));
    let is_partner = "__asof_is_partner";
    if kind.keeps_right() {
        windows.push(next_row(col(is_left), keys.clone(), order.clone()).alias(is_partner));
    }
    let has_partner = col(is_left).and(col(is_matched).is_not_null());
    let is_alone = col(is_left).is_not_true().and(col(is_partner).is_not_true());
    let is_wanted = match kind {
        Kind::Right => has_partner.or(is_alone),
        Kind::Full => col(is_left).or(is_alone),
        Kind::Inner | Kind::Left | Kind::Semi | Kind::Anti => col(is_left),
    };
    let rows = rows.window(windows)?.filter(is_wanted)?;
    let named = |value: Expr, column: &Column| {
        Expr::Alias(Alias::new(value, column.relation.clone(), column.name.clone()))
    };
    let mut outputs: Vec<Expr> =
        left_columns.iter().enumerate().map(|(at, column)| named(col(of_left(at)), column)).collect();
    for (at, column) in right_columns.iter().enumerate() {
        let is_packed = Expr::Column(column.clone()).nullable(&right_schema)?;
        let value = if is_packed { get_field(col(seen(at)), VALUE) } else { col(seen(at)) };
        if !merged.contains(&column.name) {
            outputs.push(named(value, column));
        }
    }
    outputs.push(col(is_matched));
    let rows = rows.project(outputs)?;
    let has_condition = is_wanted_left.is_some();
    let is_pair = match is_wanted_left {
        Some(is_wanted) => col(is_matched).is_not_null().and(is_wanted.is_true()),
        None => col(is_matched).is_not_null(),
    };
    let columns = left_columns.into_iter().map(Expr::Column);
    let of_right = right_columns.into_iter().filter(|column| !merged.contains(&column.name));
    match kind {
        Kind::Semi => rows.filter(is_pair)?.project(columns)?,
        Kind::Anti => rows.filter(is_pair.is_not_true())?.project(columns)?,
        Kind::Inner => rows.filter(is_pair)?.project(columns.chain(of_right.map(Expr::Column)))?,
        Kind::Left | Kind::Right | Kind::Full if !has_condition => {
            rows.project(columns.chain(of_right.map(Expr::Column)))?
        }
        Kind::Left | Kind::Right | Kind::Full => {
            let none_unless_pair = |column: Column| -> Result<Expr> {
                Ok(named(when(is_pair.clone(), Expr::Column(column.clone())).end()?, &column))
            };
            let of_right = of_right.map(none_unless_pair).collect::<Result<Vec<_>>>()?;
            rows.project(columns.chain(of_right))?
        }
    }
    .build()
}

/// The last value up to a row that is not null, in this order of the rows with the same keys.
fn last_seen(value: Expr, keys: Vec<Expr>, order: Vec<SortExpr>) -> Expr {
    over_rows_so_far(last_value_udwf(), value, keys, order, Some(NullTreatment::IgnoreNulls))
}

/// The value of the next row, in this order of the rows with the same keys.
fn next_row(value: Expr, keys: Vec<Expr>, order: Vec<SortExpr>) -> Expr {
    over_rows_so_far(lead_udwf(), value, keys, order, None)
}

fn over_rows_so_far(
    function: Arc<WindowUDF>,
    value: Expr,
    keys: Vec<Expr>,
    order: Vec<SortExpr>,
    null_treatment: Option<NullTreatment>,
) -> Expr {
    let frame = WindowFrame::new_bounds(
        WindowFrameUnits::Rows,
        WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
        WindowFrameBound::CurrentRow,
    );
    Expr::from(WindowFunction {
        fun: WindowFunctionDefinition::WindowUDF(function),
        params: WindowFunctionParams {
            args: vec![value],
            partition_by: keys,
            order_by: order,
            window_frame: frame,
            filter: None,
            null_treatment,
            distinct: false,
        },
    })
}
