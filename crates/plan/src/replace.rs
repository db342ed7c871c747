//! Nandina's operators in the place of DataFusion's.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode, SortMergeJoinExec,
};
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use nandina_exec::aggregate::HashAggregateExec;
use nandina_exec::exchange::ExchangeExec;
use nandina_exec::join::BlockNestedLoopJoinExec;
use nandina_exec::join::{HybridHashJoinExec, replace_hash_join};
use nandina_exec::recursion::SpillingRecursiveQueryExec;
use nandina_exec::sort::{ExternalSortExec, OrderedMergeExec};
use nandina_exec::window::SpillingWindowExec;

use crate::choose_build_side::with_better_build_side;

type Replacement = Result<Option<Arc<dyn ExecutionPlan>>>;

/// A rule that puts operators in the place of others, from the leaves up.
#[derive(Debug)]
pub struct ReplaceOperators {
    name: &'static str,
    /// What comes in the place of a node; `None` if it stays.
    replacement: fn(&Arc<dyn ExecutionPlan>) -> Replacement,
}

impl ReplaceOperators {
    /// Every `SortMergeJoinExec` by a `HashJoinExec`.
    ///
    /// The planner chooses merge joins where `datafusion.optimizer.prefer_hash_join` is off, which is advice for engines
    /// whose hash join fails beyond memory.
    pub const MERGE_JOINS: Self = Self { name: "replace_merge_join", replacement: of_merge_join };

    /// Every `HashJoinExec` by a [`HybridHashJoinExec`]: its estimates, which are better than those of the join it
    /// replaces, decide about the build sides of those above.
    pub const HASH_JOINS: Self = Self { name: "replace_hash_join", replacement: of_hash_join };

    /// Aggregations by hash, both stages at once, by [`HashAggregateExec`]s.
    ///
    /// Those left to DataFusion need little memory by their nature: aggregations without keys, aggregations of sorted
    /// input, and those of which a sort above wants only the first few groups, which
    /// [`LimitGroups`](crate::LimitGroups) has marked.
    pub const HASH_AGGREGATES: Self = Self { name: "replace_hash_aggregate", replacement: of_hash_aggregate };

    /// Some of the joins that [`Self::NESTED_LOOP_JOINS`] replaces, before orders are chosen: those in which DataFusion
    /// takes for constant a column that is null in rows without a match.
    pub const MISTAKEN_LOOP_JOINS: Self =
        Self { name: "replace_mistaken_loop_join", replacement: of_mistaken_loop_join };

    /// Every `NestedLoopJoinExec` and `CrossJoinExec` by a [`BlockNestedLoopJoinExec`] with the same build side.
    pub const NESTED_LOOP_JOINS: Self =
        Self { name: "replace_nested_loop_join", replacement: of_nested_loop_join };

    /// Every `SortExec` by an [`ExternalSortExec`], and the `SortPreservingMergeExec` right above one by a sort of all
    /// partitions at once. Above what something else has sorted, it becomes an [`OrderedMergeExec`].
    ///
    /// Sorts of columns that cannot be spilled are left to DataFusion.
    pub const SORTS: Self = Self { name: "replace_sort", replacement: of_sort };

    /// `WindowAggExec` and `BoundedWindowAggExec` by [`SpillingWindowExec`], unless their input is not sorted by
    /// partitions or carries columns of a type that cannot be spilled. Refuses functions that cannot be computed.
    pub const WINDOWS: Self = Self { name: "replace_window", replacement: of_window };

    /// `RepartitionExec` by [`ExchangeExec`], unless it keeps an order of its rows, or carries columns of a type that
    /// cannot be spilled.
    pub const EXCHANGES: Self = Self { name: "replace_exchange", replacement: of_exchange };

    /// `RecursiveQueryExec`, and the scans of its rows, by [`SpillingRecursiveQueryExec`], unless its columns are of types
    /// that cannot be spilled. Of nested ones the inner is replaced first: a name means the innermost recursion that has
    /// it.
    pub const RECURSIONS: Self = Self { name: "replace_recursion", replacement: of_recursion };
}

