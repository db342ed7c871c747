//! What a Parquet file says of columns in which a value may be NaN.
//!
//! The format leaves NaNs out of the least and the greatest value of a row group or page. Here, as in sorts, they are
//! greater than any number: a reader that believes the file's greatest value skips rows that `x > 5` holds for. So NaN is
//! made the greatest value of every row group, which is true if it has one and keeps too much if it has none. Page indexes
//! and Bloom filters, which have several NaNs and two zeros, are not looked at for these columns.

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::Statistics as TableStatistics;
use datafusion::common::stats::Precision;
use parquet::basic::{LogicalType, Type};
use parquet::data_type::{DataType, DoubleType, FloatType};
use parquet::file::metadata::{
    ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataBuilder, RowGroupMetaData,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::{Statistics, ValueStatistics};

/// The metadata of a file, with NaN as the greatest value of its floating-point columns.
pub(super) fn with_nans(metadata: Arc<ParquetMetaData>) -> parquet::errors::Result<Arc<ParquetMetaData>> {
    let has_any = metadata.row_groups().iter().flat_map(RowGroupMetaData::columns).any(may_have_nans);
    if !has_any {
        return Ok(metadata);
    }
    let mut builder: ParquetMetaDataBuilder = ParquetMetaData::clone(&metadata).into_builder();
    let groups = builder.take_row_groups().into_iter().map(|group| {
        let mut group = group.into_builder();
        let columns = group.take_columns().into_iter().map(column_with_nans);
        let columns = columns.collect::<parquet::errors::Result<Vec<_>>>()?;
        group.set_column_metadata(columns).build()
    });
    let groups = groups.collect::<parquet::errors::Result<Vec<_>>>()?;
    let pages = builder.take_column_index().map(|pages| {
        let of_group = |(pages, group): (Vec<ColumnIndexMetaData>, &RowGroupMetaData)| {
            let of_column = |(pages, column): (ColumnIndexMetaData, &ColumnChunkMetaData)| {
                if may_have_nans(column) { ColumnIndexMetaData::NONE } else { pages }
            };
            pages.into_iter().zip(group.columns()).map(of_column).collect()
        };
        pages.into_iter().zip(metadata.row_groups()).map(of_group).collect()
    });
    Ok(Arc::new(builder.set_row_groups(groups).set_column_index(pages).build()))
}

fn may_have_nans(column: &ColumnChunkMetaData) -> bool {
    let is_half = matches!(column.column_descr().logical_type_ref(), Some(LogicalType::Float16));
    matches!(column.column_type(), Type::FLOAT | Type::DOUBLE) || is_half
}

fn column_with_nans(column: ColumnChunkMetaData) -> parquet::errors::Result<ColumnChunkMetaData> {
    if !may_have_nans(&column) {
        return Ok(column);
    }
    let statistics = match column.statistics() {
        Some(Statistics::Float(known)) => Some(Statistics::Float(up_to::<FloatType>(known, f32::NAN))),
        Some(Statistics::Double(known)) => Some(Statistics::Double(up_to::<DoubleType>(known, f64::NAN))),
        _ => None,
    };
    let builder = column
        .into_builder()
        .set_column_index_offset(None)
        .set_column_index_length(None)
        .set_bloom_filter_offset(None)
        .set_bloom_filter_length(None);
    match statistics {
        Some(statistics) => builder.set_statistics(statistics),
        None => builder.clear_statistics(),
    }
    .build()
}

/// Statistics with another greatest value, if they have one.
fn up_to<T: DataType>(known: &ValueStatistics<T::T>, greatest: T::T) -> ValueStatistics<T::T> {
    let least = known.min_opt().cloned();
    let greatest = known.max_opt().map(|_| greatest);
    ValueStatistics::new(least, greatest, known.distinct_count(), known.null_count_opt(), false)
        .with_min_is_exact(known.min_is_exact())
        .with_max_is_exact(false)
}

/// The statistics of a table without the greatest values of its floating-point columns.
pub(super) fn without_greatest(mut statistics: TableStatistics, schema: &Schema) -> TableStatistics {
    for (column, field) in statistics.column_statistics.iter_mut().zip(schema.fields()) {
        if field.data_type().is_floating() {
            column.max_value = Precision::Absent;
        }
    }
    statistics
}
