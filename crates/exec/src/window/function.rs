//! What kinds of window functions there are, and which columns they look at.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, NullArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::functions_window::nth_value::{first_value_udwf, last_value_udwf};
use datafusion::logical_expr::{WindowFrameBound, WindowFrameUnits, WindowUDF};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::window::{PlainAggregateWindowExpr, StandardWindowExpr, WindowExpr};
use datafusion::physical_plan::windows::WindowUDFExpr;

use super::of_count::OfCount;

/// The functions of one operator.
#[derive(Debug)]
pub struct Functions {
    /// Those whose results follow the rows at a distance.
    pub running: Vec<Arc<dyn WindowExpr>>,
    /// Those whose results are known when a partition has ended.
    pub at_end: Vec<AtEnd>,
    /// Where the result of each function of the plan comes from.
    pub sources: Vec<Source>,
    /// What the running functions look at.
    pub running_columns: LookedAt,
    /// What those look at that need all rows of a partition.
    pub gathered_columns: LookedAt,
}

/// A function of whole partitions.
#[derive(Clone, Debug)]
pub enum AtEnd {
    /// An aggregate whose value is that of all rows alike.
    Aggregate(Arc<dyn WindowExpr>),
    /// The value of the first or of the last row, for all rows alike.
    Edge(Arc<dyn WindowExpr>, Edge),
    /// What follows from a running function and the number of rows.
    OfCount(OfCount),
    /// Anything else.
    Gathered(Arc<dyn WindowExpr>),
}

/// An edge of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    First,
    Last,
}

/// Where a result comes from.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    Running(usize),
    AtEnd(usize),
}

impl Functions {
    /// Sorts the functions of a plan over rows of `schema` by their kinds.
    pub fn new(expressions: &[Arc<dyn WindowExpr>], schema: &SchemaRef) -> Result<Self> {
        let (mut running, mut at_end, mut sources) = (Vec::new(), Vec::new(), Vec::new());
        for expression in expressions {
            if expression.uses_bounded_memory() {
                sources.push(Source::Running(running.len()));
                running.push(Arc::clone(expression));
                continue;
            }
            sources.push(Source::AtEnd(at_end.len()));
            at_end.push(AtEnd::of(Arc::clone(expression), &mut running, schema)?);
        }
        let gathered = at_end.iter().filter_map(|function| match function {
            AtEnd::Gathered(expression) => Some(expression),
            _ => None,
        });
        let gathered_columns = LookedAt::new(gathered, schema);
        let running_columns = LookedAt::new(running.iter(), schema);
        Ok(Self { running, at_end, sources, running_columns, gathered_columns })
    }
}

impl AtEnd {
    /// What kind of function this is. What it takes from the rows as they come is added to `running`.
    fn of(
        expression: Arc<dyn WindowExpr>,
        running: &mut Vec<Arc<dyn WindowExpr>>,
        schema: &SchemaRef,
    ) -> Result<Self> {
        if let Some((of_count, of_rows)) = OfCount::of(&expression, running.len(), schema)? {
            running.push(of_rows);
            return Ok(Self::OfCount(of_count));
        }
        if !is_same_for_all_rows(expression.as_ref()) {
            return Ok(Self::Gathered(expression));
        }
        if expression.as_any().is::<PlainAggregateWindowExpr>() && !may_filter(expression.as_ref()) {
            return Ok(Self::Aggregate(expression));
        }
        Ok(match standard_function(expression.as_ref()) {
            Some(function) if *function == first_value_udwf() => Self::Edge(expression, Edge::First),
            Some(function) if *function == last_value_udwf() => Self::Edge(expression, Edge::Last),
            _ => Self::Gathered(expression),
        })
    }
}

/// The window function behind an expression that is no aggregate.
pub fn standard_function(expression: &dyn WindowExpr) -> Option<&Arc<WindowUDF>> {
    let standard = expression.as_any().downcast_ref::<StandardWindowExpr>()?;
    let function = standard.get_standard_func_expr().as_any().downcast_ref::<WindowUDFExpr>()?;
    Some(function.fun())
}

/// Whether the frame of every row is all of its partition.
fn is_same_for_all_rows(expression: &dyn WindowExpr) -> bool {
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
pub struct LookedAt {
    is_needed: Vec<bool>,
    schema: SchemaRef,
}

impl LookedAt {
    fn new<'a>(expressions: impl Iterator<Item = &'a Arc<dyn WindowExpr>>, schema: &SchemaRef) -> Self {
        let (mut needed, mut needs_all) = (HashSet::new(), false);
        for expression in expressions {
            // Which columns a filter looks at cannot be asked either.
            needs_all |= may_filter(expression.as_ref());
            let order_by = expression.order_by().iter().map(|order| Arc::clone(&order.expr));
            let looked_at = expression.expressions().into_iter().chain(order_by);
            needed.extend(looked_at.flat_map(|part| collect_columns(&part)).map(|column| column.index()));
        }
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

    /// These columns of the rows, not sharing texts with others.
    pub fn of(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let count = rows.num_rows();
        let column = |(column, is_needed): (&ArrayRef, &bool)| -> ArrayRef {
            if *is_needed { unshared(column) } else { Arc::new(NullArray::new(count)) }
        };
        let columns = rows.columns().iter().zip(&self.is_needed).map(column).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(count));
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
