//! Filters that a Parquet scan has promised to evaluate are evaluated, or the query fails.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{Result, plan_err};
use datafusion::datasource::physical_plan::parquet::can_expr_be_pushed_down_with_schemas;
use datafusion::physical_expr::expressions::lit;
use datafusion::physical_expr::{PhysicalExpr, conjunction, split_conjunction};
use datafusion::physical_expr_adapter::{
    DefaultPhysicalExprAdapterFactory, PhysicalExprAdapter, PhysicalExprAdapterFactory,
};
use nandina_exec::scan::{AdaptiveFilter, is_dynamic};

/// Adapts expressions to files. What a scan promises to filter by follows from the types of the table; where a column is
/// a list or a struct in one of the files, that file's reader would leave the filter out without a word. Here it is
/// refused, or left out by itself if nothing depends on it.
#[derive(Debug)]
pub(crate) struct AllOrNothing {
    adapters: Arc<dyn PhysicalExprAdapterFactory>,
}

#[derive(Debug)]
struct Adapter {
    adapter: Arc<dyn PhysicalExprAdapter>,
    file: SchemaRef,
}

impl AllOrNothing {
    /// Over other adapters, or DataFusion's.
    pub fn over(adapters: Option<Arc<dyn PhysicalExprAdapterFactory>>) -> Self {
        Self { adapters: adapters.unwrap_or_else(|| Arc::new(DefaultPhysicalExprAdapterFactory)) }
    }
}

impl PhysicalExprAdapterFactory for AllOrNothing {
    fn create(&self, table: SchemaRef, file: SchemaRef) -> Result<Arc<dyn PhysicalExprAdapter>> {
        let adapter = self.adapters.create(table, Arc::clone(&file))?;
        Ok(Arc::new(Adapter { adapter, file }))
    }
}

impl PhysicalExprAdapter for Adapter {
    fn rewrite(&self, expression: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        // Projections come by here, too.
        let is_filter = split_conjunction(&expression).iter().any(|term| term.is::<AdaptiveFilter>());
        let adapted = self.adapter.rewrite(expression)?;
        if !is_filter {
            return Ok(adapted);
        }
        let terms = split_conjunction(&adapted).into_iter().map(|term| self.possible(term));
        Ok(conjunction(terms.collect::<Result<Vec<_>>>()?))
    }
}

impl Adapter {
    /// `term` as far as this file's reader evaluates it.
    fn possible(&self, term: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        if can_expr_be_pushed_down_with_schemas(term, &self.file) {
            return Ok(Arc::clone(term));
        }
        let filters = if term.is::<AdaptiveFilter>() { term.children() } else { vec![term] };
        let (possible, impossible): (Vec<_>, Vec<_>) = filters
            .into_iter()
            .cloned()
            .partition(|filter| can_expr_be_pushed_down_with_schemas(filter, &self.file));
        match impossible.iter().find(|filter| !is_dynamic(filter)) {
            Some(filter) => plan_err!(
                "the filter {filter} cannot be evaluated on one of the files, where a column that it looks at is a list \
                 or a struct, and of another type in the table; leave the types to the files, or declare the same ones"
            ),
            None if possible.is_empty() => Ok(lit(true)),
            None => Ok(Arc::new(AdaptiveFilter::new(possible))),
        }
    }
}
