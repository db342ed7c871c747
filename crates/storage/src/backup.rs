//! A consistent copy of a database, while others go on changing it.
//!
//! ```text
//!   segments of one state ─► those that have been added since ─► pages and log of changed rows ─► manifest, last: without it
//!                            └──────────── nothing is committed to the manifest ────────────┘     there is no database
//! ```
//!
//! Rows go on being changed all the time, but tables, indexes and segments neither come nor go in the second part, so that the copy is
//! one state of all.

use std::collections::HashSet;
use std::sync::Arc;

use nandina_device::{Device, FileClass};

use crate::error::{Result, StorageError};
use crate::segment::Segment;
use crate::store::{MANIFEST, Snapshot, Store};

/// Bytes that are read and written together.
const COPIED_BYTES: u64 = 4 << 20;

impl Store {
    /// Writes a copy of what is committed now to an empty directory.
    pub fn backup(&self, to: &Device) -> Result<()> {
        if to.list()?.iter().any(|name| !name.starts_with('.')) {
            return Err(StorageError::BackupIntoSomething { path: to.path().to_owned() });
        }
        let _indexing = self.indexing().lock();
        // Keeps rows from being cleared away that are in the copy.
        let _transaction = self.begin()?;
        let mut copied = Vec::new();
        let outcome = self.copy(to, &mut copied);
        if outcome.is_err() {
            remove_all(&copied, to);
        }
        outcome
    }

    fn copy(&self, to: &Device, copied: &mut Vec<Arc<Segment>>) -> Result<()> {
        copy_segments(&self.snapshot(), to, copied)?;
        let mut rows = None;
        let (segments, held) = loop {
            let (last, held) = self.held();
            let (manifest, segments) = last.contents();
            let has_rows = manifest.tables.iter().any(|table| table.rows.is_some());
            if has_rows && rows.is_none() {
                // It is opened without keeping others waiting.
                drop(held);
                self.check_writable()?;
                rows = Some(self.row_store()?);
                continue;
            }
            copy_segments(&last, to, copied)?;
            if let Some(rows) = rows.filter(|_| has_rows) {
                rows.pages().backup(to, to)?;
            }
            to.write_small(MANIFEST, &manifest.encode()?)?;
            break (segments, held);
        };
        drop(held);
        let kept: HashSet<String> = segments.iter().map(|segment| segment.file_name()).collect();
        copied.retain(|segment| !kept.contains(&segment.file_name()));
        remove_all(copied, to);
        Ok(())
    }
}

/// Copies the segments of a state that have not been before.
fn copy_segments(state: &Snapshot, to: &Device, copied: &mut Vec<Arc<Segment>>) -> Result<()> {
    for segment in state.contents().1 {
        if copied.iter().all(|other| other.file_name() != segment.file_name()) {
            copied.push(Arc::clone(&segment));
            copy_segment(&segment, to)?;
        }
    }
    Ok(())
}

fn remove_all(segments: &[Arc<Segment>], to: &Device) {
    for segment in segments {
        match to.remove(&segment.file_name()) {
            Err(error) if !error.is_not_found() => {
                log::warn!("a file of a backup that is not needed stays: {error}");
            }
            _ => {}
        }
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
