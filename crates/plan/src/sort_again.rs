//! Sorts where an order is needed that the input turns out not to have.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_expr::{LexOrdering, LexRequirement};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use nandina_exec::sort::ExternalSortExec;

/// Adds the sorts that are missing.
///
/// Where to sort is decided when it is known which columns are constant: they need none. Not all of that is still known
/// once a plan is complete: of the inputs of a union, each of which has constants of its own; above what filters and
/// projections have moved below. DataFusion refuses such a plan.
#[derive(Debug)]
pub struct SortAgain;

impl PhysicalOptimizerRule for SortAgain {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let needed = node.required_input_ordering();
            let mut inputs: Vec<Arc<dyn ExecutionPlan>> = node.children().into_iter().cloned().collect();
            let mut has_any = false;
            for (input, needed) in inputs.iter_mut().zip(needed) {
                let Some(needed) = needed else { continue };
                if let Some(sorted) = sorted(input, needed.into_single())? {
                    *input = sorted;
                    has_any = true;
                }
            }
            if !has_any {
                return Ok(Transformed::no(node));
            }
            Ok(Transformed::yes(replace_children_if_necessary(node, inputs)?))
        })
        .data()
    }

    fn name(&self) -> &str {
        "sort_again"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The rows of an input in an order, partition by partition, if they are not.
fn sorted(input: &Arc<dyn ExecutionPlan>, needed: LexRequirement) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if input.equivalence_properties().ordering_satisfy_requirement(needed.clone())? {
        return Ok(None);
    }
    let sort = SortExec::new(LexOrdering::from(needed), Arc::clone(input)).with_preserve_partitioning(true);
    let ours = ExternalSortExec::replacing(&sort)?;
    Ok(Some(ours.map_or_else(|| Arc::new(sort) as Arc<dyn ExecutionPlan>, |ours| Arc::new(ours))))
}
