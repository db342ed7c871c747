//! Moves filters towards the scans: conditions of `FilterExec`s, and the dynamic ones of joins and sorts with a limit.
//!
//! ```text
//!   Join d2.id = b.x          its filter on column 3 of what comes from below
//!        │ id, x, id, x                 └─ the second `x`: column 1 of `b`, not of `a`
//!   Join a.m = b.m
//!    │         │
//!   a: m, x   b: m, x
//! ```
//!
//! Operators themselves say which filters they send and what they do with those that arrive. What a column of an
//! operator's output is in its inputs is found here, by position ([`in_child`]): DataFusion finds it by name, and
//! takes the first of several columns with one name (apache/datafusion#25244, #25262 to #25264, #25296).

mod in_child;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, internal_err};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterPushdownResult, ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation,
    PushedDown, PushedDownPredicate,
};

use in_child::{InChild, in_child, without_projection};

/// Predicates over the output schema of the operator that they are pushed to.
type Filters = Vec<Arc<dyn PhysicalExpr>>;

/// Moves filters towards the scans.
#[derive(Debug)]
pub struct PushFilters {
    phase: FilterPushdownPhase,
}

impl PushFilters {
    /// Moves the conditions of filters, before operators are replaced and exchanges added.
    pub fn of_plan() -> Self {
        Self { phase: FilterPushdownPhase::Pre }
    }

    /// Moves what operators find out as they run. No rule may replace an operator after this one.
    pub fn of_operators() -> Self {
        Self { phase: FilterPushdownPhase::Post }
    }
}

impl PhysicalOptimizerRule for PushFilters {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let pushed = push(&plan, Vec::new(), self.phase, config)?;
        Ok(pushed.updated_node.unwrap_or(plan))
    }

    fn name(&self) -> &str {
        match self.phase {
            FilterPushdownPhase::Pre => "push_filters_of_plan",
            FilterPushdownPhase::Post => "push_filters_of_operators",
        }
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Moves `filters` into `node` and below, and what `node` sends itself. Says which of `filters` are applied there.
fn push(
    node: &Arc<dyn ExecutionPlan>,
    filters: Filters,
    phase: FilterPushdownPhase,
    config: &ConfigOptions,
) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
    let takes_over = phase == FilterPushdownPhase::Pre && !filters.is_empty();
    let apart = if takes_over { without_projection(node)? } else { None };
    let node_before = node;
    let node = apart.as_ref().unwrap_or(node);
    let described = node.gather_filters_for_pushdown(phase, filters.clone(), config)?;
    let (own, by_name) = (described.self_filters(), described.parent_filters());
    let children = node.children();
    if own.len() != children.len() || by_name.len() != children.len() {
        return internal_err!("{} describes filters of other children than it has", node.name());
    }

    let mut new_children = Vec::with_capacity(children.len());
    let mut answers = vec![Vec::with_capacity(children.len()); filters.len()];
    let mut own_answers = Vec::with_capacity(children.len());
    for (index, ((child, own), by_name)) in children.into_iter().zip(own).zip(by_name).enumerate() {
        let from_above = in_child(node, index)?;
        let from_above = filters.iter().enumerate().map(|(at, filter)| match &from_above {
            InChild::Nothing => Ok(None),
            InChild::Columns(columns) => columns.translate(filter),
            InChild::Unknown => {
                Ok(by_name.get(at).and_then(|said| in_child::unambiguous(said, filter, node, child)))
            }
        });
        let from_above = from_above.collect::<Result<Vec<_>>>()?;
        let sent: Vec<Option<_>> = own
            .iter()
            .cloned()
            .map(Some)
            .chain(from_above)
            .map(|filter| filter.filter(|filter| !is_volatile(filter)))
            .collect();

        let pushed = push(child, sent.iter().flatten().cloned().collect(), phase, config)?;
        let mut answered = pushed.filters.into_iter();
        let mut of_all = Vec::with_capacity(sent.len());
        for filter in &sent {
            of_all.push(match filter {
                Some(_) => match answered.next() {
                    Some(answer) => answer,
                    None => return internal_err!("{} does not answer for every filter", child.name()),
                },
                None => PushedDown::No,
            });
        }
        let of_parents = of_all.split_off(own.len());
        answers.iter_mut().zip(of_parents).for_each(|(answers, answer)| answers.push(answer));
        let own = of_all.into_iter().zip(own).map(|(answer, filter)| answer.wrap_expression(filter));
        own_answers.push(own.collect::<Vec<PushedDownPredicate>>());
        new_children.push(pushed.updated_node.unwrap_or_else(|| Arc::clone(child)));
    }

    let node = replace_children_if_necessary(Arc::clone(node), new_children)?;
    let parent_filters = filters
        .into_iter()
        .zip(answers)
        .map(|(filter, child_results)| ChildFilterPushdownResult { filter, child_results })
        .collect();
    let result = ChildPushdownResult { parent_filters, self_filters: own_answers };
    let mut propagation = node.handle_child_pushdown_result(phase, result, config)?;
    if propagation.updated_node.is_none() && !Arc::ptr_eq(&node, node_before) {
        propagation.updated_node = Some(node);
    }
    Ok(propagation)
}
