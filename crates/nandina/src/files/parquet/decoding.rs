//! What decoding a column takes beside its values.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::datatypes::{Fields, Schema};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileGroup;
use nandina_exec::batch::row_width::leaf_columns;
use nandina_exec::scan::DecodingBytes;
use parquet::arrow::async_reader::AsyncFileReader as _;
use parquet::basic::Compression;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};

use super::reader::AccountedReader;

/// Writers end a page at so many bytes or rows, whichever comes first, and a dictionary at so many bytes.
const PAGE_BYTES: u64 = 1 << 20;
const PAGE_ROWS: u64 = 20_000;
/// A decompression context of zstd.
const ZSTD_BYTES: u64 = 128 << 10;
/// What decoding may take beyond its reservation, of the 64 MB that may be resident beside the limit.
const UNRESERVED_BYTES: u64 = 24 << 20;
/// The share of the memory limit that is reserved for decoding, at most.
const RESERVED_SHARE: u64 = 8;
/// Files that are looked at: those of a table are much alike.
const FILES_LOOKED_AT: usize = 16;

/// Tells the files of a scan that reads `fields` what decoding them takes, unless those are so few that it does not matter.
pub(super) async fn with_decoding_bytes(
    groups: Vec<FileGroup>,
    schema: &Schema,
    fields: &HashSet<&str>,
    limit_bytes: usize,
    lanes: usize,
    reader: impl Fn(&PartitionedFile) -> datafusion::common::Result<AccountedReader>,
) -> datafusion::common::Result<Vec<FileGroup>> {
    let most_bytes = limit_bytes as u64 / RESERVED_SHARE + UNRESERVED_BYTES;
    let of_column = 2 * PAGE_BYTES + ZSTD_BYTES;
    let read = schema.fields().iter().filter(|field| fields.contains(field.name().as_str()));
    let columns = leaf_columns(&Schema::new(read.cloned().collect::<Fields>()));
    if (columns * lanes) as u64 * of_column <= most_bytes {
        return Ok(groups);
    }
    let count: usize = groups.iter().map(FileGroup::len).sum();
    let files = groups.iter().flat_map(|group| group.files());
    let mut of_fields: HashMap<String, u64> = HashMap::new();
    for file in files.step_by(count.div_ceil(FILES_LOOKED_AT).max(1)) {
        // Reading the file will say what is wrong with it.
        let Ok(metadata) = reader(file)?.get_metadata(None).await else { return Ok(groups) };
        for (field, bytes) in bytes_of_fields(&metadata, fields) {
            let most = of_fields.entry(field).or_default();
            *most = bytes.max(*most);
        }
    }
    let known = Arc::new(DecodingBytes { of_fields, most_bytes });
    let told = |group: FileGroup| {
        let statistics = group.file_statistics(None).cloned();
        let files = group.into_inner().into_iter().map(|mut file| {
            file.extensions.insert(Arc::clone(&known));
            file
        });
        let group = FileGroup::new(files.collect());
        match statistics {
            Some(statistics) => group.with_statistics(Arc::new(statistics)),
            None => group,
        }
    };
    Ok(groups.into_iter().map(told).collect())
}

/// What decoding a field takes, in the row group where it takes most.
fn bytes_of_fields(metadata: &ParquetMetaData, fields: &HashSet<&str>) -> HashMap<String, u64> {
    let mut of_fields: HashMap<String, u64> = HashMap::new();
    for group in metadata.row_groups() {
        let mut of_group: HashMap<&str, u64> = HashMap::new();
        for chunk in group.columns() {
            let root = chunk.column_descr().path().parts().first();
            if let Some(root) = root.map(String::as_str).filter(|root| fields.contains(root)) {
                *of_group.entry(root).or_default() += decoding_bytes(chunk, group.num_rows());
            }
        }
        for (field, bytes) in of_group {
            let most = of_fields.entry(field.to_owned()).or_default();
            *most = bytes.max(*most);
        }
    }
    of_fields
}

/// What decoding a column of a row group of so many rows takes, as far as the file's metadata tells: its largest page and
/// its dictionary, decompressed, and what decompresses them.
pub(super) fn decoding_bytes(column: &ColumnChunkMetaData, rows: i64) -> u64 {
    let unsigned = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
    let compressed = unsigned(column.compressed_size()).max(1);
    let whole = u128::from(unsigned(column.uncompressed_size()));
    let most = |bytes: u128| bytes.min(u128::from(PAGE_BYTES)) as u64;
    let dictionary = column.dictionary_page_offset().filter(|&offset| offset > 0).map_or(0, |offset| {
        let bytes = unsigned(column.data_page_offset().saturating_sub(offset)).min(compressed);
        most(u128::from(bytes) * whole / u128::from(compressed))
    });
    let page = whole * u128::from(PAGE_ROWS) / u128::from(unsigned(rows).max(1));
    let context = match column.compression() {
        Compression::ZSTD(_) => ZSTD_BYTES,
        _ => 0,
    };
    dictionary + most(page.min(whole)) + context
}
