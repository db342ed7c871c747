//! Ways to execute operations.

mod io_uring;
mod system_call;
mod thread_pool;

pub(crate) use io_uring::IoUringBackend;
pub(crate) use thread_pool::ThreadPool;

use std::sync::Arc;
use std::time::Instant;

pub use crate::counters::Traffic;
use crate::error::Result;
use crate::operation::Progress;
pub use crate::operation::{Operation, Transfer};

/// Takes operations and reports each exactly once, when it is over, to the sink that it was made with.
///
/// The device has granted a slot to every operation before `start`, so no more than its `max_depth` are here.
pub trait IoBackend: Send + Sync {
    fn name(&self) -> &'static str;

    /// Starts operations, all of them visible to the medium together. Does not wait for them.
    fn start(&self, operations: Vec<Box<Operation>>);

    /// Executes one operation for a thread that does nothing else until it has ended. One system call that waits is
    /// cheaper than two, one to start and one to wait.
    fn run(&self, operation: Box<Operation>);

    /// Called by a blocking thread that has nothing else to do: executes and reports operations in this thread
    /// until `ready`. Returns false when there was nothing to execute here; then another thread does, and the caller
    /// can sleep until it is notified.
    fn drive(&self, ready: &dyn Fn() -> bool) -> bool;

    /// In virtual time, which nothing but [`IoBackend::drive`] moves: how many sleeping tasks that has woken. Then tasks
    /// that wait have to drive too, but not before those that were woken have had their turn.
    fn woken(&self) -> Option<u64> {
        None
    }

    /// Reports operations that have ended already, without waiting.
    fn reap(&self) {}

    /// A task or a parked thread now relies on being notified.
    fn sleeper_added(&self) {}

    /// One of them has been notified, or has given up.
    fn sleeper_gone(&self) {}
}

/// Where a backend reports operations that have ended. May start further operations from within.
pub trait CompletionSink: Send + Sync {
    fn ended(&self, ended: Vec<Ended>);
}

/// An operation that is over.
pub struct Ended {
    pub operation: Box<Operation>,
    pub outcome: Result<()>,
    /// When it was over; now if that is not said.
    pub at: Option<Instant>,
}

/// Applies the results of system calls. Operations that have ended are returned first; the others, to be continued,
/// second.
pub fn advance(
    results: impl IntoIterator<Item = (Box<Operation>, i32)>,
) -> (Vec<Ended>, Vec<Box<Operation>>) {
    let (mut ended, mut again) = (Vec::new(), Vec::new());
    for (operation, result) in results {
        match operation.advance(result) {
            Progress::Again(operation) => again.push(operation),
            Progress::Done(operation, outcome) => ended.push(Ended { operation, outcome, at: None }),
        }
    }
    (ended, again)
}

/// The sink of a backend, shared with its threads.
pub type Sink = Arc<dyn CompletionSink>;
