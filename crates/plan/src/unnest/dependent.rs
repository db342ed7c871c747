//! A sub-query for all rows of its domain at once.
//!
//! The dependent join of the domain with the sub-query goes down through its operators until what is below does not name the
//! domain's columns, where it is a plain join (Neumann, Kemper: *Unnesting Arbitrary Queries*, BTW 2015, section 3). Every
//! operator on the way has the domain's columns in front of its own:
//!
//! | operator | becomes |
//! |---|---|
//! | filter, projection, sort, distinct, union | the same, with the columns |
//! | aggregation | by the columns, too; without groups, of the domain's rows with those that belong to them, so that each has its row |
//! | limit | rows with such numbers among those of the same domain's row |
//! | window | partitioned by the columns, too |
//! | join | of what names the domain with what does not, or of two that do, where the columns are equal |
//!
//! Where a condition says that all columns equal others of the sub-query, those take their places, and there is no join with
//! the domain at all.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{
    Column, DFSchema, JoinConstraint, JoinType, NullEquality, Result, TableReference, not_impl_err,
};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::{Sort as SortKey, WindowFunctionParams};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Distinct, DistinctOn, Expr, ExprFunctionExt, ExprSchemable, FetchType, Filter,
    Join, Limit, LogicalPlan, Operator, Projection, SkipType, Sort, Union, Unnest, Values, Window, lit,
};

use super::domain::{Domain, by_name};

/// A sub-query whose rows have the domain's columns in front.
pub struct Joined {
    pub plan: LogicalPlan,
    /// Whether the columns are never null, as they were compared.
    pub is_compared: bool,
}

/// The rows of `plan` for every row of the domain.
pub fn joined(plan: &LogicalPlan, domain: &Domain) -> Result<Joined> {
    if let Some(plan) = substituted(plan, domain)? {
        return Ok(Joined { plan, is_compared: true });
    }
    Ok(Joined { plan: with_domain(plan, domain)?, is_compared: false })
}

/// The same where conditions say what the domain's columns are equal to, without the domain.
fn substituted(plan: &LogicalPlan, domain: &Domain) -> Result<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::Projection(projection) => {
            let Some(input) = substituted(&projection.input, domain)? else { return Ok(None) };
            projected(&projection.expr, &projection.schema, input, domain).map(Some)
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let Some(input) = substituted(&alias.input, domain)? else { return Ok(None) };
            renamed(input, &alias.schema, domain).map(Some)
        }
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let Some(input) = substituted(input, domain)? else { return Ok(None) };
            Ok(Some(LogicalPlan::Distinct(Distinct::All(Arc::new(input)))))
        }
        LogicalPlan::Filter(filter) if !domain.is_named_in(&filter.input)? => equated(filter, domain),
        LogicalPlan::Filter(filter) => {
            let Some(input) = substituted(&filter.input, domain)? else { return Ok(None) };
            let predicate = domain.named(filter.predicate.clone())?;
            Ok(Some(LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?)))
        }
        _ => Ok(None),
    }
}

