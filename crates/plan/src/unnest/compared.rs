//! `x > ANY (S)` and `x > ALL (S)`, written as what they mean.
//!
//! ```text
//!   x > ANY (S)   ─►   CASE WHEN EXISTS (S where x > c)              THEN true
//!                           WHEN EXISTS (S where (x > c) IS NULL)    THEN NULL   ELSE false END
//!   x > ALL (S)   ─►   CASE WHEN EXISTS (S where NOT (x > c))        THEN false
//!                           WHEN EXISTS (S where (x > c) IS NULL)    THEN NULL   ELSE true END
//! ```

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{SetComparison, SetQuantifier};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, lit, when};

use crate::nodes::{has_sub_queries, input_schema};
use crate::sub_queries::{as_seen_inside, compared_column, exists};

/// Writes all comparisons with sub-queries in a plan, and in its sub-queries, as `CASE` of `EXISTS`.
pub fn spell_out_comparisons(plan: LogicalPlan) -> Result<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        if !has_sub_queries(&node)? {
            return Ok(Transformed::no(node));
        }
        let schema = input_schema(&node)?;
        let names = NamePreserver::new(&node);
        node.map_expressions(|expression| {
            let name = names.save(&expression);
            let written = expression.transform_up(|part| match part {
                Expr::SetComparison(compared) => Ok(Transformed::yes(meaning(compared, &schema)?)),
                other => Ok(Transformed::no(other)),
            })?;
            Ok(written.update_data(|expression| name.restore(expression)))
        })
    })
    .data()
}

fn meaning(compared: SetComparison, schema: &DFSchema) -> Result<Expr> {
    let SetComparison { expr, subquery, op, quantifier } = compared;
    let column = Expr::Column(compared_column(&subquery.subquery)?);
    let outer = as_seen_inside(*expr, schema)?;
    let holds = Expr::BinaryExpr(BinaryExpr::new(Box::new(outer), op, Box::new(column)));
    let decided = |condition: Expr| exists(&subquery, Some(condition));
    let is_unknown = decided(holds.clone().is_null())?;
    let unknown = lit(ScalarValue::Boolean(None));
    match quantifier {
        SetQuantifier::Any => {
            when(decided(holds)?, lit(true)).when(is_unknown, unknown).otherwise(lit(false))
        }
        SetQuantifier::All => {
            when(decided(holds.is_false())?, lit(false)).when(is_unknown, unknown).otherwise(lit(true))
        }
    }
}
