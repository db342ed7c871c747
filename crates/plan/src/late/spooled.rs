//! Sorts of rows that have no ids: whether columns that a sort does not look at are written once, and fetched for the result.

use std::sync::Arc;

use datafusion::catalog::Session;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use nandina_device::Device;
use nandina_exec::batch::row_width::{TEXT_BYTES, column_bytes, text_bytes};
use nandina_exec::fetch::FetchExec;
use nandina_exec::sort::{ExternalSortExec, SpooledColumns};
use nandina_exec::spill::SessionTempSpace;

use super::algorithm::SortAlgorithm;
use super::cost::SpoolableRows;
use super::planner::Circumstances;
use super::sorts;

/// Columns of fewer bytes are always carried along.
const LEAST_SPOOLED_BYTES: usize = 64;

/// Fewer are carried along unless spooling is asked for: a page is read for nearly every row, and of narrow rows it holds many
/// (`docs/benchmarks/ssd-sort.md`).
const WORTH_SPOOLING_BYTES: usize = 2 << 10;

/// Has sorts in `plan` spool where that is cheaper, or asked for.
pub(super) fn choose(plan: &Arc<dyn ExecutionPlan>, circumstances: Circumstances, session: &dyn Session) {
    if circumstances.sort_algorithm != SortAlgorithm::Merge {
        let space = session.config().get_extension::<SessionTempSpace>();
        let device = space.map(|space| space.0.device().clone());
        choose_below(plan, false, circumstances, device.as_ref());
    }
}

fn choose_below(
    node: &Arc<dyn ExecutionPlan>,
    mut is_fetched_for: bool,
    circumstances: Circumstances,
    device: Option<&Device>,
) {
    if node.is::<FetchExec>() {
        is_fetched_for = true;
    } else if let Some(sort) = node.downcast_ref::<ExternalSortExec>() {
        // What is fetched above it, it does not carry.
        if let Some(columns) = sort.spoolable().filter(|_| !is_fetched_for) {
            choose_for(sort, &columns, circumstances, device);
        }
        is_fetched_for = false;
    } else if !node.is::<ProjectionExec>() {
        is_fetched_for = false;
    }
    for input in node.children() {
        choose_below(input, is_fetched_for, circumstances, device);
    }
}

fn choose_for(
    sort: &ExternalSortExec,
    columns: &SpooledColumns,
    circumstances: Circumstances,
    device: Option<&Device>,
) {
    let input = sort.planned().input();
    let schema = input.schema();
    let statistics = StatisticsContext::new().compute(input.as_ref(), &StatisticsArgs::new()).ok();
    let rows = statistics.as_ref().and_then(|statistics| statistics.num_rows.get_value().copied());
    let bytes = statistics.as_ref().and_then(|statistics| statistics.total_byte_size.get_value().copied());
    let row_bytes = rows.zip(bytes).and_then(|(rows, bytes)| bytes.checked_div(rows));
    let text = row_bytes.and_then(|row_bytes| text_bytes(&schema, row_bytes));
    let text = text.unwrap_or(TEXT_BYTES).max(TEXT_BYTES);
    let width = |columns: &[usize]| -> usize {
        columns.iter().map(|&column| column_bytes(schema.field(column).data_type(), text)).sum()
    };
    let (carried_bytes, spooled_bytes) = (width(&columns.carried), width(&columns.spooled));
    if spooled_bytes < LEAST_SPOOLED_BYTES {
        return;
    }
    let cost = rows.zip(device).map(|(rows, device)| {
        let [rows, carried_bytes, spooled_bytes] = [rows, carried_bytes, spooled_bytes].map(|it| it as f64);
        let spoolable = SpoolableRows { rows, carried_bytes, spooled_bytes };
        spoolable.cost(device, circumstances.memory_bytes)
    });
    let is_wide = spooled_bytes >= WORTH_SPOOLING_BYTES;
    let pays = is_wide && cost.is_some_and(|cost| cost.late < cost.early);
    if circumstances.sort_algorithm == SortAlgorithm::Ssd || pays {
        sort.spool();
        let estimate = cost.and_then(|cost| sorts::estimate(&[cost]));
        estimate.into_iter().for_each(|estimate| sort.show_estimate(estimate));
    }
}
