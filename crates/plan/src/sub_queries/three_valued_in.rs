//! `IN` that may be unknown, where it makes a difference whether it is unknown or false.
//!
//! `x IN (S)` is true if `x` is in `S`, else unknown if there are rows in `S` and `x` is null, or a null in `S`, else false.
//! Below `WHERE`, `AND` and `OR` unknown is as good as false, and DataFusion's semi and anti joins know better for `NOT IN`.
//! Everywhere else (`NOT`, `IS NULL`, `=`, `CASE` …) it makes a mark join of it, whose mark is never unknown. There it is
//! written as what it means:
//!
//! ```text
//!   x IN (S)   ─►   CASE WHEN EXISTS (S where c = x)                              THEN true
//!                        WHEN x IS NULL AND EXISTS (S) OR EXISTS (S where c IS NULL) THEN NULL
//!                        ELSE false END
//! ```
//!
//! Conditions of joins that have sub-queries become conditions on rows, where they can, before a rule moves them:
//! DataFusion does not know of the columns that only a sub-query names.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column, DFSchema, Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Operator, Subquery,
    lit, not, when,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;

use super::outer_columns::{is_correlated, outer_columns};

/// Writes `IN` with a sub-query as what it means, where it may be unknown and that is not as good as false.
#[derive(Debug)]
pub struct ThreeValuedIn;

impl AnalyzerRule for ThreeValuedIn {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Filter(mut filter) => {
                let schema = Arc::clone(filter.input.schema());
                let written = written(filter.predicate, Place::Conjunct, &schema)?;
                filter.predicate = written.data;
                Ok(Transformed::new_transformed(LogicalPlan::Filter(filter), written.transformed))
            }
            LogicalPlan::Join(join) if join.filter.as_ref().is_some_and(has_sub_query) => {
                Ok(Transformed::yes(of_join(join)?))
            }
            // A filter above may move below it.
            LogicalPlan::Projection(projection) if projection.expr.iter().any(has_sub_query) => {
                let schema = Arc::clone(projection.input.schema());
                let names = NamePreserver::new_for_projection();
                LogicalPlan::Projection(projection).map_expressions(|expression| {
                    let name = names.save(&expression);
                    Ok(written(expression, Place::Value, &schema)?
                        .update_data(|written| name.restore(written)))
                })
            }
            other => Ok(Transformed::no(other)),
        })
        .data()
    }

    fn name(&self) -> &str {
        "three_valued_in"
    }
}

/// Whether a condition has a sub-query that is going to be a join. The columns of the query outside that it names are not
/// among those that the condition is known to look at.
fn has_sub_query(condition: &Expr) -> bool {
    let is_joined = |part: &Expr| {
        Ok(match part {
            Expr::InSubquery(_) | Expr::Exists(_) => true,
            Expr::ScalarSubquery(subquery) => is_correlated(&subquery.subquery)?,
            _ => false,
        })
    };
    condition.exists(is_joined).unwrap_or(true)
}

/// A join with such conditions: those of an inner join are conditions on its rows, and those of an outer join that look at
/// the side which may be missing alone, on the rows of that.
fn of_join(mut join: Join) -> Result<LogicalPlan> {
    let parts = join.filter.take().map(split_conjunction_owned).unwrap_or_default();
    let (with_queries, mut of_pairs): (Vec<Expr>, Vec<Expr>) = parts.into_iter().partition(has_sub_query);
    let mut of_rows = Vec::new();
    match join.join_type {
        JoinType::Inner => of_rows = with_queries,
        JoinType::Left | JoinType::Right => {
            let side = if join.join_type == JoinType::Left { &mut join.right } else { &mut join.left };
            let (of_side, others): (Vec<Expr>, Vec<Expr>) =
                with_queries.into_iter().partition(|condition| looks_at(condition, side.schema()));
            *side = Arc::new(filtered(Arc::clone(side), of_side)?);
            of_pairs.extend(others);
        }
        _ => of_pairs.extend(with_queries),
    }
    // Whether it is unknown or false makes a difference below NOT only, but there is no semi join of pairs of rows anyway.
    let schema = Arc::clone(&join.schema);
    let of_pairs = of_pairs.into_iter().map(|condition| match has_sub_query(&condition) {
        true => written(condition, Place::Value, &schema).data(),
        false => Ok(condition),
    });
    join.filter = conjunction(of_pairs.collect::<Result<Vec<_>>>()?);
    filtered(Arc::new(LogicalPlan::Join(join)), of_rows)
}

