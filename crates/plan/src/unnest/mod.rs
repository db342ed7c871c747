//! Sub-queries that DataFusion has no join for: wherever they stand, and whatever they name of the query outside.
//!
//! ```text
//!   SELECT x, EXISTS (S) FROM t                ─►   Projection: x, __value_1
//!                                                     mark join of t and S, on the columns of t that S names
//!   SELECT x, (SELECT …) FROM t                ─►   the same with a left join, of a value for each row
//!   FROM t, LATERAL (S)                        ─►   an inner or left join
//! ```
//!
//! Each sub-query becomes a join with the same sub-query computed for all rows of the outer query at once ([`dependent`]).
//! Those that DataFusion's own rules join (`decorrelate_predicate_subquery`, `scalar_subquery_to_join`,
//! `decorrelate_lateral_join`) are left to them: they are the plain ones, in conditions and values.
//!
//! The outer query stands in the plan twice then. What would not have the same rows both times is a spool.

mod compared;
mod datafusion_joins;
mod dependent;
mod domain;
mod pairs;
mod single_value;

use std::sync::Arc;

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{
    Column, JoinType, Result, TableReference, internal_datafusion_err, internal_err, plan_err,
};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::Exists;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, Extension, FetchType, Filter, Join, Limit, LogicalPlan, Projection, SkipType,
    Subquery, SubqueryAlias, lit,
};
use datafusion::optimizer::AnalyzerRule;

use self::compared::spell_out_comparisons;
use self::datafusion_joins::is_joined_by_datafusion;
use self::dependent::{Joined, cross_joined, joined, joined_on, with_domain};
use self::domain::{Domain, by_name};
use self::single_value::single_value;
use crate::nodes::{has_sub_queries, input_schema};
use crate::spools::{Spool, is_volatile, next_spool_number};
use crate::sub_queries::{in_as_exists, outer_columns};

/// Joins the sub-queries that DataFusion does not.
#[derive(Debug)]
pub struct UnnestSubQueries;

impl AnalyzerRule for UnnestSubQueries {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Unnesting::default().of_plan(spell_out_comparisons(plan)?)
    }

    fn name(&self) -> &str {
        "unnest_sub_queries"
    }
}

/// The sub-queries of one statement, which are numbered.
#[derive(Default)]
struct Unnesting {
    next_number: usize,
}

/// Rows to which the values of sub-queries are being joined, with those that are.
struct Values {
    rows: Arc<LogicalPlan>,
    known: Vec<(Expr, Expr)>,
}

impl Unnesting {
    /// Inner sub-queries first: what they name of queries further out stands in the middle one then.
    fn of_plan(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let plan = plan.map_children(|child| Ok(Transformed::yes(self.of_plan(child)?))).data()?;
        let names = NamePreserver::new(&plan);
        let plan = plan.map_expressions(|expression| {
            let name = names.save(&expression);
            let inner = expression.transform(|part| self.inside(part))?;
            Ok(inner.update_data(|expression| name.restore(expression)))
        });
        let plan = plan.data()?;
        let has_lateral = matches!(&plan, LogicalPlan::Join(join) if is_lateral(&join.right));
        if !has_lateral && !has_sub_queries(&plan)? {
            return Ok(plan);
        }
        self.of_node(memberships_as_exists(plan)?)
    }

    /// Unnests within a sub-query.
    fn inside(&mut self, part: Expr) -> Result<Transformed<Expr>> {
        let mut unnest = |subquery: &mut Subquery| -> Result<()> {
            let plan = self.of_plan(subquery.subquery.as_ref().clone())?;
            subquery.subquery = Arc::new(plan);
            Ok(())
        };
        let mut part = part;
        match &mut part {
            Expr::ScalarSubquery(subquery) => unnest(subquery)?,
            Expr::Exists(exists) => {
                unnest(&mut exists.subquery)?;
                exists.subquery.subquery = without_limit(Arc::clone(&exists.subquery.subquery))?;
            }
            Expr::InSubquery(found) => unnest(&mut found.subquery)?,
            _ => return Ok(Transformed::no(part)),
        }
        Ok(Transformed::yes(part))
    }

