//! Conditions with several `IN` lists of one expression, which are not what one list would be.
//!
//! DataFusion intersects the lists of `x IN (…) AND x IN (…)` and the like, as if all of them were constants and `x` never
//! null: `x NOT IN (1) OR x NOT IN (2)` is true then, where it is unknown if `x` is null, and
//! `x + 1 IN (1, 2) AND x + 1 NOT IN (b, c)` loses its second half. Here all lists that are not equal to the first are those
//! of another expression, by name, while conditions are simplified. Equal ones keep one name: `x IN (…) AND y OR x IN (…) AND z`
//! is `x IN (…) AND (y OR z)`.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::expr::{Alias, InList};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// A rule that simplifies conditions, but for those.
#[derive(Debug)]
pub struct KeepMemberships(pub Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for KeepMemberships {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let preserver = NamePreserver::new(&plan);
        let mut names = Vec::new();
        let told_apart = plan.map_expressions(|expr| {
            names.push(preserver.save(&expr));
            told_apart(expr, &mut Lists::new(), None, true)
        })?;
        if !told_apart.transformed {
            return self.0.rewrite(told_apart.data, config);
        }
        let simplified = self.0.rewrite(told_apart.data, config)?;
        let mut names = names.into_iter();
        simplified.transform_data(|plan| {
            plan.map_expressions(|expr| {
                let same = expr.transform_up(as_it_was)?;
                let Some(name) = names.next() else {
                    return internal_err!("simplifying a plan has made {} of its expressions two", same.data);
                };
                Ok(same.update_data(|expr| name.restore(expr)))
            })
        })
    }
}

/// What the names begin with that tell lists apart.
const NAME: &str = "__membership_";

/// The names that expressions have in the lists of one chain of `OR`.
type Names = HashMap<Expr, String>;

/// The lists so far, by the expression that is tested; `None` stands for those that no other may be taken for.
type Lists = HashMap<Expr, Vec<Option<InList>>>;

/// Gives names to the expressions of all lists but the first of each. Those that are joined by `OR`, and equalities among
/// them, may become one list. `is_plain` says that nothing but `AND` and `OR` stands around: elsewhere a list may be negated, as
/// below `NOT` or `= false`.
fn told_apart(
    expr: Expr,
    lists: &mut Lists,
    alternatives: Option<&Names>,
    is_plain: bool,
) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { ref left, op: Operator::Or, ref right }) => {
            let mut own = Names::new();
            let names = match alternatives {
                Some(names) => names,
                None => {
                    let mut tested = Vec::new();
                    alternatives_of(left, &mut tested);
                    alternatives_of(right, &mut tested);
                    for expr in tested {
                        if let Some(name) = name_of(&expr, None, lists) {
                            own.insert(expr, name);
                        }
                    }
                    &own
                }
            };
            expr.map_children(|side| told_apart(side, lists, Some(names), is_plain))
        }
        Expr::InList(list) => {
            let name = match alternatives {
                Some(names) if !list.negated => names.get(list.expr.as_ref()).cloned(),
                _ => name_of(&list.expr, is_plain.then(|| list.clone()), lists),
            };
            let InList { expr, list, negated } = list;
            let (expr, has_changed) = match name {
                Some(name) => (Box::new(expr.alias(name)), true),
                None => (expr, false),
            };
            Ok(Transformed::new_transformed(Expr::InList(InList { expr, list, negated }), has_changed))
        }
        Expr::BinaryExpr(BinaryExpr { ref left, op: Operator::Eq, ref right }) if alternatives.is_some() => {
            let name = |side: &Expr| alternatives.and_then(|names| names.get(side)).cloned();
            match (left.as_ref(), right.as_ref()) {
                (Expr::Column(_), Expr::Literal(..)) | (Expr::Literal(..), Expr::Column(_)) => expr
                    .map_children(|side| match name(&side) {
                        Some(name) => Ok(Transformed::yes(side.alias(name))),
                        None => Ok(Transformed::no(side)),
                    }),
                _ => expr.map_children(|side| told_apart(side, lists, None, false)),
            }
        }
        Expr::BinaryExpr(BinaryExpr { op: Operator::And, .. }) => {
            expr.map_children(|side| told_apart(side, lists, None, is_plain))
        }
        other => other.map_children(|child| told_apart(child, lists, None, false)),
    }
}

/// What the alternatives of a chain of `OR` test for being in a list, each once.
fn alternatives_of(expr: &Expr, tested: &mut Vec<Expr>) {
    let found = match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            alternatives_of(left, tested);
            return alternatives_of(right, tested);
        }
        Expr::InList(InList { expr, negated: false, .. }) => expr.as_ref(),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            match (left.as_ref(), right.as_ref()) {
                (column @ Expr::Column(_), Expr::Literal(..))
                | (Expr::Literal(..), column @ Expr::Column(_)) => column,
                _ => return,
            }
        }
        _ => return,
    };
    if !tested.contains(found) {
        tested.push(found.clone());
    }
}

/// The name of an expression in a list that it is tested for, if that is not the first.
fn name_of(expr: &Expr, list: Option<InList>, lists: &mut Lists) -> Option<String> {
    let known = lists.entry(expr.clone()).or_default();
    let equal = known.iter().position(|other| list.is_some() && *other == list);
    let number = equal.unwrap_or_else(|| {
        known.push(list);
        known.len() - 1
    });
    (number > 0).then(|| format!("{NAME}{number}"))
}

fn as_it_was(expr: Expr) -> Result<Transformed<Expr>> {
    match expr {
        Expr::Alias(Alias { expr, name, .. }) if name.starts_with(NAME) => Ok(Transformed::yes(*expr)),
        other => Ok(Transformed::no(other)),
    }
}