/// Whether all columns of a condition, and of its sub-queries, are those of a side.
fn looks_at(condition: &Expr, side: &DFSchema) -> bool {
    let has = |column: &Column| side.has_column(column);
    let is_other = |part: &Expr| {
        Ok(match part {
            Expr::Column(column) => !has(column),
            Expr::InSubquery(InSubquery { subquery, .. })
            | Expr::Exists(Exists { subquery, .. })
            | Expr::ScalarSubquery(subquery) => {
                outer_columns(&subquery.subquery)?.iter().any(|(_, column)| !has(column))
            }
            _ => false,
        })
    };
    !condition.exists(is_other).unwrap_or(true)
}

fn filtered(rows: Arc<LogicalPlan>, conditions: Vec<Expr>) -> Result<LogicalPlan> {
    let Some(condition) = conjunction(conditions) else { return Ok(Arc::unwrap_or_clone(rows)) };
    let condition = written(condition, Place::Conjunct, rows.schema())?.data;
    LogicalPlanBuilder::new_from_arc(rows).filter(condition)?.build()
}

/// Where an expression stands.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// All of `WHERE`, or one of the conditions joined by `AND`.
    Conjunct,
    /// Below `OR`, too: unknown is as good as false.
    Condition,
    /// Anywhere else.
    Value,
}

fn written(expression: Expr, place: Place, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expression {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let place = match (op, place) {
                (_, Place::Value) => Place::Value,
                (Operator::And, place) => place,
                _ => Place::Condition,
            };
            let (left, right) = (written(*left, place, schema)?, written(*right, place, schema)?);
            let changed = left.transformed || right.transformed;
            let both = BinaryExpr::new(Box::new(left.data), op, Box::new(right.data));
            Ok(Transformed::new_transformed(Expr::BinaryExpr(both), changed))
        }
        Expr::Not(inner) if place == Place::Conjunct && matches!(*inner, Expr::InSubquery(_)) => {
            let Expr::InSubquery(mut found) = *inner else { return internal_err!("IN is no longer there") };
            found.negated = !found.negated;
            let mut inverted = written(Expr::InSubquery(found), place, schema)?;
            inverted.transformed = true;
            Ok(inverted)
        }
        Expr::InSubquery(found) => {
            // The join for `NOT IN` knows nulls of a single pair of columns.
            let has_one_key =
                !is_correlated(&found.subquery.subquery)? && is_null_as_its_columns(&found.expr, schema);
            let is_joined = match place {
                Place::Conjunct => !found.negated || has_one_key,
                Place::Condition => !found.negated,
                Place::Value => false,
            };
            match is_joined {
                true => Ok(Transformed::no(Expr::InSubquery(found))),
                false => spelt_out(found, schema),
            }
        }
        other => other.map_children(|child| written(child, Place::Value, schema)),
    }
}

/// Whether an expression still has columns when it has been simplified (`x % NULL` is a constant), and one of them may be
/// null if it may be: DataFusion looks at those alone, and would take `nullif(x, 0)` of a column without nulls for known.
fn is_null_as_its_columns(expression: &Expr, schema: &DFSchema) -> bool {
    if matches!(expression, Expr::Column(_)) || expression.column_refs().is_empty() {
        return matches!(expression, Expr::Column(_));
    }
    let context = SimplifyContext::builder().with_schema(Arc::new(schema.clone())).build();
    let simplifier = ExprSimplifier::new(context);
    let typed = simplifier.coerce(expression.clone(), schema);
    let simplified = typed.and_then(|expression| simplifier.simplify(expression));
    // What cannot be typed is refused when the query is.
    simplified.map_or(true, |simplified| {
        let columns = simplified.column_refs();
        let may_be_null = |column: &&Column| Expr::Column((*column).clone()).nullable(schema).unwrap_or(true);
        !columns.is_empty()
            && (columns.iter().any(may_be_null) || !simplified.nullable(schema).unwrap_or(true))
    })
}

/// The name of a sub-query's output column: it may be the column of a table that the outer query reads, too, by the
/// same name.
const MEMBER: &str = "__member";

/// The one column of a sub-query that `IN` compares with.
pub(crate) fn compared_column(rows: &LogicalPlan) -> Result<Column> {
    let [column] = rows.schema().columns().try_into().map_err(|columns: Vec<Column>| {
        datafusion::common::plan_datafusion_err!("IN compares with one column, not with {}", columns.len())
    })?;
    Ok(column)
}

