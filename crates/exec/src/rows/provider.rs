//! A table whose rows are changed one by one, as DataFusion sees it.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Result, SchemaExt as _, exec_err, not_impl_err};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::execution::config::SessionConfig;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use nandina_storage::{RowPages, Table};

use super::lookup::Lookup;
use super::scan::{RowScanExec, Source};
use super::sink::{RowChange, RowSink};
use super::transactions::{SharedTransaction, Transactions};

/// The name of the column of row ids.
pub const ROW_ID: &str = "row id";

/// Which rows it has is told by the transaction of the statement that asks.
#[derive(Debug)]
pub struct RowTableProvider {
    table: Table,
    /// The columns of the table, and a last one of row ids if the provider has them.
    schema: SchemaRef,
    /// What rows do that are inserted.
    change: RowChange,
}

impl RowTableProvider {
    pub fn new(table: Table) -> Self {
        Self { schema: Arc::clone(table.schema()), table, change: RowChange::Insert }
    }

    /// The same table, whose rows are changed so by those that are inserted.
    pub fn changed_by(self, change: RowChange) -> Self {
        Self { change, ..self }
    }

    /// The same table with one more column, [`ROW_ID`].
    pub fn with_row_ids(&self) -> Self {
        let id = Arc::new(Field::new(ROW_ID, DataType::UInt64, false));
        let fields = self.table.schema().fields().iter().cloned().chain([id]).collect::<Vec<_>>();
        Self { schema: Arc::new(Schema::new(fields)), table: self.table.clone(), change: self.change }
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    pub fn has_row_ids(&self) -> bool {
        self.schema.fields().len() > self.table.schema().fields().len()
    }

    fn transaction(&self, config: &SessionConfig) -> Result<Arc<SharedTransaction>> {
        Transactions::of_config(config).of(self.table.store())
    }

    /// The table as a transaction sees it: this one, unless it was made or dropped meanwhile.
    fn seen_by(&self, transaction: &SharedTransaction) -> Result<Table> {
        let name = self.table.name();
        match transaction.snapshot().table(name) {
            Ok(seen) if seen.id() == self.table.id() => Ok(seen),
            _ => exec_err!("table '{name}' was made or dropped by others meanwhile: run the statement again"),
        }
    }
}

#[async_trait]
impl TableProvider for RowTableProvider {
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
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let transaction = self.transaction(state.config())?;
        let table = self.seen_by(&transaction)?;
        let indexes = transaction.read(|transaction| transaction.indexes(&table))?;
        let source = match Lookup::of(&table, &indexes, filters)? {
            Some(lookup) => Source::Index(lookup),
            None => {
                let pages: RowPages = transaction.read(|transaction| transaction.pages(&table))?;
                Source::Pages(pages)
            }
        };
        let all = || (0..self.schema.fields().len()).collect();
        let projection = projection.cloned().unwrap_or_else(all);
        let partitions = state.config().target_partitions();
        Ok(Arc::new(RowScanExec::try_new(table, &self.schema, transaction, source, projection, partitions)?))
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        // Rows that an index finds may have other values by now.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn insert_into(
        &self,
        state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        insert_op: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if insert_op != InsertOp::Append {
            return not_impl_err!("INSERT OVERWRITE and REPLACE INTO of tables WITH (storage = 'row')");
        }
        if self.change == RowChange::Insert {
            self.schema().logically_equivalent_names_and_types(&input.schema())?;
        }
        let transactions = Transactions::of_config(state.config());
        let transaction = transactions.to_write(self.table.store())?;
        let table = self.seen_by(&transaction)?;
        let sink = RowSink::new(table, transactions, transaction, self.change, &input);
        Ok(Arc::new(DataSinkExec::new(input, Arc::new(sink), None)))
    }
}
