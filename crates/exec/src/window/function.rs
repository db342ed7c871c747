//! What kinds of window functions there are, and which columns they look at.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, NullArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{DataFusionError, Result};
use datafusion::functions_window::lead_lag::{lag_udwf, lead_udwf};
use datafusion::functions_window::nth_value::{first_value_udwf, last_value_udwf};
use datafusion::logical_expr::{WindowFrameBound, WindowFrameUnits, WindowUDF};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::window::{PlainAggregateWindowExpr, StandardWindowExpr, WindowExpr};
use datafusion::physical_plan::windows::WindowUDFExpr;

use super::cumulative::Cumulative;
use super::of_count::OfCount;
use super::peers::Peers;

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
    pub running_columns: LookedAt,
    /// If some of those are concerned with groups of peers: which rows are.
    pub groups: Option<Groups>,
    /// What those look at that need all rows of a partition.
    pub gathered_columns: LookedAt,
}

/// A function whose results follow the rows.
#[derive(Clone, Debug)]
pub enum Running {
    /// DataFusion's, over the rows that a frame may reach.
    Streamed(Arc<dyn WindowExpr>),
    /// Ours, of all rows so far.
    Cumulative(Cumulative),
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
        let gathered_columns = LookedAt::new(gathered, schema);
        let streamed = || streamed(&running).map(|(_, expression)| expression);
        let running_columns = LookedAt::new(streamed(), schema);
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

impl Running {
    /// The function, if its results follow the rows.
    fn of(expression: &Arc<dyn WindowExpr>) -> Result<Option<Self>> {
        if let Some(function) = Cumulative::of(expression)? {
            return Ok(Some(Self::Cumulative(function)));
        }
        let follows = expression.uses_bounded_memory() && !looks_ahead_for_values(expression.as_ref())?;
        Ok(follows.then(|| Self::Streamed(Arc::clone(expression))))
    }

    /// The type of results.
    pub fn data_type(&self) -> Result<DataType> {
        match self {
            Self::Streamed(expression) => Ok(expression.field()?.data_type().clone()),
            Self::Cumulative(function) => function.data_type(),
        }
    }
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

/// Fails for functions that DataFusion plans, but cannot compute.
pub fn refuse_without_argument(expression: &dyn WindowExpr) -> Result<()> {
    match edge_of(expression) {
        Some(_) if expression.expressions().is_empty() => {
            Err(DataFusionError::Plan(format!("{} needs an argument: whose value?", expression.name())))
        }
        _ => Ok(()),
    }
}

/// Which value of its frame a function is, if it is the first or the last one.
pub fn edge_of(expression: &dyn WindowExpr) -> Option<Edge> {
    match standard_function(expression)? {
        function if *function == first_value_udwf() => Some(Edge::First),
        function if *function == last_value_udwf() => Some(Edge::Last),
        _ => None,
    }
}

/// Whether the frame of a window matters to a function.
fn uses_frame(expression: &dyn WindowExpr) -> Result<bool> {
    match expression.as_any().downcast_ref::<StandardWindowExpr>() {
        Some(standard) => Ok(standard.get_standard_func_expr().create_evaluator()?.uses_window_frame()),
        None => Ok(true),
    }
}

/// Whether a function is `lead … IGNORE NULLS`. While rows are still to come, DataFusion's has looked as far as there are
/// rows, and stops at the first null behind them; of a whole partition it is right.
fn looks_ahead_for_values(expression: &dyn WindowExpr) -> Result<bool> {
    let Some(standard) = expression.as_any().downcast_ref::<StandardWindowExpr>() else { return Ok(false) };
    let shifts = standard_function(expression).is_some_and(|of| *of == lead_udwf() || *of == lag_udwf());
    // As with filters, expressions do not tell but this way.
    if !shifts || !format!("{standard:?}").contains("ignore_nulls: true") {
        return Ok(false);
    }
    // Either may have a negative distance, and then does what the other one does.
    Ok(!standard.get_standard_func_expr().create_evaluator()?.is_causal())
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
pub fn may_filter(expression: &dyn WindowExpr) -> bool {
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
