//! One output of a window operator: from rows to rows with results.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::partition;
use arrow::datatypes::SchemaRef;
use datafusion::common::utils::get_row_at_idx;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;

use super::function::{AtEnd, Functions, Source};
use super::partition::OpenPartition;
use super::results::Results;
use super::running::Running;
use crate::spill::RowQueue;

/// The pipeline of rows through the functions.
pub struct Pipeline {
    functions: Arc<Functions>,
    partition_by: Vec<Arc<dyn PhysicalExpr>>,
    /// The partition that the last row belongs to, and its key.
    open: Option<(Vec<ScalarValue>, OpenPartition)>,
    /// Rows without results of running functions, if there are any.
    waiting: Option<RowQueue>,
    running_results: Vec<Results>,
    /// Rows with those, but without results of functions of whole partitions, if there are any.
    computed: Option<Computed>,
    end_results: Vec<Results>,
    /// What functions keep, beside the rows.
    memory: MemoryReservation,
    input_columns: usize,
    output: SchemaRef,
    batch_rows: usize,
}

/// Rows with the results of running functions behind their own columns.
pub struct Computed {
    pub rows: RowQueue,
    pub schema: SchemaRef,
}

impl Pipeline {
    /// `waiting` is needed if there are running functions, `computed` if there are others.
    pub fn new(
        functions: Arc<Functions>,
        partition_by: Vec<Arc<dyn PhysicalExpr>>,
        (waiting, computed): (Option<RowQueue>, Option<Computed>),
        memory: MemoryReservation,
        output: SchemaRef,
        batch_rows: usize,
    ) -> Self {
        let results = |count: usize| (0..count).map(|_| Results::default()).collect::<Vec<_>>();
        Self {
            partition_by,
            open: None,
            waiting,
            running_results: results(functions.running.len()),
            computed,
            end_results: results(functions.at_end.len()),
            memory,
            input_columns: output.fields().len().saturating_sub(functions.sources.len()),
            output,
            batch_rows,
            functions,
        }
    }

    /// Consumes the next rows.
    pub async fn push(&mut self, batch: RecordBatch) -> Result<()> {
        let keys = evaluate_expressions_to_arrays(&self.partition_by, &batch)?;
        let ranges = ranges(&keys, batch.num_rows())?;
        let last = ranges.len().saturating_sub(1);
        for (number, range) in ranges.into_iter().enumerate() {
            let key = || get_row_at_idx(&keys, range.start);
            let continues = number == 0
                && match &self.open {
                    Some((open, _)) => *open == key()?,
                    None => false,
                };
            let part = batch.slice(range.start, range.len());
            if !continues {
                self.end_partition()?;
                if number < last {
                    self.whole_partition(&part)?;
                    continue;
                }
                self.open = Some((key()?, OpenPartition::new(&self.functions)?));
            }
            if let Some((_, open)) = &mut self.open {
                open.add(&self.functions, &part, &mut self.running_results)?;
            }
        }
        self.account();
        match (&mut self.waiting, &mut self.computed) {
            (Some(waiting), _) => waiting.push(batch).await,
            (None, Some(computed)) => computed.rows.push(batch).await,
            (None, None) => Ok(()),
        }
    }

    /// No more rows come.
    pub fn end(&mut self) -> Result<()> {
        self.end_partition()
    }