/// A filter right above rows that do not name the domain: the columns are what it says that they are equal to.
fn equated(filter: &Filter, domain: &Domain) -> Result<Option<LogicalPlan>> {
    let schema = filter.input.schema();
    let mut equal: Vec<Option<Expr>> = vec![None; domain.names("").len()];
    let mut others = Vec::new();
    for condition in split_conjunction(&filter.predicate) {
        let found = match condition {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
                match (left.as_ref(), right.as_ref()) {
                    (Expr::OuterReferenceColumn(_, column), inner)
                    | (inner, Expr::OuterReferenceColumn(_, column)) => {
                        domain.place(column).map(|place| (place, inner))
                    }
                    _ => None,
                }
            }
            _ => None,
        };
        match found {
            Some((place, inner))
                if equal[place].is_none()
                    && !inner.contains_outer()
                    && !inner.is_volatile()
                    && inner.get_type(schema)? == *domain.field(place).data_type() =>
            {
                equal[place] = Some(inner.clone());
            }
            _ => others.push(condition.clone()),
        }
    }
    let Some(equal) = equal.into_iter().collect::<Option<Vec<Expr>>>() else { return Ok(None) };
    let known = equal.iter().cloned().map(Expr::is_not_null);
    let known = conjunction(known).unwrap_or_else(|| lit(true));
    let rows = LogicalPlan::Filter(Filter::try_new(known, Arc::clone(&filter.input))?);
    let columns = equal.into_iter().zip(domain.names("")).map(|(column, name)| column.alias(name));
    let all: Vec<Expr> = columns.chain(schema.columns().into_iter().map(Expr::Column)).collect();
    let rows = LogicalPlan::Projection(Projection::try_new(all, Arc::new(rows))?);
    let Some(others) = conjunction(others) else { return Ok(Some(rows)) };
    Ok(Some(LogicalPlan::Filter(Filter::try_new(domain.named(others)?, Arc::new(rows))?)))
}

/// The rows of `plan` for every row of the domain, which is joined where its columns are not named any more.
pub fn with_domain(plan: &LogicalPlan, domain: &Domain) -> Result<LogicalPlan> {
    if !domain.is_named_in(plan)? {
        return cross_joined(domain.rows()?, plan.clone());
    }
    match plan {
        LogicalPlan::Projection(projection) => {
            projected(&projection.expr, &projection.schema, with_domain(&projection.input, domain)?, domain)
        }
        LogicalPlan::SubqueryAlias(alias) => {
            renamed(with_domain(&alias.input, domain)?, &alias.schema, domain)
        }
        LogicalPlan::Subquery(subquery) => with_domain(&subquery.subquery, domain),
        LogicalPlan::Filter(filter) => {
            let input = Arc::new(with_domain(&filter.input, domain)?);
            Ok(LogicalPlan::Filter(Filter::try_new(domain.named(filter.predicate.clone())?, input)?))
        }
        LogicalPlan::Distinct(Distinct::All(input)) => {
            Ok(LogicalPlan::Distinct(Distinct::All(Arc::new(with_domain(input, domain)?))))
        }
        LogicalPlan::Distinct(Distinct::On(distinct)) => distinct_on(distinct, domain),
        LogicalPlan::Sort(Sort { expr, input, fetch }) => match fetch {
            None => with_domain(input, domain),
            Some(fetch) => numbered(input, expr, 0, Some(*fetch), domain),
        },
        LogicalPlan::Limit(limit) => limited(limit, domain),
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => aggregated(aggregate, domain),
        LogicalPlan::Aggregate(aggregate) => grouped(aggregate, domain),
        LogicalPlan::Window(window) => windowed(window, domain),
        LogicalPlan::Union(union) => {
            let inputs = union.inputs.iter().map(|input| with_domain(input, domain).map(Arc::new));
            let inputs = inputs.collect::<Result<Vec<_>>>()?;
            Ok(LogicalPlan::Union(Union { schema: Arc::new(widened(&union.schema, domain)?), inputs }))
        }
        LogicalPlan::Values(values) => listed(values, domain),
        LogicalPlan::Unnest(unnest) => unnested(unnest, domain),
        LogicalPlan::Join(join) => join_with_domain(join, domain),
        other => not_impl_err!(
            "a sub-query that names columns of the query outside below its {}; join the two queries in FROM instead",
            what(other)
        ),
    }
}

fn what(plan: &LogicalPlan) -> &'static str {
    match plan {
        LogicalPlan::RecursiveQuery(_) => "WITH RECURSIVE",
        LogicalPlan::TableScan(_) => "table",
        _ => "operator",
    }
}

