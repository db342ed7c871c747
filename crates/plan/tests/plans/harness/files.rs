//! Parquet files.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, Schema};
use datafusion::dataframe::{DataFrame, DataFrameWriteOptions};
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;

/// Columns with their names, and whether they may be null.
pub type Columns = Vec<(&'static str, ArrayRef, bool)>;

/// Writes a Parquet file of several row groups.
pub async fn write(folder: &Path, name: &str, columns: Columns) {
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, column, nullable)| Field::new(*name, column.data_type().clone(), *nullable))
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let arrays = columns.into_iter().map(|(_, column, _)| column).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays).expect("a batch");
    let context = SessionContext::new();
    let table = MemTable::try_new(schema, vec![vec![batch]]).expect("a table");
    context.register_table("t", Arc::new(table)).expect("a new name");
    write_frame(&folder.join(format!("{name}.parquet")), context.table("t").await.expect("the table")).await;
}

/// Writes the rows of a query as a Parquet file of several row groups.
pub async fn write_frame(path: &Path, frame: DataFrame) {
    let mut options = datafusion::config::TableParquetOptions::default();
    options.global.max_row_group_size = 500;
    frame
        .write_parquet(&path.to_string_lossy(), DataFrameWriteOptions::new(), Some(options))
        .await
        .expect("a file");
}
