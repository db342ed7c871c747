//! When is a request over? Not before a model of a drive says so.
//!
//! A device with a drive model has the medium and the backend of any other, with [`TimedMedium`] and [`TimedBackend`]
//! in front of them. Requests are executed as ever; only their ends wait for the model, which sees the same requests at
//! the same moments, at the addresses where [`Placement`] puts them.
//!
//! ```text
//!   start ──┬──► backend ────────────────────────────► executed──┐
//!           └──► Placement ──► commands ──► Drive ──► ended ──────┴──► over, when both are
//! ```
//!
//! Who advances the drive decides what time is: a [`crate::Machine`] in virtual time, a thread in the system's
//! ([`crate::PacedDrive`]).

mod backend;
mod medium;
mod placement;

pub(crate) use self::backend::{Time, TimedBackend};
pub(crate) use self::medium::TimedMedium;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nandina_device::Clock;
use nandina_device::backend::{self as device, CompletionSink, Operation, Sink, Traffic};
use parking_lot::{Condvar, Mutex};

use self::placement::{Piece, Placement};
use crate::drive::{Command, CommandKind, Drive, DriveFigures, DriveModel, Ended, Nanos};

/// A drive, what lies where on it, and the operations that wait for it.
pub(crate) struct Timing {
    clock: Arc<dyn Clock>,
    switched_on: Instant,
    /// Whether freed ranges are told to the drive.
    discard: bool,
    state: Mutex<State>,
    /// The drive was given something to do.
    changed: Condvar,
    sink: OnceLock<Sink>,
}

struct State {
    drive: Box<dyn Drive>,
    placement: Placement,
    last_tag: u64,
    /// Of every command in the drive, whose it is.
    commands: HashMap<u64, usize>,
    held: HashMap<usize, Held>,
}

/// An operation that is not over.
struct Held {
    commands_left: usize,
    executed: Option<device::Ended>,
}

impl Timing {
    pub(crate) fn new(clock: Arc<dyn Clock>, model: &DriveModel, seed: u64, discard: bool) -> Self {
        let drive = model.switch_on(seed);
        Self {
            switched_on: clock.now(),
            clock,
            discard,
            state: Mutex::new(State {
                placement: Placement::new(drive.capacity_bytes()),
                drive,
                last_tag: 0,
                commands: HashMap::new(),
                held: HashMap::new(),
            }),
            changed: Condvar::new(),
            sink: OnceLock::new(),
        }
    }

    fn nanos(&self, at: Instant) -> Nanos {
        at.saturating_duration_since(self.switched_on).as_nanos() as Nanos
    }

    fn now(&self) -> Nanos {
        self.nanos(self.clock.now())
    }

