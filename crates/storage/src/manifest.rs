//! The manifest: the one small file that says which tables there are and which segments they consist of.
//!
//! ```text
//!  NANDINA MANIFEST 4 <crc32c of the version and the rest, 8 hex digits> <length of the rest>\n
//!  { "database": …, "generation": …, "next_segment": …, "next_table": …, "tables": [ … ], "views": [ … ], … }
//! ```
//!
//! JSON, so that people can read it. Replaced as a whole for every change.

use arrow_ipc::convert::try_schema_from_flatbuffer_bytes;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use arrow_schema::Schema;
use serde::{Deserialize, Serialize};

use crate::error::{Result, StorageError};
use crate::guard::guarded;
use crate::ids::{DatabaseId, SegmentId, TableId};
use crate::names::{MAIN, qualified};
use crate::objects::{Objects, TableRules};
use crate::rows::HeapRecord;

const MAGIC: &str = "NANDINA MANIFEST";
/// What each version added:
///
/// 2. the database's identity, and checksums of directories
/// 3. schemas, and other objects than tables and views
/// 4. tables whose rows are in a heap
/// 5. tables with rows in segments and in a heap
/// 6. indexes of such tables
///
/// Older manifests are read, and one is written as the oldest version that has all that it needs.
const VERSION: u32 = 6;
const OLDEST_VERSION: u32 = 1;
const FIRST_VERSION_WITH_SCHEMAS: u32 = 3;
const FIRST_VERSION_WITH_HEAPS: u32 = 4;
const FIRST_VERSION_WITH_DELETED_ROWS: u32 = 5;
const FIRST_VERSION_WITH_INDEXED_SEGMENTS: u32 = 6;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// `None` only in a manifest of version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<DatabaseId>,
    /// Counts the changes.
    pub generation: u64,
    pub next_segment: u64,
    pub next_table: u64,
    pub tables: Vec<TableRecord>,
    #[serde(flatten)]
    pub objects: Objects,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TableRecord {
    pub id: TableId,
    /// As [`qualified`] gives it.
    pub name: String,
    pub page_bytes: u32,
    /// For people; `schema` decides.
    pub columns: Vec<String>,
    /// Arrow IPC schema message, in hex digits.
    pub schema: String,
    /// In order of their page numbers.
    pub segments: Vec<SegmentRecord>,
    #[serde(flatten)]
    pub rules: TableRules,
    /// Where its rows are, if they are changed one by one: then it has segments only if some of their rows may be deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<HeapRecord>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SegmentRecord {
    pub id: SegmentId,
    /// Table-wide number of the segment's first page.
    pub first_page: u64,
    /// Page numbers the segment takes up; some may be unused.
    pub page_numbers: u64,
    pub pages: u64,
    pub rows: u64,
    pub file_bytes: u64,
    pub header_bytes: u64,
    pub directory_offset: u64,
    pub directory_bytes: u64,
    /// Checksum in the directory's page header; `None` for segments of version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory_checksum: Option<u32>,
}

impl Manifest {
    pub fn empty() -> Self {
        Self {
            database: Some(DatabaseId::random()),
            generation: 0,
            next_segment: 1,
            next_table: 1,
            tables: Vec::new(),
            objects: Objects::default(),
        }
    }

    pub fn encode(&self) -> Result<Vec<u8>> {
        let body = serde_json::to_vec_pretty(self)
            .map_err(|error| StorageError::damaged("manifest", format!("cannot be written: {error}")))?;
        let of_heap = |heap: &HeapRecord| match (&heap.deleted, heap.indexes.is_empty()) {
            (Some(_), false) => FIRST_VERSION_WITH_INDEXED_SEGMENTS,
            (Some(_), true) => FIRST_VERSION_WITH_DELETED_ROWS,
            (None, _) => FIRST_VERSION_WITH_HEAPS,
        };
        let versions = self.tables.iter().filter_map(|table| table.rows.as_ref()).map(of_heap);
        let version = versions.max().unwrap_or(FIRST_VERSION_WITH_SCHEMAS);
        let mut out = first_line(version, &body).into_bytes();
        out.push(b'\n');
        out.extend_from_slice(&body);
        Ok(out)
    }

    /// `file` is named in errors.
    pub fn decode(bytes: &[u8], file: &str) -> Result<Self> {
        let damaged = |reason: &str| StorageError::damaged(file, reason);
        let end = bytes
            .iter()
            .position(|&byte| byte == b'\n')
            .ok_or_else(|| damaged("its first line is cut off"))?;
        let (line, body) = (&bytes[..end], &bytes[end + 1..]);
        let line = std::str::from_utf8(line).map_err(|_| damaged("its first line is not text"))?;
        let fields = line.strip_prefix(MAGIC).ok_or_else(|| damaged("it is not a Nandina manifest"))?;
        let mut fields = fields.split_whitespace();
        let found: u32 =
            fields.next().and_then(|field| field.parse().ok()).ok_or_else(|| damaged("it has no version"))?;
        if !(OLDEST_VERSION..=VERSION).contains(&found) {
            return Err(StorageError::Version { file: file.to_owned(), found, supported: VERSION });
        }
        if fields.nth(1).and_then(|length| length.parse().ok()) != Some(body.len()) {
            return Err(damaged("it is longer or shorter than its first line says"));
        }
        if line != first_line(found, body) {
            return Err(damaged("its checksum does not match"));
        }
        let mut manifest: Self = serde_json::from_slice(body).map_err(|error| damaged(&error.to_string()))?;
        if found > OLDEST_VERSION && manifest.database.is_none() {
            return Err(damaged("it does not say which database it is of"));
        }
        if found < FIRST_VERSION_WITH_SCHEMAS {
            let names = manifest.tables.iter_mut().map(|table| &mut table.name);
            let views = manifest.objects.views.iter_mut().map(|view| &mut view.name);
            names.chain(views).for_each(|name| *name = qualified(MAIN, name));
        }
        Ok(manifest)
    }
}

