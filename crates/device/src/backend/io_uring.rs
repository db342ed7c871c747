//! io_uring: one ring, filled by the threads that submit, drained by a thread that waits.
//!
//! ```text
//!   any thread ── push + enter ──► submission ring ─► kernel ─► completion ring ─► the *driver*: delivers to batches
//!
//!   driver = a blocking waiter, when there is one  (waits inside io_uring_enter: no hand-off)
//!          | the reaper thread, when there is none (waits on an eventfd: serves async tasks and read-ahead)
//!          | a polled task that finds completions ready
//! ```
//!
//! Handing a completion from one thread to another costs about 10 µs, a third of a 4 KiB read. Therefore a thread
//! that blocks becomes the driver itself, with the eventfd switched off; the switch is a flag in memory shared with
//! the kernel and costs nothing. Such a thread mostly comes back, with the next read or for the rest of its window: as
//! long as it does, notification stays off between its visits too, and the reaper only looks every [`TICK`] whether
//! it still comes.
//!
//! ```text
//!                           a driver leaves, no waiter sleeps
//!      notified  ─────────────────────────────────────────────────►  ticking
//!   (eventfd on;  ◄─────────────────────────────────────────────────  (eventfd off; the reaper
//!    reaper waits)   no driver since the last tick, or a waiter        wakes every TICK)
//!                    sleeps until notified
//! ```
//!
//! Invariants
//! - The submission side of the ring is touched under `submission`, the completion side under `completion`.
//! - Operations in the kernel ≤ slots of the device ≤ ring entries: neither ring can overflow.
//! - No completion stays behind. The thread that switches notification on looks at the ring afterwards: either it sees
//!   a completion, or the kernel saw the switch and wakes the reaper, which waits for the lock. (Both sides have a full
//!   barrier between their store and their load.) While notification is off, there is a driver or the reaper ticks.
//! - The box of an operation belongs to the kernel from push to completion; the reaper ends only when none is left.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, Ordering, fence};
use std::thread::JoinHandle;
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};
use parking_lot::{Mutex, MutexGuard};

use super::system_call::execute;
use super::{IoBackend, Sink, advance};
use crate::operation::{Operation, Transfer};

/// `IORING_ENTER_GETEVENTS` of the kernel's interface.
const ENTER_GETEVENTS: u32 = 1;

/// Completions taken out of the ring before they are delivered.
const REAP_BATCH: usize = 64;

/// How long a completion may lie unseen after the thread that drove the ring has stopped coming.
const TICK: Duration = Duration::from_millis(2);

pub(crate) struct IoUringBackend {
    core: Arc<Core>,
    reaper: Option<JoinHandle<()>>,
}

struct Core {
    ring: IoUring,
    submission: Mutex<()>,
    completion: Mutex<()>,
    notification: OwnedFd,
    /// Operations whose box the kernel has.
    in_kernel: AtomicUsize,
    /// Tasks and parked threads that rely on being notified. May be below zero for a moment, when one is notified
    /// before it has been counted.
    sleepers: AtomicIsize,
    /// A thread waits in the kernel on behalf of all.
    driven: AtomicBool,
    /// Visits of drivers, so that the reaper sees whether they go on.
    visits: AtomicU64,
    ticking: AtomicBool,
    stop: AtomicBool,
    sink: Sink,
}

impl IoUringBackend {
    pub(crate) fn new(max_depth: usize, sink: Sink) -> io::Result<Self> {
        let entries = max_depth.next_power_of_two() as u32;
        let ring = IoUring::builder().dontfork().build(entries)?;
        // SAFETY: plain call; the result is checked.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just created, with no other owner.
        let notification = unsafe { OwnedFd::from_raw_fd(descriptor) };
        ring.submitter().register_eventfd(notification.as_raw_fd())?;
        let core = Arc::new(Core {
            ring,
            submission: Mutex::new(()),
            completion: Mutex::new(()),
            notification,
            in_kernel: AtomicUsize::new(0),
            sleepers: AtomicIsize::new(0),
            driven: AtomicBool::new(false),
            visits: AtomicU64::new(0),
            ticking: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            sink,
        });
        let reaper = std::thread::Builder::new().name("nandina-reaper".into()).spawn({
            let core = Arc::clone(&core);
            move || core.reap_until_stopped()
        })?;
        Ok(Self { core, reaper: Some(reaper) })
    }
}

