//! Filters whose columns must not be taken for those of their output.
//!
//! A filter may leave out columns of its input and put the others in another order. DataFusion's rule that moves projections
//! forgets that the second time it comes to such a filter: it looks for the columns of the condition, which are those of the
//! input, among those of the output. Where columns have the same names it finds others.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};

/// A rule that moves projections, which sees filters that give all columns of their input, and projections above them.
#[derive(Debug)]
pub struct KeepColumnsOfFilters(pub Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for KeepColumnsOfFilters {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.0.optimize(plan.transform_up(projected_above).data()?, config)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

fn projected_above(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let filter = node.downcast_ref::<FilterExec>();
    let Some((filter, columns)) = filter.and_then(|filter| Some((filter, filter.projection().as_ref()?)))
    else {
        return Ok(Transformed::no(node));
    };
    let schema = node.schema();
    let columns = columns.iter().zip(schema.fields()).map(|(&index, field)| {
        let expr = Arc::new(Column::new(field.name(), index)) as _;
        ProjectionExpr { expr, alias: field.name().clone() }
    });
    let columns: Vec<ProjectionExpr> = columns.collect();
    let whole = FilterExecBuilder::from(filter).apply_projection(None)?.build()?;
    Ok(Transformed::yes(Arc::new(ProjectionExec::try_new(columns, Arc::new(whole))?)))
}