/// A schema with the domain's columns in front.
fn widened(schema: &DFSchema, domain: &Domain) -> Result<DFSchema> {
    let own = schema.iter().map(|(table, field)| (table.cloned(), Arc::clone(field)));
    let names = domain.names("").into_iter().enumerate();
    let columns = names.map(|(place, name)| {
        (None, Arc::new(domain.field(place).as_ref().clone().with_name(name).with_nullable(true)))
    });
    DFSchema::new_with_metadata(columns.chain(own).collect(), schema.metadata().clone())
}

pub fn cross_joined(left: LogicalPlan, right: LogicalPlan) -> Result<LogicalPlan> {
    joined_on(left, right, Vec::new(), None, JoinType::Inner)
}

/// A join on keys that nulls match on.
pub fn joined_on(
    left: LogicalPlan,
    right: LogicalPlan,
    on: Vec<(Expr, Expr)>,
    filter: Option<Expr>,
    kind: JoinType,
) -> Result<LogicalPlan> {
    let (left, right) = (Arc::new(left), Arc::new(right));
    let nulls = if on.is_empty() { NullEquality::NullEqualsNothing } else { NullEquality::NullEqualsNull };
    Join::try_new(left, right, on, filter, kind, JoinConstraint::On, nulls, false).map(LogicalPlan::Join)
}

/// Expressions under the names that the plan outside knows.
fn under_names(expressions: Vec<Expr>, names: &DFSchema) -> Vec<Expr> {
    assert_eq!(expressions.len(), names.fields().len(), "every column of a sub-query keeps its place");
    let named = expressions.into_iter().zip(names.iter());
    named.map(|(expression, (table, field))| under_name(expression, table, field.name())).collect()
}

fn under_name(expression: Expr, table: Option<&TableReference>, name: &str) -> Expr {
    let (own_table, own_name) = expression.qualified_name();
    if own_table.as_ref() == table && own_name == name {
        return expression;
    }
    expression.unalias().alias_qualified(table.cloned(), name)
}

fn projected(
    expressions: &[Expr],
    schema: &DFSchema,
    input: LogicalPlan,
    domain: &Domain,
) -> Result<LogicalPlan> {
    let named = expressions.iter().map(|expression| domain.named(expression.clone()));
    let own = under_names(named.collect::<Result<_>>()?, schema);
    let all = domain.columns().into_iter().chain(own).collect();
    Ok(LogicalPlan::Projection(Projection::try_new(all, Arc::new(input))?))
}

/// The columns behind the domain's under the names of `schema`.
fn renamed(input: LogicalPlan, schema: &DFSchema, domain: &Domain) -> Result<LogicalPlan> {
    let columns = input.schema().columns().into_iter().skip(domain.names("").len()).map(Expr::Column);
    let own = under_names(columns.collect(), schema);
    let all = domain.columns().into_iter().chain(own).collect();
    Ok(LogicalPlan::Projection(Projection::try_new(all, Arc::new(input))?))
}

fn distinct_on(distinct: &DistinctOn, domain: &Domain) -> Result<LogicalPlan> {
    let named = |expressions: &[Expr]| -> Result<Vec<Expr>> {
        let own = expressions.iter().map(|expression| domain.named(expression.clone()));
        domain.columns().into_iter().map(Ok).chain(own).collect()
    };
    let own = under_names(
        distinct
            .select_expr
            .iter()
            .map(|expression| domain.named(expression.clone()))
            .collect::<Result<_>>()?,
        &distinct.schema,
    );
    let selected = domain.columns().into_iter().chain(own).collect();
    let order = distinct.sort_expr.as_ref().map(|keys| -> Result<Vec<SortKey>> {
        let own = keys.iter().map(|key| Ok(SortKey { expr: domain.named(key.expr.clone())?, ..*key }));
        domain.columns().into_iter().map(|column| Ok(column.sort(true, true))).chain(own).collect()
    });
    let input = Arc::new(with_domain(&distinct.input, domain)?);
    let on = DistinctOn::try_new(named(&distinct.on_expr)?, selected, order.transpose()?, input)?;
    Ok(LogicalPlan::Distinct(Distinct::On(on)))
}

