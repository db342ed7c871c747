//! Sorted rows, cut where the columns change that they are sorted by.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::row::{OwnedRow, RowConverter, Rows, SortField};
use async_stream::try_stream;
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream::Fuse;
use futures::{Stream, StreamExt, TryStreamExt};
use tokio::sync::oneshot;

use crate::batch::compact;

/// The runs of rows that have not been read yet.
pub struct Runs {
    rows: Fuse<SendableRecordBatchStream>,
    schema: SchemaRef,
    columns: Vec<usize>,
    converter: RowConverter,
    /// The batch that was read last, from the first row that has not been emitted.
    current: Option<KeyedRows>,
}

/// A batch with the values of its columns in a form that compares.
struct KeyedRows {
    batch: RecordBatch,
    keys: Rows,
    at: usize,
}

/// A run, and the runs behind it as soon as all of its rows have been read.
pub type Run = (SendableRecordBatchStream, oneshot::Receiver<Runs>);

impl Runs {
    /// The runs of `rows`, which are sorted by the columns with these numbers. Fails where values of these cannot be
    /// compared.
    pub fn try_new(rows: SendableRecordBatchStream, columns: &[usize]) -> Result<Self> {
        let schema = rows.schema();
        let field = |&column: &usize| SortField::new(schema.field(column).data_type().clone());
        let converter = RowConverter::new(columns.iter().map(field).collect())?;
        Ok(Self { rows: rows.fuse(), schema, columns: columns.to_vec(), converter, current: None })
    }

    /// The next run. `None` when all rows have been read.
    pub async fn next(mut self) -> Result<Option<Run>> {
        if self.current().await?.is_none() {
            return Ok(None);
        }
        let schema = Arc::clone(&self.schema);
        let (give_back, rest) = oneshot::channel();
        let run = RecordBatchStreamAdapter::new(schema, self.run(give_back));
        Ok(Some((Box::pin(run), rest)))
    }

    /// Rows up to the first one with another key.
    fn run(mut self, give_back: oneshot::Sender<Self>) -> impl Stream<Item = Result<RecordBatch>> + Send {
        try_stream! {
            let mut key = None;
            while let Some(rows) = self.current().await? {
                let rows = rows.take_run(&mut key);
                if rows.num_rows() == 0 {
                    break;
                }
                // A format that writes buffers as they are would write all of the batch for every value.
                let (rows, _) = compact(rows)?;
                yield rows;
            }
            // The consumer of the rest may have gone.
            let _ = give_back.send(self);
        }
    }

    /// The rows that come next: at least one, if there are any.
    async fn current(&mut self) -> Result<Option<&mut KeyedRows>> {
        while self.current.as_ref().is_none_or(KeyedRows::is_exhausted) {
            let Some(batch) = self.rows.try_next().await? else { return Ok(None) };
            let columns: Vec<_> =
                self.columns.iter().map(|&column| Arc::clone(batch.column(column))).collect();
            let keys = self.converter.convert_columns(&columns)?;
            self.current = Some(KeyedRows { batch, keys, at: 0 });
        }
        Ok(self.current.as_mut())
    }
}

impl KeyedRows {
    fn is_exhausted(&self) -> bool {
        self.at >= self.batch.num_rows()
    }

    /// Takes the rows with this key that come next; with that of the first one, if there is none yet.
    fn take_run(&mut self, key: &mut Option<OwnedRow>) -> RecordBatch {
        let key = key.get_or_insert_with(|| self.keys.row(self.at).owned()).row();
        let rows = (self.at..self.keys.num_rows()).take_while(|&row| self.keys.row(row) == key).count();
        let run = self.batch.slice(self.at, rows);
        self.at += rows;
        run
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, DictionaryArray, Int64Array};
    use arrow::datatypes::{Int8Type, Int64Type};

    use super::*;

    /// Batches of a value and a number each.
    fn stream(batches: &[&[(Option<&str>, i64)]]) -> SendableRecordBatchStream {
        let batches: Vec<_> = batches.iter().map(|rows| batch(rows)).collect();
        let schema = batches[0].schema();
        let batches = batches.into_iter().map(Ok);
        Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::iter(batches)))
    }

    /// Dictionaries differ from batch to batch.
    fn batch(rows: &[(Option<&str>, i64)]) -> RecordBatch {
        let values: DictionaryArray<Int8Type> = rows.iter().map(|(value, _)| *value).collect();
        let numbers = Int64Array::from_iter_values(rows.iter().map(|(_, number)| *number));
        let columns = [("number", Arc::new(numbers) as ArrayRef, true), ("value", Arc::new(values), true)];
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    }

    async fn runs(rows: SendableRecordBatchStream) -> Vec<Vec<i64>> {
        let mut runs = Runs::try_new(rows, &[1]).unwrap();
        let mut all = Vec::new();
        while let Some((run, rest)) = runs.next().await.unwrap() {
            let batches: Vec<RecordBatch> = run.try_collect().await.unwrap();
            assert!(batches.iter().all(|batch| batch.num_rows() > 0));
            let numbers = batches.iter().flat_map(|batch| {
                batch.column(0).as_primitive::<Int64Type>().values().iter().copied().collect::<Vec<_>>()
            });
            all.push(numbers.collect());
            runs = rest.await.unwrap();
        }
        all
    }

    #[tokio::test]
    async fn rows_are_cut_between_values_wherever_batches_end() {
        let (null, a, b, c) = (None, Some("a"), Some("b"), Some("c"));
        let batches: &[&[_]] =
            &[&[(null, 1), (null, 2), (a, 3)], &[], &[(a, 4)], &[(b, 5), (b, 6)], &[(c, 7)]];
        let right = vec![vec![1, 2], vec![3, 4], vec![5, 6], vec![7]];
        assert_eq!(runs(stream(batches)).await, right);
    }

    #[tokio::test]
    async fn no_rows_are_no_run() {
        assert!(runs(stream(&[&[]])).await.is_empty());
    }

    #[tokio::test]
    async fn a_run_that_is_not_read_to_its_end_gives_nothing_back() {
        let runs = Runs::try_new(stream(&[&[(Some("a"), 1), (Some("b"), 2)]]), &[1]).unwrap();
        let (mut run, rest) = runs.next().await.unwrap().unwrap();
        assert_eq!(run.try_next().await.unwrap().unwrap().num_rows(), 1);
        drop(run);
        assert!(rest.await.is_err());
    }
}
