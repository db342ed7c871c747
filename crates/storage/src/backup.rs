//! A consistent copy of a database, while others go on changing it.
//!
//! ```text
//!   segments of one state ─► pages and log of changed rows ─► manifest of that state, last: without it there is no database
//! ```
//!
//! A transaction is open all the time, so that nothing that the state has is cleared away, and no index comes or goes. Rows may be
//! younger than the state, and sequences are as young as they.

use nandina_device::{Device, FileClass};

use crate::error::{Result, StorageError};
use crate::manifest::Manifest;
use crate::segment::Segment;
use crate::store::{MANIFEST, Store};

/// Bytes that are read and written together.
const COPIED_BYTES: u64 = 4 << 20;

impl Store {
    /// Writes a copy of what is committed now to an empty directory.
    pub fn backup(&self, to: &Device) -> Result<()> {
        if to.list()?.iter().any(|name| !name.starts_with('.')) {
            return Err(StorageError::BackupIntoSomething { path: to.path().to_owned() });
        }
        let _indexing = self.indexing().lock();
        let transaction = self.begin()?;
        let (mut manifest, segments) = transaction.snapshot().contents();
        let copied = self.copy(&mut manifest, &segments, to);
        if copied.is_err() {
            for segment in segments {
                match to.remove(&segment.file_name()) {
                    Err(error) if !error.is_not_found() => {
                        log::warn!("a part of a backup that failed stays: {error}")
                    }
                    _ => {}
                }
            }
        }
        copied
    }

    fn copy(&self, manifest: &mut Manifest, segments: &[std::sync::Arc<Segment>], to: &Device) -> Result<()> {
        for segment in segments {
            copy_segment(segment, to)?;
        }
        if manifest.tables.iter().any(|table| table.rows.is_some()) {
            self.check_writable()?;
            self.row_store()?.pages().backup(to, to)?;
            let now = self.objects().sequences;
            for sequence in &mut manifest.objects.sequences {
                if let Some(newer) = now.iter().find(|newer| newer.name == sequence.name) {
                    sequence.clone_from(newer);
                }
            }
        }
        to.write_small(MANIFEST, &manifest.encode()?)?;
        Ok(())
    }
}

fn copy_segment(segment: &Segment, to: &Device) -> Result<()> {
    let (from, bytes) = (segment.file()?, segment.record.file_bytes);
    let copy = to.create(&segment.file_name(), FileClass::Table)?;
    let mut at = 0;
    while at < bytes {
        let length = COPIED_BYTES.min(bytes - at);
        let read = from.read_blocking(at, to.buffer(length as usize))?;
        copy.write_blocking(at, read)?;
        at += length;
    }
    copy.sync()?;
    Ok(to.sync_directory()?)
}
