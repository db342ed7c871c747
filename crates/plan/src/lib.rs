//! Which way is cheapest?
//!
//! Rules that say what a plan means, the logical ones that plan it better, and the physical ones that put Nandina's
//! operators into DataFusion's plans, and change what DataFusion's do. [`session_state`] puts all of them together.

mod all_or_nothing;
mod balance_conditions;
mod bound_projections;
mod choose_build_side;
mod distincts;
mod fences;
mod filter_first_rows;
mod filter_parquet_scans;
mod fit_batches;
mod forget_keys;
mod group_columns;
mod interval_text;
mod keep_columns_of_filters;
mod keep_filters_of_rows;
mod keep_leaf_projections;
mod keep_memberships;
mod keep_sum_types;
mod keys_of_sets;
mod limit_groups;
mod meanings;
mod mixed_columns;
mod name_branches;
mod name_files;
mod name_keys;
mod narrow_decimals;
mod null_safe_keys;
mod outer_types;
mod push_filters;
mod replace_exchange;
mod replace_hash_aggregate;
mod replace_hash_join;
mod replace_merge_join;
mod replace_nested_loop_join;
mod replace_recursion;
mod replace_sort;
mod replace_window;
mod session_state;
mod settle_schemas;
mod sort_again;
mod spools;
mod stop_planning;
mod sub_queries;
mod typed_operators;

use std::sync::Arc;

use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;

pub use balance_conditions::BalanceConditions;
pub use bound_projections::BoundProjections;
pub use distincts::DistinctsToGroupingSets;
pub use fences::Fences;
pub use filter_first_rows::FilterFirstRows;
pub use filter_parquet_scans::FilterParquetScans;
pub use fit_batches::fit_batches;
use forget_keys::USING_KEYS;
pub use forget_keys::{ForgetKeys, KeylessRelations};
pub use group_columns::GroupColumns;
pub use interval_text::parse_interval;
pub use keep_columns_of_filters::KeepColumnsOfFilters;
pub use keep_filters_of_rows::KeepFiltersOfRows;
pub use keep_leaf_projections::KeepLeafProjections;
pub use keep_memberships::KeepMemberships;
pub use keep_sum_types::KeepSumTypes;
pub use keys_of_sets::KeysOfSets;
pub use meanings::{REPLACED_COLUMN, operator_planner, replaced_column};
pub use mixed_columns::MixedColumns;
pub use name_branches::NameBranches;
pub use name_files::NameFiles;
pub use name_keys::NameKeys;
pub use narrow_decimals::NarrowDecimals;
pub use null_safe_keys::{KeepNullSafeKeys, NullSafeKeysToConditions};
pub use outer_types::OuterTypes;
pub use push_filters::PushFilters;
pub use replace_exchange::ReplaceExchange;
pub use replace_hash_aggregate::ReplaceHashAggregate;
pub use replace_hash_join::ReplaceHashJoin;
pub use replace_merge_join::ReplaceMergeJoin;
pub use replace_nested_loop_join::{ReplaceMistakenLoopJoin, ReplaceNestedLoopJoin};
pub use replace_recursion::ReplaceRecursion;
pub use replace_sort::ReplaceSort;
pub use replace_window::ReplaceWindow;
pub use session_state::session_state;
pub use settle_schemas::SettleSchemas;
pub use sort_again::SortAgain;
pub use spools::{Planner, ShareSpools, spool_volatile_expressions};
pub use stop_planning::stop_planning_when;
pub use sub_queries::{CorrelatedNames, ExistsOfAggregates, ThreeValuedIn};
pub use typed_operators::TypedOperators;

/// Nandina's rules about what a plan means, around DataFusion's, which settle types: what operators are applied to is known
/// only behind them.
pub fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>> = vec![
        Arc::new(NameKeys),
        Arc::new(KeysOfSets),
        Arc::new(meanings::meanings()),
        Arc::new(MixedColumns),
        Arc::new(CorrelatedNames),
        Arc::new(ExistsOfAggregates),
        Arc::new(ThreeValuedIn),
    ];
    rules.append(&mut Analyzer::new().rules);
    rules.push(Arc::new(TypedOperators));
    rules.push(Arc::new(OuterTypes::behind(rules.clone())));
    rules
}

