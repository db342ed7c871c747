//! DataFusion's rules, put into lists that say the whole order.

use std::sync::Arc;

use datafusion::optimizer::{Optimizer, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;

/// DataFusion's rules in DataFusion's order, of which a list of ours names each in turn. A version of DataFusion that adds
/// a rule, removes one or moves one fails at the first plan, not with wrong answers.
pub(crate) struct DataFusionRules<R: ?Sized> {
    rules: std::vec::IntoIter<Arc<R>>,
    name_of: fn(&R) -> &str,
}

pub(crate) type LogicalRule = dyn OptimizerRule + Send + Sync;
pub(crate) type PhysicalRule = dyn PhysicalOptimizerRule + Send + Sync;

impl DataFusionRules<LogicalRule> {
    pub(crate) fn logical() -> Self {
        Self { rules: Optimizer::new().rules.into_iter(), name_of: |rule| rule.name() }
    }
}

impl DataFusionRules<PhysicalRule> {
    pub(crate) fn physical() -> Self {
        Self { rules: PhysicalOptimizer::new().rules.into_iter(), name_of: |rule| rule.name() }
    }
}

impl<R: ?Sized> DataFusionRules<R> {
    /// The next rule, which has to be the one of this name.
    pub(crate) fn next(&mut self, name: &str) -> Arc<R> {
        let next = self.rules.next();
        let found = next.as_deref().map_or("none", self.name_of);
        assert_eq!(found, name, "DataFusion's rules are not those that Nandina's were put between");
        let Some(next) = next else { unreachable!("a rule has been found") };
        next
    }

    /// Ends the list, which has to have named all rules.
    pub(crate) fn end(mut self) {
        let left = self.rules.next();
        let found = left.as_deref().map_or("none", self.name_of);
        assert_eq!(found, "none", "DataFusion has a rule that Nandina's list does not name");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "are not those that Nandina's were put between")]
    fn a_rule_that_is_not_where_it_was_is_noticed() {
        let mut theirs = DataFusionRules::physical();
        theirs.next("OutputRequirements");
        theirs.next("join_selection");
    }

    #[test]
    #[should_panic(expected = "does not name")]
    fn a_rule_that_is_left_over_is_noticed() {
        DataFusionRules::logical().end();
    }
}
