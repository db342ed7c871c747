//! Databases of format version 1 are read, and go on in version 2.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Field, Schema};
use nandina_pages::{Page, PageIdentity, PageSchema, Verify};

use crate::manifest::{Manifest, decode_schema, first_line, from_hex};
use crate::page_index::{IndexLayout, encode_rows};
use crate::segment::{BLOCK_BYTES, file_name};
use crate::{
    IfExists, MANIFEST, Mode, ScanOptions, Store, TableDefinition, TableWriter, WriteMode, WriteOptions,
};

fn write(writer: TableWriter, keys: std::ops::Range<i64>) {
    let mut lane = writer.lane();
    let rows =
        RecordBatch::try_new(Arc::clone(writer.schema()), vec![Arc::new(Int64Array::from_iter_values(keys))]);
    lane.append_blocking(&rows.unwrap()).unwrap();
    lane.finish_blocking().unwrap();
    writer.commit_blocking().unwrap();
}

fn keys(store: &Store) -> Vec<i64> {
    let scan = store.table("t").unwrap().scan(ScanOptions::default()).unwrap();
    let mut reader = scan.reader();
    let mut keys = Vec::new();
    while let Some(batch) = reader.next_blocking() {
        let batch = batch.unwrap();
        keys.extend_from_slice(batch.column(0).as_primitive::<Int64Type>().values());
    }
    keys.sort_unstable();
    keys
}

/// Makes the database what version 1 would have written.
fn downgrade(directory: &Path) {
    let path = directory.join(MANIFEST);
    let mut manifest = Manifest::decode(&fs::read(&path).unwrap(), "manifest").unwrap();
    manifest.database = None;
    for table in &mut manifest.tables {
        let schema = Arc::new(decode_schema(&from_hex(&table.schema).unwrap(), "manifest").unwrap());
        let layout = IndexLayout::new(PageSchema::try_new(schema).unwrap()).unwrap();
        for segment in &mut table.segments {
            let path = directory.join(file_name(segment.id));
            let mut bytes = fs::read(&path).unwrap();
            let fixed = &mut bytes[..64];
            fixed[4] = 1;
            fixed[24..32].fill(0);
            let schema_bytes = u32::from_le_bytes(fixed[20..24].try_into().unwrap()) as usize;
            let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..60]), &bytes[64..64 + schema_bytes]);
            bytes[60..64].copy_from_slice(&checksum.to_le_bytes());

            let start = segment.directory_offset as usize;
            let page = &bytes[start..start + segment.directory_bytes as usize];
            let page = Page::open(Buffer::from(page), Arc::clone(&layout.directory), Verify::Checksums);
            let mut columns = page.unwrap().batch(None).unwrap().columns().to_vec();
            columns.remove(layout.directory.arrow().index_of("index_checksum").unwrap());
            let old = encode_rows(&layout.directory_1, columns, PageIdentity::default()).unwrap();
            assert!(
                old.len() <= segment.directory_bytes as usize
                    && old.len().is_multiple_of(BLOCK_BYTES as usize)
            );
            bytes[start..start + old.len()].copy_from_slice(&old);
            segment.directory_bytes = old.len() as u64;
            segment.directory_checksum = None;
            fs::write(&path, bytes).unwrap();
        }
    }
    let body = serde_json::to_vec_pretty(&manifest).unwrap();
    fs::write(&path, [first_line(1, &body).as_bytes(), b"\n", &body].concat()).unwrap();
}

#[test]
fn version_1_is_read_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let schema = Arc::new(Schema::new(vec![Field::new("key", DataType::Int64, false)]));
    let definition = TableDefinition::new("t", schema).with_page_bytes(32 << 10);
    {
        let store = Store::open_path(directory.path(), Mode::Write).unwrap();
        let options = WriteOptions::default();
        write(store.create_table_with_rows(definition, IfExists::Fail, options).unwrap(), 0..100_000);
    }
    downgrade(directory.path());
    let first_line = || fs::read_to_string(directory.path().join(MANIFEST)).unwrap();
    assert!(first_line().starts_with("NANDINA MANIFEST 1 "));
    let expected: Vec<i64> = (0..100_010).collect();
    {
        let store = Store::open_path(directory.path(), Mode::ReadOnly).unwrap();
        assert_eq!(keys(&store), expected[..100_000]);
    }
    {
        let store = Store::open_path(directory.path(), Mode::Write).unwrap();
        let writer = store.table("t").unwrap().writer(WriteMode::Append, WriteOptions::default());
        write(writer.unwrap(), 100_000..100_010);
        assert_eq!(keys(&store), expected);
    }
    assert!(first_line().starts_with("NANDINA MANIFEST 3 "));
    assert_eq!(keys(&Store::open_path(directory.path(), Mode::Write).unwrap()), expected);
}