fn limited(limit: &Limit, domain: &Domain) -> Result<LogicalPlan> {
    let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
        (limit.get_skip_type()?, limit.get_fetch_type()?)
    else {
        return not_impl_err!(
            "LIMIT and OFFSET of a column of the query outside; compare row_number() with it instead"
        );
    };
    first_rows(&limit.input, skip, fetch, domain)
}

/// The rows from number `skip` on in the order that they have, `fetch` of them.
fn first_rows(plan: &LogicalPlan, skip: usize, fetch: Option<usize>, domain: &Domain) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
            numbered(&sort.input, &sort.expr, skip, fetch, domain)
        }
        // The order may be by columns that are not shown.
        LogicalPlan::Projection(projection) => {
            let rows = first_rows(&projection.input, skip, fetch, domain)?;
            projected(&projection.expr, &projection.schema, rows, domain)
        }
        LogicalPlan::SubqueryAlias(alias) => {
            renamed(first_rows(&alias.input, skip, fetch, domain)?, &alias.schema, domain)
        }
        other => numbered(other, &[], skip, fetch, domain),
    }
}

/// The rows from number `skip` on, `fetch` of them, for every row of the domain.
fn numbered(
    input: &LogicalPlan,
    order: &[SortKey],
    skip: usize,
    fetch: Option<usize>,
    domain: &Domain,
) -> Result<LogicalPlan> {
    const NUMBER: &str = "__number";
    let input = with_domain(input, domain)?;
    let columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
    let order = order.iter().map(|key| Ok(SortKey { expr: domain.named(key.expr.clone())?, ..*key }));
    let number = row_number()
        .partition_by(domain.columns())
        .order_by(order.collect::<Result<_>>()?)
        .build()?
        .alias(NUMBER);
    let numbered = LogicalPlan::Window(Window::try_new(vec![number], Arc::new(input))?);
    let number = || by_name(NUMBER.to_owned());
    let first = (skip > 0).then(|| number().gt(lit(skip as u64)));
    let last = fetch.map(|fetch| number().lt_eq(lit((skip + fetch) as u64)));
    let within = conjunction(first.into_iter().chain(last)).unwrap_or_else(|| lit(true));
    let rows = LogicalPlan::Filter(Filter::try_new(within, Arc::new(numbered))?);
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(rows))?))
}

fn grouped(aggregate: &Aggregate, domain: &Domain) -> Result<LogicalPlan> {
    if aggregate.group_expr.iter().any(|group| matches!(group, Expr::GroupingSet(_))) {
        return not_impl_err!("GROUPING SETS below which a sub-query names columns of the query outside");
    }
    let named = |expressions: &[Expr]| -> Result<Vec<Expr>> {
        expressions.iter().map(|expression| domain.named(expression.clone())).collect()
    };
    // A group of one of the domain's columns is there already.
    let (columns, groups) = (domain.columns(), named(&aggregate.group_expr)?);
    let others = groups.iter().filter(|group| !columns.contains(group)).cloned();
    let input = Arc::new(with_domain(&aggregate.input, domain)?);
    let all = columns.iter().cloned().chain(others).collect();
    let again = Aggregate::try_new(input, all, named(&aggregate.aggr_expr)?)?;
    let mut results = again.schema.columns().into_iter().skip(columns.len()).map(Expr::Column);
    let mut own = Vec::new();
    for group in groups {
        own.extend(if columns.contains(&group) { Some(group) } else { results.next() });
    }
    own.extend(results);
    let all = columns.into_iter().chain(under_names(own, &aggregate.schema)).collect();
    Ok(LogicalPlan::Projection(Projection::try_new(all, Arc::new(LogicalPlan::Aggregate(again)))?))
}

