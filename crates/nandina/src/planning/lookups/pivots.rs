//! `PIVOT` and `UNPIVOT`.
//!
//! ```text
//!   PIVOT t ON y USING sum(x)          SELECT g, sum(x) FILTER (WHERE y::TEXT = '1') AS "1", … FROM t GROUP BY g
//!   UNPIVOT t ON a, b                  SELECT g, unnest(['a', 'b']) AS name, unnest([a, b]) AS value FROM t
//! ```
//!
//! The columns of a pivot are the values found in `y`, in their order, or those that are written: `ON y IN (1, 2)`. Rows
//! are grouped by all columns that it does not name, unless `GROUP BY` says by which.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, ExprWithAlias, FunctionArg, FunctionArgExpr, GroupByExpr,
    Ident, LimitClause, NullInclusion, PivotValueSource, Query, Select, SelectItem, SetExpr, TableFactor,
    TableWithJoins, Value, Visitor, VisitorMut,
};

use super::{Answer, Column, over, star_columns};
use crate::error::{Error, Result};
use crate::planning::output_names;
use crate::planning::syntax::calls::{PIVOT, UNPIVOT};
use crate::planning::trees::call;
use crate::planning::walk::{Walk as _, WalkMut as _};
use crate::planning::wrong_plans::{normalized, select_all_from};

/// Most columns that a pivot makes of values.
const MOST_COLUMNS: usize = 10_000;

/// One of both.
pub(super) struct Pivot {
    pub source: Query,
    kind: Kind,
}

enum Kind {
    Wide { on: Vec<On>, using: Vec<ExprWithAlias>, groups: Option<Vec<Expr>> },
    Long { columns: Vec<ExprWithAlias>, name: Ident, value: Ident, keeps_nulls: bool },
}

/// What columns are made of.
struct On {
    value: Expr,
    values: Values,
}

/// The values that columns are made of.
enum Values {
    /// All that are found.
    Found,
    /// Those that a query gives, in its order.
    Given(Box<Query>),
    Written(Vec<ExprWithAlias>),
}

impl Pivot {
    /// The one that a table is.
    pub fn of(factor: &TableFactor) -> Result<Option<Self>> {
        match factor {
            TableFactor::Table { name, args: Some(arguments), .. } => {
                let name = name.to_string();
                match name.trim_matches('"') {
                    PIVOT | UNPIVOT => {
                        Self::of_arguments(name.trim_matches('"') == PIVOT, &arguments.args).map(Some)
                    }
                    _ => Ok(None),
                }
            }
            TableFactor::Pivot {
                table,
                aggregate_functions,
                value_column,
                value_source,
                default_on_null,
                ..
            } => {
                let values = match value_source {
                    PivotValueSource::List(values) => Values::Written(values.clone()),
                    PivotValueSource::Any(_) => Values::Found,
                    PivotValueSource::Subquery(query) => Values::Given(query.clone()),
                };
                let [column] = value_column.as_slice() else {
                    return Err(Error::unsupported("PIVOT … FOR several columns; write PIVOT t ON a, b"));
                };
                let groups = default_on_null.clone().map(|groups| match without_brackets(groups) {
                    Expr::Tuple(groups) => groups,
                    group => vec![group],
                });
                let kind = Kind::Wide {
                    on: vec![On { value: column.clone(), values }],
                    using: aggregate_functions.clone(),
                    groups,
                };
                Ok(Some(Pivot { source: all_of(table)?, kind }))
            }
            TableFactor::Unpivot { table, value, name, columns, null_inclusion, .. } => {
                let Expr::Identifier(value) = value else {
                    return Err(Error::unsupported(
                        "UNPIVOT into several columns; write one after the other",
                    ));
                };
                let kind = Kind::Long {
                    columns: columns.clone(),
                    name: name.clone(),
                    value: value.clone(),
                    keeps_nulls: matches!(null_inclusion, Some(NullInclusion::IncludeNulls)),
                };
                Ok(Some(Pivot { source: all_of(table)?, kind }))
            }
            _ => Ok(None),
        }
    }