/// The rules among [`analyzer_rules`] that the types of a plan's columns follow from.
pub fn type_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    vec![
        Arc::new(NameKeys),
        Arc::new(KeysOfSets),
        Arc::new(meanings::meanings()),
        Arc::new(TypeCoercion::new()),
    ]
}

/// DataFusion's logical rules with Nandina's among them.
///
/// [`DistinctsToGroupingSets`] stands behind the rule that removes what is not needed, as it cannot from grouping sets, and
/// right before DataFusion's rule for a single distinct argument, which is moved there. [`ForgetKeys`], [`NameBranches`],
/// [`NullSafeKeysToConditions`], [`KeepNullSafeKeys`], [`KeepFiltersOfRows`], [`KeepLeafProjections`],
/// [`KeepMemberships`], [`KeepSumTypes`] and [`SettleSchemas`] keep some of DataFusion's rules from mistakes.
/// Subqueries have been joined and filters pushed down by then; all rules go over the plan once more.
pub fn optimizer_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let mut rules = Optimizer::new().rules;
    let position = |rules: &[Arc<dyn OptimizerRule + Send + Sync>], name: &str| {
        rules.iter().position(|rule| rule.name() == name)
    };
    let single = position(&rules, "single_distinct_aggregation_to_group_by");
    let single = single.map(|at| Arc::new(KeepSumTypes(rules.remove(at))) as _);
    let pruned = position(&rules, "optimize_projections").map_or(rules.len(), |at| at + 1);
    rules.splice(pruned..pruned, std::iter::once(Arc::new(DistinctsToGroupingSets) as _).chain(single));
    if let Some(extracted) = position(&rules, "push_down_leaf_projections") {
        rules.insert(extracted + 1, Arc::new(SettleSchemas));
    }
    if let Some(reordered) = position(&rules, "eliminate_cross_join") {
        rules.insert(reordered, Arc::new(NullSafeKeysToConditions));
    }
    rules.insert(0, Arc::new(NameBranches));
    // Once more at the end, for the keys that have become conditions.
    rules.push(Arc::new(ExtractEquijoinPredicate::new()));
    for rule in &mut rules {
        match rule.name() {
            "extract_equijoin_predicate" => *rule = Arc::new(KeepNullSafeKeys(Arc::clone(rule))),
            "push_down_leaf_projections" => *rule = Arc::new(KeepLeafProjections(Arc::clone(rule))),
            "push_down_filter" => *rule = Arc::new(KeepFiltersOfRows(Arc::clone(rule))),
            "simplify_expressions" => *rule = Arc::new(KeepMemberships(Arc::clone(rule))),
            name if USING_KEYS.contains(&name) => *rule = Arc::new(ForgetKeys(Arc::clone(rule))),
            _ => {}
        }
    }
    rules
}

