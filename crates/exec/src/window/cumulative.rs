//! Functions of all rows so far, which need one value or an accumulator, however many rows there are: the number of rows up
//! to the last peer of a row, which `cume_dist` follows from; aggregates, `first_value` and `last_value` of frames that
//! begin with the partition and end with the current row, among them filling gaps with the last value that is not null.
//!
//! ```text
//!   rows          a a a b │ b b b c d d      (batches; letters are keys)
//!   groups ended    0 .. 3 │ 0 .. 3, 4
//!   results        3 3 3 - │ 7 7 7 7 8 - -    missing results follow when the group ends, as one value
//! ```

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, UInt64Array, new_null_array};
use arrow::compute::{interleave, take};
use arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{Accumulator, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::window::{PlainAggregateWindowExpr, StandardWindowExpr, WindowExpr};

use super::expression::{Edge, edge_of, may_filter};
use super::peers::Peers;
use super::results::Results;
use crate::batch::with_own_buffers;

/// A function of the rows so far.
#[derive(Clone, Debug)]
pub struct Cumulative {
    what: What,
    /// What else belongs to a row's frame; `None` if frames end with the row.
    peers: Option<Peers>,
}

#[derive(Clone, Debug)]
enum What {
    /// The number of rows.
    Rows,
    Value(Value),
    Aggregate(Arc<dyn WindowExpr>),
}

/// The first or the last value.
#[derive(Clone, Debug)]
struct Value {
    function: Arc<dyn WindowExpr>,
    edge: Edge,
    ignores_nulls: bool,
}

/// The state of one partition.
#[derive(Debug)]
pub struct State {
    peers: Option<Peers>,
    rows: usize,
    /// The last of them, whose results are not known yet.
    open_rows: usize,
    /// The first or last value of those rows, as one row; `None` if there is none.
    value: Option<ArrayRef>,
    /// Of an aggregate: all rows that have arrived, more peers or not.
    accumulator: Option<Box<dyn Accumulator>>,
    accumulator_bytes: usize,
    measured_rows: usize,
}

impl Cumulative {
    /// The number of rows up to the last peer of each, in the order of `function`.
    pub fn rows_up_to_peers(function: &dyn WindowExpr) -> Self {
        Self { what: What::Rows, peers: Some(Peers::of(function)) }
    }

    /// If `function` is one of the rows so far: that.
    pub fn of(function: &Arc<dyn WindowExpr>) -> Result<Option<Self>> {
        let frame = function.get_window_frame();
        if !frame.start_bound.is_unbounded() || frame.end_bound != WindowFrameBound::CurrentRow {
            return Ok(None);
        }
        let what = if let Some(edge) = edge_of(function.as_ref()) {
            let ignores_nulls = ignores_nulls(function.as_ref(), edge)?;
            What::Value(Value { function: Arc::clone(function), edge, ignores_nulls })
        } else if function.as_any().is::<PlainAggregateWindowExpr>() && !may_filter(function.as_ref()) {
            What::Aggregate(Arc::clone(function))
        } else {
            return Ok(None);
        };
        let ends_with_row = frame.units == WindowFrameUnits::Rows;
        let peers = (!ends_with_row).then(|| Peers::of(function.as_ref()));
        Ok(Some(Self { what, peers }))
    }

    /// The type of results.
    pub fn data_type(&self) -> Result<DataType> {
        match &self.what {
            What::Rows => Ok(DataType::UInt64),
            What::Value(Value { function, .. }) | What::Aggregate(function) => {
                Ok(function.field()?.data_type().clone())
            }
        }
    }

    /// The state at the beginning of a partition.
    pub fn begin(&self) -> Result<State> {
        let aggregate = match &self.what {
            What::Aggregate(function) => function.as_any().downcast_ref::<PlainAggregateWindowExpr>(),
            What::Rows | What::Value(_) => None,
        };
        let accumulator =
            aggregate.map(|plain| plain.get_aggregate_expr().create_accumulator()).transpose()?;
        Ok(State {
            peers: self.peers.clone(),
            rows: 0,
            open_rows: 0,
            value: None,
            accumulator,
            accumulator_bytes: 0,
            measured_rows: 0,
        })
    }

    /// Consumes further rows, and puts the results that are known by now into `results`.
    pub fn add(&self, state: &mut State, rows: &RecordBatch, results: &mut Results) -> Result<()> {
        let ends = match &mut state.peers {
            Some(peers) => peers.ends(rows)?,
            None => (0..=rows.num_rows()).collect(),
        };
        match &self.what {
            What::Rows => count(state, &ends, results),
            What::Value(value) => value.add(state, rows, &ends, results)?,
            What::Aggregate(function) => accumulate(function.as_ref(), state, rows, &ends, results)?,
        }
        state.rows += rows.num_rows();
        match ends.last() {
            Some(last) => state.open_rows = rows.num_rows() - last,
            None => state.open_rows += rows.num_rows(),
        }
        state.measure();
        Ok(())
    }

    /// The results that are missing when the partition has ended.
    pub fn end(&self, mut state: State, results: &mut Results) -> Result<()> {
        if state.open_rows == 0 {
            return Ok(());
        }
        let value = match (&self.what, &state.value, &mut state.accumulator) {
            (What::Rows, ..) => ScalarValue::from(state.rows as u64),
            (What::Value(_), Some(value), _) => ScalarValue::try_from_array(value.as_ref(), 0)?,
            (What::Aggregate(_), _, Some(accumulator)) => accumulator.evaluate()?,
            (What::Value(_) | What::Aggregate(_), ..) => ScalarValue::try_from(&self.data_type()?)?,
        };
        results.push_constant(value, state.open_rows);
        Ok(())
    }
}

impl State {
    /// Bytes that are kept.
    pub fn bytes(&self) -> usize {
        self.accumulator_bytes + self.value.as_ref().map_or(0, |value| value.get_array_memory_size())
    }

    /// Asks the accumulator how much it keeps. Some look at all values that they have for that, so it is done whenever a
    /// sixteenth more rows have come.
    fn measure(&mut self) {
        if self.rows >= self.measured_rows + self.measured_rows / 16 {
            self.measured_rows = self.rows;
            self.accumulator_bytes = self.accumulator.as_ref().map_or(0, |accumulator| accumulator.size());
        }
    }
}

/// The rows of each group that has ended, and where it ended; without the first one, part of which may have come before.
fn groups(ends: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    ends.iter().zip(ends.iter().skip(1)).map(|(start, end)| (end - start, *end))
}

fn count(state: &State, ends: &[usize], results: &mut Results) {
    let Some(first) = ends.first() else { return };
    let up_to = |end: usize| (state.rows + end) as u64;
    results.push_constant(ScalarValue::from(up_to(*first)), state.open_rows + first);
    let counts = groups(ends).flat_map(|(rows, end)| std::iter::repeat_n(up_to(end), rows));
    results.push(Arc::new(UInt64Array::from_iter_values(counts)));
}

fn accumulate(
    function: &dyn WindowExpr,
    state: &mut State,
    rows: &RecordBatch,
    ends: &[usize],
    results: &mut Results,
) -> Result<()> {
    let Some(accumulator) = &mut state.accumulator else { return Ok(()) };
    let arguments = function.evaluate_args(rows)?;
    let mut taken_in = 0;
    let mut push = |accumulator: &mut Box<dyn Accumulator>, end: usize| {
        let (start, more) = (taken_in, end - taken_in);
        taken_in = end;
        if more == 0 {
            return Ok(());
        }
        let arguments: Vec<_> = arguments.iter().map(|values| values.slice(start, more)).collect();
        accumulator.update_batch(&arguments)
    };
    if let Some(first) = ends.first() {
        push(accumulator, *first)?;
        if state.open_rows + first > 0 {
            results.push_constant(accumulator.evaluate()?, state.open_rows + first);
        }
        let mut values = Vec::with_capacity(rows.num_rows());
        for (peers, end) in groups(ends) {
            push(accumulator, end)?;
            values.extend(std::iter::repeat_n(accumulator.evaluate()?, peers));
        }
        if !values.is_empty() {
            results.push(ScalarValue::iter_to_array(values)?);
        }
    }
    push(accumulator, rows.num_rows())
}

impl Value {
    fn add(
        &self,
        state: &mut State,
        rows: &RecordBatch,
        ends: &[usize],
        results: &mut Results,
    ) -> Result<()> {
        let Some(values) = self.function.evaluate_args(rows)?.into_iter().next() else { return Ok(()) };
        let before = state.value.clone().unwrap_or_else(|| new_null_array(values.data_type(), 1));
        let after = self.places(values.as_ref(), state.value.is_some());
        let after_rows = |rows: usize| after[rows];
        let sources = [before.as_ref(), values.as_ref()];
        if let Some(first) = ends.first() {
            let value = ScalarValue::try_from_array(&interleave(&sources, &[after_rows(*first)])?, 0)?;
            results.push_constant(value, state.open_rows + first);
            let places: Vec<_> =
                groups(ends).flat_map(|(rows, end)| std::iter::repeat_n(after_rows(end), rows)).collect();
            if !places.is_empty() {
                results.push(interleave(&sources, &places)?);
            }
        }
        if let (1, last) = after_rows(rows.num_rows()) {
            let row = UInt64Array::from_iter_values([last as u64]);
            state.value = Some(with_own_buffers(&take(values.as_ref(), &row, None)?)?);
        }
        Ok(())
    }

    /// Where the value stands after none of the rows, after the first one, and so on: `(0, 0)` is where it stood before,
    /// `(1, n)` the `n`-th of these rows.
    fn places(&self, values: &dyn Array, is_known: bool) -> Vec<(usize, usize)> {
        let (mut place, mut is_known) = ((0, 0), is_known);
        let after = (0..values.len()).map(|row| {
            let counts = !self.ignores_nulls || values.is_valid(row);
            if counts && (self.edge == Edge::Last || !is_known) {
                (place, is_known) = ((1, row), true);
            }
            place
        });
        std::iter::once((0, 0)).chain(after).collect()
    }
}

/// Whether a function of values ignores nulls. Expressions do not show it; its value of a null and a number does.
fn ignores_nulls(function: &dyn WindowExpr, edge: Edge) -> Result<bool> {
    let Some(standard) = function.as_any().downcast_ref::<StandardWindowExpr>() else { return Ok(false) };
    let values: ArrayRef = Arc::new(match edge {
        Edge::First => Int64Array::from(vec![None, Some(1)]),
        Edge::Last => Int64Array::from(vec![Some(1), None]),
    });
    let mut evaluator = standard.get_standard_func_expr().create_evaluator()?;
    Ok(!evaluator.evaluate(&[values], &(0..2))?.is_null())
}
