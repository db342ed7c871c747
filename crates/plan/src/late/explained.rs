//! What was expected of fetches, and of joins and sorts that nothing is fetched above, for `EXPLAIN`.

use std::sync::Arc;

use datafusion::common::display::{PlanType, StringifiedPlan};
use datafusion::config::ExplainOptions;
use datafusion::physical_plan::explain::ExplainExec;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use nandina_exec::fetch::{FetchEstimate, FetchExec};
use nandina_exec::join::HybridHashJoinExec;
use nandina_exec::scan::TableScanExec;
use nandina_exec::sort::ExternalSortExec;

use super::choice::Chosen;

/// Stands for whatever rows come from that is no stored table.
pub(super) const OTHER: &str = "";

/// A join or sort that columns could have been fetched above.
pub(super) struct Weighed {
    operator: Operator,
    /// Those that it stands above, by their names in order, or [`OTHER`].
    tables: Vec<String>,
    estimate: FetchEstimate,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operator {
    Join,
    Sort,
}

impl Operator {
    fn of(node: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        match (node.is::<HybridHashJoinExec>(), node.is::<ExternalSortExec>()) {
            (true, _) => Some(Self::Join),
            (_, true) => Some(Self::Sort),
            _ => None,
        }
    }
}

impl Weighed {
    /// The topmost join in `joined`.
    pub fn join(joined: &Arc<dyn ExecutionPlan>, estimate: FetchEstimate) -> Self {
        Self { operator: Operator::Join, tables: tables_below(joined), estimate }
    }

    /// A sort of rows of these tables.
    pub fn sort(mut tables: Vec<String>, estimate: FetchEstimate) -> Self {
        tables.sort_unstable();
        Self { operator: Operator::Sort, tables, estimate }
    }
}

/// Has the operators of `plan` show what was expected: fetches what they were chosen for, and for each of `early` the topmost
/// operator of its kind above the same tables that nothing is fetched for.
pub(super) fn note(plan: &Arc<dyn ExecutionPlan>, chosen: &Chosen, mut early: Vec<Weighed>) {
    if !chosen.is_empty() || !early.is_empty() {
        note_below(plan, false, chosen, &mut early);
    }
}

fn note_below(
    node: &Arc<dyn ExecutionPlan>,
    mut is_fetched_for: bool,
    chosen: &Chosen,
    early: &mut Vec<Weighed>,
) {
    if let Some(fetch) = node.downcast_ref::<FetchExec>() {
        let weighed = fetch.candidate().and_then(|number| chosen.get(&number)?.estimate.clone());
        weighed.into_iter().for_each(|estimate| fetch.show_estimate(estimate));
        is_fetched_for = true;
    } else if let Some(operator) = Operator::of(node) {
        let tables = tables_below(node);
        let found = early.iter().position(|one| one.operator == operator && one.tables == tables);
        if let Some(found) = found.filter(|_| !is_fetched_for) {
            let estimate = early.remove(found).estimate;
            let join = node.downcast_ref::<HybridHashJoinExec>();
            join.inspect(|join| join.show_estimate(estimate.clone()));
            let sort = node.downcast_ref::<ExternalSortExec>();
            sort.inspect(|sort| sort.show_estimate(estimate.clone()));
        }
        is_fetched_for = false;
    }
    node.children().into_iter().for_each(|input| note_below(input, is_fetched_for, chosen, early));
}

/// The texts of an `EXPLAIN`, with that of `plan` in the place of that of the same plan without estimates.
pub(super) fn with_text_of(
    explained: Arc<dyn ExecutionPlan>,
    plan: &Arc<dyn ExecutionPlan>,
    options: &ExplainOptions,
) -> Arc<dyn ExecutionPlan> {
    let Some(texts) = explained.downcast_ref::<ExplainExec>() else { return explained };
    let verbose = texts.verbose();
    let shown = displayable(plan.as_ref())
        .set_show_statistics(options.show_statistics)
        .set_show_schema(options.show_schema)
        .indent(verbose)
        .to_string();
    let renewed = texts.stringified_plans().iter().map(|text| match text.plan_type {
        PlanType::FinalPhysicalPlan => StringifiedPlan::new(PlanType::FinalPhysicalPlan, shown.as_str()),
        _ => text.clone(),
    });
    Arc::new(ExplainExec::new(texts.schema(), renewed.collect(), verbose))
}

fn tables_below(plan: &Arc<dyn ExecutionPlan>) -> Vec<String> {
    let mut tables = Vec::new();
    collect_tables(plan, &mut tables);
    tables.sort_unstable();
    tables
}

fn collect_tables(plan: &Arc<dyn ExecutionPlan>, tables: &mut Vec<String>) {
    let inputs = plan.children();
    if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
        tables.push(scan.table().name().to_owned());
    } else if inputs.is_empty() {
        tables.push(OTHER.to_owned());
    }
    inputs.into_iter().for_each(|input| collect_tables(input, tables));
}