/// DataFusion's physical rules with Nandina's among them.
///
/// [`ReplaceHashJoin`] stands right behind DataFusion's choice of build sides, which it goes over, and before distributions and orders are
/// enforced: its operator needs neither the exchanges nor gives the order that DataFusion's join does, and
/// both are decided there. [`ReplaceHashAggregate`] stands right before that for the same reason, behind the rules
/// that push limits and filters into DataFusion's aggregations. [`ReplaceMergeJoin`] comes before the choice of build
/// sides, which it leaves to be made.
///
/// [`ReplaceNestedLoopJoin`], [`ReplaceExchange`], [`ReplaceSort`] and [`ReplaceWindow`] stand behind all rules that know
/// DataFusion's nodes: those make joins parallel, move what their filters compute from one side alone below them, add or
/// remove exchanges, choose the order that windows need, and give sorts their limits. They stand before the last pushdown
/// of filters, in which sorts with a limit tell scans what they need not read.
/// [`Fences`] stand around the rules that choose sort orders, also those of ordered aggregates.
/// [`ReplaceMistakenLoopJoin`] does so with some joins before orders are chosen.
/// [`FilterFirstRows`] comes right before them: it looks for the windows, sorts and exchanges of DataFusion's.
/// [`ReplaceRecursion`] is the last of them: DataFusion's rules know neither its node nor the scan that it puts in place of
/// DataFusion's.
///
/// [`SortAgain`] comes right before the check that orders are as operators need them.
///
/// [`PushFilters`] stands where DataFusion's rule stood, in both places. [`KeepColumnsOfFilters`] keeps the rule that moves
/// projections from a mistake.
///
/// [`NarrowDecimals`] comes before aggregations are replaced, whose arguments it changes. [`GroupColumns`] and
/// [`FilterParquetScans`] come behind all of them: after these no plan says any more how many rows a filter leaves, nor
/// takes a scan another projection. [`BalanceConditions`] goes over the
/// filters that are left, [`BoundProjections`] over the projections, and [`NameFiles`] over the scans as they are then. [`ShareSpools`] is the last: equal
/// parts of a plan have been through all rules then, and those that read know the one that computes. Whatever changes
/// the plan after that, as [`fit_batches`] does, has to keep them together.
pub fn physical_optimizer_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules = PhysicalOptimizer::new().rules;
    // `ReplaceHashAggregate` has done what it does, before there are aggregations that it does not know.
    rules.retain(|rule| rule.name() != "LimitAggregation");
    let chosen = rules.iter().position(|rule| rule.name() == "join_selection").map_or(0, |at| at + 1);
    rules.insert(chosen, Arc::new(ReplaceHashJoin));
    let enforced = rules.iter().position(|rule| rule.name() == "EnsureRequirements").unwrap_or(rules.len());
    let chosen_orders =
        rules.iter().position(|rule| rule.name() == "OptimizeAggregateOrder").unwrap_or(enforced);
    rules.insert((chosen_orders + 1).min(rules.len()), Arc::new(Fences::Down));
    rules.insert(enforced, Arc::new(Fences::Up));
    rules.insert(enforced, Arc::new(ReplaceMistakenLoopJoin));
    rules.insert(enforced, Arc::new(ReplaceHashAggregate));
    rules.insert(enforced, Arc::new(NarrowDecimals));
    rules.insert(chosen.saturating_sub(1), Arc::new(ReplaceMergeJoin));
    let checked = rules.iter().position(|rule| rule.name() == "SanityCheckPlan").unwrap_or(rules.len());
    rules.insert(checked, Arc::new(SortAgain));
    let planned = rules.iter().position(|rule| rule.name() == "EnsureCooperative").unwrap_or(rules.len());
    rules.insert(planned, Arc::new(ReplaceRecursion));
    rules.insert(planned, Arc::new(ReplaceNestedLoopJoin));
    rules.insert(planned, Arc::new(ReplaceExchange));
    rules.insert(planned, Arc::new(ReplaceWindow));
    rules.insert(planned, Arc::new(ReplaceSort));
    rules.insert(planned, Arc::new(FilterFirstRows));
    let pushed = rules.iter().rposition(|rule| rule.name().starts_with("FilterPushdown"));
    let pushed = pushed.map_or(rules.len(), |at| at + 1);
    rules.insert(pushed, Arc::new(FilterParquetScans));
    rules.insert(pushed, Arc::new(GroupColumns));
    rules.push(Arc::new(BalanceConditions));
    rules.push(Arc::new(BoundProjections));
    rules.push(Arc::new(NameFiles));
    rules.push(Arc::new(ShareSpools));
    for rule in &mut rules {
        match rule.name() {
            "ProjectionPushdown" => *rule = Arc::new(KeepColumnsOfFilters(Arc::clone(rule))),
            "FilterPushdown" => *rule = Arc::new(PushFilters::of_plan()),
            "FilterPushdown(Post)" => *rule = Arc::new(PushFilters::of_operators()),
            _ => {}
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_are_wrapped_or_stood_beside_are_there() {
        let logical: Vec<String> = optimizer_rules().iter().map(|rule| rule.name().to_owned()).collect();
        for name in USING_KEYS {
            assert!(logical.iter().any(|rule| rule == name), "{name} is not among {logical:?}");
        }
        let physical: Vec<String> =
            physical_optimizer_rules().iter().map(|rule| rule.name().to_owned()).collect();
        let at = |name: &str| physical.iter().position(|other| other == name).unwrap();
        assert_eq!(at("sort_again") + 1, at("SanityCheckPlan"), "{physical:?}");
    }

    #[test]
    fn distincts_are_rewritten_between_filters_and_projections() {
        let names: Vec<String> = optimizer_rules().iter().map(|rule| rule.name().to_owned()).collect();
        let at = |name: &str| names.iter().position(|other| other == name).unwrap();
        assert_eq!(
            at("distincts_to_grouping_sets") + 1,
            at("single_distinct_aggregation_to_group_by"),
            "{names:?}"
        );
        assert!(at("push_down_filter") < at("distincts_to_grouping_sets"));
        assert!(at("optimize_projections") < at("distincts_to_grouping_sets"));
    }

    #[test]
    fn joins_are_replaced_between_selection_and_enforcement() {
        let names: Vec<String> =
            physical_optimizer_rules().iter().map(|rule| rule.name().to_owned()).collect();
        let at = |name: &str| names.iter().position(|other| other == name).unwrap();
        assert_eq!(at("replace_hash_join"), at("join_selection") + 1);
        assert!(at("replace_hash_join") < at("EnsureRequirements"), "{names:?}");
        assert_eq!(at("replace_merge_join") + 1, at("join_selection"));
    }

    #[test]
    fn nested_loop_joins_and_sorts_are_replaced_when_all_rules_have_seen_them() {
        let names: Vec<String> =
            physical_optimizer_rules().iter().map(|rule| rule.name().to_owned()).collect();
        for replacing in ["replace_nested_loop_join", "replace_sort", "replace_recursion"] {
            let replaced = names.iter().position(|name| name == replacing).unwrap();
            for earlier in ["EnsureRequirements", "ProjectionPushdown", "LimitPushdown", "PushdownSort"] {
                assert!(names.iter().rposition(|name| name == earlier).unwrap() < replaced, "{names:?}");
            }
            assert!(replaced < names.iter().rposition(|name| name == "push_filters_of_operators").unwrap());
            assert!(replaced < names.iter().position(|name| name == "SanityCheckPlan").unwrap());
        }
    }

    #[test]
    fn no_rule_moves_filters_by_names() {
        let names: Vec<String> =
            physical_optimizer_rules().iter().map(|rule| rule.name().to_owned()).collect();
        assert!(names.iter().all(|name| !name.starts_with("FilterPushdown")), "{names:?}");
        assert_eq!(names.iter().filter(|name| name.starts_with("push_filters")).count(), 2, "{names:?}");
    }

    #[test]
    fn aggregations_are_replaced_between_limits_and_enforcement() {
        let names: Vec<String> =
            physical_optimizer_rules().iter().map(|rule| rule.name().to_owned()).collect();
        let at = |name: &str| names.iter().position(|other| other == name).unwrap();
        assert_eq!(at("replace_hash_aggregate") + 1, at("replace_mistaken_loop_join"));
        assert_eq!(at("replace_mistaken_loop_join") + 1, at("fences_up"));
        assert_eq!(at("fences_up") + 1, at("EnsureRequirements"));
        assert_eq!(at("OptimizeAggregateOrder") + 1, at("fences_down"));
        assert!(at("LimitedDistinctAggregation") < at("replace_hash_aggregate"), "{names:?}");
    }
}