/// An aggregation without groups has a row for every row of the domain, of none of its own rows if there are none.
fn aggregated(aggregate: &Aggregate, domain: &Domain) -> Result<LogicalPlan> {
    const IS_ROW: &str = "__is_row";
    let input = with_domain(&aggregate.input, domain)?;
    let mut columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
    columns.push(lit(true).alias(IS_ROW));
    let rows = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(input))?);
    let groups = domain.names("_group");
    let outer = domain.columns().into_iter().zip(&groups).map(|(column, name)| column.alias(name));
    let outer = LogicalPlan::Projection(Projection::try_new(outer.collect(), Arc::new(domain.rows()?))?);
    let on = groups.iter().cloned().map(by_name).zip(domain.columns()).collect();
    let all = joined_on(outer, rows, on, None, JoinType::Left)?;
    let functions = aggregate.aggr_expr.iter().map(|function| {
        let function = domain.named(function.clone())?;
        function.transform(|part| Ok(of_rows_only(part, IS_ROW))).data()
    });
    let groups = groups.into_iter().map(by_name).collect();
    let again = Aggregate::try_new(Arc::new(all), groups, functions.collect::<Result<_>>()?)?;
    let results = again.schema.columns().into_iter().map(Expr::Column);
    let names = domain.names("").into_iter().map(|name| (None, name));
    let own = aggregate.schema.iter().map(|(table, field)| (table.cloned(), field.name().clone()));
    let all = results
        .zip(names.chain(own))
        .map(|(result, (table, name))| under_name(result, table.as_ref(), &name));
    Ok(LogicalPlan::Projection(Projection::try_new(all.collect(), Arc::new(LogicalPlan::Aggregate(again)))?))
}

/// An aggregate function of the rows for which a column is not null.
fn of_rows_only(part: Expr, is_row: &str) -> Transformed<Expr> {
    let Expr::AggregateFunction(mut function) = part else { return Transformed::no(part) };
    let is_row = by_name(is_row.to_owned()).is_not_null();
    let filter = match function.params.filter.take() {
        Some(filter) => filter.and(is_row),
        None => is_row,
    };
    function.params.filter = Some(Box::new(filter));
    Transformed::new(
        Expr::AggregateFunction(function),
        true,
        datafusion::common::tree_node::TreeNodeRecursion::Jump,
    )
}

fn windowed(window: &Window, domain: &Domain) -> Result<LogicalPlan> {
    let input = with_domain(&window.input, domain)?;
    let functions = window.window_expr.iter().map(|function| {
        let partitioned = domain.named(function.clone())?.transform(|part| match part {
            Expr::WindowFunction(mut function) => {
                let WindowFunctionParams { partition_by, .. } = &mut function.params;
                partition_by.splice(0..0, domain.columns());
                Ok(Transformed::yes(Expr::WindowFunction(function)))
            }
            other => Ok(Transformed::no(other)),
        });
        partitioned.data()
    });
    let again = Window::try_new(functions.collect::<Result<_>>()?, Arc::new(input))?;
    renamed(LogicalPlan::Window(again), &window.schema, domain)
}

/// Every list of values, for every row of the domain.
fn listed(values: &Values, domain: &Domain) -> Result<LogicalPlan> {
    let rows = values.values.iter().map(|row| {
        let own = row.iter().zip(values.schema.iter()).map(|(value, (table, field))| {
            let value = domain.named(value.clone())?;
            let schema = widened(&DFSchema::empty(), domain)?;
            Ok(under_name(value.cast_to(field.data_type(), &schema)?, table, field.name()))
        });
        let all = domain.columns().into_iter().map(Ok).chain(own).collect::<Result<Vec<Expr>>>()?;
        Projection::try_new(all, Arc::new(domain.rows()?)).map(|row| Arc::new(LogicalPlan::Projection(row)))
    });
    let inputs = rows.collect::<Result<Vec<_>>>()?;
    if let [only] = inputs.as_slice() {
        return Ok(only.as_ref().clone());
    }
    Ok(LogicalPlan::Union(Union { schema: Arc::new(widened(&values.schema, domain)?), inputs }))
}