impl IoBackend for IoUringBackend {
    fn name(&self) -> &'static str {
        "io_uring"
    }

    fn start(&self, operations: Vec<Box<Operation>>) {
        self.core.start(operations);
    }

    fn run(&self, operation: Box<Operation>) {
        execute(operation, &self.core.sink);
    }

    fn drive(&self, ready: &dyn Fn() -> bool) -> bool {
        let Some(driving) = self.core.completion.try_lock() else {
            return false;
        };
        self.core.drive(&driving, ready);
        true
    }

    fn reap(&self) {
        self.core.reap();
    }

    fn sleeper_added(&self) {
        self.core.sleepers.fetch_add(1, Ordering::SeqCst);
        // A driver looks at the number of sleepers when it leaves.
        if !self.core.driven.load(Ordering::SeqCst) {
            self.core.set_notification(true);
            self.core.reap();
        }
    }

    fn sleeper_gone(&self) {
        self.core.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for IoUringBackend {
    fn drop(&mut self) {
        self.core.stop.store(true, Ordering::SeqCst);
        self.core.wake_reaper();
        if let Some(reaper) = self.reaper.take() {
            // The last owner of the device may be an operation that the reaper has just delivered.
            if reaper.thread().id() != std::thread::current().id() && reaper.join().is_err() {
                log::error!("the I/O reaper thread panicked");
            }
        }
    }
}

impl Core {
    fn start(&self, operations: Vec<Box<Operation>>) {
        if operations.is_empty() {
            return;
        }
        self.in_kernel.fetch_add(operations.len(), Ordering::AcqRel);
        let guard = self.submission.lock();
        // SAFETY: the submission side is only touched under `submission`, which is held.
        let mut queue = unsafe { self.ring.submission_shared() };
        for operation in operations {
            let entry = entry(operation);
            // SAFETY: the entry's ranges and descriptor stay valid until completion: its operation's box, now owned
            // by the kernel, keeps them.
            while unsafe { queue.push(&entry) }.is_err() {
                // Only when an earlier enter was refused for lack of memory.
                queue.sync();
                self.enter_submissions();
                queue.sync();
            }
        }
        queue.sync();
        drop(queue);
        self.enter_submissions();
        drop(guard);
    }

    /// Hands pushed entries to the kernel. It may refuse for lack of memory; entries stay in the ring until then.
    fn enter_submissions(&self) {
        let mut complained = false;
        while let Err(error) = self.ring.submit() {
            if error.raw_os_error() == Some(libc::EINTR) {
                continue;
            }
            if !complained {
                log::warn!("the kernel does not take I/O requests for the moment: {error}");
                complained = true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits in the kernel and delivers until `ready`.
    fn drive(&self, driving: &MutexGuard<'_, ()>, ready: &dyn Fn() -> bool) {
        self.visits.fetch_add(1, Ordering::Relaxed);
        self.reap_all(driving);
        if ready() {
            return;
        }
        self.driven.store(true, Ordering::SeqCst);
        self.set_notification(false);
        while !ready() {
            // SAFETY: waits for a completion, passes no memory.
            let entered =
                unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, 1, ENTER_GETEVENTS, None) };
            if let Err(error) = entered
                && error.raw_os_error() != Some(libc::EINTR)
            {
                log::warn!("waiting for I/O completions failed, trying again: {error}");
                std::thread::sleep(Duration::from_millis(1));
            }
            self.reap_all(driving);
        }
        self.driven.store(false, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.set_notification(true);
            self.reap_all(driving);
        } else if !self.ticking.swap(true, Ordering::SeqCst) {
            self.wake_reaper();
        }
    }

    /// Switches the eventfd on or off. Looking at the ring afterwards is up to the caller.
    fn set_notification(&self, on: bool) {
        // SAFETY: only the flag is touched, atomically. The queue is not dropped: that would store the position of
        // the completion side, which belongs to the thread that holds `completion`.
        let queue = ManuallyDrop::new(unsafe { self.ring.completion_shared() });
        if on {
            queue.enable_eventfd()
        } else {
            queue.disable_eventfd()
        }
        // Pairs with the kernel's barrier between posting a completion and reading the flag.
        fence(Ordering::SeqCst);
    }

    /// Delivers the completions in the ring, unless another thread is doing so.
    fn reap(&self) {
        if self.in_kernel.load(Ordering::Acquire) > 0
            && let Some(driving) = self.completion.try_lock()
        {
            self.reap_all(&driving);
        }
    }

    fn reap_all(&self, driving: &MutexGuard<'_, ()>) {
        while self.reap_some(driving) > 0 {}
    }

    fn reap_some(&self, _driving: &MutexGuard<'_, ()>) -> usize {
        let mut ended: Vec<(Box<Operation>, i32)> = Vec::new();
        {
            // SAFETY: the completion side is only touched under `completion`, whose guard the caller passes.
            let queue = unsafe { self.ring.completion_shared() };
            for completion in queue.take(REAP_BATCH) {
                // SAFETY: user data is the box given away in `entry`; the kernel reports it exactly once.
                let operation = unsafe { Box::from_raw(completion.user_data() as *mut Operation) };
                ended.push((operation, completion.result()));
            }
        }
        let count = ended.len();
        if count > 0 {
            self.in_kernel.fetch_sub(count, Ordering::AcqRel);
            let (ended, again) = advance(ended);
            self.start(again);
            self.sink.ended(ended);
        }
        count
    }

    fn reap_until_stopped(&self) {
        let mut last_visits = 0;
        while !(self.stop.load(Ordering::SeqCst) && self.in_kernel.load(Ordering::SeqCst) == 0) {
            let ticking = self.ticking.load(Ordering::SeqCst);
            if self.wait_for_notification(ticking.then_some(TICK)) {
                // Not only tried: the thread that holds the lock may have looked at the ring just before the
                // completion that this notification is about.
                let driving = self.completion.lock();
                self.reap_all(&driving);
            } else if let Some(driving) = self.completion.try_lock() {
                let visits = self.visits.load(Ordering::Relaxed);
                if visits == last_visits {
                    self.ticking.store(false, Ordering::SeqCst);
                    self.set_notification(true);
                }
                last_visits = visits;
                self.reap_all(&driving);
            }
        }
    }

    /// Whether a notification came, before `timeout` if there is one.
    fn wait_for_notification(&self, timeout: Option<Duration>) -> bool {
        let descriptor = self.notification.as_raw_fd();
        if let Some(timeout) = timeout {
            let mut entry = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry, as said.
            if unsafe { libc::poll(&raw mut entry, 1, timeout.as_millis() as libc::c_int) } <= 0 {
                return false;
            }
        }
        let mut count = 0u64;
        // SAFETY: reads eight bytes into a local variable.
        unsafe { libc::read(descriptor, (&raw mut count).cast(), 8) };
        true
    }

    fn wake_reaper(&self) {
        let one = 1u64;
        // SAFETY: writes eight bytes from a local variable.
        unsafe { libc::write(self.notification.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

/// Gives the operation's box to the kernel.
fn entry(operation: Box<Operation>) -> squeue::Entry {
    let target = types::Fd(operation.file.descriptor());
    let parts = &operation.parts.0;
    let position = operation.position();
    let entry = match (&operation.transfer, parts.as_slice()) {
        (Transfer::Read(_), [part]) => {
            opcode::Read::new(target, part.iov_base.cast(), part.iov_len as u32).offset(position).build()
        }
        (Transfer::Read(_), _) => {
            opcode::Readv::new(target, parts.as_ptr(), parts.len() as u32).offset(position).build()
        }
        (Transfer::Write(_), [part]) => {
            opcode::Write::new(target, part.iov_base.cast(), part.iov_len as u32).offset(position).build()
        }
        (Transfer::Write(_), _) => {
            opcode::Writev::new(target, parts.as_ptr(), parts.len() as u32).offset(position).build()
        }
        (Transfer::Sync, _) => opcode::Fsync::new(target).flags(types::FsyncFlags::DATASYNC).build(),
    };
    entry.user_data(Box::into_raw(operation) as u64)
}