impl PhysicalOptimizerRule for ReplaceOperators {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let replace = |node: Arc<dyn ExecutionPlan>| {
            let replacement = (self.replacement)(&node)?;
            Ok(replacement.map_or_else(|| Transformed::no(node), Transformed::yes))
        };
        plan.transform_up(replace).data()
    }

    fn name(&self) -> &str {
        self.name
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn operator(operator: impl ExecutionPlan + 'static) -> Arc<dyn ExecutionPlan> {
    Arc::new(operator)
}

fn of_merge_join(node: &Arc<dyn ExecutionPlan>) -> Replacement {
    let Some(join) = node.downcast_ref::<SortMergeJoinExec>() else { return Ok(None) };
    let hash_join = HashJoinExec::try_new(
        Arc::clone(join.left()),
        Arc::clone(join.right()),
        join.on().to_vec(),
        join.filter().clone(),
        &join.join_type(),
        None,
        PartitionMode::Auto,
        join.null_equality(),
        false,
    )?;
    Ok(Some(operator(hash_join)))
}

fn of_hash_join(node: &Arc<dyn ExecutionPlan>) -> Replacement {
    let Some(join) = node.downcast_ref::<HashJoinExec>() else { return Ok(None) };
    match with_better_build_side(join)? {
        Some(swapped) => replace_hash_join(swapped).map(Some),
        None => Ok(Some(operator(HybridHashJoinExec::try_new(join)?))),
    }
}

fn of_hash_aggregate(node: &Arc<dyn ExecutionPlan>) -> Replacement {
    let Some(aggregation) = node.downcast_ref::<AggregateExec>() else { return Ok(None) };
    Ok(HashAggregateExec::replacing(aggregation)?.map(operator))
}

fn of_mistaken_loop_join(node: &Arc<dyn ExecutionPlan>) -> Replacement {
    match node.downcast_ref::<NestedLoopJoinExec>() {
        Some(join) if BlockNestedLoopJoinExec::knows_better(join)? => of_nested_loop_join(node),
        _ => Ok(None),
    }
}

fn of_nested_loop_join(node: &Arc<dyn ExecutionPlan>) -> Replacement {
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        return Ok(Some(operator(BlockNestedLoopJoinExec::try_new(join)?)));
    }
    let Some(join) = node.downcast_ref::<CrossJoinExec>() else { return Ok(None) };
    Ok(Some(operator(BlockNestedLoopJoinExec::try_new_cross(join)?)))
}

fn of_sort(node: &Arc<dyn ExecutionPlan>) -> Replacement {
    if let Some(sort) = node.downcast_ref::<SortExec>() {
        return Ok(ExternalSortExec::replacing(sort)?.map(operator));
    }
    let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() else { return Ok(None) };
    Ok(Some(match ExternalSortExec::merging(merge)? {
        Some(sort) => sort,
        None => operator(OrderedMergeExec::replacing(merge)),
    }))
}

fn of_window(node: &Arc<dyn ExecutionPlan>) -> Replacement {
    Ok(SpillingWindowExec::try_new(Arc::clone(node))?.map(operator))
}

fn of_exchange(node: &Arc<dyn ExecutionPlan>) -> Replacement {
    let Some(planned) = node.downcast_ref::<RepartitionExec>() else { return Ok(None) };
    if ExchangeExec::keeps_order(planned) {
        return Ok(None);
    }
    // It fails for columns that cannot be spilled.
    Ok(ExchangeExec::try_new(planned.clone()).ok().map(operator))
}

fn of_recursion(node: &Arc<dyn ExecutionPlan>) -> Replacement {
    let Some(planned) = node.downcast_ref::<RecursiveQueryExec>() else { return Ok(None) };
    Ok(SpillingRecursiveQueryExec::replacing(planned)?.map(operator))
}
