//! Devices in memory that share a clock and a power switch.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use nandina_device::backend::IoBackend;
use nandina_device::{
    Clock, Device, DeviceIdentity, DeviceOptions, Result, SystemClock, thread_processor_time,
};
use parking_lot::Mutex;

use crate::clock::VirtualClock;
use crate::drive::{DriveFigures, DriveModel};
use crate::memory::{Contents, CrashOutcome, FaultPlan, MemoryBackend, MemoryMedium};
use crate::power::Power;
use crate::timing::{Time, TimedBackend, TimedMedium, Timing};

/// Where the device of a machine that has only one lies.
const ROOT: &str = "/simulated";

/// A device in memory that fails as planned, for tests. Requests end at once, in the system's time.
pub fn in_memory(plan: FaultPlan) -> (Device, Simulation) {
    Machine::new().add_memory(ROOT, plan, Arc::new(SystemClock))
}

/// A device in memory whose requests take as long as on a drive, in virtual time.
pub fn on_drive(options: SimulationOptions) -> (Device, Simulation) {
    Machine::new().drive(ROOT, options)
}

/// A device in memory with the timing of a drive.
#[derive(Debug, Clone)]
pub struct SimulationOptions {
    pub model: DriveModel,
    /// Decides everything that is random about the drive.
    pub seed: u64,
    /// Whether freed ranges are told to the drive, as on a file system mounted with `discard`.
    pub discard: bool,
    pub contents: Contents,
    pub faults: FaultPlan,
    /// As [`nandina_device::DeviceOptions::governed`].
    pub governed: bool,
}

impl SimulationOptions {
    /// A faultless drive that keeps its contents.
    pub fn of(model: DriveModel) -> Self {
        let faults = FaultPlan::none();
        Self { model, seed: 1, discard: false, contents: Contents::Kept, faults, governed: true }
    }
}

/// See the [module documentation](self). Clones share everything.
///
/// A thread that waits for a request lets time go on to the earliest event of any drive, or the next timer. With a single
/// thread, or the tasks of a single-threaded executor, every run is the same. Computing takes only the time charged
/// with [`Machine::pass`] or [`Machine::compute`].
#[derive(Clone)]
pub struct Machine {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<VirtualClock>,
    power: Arc<Power>,
    drives: Mutex<Vec<Arc<Timing>>>,
    media: Mutex<Vec<MemoryMedium>>,
    timers: Mutex<Timers>,
    /// Held by the thread that moves time.
    turn: Mutex<()>,
}

/// Tasks to wake, by time and the order in which they began to sleep.
#[derive(Default)]
struct Timers {
    waiting: BTreeMap<(Instant, u64), Waker>,
    begun: u64,
    woken: u64,
}