    /// Joins the sub-queries in one operator's expressions to its input.
    fn of_node(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        match plan {
            LogicalPlan::Join(join) if is_lateral(&join.right) => self.lateral(join),
            LogicalPlan::Join(join) => self.of_condition(join),
            LogicalPlan::Filter(filter) => self.of_filter(filter),
            LogicalPlan::Projection(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Window(_) => self.of_expressions(plan),
            other => Ok(other),
        }
    }

    /// Conditions without such sub-queries first: they leave fewer rows.
    fn of_filter(&mut self, filter: Filter) -> Result<LogicalPlan> {
        let whole = LogicalPlan::Filter(filter.clone());
        let mut plain = Vec::new();
        let mut ours = Vec::new();
        for condition in split_conjunction_owned(filter.predicate) {
            let is_ours = condition.exists(|part| is_ours(part, &whole))?;
            if is_ours { &mut ours } else { &mut plain }.push(condition);
        }
        if ours.is_empty() {
            return Ok(whole);
        }
        let rows = match conjunction(plain) {
            Some(plain) => Arc::new(LogicalPlan::Filter(Filter::try_new(plain, filter.input)?)),
            None => filter.input,
        };
        let condition = conjunction(ours).unwrap_or_else(|| lit(true));
        self.of_expressions(LogicalPlan::Filter(Filter::try_new(condition, rows)?))
    }

    /// The sub-queries in a join's condition: first those that look at one side.
    fn of_condition(&mut self, mut join: Join) -> Result<LogicalPlan> {
        let whole = LogicalPlan::Join(join.clone());
        let Some(condition) = join.filter.take() else { return Ok(whole) };
        let mut left = Values { rows: Arc::clone(&join.left), known: Vec::new() };
        let mut right = Values { rows: Arc::clone(&join.right), known: Vec::new() };
        let written = condition.transform_down(|part| {
            if !is_ours(&part, &whole)? {
                return Ok(Transformed::no(part));
            }
            let outer = outer_columns_of(&part)?;
            let names = |side: &LogicalPlan| outer.iter().any(|(_, column)| side.schema().has_column(column));
            let values = match (names(&join.left), names(&join.right)) {
                (true, true) => return Ok(Transformed::new(part, false, TreeNodeRecursion::Jump)),
                (false, true) => &mut right,
                (_, false) => &mut left,
            };
            let value = self.value(part, values)?;
            Ok(Transformed::new(value, true, TreeNodeRecursion::Jump))
        })?;
        if !written.transformed {
            join.filter = Some(written.data);
            return self.of_pairs(join);
        }
        let columns = join.schema.columns().into_iter().map(Expr::Column).collect();
        let again = Join::try_new(
            left.rows,
            right.rows,
            join.on,
            Some(written.data),
            join.join_type,
            join.join_constraint,
            join.null_equality,
            join.null_aware,
        )?;
        let again = Arc::new(self.of_pairs(again)?);
        Ok(LogicalPlan::Projection(Projection::try_new(columns, again)?))
    }

    fn of_expressions(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let [input] = plan
            .inputs()
            .try_into()
            .map_err(|_| internal_datafusion_err!("an operator with sub-queries has one input"))?;
        let mut values = Values { rows: Arc::new(input.clone()), known: Vec::new() };
        let names = NamePreserver::new(&plan);
        let (before, schema) = (plan.clone(), Arc::clone(plan.schema()));
        let written = plan.map_expressions(|expression| {
            let name = names.save(&expression);
            let written = expression.transform_down(|part| match is_ours(&part, &before)? {
                true => {
                    let value = self.value(part, &mut values)?;
                    Ok(Transformed::new(value, true, TreeNodeRecursion::Jump))
                }
                false => Ok(Transformed::no(part)),
            })?;
            Ok(written.update_data(|expression| name.restore(expression)))
        })?;
        if values.known.is_empty() {
            return Ok(written.data);
        }
        let expressions = written.data.expressions();
        let with_values = written.data.with_new_exprs(expressions, vec![values.rows.as_ref().clone()])?;
        if with_values.schema().fields().len() == schema.fields().len() {
            return Ok(with_values);
        }
        let columns = schema.columns().into_iter().map(Expr::Column).collect();
        Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(with_values))?))
    }

    /// The column that has the value of a sub-query, which is joined to the rows if it is not yet.
    fn value(&mut self, part: Expr, values: &mut Values) -> Result<Expr> {
        if let Some((_, column)) = values.known.iter().find(|(known, _)| *known == part) {
            return Ok(column.clone());
        }
        self.next_number += 1;
        let name = format!("__value_{}", self.next_number);
        let rows = Arc::clone(&values.rows);
        let (with_value, value) = match &part {
            Expr::Exists(Exists { subquery, negated }) => {
                let with_mark = self.marked(&rows, subquery, &name)?;
                let mark = by_name(name);
                (with_mark, if *negated { Expr::Not(Box::new(mark)) } else { mark })
            }
            Expr::ScalarSubquery(subquery) => (self.with_scalar(&rows, subquery, &name)?, by_name(name)),
            _ => return internal_err!("only EXISTS and values are joined"),
        };
        values.rows = Arc::new(with_value);
        values.known.push((part, value.clone()));
        Ok(value)
    }

    /// The rows with a column that says whether a sub-query has rows for them.
    fn marked(&mut self, rows: &Arc<LogicalPlan>, subquery: &Subquery, name: &str) -> Result<LogicalPlan> {
        let domain = self.domain(rows, subquery)?;
        if domain.is_empty() {
            let one =
                Limit { skip: None, fetch: Some(Box::new(lit(1i64))), input: Arc::clone(&subquery.subquery) };
            let count =
                Aggregate::try_new(Arc::new(LogicalPlan::Limit(one)), Vec::new(), vec![count(lit(1i64))])?;
            let [counted] = count
                .schema
                .columns()
                .try_into()
                .map_err(|_| internal_datafusion_err!("a count is one column"))?;
            let mark = Expr::Column(counted).gt(lit(0i64)).alias(name);
            let mark = Projection::try_new(vec![mark], Arc::new(LogicalPlan::Aggregate(count)))?;
            return cross_joined(rows.as_ref().clone(), LogicalPlan::Projection(mark));
        }
        let Joined { plan, is_compared } = joined(&subquery.subquery, &domain)?;
        // The mark is a column of this name, which tells it from the outer query's.
        let marks = TableReference::bare(name);
        let (keys, columns): (Vec<Expr>, Vec<Expr>) = domain
            .names("")
            .into_iter()
            .map(|key| {
                let column = Column::new(Some(marks.clone()), key.clone());
                (Expr::Column(column), by_name(key.clone()).alias_qualified(Some(marks.clone()), key))
            })
            .unzip();
        let keyed = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?);
        let mut marked = keyed_join(&domain, keys, keyed, is_compared, JoinType::LeftMark)?;
        let mut columns: Vec<Expr> = marked.schema().columns().into_iter().map(Expr::Column).collect();
        if let Some(mark) = columns.pop() {
            columns.push(mark.alias(name));
        }
        marked = LogicalPlan::Projection(Projection::try_new(columns, Arc::new(marked))?);
        Ok(marked)
    }

    /// The rows with a column that has the value of a sub-query for them.
    fn with_scalar(
        &mut self,
        rows: &Arc<LogicalPlan>,
        subquery: &Subquery,
        name: &str,
    ) -> Result<LogicalPlan> {
        let domain = self.domain(rows, subquery)?;
        let has_one = subquery.subquery.max_rows().is_some_and(|rows| rows <= 1);
        let own = rows.schema().columns().into_iter().map(Expr::Column);
        let columns: Vec<Expr> = own.chain([by_name(name.to_owned())]).collect();
        let Joined { plan, is_compared } = match domain.is_empty() {
            // Columns of queries further out stay.
            true => Joined { plan: subquery.subquery.as_ref().clone(), is_compared: false },
            // Keys that no outer row has may have several rows.
            false if !has_one => {
                Joined { plan: with_domain(&subquery.subquery, &domain)?, is_compared: false }
            }
            false => joined(&subquery.subquery, &domain)?,
        };
        let Some(value) = plan.schema().columns().pop().map(Expr::Column) else {
            return plan_err!("a sub-query without a column has no value");
        };
        let plan = Arc::new(plan);
        let values = if has_one && !domain.is_empty() {
            let all = domain.columns().into_iter().chain([value.alias(name)]).collect();
            Projection::try_new(all, plan)?
        } else {
            let only = Aggregate::try_new(plan, domain.columns(), vec![single_value(value)])?;
            let mut columns: Vec<Expr> = only.schema.columns().into_iter().map(Expr::Column).collect();
            if let Some(value) = columns.pop() {
                columns.push(value.alias(name));
            }
            Projection::try_new(columns, Arc::new(LogicalPlan::Aggregate(only)))?
        };
        let values = LogicalPlan::Projection(values);
        let kind = if domain.is_empty() { JoinType::Inner } else { JoinType::Left };
        let with_value = keyed_join(&domain, domain.columns(), values, is_compared, kind)?;
        Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(with_value))?))
    }

    /// A join with a sub-query in `FROM` that names columns of what stands before it.
    fn lateral(&mut self, join: Join) -> Result<LogicalPlan> {
        let Some((subquery, alias)) = lateral_parts(&join.right) else { return Ok(LogicalPlan::Join(join)) };
        let columns = join.schema.columns().into_iter().map(Expr::Column).collect();
        let domain = self.domain(&join.left, subquery)?;
        if domain.is_empty() {
            return Ok(LogicalPlan::Join(join));
        }
        let Joined { plan, .. } = joined(&subquery.subquery, &domain)?;
        let plan = match alias {
            Some(alias) => {
                let own = plan.schema().columns().into_iter().skip(domain.names("").len());
                let named = own.zip(alias.schema.iter()).map(|(column, (table, field))| {
                    Expr::Column(column).alias_qualified(table.cloned(), field.name())
                });
                let all = domain.columns().into_iter().chain(named).collect();
                LogicalPlan::Projection(Projection::try_new(all, Arc::new(plan))?)
            }
            None => plan,
        };
        let on = join.on.into_iter().map(|(left, right)| left.eq(right));
        let condition = conjunction(on.chain(join.filter));
        let keys = domain.outer_columns().into_iter().zip(domain.columns()).collect();
        let with_rows = joined_on(domain.source().as_ref().clone(), plan, keys, condition, join.join_type)?;
        Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(with_rows))?))
    }

    /// The domain of a sub-query over these rows, which are a spool if they would not be the same twice.
    fn domain(&mut self, rows: &Arc<LogicalPlan>, subquery: &Subquery) -> Result<Domain> {
        let outer = outer_columns(&subquery.subquery)?;
        self.next_number += 1;
        let domain = Domain::new(rows, &outer, self.next_number);
        if domain.is_empty() { Ok(domain) } else { Ok(domain.of(self.once(rows)?)) }
    }

    /// Rows that stand in the plan several times: a spool, if they would not be the same.
    fn once(&self, rows: &Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
        if is_spool(rows) || !differ_when_repeated(rows)? {
            return Ok(Arc::clone(rows));
        }
        Ok(spooled(rows))
    }
}

