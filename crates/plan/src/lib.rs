//! Which way is cheapest?
//!
//! Rules that say what a plan means, the logical ones that plan it better, and the physical ones that put Nandina's
//! operators into DataFusion's plans, and change what DataFusion's do. [`session_state`] puts all of them together.

#![allow(
    clippy::indexing_slicing,
    reason = "plans number columns and inputs: a wrong one must not change an answer"
)]

mod all_or_nothing;
mod balance_conditions;
mod bound_projections;
mod changed_rows;
mod choose_build_side;
mod computed_limits;
mod count_copies;
mod distincts;
mod fences;
mod filter_first_rows;
mod filter_parquet_scans;
mod fit_batches;
mod forget_keys;
mod group_columns;
mod join_cross_joins;
mod keep_columns_of_filters;
mod keep_filters_of_rows;
mod keep_leaf_projections;
mod keep_memberships;
mod keep_sum_types;
mod keys_of_sets;
mod late;
mod limit_groups;
mod meanings;
mod metered;
mod mixed_columns;
mod name_branches;
mod name_files;
mod name_keys;
mod narrow_decimals;
mod nodes;
mod null_safe_keys;
mod orders_below;
mod orders_without_repeats;
mod outer_types;
mod push_filters;
mod relations;
mod replace;
mod rule_list;
mod session_state;
mod settle_schemas;
mod settled_rules;
mod sort_again;
mod spools;
mod stop_planning;
mod sub_queries;
mod typed_operators;
mod unnest;

use std::sync::Arc;

use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::{Analyzer, AnalyzerRule};

pub use balance_conditions::BalanceConditions;
pub use bound_projections::BoundProjections;
pub use changed_rows::ChangedRows;
pub use computed_limits::{ComputedLimits, EndComputedLimits, WITH_TIES, limit_markers};
pub use count_copies::CountCopies;
pub use distincts::DistinctsToGroupingSets;
pub use fences::Fences;
pub use filter_first_rows::FilterFirstRows;
pub use filter_parquet_scans::FilterParquetScans;
pub use fit_batches::fit_batches;
pub use forget_keys::{ForgetKeys, KeylessRelations};
pub use group_columns::GroupColumns;
pub use join_cross_joins::JoinCrossJoins;
pub use keep_columns_of_filters::KeepColumnsOfFilters;
pub use keep_filters_of_rows::KeepFiltersOfRows;
pub use keep_leaf_projections::KeepLeafProjections;
pub use keep_memberships::KeepMemberships;
pub use keep_sum_types::KeepSumTypes;
pub use keys_of_sets::KeysOfSets;
pub use late::{JoinAlgorithm, SortAlgorithm};
pub use limit_groups::LimitGroups;
pub use meanings::{Meanings, REPLACED_COLUMN, operator_planner, replaced_column};
pub use metered::metered;
pub use mixed_columns::MixedColumns;
pub use name_branches::NameBranches;
pub use name_files::NameFiles;
pub use name_keys::NameKeys;
pub use narrow_decimals::NarrowDecimals;
use nodes::OfSubQueries;
pub use null_safe_keys::KeepNullSafeKeys;
pub use orders_below::OrdersBelow;
pub use orders_without_repeats::OrdersWithoutRepeats;
pub use outer_types::OuterTypes;
pub use push_filters::PushFilters;
pub use relations::Relations;
pub use replace::ReplaceOperators;
use rule_list::{DataFusionRules, LogicalRule, PhysicalRule};
pub use session_state::session_state;
pub use settle_schemas::SettleSchemas;
pub use settled_rules::optimize;
pub use sort_again::SortAgain;
pub use spools::{Planner, ShareSpools, spool_volatile_expressions};
pub use stop_planning::stop_planning_when;
pub use sub_queries::{CorrelatedNames, ExistsOfAggregates, ThreeValuedIn};
pub use typed_operators::TypedOperators;
pub use unnest::UnnestSubQueries;

/// Nandina's rules about what a plan means, around DataFusion's, which resolve types: the types of operands are known
/// only behind them.
pub fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>> = vec![
        Arc::new(ComputedLimits),
        Arc::new(CountCopies),
        Arc::new(NameKeys),
        Arc::new(KeysOfSets),
        Arc::new(OrdersBelow),
        Arc::new(Meanings::default()),
        Arc::new(MixedColumns),
        of_sub_queries(CorrelatedNames),
        of_sub_queries(ExistsOfAggregates),
        of_sub_queries(ThreeValuedIn),
    ];
    rules.append(&mut Analyzer::new().rules);
    rules.push(Arc::new(TypedOperators));
    rules.push(of_sub_queries(OuterTypes::behind(rules.clone())));
    rules.push(of_sub_queries(UnnestSubQueries));
    rules
}

