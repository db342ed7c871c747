//! Filters of a query as one expression, for scans that are not ours.
//!
//! A Parquet scan evaluates each term of a conjunction in a pass of its own over a row group, whether it turns rows away
//! or not, and ends the query where a term cannot be computed. As one expression, terms are evaluated one after the
//! other on each batch, and those that only joins and top-k sent are left out where they do not pay or fail: a join
//! below their sender may be there to turn such rows away.

use std::fmt::{self, Display, Formatter};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use nandina_pages::DictionaryParts;

use super::conjunction::{Conjunction, Rows, all_of};

/// True for rows that pass all filters.
#[derive(Debug)]
pub struct AdaptiveFilter {
    filters: Vec<Arc<dyn PhysicalExpr>>,
    /// Whether it is true for other rows, too, where those that pass lie scattered.
    is_coarse: bool,
    /// Known with the first batch.
    terms: OnceLock<Conjunction>,
}

impl AdaptiveFilter {
    /// The conjunction of `filters`, of which those that may change are optional.
    pub fn new(filters: Vec<Arc<dyn PhysicalExpr>>) -> Self {
        Self { filters, is_coarse: false, terms: OnceLock::new() }
    }

    /// The same for a scan whose memory is short: which rows of a row group pass is kept there as a list of runs, 16 bytes
    /// for each, which for scattered rows is more than the columns take. Another operator has to evaluate the filters again.
    pub fn coarse(filters: Vec<Arc<dyn PhysicalExpr>>) -> Self {
        Self { is_coarse: true, ..Self::new(filters) }
    }
}

/// Rows for a run of those that pass and one of those that do not, at least, or else all rows are handed on.
const SCATTERED_ROWS: usize = 8;

fn is_scattered(passing: &BooleanArray) -> bool {
    passing.values().set_slices().count() > passing.len() / SCATTERED_ROWS
}

impl Rows for &RecordBatch {
    fn count(&self) -> usize {
        self.num_rows()
    }

    fn column(&mut self, column: usize) -> Result<ArrayRef> {
        let array = self.columns().get(column);
        array
            .cloned()
            .ok_or_else(|| internal_datafusion_err!("a filter on column {column} of {}", self.num_columns()))
    }

    fn dictionary(&mut self, _: usize) -> Result<Option<Arc<DictionaryParts>>> {
        Ok(None)
    }
}

impl PhysicalExpr for AdaptiveFilter {
    fn data_type(&self, _: &Schema) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn nullable(&self, _: &Schema) -> Result<bool> {
        Ok(false)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let terms = self.terms.get_or_init(|| Conjunction::new(batch.schema(), self.filters.clone()));
        let mut rows = batch;
        let passing = terms.passing(&mut rows)?.filter(|passing| !self.is_coarse || !is_scattered(passing));
        let all = || BooleanArray::new(BooleanBuffer::new_set(batch.num_rows()), None);
        Ok(ColumnarValue::Array(Arc::new(passing.unwrap_or_else(all))))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.filters.iter().collect()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(Arc::new(Self { is_coarse: self.is_coarse, ..Self::new(children) }))
    }

    /// What bounds can be held against.
    fn snapshot(&self) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        Ok(Some(all_of(self.filters.iter().cloned())))
    }

    fn fmt_sql(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

impl Display for AdaptiveFilter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(&all_of(self.filters.iter().cloned()), f)
    }
}

impl PartialEq for AdaptiveFilter {
    fn eq(&self, other: &Self) -> bool {
        self.filters == other.filters && self.is_coarse == other.is_coarse
    }
}

impl Eq for AdaptiveFilter {}

impl Hash for AdaptiveFilter {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.filters.hash(hasher);
    }
}
