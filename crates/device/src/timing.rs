//! When is a request over? At once when its backend has executed it, or not before a model of a drive says so.
//!
//! A device with a drive model carries requests as any other, through its own backend. Only their ends wait for the
//! model, which sees the same requests at the same moments, at the addresses where [`Placement`] puts them.
//!
//! ```text
//!   start ──┬──► backend ────────────────────────────► executed──┐
//!           └──► Placement ──► commands ──► Drive ──► ended ──────┴──► concluded, when both are
//!
//!   virtual: whoever waits steps the drive from event to event and thereby moves the clock; nobody really waits
//!   paced:   the pacer thread sleeps until the drive's next event, in the system's time
//! ```
//!
//! Invariants
//! - In virtual time a single thread, or the tasks of a single-threaded executor, see the same run every time.
//! - Virtual time moves only while somebody waits for a request, or is told to pass: computing takes none.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::clock::Clock;
use crate::device::conclude;
use crate::drive::placement::{FileKey, Piece, Placement};
use crate::drive::{Command, CommandKind, Drive, DriveFigures, DriveModel, Ended, Nanos};
use crate::error::Result;
use crate::request::{Operation, Transfer};

/// See the [module documentation](self).
pub(crate) struct Timing {
    shared: Arc<Shared>,
    pacer: Option<JoinHandle<()>>,
}

struct Shared {
    clock: Clock,
    switched_on: Instant,
    /// Whether freed ranges are told to the drive.
    discard: bool,
    state: Mutex<State>,
    changed: Condvar,
    stop: AtomicBool,
}

struct State {
    drive: Box<dyn Drive>,
    placement: Placement,
    last_tag: u64,
    /// Of every command in the drive, whose it is.
    commands: HashMap<u64, u64>,
    requests: HashMap<u64, Held>,
}

/// A request that has not been concluded.
struct Held {
    commands_left: usize,
    executed: Option<Executed>,
}

/// What a backend made of a request.
pub(crate) struct Executed {
    pub operation: Box<Operation>,
    pub outcome: Result<()>,
}

impl Timing {
    /// Time is a number, starting now.
    pub(crate) fn virtual_time(clock: &Clock, model: &DriveModel, seed: u64, discard: bool) -> Self {
        Self { shared: Arc::new(Shared::new(clock.clone(), model, seed, discard)), pacer: None }
    }

    /// Time is the system's, and requests really take as long as the model says, if the medium is not slower.
    pub(crate) fn paced(model: &DriveModel, seed: u64, discard: bool) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::new(Clock::Real, model, seed, discard));
        let pacer = std::thread::Builder::new().name("nandina-pacer".into()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.pace()
        })?;
        Ok(Self { shared, pacer: Some(pacer) })
    }

    pub(crate) fn is_virtual(&self) -> bool {
        self.shared.clock.is_virtual()
    }

    /// Hands operations to the drive as they are handed to the backend.
    pub(crate) fn begin(&self, operations: &mut [Box<Operation>]) {
        let mut state = self.shared.state.lock();
        // Under the lock: what is submitted later must not bear an earlier time.
        let now = self.shared.now();
        for operation in operations {
            operation.timing_tag = state.begin(now, operation);
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Takes an operation that has been executed. Given back if the drive has ended it already.
    pub(crate) fn hold(&self, tag: u64, executed: Executed) -> Option<Executed> {
        let mut state = self.shared.state.lock();
        match state.requests.get_mut(&tag) {
            Some(held) if held.commands_left > 0 => {
                held.executed = Some(executed);
                None
            }
            _ => {
                state.requests.remove(&tag);
                Some(executed)
            }
        }
    }

    /// Lets virtual time go on to the drive's next event. False when nothing is to come.
    pub(crate) fn step(&self) -> bool {
        let mut state = self.shared.state.lock();
        let Some(next) = state.drive.next_event() else { return false };
        let concluded = state.advance(next);
        self.shared.clock.advance_to(self.shared.instant(next));
        drop(state);
        self.shared.conclude(concluded);
        true
    }

    /// Lets a time span of virtual time go by, in which requests go on.
    pub(crate) fn pass(&self, span: Duration) {
        let until = self.shared.now() + span.as_nanos() as u64;
        loop {
            let mut state = self.shared.state.lock();
            let next = state.drive.next_event().filter(|next| *next <= until);
            let concluded = state.advance(next.unwrap_or(until));
            self.shared.clock.advance_to(self.shared.instant(next.unwrap_or(until)));
            drop(state);
            self.shared.conclude(concluded);
            if next.is_none() {
                return;
            }
        }
    }

    /// Reserves a range of a file.
    pub(crate) fn allocate(&self, file: FileKey, offset: u64, bytes: u64) {
        self.shared.state.lock().placement.reserve(file, offset, bytes);
    }

    /// Frees a range of a file.
    pub(crate) fn release(&self, file: FileKey, offset: u64, bytes: u64) {
        self.discard(|placement| placement.release(file, offset, bytes));
    }

    /// Frees all of a file.
    pub(crate) fn remove(&self, file: FileKey) {
        self.discard(|placement| placement.remove(file));
    }

    /// Frees ranges and, if that is wanted, tells the drive, without waiting for it.
    fn discard(&self, free: impl FnOnce(&mut Placement) -> Vec<Piece>) {
        let mut state = self.shared.state.lock();
        let now = self.shared.now();
        let pieces = free(&mut state.placement);
        if self.shared.discard {
            for piece in pieces {
                let tag = state.new_tag();
                let Piece { address, bytes } = piece;
                state.drive.submit(now, Command { tag, kind: CommandKind::Trim, address, bytes });
            }
            drop(state);
            self.shared.changed.notify_one();
        }
    }

    /// Whether the drive is told of freed ranges.
    pub(crate) fn tells_discards(&self) -> bool {
        self.shared.discard
    }

    pub(crate) fn figures(&self) -> DriveFigures {
        self.shared.state.lock().drive.figures()
    }

    /// The whole drive has been written to once.
    pub(crate) fn fill(&self) {
        self.shared.state.lock().drive.fill();
    }
}

impl Drop for Timing {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        // Under the lock: the pacer either has not looked yet or is asleep.
        drop(self.shared.state.lock());
        self.shared.changed.notify_all();
        if let Some(pacer) = self.pacer.take() {
            // The last owner of the device may be an operation that the pacer has just delivered.
            if pacer.thread().id() != std::thread::current().id() && pacer.join().is_err() {
                log::error!("the pacer thread panicked");
            }
        }
    }
}