    /// The next rows with results, if there are any by now.
    pub async fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(waiting) = &mut self.waiting {
            let Some(rows) = pop(waiting, &self.running_results, self.batch_rows).await? else { break };
            let columns = with_results(&rows, &mut self.running_results)?;
            match &mut self.computed {
                None => return self.assemble(&rows, columns, Vec::new()).map(Some),
                Some(computed) => {
                    let rows = batch_of(&computed.schema, columns, rows.num_rows())?;
                    computed.rows.push(rows).await?;
                }
            }
        }
        let Some(computed) = &mut self.computed else { return Ok(None) };
        let Some(rows) = pop(&mut computed.rows, &self.end_results, self.batch_rows).await? else {
            return Ok(None);
        };
        let mut results = Vec::with_capacity(self.end_results.len());
        for (function, known) in self.functions.at_end.iter().zip(&mut self.end_results) {
            let values = known.take(rows.num_rows())?;
            results.push(match function {
                AtEnd::OfCount(function) => {
                    function.results(rows.column(self.input_columns + function.place), &values)?
                }
                _ => values,
            });
        }
        self.account();
        self.assemble(&rows, rows.columns().to_vec(), results).map(Some)
    }

    /// Fails if rows have been left without results, or results without rows, after all have been emitted.
    pub async fn nothing_is_left(&mut self) -> Result<()> {
        let mut rows_left = false;
        for queue in
            self.waiting.iter_mut().chain(self.computed.iter_mut().map(|computed| &mut computed.rows))
        {
            rows_left |= queue.pop(1).await?.is_some();
        }
        if rows_left || self.running_results.iter().chain(&self.end_results).any(|results| results.rows() > 0)
        {
            return Err(DataFusionError::Internal(
                "a window has more rows than results, or fewer".to_owned(),
            ));
        }
        Ok(())
    }

    /// A partition that one batch has all rows of.
    fn whole_partition(&mut self, rows: &RecordBatch) -> Result<()> {
        for (function, results) in self.functions.running.iter().zip(&mut self.running_results) {
            match function {
                Running::Streamed(expression) => results.push(expression.evaluate(rows)?),
                Running::Cumulative(function) => {
                    let mut state = function.begin()?;
                    function.add(&mut state, rows, results)?;
                    function.end(state, results)?;
                }
            }
        }
        for (function, results) in self.functions.at_end.iter().zip(&mut self.end_results) {
            match function {
                AtEnd::OfCount(_) => {
                    results.push_constant(ScalarValue::from(rows.num_rows() as u64), rows.num_rows());
                }
                AtEnd::Aggregate(expression) | AtEnd::Edge(expression, _) | AtEnd::Gathered(expression) => {
                    results.push(expression.evaluate(rows)?);
                }
            }
        }
        Ok(())
    }

    fn end_partition(&mut self) -> Result<()> {
        if let Some((_, open)) = self.open.take() {
            open.end(&self.functions, &mut self.running_results, &mut self.end_results)?;
            self.account();
        }
        Ok(())
    }

    /// Reserves what functions keep, whether there is room for it or not: nothing of it can be spilled.
    fn account(&self) {
        let open = self.open.iter().map(|(_, open)| open.bytes()).sum::<usize>();
        let results = self.running_results.iter().chain(&self.end_results).map(Results::bytes).sum::<usize>();
        let bytes = open + results;
        if self.memory.try_resize(bytes).is_err() {
            self.memory.resize(bytes);
        }
    }

    /// A batch of the output from the columns of the input with results of running functions behind them, and those of
    /// functions of whole partitions.
    fn assemble(
        &self,
        rows: &RecordBatch,
        mut columns: Vec<ArrayRef>,
        at_end: Vec<ArrayRef>,
    ) -> Result<RecordBatch> {
        let running = columns.split_off(self.input_columns);
        let results = self.functions.sources.iter().filter_map(|source| match *source {
            Source::Running(number) => running.get(number),
            Source::AtEnd(number) => at_end.get(number),
        });
        columns.extend(results.cloned());
        batch_of(&self.output, columns, rows.num_rows())
    }
}

/// The rows of each partition.
fn ranges(keys: &[ArrayRef], rows: usize) -> Result<Vec<Range<usize>>> {
    if keys.is_empty() {
        return Ok(std::iter::once(0..rows).filter(|range| !range.is_empty()).collect());
    }
    Ok(partition(keys)?.ranges())
}

/// Up to `most` rows for which all functions have results.
async fn pop(queue: &mut RowQueue, results: &[Results], most: usize) -> Result<Option<RecordBatch>> {
    match results.iter().map(Results::rows).min() {
        None | Some(0) => Ok(None),
        Some(ready) => queue.pop(ready.min(most)).await,
    }
}

fn with_results(rows: &RecordBatch, results: &mut [Results]) -> Result<Vec<ArrayRef>> {
    let results = results.iter_mut().map(|results| results.take(rows.num_rows()));
    rows.columns().iter().cloned().map(Ok).chain(results).collect()
}

fn batch_of(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}
