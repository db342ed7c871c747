//! Relations in `FROM` that DataFusion does not plan.
//!
//! | relation | planned as |
//! |---|---|
//! | `l ASOF JOIN r ON l.k = r.k AND l.t >= r.t` | a window over the rows of both: [`asof`] |
//! | `(SELECT 1, 2) AS t(a)` with fewer names than columns | a projection: the others keep their names |

mod asof;

use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::expr::Alias;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{TableAlias, TableFactor};

/// Plans them.
#[derive(Debug)]
pub struct Relations;

impl RelationPlanner for Relations {
    fn plan_relation(
        &self,
        mut relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let planned = match &mut relation {
            TableFactor::NestedJoin { table_with_joins, alias: None }
                if table_with_joins.joins.last().is_some_and(asof::is_asof) =>
            {
                asof::plan(table_with_joins.as_ref().clone(), context)?
            }
            TableFactor::Table { alias: Some(alias), .. }
            | TableFactor::Derived { alias: Some(alias), .. }
                if !alias.columns.is_empty() =>
            {
                let names = std::mem::take(&mut alias.columns);
                let alias = alias.clone();
                let names = names.into_iter().map(|column| context.normalize_ident(column.name)).collect();
                renamed(context.plan(relation)?, &alias, names)?
            }
            _ => return Ok(RelationPlanning::Original(Box::new(relation))),
        };
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(planned, None))))
    }
}

/// A table with other names for its first columns.
fn renamed(table: LogicalPlan, alias: &TableAlias, names: Vec<String>) -> Result<LogicalPlan> {
    let schema = table.schema().clone();
    let columns = schema.columns();
    if names.len() > columns.len() {
        return plan_err!(
            "table '{}' has {} columns, fewer than the {} names for them",
            alias.name.value,
            columns.len(),
            names.len()
        );
    }
    let mut names = names.into_iter();
    let columns = columns.into_iter().map(|column| {
        let relation = column.relation.clone();
        match names.next() {
            Some(name) if name != column.name => {
                Expr::Alias(Alias::new(Expr::Column(column), relation, name))
            }
            _ => Expr::Column(column),
        }
    });
    LogicalPlanBuilder::from(table).project(columns.collect::<Vec<_>>())?.build()
}
