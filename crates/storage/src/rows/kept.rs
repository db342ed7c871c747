//! Keeping rows where they are, so that ids which a statement has found are still theirs when it changes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::store::Store;

/// As long as it is there, nothing puts rows elsewhere in the background.
#[derive(Debug)]
pub struct RowsKept(Arc<AtomicUsize>);

impl Store {
    /// Keeps all rows where they are, for those who may change some that they find from now on. `VACUUM` that was asked for, and statements
    /// that replace all rows of a table, do not wait for it.
    pub fn keep_rows(&self) -> RowsKept {
        // Whatever is being put elsewhere is there before this, or not at all.
        let _unchanged = self.shapes().read();
        let kept = Arc::clone(self.rows_kept());
        kept.fetch_add(1, Ordering::SeqCst);
        RowsKept(kept)
    }
}

impl Drop for RowsKept {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
