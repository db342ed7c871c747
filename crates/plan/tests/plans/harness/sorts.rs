//! A sort of any input, ours and DataFusion's, and how their results are compared.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::physical_expr::expressions::col;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, collect};
use nandina_exec::sort::ExternalSortExec;

use super::plain;
use super::rows::{assert_same_rows, row_count};
use super::tables::Table;

/// All directions of a column.
pub const DIRECTIONS: [SortOptions; 4] = [
    SortOptions { descending: false, nulls_first: false },
    SortOptions { descending: false, nulls_first: true },
    SortOptions { descending: true, nulls_first: false },
    SortOptions { descending: true, nulls_first: true },
];

/// A sort by the first columns of its input, in these directions.
#[derive(Clone, Debug)]
pub struct Sort {
    pub directions: Vec<SortOptions>,
    pub fetch: Option<usize>,
    /// Every partition by itself, instead of all to one.
    pub by_partition: bool,
}

impl Sort {
    /// Of everything, by one column.
    pub fn by(direction: SortOptions) -> Self {
        Self { directions: vec![direction], fetch: None, by_partition: false }
    }

    /// Of the first rows only.
    pub fn first(self, rows: usize) -> Self {
        Self { fetch: Some(rows), ..self }
    }

    /// Of every partition by itself.
    pub fn by_partition(self) -> Self {
        Self { by_partition: true, ..self }
    }

    fn ordering(&self, schema: &SchemaRef) -> LexOrdering {
        let columns = self.directions.iter().zip(schema.fields()).map(|(&options, field)| PhysicalSortExpr {
            expr: col(field.name(), schema).expect("a column"),
            options,
        });
        LexOrdering::new(columns).expect("columns")
    }

    fn datafusion(&self, input: Arc<dyn ExecutionPlan>) -> SortExec {
        SortExec::new(self.ordering(&input.schema()), input)
            .with_fetch(self.fetch)
            .with_preserve_partitioning(self.by_partition)
    }

    /// Our plan over `input`.
    pub fn plan(&self, input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let ours = ExternalSortExec::replacing(&self.datafusion(input)).expect("a plan");
        Arc::new(ours.expect("a sort that is ours"))
    }

    /// What DataFusion makes of a table. Its top k takes lists for smaller than its sort does, so it sorts all.
    pub async fn right_rows(&self, table: &Table) -> Vec<RecordBatch> {
        let sort = self.datafusion(table.scan(1)).with_fetch(None);
        let all = collect(Arc::new(sort), plain().task_ctx()).await.expect("rows");
        let mut left = self.fetch.unwrap_or(usize::MAX);
        let first = all.into_iter().map(|batch| {
            let rows = left.min(batch.num_rows());
            left -= rows;
            batch.slice(0, rows)
        });
        first.collect()
    }

    /// The keys of all rows, as they come.
    pub fn keys(&self, batches: &[RecordBatch]) -> Vec<OwnedRow> {
        let Some(first) = batches.first() else { return Vec::new() };
        let columns =
            |batch: &RecordBatch| -> Vec<ArrayRef> { batch.columns()[..self.directions.len()].to_vec() };
        let fields = columns(first)
            .into_iter()
            .zip(&self.directions)
            .map(|(column, &options)| SortField::new_with_options(column.data_type().clone(), options));
        let converter = RowConverter::new(fields.collect()).expect("a converter");
        let keys = batches.iter().flat_map(|batch| {
            let keys = converter.convert_columns(&columns(batch)).expect("keys");
            keys.iter().map(|key| key.owned()).collect::<Vec<_>>()
        });
        keys.collect()
    }

    /// Fails unless the rows come in DataFusion's order, and are its rows: with a limit, rows of the table, once each.
    pub fn assert_right(&self, ours: &[RecordBatch], right: &[RecordBatch], table: &Table, what: &str) {
        assert_eq!(row_count(ours), row_count(right), "{what}");
        let (our_keys, right_keys) = (self.keys(ours), self.keys(right));
        if let Some(at) = (0..our_keys.len()).find(|&at| our_keys[at] != right_keys[at]) {
            panic!("{what}: row {at} has the key {:?} instead of {:?}", our_keys[at], right_keys[at]);
        }
        if self.fetch.is_none() {
            return assert_same_rows(ours, right, what);
        }
        let whole = super::rows::rows(&table.batches);
        let mut some = super::rows::rows(ours);
        some.dedup();
        assert_eq!(some.len(), row_count(ours), "{what}: a row came twice");
        assert!(
            some.iter().all(|row| whole.binary_search(row).is_ok()),
            "{what}: a row that was never there"
        );
    }
}
