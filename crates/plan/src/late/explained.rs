//! What was expected where nothing is fetched, for `EXPLAIN`: a fetch that was chosen shows it itself.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::display::{PlanType, StringifiedPlan};
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::config::ExplainOptions;
use datafusion::physical_plan::explain::ExplainExec;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use nandina_exec::fetch::FetchEstimate;
use nandina_exec::join::HybridHashJoinExec;
use nandina_exec::scan::TableScanExec;
use nandina_exec::sort::ExternalSortExec;

/// A join or sort that columns could have been fetched above.
pub(super) struct Weighed {
    operator: Operator,
    /// Those that it stands above, by their names in order.
    tables: Vec<String>,
    estimate: FetchEstimate,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operator {
    Join,
    Sort,
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

/// Has the operators of `plan` show what was expected: each estimate the topmost one of its kind above the same tables that
/// has none.
pub(super) fn note(plan: &Arc<dyn ExecutionPlan>, mut weighed: Vec<Weighed>) -> Result<()> {
    if weighed.is_empty() {
        return Ok(());
    }
    plan.apply(|node| {
        let (join, sort) =
            (node.downcast_ref::<HybridHashJoinExec>(), node.downcast_ref::<ExternalSortExec>());
        let operator = match (join, sort) {
            (Some(_), _) => Operator::Join,
            (_, Some(_)) => Operator::Sort,
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        let tables = tables_below(node);
        let found = weighed.iter().position(|one| one.operator == operator && one.tables == tables);
        if let Some(estimate) = found.map(|place| weighed.remove(place).estimate) {
            join.inspect(|join| join.explain_by(estimate.clone()));
            sort.inspect(|sort| sort.explain_by(estimate.clone()));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
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
    tables.extend(plan.downcast_ref::<TableScanExec>().map(|scan| scan.table().name().to_owned()));
    plan.children().into_iter().for_each(|input| collect_tables(input, tables));
}
