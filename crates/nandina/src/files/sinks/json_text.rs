//! Rows as JSON: an object per line, or one array of them.

use arrow::array::{ArrayRef, RecordBatch, StructArray};
use arrow::datatypes::Field;
use bytes::Bytes;
use datafusion::common::Result;
use datafusion::datasource::file_format::write::BatchSerializer;
use nandina_functions::{JsonEncoder, TimeFormats};
use std::sync::Arc;

use crate::files::output::TextOutput;

#[derive(Debug)]
pub(super) struct JsonText {
    formats: TimeFormats,
    pub is_array: bool,
}

/// What stands between the objects of an array.
pub(super) const BETWEEN: &str = ",\n\t";

impl JsonText {
    pub fn new(output: &TextOutput) -> Self {
        let formats = TimeFormats {
            date: output.date_format.clone(),
            timestamp: output.timestamp_format.clone(),
            timestamp_in_zone: output.timestamp_format.clone(),
            time: None,
        };
        JsonText { formats, is_array: output.is_array }
    }
}

impl BatchSerializer for JsonText {
    /// The rows of an array have what stands between them in front of each.
    fn serialize(&self, rows: RecordBatch, _is_first: bool) -> Result<Bytes> {
        let count = rows.num_rows();
        let objects: ArrayRef = Arc::new(StructArray::from(rows));
        let field = Field::new("row", objects.data_type().clone(), false);
        let encoder = JsonEncoder::new(&field, &objects, &self.formats)?;
        let mut out = String::new();
        for row in 0..count {
            out.push_str(if self.is_array { BETWEEN } else { "" });
            encoder.write(row, &mut out);
            out.push_str(if self.is_array { "" } else { "\n" });
        }
        Ok(out.into())
    }
}
