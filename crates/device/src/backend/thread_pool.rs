//! `preadv`/`pwritev` on a pool of threads: for systems that do not permit io_uring, many containers among them.
//!
//! Threads are started when operations wait and none is idle, up to a bound, and stay until the device is closed.
//! A blocking waiter executes queued operations itself before it sleeps.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use super::system_call::execute;
use super::{IoBackend, Sink};
use crate::operation::Operation;

pub(crate) struct ThreadPool {
    queue: Arc<Queue>,
    max_threads: usize,
}

struct Queue {
    state: Mutex<QueueState>,
    work: Condvar,
    sink: Sink,
}

#[derive(Default)]
struct QueueState {
    operations: VecDeque<Box<Operation>>,
    threads: Vec<JoinHandle<()>>,
    idle: usize,
    stop: bool,
}

impl ThreadPool {
    pub(crate) fn new(max_threads: usize, sink: Sink) -> Self {
        let queue = Queue { state: Mutex::default(), work: Condvar::new(), sink };
        Self { queue: Arc::new(queue), max_threads: max_threads.max(1) }
    }
}

impl IoBackend for ThreadPool {
    fn name(&self) -> &'static str {
        "thread pool"
    }

    fn start(&self, operations: Vec<Box<Operation>>) {
        let mut state = self.queue.state.lock();
        state.operations.extend(operations);
        let waiting = state.operations.len();
        let idle = state.idle;
        let missing = waiting.saturating_sub(idle).min(self.max_threads - state.threads.len());
        for _ in 0..missing {
            let queue = Arc::clone(&self.queue);
            let spawned = std::thread::Builder::new().name("nandina-io".into()).spawn(move || queue.work());
            match spawned {
                Ok(thread) => state.threads.push(thread),
                // Without one more thread the others, or the waiters themselves, do the work.
                Err(error) => {
                    log::warn!("cannot start another I/O thread: {error}");
                    break;
                }
            }
        }
        drop(state);
        for _ in 0..waiting.min(idle) {
            self.queue.work.notify_one();
        }
    }

    fn run(&self, operation: Box<Operation>) {
        execute(operation, &self.queue.sink);
    }

    fn drive(&self, ready: &dyn Fn() -> bool) -> bool {
        let mut executed = false;
        while !ready() {
            let Some(operation) = self.queue.state.lock().operations.pop_front() else {
                return executed;
            };
            execute(operation, &self.queue.sink);
            executed = true;
        }
        true
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        let threads = {
            let mut state = self.queue.state.lock();
            state.stop = true;
            std::mem::take(&mut state.threads)
        };
        self.queue.work.notify_all();
        for thread in threads {
            // The last owner of the device may be an operation that one of these threads has just finished.
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                log::error!("an I/O thread panicked");
            }
        }
    }
}

impl Queue {
    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(operation) = state.operations.pop_front() {
                drop(state);
                execute(operation, &self.sink);
                state = self.state.lock();
            } else if state.stop {
                return;
            } else {
                state.idle += 1;
                self.work.wait(&mut state);
                state.idle -= 1;
            }
        }
    }
}