fn of_sub_queries(rule: impl AnalyzerRule + Send + Sync + 'static) -> Arc<dyn AnalyzerRule + Send + Sync> {
    let rule: Arc<dyn AnalyzerRule + Send + Sync> = Arc::new(rule);
    Arc::new(OfSubQueries(rule))
}

/// The rules among [`analyzer_rules`] that the types of a plan's columns follow from.
pub fn type_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    vec![
        Arc::new(NameKeys),
        Arc::new(KeysOfSets),
        Arc::new(Meanings::default()),
        Arc::new(TypeCoercion::new()),
    ]
}

/// DataFusion's logical rules with Nandina's among them.
///
/// [`DistinctsToGroupingSets`] stands behind the rule that removes unneeded columns, as it cannot from grouping sets,
/// and right before DataFusion's rule for a single distinct argument, which is moved there. [`ForgetKeys`],
/// [`NameBranches`], [`KeepNullSafeKeys`], [`KeepFiltersOfRows`], [`KeepLeafProjections`], [`KeepMemberships`],
/// [`KeepSumTypes`] and [`SettleSchemas`] keep some of DataFusion's rules from mistakes, and [`JoinCrossJoins`] stands in the
/// place of one. Subqueries have been joined and filters pushed down by then; all rules go over the plan once more.
pub fn optimizer_rules() -> Vec<Arc<LogicalRule>> {
    let mut theirs = DataFusionRules::logical();
    let mut rules: Vec<Arc<LogicalRule>> = vec![
        Arc::new(NameBranches),
        Arc::new(OfSubQueries(theirs.next("rewrite_set_comparison"))),
        theirs.next("optimize_unions"),
        theirs.next("unions_to_filter"),
        Arc::new(KeepMemberships(theirs.next("simplify_expressions"))),
        Arc::new(OrdersWithoutRepeats),
        Arc::new(ForgetKeys(theirs.next("replace_distinct_aggregate"))),
        Arc::new(ForgetKeys(theirs.next("eliminate_join"))),
        theirs.next("decorrelate_predicate_subquery"),
        theirs.next("scalar_subquery_to_join"),
        theirs.next("decorrelate_lateral_join"),
        Arc::new(KeepNullSafeKeys(theirs.next("extract_equijoin_predicate"))),
        Arc::new(ForgetKeys(theirs.next("eliminate_duplicated_expr"))),
        theirs.next("eliminate_filter"),
    ];
    theirs.next("eliminate_cross_join");
    rules.extend([
        Arc::new(JoinCrossJoins) as Arc<LogicalRule>,
        theirs.next("eliminate_limit"),
        theirs.next("propagate_empty_relation"),
        theirs.next("filter_null_join_keys"),
        theirs.next("eliminate_outer_join"),
        theirs.next("push_down_limit"),
        Arc::new(KeepFiltersOfRows(theirs.next("push_down_filter"))),
    ]);
    let single_distincts = theirs.next("single_distinct_aggregation_to_group_by");
    rules.extend([
        theirs.next("eliminate_group_by_constant"),
        theirs.next("common_sub_expression_eliminate"),
        theirs.next("extract_leaf_expressions"),
        Arc::new(KeepLeafProjections(theirs.next("push_down_leaf_projections"))),
        Arc::new(SettleSchemas),
        Arc::new(ForgetKeys(theirs.next("optimize_projections"))),
        Arc::new(DistinctsToGroupingSets),
        Arc::new(KeepSumTypes(single_distincts)),
        // Once more at the end, for the conditions that have been pushed into joins.
        Arc::new(KeepNullSafeKeys(Arc::new(ExtractEquijoinPredicate::new()))),
    ]);
    theirs.end();
    rules
}

