//! Files as they are, a row for each: `read_text('*.txt')`, `read_blob('*.png')`.
//!
//! One file is in memory at a time, and none where only the other columns are wanted.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use arrow::array::{Array as _, TimestampMicrosecondArray};
use arrow::array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result as PlanResult;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::StreamExt as _;

use super::names::{absolute_path, describe, display, is_pattern, matching};
use super::text_scan::from_thread;
use super::told::shown;
use crate::error::{Error, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Text,
    Blob,
}

/// The columns, in order.
const COLUMNS: [&str; 4] = ["filename", "content", "size", "last_modified"];

/// The files of paths and patterns.
pub(super) fn table(names: &[String], content: Content) -> Result<Arc<dyn TableProvider>> {
    let mut files = Vec::new();
    for name in names {
        let found = match is_pattern(name) {
            true => matching(name)?,
            false => vec![absolute_path(name)?],
        };
        if found.is_empty() {
            return Err(Error::file(name, "no file matches this pattern"));
        }
        for path in found {
            if !path.is_file() {
                return Err(Error::file(name, "no such file"));
            }
            files.push((shown(&path, name), path));
        }
    }
    Ok(Arc::new(Contents { files, content }))
}

#[derive(Debug, Clone)]
struct Contents {
    /// As they are shown, and where they are.
    files: Vec<(String, PathBuf)>,
    content: Content,
}

impl Contents {
    fn schema(&self) -> SchemaRef {
        let types = [
            DataType::Utf8,
            if self.content == Content::Text { DataType::Utf8 } else { DataType::Binary },
            DataType::Int64,
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        ];
        let fields = COLUMNS.into_iter().zip(types).map(|(name, of)| Field::new(name, of, true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// The column of a file.
    fn value(&self, column: usize, shown: &str, path: &Path) -> Result<ArrayRef> {
        let fail = |error: std::io::Error| Error::file(display(path), describe(&error));
        let metadata = || std::fs::metadata(path).map_err(fail);
        Ok(match COLUMNS.get(column).copied() {
            Some("filename") => Arc::new(StringArray::from(vec![shown])),
            Some("size") => Arc::new(Int64Array::from(vec![metadata()?.len() as i64])),
            Some("content") => {
                let mut bytes = Vec::with_capacity(metadata()?.len() as usize);
                File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).map_err(fail)?;
                match self.content {
                    Content::Blob => Arc::new(BinaryArray::from(vec![bytes.as_slice()])),
                    Content::Text => {
                        let text = String::from_utf8(bytes).map_err(|_| {
                            Error::file(display(path), "it is not UTF-8; read_blob reads any bytes")
                        })?;
                        Arc::new(StringArray::from(vec![text]))
                    }
                }
            }
            _ => {
                let modified = metadata()?.modified().ok();
                let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                let micros = since.map(|since| since.as_micros() as i64);
                Arc::new(TimestampMicrosecondArray::from(vec![micros]).with_timezone("UTC"))
            }
        })
    }
}

#[async_trait]
impl TableProvider for Contents {
    fn schema(&self) -> SchemaRef {
        Contents::schema(self)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let wanted = projection.cloned().unwrap_or_else(|| (0..COLUMNS.len()).collect());
        let schema = Arc::new(Contents::schema(self).project(&wanted)?);
        let rows = ContentRows { contents: self.clone(), wanted, schema: Arc::clone(&schema) };
        let scan = StreamingTableExec::try_new(schema, vec![Arc::new(rows)], None, [], false, limit)?;
        Ok(Arc::new(scan))
    }
}

#[derive(Debug)]
struct ContentRows {
    contents: Contents,
    wanted: Vec<usize>,
    schema: SchemaRef,
}

impl PartitionStream for ContentRows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (contents, wanted, schema) =
            (self.contents.clone(), self.wanted.clone(), Arc::clone(&self.schema));
        let memory = MemoryConsumer::new("file contents").register(context.memory_pool());
        let rows = from_thread(move |sender| {
            for (shown, path) in &contents.files {
                let bytes = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
                if wanted.contains(&1) {
                    // The bytes as they are read, and in the column.
                    memory.try_resize(2 * bytes as usize)?;
                }
                let columns = wanted.iter().map(|column| contents.value(*column, shown, path));
                let columns = columns.collect::<Result<Vec<_>>>()?;
                assert!(columns.iter().all(|column| column.len() == 1), "a file is a row");
                let one = RecordBatchOptions::new().with_row_count(Some(1));
                let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &one)?;
                if sender.blocking_send(Ok(batch)).is_err() {
                    return Ok(());
                }
            }
            Ok(())
        });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), rows.boxed()))
    }
}
