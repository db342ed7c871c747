//! A table snapshot as DataFusion sees it.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNode as _;
use datafusion::common::{ColumnStatistics, DFSchema, Result, SchemaExt, Statistics, not_impl_err};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use nandina_storage::{Table, WriteMode};

use super::exec::{TableScanExec, table_statistics, with_row_ids};
use super::sample::sampled_selectivity;
use super::sink::TableSink;

/// Scans of one provider see one snapshot: a catalog makes a provider per statement.
#[derive(Debug)]
pub struct NativeTableProvider {
    table: Table,
    /// The columns of the table, and a last one of row ids if the provider has them.
    schema: SchemaRef,
    statistics: OnceLock<Option<Statistics>>,
}

impl NativeTableProvider {
    pub fn new(table: Table) -> Self {
        Self { schema: Arc::clone(table.schema()), table, statistics: OnceLock::new() }
    }

    /// The same snapshot with one more column, which has the ids of rows.
    pub fn with_row_ids(&self, name: &str) -> Self {
        let schema = with_row_ids(self.table.schema(), name);
        Self { table: self.table.clone(), schema, statistics: OnceLock::new() }
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) async fn table_scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<TableScanExec> {
        let schema = DFSchema::try_from(Arc::clone(self.table.schema()))?;
        let filters: Vec<_> = filters
            .iter()
            .map(|filter| state.create_physical_expr(filter.clone(), &schema))
            .collect::<Result<_>>()?;
        let (of_table, row_ids) = self.projected(projection);
        let partitions = state.config().target_partitions();
        let mut scan =
            TableScanExec::try_new(self.table.clone(), Some(&of_table), filters, limit, partitions)?;
        if let Some(name) = row_ids {
            scan = scan.with_row_ids(name)?;
        }
        let selectivity = sampled_selectivity(&scan).await;
        Ok(scan.with_selectivity(selectivity))
    }

    /// Columns of the table, and the name of the column of row ids if it is wanted: it is the last one of all, and stands
    /// last wherever it is projected.
    fn projected(&self, projection: Option<&Vec<usize>>) -> (Vec<usize>, Option<&str>) {
        let columns = self.table.schema().fields().len();
        let name = self.schema.fields().get(columns).map(|field| field.name().as_str());
        let mut projection = projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let has_row_ids = projection.last() == Some(&columns);
        projection.truncate(projection.len() - usize::from(has_row_ids));
        (projection, name.filter(|_| has_row_ids))
    }
}

#[async_trait]
impl TableProvider for NativeTableProvider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
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
        Ok(Arc::new(self.table_scan(state, projection, filters, limit).await?))
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
                let mut statistics = table_statistics(&statistics, self.table.schema(), &all);
                let others = self.schema.fields().len() - all.len();
                statistics.column_statistics.extend((0..others).map(|_| ColumnStatistics::new_unknown()));
                Some(statistics)
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
pub(crate) fn is_evaluated_by_scans(filter: &Expr) -> bool {
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