    fn of_arguments(is_wide: bool, arguments: &[FunctionArg]) -> Result<Self> {
        let (mut source, mut on, mut using, mut groups) =
            (None, Vec::new(), Vec::<ExprWithAlias>::new(), None);
        let (mut name, mut value) = (Ident::new("name"), Ident::new("value"));
        let mut was_on = true;
        for argument in arguments {
            let FunctionArg::Named { name: argument, arg: FunctionArgExpr::Expr(given), .. } = argument
            else {
                return Err(Error::Syntax {
                    message: "PIVOT and UNPIVOT take columns and expressions ON".to_owned(),
                });
            };
            let given = without_brackets(given.clone());
            match (argument.value.as_str(), given) {
                ("source", Expr::Subquery(query)) => source = Some(*query),
                ("on", expr) => {
                    was_on = true;
                    on.push(ExprWithAlias { expr, alias: None });
                }
                ("using", expr) => {
                    was_on = false;
                    using.push(ExprWithAlias { expr, alias: None });
                }
                ("called", Expr::Identifier(alias)) => {
                    let named = if was_on { on.last_mut() } else { using.last_mut() };
                    named.into_iter().for_each(|named| named.alias = Some(alias.clone()));
                }
                ("group", expr) => groups.get_or_insert_with(Vec::new).push(expr),
                ("name", Expr::Identifier(given)) => name = given,
                ("value", Expr::Identifier(given)) => value = given,
                (_, other) => {
                    return Err(Error::Syntax {
                        message: format!("'{other}' cannot stand here in PIVOT or UNPIVOT"),
                    });
                }
            }
        }
        let Some(source) = source else { return Err(Error::bug("a pivot has a source")) };
        let kind = match is_wide {
            true => Kind::Wide { on: on.into_iter().map(|on| On::of(on.expr)).collect(), using, groups },
            false => Kind::Long { columns: on, name, value, keeps_nulls: false },
        };
        Ok(Pivot { source, kind })
    }

    /// Queries for the values that are looked up, in the order of the columns that they are in.
    pub fn queries_of_values(&self) -> Result<Vec<Query>> {
        let Kind::Wide { on, .. } = &self.kind else { return Ok(Vec::new()) };
        let query = |on: &On| {
            if let Values::Given(query) = &on.values {
                // Its order is that of the columns.
                let mut query = query.as_ref().clone();
                query.limit_clause.get_or_insert_with(most_values);
                return Ok(query);
            }
            let mut values = over("SELECT DISTINCT 1 AS v FROM (SELECT 1) AS source", self.source.clone())?;
            if let Some(SelectItem::ExprWithAlias { expr, .. }) =
                select_of(&mut values)?.projection.first_mut()
            {
                *expr = on.value.clone();
            }
            over(
                &format!(
                    "SELECT CAST(v AS VARCHAR) AS t FROM (SELECT 1) AS source WHERE v IS NOT NULL ORDER BY v LIMIT {}",
                    MOST_COLUMNS + 1
                ),
                values,
            )
        };
        on.iter().filter(|on| !matches!(on.values, Values::Written(_))).map(query).collect()
    }

    /// The query for it, when the columns of the source and the values are known.
    pub fn written_out(self, answers: Vec<Answer>, is_aggregate: impl Fn(&str) -> bool) -> Result<Query> {
        let mut answers = answers.into_iter();
        let Some(columns) = answers.next().map(Answer::columns) else {
            return Err(Error::bug("the columns of a pivot's source were asked for"));
        };
        match self.kind {
            Kind::Wide { on, using, groups } => {
                let mut found = answers.map(Answer::values);
                let mut conditions = vec![(None, String::new())];
                for on in &on {
                    let values = match &on.values {
                        Values::Written(written) => written.iter().map(|value| on.is(value)).collect(),
                        Values::Found | Values::Given(_) => {
                            let mut known = HashSet::new();
                            let texts = found.next().unwrap_or_default();
                            let new = texts.into_iter().filter(|text| known.insert(text.clone()));
                            new.map(|text| on.reads(&text)).collect::<Vec<_>>()
                        }
                    };
                    conditions = crossed(&conditions, &values)?;
                }
                let groups = match groups {
                    Some(groups) => groups,
                    None if on.is_empty() => Vec::new(),
                    None => others(
                        &columns,
                        on.iter().map(|on| &on.value).chain(using.iter().map(|using| &using.expr)),
                    ),
                };
                wide(self.source, groups, using, conditions, is_aggregate)
            }
            Kind::Long { columns: chosen, name, value, keeps_nulls } => {
                long(self.source, &columns, chosen, &name, &value, keeps_nulls)
            }
        }
    }
}

