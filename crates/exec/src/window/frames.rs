//! The rows of a partition that frames may still reach, and DataFusion's running functions over them.
//!
//! ```text
//!   rows ─► in pieces, while all are peers of those before ─► buffer ─► functions ─► results
//!                                                               └─► dropped when no frame reaches them
//! ```
//!
//! Functions whose frames end with the peers of a row can tell nothing while only more peers come. These wait in pieces:
//! the buffer would be copied and searched with each of them. Functions whose frames end before the current row are not
//! even shown a group of peers before it is complete. They do not expect to need that, but where the key less a
//! distance is the key itself (nulls, infinities), frames end with the peers as well.

use arrow::array::{RecordBatch, new_empty_array};
use arrow::compute::concat_batches;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::window_state::PartitionBatchState;
use datafusion::physical_expr::window::{PartitionBatches, PartitionWindowAggStates, WindowEvalContext};

use super::function::Functions;
use super::peers::Peers;
use super::results::Results;
use crate::batch::HeldBatch;

/// The rows and the states of the functions.
pub struct Frames {
    /// DataFusion's functions keep rows and states by partition; here there is one, of the key [`ONLY`].
    buffer: PartitionBatches,
    buffer_bytes: usize,
    states: Vec<PartitionWindowAggStates>,
    /// Peers of the last row in the buffer, or of each other.
    pieces: Vec<HeldBatch>,
    peers: Option<Peers>,
}

const ONLY: Vec<ScalarValue> = Vec::new();

impl Frames {
    pub fn new(functions: &Functions) -> Self {
        Self {
            buffer: PartitionBatches::default(),
            buffer_bytes: 0,
            states: functions.streamed().map(|_| PartitionWindowAggStates::default()).collect(),
            pieces: Vec::new(),
            peers: functions.groups.as_ref().map(|groups| groups.peers.clone()),
        }
    }

    /// Consumes further rows, and puts the results that are known by now into `results`.
    pub fn add(&mut self, functions: &Functions, rows: &RecordBatch, results: &mut [Results]) -> Result<()> {
        let rows = functions.running_columns.of(rows)?;
        let (Some(peers), Some(groups)) = (&mut self.peers, &functions.groups) else {
            return self.show(functions, vec![rows], results);
        };
        let Some(ended) = peers.ends(&rows)?.last().copied() else {
            self.pieces.push(HeldBatch::new(rows)?);
            return Ok(());
        };
        let shown = if groups.are_shown_whole { ended } else { rows.num_rows() };
        let mut pieces: Vec<_> = self.pieces.drain(..).map(|piece| piece.rows).collect();
        pieces.push(rows.slice(0, shown));
        self.show(functions, pieces, results)?;
        if shown < rows.num_rows() {
            self.pieces.push(HeldBatch::new(rows.slice(shown, rows.num_rows() - shown))?);
        }
        Ok(())
    }

    /// All results that are missing, when the partition has ended.
    pub fn end(mut self, functions: &Functions, results: &mut [Results]) -> Result<()> {
        let pieces: Vec<_> = self.pieces.drain(..).map(|piece| piece.rows).collect();
        self.put_into_buffer(pieces)?;
        self.buffer.values_mut().for_each(|partition| partition.is_end = true);
        self.evaluate(functions, results)
    }

    /// Bytes of the rows that are kept. What accumulators keep beside them DataFusion does not report.
    pub fn bytes(&self) -> usize {
        self.buffer_bytes + self.pieces.iter().map(|piece| piece.bytes).sum::<usize>()
    }

    fn show(&mut self, functions: &Functions, rows: Vec<RecordBatch>, results: &mut [Results]) -> Result<()> {
        self.put_into_buffer(rows)?;
        self.evaluate(functions, results)?;
        self.forget()
    }

    fn put_into_buffer(&mut self, rows: Vec<RecordBatch>) -> Result<()> {
        let buffered = self.buffer.values().map(|partition| &partition.record_batch);
        let all: Vec<&RecordBatch> = buffered.chain(&rows).filter(|batch| batch.num_rows() > 0).collect();
        let joined = match all.as_slice() {
            [] => return Ok(()),
            [only] => RecordBatch::clone(only),
            [first, ..] => concat_batches(&first.schema(), all.iter().copied())?,
        };
        match self.buffer.get_mut(&ONLY) {
            Some(partition) => partition.record_batch = joined,
            None => {
                self.buffer.insert(ONLY, PartitionBatchState::new_with_batch(joined));
            }
        }
        Ok(())
    }

    /// Computes the results that are known by now, and moves them to `results`.
    fn evaluate(&mut self, functions: &Functions, results: &mut [Results]) -> Result<()> {
        for ((place, function), states) in functions.streamed().zip(&mut self.states) {
            function.evaluate_stateful(&self.buffer, states, &WindowEvalContext::default())?;
            let results = &mut results[place];
            for window in states.values_mut() {
                let nothing = new_empty_array(window.state.out_col.data_type());
                results.push(std::mem::replace(&mut window.state.out_col, nothing));
            }
        }
        Ok(())
    }

    /// Drops rows that no frame can reach any more and all functions have been computed for.
    fn forget(&mut self) -> Result<()> {
        let over = |states: &PartitionWindowAggStates| {
            let state = states.get(&ONLY).map(|window| &window.state);
            state.map_or(0, |state| state.window_frame_range.start.min(state.last_calculated_index))
        };
        let over = self.states.iter().map(over).min().unwrap_or_default();
        if let Some(partition) = self.buffer.get_mut(&ONLY) {
            let rows = partition.record_batch.num_rows();
            let left = HeldBatch::new(partition.record_batch.slice(over, rows - over))?;
            (partition.record_batch, self.buffer_bytes) = (left.rows, left.bytes);
        }
        if over > 0 {
            let windows = self.states.iter_mut().flat_map(|states| states.values_mut());
            windows.for_each(|window| window.state.prune_state(over));
        }
        Ok(())
    }
}
