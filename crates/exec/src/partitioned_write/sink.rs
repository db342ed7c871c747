//! A sink that writes one value after the other.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::file_format::parquet::ParquetSink;
use datafusion::datasource::file_format::write::get_writer_schema;
use datafusion::datasource::physical_plan::FileSink;
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType};
use parking_lot::Mutex;

use super::order;
use super::runs::Runs;

/// Writes the rows of values in the place of DataFusion's sink.
#[async_trait]
pub trait ValueWriter: Any + fmt::Debug + Send + Sync {
    /// Before the first value.
    async fn begin(&self) -> Result<()>;

    /// Writes the rows of one value and returns their number.
    async fn write(&self, rows: SendableRecordBatchStream, context: &Arc<TaskContext>) -> Result<u64>;

    fn metrics(&self) -> MetricsSet;
}

/// Writes rows that come sorted by the partition columns, with DataFusion's sink or another writer, one value after the
/// other.
///
/// What has been written of a write that fails or is cancelled stays: files of values that were complete.
#[derive(Debug)]
pub struct ByValueSink {
    /// The write as DataFusion would do it, for its sink.
    planned: DataSinkExec,
    /// The partition columns.
    columns: Vec<usize>,
    writer: Option<Arc<dyn ValueWriter>>,
    /// Sums over the values that have been written.
    written: Mutex<MetricsSet>,
}

impl ByValueSink {
    pub fn new(planned: DataSinkExec, columns: Vec<usize>, writer: Option<Arc<dyn ValueWriter>>) -> Self {
        Self { planned, columns, writer, written: Mutex::default() }
    }

    /// What writes in the place of DataFusion's sink.
    pub fn writer(&self) -> Option<&dyn ValueWriter> {
        self.writer.as_deref()
    }

    /// Writes the rows of one value and returns their number.
    async fn write(&self, run: SendableRecordBatchStream, context: &Arc<TaskContext>) -> Result<u64> {
        if let Some(writer) = &self.writer {
            return writer.write(run, context).await;
        }
        let Some(planned) = self.planned.sink().downcast_ref::<ParquetSink>() else {
            return self.planned.sink().write_all(run, context).await;
        };
        // A sink for each value: it keeps the footers of its files.
        let file = get_writer_schema(planned.config());
        let order = order::within_value(&self.planned)
            .and_then(|within| order::sorting_columns(&within, &self.columns, &file));
        let sink = ParquetSink::new(planned.config().clone(), planned.parquet_options().clone())
            .with_sorting_columns(order);
        let rows = DataSink::write_all(&sink, run, context).await?;
        self.add_up(DataSink::metrics(&sink).unwrap_or_default());
        Ok(rows)
    }

    fn add_up(&self, of_value: MetricsSet) {
        let mut written = self.written.lock();
        for metric in of_value.iter() {
            written.push(Arc::clone(metric));
        }
        *written = written.aggregate_by_name();
    }
}

impl DisplayAs for ByValueSink {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        self.planned.sink().fmt_as(format, f)?;
        match format {
            DisplayFormatType::TreeRender => Ok(()),
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                let schema = self.planned.sink().schema();
                let names = self.columns.iter().filter_map(|&at| schema.fields().get(at));
                let names: Vec<&str> = names.map(|field| field.name().as_str()).collect();
                write!(f, ", one value of [{}] at a time", names.join(", "))
            }
        }
    }
}

#[async_trait]
impl DataSink for ByValueSink {
    fn metrics(&self) -> Option<MetricsSet> {
        if let Some(writer) = &self.writer {
            return Some(writer.metrics());
        }
        let of_all = self.planned.sink().metrics()?;
        let of_each = self.written.lock().clone();
        Some(if of_each.iter().next().is_some() { of_each } else { of_all })
    }

    fn schema(&self) -> &SchemaRef {
        self.planned.sink().schema()
    }

    async fn write_all(&self, data: SendableRecordBatchStream, context: &Arc<TaskContext>) -> Result<u64> {
        if let Some(writer) = &self.writer {
            writer.begin().await?;
        }
        let mut runs = Runs::try_new(data, &self.columns)?;
        let mut rows = 0;
        while let Some((run, rest)) = runs.next().await? {
            rows += self.write(run, context).await?;
            runs = rest.await.map_err(|_| {
                DataFusionError::Internal("a writer has left rows of its value unread".to_owned())
            })?;
        }
        Ok(rows)
    }
}
