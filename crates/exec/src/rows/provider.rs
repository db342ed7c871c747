//! A table whose rows are changed one by one, as DataFusion sees it.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{ColumnStatistics, Result, SchemaExt as _, Statistics, exec_err, not_impl_err};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::execution::config::SessionConfig;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::union::UnionExec;
use nandina_device::FlowId;
use nandina_storage::{IndexDefinition, RowPages, StorageError, Table};

use super::applying::RowChange;
use super::blocking;
use super::changed_rows::ReturnedRows;
use super::indexed_scan::IndexedScanExec;
use super::lookup::Lookup;
use super::output::Output;
use super::scan::{RowScanExec, Source};
use super::sink::RowSink;
use super::transactions::{OpenScan, SharedTransaction, Transactions};
use crate::execution::QueryFlow;
use crate::scan::{NativeTableProvider, is_evaluated_by_scans, storage_error};

/// The name of the column of row ids.
pub const ROW_ID: &str = "row id";

/// What a statement wants of a table.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    state: &'a dyn Session,
    projection: Option<&'a Vec<usize>>,
    filters: &'a [Expr],
    limit: Option<usize>,
}

impl Wanted<'_> {
    /// Keeps rows from being changed while they are scanned.
    fn open_scan(&self, transaction: &SharedTransaction) -> OpenScan {
        let flow = self.state.config().get_extension::<QueryFlow>();
        transaction.open_scan(flow.map_or_else(FlowId::unique, |flow| flow.0))
    }
}

/// Which rows it has is told by the transaction of the statement that asks.
#[derive(Debug)]
pub struct RowTableProvider {
    table: Table,
    /// The columns of the table, and a last one of row ids if the provider has them.
    schema: SchemaRef,
    /// What rows do that are inserted, and where those are put that they have changed.
    change: RowChange,
    returned: Option<Arc<ReturnedRows>>,
}

impl RowTableProvider {
    pub fn new(table: Table) -> Self {
        Self { schema: Arc::clone(table.schema()), table, change: RowChange::Insert, returned: None }
    }

    /// The same table, whose rows are changed so by those that are inserted.
    pub fn changed_by(self, change: RowChange) -> Self {
        Self { change, ..self }
    }

    /// The same table; rows that are changed are put there.
    pub fn returning(self, returned: Arc<ReturnedRows>) -> Self {
        Self { returned: Some(returned), ..self }
    }

    /// The same table with one more column, [`ROW_ID`].
    pub fn with_row_ids(&self) -> Self {
        let id = Arc::new(Field::new(ROW_ID, DataType::UInt64, false));
        let fields = self.table.schema().fields().iter().cloned().chain([id]).collect::<Vec<_>>();
        Self { schema: Arc::new(Schema::new(fields)), ..Self::new(self.table.clone()) }
    }