impl On {
    /// `x IN (1, 2)` are the values 1 and 2 of `x`.
    fn of(expr: Expr) -> Self {
        match expr {
            Expr::InList { expr, list, negated: false } => {
                let value = |expr| ExprWithAlias { expr, alias: None };
                let values = Values::Written(list.into_iter().map(value).collect());
                On { value: without_brackets(*expr), values }
            }
            Expr::InSubquery { expr, subquery, negated: false } => {
                On { value: without_brackets(*expr), values: Values::Given(subquery) }
            }
            value => On { value, values: Values::Found },
        }
    }

    /// The condition that it is a written value, and the name of that.
    fn is(&self, value: &ExprWithAlias) -> (Expr, String) {
        let name = match (&value.alias, &value.expr) {
            (Some(alias), _) => normalized(alias),
            (None, Expr::Value(text)) => {
                text.value.clone().into_string().unwrap_or_else(|| text.value.to_string())
            }
            (None, Expr::Identifier(word)) => word.value.clone(),
            (None, other) => other.to_string(),
        };
        // A word stands for its text.
        let value = match &value.expr {
            Expr::Identifier(word) => text(&word.value),
            other => other.clone(),
        };
        (binary(self.value.clone(), BinaryOperator::Eq, value), name)
    }

    /// The condition that it is a value that was found, by its text.
    fn reads(&self, found: &str) -> (Expr, String) {
        let as_text = Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(self.value.clone()),
            data_type: DataType::Varchar(None),
            array: false,
            format: None,
        };
        (binary(as_text, BinaryOperator::Eq, text(found)), found.to_owned())
    }
}

type Condition = (Option<Expr>, String);

/// Every condition with every value of one more column.
fn crossed(conditions: &[Condition], values: &[(Expr, String)]) -> Result<Vec<Condition>> {
    if conditions.len().saturating_mul(values.len()) > MOST_COLUMNS {
        return Err(Error::Query {
            message: format!(
                "PIVOT: there are more than {MOST_COLUMNS} values to make columns of; say which ones with ON x IN (…)"
            ),
        });
    }
    let crossed = conditions.iter().flat_map(|(condition, name)| {
        values.iter().map(move |(next, next_name)| match condition {
            None => (Some(next.clone()), next_name.clone()),
            Some(condition) => {
                let both = binary(condition.clone(), BinaryOperator::And, next.clone());
                (Some(both), format!("{name}_{next_name}"))
            }
        })
    });
    Ok(crossed.collect())
}

fn wide(
    source: Query,
    groups: Vec<Expr>,
    using: Vec<ExprWithAlias>,
    conditions: Vec<Condition>,
    is_aggregate: impl Fn(&str) -> bool,
) -> Result<Query> {
    let has_values = conditions.iter().any(|(condition, _)| condition.is_some());
    let using = match using.is_empty() && has_values {
        true => vec![ExprWithAlias { expr: over_count()?, alias: None }],
        false => using,
    };
    let is_one = using.len() == 1;
    let mut query = over("SELECT 1 FROM (SELECT 1) AS source", source)?;
    let select = select_of(&mut query)?;
    select.projection = groups.iter().cloned().map(SelectItem::UnnamedExpr).collect();
    for (condition, name) in &conditions {
        for ExprWithAlias { expr, alias } in &using {
            let called = match alias {
                Some(alias) => Some(normalized(alias)),
                None => (!is_one || name.is_empty()).then(|| output_names::of(expr)),
            };
            let name = match (name.as_str(), called) {
                ("", called) => called.unwrap_or_default(),
                (name, None) => name.to_owned(),
                (name, Some(called)) => format!("{name}_{called}"),
            };
            let mut expr = expr.clone();
            if let Some(condition) = condition {
                let _ = expr.walk_mut(&mut Filtered { condition, is_aggregate: &is_aggregate });
            }
            select.projection.push(SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name) });
        }
    }
    if select.projection.is_empty() {
        return Err(Error::Query {
            message: "PIVOT: there is no value to make a column of, and no group".to_owned(),
        });
    }
    select.group_by = GroupByExpr::Expressions(groups, Vec::new());
    Ok(query)
}

/// As many values as tell that there are too many.
fn most_values() -> LimitClause {
    let limit = Value::Number((MOST_COLUMNS + 1).to_string(), false).with_empty_span();
    LimitClause::LimitOffset { limit: Some(Expr::Value(limit)), offset: None, limit_by: Vec::new() }
}

