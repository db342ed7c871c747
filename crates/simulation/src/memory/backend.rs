//! Operations on memory.

use std::collections::VecDeque;

use nandina_device::backend::{IoBackend, Operation, Sink, advance};
use parking_lot::Mutex;

use super::MemoryMedium;

/// Executes operations on a [`MemoryMedium`] one after the other.
pub(crate) struct MemoryBackend {
    medium: MemoryMedium,
    sink: Sink,
    queue: Mutex<BackendQueue>,
}

#[derive(Default)]
struct BackendQueue {
    operations: VecDeque<Box<Operation>>,
    /// A thread is emptying the queue. Reporting a result may start further operations; they are queued for that
    /// thread instead of being executed recursively.
    busy: bool,
}

impl MemoryBackend {
    pub(crate) fn new(medium: MemoryMedium, sink: Sink) -> Self {
        Self { medium, sink, queue: Mutex::default() }
    }
}

impl IoBackend for MemoryBackend {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn start(&self, operations: Vec<Box<Operation>>) {
        let mut queue = self.queue.lock();
        queue.operations.extend(operations);
        if queue.busy {
            return;
        }
        queue.busy = true;
        while let Some(mut operation) = queue.operations.pop_front() {
            drop(queue);
            let result = self.medium.execute(&mut operation);
            let (ended, again) = advance([(operation, result)]);
            self.queue.lock().operations.extend(again);
            self.sink.ended(ended);
            queue = self.queue.lock();
        }
        queue.busy = false;
    }

    fn run(&self, operation: Box<Operation>) {
        self.start(vec![operation]);
    }

    fn drive(&self, _ready: &dyn Fn() -> bool) -> bool {
        false
    }
}
