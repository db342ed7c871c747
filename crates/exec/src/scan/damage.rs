//! Where a Parquet file is damaged.
//!
//! DataFusion's reader decodes the columns of a row group together, and reports an error in the bytes of one of them
//! without naming it. Reading the file again, one column of one row group at a time, tells.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use datafusion::parquet::arrow::ProjectionMask;
use datafusion::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};

use super::guard::guarded;

/// No error is worth a longer wait for the place of the damage.
const PATIENCE: Duration = Duration::from_secs(3);
/// Rows that are decoded at a time: few, as it is about one column without a reservation.
const BATCH_ROWS: usize = 256;

/// `row group 3, column 'x'`: the first that cannot be decoded of the file at `path`, if it is found soon enough.
pub fn place_of_damage(path: &Path) -> Option<String> {
    let start = Instant::now();
    let file = File::open(path).ok()?;
    let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).ok()?;
    for (row_group, chunks) in metadata.metadata().row_groups().iter().enumerate() {
        for (leaf, chunk) in chunks.columns().iter().enumerate() {
            if start.elapsed() > PATIENCE {
                return None;
            }
            if !is_readable(&file, &metadata, row_group, leaf) {
                return Some(format!("row group {row_group}, column '{}'", chunk.column_path().string()));
            }
        }
    }
    None
}

fn is_readable(file: &File, metadata: &ArrowReaderMetadata, row_group: usize, leaf: usize) -> bool {
    let read = || {
        let file = file.try_clone().ok()?;
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata.clone());
        let column = ProjectionMask::leaves(metadata.parquet_schema(), [leaf]);
        let builder = builder.with_row_groups(vec![row_group]).with_projection(column);
        builder.with_batch_size(BATCH_ROWS).build().ok()?.all(|batch| batch.is_ok()).then_some(())
    };
    // Some damage makes the decoder panic.
    guarded(read).ok().flatten().is_some()
}
