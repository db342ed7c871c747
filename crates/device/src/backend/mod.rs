//! Ways to execute operations.

mod io_uring;
pub(crate) mod simulated;
mod system_call;
mod thread_pool;

pub(crate) use io_uring::IoUringBackend;
pub(crate) use thread_pool::ThreadPool;

use crate::request::Operation;

/// Takes operations and reports each exactly once to [`crate::device::finish`].
///
/// The device has granted a slot to every operation before `start`, so no more than its `max_depth` are here.
pub(crate) trait IoBackend: Send + Sync {
    fn name(&self) -> &'static str;

    /// Starts operations, all of them visible to the medium together. Does not wait for them.
    fn start(&self, operations: Vec<Box<Operation>>);

    /// Executes one operation for a thread that does nothing else until it has ended. One system call that waits is
    /// cheaper than two, one to start and one to wait.
    fn run(&self, operation: Box<Operation>) {
        system_call::execute(operation);
    }

    /// Called by a blocking thread that has nothing else to do: executes and reports operations in this thread
    /// until `ready`. Returns false when there was nothing to execute here; then another thread does, and the caller
    /// can sleep until it is notified.
    fn drive(&self, ready: &dyn Fn() -> bool) -> bool;

    /// Reports operations that have ended already, without waiting.
    fn reap(&self);

    /// A task or a parked thread now relies on being notified.
    fn sleeper_added(&self) {}

    /// One of them has been notified, or has given up.
    fn sleeper_gone(&self) {}
}
