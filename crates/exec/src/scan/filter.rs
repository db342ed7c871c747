//! Filters of a query as a reason to skip pages.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column as ColumnExpression;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::snapshot_generation;
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};
use nandina_storage::{ColumnRange, PagePruner, PageRanges};
use parking_lot::Mutex;

use super::conjunction::all_of;

/// The conjunction of a scan's filters, in terms of the table's columns. Dynamic filters among them are looked at
/// anew whenever pages are about to be read.
#[derive(Debug)]
pub(super) struct PageFilter {
    table_schema: SchemaRef,
    filters: Vec<Arc<dyn PhysicalExpr>>,
    columns: Vec<usize>,
    current: Mutex<Option<Generation>>,
}

/// A state of the filters, and what it says about bounds: nothing, if no bound can refute it.
#[derive(Debug, Clone)]
struct Generation {
    number: u64,
    predicate: Option<Arc<PruningPredicate>>,
}

impl PageFilter {
    /// `None` without filters on columns.
    pub fn new(table_schema: SchemaRef, filters: Vec<Arc<dyn PhysicalExpr>>) -> Option<Self> {
        let mut columns: Vec<usize> =
            filters.iter().flat_map(collect_columns).map(|column| column.index()).collect();
        columns.sort_unstable();
        columns.dedup();
        if columns.is_empty() {
            return None;
        }
        Some(Self { table_schema, filters, columns, current: Mutex::new(None) })
    }

    /// Building a predicate is dear, asking for the generation is not.
    fn predicate(&self) -> Option<Arc<PruningPredicate>> {
        // Generations only grow, so that a change of any filter changes the sum.
        let number = self.filters.iter().map(snapshot_generation).fold(0, u64::wrapping_add);
        let mut current = self.current.lock();
        if let Some(generation) = current.as_ref().filter(|generation| generation.number == number) {
            return generation.predicate.clone();
        }
        let expression = all_of(self.filters.iter().cloned());
        // None where no bound can refute the filters: then all pages are read.
        let builder = PruningPredicateBuilder::new().with_file_schema(Arc::clone(&self.table_schema));
        let predicate = builder.build(expression);
        *current = Some(Generation { number, predicate: predicate.clone() });
        predicate
    }
}

impl PagePruner for PageFilter {
    fn columns(&self) -> Vec<usize> {
        self.columns.clone()
    }

    fn keep(&self, ranges: &PageRanges) -> Option<Vec<bool>> {
        let bounds = Bounds { schema: &self.table_schema, ranges };
        match self.predicate()?.prune(&bounds) {
            Ok(keep) => Some(keep),
            Err(error) => {
                log::debug!("no pages are skipped by a filter that cannot be evaluated on bounds: {error}");
                None
            }
        }
    }
}

/// Bounds of pages as DataFusion's pruning asks for them.
struct Bounds<'a> {
    schema: &'a SchemaRef,
    ranges: &'a PageRanges,
}

impl Bounds<'_> {
    fn column(&self, column: &Column) -> Option<&ColumnRange> {
        self.ranges.column(self.schema.index_of(&column.name).ok()?)
    }

    /// Columns without bounds have bounds of type `Null`.
    fn known(bound: &ArrayRef) -> Option<ArrayRef> {
        (bound.data_type() != &DataType::Null).then(|| Arc::clone(bound))
    }
}

impl PruningStatistics for Bounds<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        Self::known(&self.column(column)?.min)
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        Self::known(&self.column(column)?.max)
    }

    fn num_containers(&self) -> usize {
        self.ranges.containers()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        Some(Arc::new(self.column(column)?.nulls.clone()))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(Arc::new(self.ranges.rows.clone()))
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

/// Rewrites a filter on a scan's output columns into one on the table's columns. Dynamic filters stay dynamic.
pub(crate) fn on_table_columns(
    filter: &Arc<dyn PhysicalExpr>,
    projection: &[usize],
) -> Result<Arc<dyn PhysicalExpr>> {
    let rewritten = Arc::clone(filter).transform_down(|expression| {
        let column = expression.downcast_ref::<ColumnExpression>();
        let in_table = column.and_then(|column| Some((column.name(), *projection.get(column.index())?)));
        Ok(match in_table {
            Some((name, index)) => Transformed::yes(Arc::new(ColumnExpression::new(name, index)) as _),
            None => Transformed::no(expression),
        })
    })?;
    Ok(rewritten.data)
}
