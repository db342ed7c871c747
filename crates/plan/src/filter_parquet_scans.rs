//! Lets Parquet scans turn away the rows that filters do not want, before the other columns of those are decoded.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result};
use datafusion::config::ConfigOptions;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    FileScanConfig, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::datasource::source::{DataSource, DataSourceExec};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion::physical_expr::projection::{ProjectionExpr, ProjectionExprs};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, conjunction, split_conjunction};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::filter_pushdown::PushedDown;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{Distribution, ExecutionPlan, ExecutionPlanProperties};
use nandina_exec::scan::{AdaptiveFilter, ColumnGroupsExec, is_dynamic};

use crate::all_or_nothing::AllOrNothing;

/// Moves the filters above Parquet scans into them, and lets joins and top-k turn rows away there, as long as that pays.
///
/// It stands behind all rules that ask how many rows there are: a filter says so, a scan with one does not.
#[derive(Debug)]
pub struct FilterParquetScans;

impl PhysicalOptimizerRule for FilterParquetScans {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if config.execution.parquet.pushdown_filters {
            // The session asks for DataFusion's pushdown, which has been done.
            return Ok(plan);
        }
        let orders_matter = plan.exists(|node| Ok(depends_on_order(node)))?;
        plan.transform_down(|node| {
            if node.is::<ColumnGroupsExec>() {
                // Filters that change while it runs would leave other rows of each group.
                return Ok(Transformed::new(node, false, TreeNodeRecursion::Jump));
            }
            let changed = match node.downcast_ref::<FilterExec>() {
                // Row groups are decoded as a whole: a filter that looks at rows as they come finds the first ones sooner.
                Some(filter) if filter.fetch().is_some() => {
                    return Ok(Transformed::new(node, false, TreeNodeRecursion::Jump));
                }
                Some(filter) => without_filter(filter, orders_matter, config)?,
                None => parquet_scan(&node)
                    .filter(|(_, source)| source.filter().is_some_and(|filter| is_dynamic(&filter)))
                    .and_then(|(scan, _)| filtering_scan(&scan, orders_matter)),
            };
            Ok(changed.map_or_else(|| Transformed::no(node), Transformed::yes))
        })
        .data()
    }

    fn name(&self) -> &str {
        "filter_parquet_scans"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether `node` needs its rows in an order, or apart by keys: both may rest on columns that filters make constant or
/// equal.
fn depends_on_order(node: &Arc<dyn ExecutionPlan>) -> bool {
    let distributions = node.input_distribution_requirements().into_per_child();
    node.required_input_ordering().iter().any(Option::is_some)
        || distributions.iter().any(|wanted| matches!(wanted, Distribution::KeyPartitioned(_)))
}

/// The scan below `filter` with as much of it as it can do, and the rest of the filter above.
fn without_filter(
    filter: &FilterExec,
    orders_matter: bool,
    config: &ConfigOptions,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some((scan, source)) = parquet_scan(filter.input()) else { return Ok(None) };
    let (mut volatile, mut moving) = (Vec::new(), Vec::new());
    for term in split_conjunction(filter.predicate()) {
        // Columns may be computed by the scan.
        let below = source.projection().map(|projection| projection.unproject_expr(term)).transpose()?;
        let is_volatile = is_volatile(below.as_ref().unwrap_or(term));
        if is_volatile { &mut volatile } else { &mut moving }.push(Arc::clone(term));
    }
    let deciding =
        FileScanConfigBuilder::from(scan).with_source(Arc::new(source.with_pushdown_filters(true))).build();
    let pushed = deciding.try_pushdown_filters(moving.clone(), config)?;
    let Some(scan) = pushed.updated_node.as_ref().and_then(|node| node.downcast_ref::<FileScanConfig>())
    else {
        return Ok(None);
    };
    let is_coarse = selections_outgrow_memory(scan);
    let Some(scan) = filtering_scan(scan, orders_matter) else { return Ok(None) };
    assert_eq!(pushed.filters.len(), moving.len(), "a scan answers for each filter");
    let stay = moving.into_iter().zip(&pushed.filters);
    let stay = stay.filter(|(_, answer)| matches!(answer, PushedDown::No)).map(|(term, _)| term);
    let mut remaining: Vec<_> = volatile.into_iter().chain(stay).collect();
    let handed_on = projected(filter, Arc::clone(&scan))?;
    let says_more =
        || Ok::<_, DataFusionError>(!is_implied(filter.properties().equivalence_properties(), &handed_on)?);
    if is_coarse || orders_matter && says_more()? {
        // What a range of one value makes constant, for one, only a filter knows.
        remaining = vec![Arc::clone(filter.predicate())];
    }
    if remaining.is_empty() {
        return Ok(Some(handed_on));
    }
    let rest = FilterExecBuilder::new(conjunction(remaining), scan)
        .apply_projection(filter.projection().as_deref().map(<[usize]>::to_vec))?
        .with_batch_size(filter.batch_size())
        .with_default_selectivity(filter.default_selectivity());
    Ok(Some(Arc::new(rest.build()?)))
}

/// Whether `node` has all orders, constants and equal columns of `properties`.
fn is_implied(properties: &EquivalenceProperties, node: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let of_node = node.equivalence_properties();
    for ordering in properties.oeq_class().iter() {
        if !of_node.ordering_satisfy(ordering.clone())? {
            return Ok(false);
        }
    }
    Ok(properties.constants().len() <= of_node.constants().len()
        && properties.eq_group().len() <= of_node.eq_group().len())
}

/// The columns of `scan` that `filter` would have handed on.
fn projected(filter: &FilterExec, scan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(columns) = filter.projection().as_deref() else { return Ok(scan) };
    let columns: Vec<ProjectionExpr> =
        ProjectionExprs::from_indices(columns, &scan.schema()).iter().cloned().collect();
    let projection = ProjectionExec::try_new(columns, Arc::clone(&scan))?;
    Ok(match scan.try_swapping_with_projection(&projection)? {
        Some(narrower) => narrower,
        None => Arc::new(projection),
    })
}

/// A Parquet scan that has not been told to filter, and may be: under a limit, row groups would be decoded for the
/// sake of a few rows.
fn parquet_scan(node: &Arc<dyn ExecutionPlan>) -> Option<(FileScanConfig, ParquetSource)> {
    let scan = node.downcast_ref::<DataSourceExec>()?.data_source().downcast_ref::<FileScanConfig>()?;
    let source = scan.file_source().downcast_ref::<ParquetSource>()?;
    let may_filter = scan.limit.is_none() && !source.table_parquet_options().global.pushdown_filters;
    may_filter.then(|| (scan.clone(), source.clone()))
}

/// The same scan, filtering rows; `None` if it has nothing to filter by.
fn filtering_scan(scan: &FileScanConfig, orders_matter: bool) -> Option<Arc<dyn ExecutionPlan>> {
    let source = scan.file_source().downcast_ref::<ParquetSource>()?;
    let mut terms: Vec<Arc<dyn PhysicalExpr>> = Vec::new();
    for term in split_conjunction(&source.filter()?) {
        if !is_volatile(term) && !terms.contains(term) {
            terms.push(Arc::clone(term));
        }
    }
    if terms.is_empty() {
        return None;
    }
    let passes = in_passes(terms, orders_matter, selections_outgrow_memory(scan));
    let source = source.with_predicate(conjunction(passes)).with_pushdown_filters(true);
    let adapters = AllOrNothing::over(scan.expr_adapter_factory.clone());
    let scan = FileScanConfigBuilder::from(scan.clone())
        .with_source(Arc::new(source))
        .with_expr_adapter(Some(Arc::new(adapters)))
        .build();
    Some(DataSourceExec::from_data_source(scan))
}

/// The terms as the scan shall evaluate them, pass by pass.
///
/// All together: a pass over a row group costs more than most terms do. But where something above depends on an order,
/// equalities stay as they are, for they say which columns are constant, on which orders may rest.
fn in_passes(
    terms: Vec<Arc<dyn PhysicalExpr>>,
    orders_matter: bool,
    is_coarse: bool,
) -> Vec<Arc<dyn PhysicalExpr>> {
    let (mut passes, others): (Vec<_>, Vec<_>) =
        terms.into_iter().partition(|term| orders_matter && is_equality(term));
    if !others.is_empty() {
        let filter = if is_coarse { AdaptiveFilter::coarse(others) } else { AdaptiveFilter::new(others) };
        passes.push(Arc::new(filter));
    }
    passes
}

/// Rows that a row group has at most, usually.
const ROW_GROUP_ROWS: usize = 1 << 20;
/// What a scan holds for each run of rows that pass, or do not.
const RUN_BYTES: usize = 16;
/// The memory that runs may take, against that of columns which filters have looked at.
const RUNS_PER_CACHE: usize = 4;

/// Whether the runs of rows that pass a filter may take more than a scan has memory for: they are not reserved.
fn selections_outgrow_memory(scan: &FileScanConfig) -> bool {
    let Some(source) = scan.file_source().downcast_ref::<ParquetSource>() else { return false };
    let Some(cache_bytes) = source.table_parquet_options().global.max_predicate_cache_size else {
        return false;
    };
    let rows_of = |file: &PartitionedFile| file.statistics.as_ref()?.num_rows.get_value().copied();
    let files = scan.file_groups.iter().flat_map(|group| group.iter());
    let rows = files.map(|file| rows_of(file).unwrap_or(ROW_GROUP_ROWS)).max().unwrap_or(0);
    rows.min(ROW_GROUP_ROWS) * RUN_BYTES > cache_bytes.saturating_mul(RUNS_PER_CACHE)
}

/// Of a column with a constant, or with another one.
fn is_equality(term: &Arc<dyn PhysicalExpr>) -> bool {
    let is_simple = |side: &Arc<dyn PhysicalExpr>| side.is::<Column>() || side.is::<Literal>();
    term.downcast_ref::<BinaryExpr>()
        .is_some_and(|term| *term.op() == Operator::Eq && is_simple(term.left()) && is_simple(term.right()))
}
