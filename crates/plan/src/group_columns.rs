//! Reads wide Parquet files in groups of columns where decoding all of them at a time would take too much memory.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::config::ConfigOptions;
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource as _, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::functions::core::input_file_name::InputFileNameFunc;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::{ProjectionExpr, ProjectionExprs};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use nandina_exec::scan::{ColumnGroupsExec, DecodingBytes};

/// Puts a [`ColumnGroupsExec`] above scans whose files say that decoding them takes too much. What such a scan computed
/// is computed above, unless the scan alone can, or reads less for it: such a scan stays as it is.
#[derive(Debug)]
pub struct GroupColumns;

impl PhysicalOptimizerRule for GroupColumns {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_down(|node| {
            Ok(match in_groups(&node)? {
                Some(grouped) => Transformed::new(grouped, true, TreeNodeRecursion::Jump),
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "group_columns"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The scan `node` in groups of columns, if it is one that needs them.
fn in_groups(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let scan = node.downcast_ref::<DataSourceExec>();
    let config = scan.and_then(|scan| scan.data_source().downcast_ref::<FileScanConfig>());
    let Some(config) = config else { return Ok(None) };
    let Some(source) = config.file_source().downcast_ref::<ParquetSource>() else { return Ok(None) };
    let columns: Vec<usize> = match source.projection() {
        Some(projection) => projection.column_indices(),
        None => (0..config.file_source().table_schema().table_schema().fields().len()).collect(),
    };
    if source.projection().is_some_and(|projection| reads_otherwise(projection, config)) {
        return Ok(None);
    }
    let Some(groups) = groups(config, &columns) else { return Ok(None) };
    let plain = DataSourceExec::from_data_source(ColumnGroupsExec::plain(config, source, &columns)?);
    // Columns of a type that cannot wait in temporary space are read all at a time.
    let Ok(grouped) = ColumnGroupsExec::new(plain, groups) else { return Ok(None) };
    let grouped: Arc<dyn ExecutionPlan> = Arc::new(grouped);
    let Some(projection) = source.projection() else { return Ok(Some(grouped)) };
    let computed = projection.iter().map(|computed| {
        Ok(ProjectionExpr::new(of_columns(&computed.expr, &columns)?, computed.alias.clone()))
    });
    let projection = ProjectionExec::try_new(computed.collect::<Result<Vec<_>>>()?, Arc::clone(&grouped))?;
    Ok(Some(if projection.schema() == grouped.schema() && is_plain(&projection) {
        grouped
    } else {
        Arc::new(projection)
    }))
}

/// Whether the scan alone can compute a projection, or reads less for it than whole columns: the name of a file, or fields
/// of structs.
fn reads_otherwise(projection: &ProjectionExprs, config: &FileScanConfig) -> bool {
    let schema = config.file_source().table_schema().table_schema();
    let is_struct = |at: usize| {
        schema.fields().get(at).is_some_and(|field| matches!(field.data_type(), DataType::Struct(_)))
    };
    let whole = projection.iter().filter_map(|computed| computed.expr.downcast_ref::<Column>());
    let whole: HashSet<usize> = whole.map(Column::index).collect();
    projection.iter().any(|computed| {
        let is_only_of_scan = |expression: &Arc<dyn PhysicalExpr>| {
            Ok(ScalarFunctionExpr::try_downcast_func::<InputFileNameFunc>(expression.as_ref()).is_some())
        };
        let names_file = computed.expr.exists(is_only_of_scan).unwrap_or(true);
        let mut columns = collect_columns(&computed.expr).into_iter().map(|column| column.index());
        names_file || columns.any(|column| is_struct(column) && !whole.contains(&column))
    })
}

/// Whether it gives the columns of its input as they are.
fn is_plain(projection: &ProjectionExec) -> bool {
    projection.expr().iter().enumerate().all(|(at, computed)| {
        computed.expr.downcast_ref::<Column>().is_some_and(|column| column.index() == at)
    })
}

/// An expression over the table's columns as one over these of them.
fn of_columns(expression: &Arc<dyn PhysicalExpr>, columns: &[usize]) -> Result<Arc<dyn PhysicalExpr>> {
    let place = |expression: Arc<dyn PhysicalExpr>| {
        let Some(column) = expression.downcast_ref::<Column>() else {
            return Ok(Transformed::no(expression));
        };
        match columns.binary_search(&column.index()) {
            Ok(at) => Ok(Transformed::yes(Arc::new(Column::new(column.name(), at)) as _)),
            Err(_) => internal_err!("column '{}' is one that its scan reads", column.name()),
        }
    };
    Arc::clone(expression).transform(place).data()
}

/// Groups of `columns`, by their places in it; `None` if all can be decoded at a time.
fn groups(config: &FileScanConfig, columns: &[usize]) -> Option<Vec<Vec<usize>>> {
    let files = config.file_groups.iter().flat_map(|group| group.files());
    let known: Vec<&Arc<DecodingBytes>> = files.map(|file| file.extension()).collect::<Option<_>>()?;
    let most_bytes = known.first()?.most_bytes / config.file_groups.len().max(1) as u64;
    let bytes = |column: usize| -> u64 {
        // Behind the files' fields come those that their folders' names give.
        let field = config.file_schema().fields().get(column);
        let of_field = |known: &&Arc<DecodingBytes>| {
            field.and_then(|field| known.of_fields.get(field.name()).copied()).unwrap_or_default()
        };
        known.iter().map(of_field).max().unwrap_or_default()
    };
    let bytes: Vec<u64> = columns.iter().map(|&column| bytes(column)).collect();
    if bytes.iter().sum::<u64>() <= most_bytes {
        return None;
    }
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut open_bytes = 0;
    for (at, bytes) in bytes.into_iter().enumerate() {
        match groups.last_mut() {
            Some(group) if open_bytes + bytes <= most_bytes => {
                group.push(at);
                open_bytes += bytes;
            }
            _ => {
                groups.push(vec![at]);
                open_bytes = bytes;
            }
        }
    }
    (groups.len() > 1).then_some(groups)
}