/// `IN` as `EXISTS`: one that is not negated stands where unknown is as good as false.
pub(crate) fn in_as_exists(found: InSubquery, schema: &DFSchema) -> Result<Expr> {
    if !found.negated {
        return member_exists(found, schema);
    }
    match spelt_out(found, schema)?.data {
        Expr::InSubquery(known) => member_exists(known, schema),
        written => Ok(written),
    }
}

/// `EXISTS` of a row that `IN` finds: false where it is unknown.
fn member_exists(found: InSubquery, schema: &DFSchema) -> Result<Expr> {
    let is_negated = found.negated;
    let (members, inner) = members(&found)?;
    let is_there = exists(&members, Some(inner.eq(as_seen_inside(*found.expr, schema)?)))?;
    Ok(if is_negated { not(is_there) } else { is_there })
}

/// The sub-query with a column of a name of its own, and that column.
fn members(found: &InSubquery) -> Result<(Subquery, Expr)> {
    let rows = &found.subquery.subquery;
    let column = Expr::Column(compared_column(rows)?).alias(MEMBER);
    let members = LogicalPlanBuilder::new_from_arc(Arc::clone(rows)).project([column])?;
    let members = Subquery { subquery: Arc::new(members.build()?), ..found.subquery.clone() };
    Ok((members, Expr::Column(Column::new_unqualified(MEMBER))))
}

fn spelt_out(found: InSubquery, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let rows = &found.subquery.subquery;
    let column = compared_column(rows)?;
    let (_, field) = rows.schema().qualified_field_from_column(&column)?;
    let (may_hold_null, may_be_null) = (field.is_nullable(), found.expr.nullable(schema)?);
    let is_known = !may_hold_null && !may_be_null;
    // DataFusion's join for `NOT IN` takes nulls of a correlated condition for nulls of the comparison. A condition
    // that is not negated here may become so when conditions are simplified: `false OR NOT (x IN S)`.
    if is_known && !is_correlated(&found.subquery.subquery)? {
        return Ok(Transformed::no(Expr::InSubquery(found)));
    }
    let (members, inner) = members(&found)?;
    let exists = |condition: Option<Expr>| exists(&members, condition);
    let is_there = exists(Some(inner.clone().eq(as_seen_inside(found.expr.as_ref().clone(), schema)?)))?;
    if is_known {
        return Ok(Transformed::yes(if found.negated { not(is_there) } else { is_there }));
    }
    let mut unknown = Vec::new();
    if may_be_null {
        unknown.push(found.expr.as_ref().clone().is_null().and(exists(None)?));
    }
    if may_hold_null {
        unknown.push(exists(Some(inner.is_null()))?);
    }
    let unknown = unknown.into_iter().reduce(Expr::or).unwrap_or_else(|| lit(false));
    let meaning =
        when(is_there, lit(true)).when(unknown, lit(ScalarValue::Boolean(None))).otherwise(lit(false))?;
    Ok(Transformed::yes(if found.negated { Expr::Not(Box::new(meaning)) } else { meaning }))
}

/// `EXISTS` of the rows that a condition holds for.
pub(crate) fn exists(rows: &Subquery, condition: Option<Expr>) -> Result<Expr> {
    let mut outer = rows.outer_ref_columns.clone();
    let mut builder = LogicalPlanBuilder::new_from_arc(Arc::clone(&rows.subquery));
    if let Some(condition) = condition {
        condition.apply(|part| {
            if let Expr::OuterReferenceColumn(..) = part
                && !outer.contains(part)
            {
                outer.push(part.clone());
            }
            Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
        })?;
        builder = builder.filter(condition)?;
    }
    let subquery = Subquery {
        subquery: Arc::new(builder.build()?),
        outer_ref_columns: outer,
        spans: rows.spans.clone(),
    };
    Ok(Expr::Exists(Exists { subquery, negated: false }))
}

/// An expression of the outer query, as the inner one sees it.
pub(crate) fn as_seen_inside(expression: Expr, schema: &DFSchema) -> Result<Expr> {
    expression
        .transform(|part| match part {
            Expr::Column(column) => {
                let (_, field) = schema.qualified_field_from_column(&column)?;
                Ok(Transformed::yes(Expr::OuterReferenceColumn(Arc::clone(field), column)))
            }
            other => Ok(Transformed::no(other)),
        })
        .data()
}