/// Writes `IN` as `EXISTS` where it is to be joined here.
fn memberships_as_exists(plan: LogicalPlan) -> Result<LogicalPlan> {
    let (whole, schema) = (plan.clone(), input_schema(&plan)?);
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expression| {
        let name = names.save(&expression);
        let written = expression.transform_down(|part| match part {
            Expr::InSubquery(found)
                if !is_joined_by_datafusion(&Expr::InSubquery(found.clone()), &whole)? =>
            {
                Ok(Transformed::yes(in_as_exists(found, &schema)?))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(written.update_data(|expression| name.restore(expression)))
    })
    .data()
}

/// There are rows whether or not their number is limited, and in any order.
fn without_limit(plan: Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
    match plan.as_ref() {
        LogicalPlan::Limit(limit) => match (limit.get_skip_type()?, limit.get_fetch_type()?) {
            (SkipType::Literal(0), FetchType::Literal(Some(1..))) => without_limit(Arc::clone(&limit.input)),
            _ => Ok(plan),
        },
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => without_limit(Arc::clone(&sort.input)),
        _ => Ok(plan),
    }
}

/// Whether rows may be others when they are computed again, if only in their last digits, or in the order of equal ones.
fn differ_when_repeated(rows: &LogicalPlan) -> Result<bool> {
    let is_inexact = |part: &LogicalPlan| {
        Ok(matches!(
            part,
            LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) | LogicalPlan::Distinct(Distinct::On(_))
        ))
    };
    Ok(is_volatile(rows)? || rows.exists(is_inexact)?)
}

/// Rows that are computed once.
fn spooled(rows: &Arc<LogicalPlan>) -> Arc<LogicalPlan> {
    if is_spool(rows) {
        return Arc::clone(rows);
    }
    let spool = Spool { number: next_spool_number(), input: rows.as_ref().clone() };
    Arc::new(LogicalPlan::Extension(Extension { node: Arc::new(spool) }))
}

fn is_spool(rows: &LogicalPlan) -> bool {
    matches!(rows, LogicalPlan::Extension(extension) if extension.node.name() == "Spool")
}

/// A join of the domain's rows with a sub-query, on the domain's columns.
fn keyed_join(
    domain: &Domain,
    keys: Vec<Expr>,
    right: LogicalPlan,
    is_compared: bool,
    kind: JoinType,
) -> Result<LogicalPlan> {
    let keys = domain.outer_columns().into_iter().zip(keys).collect();
    let joined = joined_on(domain.source().as_ref().clone(), right, keys, None, kind)?;
    match joined {
        LogicalPlan::Join(mut join) if is_compared => {
            join.null_equality = datafusion::common::NullEquality::NullEqualsNothing;
            Ok(LogicalPlan::Join(join))
        }
        other => Ok(other),
    }
}

/// The columns of outer queries that a sub-query in an expression names.
fn outer_columns_of(part: &Expr) -> Result<Vec<(FieldRef, Column)>> {
    match part {
        Expr::Exists(exists) => outer_columns(&exists.subquery.subquery),
        Expr::ScalarSubquery(subquery) => outer_columns(&subquery.subquery),
        _ => Ok(Vec::new()),
    }
}

/// Whether a sub-query in an operator's expressions is to be joined here.
fn is_ours(part: &Expr, node: &LogicalPlan) -> Result<bool> {
    match part {
        Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) => {
            Ok(!is_joined_by_datafusion(part, node)?)
        }
        _ => Ok(false),
    }
}

fn is_lateral(plan: &LogicalPlan) -> bool {
    lateral_parts(plan).is_some()
}

/// A sub-query in `FROM`, and its name if it has one.
fn lateral_parts(plan: &LogicalPlan) -> Option<(&Subquery, Option<&SubqueryAlias>)> {
    match plan {
        LogicalPlan::Subquery(subquery) => Some((subquery, None)),
        LogicalPlan::SubqueryAlias(alias) => match alias.input.as_ref() {
            LogicalPlan::Subquery(subquery) => Some((subquery, Some(alias))),
            _ => None,
        },
        _ => None,
    }
}
