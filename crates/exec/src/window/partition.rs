//! The functions over one partition that comes in several batches.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_empty_array};
use arrow::compute::concat_batches;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::window_state::PartitionBatchState;
use datafusion::physical_expr::window::{
    PartitionBatches, PartitionWindowAggStates, PlainAggregateWindowExpr, WindowEvalContext, WindowExpr,
};

use super::edge::EdgeRows;
use super::function::{AtEnd, Functions, unshared};
use super::results::Results;
use crate::batch_bytes::data_bytes;

/// A partition of which not all rows have come.
pub struct OpenPartition {
    running: Option<Running>,
    at_end: Vec<Gathering>,
    /// Rows that have come, in the columns that functions look at which need them all.
    gathered: Vec<RecordBatch>,
    rows: usize,
}

/// What running functions keep. DataFusion's functions keep states by partition; here there is one, of this key.
struct Running {
    partitions: PartitionBatches,
    states: Vec<PartitionWindowAggStates>,
}

const ONLY: Vec<ScalarValue> = Vec::new();

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
        let running = (!functions.running.is_empty()).then(|| Running {
            partitions: PartitionBatches::default(),
            states: functions.running.iter().map(|_| PartitionWindowAggStates::default()).collect(),
        });
        let at_end = functions.at_end.iter().map(Gathering::of).collect::<Result<_>>()?;
        Ok(Self { running, at_end, gathered: Vec::new(), rows: 0 })
    }

    /// Takes in further rows. Running functions put what they can tell into `results`.
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
            self.gathered.push(functions.gathered_columns.of(rows)?);
        }
        if let Some(running) = &mut self.running {
            running.add(functions.running_columns.of(rows)?)?;
            running.evaluate(&functions.running, results)?;
            running.forget();
        }
        Ok(())
    }

    /// Ends the partition: all results that are missing.
    pub fn end(
        self,
        functions: &Functions,
        running_results: &mut [Results],
        end_results: &mut [Results],
    ) -> Result<()> {
        if let Some(mut running) = self.running {
            running.partitions.values_mut().for_each(|partition| partition.is_end = true);
            running.evaluate(&functions.running, running_results)?;
        }
        let gathered = match self.gathered.as_slice() {
            [] => None,
            [first, ..] => Some(concat_batches(&first.schema(), &self.gathered)?),
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
        let running = self.running.iter().flat_map(|running| running.partitions.values());
        accumulators.sum::<usize>()
            + self.gathered.iter().map(data_bytes).sum::<usize>()
            + running.map(|partition| data_bytes(&partition.record_batch)).sum::<usize>()
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

impl Running {
    fn add(&mut self, rows: RecordBatch) -> Result<()> {
        match self.partitions.get_mut(&ONLY) {
            Some(partition) if partition.record_batch.num_rows() > 0 => {
                let joined = concat_batches(&rows.schema(), [&partition.record_batch, &rows])?;
                partition.record_batch = without_shared_texts(joined)?;
            }
            Some(partition) => partition.record_batch = rows,
            None => {
                self.partitions.insert(ONLY, PartitionBatchState::new_with_batch(rows));
            }
        }
        Ok(())
    }

    /// Computes what can be told by now, and moves it to `results`.
    fn evaluate(&mut self, functions: &[Arc<dyn WindowExpr>], results: &mut [Results]) -> Result<()> {
        for ((function, states), results) in functions.iter().zip(&mut self.states).zip(results) {
            function.evaluate_stateful(&self.partitions, states, &WindowEvalContext::default())?;
            for window in states.values_mut() {
                let nothing = new_empty_array(window.state.out_col.data_type());
                results.push(std::mem::replace(&mut window.state.out_col, nothing));
            }
        }
        Ok(())
    }

    /// Drops rows that no frame can reach any more and all functions have been computed for.
    fn forget(&mut self) {
        let over = |states: &PartitionWindowAggStates| {
            let state = states.get(&ONLY).map(|window| &window.state);
            state.map_or(0, |state| state.window_frame_range.start.min(state.last_calculated_index))
        };
        let Some(over) = self.states.iter().map(over).min().filter(|rows| *rows > 0) else {
            return;
        };
        if let Some(partition) = self.partitions.get_mut(&ONLY) {
            let rows = partition.record_batch.num_rows();
            partition.record_batch = partition.record_batch.slice(over, rows - over);
        }
        for window in self.states.iter_mut().flat_map(|states| states.values_mut()) {
            window.state.prune_state(over);
        }
    }
}

/// As many buffers of texts are kept before they are put together.
const MOST_BUFFERS: usize = 8;

/// Puts the texts of views together if they are spread over many buffers, most of which few rows refer to.
fn without_shared_texts(batch: RecordBatch) -> Result<RecordBatch> {
    let is_spread = |column: &ArrayRef| column.to_data().buffers().len() > MOST_BUFFERS;
    if !batch.columns().iter().any(is_spread) {
        return Ok(batch);
    }
    let columns = batch.columns().iter().map(unshared).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(batch.schema(), columns, &options)?)
}
