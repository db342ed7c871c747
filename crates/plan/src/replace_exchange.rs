//! Puts Nandina's exchange where DataFusion planned one whose order does not matter.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::repartition::RepartitionExec;
use nandina_exec::exchange::ExchangeExec;

/// Replaces `RepartitionExec` by [`ExchangeExec`], unless it keeps an order of its rows, or carries columns of a type that
/// cannot be spilled.
#[derive(Debug)]
pub struct ReplaceExchange;

impl PhysicalOptimizerRule for ReplaceExchange {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let replace = |node: Arc<dyn ExecutionPlan>| {
            let Some(planned) = node.downcast_ref::<RepartitionExec>() else {
                return Ok(Transformed::no(node));
            };
            if ExchangeExec::keeps_order(planned) {
                return Ok(Transformed::no(node));
            }
            Ok(match ExchangeExec::try_new(planned.clone()) {
                Ok(exchange) => {
                    let exchange: Arc<dyn ExecutionPlan> = Arc::new(exchange);
                    Transformed::yes(exchange)
                }
                Err(_) => Transformed::no(node),
            })
        };
        plan.transform_up(replace).data()
    }

    fn name(&self) -> &str {
        "replace_exchange"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
