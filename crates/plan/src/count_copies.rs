//! `INTERSECT ALL` and `EXCEPT ALL`, which count how many times a row is there.
//!
//! DataFusion plans them as semi and anti joins, which keep all copies of a row or none. Copies are numbered, so that each
//! finds its counterpart, if there is one:
//!
//! ```text
//!   semi join on a, b          Projection: a, b
//!     left               ─►      semi join on a, b, __copy
//!     right                        Window: row_number() OVER (PARTITION BY a, b) AS __copy
//!                                    left
//!                                  the same of right
//! ```
//!
//! Only set operations make semi and anti joins in which nulls match, and those without `ALL` have the rows of the left side
//! once.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{Column, JoinType, NullEquality, Result};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{Distinct, Expr, ExprFunctionExt, Join, LogicalPlan, Projection, Window};
use datafusion::optimizer::AnalyzerRule;

const COPY: &str = "__copy";

/// Numbers the copies of rows in set operations that count them.
#[derive(Debug)]
pub struct CountCopies;

impl AnalyzerRule for CountCopies {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Join(join) if counts(&join) => Ok(Transformed::yes(numbered(join)?)),
            other => Ok(Transformed::no(other)),
        })
        .data()
    }

    fn name(&self) -> &str {
        "count_copies"
    }
}

fn counts(join: &Join) -> bool {
    let is_set_operation = matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && join.filter.is_none();
    is_set_operation && !matches!(join.left.as_ref(), LogicalPlan::Distinct(Distinct::All(_)))
}

fn numbered(join: Join) -> Result<LogicalPlan> {
    let columns = join.schema.columns().into_iter().map(Expr::Column).collect();
    let mut on = join.on;
    let is_taken = |name: &str| {
        let has = |side: &LogicalPlan| side.schema().fields().iter().any(|field| field.name() == name);
        has(&join.left) || has(&join.right)
    };
    let mut name = COPY.to_owned();
    while is_taken(&name) {
        name.push('_');
    }
    let copy = || Expr::Column(Column::new_unqualified(&name));
    on.push((copy(), copy()));
    let again = Join::try_new(
        Arc::new(with_copies(join.left, &name)?),
        Arc::new(with_copies(join.right, &name)?),
        on,
        None,
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?;
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(LogicalPlan::Join(again)))?))
}

/// Rows with the number of each among its equals.
fn with_copies(rows: Arc<LogicalPlan>, name: &str) -> Result<LogicalPlan> {
    let columns = rows.schema().columns().into_iter().map(Expr::Column).collect();
    let copy = row_number().partition_by(columns).build()?.alias(name);
    Ok(LogicalPlan::Window(Window::try_new(vec![copy], rows)?))
}
