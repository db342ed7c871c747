//! Planning whose waiter is gone ends before the next rule.
//!
//! Rules compute for as long as they like without a point at which a task could be cancelled: a statement of thousands of
//! terms for seconds, one whose common table expressions square for ever. DataFusion's optimizers do not ask between
//! rules whether to go on, but they end when a rule fails; so each is wrapped in one that fails once its thread has
//! been told to stop.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::{PhysicalOptimizerContext, PhysicalOptimizerRule};
use datafusion::physical_plan::ExecutionPlan;

thread_local! {
    static STOP: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// From now on, rules fail on this thread once `stop` is set.
pub fn stop_planning_when(stop: Arc<AtomicBool>) {
    STOP.set(Some(stop));
}

/// Fails if the thread has been told to stop.
fn go_on() -> Result<()> {
    let is_stopped = STOP.with_borrow(|stop| stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)));
    if is_stopped { exec_err!("the statement was cancelled while it was planned") } else { Ok(()) }
}

/// A rule that fails once the plan's waiter is gone; otherwise the wrapped one.
#[derive(Debug)]
struct Stoppable<R: ?Sized>(Arc<R>);

/// `rules`, which end planning once it is to stop.
pub fn stoppable_analyzer_rules(
    rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>>,
) -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    rules.into_iter().map(|rule| Arc::new(Stoppable(rule)) as _).collect()
}

/// `rules`, which end planning once it is to stop.
pub fn stoppable_optimizer_rules(
    rules: Vec<Arc<dyn OptimizerRule + Send + Sync>>,
) -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    rules.into_iter().map(|rule| Arc::new(Stoppable(rule)) as _).collect()
}

/// `rules`, which end planning once it is to stop.
pub fn stoppable_physical_rules(
    rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>,
) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    rules.into_iter().map(|rule| Arc::new(Stoppable(rule)) as _).collect()
}

impl AnalyzerRule for Stoppable<dyn AnalyzerRule + Send + Sync> {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        go_on()?;
        self.0.analyze(plan, config)
    }

    fn name(&self) -> &str {
        self.0.name()
    }
}

impl OptimizerRule for Stoppable<dyn OptimizerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        go_on()?;
        self.0.rewrite(plan, config)
    }
}

impl PhysicalOptimizerRule for Stoppable<dyn PhysicalOptimizerRule + Send + Sync> {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        go_on()?;
        self.0.optimize(plan, config)
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        go_on()?;
        self.0.optimize_with_context(plan, context)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{analyzer_rules, optimizer_rules};
    use datafusion::logical_expr::LogicalPlanBuilder;
    use datafusion::optimizer::OptimizerContext;

    #[test]
    fn rules_fail_once_their_thread_is_to_stop() {
        let plan = || LogicalPlanBuilder::empty(true).build().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (analyzer, optimizer) =
            (stoppable_analyzer_rules(analyzer_rules()), stoppable_optimizer_rules(optimizer_rules()));
        let run = || {
            let context = OptimizerContext::new();
            let analyzed = analyzer.iter().map(|rule| rule.analyze(plan(), &context.options()).is_ok());
            let optimized = optimizer.iter().filter(|rule| rule.apply_order().is_some());
            analyzed
                .chain(optimized.map(|rule| rule.rewrite(plan(), &context).is_ok()))
                .collect::<Vec<bool>>()
        };
        stop_planning_when(Arc::clone(&stop));
        assert!(run().iter().all(|&is_ok| is_ok));
        stop.store(true, Ordering::Relaxed);
        assert!(run().iter().all(|&is_ok| !is_ok));
    }
}
