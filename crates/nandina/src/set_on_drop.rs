//! How work on another thread learns that its waiter is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tells a thread that its waiter is gone.
pub(crate) struct SetOnDrop(pub Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
