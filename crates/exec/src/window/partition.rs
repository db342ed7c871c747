//! The functions over one partition that comes in several batches.

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;
use datafusion::physical_expr::window::PlainAggregateWindowExpr;

use super::cumulative::State;
use super::edge::EdgeRows;
use super::frames::Frames;
use super::function::{AtEnd, Functions};
use super::results::Results;
use super::running::Running;
use crate::batch::HeldBatch;

/// A partition of which not all rows have arrived.
pub struct OpenPartition {
    /// Rows for DataFusion's running functions, if there are any.
    frames: Option<Frames>,
    /// Of each running function what it keeps, if it is ours.
    cumulative: Vec<Option<State>>,
    at_end: Vec<Gathering>,
    /// Rows that have arrived, in the columns that functions look at which need them all.
    gathered: Vec<HeldBatch>,
    rows: usize,
}

/// What a function of the whole partition keeps.
enum Gathering {
    Aggregate(Box<dyn Accumulator>),
    Edge(EdgeRows),
    /// The number of rows.
    Count,
    Rows,
}

impl OpenPartition {
    pub fn new(functions: &Functions) -> Result<Self> {
        let frames = functions.streamed().next().is_some().then(|| Frames::new(functions));
        let cumulative = functions.running.iter().map(|function| match function {
            Running::Cumulative(function) => function.begin().map(Some),
            Running::Streamed(_) => Ok(None),
        });
        let at_end = functions.at_end.iter().map(Gathering::of).collect::<Result<_>>()?;
        let cumulative = cumulative.collect::<Result<_>>()?;
        Ok(Self { frames, cumulative, at_end, gathered: Vec::new(), rows: 0 })
    }

    /// Consumes further rows. Running functions put the results that they know into `results`.
    pub fn add(&mut self, functions: &Functions, rows: &RecordBatch, results: &mut [Results]) -> Result<()> {
        self.rows += rows.num_rows();
        for (function, gathering) in functions.at_end.iter().zip(&mut self.at_end) {
            match (function, gathering) {
                (AtEnd::Aggregate(expression), Gathering::Aggregate(accumulator)) => {
                    accumulator.update_batch(&expression.evaluate_args(rows)?)?;
                }
                (AtEnd::Edge(expression, _), Gathering::Edge(kept)) => kept.add(expression.as_ref(), rows)?,
                _ => {}
            }
        }
        if self.at_end.iter().any(|gathering| matches!(gathering, Gathering::Rows)) {
            self.gathered.push(HeldBatch::new(functions.gathered_columns.of(rows)?)?);
        }
        for ((function, state), results) in
            functions.running.iter().zip(&mut self.cumulative).zip(&mut *results)
        {
            if let (Running::Cumulative(function), Some(state)) = (function, state) {
                function.add(state, rows, results)?;
            }
        }
        match &mut self.frames {
            Some(frames) => frames.add(functions, rows, results),
            None => Ok(()),
        }
    }

    /// Ends the partition: all results that are missing.
    pub fn end(
        self,
        functions: &Functions,
        running_results: &mut [Results],
        end_results: &mut [Results],
    ) -> Result<()> {
        for ((function, state), results) in
            functions.running.iter().zip(self.cumulative).zip(&mut *running_results)
        {
            if let (Running::Cumulative(function), Some(state)) = (function, state) {
                function.end(state, results)?;
            }
        }
        if let Some(frames) = self.frames {
            frames.end(functions, running_results)?;
        }
        let gathered = match self.gathered.as_slice() {
            [] => None,
            [first, ..] => {
                Some(concat_batches(&first.rows.schema(), self.gathered.iter().map(|held| &held.rows))?)
            }
        };
        drop(self.gathered);
        for ((function, gathering), results) in functions.at_end.iter().zip(self.at_end).zip(end_results) {
            let value = match (gathering, function, &gathered) {
                (Gathering::Aggregate(mut accumulator), ..) => Some(accumulator.evaluate()?),
                (Gathering::Edge(kept), AtEnd::Edge(expression, _), _) => kept.value(expression)?,
                (Gathering::Count, ..) => Some(ScalarValue::from(self.rows as u64)),
                (Gathering::Rows, AtEnd::Gathered(expression), Some(rows)) => {
                    results.push(expression.evaluate(rows)?);
                    None
                }
                _ => None,
            };
            if let Some(value) = value {
                results.push_constant(value, self.rows);
            }
        }
        Ok(())
    }

    /// Bytes that the functions keep.
    pub fn bytes(&self) -> usize {
        let accumulators = self.at_end.iter().map(|gathering| match gathering {
            Gathering::Aggregate(accumulator) => accumulator.size(),
            Gathering::Edge(kept) => kept.bytes(),
            Gathering::Count | Gathering::Rows => 0,
        });
        accumulators.sum::<usize>()
            + self.gathered.iter().map(|held| held.bytes).sum::<usize>()
            + self.cumulative.iter().flatten().map(State::bytes).sum::<usize>()
            + self.frames.as_ref().map_or(0, Frames::bytes)
    }
}

impl Gathering {
    fn of(function: &AtEnd) -> Result<Self> {
        Ok(match function {
            AtEnd::Aggregate(expression) => {
                match expression.as_any().downcast_ref::<PlainAggregateWindowExpr>() {
                    Some(plain) => Self::Aggregate(plain.get_aggregate_expr().create_accumulator()?),
                    None => Self::Rows,
                }
            }
            AtEnd::Edge(_, edge) => Self::Edge(EdgeRows::new(*edge)),
            AtEnd::OfCount(_) => Self::Count,
            AtEnd::Gathered(_) => Self::Rows,
        })
    }
}
