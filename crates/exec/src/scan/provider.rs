//! A table snapshot as DataFusion sees it.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNode as _;
use datafusion::common::{DFSchema, Result, SchemaExt, Statistics, not_impl_err};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use nandina_storage::{Table, WriteMode};

use super::exec::{TableScanExec, table_statistics};
use super::sample::sampled_selectivity;
use super::sink::TableSink;

/// Scans of one provider see one snapshot: a catalog makes a provider per statement.
#[derive(Debug)]
pub struct NativeTableProvider {
    table: Table,
    statistics: OnceLock<Option<Statistics>>,
}

impl NativeTableProvider {
    pub fn new(table: Table) -> Self {
        Self { table, statistics: OnceLock::new() }
    }

    pub fn table(&self) -> &Table {
        &self.table
    }
}

#[async_trait]
impl TableProvider for NativeTableProvider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.table.schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = DFSchema::try_from(Arc::clone(self.table.schema()))?;
        let filters: Vec<_> = filters
            .iter()
            .map(|filter| state.create_physical_expr(filter.clone(), &schema))
            .collect::<Result<_>>()?;
        let projection = projection.map(Vec::as_slice);
        let partitions = state.config().target_partitions();
        let scan = TableScanExec::try_new(self.table.clone(), projection, filters, limit, partitions)?;
        let selectivity = sampled_selectivity(&scan).await;
        Ok(Arc::new(scan.with_selectivity(selectivity)))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match is_evaluated_by_scans(filter) {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }

    fn statistics(&self) -> Option<Statistics> {
        let statistics = self.statistics.get_or_init(|| match self.table.statistics() {
            Ok(statistics) => {
                let all: Vec<usize> = (0..statistics.columns.len()).collect();
                Some(table_statistics(&statistics, self.table.schema(), &all))
            }
            Err(error) => {
                // The scan will say so; planning goes on without.
                log::warn!("no statistics of table {:?}: {error}", self.table.name());
                None
            }
        });
        statistics.clone()
    }

    async fn insert_into(
        &self,
        _: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        insert_op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mode = match insert_op {
            InsertOp::Append => WriteMode::Append,
            InsertOp::Overwrite => WriteMode::Overwrite,
            InsertOp::Replace => {
                return not_impl_err!("REPLACE INTO needs a unique key, which native tables do not have");
            }
        };
        self.schema().logically_equivalent_names_and_types(&input.schema())?;
        let sink = TableSink::new(self.table.clone(), mode);
        Ok(Arc::new(DataSinkExec::new(input, Arc::new(sink), None)))
    }
}

/// Whether a filter has a value for each row by itself: no subquery, nothing that differs from call to call.
fn is_evaluated_by_scans(filter: &Expr) -> bool {
    let needs_a_plan = |expression: &Expr| {
        matches!(
            expression,
            Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::ScalarSubquery(_)
                | Expr::SetComparison(_)
                | Expr::OuterReferenceColumn(..)
        )
    };
    let needs_a_plan = filter.exists(|expression| Ok(needs_a_plan(expression))).unwrap_or(true);
    !needs_a_plan && !filter.is_volatile()
}
