//! Filters of a query, evaluated on the rows of a table's page before the other columns are decoded.

use std::error::Error;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;
use nandina_pages::DictionaryParts;
use nandina_storage::{PageColumns, RowFilter};

use super::conjunction::{Conjunction, Rows};
use super::storage_error;

/// The conjunction of a scan's filters, in terms of the table's columns.
#[derive(Debug)]
pub(super) struct TableRowFilter {
    filters: Conjunction,
    columns: Vec<usize>,
}

impl TableRowFilter {
    /// `None` without filters.
    pub fn new(table_schema: SchemaRef, filters: Vec<Arc<dyn PhysicalExpr>>) -> Option<Self> {
        if filters.is_empty() {
            return None;
        }
        let mut columns: Vec<usize> =
            filters.iter().flat_map(collect_columns).map(|column| column.index()).collect();
        columns.sort_unstable();
        columns.dedup();
        Some(Self { filters: Conjunction::new(table_schema, filters), columns })
    }
}

impl RowFilter for TableRowFilter {
    fn columns(&self) -> Vec<usize> {
        self.columns.clone()
    }

    fn keep(&self, page: &mut PageColumns<'_>) -> Result<Option<BooleanArray>, Box<dyn Error + Send + Sync>> {
        self.filters.passing(page).map_err(Into::into)
    }
}

impl Rows for PageColumns<'_> {
    fn count(&self) -> usize {
        self.rows()
    }

    fn column(&mut self, column: usize) -> Result<ArrayRef> {
        PageColumns::column(self, column).map_err(storage_error)
    }

    fn dictionary(&mut self, column: usize) -> Result<Option<Arc<DictionaryParts>>> {
        PageColumns::dictionary(self, column).map_err(storage_error)
    }
}
