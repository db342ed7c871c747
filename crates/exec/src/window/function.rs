//! What kinds of window functions there are, and which columns they look at.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, NullArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::logical_expr::{WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::window::{PlainAggregateWindowExpr, WindowExpr};

use super::expression::{Edge, edge_of, is_same_for_all_rows, may_filter, uses_frame};
use super::of_count::OfCount;
use super::peers::Peers;
use super::running::Running;

/// The functions of one operator.
#[derive(Debug)]
pub struct Functions {
    /// Those whose results follow the rows at a distance.
    pub running: Vec<Running>,
    /// Those whose results are known when a partition has ended.
    pub at_end: Vec<AtEnd>,
    /// Where the result of each function of the plan comes from.
    pub sources: Vec<Source>,
    /// What DataFusion's running functions look at.
    pub running_columns: ReferencedColumns,
    /// If some of those are concerned with groups of peers: which rows are.
    pub groups: Option<Groups>,
    /// What those look at that need all rows of a partition.
    pub gathered_columns: ReferencedColumns,
}

/// How running functions want to see peers.
#[derive(Clone, Debug)]
pub struct Groups {
    pub peers: Peers,
    /// Whether a row must not be seen before all its peers have come.
    pub are_shown_whole: bool,
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
            if let Some(function) = Running::of(expression)? {
                sources.push(Source::Running(running.len()));
                running.push(function);
                continue;
            }
            sources.push(Source::AtEnd(at_end.len()));
            at_end.push(AtEnd::of(Arc::clone(expression), &mut running, schema)?);
        }
        let gathered = at_end.iter().filter_map(|function| match function {
            AtEnd::Gathered(expression) => Some(expression),
            _ => None,
        });
        let gathered_columns = ReferencedColumns::new(gathered, schema);
        let streamed = || streamed(&running).map(|(_, expression)| expression);
        let running_columns = ReferencedColumns::new(streamed(), schema);
        let groups = Groups::of(streamed())?;
        Ok(Self { running, at_end, sources, running_columns, groups, gathered_columns })
    }

    /// DataFusion's running functions, and where they stand among the running ones.
    pub fn streamed(&self) -> impl Iterator<Item = (usize, &Arc<dyn WindowExpr>)> {
        streamed(&self.running)
    }
}

fn streamed(running: &[Running]) -> impl Iterator<Item = (usize, &Arc<dyn WindowExpr>)> {
    running.iter().enumerate().filter_map(|(place, function)| match function {
        Running::Streamed(expression) => Some((place, expression)),
        Running::Cumulative(_) => None,
    })
}

impl Groups {
    /// What the functions of one operator want. All of them that have frames of peers have the same order, but for
    /// columns by which partitions are told apart.
    fn of<'a>(functions: impl Iterator<Item = &'a Arc<dyn WindowExpr>>) -> Result<Option<Self>> {
        let mut groups: Option<Self> = None;
        for function in functions {
            let frame = function.get_window_frame();
            let ends_ahead = matches!(frame.end_bound, WindowFrameBound::Following(_));
            if frame.units == WindowFrameUnits::Rows || ends_ahead || !uses_frame(function.as_ref())? {
                continue;
            }
            let are_shown_whole = frame.units == WindowFrameUnits::Range
                && matches!(frame.end_bound, WindowFrameBound::Preceding(_));
            let groups = groups
                .get_or_insert_with(|| Self { peers: Peers::of(function.as_ref()), are_shown_whole: false });
            groups.are_shown_whole |= are_shown_whole;
        }
        Ok(groups)
    }
}

impl AtEnd {
    /// What kind of function this is. What it takes from the rows as they come is added to `running`.
    fn of(expression: Arc<dyn WindowExpr>, running: &mut Vec<Running>, schema: &SchemaRef) -> Result<Self> {
        if let Some((of_count, place)) = OfCount::of(&expression, running.len(), schema)? {
            running.push(place);
            return Ok(Self::OfCount(of_count));
        }
        if !is_same_for_all_rows(expression.as_ref()) {
            return Ok(Self::Gathered(expression));
        }
        if expression.as_any().is::<PlainAggregateWindowExpr>() && !may_filter(expression.as_ref()) {
            return Ok(Self::Aggregate(expression));
        }
        Ok(match edge_of(expression.as_ref()) {
            Some(edge) => Self::Edge(expression, edge),
            None => Self::Gathered(expression),
        })
    }
}

/// The columns that functions look at. All others are replaced by nulls without memory, so that the places of columns
/// stay what expressions believe.
#[derive(Debug)]
pub struct ReferencedColumns {
    is_needed: Vec<bool>,
    schema: SchemaRef,
}

impl ReferencedColumns {
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

    /// These columns of the rows.
    pub fn of(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        let count = rows.num_rows();
        let column = |(column, is_needed): (&ArrayRef, &bool)| -> ArrayRef {
            if *is_needed { ArrayRef::clone(column) } else { Arc::new(NullArray::new(count)) }
        };
        let columns = rows.columns().iter().zip(&self.is_needed).map(column).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}