impl Shared {
    fn new(clock: Clock, model: &DriveModel, seed: u64, discard: bool) -> Self {
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
                requests: HashMap::new(),
            }),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
        }
    }

    fn now(&self) -> Nanos {
        self.clock.now().saturating_duration_since(self.switched_on).as_nanos() as Nanos
    }

    fn instant(&self, at: Nanos) -> Instant {
        self.switched_on + Duration::from_nanos(at)
    }

    fn conclude(&self, ended: Vec<(Nanos, Executed)>) {
        if !ended.is_empty() {
            conclude(ended.into_iter().map(|(at, executed)| (self.instant(at), executed)));
        }
    }

    /// The pacer thread: ends requests at their time.
    fn pace(&self) {
        sleep_precisely();
        let mut state = self.state.lock();
        while !self.stop.load(Ordering::SeqCst) {
            let ended = state.advance(self.now());
            if !ended.is_empty() {
                drop(state);
                self.conclude(ended);
                state = self.state.lock();
                continue;
            }
            match state.drive.next_event() {
                Some(next) => {
                    let _ = self.changed.wait_until(&mut state, self.instant(next));
                }
                None => self.changed.wait(&mut state),
            }
        }
    }
}

/// Sleeps of this thread end when they should, not up to 50 µs later to save power.
fn sleep_precisely() {
    #[cfg(target_os = "linux")]
    // SAFETY: sets a number of this thread.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0);
    }
}

impl State {
    fn new_tag(&mut self) -> u64 {
        self.last_tag += 1;
        self.last_tag
    }

    /// The tag under which an operation is held; none if the drive has nothing to do for it.
    fn begin(&mut self, now: Nanos, operation: &Operation) -> Option<u64> {
        let (offset, bytes) = (operation.offset, operation.total_bytes);
        let (kind, pieces) = match &operation.transfer {
            // What was never written has no place and is read from nowhere.
            Transfer::Read(_) => (CommandKind::Read, self.placement.find(operation.file.key, offset, bytes)),
            Transfer::Write(_) => {
                (CommandKind::Write, self.placement.place(operation.file.key, offset, bytes))
            }
            Transfer::Sync => (CommandKind::Flush, vec![Piece { address: 0, bytes: 0 }]),
        };
        if pieces.is_empty() {
            return None;
        }
        let request = self.new_tag();
        self.requests.insert(request, Held { commands_left: pieces.len(), executed: None });
        for Piece { address, bytes } in pieces {
            let tag = self.new_tag();
            self.commands.insert(tag, request);
            self.drive.submit(now, Command { tag, kind, address, bytes });
        }
        Some(request)
    }

    /// Lets the drive work; what is over by that, and executed, comes back with its time.
    fn advance(&mut self, until: Nanos) -> Vec<(Nanos, Executed)> {
        let mut ended: Vec<Ended> = Vec::new();
        self.drive.advance(until, &mut ended);
        let mut concluded = Vec::new();
        for Ended { at, tag } in ended {
            let Some(request) = self.commands.remove(&tag) else { continue };
            let Some(held) = self.requests.get_mut(&request) else { continue };
            held.commands_left -= 1;
            if held.commands_left == 0
                && let Some(executed) = held.executed.take()
            {
                self.requests.remove(&request);
                concluded.push((at, executed));
            }
        }
        concluded
    }
}
