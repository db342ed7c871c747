//! A backend whose operations end when a drive model says so.

use std::sync::Arc;

use nandina_device::Result;
use nandina_device::backend::{IoBackend, Operation, Sink};

use super::Timing;

pub(crate) struct TimedBackend<T> {
    below: Box<dyn IoBackend>,
    timing: Arc<Timing>,
    time: T,
}

/// What moves time on.
pub(crate) trait Time: Send + Sync {
    /// How many sleeping tasks [`Time::step`] has woken, if nothing else moves time.
    fn woken(&self) -> Option<u64>;

    /// Lets time go on to the next event. False when nothing is to come, or it goes on by itself.
    fn step(&self) -> bool;
}

impl<T: Time> TimedBackend<T> {
    /// In front of the backend that `below` makes.
    pub(crate) fn new(
        timing: Arc<Timing>,
        time: T,
        sink: Sink,
        below: impl FnOnce(Sink) -> Result<Box<dyn IoBackend>>,
    ) -> Result<Self> {
        assert!(timing.sink.set(sink).is_ok(), "a drive belongs to one device");
        let below = below(Arc::clone(&timing) as Sink)?;
        Ok(Self { below, timing, time })
    }
}

impl<T: Time> IoBackend for TimedBackend<T> {
    fn name(&self) -> &'static str {
        self.below.name()
    }

    fn start(&self, operations: Vec<Box<Operation>>) {
        self.timing.begin(&operations);
        self.below.start(operations);
    }

    fn run(&self, operation: Box<Operation>) {
        self.timing.begin(std::slice::from_ref(&operation));
        self.below.run(operation);
    }

    fn drive(&self, _ready: &dyn Fn() -> bool) -> bool {
        self.time.step()
    }

    fn woken(&self) -> Option<u64> {
        self.time.woken()
    }

    fn reap(&self) {
        self.below.reap();
    }

    fn sleeper_added(&self) {
        self.below.sleeper_added();
    }

    fn sleeper_gone(&self) {
        self.below.sleeper_gone();
    }
}