fn unnested(unnest: &Unnest, domain: &Domain) -> Result<LogicalPlan> {
    let input = Arc::new(with_domain(&unnest.input, domain)?);
    let again = Unnest::try_new(input, unnest.exec_columns.clone(), unnest.options.clone())?;
    renamed(LogicalPlan::Unnest(again), &unnest.schema, domain)
}

fn join_with_domain(join: &Join, domain: &Domain) -> Result<LogicalPlan> {
    let keeps_left = !matches!(
        join.join_type,
        JoinType::Inner | JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark
    );
    let keeps_right = matches!(
        join.join_type,
        JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark
    );
    if join.join_type == JoinType::Full {
        return not_impl_err!("a FULL JOIN below which a sub-query names columns of the query outside");
    }
    let (in_left, in_right) = (domain.is_named_in(&join.left)?, domain.is_named_in(&join.right)?);
    // A side whose rows are kept has them for every row of the domain.
    let (on_left, on_right) = match (keeps_left, keeps_right) {
        (true, _) => (true, in_right),
        (_, true) => (in_left, true),
        _ => (in_left || !in_right, in_right),
    };
    let side = |plan: &Arc<LogicalPlan>, is_on: bool| -> Result<LogicalPlan> {
        if is_on { with_domain(plan, domain) } else { Ok(plan.as_ref().clone()) }
    };
    let (left, mut right) = (side(&join.left, on_left)?, side(&join.right, on_right)?);
    let mut both = Vec::new();
    if on_left && on_right {
        let names = domain.names("_right");
        let again = domain.columns().into_iter().zip(&names).map(|(column, name)| column.alias(name));
        let own = right.schema().columns().into_iter().skip(names.len()).map(Expr::Column);
        let all: Vec<Expr> = again.chain(own).collect();
        right = LogicalPlan::Projection(Projection::try_new(all, Arc::new(right))?);
        both = domain.columns().into_iter().zip(names.into_iter().map(by_name)).collect();
    }
    let on =
        join.on.iter().map(|(left, right)| Ok((domain.named(left.clone())?, domain.named(right.clone())?)));
    let on = on.collect::<Result<Vec<_>>>()?;
    let filter = join.filter.clone().map(|filter| domain.named(filter)).transpose()?;
    // The domain's nulls match; those of the join's own keys as it says.
    let filter = conjunction(both.into_iter().map(|(left, right)| is_same(left, right)).chain(filter));
    let again = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        filter,
        join.join_type,
        JoinConstraint::On,
        join.null_equality,
        join.null_aware,
    )?;
    let own = own_columns(&again.schema, domain);
    let all = if keeps_right { domain_of_right(domain, on_left) } else { domain.columns() };
    let all = all.into_iter().chain(under_names(own, &join.schema)).collect();
    Ok(LogicalPlan::Projection(Projection::try_new(all, Arc::new(LogicalPlan::Join(again)))?))
}

/// The domain's columns of a join that keeps its right side's rows.
fn domain_of_right(domain: &Domain, is_on_both: bool) -> Vec<Expr> {
    if !is_on_both {
        return domain.columns();
    }
    let names = domain.names("_right").into_iter().zip(domain.names(""));
    names.map(|(right, name)| by_name(right).alias(name)).collect()
}

/// Columns that are not the domain's.
fn own_columns(schema: &DFSchema, domain: &Domain) -> Vec<Expr> {
    let names: Vec<String> = domain.names("").into_iter().chain(domain.names("_right")).collect();
    let is_own = |column: &Column| column.relation.is_some() || !names.contains(&column.name);
    schema.columns().into_iter().filter(is_own).map(Expr::Column).collect()
}

/// Whether two values are equal, or both null.
fn is_same(left: Expr, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), Operator::IsNotDistinctFrom, Box::new(right)))
}
