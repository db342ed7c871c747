//! Logical rules that would change nothing are not asked again.
//!
//! DataFusion's optimizer goes over a plan with all rules until none of them changes it, so that the last time is for nothing.
//! A rule that has left a plan as it was would do so again, until another one changes the plan.
//!
//! Whether a rule has changed a plan is what it returns, as for DataFusion's optimizer. After a change that a rule does not report,
//! rules before it are not asked again. The plan is right nevertheless, as every rule has been asked once, but perhaps less simple.
//! Only sub-queries must not be left: as `decorrelate_predicate_subquery` does not report those that it finds within others, each
//! node with a sub-query that it is asked about counts as a change.

use std::cell::RefCell;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use crate::nodes::has_sub_queries;

thread_local! {
    static CHANGES: RefCell<Option<Changes>> = const { RefCell::new(None) };
}

/// What has become of the one plan that this thread optimizes.
#[derive(Default)]
struct Changes {
    /// How often the plan has been changed.
    version: usize,
    /// The rule that goes over the plan, and the version that it began with.
    current: Option<(usize, usize)>,
    /// The version that each rule has left as it was.
    settled: Vec<Option<usize>>,
}

impl Changes {
    /// Whether the rule at this place may change the plan, at one of whose nodes it is.
    fn may_change(&mut self, place: usize) -> bool {
        if self.current.is_none_or(|(current, _)| current != place) {
            if let Some((last, _)) = self.current.take_if(|(_, begun)| *begun == self.version) {
                self.settle(last);
            }
            self.current = Some((place, self.version));
        }
        self.settled.get(place).is_none_or(|settled| *settled != Some(self.version))
    }

    fn settle(&mut self, place: usize) {
        if self.settled.len() <= place {
            self.settled.resize(place + 1, None);
        }
        self.settled[place] = Some(self.version);
    }
}

/// Applies the logical rules of a session to a plan, as [`SessionState::optimize`] does.
pub fn optimize(state: &SessionState, plan: &LogicalPlan) -> Result<LogicalPlan> {
    let around = CHANGES.replace(Some(Changes::default()));
    let optimized = state.optimize(plan);
    CHANGES.set(around);
    optimized
}

/// A rule that is not asked about plans that it has left as they were, where [`optimize`] calls it.
#[derive(Debug)]
struct SettledRule {
    rule: Arc<dyn OptimizerRule + Send + Sync>,
    /// Its place among all rules, which tells it from others.
    place: usize,
    tells_all: bool,
}

/// Changes sub-queries within sub-queries without saying so.
const SILENT: &str = "decorrelate_predicate_subquery";

/// `rules`, all those of a session, each of which is asked only where it may change something.
pub fn settled_rules(
    rules: Vec<Arc<dyn OptimizerRule + Send + Sync>>,
) -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let settled = |(place, rule): (usize, Arc<dyn OptimizerRule + Send + Sync>)| {
        let tells_all = rule.name() != SILENT;
        Arc::new(SettledRule { rule, place, tells_all }) as _
    };
    rules.into_iter().enumerate().map(settled).collect()
}

impl OptimizerRule for SettledRule {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let may_change = CHANGES
            .with_borrow_mut(|changes| changes.as_mut().is_none_or(|changes| changes.may_change(self.place)));
        if !may_change {
            return Ok(Transformed::no(plan));
        }
        let may_be_silent = !self.tells_all && has_sub_queries(&plan)?;
        let rewritten = self.rule.rewrite(plan, config)?;
        if rewritten.transformed || may_be_silent {
            CHANGES.with_borrow_mut(|changes| {
                if let Some(changes) = changes {
                    changes.version += 1
                }
            });
        }
        Ok(rewritten)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use datafusion::execution::SessionStateBuilder;
    use datafusion::logical_expr::{LogicalPlanBuilder, lit};
    use datafusion::optimizer::OptimizerContext;

    use super::*;

    /// Takes one filter away each time that it goes over a plan, and counts the nodes that it is asked about.
    #[derive(Debug, Default)]
    struct OneFilterLess {
        stays: bool,
        asked: AtomicUsize,
    }

    impl OptimizerRule for OneFilterLess {
        fn name(&self) -> &'static str {
            "one_filter_less"
        }

        fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            Ok(match plan {
                LogicalPlan::Filter(filter) if !self.stays => Transformed::yes(filter.input.as_ref().clone()),
                plan => Transformed::no(plan),
            })
        }
    }

    #[test]
    fn a_rule_is_asked_again_only_if_the_plan_has_changed_since() {
        let filtered = LogicalPlanBuilder::empty(true).filter(lit(true)).unwrap().filter(lit(false)).unwrap();
        let plan = filtered.build().unwrap();
        let rule = |stays| Arc::new(OneFilterLess { stays, ..OneFilterLess::default() });
        let (changes, stays, also_stays) = (rule(false), rule(true), rule(true));
        let rules: [Arc<dyn OptimizerRule + Send + Sync>; 3] =
            [Arc::clone(&stays) as _, Arc::clone(&changes) as _, Arc::clone(&also_stays) as _];
        let builder = SessionStateBuilder::new_with_default_features();
        let state = builder.with_optimizer_rules(settled_rules(rules.to_vec())).build();
        let asked = || [&stays, &changes, &also_stays].map(|rule| rule.asked.swap(0, Ordering::Relaxed));

        let optimized = optimize(&state, &plan).unwrap();
        assert!(matches!(optimized, LogicalPlan::EmptyRelation(_)));
        // The third pass is over a plan that the second one changed: the rule behind the change has seen it.
        assert_eq!(asked(), [3, 3, 2]);
        optimize(&state, &plan).unwrap();
        assert_eq!(asked(), [3, 3, 2], "another plan begins anew");

        // Elsewhere rules do not know whether it is the same plan.
        let context = OptimizerContext::new();
        for rule in state.optimizers() {
            for _ in 0..2 {
                rule.rewrite(optimized.clone(), &context).unwrap();
            }
        }
        assert_eq!(asked(), [2, 2, 2]);
    }
}
