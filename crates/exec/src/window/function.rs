//! What kinds of window functions there are, and which columns they look at.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, NullArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::logical_expr::{WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::window::{PlainAggregateWindowExpr, WindowExpr};

/// The functions of one operator.
#[derive(Debug)]
pub struct Functions {
    /// Those whose results follow the rows at a distance.
    pub running: Vec<Arc<dyn WindowExpr>>,
    /// Those whose results are known when a partition has ended.
    pub at_end: Vec<AtEnd>,
    /// Where the result of each function of the plan comes from.
    pub sources: Vec<Source>,
    columns: LookedAt,
}

/// A function of whole partitions.
#[derive(Clone, Debug)]
pub enum AtEnd {
    /// An aggregate whose value is that of all rows alike.
    Aggregate(Arc<dyn WindowExpr>),
    /// Anything else.
    Gathered(Arc<dyn WindowExpr>),
}

/// Where a result comes from.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    Running(usize),
    AtEnd(usize),
}

impl AtEnd {
    pub fn expression(&self) -> &Arc<dyn WindowExpr> {
        match self {
            Self::Aggregate(expression) | Self::Gathered(expression) => expression,
        }
    }
}

impl Functions {
    /// Sorts the functions of a plan over rows of `schema` by their kinds.
    pub fn new(expressions: &[Arc<dyn WindowExpr>], schema: &SchemaRef) -> Self {
        let (mut running, mut at_end, mut sources) = (Vec::new(), Vec::new(), Vec::new());
        for expression in expressions {
            if expression.uses_bounded_memory() {
                sources.push(Source::Running(running.len()));
                running.push(Arc::clone(expression));
                continue;
            }
            sources.push(Source::AtEnd(at_end.len()));
            let expression = Arc::clone(expression);
            at_end.push(if is_aggregate_of_partition(expression.as_ref()) {
                AtEnd::Aggregate(expression)
            } else {
                AtEnd::Gathered(expression)
            });
        }
        Self { running, at_end, sources, columns: LookedAt::new(expressions, schema) }
    }

    /// The rows with those columns only that functions look at, not sharing memory with others.
    pub fn looked_at(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        self.columns.of(batch)
    }
}

/// Whether the frame of every row is all of its partition, and all of its rows count.
fn is_aggregate_of_partition(expression: &dyn WindowExpr) -> bool {
    if !expression.as_any().is::<PlainAggregateWindowExpr>() || may_filter(expression) {
        return false;
    }
    let frame = expression.get_window_frame();
    let is_end = |bound: &WindowFrameBound| match bound {
        // Without an order all rows are peers of the current one.
        WindowFrameBound::CurrentRow => {
            frame.units == WindowFrameUnits::Range && expression.order_by().is_empty()
        }
        bound => bound.is_unbounded(),
    };
    is_end(&frame.start_bound) && is_end(&frame.end_bound)
}

/// Whether a function may have a `FILTER`. Expressions do not tell but through [`Debug`](std::fmt::Debug).
fn may_filter(expression: &dyn WindowExpr) -> bool {
    format!("{expression:?}").contains("filter: Some(")
}

/// The columns that functions look at. All others are replaced by nulls without memory, so that the places of columns
/// stay what expressions believe.
#[derive(Debug)]
struct LookedAt {
    is_needed: Vec<bool>,
    schema: SchemaRef,
}

impl LookedAt {
    fn new(expressions: &[Arc<dyn WindowExpr>], schema: &SchemaRef) -> Self {
        // Which columns a filter looks at cannot be asked either.
        let needs_all = expressions.iter().any(|expression| may_filter(expression.as_ref()));
        let looked_at = expressions.iter().flat_map(|expression| {
            let order_by = expression.order_by().iter().map(|order| Arc::clone(&order.expr));
            expression.expressions().into_iter().chain(order_by)
        });
        let needed: HashSet<usize> =
            looked_at.flat_map(|part| collect_columns(&part)).map(|column| column.index()).collect();
        let is_needed: Vec<bool> =
            (0..schema.fields().len()).map(|column| needs_all || needed.contains(&column)).collect();
        let field = |(field, is_needed): (&Arc<Field>, &bool)| {
            if *is_needed {
                Arc::clone(field)
            } else {
                Arc::new(Field::new(field.name(), DataType::Null, true))
            }
        };
        let fields: Vec<Arc<Field>> = schema.fields().iter().zip(&is_needed).map(field).collect();
        Self { is_needed, schema: Arc::new(Schema::new(fields)) }
    }

    fn of(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let column = |(column, is_needed): (&ArrayRef, &bool)| -> ArrayRef {
            if *is_needed { unshared(column) } else { Arc::new(NullArray::new(rows)) }
        };
        let columns = batch.columns().iter().zip(&self.is_needed).map(column).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

/// Views without the texts that only other rows refer to: a few rows that are kept for long would keep them all.
pub fn unshared(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => ArrayRef::clone(column),
    }
}