fn over_count() -> Result<Expr> {
    crate::planning::syntax::expression("count(*)")
}

fn long(
    source: Query,
    columns: &[Column],
    chosen: Vec<ExprWithAlias>,
    name: &Ident,
    value: &Ident,
    keeps_nulls: bool,
) -> Result<Query> {
    let unqualified: Vec<Column> =
        columns.iter().map(|column| Column { table: None, ..column.clone() }).collect();
    let mut taken: Vec<(Expr, String)> = Vec::new();
    for ExprWithAlias { expr, alias } in chosen {
        let several = star_columns::all(&expr, &unqualified)?;
        match (several, alias) {
            (Some(several), _) => {
                taken.extend(several.into_iter().map(|(expr, column)| (expr, column.name.clone())))
            }
            (None, Some(alias)) => taken.push((expr, normalized(&alias))),
            (None, None) => {
                let name = only_column(&expr).unwrap_or_else(|| output_names::of(&expr));
                taken.push((expr, name));
            }
        }
    }
    let mut inner = over("SELECT 1 FROM (SELECT 1) AS source", source)?;
    let select = select_of(&mut inner)?;
    select.projection = others(columns, taken.iter().map(|(expr, _)| expr))
        .into_iter()
        .map(SelectItem::UnnamedExpr)
        .collect();
    let (values, names): (Vec<Expr>, Vec<String>) = taken.into_iter().unzip();
    let names = call("make_array", names.iter().map(|name| text(name)));
    for (list, alias) in [(names, name), (call("make_array", values), value)] {
        select
            .projection
            .push(SelectItem::ExprWithAlias { expr: call("unnest", [list]), alias: alias.clone() });
    }
    if keeps_nulls {
        return Ok(inner);
    }
    let mut query = over("SELECT * FROM (SELECT 1) AS source WHERE 1", inner)?;
    select_of(&mut query)?.selection = Some(Expr::IsNotNull(Box::new(Expr::Identifier(value.clone()))));
    Ok(query)
}

/// The columns that expressions do not name.
fn others<'a>(columns: &[Column], expressions: impl Iterator<Item = &'a Expr>) -> Vec<Expr> {
    let mut named = Named(HashSet::new());
    for expression in expressions {
        let _ = expression.walk(&mut named);
    }
    let rest = columns.iter().filter(|column| !named.0.contains(&column.name));
    rest.map(|column| Expr::Identifier(column.ident())).collect()
}

/// The column that an expression is of, if it names one alone.
fn only_column(expr: &Expr) -> Option<String> {
    let mut named = Named(HashSet::new());
    let _ = expr.walk(&mut named);
    let mut names = named.0.into_iter();
    names.next().filter(|_| names.next().is_none())
}

/// Finds the names of columns.
struct Named(HashSet<String>);

impl Visitor for Named {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(name) => self.0.extend([normalized(name)]),
            Expr::CompoundIdentifier(path) => self.0.extend(path.last().map(normalized)),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Adds a condition to the filters of aggregate functions.
struct Filtered<'a, F> {
    condition: &'a Expr,
    is_aggregate: &'a F,
}

impl<F: Fn(&str) -> bool> VisitorMut for Filtered<'_, F> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expr
            && function.over.is_none()
            && (self.is_aggregate)(&function.name.to_string().to_lowercase())
        {
            function.filter = Some(Box::new(match function.filter.take() {
                Some(filter) => binary(*filter, BinaryOperator::And, self.condition.clone()),
                None => self.condition.clone(),
            }));
        }
        ControlFlow::Continue(())
    }
}

fn all_of(table: &TableFactor) -> Result<Query> {
    select_all_from(TableWithJoins { relation: table.clone(), joins: Vec::new() })
}

fn select_of(query: &mut Query) -> Result<&mut Select> {
    match query.body.as_mut() {
        SetExpr::Select(select) => Ok(select),
        _ => Err(Error::bug("a query over a source is one SELECT")),
    }
}

fn without_brackets(expr: Expr) -> Expr {
    match expr {
        Expr::Nested(inner) => without_brackets(*inner),
        other => other,
    }
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    let [left, right] = [left, right].map(|side| Box::new(Expr::Nested(Box::new(side))));
    Expr::BinaryOp { left, op, right }
}

fn text(value: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(value.to_owned()).with_empty_span())
}
