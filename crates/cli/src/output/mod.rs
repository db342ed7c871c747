//! Output of results: as a table for people, or as CSV, JSON or Parquet for programs.
//!
//! A batch is written when it arrives and forgotten; a table keeps its first rows until it knows how wide columns are.

mod sink;
mod table;

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use crate::arguments::Format;
use crate::failure::{Failure, Result};

pub use sink::{Sink, format_of};
pub use table::{Table, TableLimits};

/// A row group is in memory until it is written.
const MOST_ROW_GROUP_BYTES: usize = 16 << 20;

/// Writes the batches of one result.
pub enum ResultWriter<'a> {
    Table(Box<Table>, &'a mut dyn Write),
    Csv { out: &'a mut dyn Write, schema: SchemaRef, has_header: bool },
    Json(&'a mut dyn Write),
    Parquet(Box<ArrowWriter<&'a mut (dyn Write + Send)>>),
}

impl<'a> ResultWriter<'a> {
    pub fn new(
        format: Format,
        schema: SchemaRef,
        limits: TableLimits,
        out: &'a mut (dyn Write + Send),
    ) -> Result<Self> {
        Ok(match format {
            Format::Table => ResultWriter::Table(Box::new(Table::new(schema, limits)), out),
            Format::Csv => ResultWriter::Csv { out, schema, has_header: false },
            Format::Json => ResultWriter::Json(out),
            Format::Parquet => {
                let properties = WriterProperties::builder()
                    .set_compression(Compression::SNAPPY)
                    .set_max_row_group_bytes(Some(MOST_ROW_GROUP_BYTES))
                    .build();
                let options = ArrowWriterOptions::new().with_properties(properties);
                let writer = ArrowWriter::try_new_with_options(out, schema, options);
                ResultWriter::Parquet(Box::new(writer.map_err(parquet_failure)?))
            }
        })
    }

    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match self {
            ResultWriter::Table(table, out) => table.push(batch, *out)?,
            ResultWriter::Csv { out, has_header, .. } => {
                let header = !std::mem::replace(has_header, true);
                let text = Vec::new();
                let mut writer = arrow::csv::WriterBuilder::new().with_header(header).build(text);
                let batch = nandina::nested_as_text(batch.clone()).map_err(nandina::Error::from)?;
                writer.write(&batch).map_err(nandina::Error::from)?;
                out.write_all(&writer.into_inner()).map_err(output_failure)?;
            }
            ResultWriter::Json(out) => {
                let mut writer = arrow::json::LineDelimitedWriter::new(Vec::new());
                writer.write(batch).map_err(nandina::Error::from)?;
                writer.finish().map_err(nandina::Error::from)?;
                out.write_all(&writer.into_inner()).map_err(output_failure)?;
            }
            ResultWriter::Parquet(writer) => writer.write(batch).map_err(parquet_failure)?,
        }
        Ok(())
    }

    pub fn finish(self) -> Result<()> {
        match self {
            ResultWriter::Table(table, out) => table.finish(out),
            ResultWriter::Csv { out, schema, has_header } => {
                if !has_header {
                    let empty = RecordBatch::new_empty(schema);
                    let mut writer = arrow::csv::WriterBuilder::new().with_header(true).build(Vec::new());
                    let empty = nandina::nested_as_text(empty).map_err(nandina::Error::from)?;
                    writer.write(&empty).map_err(nandina::Error::from)?;
                    out.write_all(&writer.into_inner()).map_err(output_failure)?;
                }
                out.flush().map_err(output_failure)
            }
            ResultWriter::Json(out) => out.flush().map_err(output_failure),
            ResultWriter::Parquet(writer) => writer.close().map(drop).map_err(parquet_failure),
        }
    }
}

pub fn output_failure(error: std::io::Error) -> Failure {
    Failure::io("writing the result", error)
}

fn parquet_failure(error: parquet::errors::ParquetError) -> Failure {
    if let parquet::errors::ParquetError::External(inner) = &error
        && inner
            .downcast_ref::<std::io::Error>()
            .is_some_and(|inner| inner.kind() == std::io::ErrorKind::BrokenPipe)
    {
        return Failure::OutputClosed;
    }
    Failure::io("writing Parquet", std::io::Error::other(error.to_string()))
}