pub(crate) fn first_line(version: u32, body: &[u8]) -> String {
    // Of versions that could be taken for each other the checksum knows its own.
    let checksum = match version {
        ..FIRST_VERSION_WITH_SCHEMAS => crc32c::crc32c(body),
        _ => crc32c::crc32c_append(crc32c::crc32c(&version.to_le_bytes()), body),
    };
    format!("{MAGIC} {version} {checksum:08x} {}", body.len())
}

/// Arrow IPC schema message.
pub(crate) fn encode_schema(schema: &Schema) -> Vec<u8> {
    let options = IpcWriteOptions::default();
    let mut dictionaries = DictionaryTracker::new(false);
    IpcDataGenerator::default()
        .schema_to_bytes_with_dictionary_tracker(schema, &mut dictionaries, &options)
        .ipc_message
}

pub(crate) fn decode_schema(bytes: &[u8], file: &str) -> Result<Schema> {
    // Arrow panics over types that it does not know.
    let decoded = guarded(|| try_schema_from_flatbuffer_bytes(bytes));
    let decoded = decoded.map_err(|_| StorageError::damaged(file, "a column has an unknown type"))?;
    decoded.map_err(|error| StorageError::damaged(file, error.to_string()))
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::{ColumnDefault, Made};

    fn manifest() -> Manifest {
        let segment = SegmentRecord {
            id: SegmentId(4),
            first_page: 0,
            page_numbers: 9,
            pages: 8,
            rows: 1000,
            file_bytes: 65536,
            header_bytes: 4096,
            directory_offset: 61440,
            directory_bytes: 4096,
            directory_checksum: Some(0x0102_0304),
        };
        let table = TableRecord {
            id: TableId(2),
            name: "orders".to_owned(),
            page_bytes: 65536,
            columns: vec!["key Int64".to_owned()],
            schema: "00ff".to_owned(),
            segments: vec![segment],
            rules: TableRules {
                defaults: vec![ColumnDefault { column: "key".to_owned(), expression: "7".to_owned() }],
                checks: vec!["key > 0".to_owned()],
                check_names: vec!["positive".to_owned()],
                always_numbered: vec!["key".to_owned()],
            },
            rows: None,
        };
        let view = Made { name: "new".to_owned(), statement: "CREATE VIEW new AS …".to_owned() };
        Manifest {
            database: Some(DatabaseId(0x00ab_cdef)),
            generation: 7,
            next_segment: 5,
            next_table: 3,
            tables: vec![table],
            objects: Objects { schemas: vec!["sales".to_owned()], views: vec![view], ..Objects::default() },
        }
    }

    #[test]
    fn round_trip() {
        let bytes = manifest().encode().unwrap();
        assert_eq!(Manifest::decode(&bytes, "m").unwrap(), manifest());
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let intact = manifest().encode().unwrap();
        for at in 0..intact.len() {
            for bit in 0..8 {
                let mut bytes = intact.clone();
                bytes[at] ^= 1 << bit;
                assert!(Manifest::decode(&bytes, "m").is_err(), "byte {at} bit {bit}");
            }
        }
    }

    #[test]
    fn truncated_empty_and_newer_files_are_named() {
        let bytes = manifest().encode().unwrap();
        let message = |bytes: &[u8]| Manifest::decode(bytes, "db/nandina.manifest").unwrap_err().to_string();
        assert!(message(b"").starts_with("db/nandina.manifest is damaged: its first line is cut off"));
        assert!(message(&bytes[..bytes.len() - 10]).contains("longer or shorter than its first line says"));
        assert!(message(b"PAR1 something\n").contains("it is not a Nandina manifest"));
        let newer = String::from_utf8(bytes).unwrap().replacen("MANIFEST 3 ", "MANIFEST 7 ", 1);
        assert!(
            message(newer.as_bytes())
                .starts_with("db/nandina.manifest has format version 7, this build reads")
        );
    }

    #[test]
    fn version_1_names_no_database() {
        let unnamed = Manifest { database: None, ..manifest() };
        let body = serde_json::to_vec(&unnamed).unwrap();
        let of_version = |version: u32| [first_line(version, &body).as_bytes(), b"\n", &body].concat();
        assert_eq!(Manifest::decode(&of_version(1), "m").unwrap(), unnamed);
        let message = Manifest::decode(&of_version(2), "m").unwrap_err().to_string();
        assert!(message.contains("it does not say which database it is of"), "{message}");
    }

    #[test]
    fn names_without_schemas_become_names_of_main() {
        let mut old = manifest();
        old.tables[0].name = "a.b".to_owned();
        let body = serde_json::to_vec(&old).unwrap();
        let bytes = [first_line(2, &body).as_bytes(), b"\n", &body].concat();
        assert_eq!(Manifest::decode(&bytes, "m").unwrap().tables[0].name, "\"a.b\"");
    }

    #[test]
    fn hex_digits() {
        assert_eq!(from_hex(&to_hex(&[0, 1, 254, 255])), Some(vec![0, 1, 254, 255]));
        assert_eq!(from_hex("0g"), None);
    }
}