impl Timers {
    fn wake(&mut self, timer: (Instant, u64)) -> Option<Waker> {
        self.woken += 1;
        self.waiting.remove(&timer)
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

impl Machine {
    /// Without devices; its time begins now.
    pub fn new() -> Self {
        let shared = Shared {
            clock: Arc::new(VirtualClock::new()),
            power: Arc::default(),
            drives: Mutex::default(),
            media: Mutex::default(),
            timers: Mutex::default(),
            turn: Mutex::new(()),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Adds a device on a drive; `root` is the path of its directory, for messages.
    pub fn drive(&self, root: &str, options: SimulationOptions) -> (Device, Simulation) {
        let SimulationOptions { model, seed, discard, contents, faults, governed } = options;
        let timing = Arc::new(Timing::new(Arc::clone(&self.shared.clock) as _, &model, seed, discard));
        self.shared.drives.lock().push(Arc::clone(&timing));
        let memory =
            self.medium(root, model.identity(), faults.capacity_at_most(model.capacity_bytes()), contents);
        let medium = TimedMedium::new(memory.clone(), Arc::clone(&timing), model.identity());
        let clock = Arc::clone(&self.shared.clock) as Arc<dyn Clock>;
        let options = DeviceOptions { governed, ..DeviceOptions::default() };
        let device = Device::assemble(Box::new(medium), clock, &options, |sink| {
            let below = |sink| Ok(Box::new(MemoryBackend::new(memory.clone(), sink)) as Box<dyn IoBackend>);
            Ok(Box::new(TimedBackend::new(Arc::clone(&timing), self.clone(), sink, below)?))
        });
        (opened(device), Simulation { machine: self.clone(), memory, timing: Some(timing) })
    }

    /// Adds a device whose requests take no time.
    pub fn memory(&self, root: &str, plan: FaultPlan) -> (Device, Simulation) {
        self.add_memory(root, plan, Arc::clone(&self.shared.clock) as _)
    }

    fn add_memory(&self, root: &str, plan: FaultPlan, clock: Arc<dyn Clock>) -> (Device, Simulation) {
        let memory = self.medium(root, DeviceIdentity::default(), plan, Contents::Kept);
        let device = Device::assemble(Box::new(memory.clone()), clock, &DeviceOptions::default(), |sink| {
            Ok(Box::new(MemoryBackend::new(memory.clone(), sink)))
        });
        (opened(device), Simulation { machine: self.clone(), memory, timing: None })
    }

    fn medium(
        &self,
        root: &str,
        identity: DeviceIdentity,
        plan: FaultPlan,
        contents: Contents,
    ) -> MemoryMedium {
        let medium = MemoryMedium::new(root, identity, plan, contents, Arc::clone(&self.shared.power));
        self.shared.media.lock().push(medium.clone());
        medium
    }

    pub fn now(&self) -> Instant {
        self.shared.clock.now()
    }

    /// Lets a span of time go by, as computing would; requests and timers go on meanwhile.
    pub fn pass(&self, span: Duration) {
        let until = self.now() + span;
        while self.step_until(Some(until)) {}
        self.shared.clock.advance_to(until);
    }

    /// Computes, and lets as much time go by as that took this thread's processor, times `factor`. Runs that do so are not
    /// the same every time.
    pub fn compute<T>(&self, factor: f64, work: impl FnOnce() -> T) -> T {
        let before = thread_processor_time();
        let result = work();
        self.pass((thread_processor_time() - before).mul_f64(factor));
        result
    }

    /// Sleeps for a span of time. Time goes on when all tasks wait.
    pub fn sleep(&self, span: Duration) -> Sleep {
        let mut timers = self.shared.timers.lock();
        timers.begun += 1;
        Sleep { machine: self.clone(), timer: (self.now() + span, timers.begun), seen_woken: None }
    }

    /// Lets time go on to the next event, which is due by `until`. False when there is none.
    fn step_until(&self, until: Option<Instant>) -> bool {
        let turn = self.shared.turn.lock();
        let drives = self.shared.drives.lock().clone();
        let events = drives.iter().filter_map(|drive| Some((drive.next_event()?, drive)));
        // Of events at the same time, those of the drive that was added first.
        let event = events.min_by_key(|(at, _)| *at);
        let timer = self.shared.timers.lock().waiting.first_key_value().map(|(timer, _)| *timer);
        let is_due = |at: Instant| until.is_none_or(|until| at <= until);
        let clock = &self.shared.clock;
        match (event, timer) {
            (Some((at, drive)), timer) if is_due(at) && timer.is_none_or(|(wakes, _)| at <= wakes) => {
                // Another thread may have let time go by since the event was due.
                let at = at.max(clock.now());
                let over = drive.advance(at, || clock.advance_to(at));
                drop(turn);
                drive.report(over);
                true
            }
            (_, Some(timer)) if is_due(timer.0) => {
                clock.advance_to(timer.0);
                let waker = self.shared.timers.lock().wake(timer);
                drop(turn);
                if let Some(waker) = waker {
                    waker.wake();
                }
                true
            }
            _ => false,
        }
    }

    /// Changes of all media so far. See [`FaultPlan::power_loss_at`] for those of one.
    pub fn events(&self) -> u64 {
        self.shared.power.events()
    }

    /// The power fails during event number `event`, counted over all devices.
    pub fn lose_power_at(&self, event: u64) {
        self.shared.power.fail_at(event);
    }

    pub fn has_power(&self) -> bool {
        self.shared.power.is_on()
    }

    /// The power fails and comes back: unsynced changes of every device are lost as `outcome` says of its root, locks
    /// are free, faults are forgotten (what the file systems are like stays). Files have to be opened again.
    pub fn crash(&self, mut outcome: impl FnMut(&str) -> CrashOutcome) {
        for medium in self.shared.media.lock().iter() {
            medium.crash(outcome(medium.name()));
        }
        self.shared.power.restore();
    }
}

impl Time for Machine {
    fn woken(&self) -> Option<u64> {
        Some(self.shared.timers.lock().woken)
    }

    fn step(&self) -> bool {
        self.step_until(None)
    }
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine")
            .field("events", &self.events())
            .field("has_power", &self.has_power())
            .finish()
    }
}

fn opened(device: Result<Device>) -> Device {
    device.expect("nothing is opened for a device in memory")
}

/// Ends at a time of a [`Machine`]. See [`Machine::sleep`].
#[must_use = "sleeping begins when it is awaited"]
pub struct Sleep {
    machine: Machine,
    timer: (Instant, u64),
    /// The tasks that had been woken when it last waited.
    seen_woken: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.machine.now() >= self.timer.0 {
            return Poll::Ready(());
        }
        self.machine.shared.timers.lock().waiting.insert(self.timer, context.waker().clone());
        // As tasks that wait for requests do.
        let woken = self.machine.woken();
        if self.seen_woken == woken {
            self.machine.step_until(None);
        }
        self.seen_woken = woken;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.machine.shared.timers.lock().waiting.remove(&self.timer);
    }
}

/// Steers and observes a device of a [`Machine`].
#[derive(Clone)]
pub struct Simulation {
    machine: Machine,
    memory: MemoryMedium,
    timing: Option<Arc<Timing>>,
}

impl Simulation {
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// [`Machine::pass`].
    pub fn pass(&self, span: Duration) {
        self.machine.pass(span);
    }

    /// What happened inside the drive; zeros without one.
    pub fn drive_figures(&self) -> DriveFigures {
        self.timing.as_ref().map(|timing| timing.figures()).unwrap_or_default()
    }

    /// Brings the drive into the state of having been written to once, from the first address to the last.
    pub fn fill_drive(&self) {
        if let Some(timing) = &self.timing {
            timing.fill();
        }
    }

    /// Requests that have reached the medium.
    pub fn requests(&self) -> u64 {
        self.memory.requests()
    }

    /// Changes of the medium so far.
    pub fn events(&self) -> u64 {
        self.memory.events()
    }

    /// Replaces the plan. Its numbers count on from [`Self::requests`] and [`Self::events`].
    pub fn set_plan(&self, plan: FaultPlan) {
        self.memory.set_plan(plan);
    }

    pub fn has_power(&self) -> bool {
        self.machine.has_power()
    }

    /// [`Machine::crash`], with the same outcome for every device.
    pub fn crash(&self, outcome: CrashOutcome) {
        self.machine.crash(|_| outcome);
    }
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation")
            .field("requests", &self.requests())
            .field("events", &self.events())
            .finish()
    }
}