    /// Hands operations to the drive as they are handed to the backend.
    fn begin(&self, operations: &[Box<Operation>]) {
        let mut state = self.state.lock();
        // Under the lock: operations submitted later must not bear an earlier time.
        let now = self.now();
        for operation in operations {
            state.begin(now, operation);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// When the drive next has something to tell or to do.
    pub(crate) fn next_event(&self) -> Option<Instant> {
        let next = self.state.lock().drive.next_event()?;
        Some(self.switched_on + Duration::from_nanos(next))
    }

    /// Lets the drive work until `until`; `reached` is called before it can be given anything else to do.
    #[must_use = "what is over has to be reported"]
    pub(crate) fn advance(&self, until: Instant, reached: impl FnOnce()) -> Vec<device::Ended> {
        let mut state = self.state.lock();
        let over = state.advance(self.nanos(until), self.switched_on);
        reached();
        over
    }

    /// Lets the drive work in the system's time, ending operations when they are over, until `stop`.
    pub(crate) fn pace(&self, stop: impl Fn() -> bool) {
        let mut state = self.state.lock();
        while !stop() {
            let over = state.advance(self.now(), self.switched_on);
            if !over.is_empty() {
                drop(state);
                self.report(over);
                state = self.state.lock();
                continue;
            }
            match state.drive.next_event() {
                Some(next) => {
                    let at = self.switched_on + Duration::from_nanos(next);
                    let _ = self.changed.wait_until(&mut state, at);
                }
                None => self.changed.wait(&mut state),
            }
        }
    }

    /// Has [`Timing::pace`] look again whether to stop.
    pub(crate) fn wake_pacer(&self) {
        // Under the lock: the pacer either has not looked yet or is asleep.
        drop(self.state.lock());
        self.changed.notify_all();
    }

    /// Tells the device which operations have ended.
    pub(crate) fn report(&self, over: Vec<device::Ended>) {
        if !over.is_empty() {
            self.sink.get().expect("operations come through a backend, which has a sink").ended(over);
        }
    }

    /// Frees ranges of files and, if that is wanted, tells the drive, without waiting for it.
    fn discard(&self, free: impl FnOnce(&mut Placement) -> Vec<Piece>) {
        let mut state = self.state.lock();
        let now = self.now();
        let pieces = free(&mut state.placement);
        if self.discard {
            for Piece { address, bytes } in pieces {
                let tag = state.new_tag();
                state.drive.submit(now, Command { tag, kind: CommandKind::Trim, address, bytes });
            }
            drop(state);
            self.changed.notify_one();
        }
    }

    pub(crate) fn figures(&self) -> DriveFigures {
        self.state.lock().drive.figures()
    }

    /// The whole drive has been written to once.
    pub(crate) fn fill(&self) {
        self.state.lock().drive.fill();
    }
}

/// Takes what the backend has executed.
impl CompletionSink for Timing {
    fn ended(&self, executed: Vec<device::Ended>) {
        let mut state = self.state.lock();
        let over = executed.into_iter().filter_map(|executed| state.hold(executed)).collect();
        drop(state);
        self.report(over);
    }
}

impl State {
    fn new_tag(&mut self) -> u64 {
        self.last_tag += 1;
        self.last_tag
    }

    /// Hands an operation to the drive, if that has anything to do with it.
    fn begin(&mut self, now: Nanos, operation: &Operation) {
        let (file, offset, bytes) = (operation.file().key(), operation.offset(), operation.total_bytes());
        let (kind, pieces) = match operation.traffic() {
            // Ranges never written have no place and are read from nowhere.
            Traffic::Read => (CommandKind::Read, self.placement.find(file, offset, bytes)),
            Traffic::Write => (CommandKind::Write, self.placement.place(file, offset, bytes)),
            Traffic::Sync => (CommandKind::Flush, vec![Piece { address: 0, bytes: 0 }]),
        };
        if pieces.is_empty() {
            return;
        }
        let operation = address(operation);
        let held = Held { commands_left: pieces.len(), executed: None };
        assert!(self.held.insert(operation, held).is_none(), "an operation is handed to the drive once");
        for Piece { address, bytes } in pieces {
            let tag = self.new_tag();
            self.commands.insert(tag, operation);
            self.drive.submit(now, Command { tag, kind, address, bytes });
        }
    }

    /// Keeps an operation that was executed until the drive has ended it; given back if it has already.
    fn hold(&mut self, executed: device::Ended) -> Option<device::Ended> {
        let operation = address(&executed.operation);
        match self.held.get_mut(&operation) {
            Some(held) if held.commands_left > 0 => {
                held.executed = Some(executed);
                None
            }
            _ => {
                self.held.remove(&operation);
                Some(executed)
            }
        }
    }

    /// Lets the drive work; returns the operations that have ended by then and are executed.
    fn advance(&mut self, until: Nanos, switched_on: Instant) -> Vec<device::Ended> {
        let mut ended: Vec<Ended> = Vec::new();
        self.drive.advance(until, &mut ended);
        let mut over = Vec::new();
        for Ended { at, tag } in ended {
            // Trims belong to no operation.
            let Some(operation) = self.commands.remove(&tag) else { continue };
            let held = self.held.get_mut(&operation).expect("commands are those of operations that are held");
            held.commands_left -= 1;
            if held.commands_left == 0
                && let Some(executed) = held.executed.take()
            {
                self.held.remove(&operation);
                over.push(device::Ended { at: Some(switched_on + Duration::from_nanos(at)), ..executed });
            }
        }
        over
    }
}

/// What an operation is known by from its start to its end: it stays where it is in memory.
fn address(operation: &Operation) -> usize {
    std::ptr::from_ref::<Operation>(operation).addr()
}
