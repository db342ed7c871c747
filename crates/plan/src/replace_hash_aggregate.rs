//! Puts the spilling aggregation where DataFusion planned its own.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use nandina_exec::aggregate::HashAggregateExec;

use crate::limit_groups::limit_groups;

/// Replaces aggregations by hash, both stages at once, by [`HashAggregateExec`]s.
///
/// What is left to DataFusion needs little memory by its nature: aggregations without keys, aggregations of sorted
/// input, and those of which a sort above wants only the first few groups, which [`limit_groups`] marks first.
#[derive(Debug)]
pub struct ReplaceHashAggregate;

impl PhysicalOptimizerRule for ReplaceHashAggregate {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = limit_groups(plan, config)?;
        let replace = |node: Arc<dyn ExecutionPlan>| {
            let replaced = match node.downcast_ref::<AggregateExec>() {
                Some(aggregation) => HashAggregateExec::replacing(aggregation)?,
                None => None,
            };
            Ok(match replaced {
                Some(aggregation) => Transformed::yes(Arc::new(aggregation) as Arc<dyn ExecutionPlan>),
                None => Transformed::no(node),
            })
        };
        plan.transform_up(replace).data()
    }

    fn name(&self) -> &str {
        "replace_hash_aggregate"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
