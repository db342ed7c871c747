//! Waiting for other outputs of an operator, for as long as any of them makes progress.
//!
//! What an output does depends on its consumer. A consumer that has begun all outputs of an operator and then reads
//! them one after the other would wait forever if the first waited for the second. So an output waits while
//! the operator makes progress somewhere, and goes its own way when nothing has moved for a while: that costs
//! parallelism, never rows. Waiting needs a Tokio runtime with its timer enabled.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::futures::Notified;

/// How long nothing has to happen in an operator before an output stops waiting for the others. Long against a batch
/// or a slow request, short against a user's patience.
const PATIENCE: Duration = Duration::from_millis(500);

/// Counts the steps that the outputs of an operator have made.
#[derive(Debug, Default)]
pub struct Progress(AtomicUsize);

impl Progress {
    /// Notes progress of some output.
    pub fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for `changed`. False if nothing has moved for a while, and waiting may not end.
    pub async fn wait_for(&self, changed: Notified<'_>) -> bool {
        let mut changed = std::pin::pin!(changed);
        loop {
            let before = self.0.load(Ordering::Relaxed);
            if tokio::time::timeout(PATIENCE, &mut changed).await.is_ok() {
                return true;
            }
            if self.0.load(Ordering::Relaxed) == before {
                return false;
            }
        }
    }
}