/// DataFusion's physical rules with Nandina's among them.
///
/// Joins by hash are replaced right behind DataFusion's choice of build sides, which the rule goes over, and before
/// distributions and orders are enforced: our operator needs neither the exchanges nor gives the order that DataFusion's
/// join does, and both are decided there. Aggregations are replaced right before that for the same reason, behind the
/// rules that push limits and filters into DataFusion's. Merge joins come before the choice of build sides, which is left
/// to be made. [`NarrowDecimals`] changes the arguments of aggregations, so it comes before they are replaced.
///
/// [`EndComputedLimits`] comes before exchanges are added, which would stand between windows and what looks at their numbers.
///
/// [`Fences`] stand around the rules that choose sort orders, also those of ordered aggregates.
///
/// All other operators are replaced behind the rules that know DataFusion's nodes: those make joins parallel, move what
/// their filters compute from one side alone below them, add or remove exchanges, choose the order that windows need, and
/// give sorts their limits. They stand before the last pushdown of filters, in which sorts with a limit tell scans what
/// they need not read. [`FilterFirstRows`] comes right before them: it looks for the windows, sorts and exchanges of
/// DataFusion's. Recursions are the last of them: DataFusion's rules know neither our node nor the scan that it puts in
/// place of DataFusion's.
///
/// [`PushFilters`] stands where DataFusion's rule stood, in both places. [`KeepColumnsOfFilters`] keeps the rule that moves
/// projections from a mistake. [`GroupColumns`] and [`FilterParquetScans`] come behind the pushdown: after these no plan
/// says any more how many rows a filter leaves, nor takes a scan another projection. [`SortAgain`] comes right before the
/// check that orders are as operators need them.
///
/// [`BalanceConditions`] goes over the filters that are left, [`BoundProjections`] over the projections, and [`NameFiles`]
/// over the scans as they are then. [`ShareSpools`] is the last: equal parts of a plan have been through all rules then,
/// and those that read know the one that computes. Whatever changes the plan after that, as [`fit_batches`] does, has to
/// keep them together.
pub fn physical_optimizer_rules() -> Vec<Arc<PhysicalRule>> {
    let mut theirs = DataFusionRules::physical();
    let mut rules: Vec<Arc<PhysicalRule>> = vec![
        theirs.next("OutputRequirements"),
        theirs.next("aggregate_statistics"),
        Arc::new(ReplaceOperators::MERGE_JOINS),
        theirs.next("join_selection"),
        Arc::new(ReplaceOperators::HASH_JOINS),
        theirs.next("LimitedDistinctAggregation"),
    ];
    theirs.next("FilterPushdown");
    rules.extend([
        Arc::new(PushFilters::of_plan()) as Arc<PhysicalRule>,
        theirs.next("WindowTopN"),
        Arc::new(NarrowDecimals),
        Arc::new(LimitGroups),
        Arc::new(ReplaceOperators::HASH_AGGREGATES),
        Arc::new(ReplaceOperators::MISTAKEN_LOOP_JOINS),
        Arc::new(EndComputedLimits),
        Arc::new(Fences::Up),
        theirs.next("EnsureRequirements"),
        theirs.next("CombinePartialFinalAggregate"),
        theirs.next("OptimizeAggregateOrder"),
        Arc::new(Fences::Down),
        Arc::new(KeepColumnsOfFilters(theirs.next("ProjectionPushdown"))),
        theirs.next("OutputRequirements"),
    ]);
    // `LimitGroups` has done what it does, before there are aggregations that it does not know.
    theirs.next("LimitAggregation");
    rules.extend([
        theirs.next("LimitPushPastWindows"),
        theirs.next("HashJoinBuffering"),
        theirs.next("LimitPushdown"),
        theirs.next("TopKRepartition"),
        Arc::new(KeepColumnsOfFilters(theirs.next("ProjectionPushdown"))),
        theirs.next("PushdownSort"),
        Arc::new(FilterFirstRows),
        Arc::new(ReplaceOperators::SORTS),
        Arc::new(ReplaceOperators::WINDOWS),
        Arc::new(ReplaceOperators::EXCHANGES),
        Arc::new(ReplaceOperators::NESTED_LOOP_JOINS),
        Arc::new(ReplaceOperators::RECURSIONS),
        theirs.next("EnsureCooperative"),
    ]);
    theirs.next("FilterPushdown(Post)");
    rules.extend([
        Arc::new(PushFilters::of_operators()) as Arc<PhysicalRule>,
        Arc::new(GroupColumns),
        Arc::new(FilterParquetScans),
        Arc::new(SortAgain),
        theirs.next("SanityCheckPlan"),
        Arc::new(BalanceConditions),
        Arc::new(BoundProjections),
        Arc::new(NameFiles),
        Arc::new(ShareSpools),
    ]);
    theirs.end();
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_name_every_rule_of_datafusion() {
        let (logical, physical) = (optimizer_rules(), physical_optimizer_rules());
        let joins = logical.iter().filter(|rule| rule.name() == "extract_equijoin_predicate");
        assert_eq!(joins.count(), 2);
        assert_eq!(physical.iter().filter(|rule| rule.name().starts_with("push_filters")).count(), 2);
    }
}