    /// What rows do that are inserted, if that is all that is asked for.
    pub fn only_change(&self) -> Option<&RowChange> {
        Some(&self.change).filter(|change| self.returned.is_none() && **change != RowChange::Merge)
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    pub fn has_row_ids(&self) -> bool {
        self.schema.fields().len() > self.table.schema().fields().len()
    }

    /// The rows in segments that have not been deleted, and those in the heap.
    async fn scan_both(
        &self,
        table: Table,
        transaction: Arc<SharedTransaction>,
        wanted: Wanted<'_>,
        open: Option<OpenScan>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Wanted { state, projection, filters, limit } = wanted;
        let segments = self.native(&table).table_scan(state, projection, &of_columns(filters), limit).await?;
        let segments = segments.seen_by(Arc::clone(&transaction), open);
        let pages: RowPages = transaction.read(|transaction| transaction.pages(&table))?;
        if table.rows() > 0 && pages.is_empty() {
            return Ok(Arc::new(segments));
        }
        let source = Source::Pages { pages, indexes: Arc::default() };
        let heap = self.scan_rows(table, transaction, source, wanted)?;
        UnionExec::try_new(vec![Arc::new(segments), heap])
    }

    /// The same, or those that an index finds, where these are few.
    async fn scan_indexed(
        &self,
        table: Table,
        transaction: Arc<SharedTransaction>,
        indexes: Vec<(usize, IndexDefinition)>,
        lookup: Option<Lookup>,
        wanted: Wanted<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // Whole unique keys have a row each.
        let finds_few = lookup.as_ref().is_some_and(|lookup| lookup.is_unique);
        let (mut scan, mut open) = (None, None);
        if !finds_few {
            open = Some(wanted.open_scan(&transaction));
            scan = Some(self.scan_both(table.clone(), Arc::clone(&transaction), wanted, None).await?);
        }
        let (output, indexes) = (self.output(&table, wanted.projection)?, indexes.into());
        Ok(Arc::new(IndexedScanExec::new(table, transaction, indexes, lookup, scan, output, open)))
    }

    /// The rows of its segments.
    fn native(&self, table: &Table) -> NativeTableProvider {
        let native = NativeTableProvider::new(table.clone());
        if self.has_row_ids() { native.with_row_ids(ROW_ID) } else { native }
    }

    fn output(&self, table: &Table, projection: Option<&Vec<usize>>) -> Result<Output> {
        let all = || (0..self.schema.fields().len()).collect();
        Output::try_new(table, &self.schema, projection.cloned().unwrap_or_else(all))
    }

    fn scan_rows(
        &self,
        table: Table,
        transaction: Arc<SharedTransaction>,
        source: Source,
        wanted: Wanted<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let output = self.output(&table, wanted.projection)?;
        let partitions = wanted.state.config().target_partitions();
        Ok(Arc::new(RowScanExec::new(table, transaction, source, output, partitions)))
    }

    fn transaction(&self, config: &SessionConfig) -> Result<Arc<SharedTransaction>> {
        Transactions::of_config(config).of(self.table.store())
    }

    /// The table as a transaction sees it: this one, unless it was made or dropped meanwhile.
    fn seen_by(&self, transaction: &SharedTransaction) -> Result<Table> {
        let name = self.table.name();
        match transaction.read(|transaction| transaction.table(name)) {
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
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if self.has_row_ids() {
            Transactions::of_config(state.config()).keep_rows(self.table.store());
        }
        let transaction = self.transaction(state.config())?;
        let table = self.seen_by(&transaction)?;
        if !table.has_changeable_rows() {
            let native = self.native(&table);
            return native.scan(state, projection, &of_columns(filters), limit).await;
        }
        let wanted = Wanted { state, projection, filters, limit };
        let indexes = transaction.read(|transaction| transaction.indexes(&table))?;
        let lookup = Lookup::of(&table, &indexes, filters)?;
        if table.has_segments() && indexes.is_empty() {
            let open = wanted.open_scan(&transaction);
            return self.scan_both(table, transaction, wanted, Some(open)).await;
        }
        if table.has_segments() {
            return self.scan_indexed(table, transaction, indexes, lookup, wanted).await;
        }
        let source = match lookup {
            Some(lookup) => Source::Index(lookup),
            None => {
                let pages: RowPages = transaction.read(|transaction| transaction.pages(&table))?;
                Source::Pages { pages, indexes: indexes.into() }
            }
        };
        self.scan_rows(table, transaction, source, wanted)
    }

    fn statistics(&self) -> Option<Statistics> {
        // Of rows in a heap little is known.
        let of_segments = || NativeTableProvider::new(self.table.clone()).statistics();
        let mut statistics = of_segments().filter(|_| self.table.has_segments())?.to_inexact();
        let others = self.schema.fields().len() - self.table.schema().fields().len();
        statistics.column_statistics.extend((0..others).map(|_| ColumnStatistics::new_unknown()));
        Some(statistics)
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
        let transactions = Transactions::of_config(state.config());
        let adds_rows = self.change == RowChange::Insert && self.returned.is_none();
        let is_apart =
            matches!(insert_op, InsertOp::Overwrite) || (insert_op == InsertOp::Append && adds_rows);
        // Of a table with indexes, each row that is added has its keys added.
        let has_only_segments = self.table.has_segments() && !self.table.has_indexes();
        if is_apart && has_only_segments && !transactions.are_of_session() {
            return NativeTableProvider::new(self.table.clone()).insert_into(state, input, insert_op).await;
        }
        if insert_op != InsertOp::Append {
            return not_impl_err!(
                "INSERT OVERWRITE as part of a transaction, or of tables with indexes or WITH (storage = 'row'), and REPLACE INTO"
            );
        }
        if matches!(self.change, RowChange::Insert | RowChange::InsertAbsent { .. }) {
            self.schema().logically_equivalent_names_and_types(&input.schema())?;
        }
        let store = self.table.store();
        if self.table.has_segments() && !transactions.is_read_only() {
            // The rows of a table that a prepared statement changes may have been put into segments since.
            transactions.keep_rows(store);
            blocking(|| store.make_changeable(&self.table)).map_err(storage_error)?;
        }
        let transaction = transactions.to_write(store)?;
        let table = self.seen_by(&transaction)?;
        if !table.has_changeable_rows() {
            // Others have put them elsewhere, or were the first to change some, after this transaction has begun.
            return Err(storage_error(StorageError::conflict()));
        }
        let (change, returned) = (self.change.clone(), self.returned.clone());
        let sink = RowSink::new(table, transactions, transaction, change, returned, &input);
        Ok(Arc::new(DataSinkExec::new(input, Arc::new(sink), None)))
    }
}

/// Those filters that a scan of segments can evaluate by itself, which does not know of row ids.
fn of_columns(filters: &[Expr]) -> Vec<Expr> {
    let has_row_id = |filter: &&Expr| filter.column_refs().iter().any(|column| column.name() == ROW_ID);
    let own = filters.iter().filter(|filter| is_evaluated_by_scans(filter) && !has_row_id(filter));
    own.cloned().collect()
}
