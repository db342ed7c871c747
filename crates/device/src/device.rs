//! A place on a medium: a directory, the way requests get there, and the figures about them.

use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};

use crate::backend::{CompletionSink, Ended, IoBackend, IoUringBackend, Sink, ThreadPool};
use crate::buffer::{AlignedBuffer, BufferPool};
use crate::clock::{Clock, SystemClock};
use crate::completions::Completions;
use crate::counters::{Counters, FileClass, Traffic};
use crate::error::{Error, Result};
use crate::flow::{FlowId, IoSlot};
use crate::governor::Governor;
use crate::medium::{FileSystem, LockHandle, Medium};
use crate::operation::Operation;
use crate::profile::{DeviceIdentity, DeviceProfile, IoSizes};
use crate::request::Completion;

/// How requests reach the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// io_uring where the kernel permits it, else the thread pool.
    #[default]
    Auto,
    IoUring,
    ThreadPool,
}

#[derive(Debug, Clone)]
pub struct DeviceOptions {
    pub backend: Backend,
    /// Most requests at the device at once, whatever the governor thinks. 1 to 4096.
    pub max_depth: usize,
    /// Whether the governor chooses how many requests are at the device, by the device's profile, and whose come
    /// next. Else `max_depth` requests are, first come first served.
    pub governed: bool,
    /// Most threads of the thread pool.
    pub max_threads: usize,
    /// Bypass the page cache. Where the file system cannot, I/O goes through the cache, with a notice in the log.
    pub direct: bool,
    /// Memory of unused buffers kept for reuse.
    pub retained_buffer_bytes: usize,
    /// Buffers shared with other devices; with a pool of its own if `None`.
    pub buffer_pool: Option<Arc<BufferPool>>,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            backend: Backend::Auto,
            max_depth: 256,
            governed: true,
            max_threads: 64,
            direct: true,
            retained_buffer_bytes: 16 << 20,
            buffer_pool: None,
        }
    }
}

/// Most requests that a device ever has at its medium.
const MAX_DEPTH: usize = 4096;

/// See the [module documentation](self). Clones share everything.
#[derive(Clone)]
pub struct Device {
    pub(crate) inner: Arc<DeviceInner>,
    /// Directory that names are relative to.
    root: Arc<Path>,
}

pub(crate) struct DeviceInner {
    pub(crate) backend: Box<dyn IoBackend>,
    pub(crate) medium: Box<dyn Medium>,
    clock: Arc<dyn Clock>,
    /// The profile of the medium, and the sizes that follow from it.
    knowledge: RwLock<Knowledge>,
    counters: Counters,
    pool: Arc<BufferPool>,
    governor: Mutex<Governor>,
    max_depth: usize,
    pub(crate) direct: bool,
    pub(crate) noticed_buffered: AtomicBool,
}

struct Knowledge {
    profile: Arc<DeviceProfile>,
    sizes: IoSizes,
    discards_cheaply: bool,
}

impl Knowledge {
    fn of(profile: DeviceProfile) -> Self {
        Self {
            sizes: profile.sizes(),
            discards_cheaply: profile.discards_cheaply(),
            profile: Arc::new(profile),
        }
    }
}

impl Device {
    /// A device on an existing directory.
    pub fn open(directory: impl AsRef<Path>, options: DeviceOptions) -> Result<Device> {
        let medium = FileSystem::of(directory.as_ref())?;
        Self::assemble(Box::new(medium), Arc::new(SystemClock), &options, |sink| options.open_backend(sink))
    }

    /// A device of a medium, a clock and a backend that reaches the medium's files. The backend reports to the sink
    /// that it is made with.
    pub fn assemble(
        medium: Box<dyn Medium>,
        clock: Arc<dyn Clock>,
        options: &DeviceOptions,
        backend: impl FnOnce(Sink) -> Result<Box<dyn IoBackend>>,
    ) -> Result<Device> {
        let sink = Arc::new(DeviceSink::default());
        let backend = backend(Arc::clone(&sink) as Sink)?;
        let max_depth = options.depth();
        let profile = DeviceProfile::assumed(medium.identity());
        let root: Arc<Path> = medium.root().into();
        let inner = Arc::new(DeviceInner {
            backend,
            medium,
            clock,
            governor: Mutex::new(Governor::new(max_depth, options.governed, &profile)),
            knowledge: RwLock::new(Knowledge::of(profile)),
            counters: Counters::default(),
            pool: (options.buffer_pool.clone())
                .unwrap_or_else(|| BufferPool::new(options.retained_buffer_bytes)),
            max_depth,
            direct: options.direct,
            noticed_buffered: AtomicBool::new(false),
        });
        sink.0.set(Arc::downgrade(&inner)).expect("a sink gets its device once");
        Ok(Device { inner, root })
    }

    /// The same device with names relative to one of its directories.
    pub fn subdirectory(&self, name: &str) -> Result<Device> {
        let root = self.resolve(name)?;
        Ok(Device { inner: Arc::clone(&self.inner), root: root.into() })
    }

    /// The directory that names are relative to.
    pub fn path(&self) -> &Path {
        &self.root
    }

    pub(crate) fn resolve(&self, name: &str) -> Result<PathBuf> {
        let relative = Path::new(name);
        let is_inside = relative.components().all(|part| matches!(part, Component::Normal(_)));
        if name.is_empty() || !is_inside {
            return Err(Error::InvalidName { name: name.to_owned() });
        }
        Ok(self.root.join(relative))
    }

    /// Removes a file. Open handles stay usable; the space is free when the last is closed.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.inner.medium.remove(&self.resolve(name)?)
    }

    /// Renames a file or directory; an existing file of the new name is replaced, atomically.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.medium.rename(&self.resolve(from)?, &self.resolve(to)?)
    }

    pub fn exists(&self, name: &str) -> Result<bool> {
        self.inner.medium.exists(&self.resolve(name)?)
    }

    /// Names in the device's directory, sorted.
    pub fn list(&self) -> Result<Vec<String>> {
        self.inner.medium.list(&self.root)
    }

    /// Makes creations, renames and removals in the device's directory durable.
    pub fn sync_directory(&self) -> Result<()> {
        self.inner.medium.sync_directory(&self.root)
    }

    pub fn create_directory(&self, name: &str) -> Result<()> {
        self.inner.medium.create_directory(&self.resolve(name)?)
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, name: &str) -> Result<()> {
        self.inner.medium.remove_directory(&self.resolve(name)?)
    }

    /// Replaces a whole small file, atomically and durably: a new file is written and synced, renamed over the old
    /// one, and the directory synced. After a crash the file has the old or the new contents; the unfinished new file
    /// (`<name>.new`) may lie beside it and is overwritten next time.
    pub fn write_small(&self, name: &str, contents: &[u8]) -> Result<()> {
        let path = self.resolve(name)?;
        self.count_small(Traffic::Write, contents.len(), || self.inner.medium.write_small(&path, contents))
    }

    /// Contents of a whole small file.
    pub fn read_small(&self, name: &str) -> Result<Vec<u8>> {
        let path = self.resolve(name)?;
        let started = self.now();
        let contents = self.inner.medium.read_small(&path)?;
        self.count_small_from(Traffic::Read, contents.len(), started);
        Ok(contents)
    }

    fn count_small(&self, traffic: Traffic, bytes: usize, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let started = self.now();
        work()?;
        self.count_small_from(traffic, bytes, started);
        Ok(())
    }

    fn count_small_from(&self, traffic: Traffic, bytes: usize, started: Instant) {
        let now = self.now();
        for counters in [self.inner.counters.all(), self.inner.counters.class(FileClass::Catalog)] {
            counters.started(1, started, &self.inner.clock);
            counters.finished(traffic, bytes as u64, false, now.saturating_duration_since(started), now);
        }
    }

    /// Takes an exclusive lock on a lock file, which is created if need be. `None` when another holder, in this or
    /// another process, has it. The lock ends with the returned value or with the process.
    pub fn try_lock(&self, name: &str) -> Result<Option<DirectoryLock>> {
        let path = self.resolve(name)?;
        let held = self.inner.medium.try_lock(&path)?;
        Ok(held.map(|handle| DirectoryLock { _handle: handle, path }))
    }

    /// A buffer for transfers; its contents are unspecified.
    pub fn buffer(&self, bytes: usize) -> AlignedBuffer {
        self.inner.pool.take(bytes)
    }

    pub fn buffer_pool(&self) -> &Arc<BufferPool> {
        &self.inner.pool
    }

    pub fn counters(&self) -> &Counters {
        &self.inner.counters
    }

    pub fn backend_name(&self) -> &'static str {
        self.inner.backend.name()
    }

    /// Which device it is.
    pub fn identity(&self) -> DeviceIdentity {
        self.profile().device.clone()
    }

    /// The profile of the device: measured, or assumed until [`Device::set_profile`].
    pub fn profile(&self) -> Arc<DeviceProfile> {
        Arc::clone(&self.inner.knowledge.read().profile)
    }

    /// The sizes and depths that follow from the profile.
    pub fn sizes(&self) -> IoSizes {
        self.inner.knowledge.read().sizes
    }

    /// Whether telling the drive of freed space is known to cost next to nothing.
    pub fn discards_cheaply(&self) -> bool {
        self.inner.knowledge.read().discards_cheaply
    }

    /// Whether the file system tells the drive of ranges that are freed.
    pub(crate) fn tells_discards(&self) -> bool {
        self.inner.medium.tells_discards()
    }

    /// From now on, sizes and depths follow from this profile.
    pub fn set_profile(&self, profile: DeviceProfile) {
        self.inner.governor.lock().set_profile(&profile);
        *self.inner.knowledge.write() = Knowledge::of(profile);
    }

    /// Reads of so many bytes that this flow should keep outstanding, given who else is busy: those it may have at the
    /// device, and a few that wait for their turn. To be asked again whenever requests have ended.
    pub fn granted_depth(&self, flow: FlowId, bytes: usize) -> usize {
        self.inner.governor.lock().depth(flow, bytes as u64, self.now())
    }

    /// Whether its files are kept in memory for tests and experiments: then everything happens in the thread that asks
    /// for it, in order, so that runs can be repeated.
    pub fn is_simulated(&self) -> bool {
        self.inner.medium.is_simulated()
    }

    /// Whether files are opened to bypass the page cache, and none has refused.
    pub fn is_direct(&self) -> bool {
        self.inner.direct && !self.inner.noticed_buffered.load(Ordering::Relaxed)
    }

    /// The time in which requests to this device are measured: the system's, or that of a simulated drive.
    pub fn now(&self) -> Instant {
        self.inner.clock.now()
    }

    /// Most requests at the device at once.
    pub fn max_depth(&self) -> usize {
        self.inner.max_depth
    }

    /// Space that files of this device can still take.
    pub fn free_bytes(&self) -> Result<u64> {
        self.inner.medium.free_bytes(&self.root)
    }

    /// Keeps the governor out of what follows, until [`Device::resume_governing`].
    pub(crate) fn pause_governing(&self) {
        self.inner.governor.lock().pause();
    }

    pub(crate) fn resume_governing(&self) {
        self.inner.governor.lock().resume();
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("path", &self.root).field("backend", &self.backend_name()).finish()
    }
}

/// An exclusive lock, see [`Device::try_lock`].
#[derive(Debug)]
pub struct DirectoryLock {
    _handle: Box<dyn LockHandle>,
    path: PathBuf,
}

impl DirectoryLock {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl DeviceOptions {
    fn depth(&self) -> usize {
        self.max_depth.clamp(1, MAX_DEPTH)
    }

    /// The backend that reaches files of the operating system.
    pub fn open_backend(&self, sink: Sink) -> Result<Box<dyn IoBackend>> {
        let depth = self.depth();
        if self.backend != Backend::ThreadPool {
            match IoUringBackend::new(depth, Arc::clone(&sink)) {
                Ok(ring) => return Ok(Box::new(ring)),
                Err(source) if self.backend == Backend::IoUring => {
                    return Err(Error::BackendUnavailable { backend: "io_uring", source });
                }
                Err(error) => {
                    log::info!("io_uring is not available ({error}); using a thread pool for I/O");
                }
            }
        }
        Ok(Box::new(ThreadPool::new(self.max_threads.min(depth), sink)))
    }
}

impl DeviceInner {
    /// Starts as many operations as there are slots; the others wait.
    pub(crate) fn submit(&self, operations: Vec<Box<Operation>>) {
        self.start(self.with_governor(|governor| governor.enter(operations, self.clock.now())));
    }

    /// Executes an operation in this thread if there is a slot, else it waits for one.
    pub(crate) fn run(&self, operation: Box<Operation>) {
        let mut admitted = self.with_governor(|governor| governor.enter(vec![operation], self.clock.now()));
        if admitted.len() > 1 {
            return self.start(admitted);
        }
        // Only itself can be admitted by its coming: what waited did not fit.
        if let Some(mut operation) = admitted.pop() {
            self.count_started(std::slice::from_mut(&mut operation));
            self.backend.run(operation);
        }
    }

    /// Lets the governor change which operations are admitted. If operations wait then, the backend has to notice
    /// completions whether or not a thread waits for those.
    fn with_governor<T>(&self, change: impl FnOnce(&mut Governor) -> T) -> T {
        let mut governor = self.governor.lock();
        let result = change(&mut governor);
        let waiting = governor.has_waiting();
        let changed = waiting != governor.watched;
        governor.watched = waiting;
        drop(governor);
        match (changed, waiting) {
            (true, true) => self.backend.sleeper_added(),
            (true, false) => self.backend.sleeper_gone(),
            (false, _) => {}
        }
        result
    }

    fn start(&self, mut operations: Vec<Box<Operation>>) {
        if !operations.is_empty() {
            self.count_started(&mut operations);
            self.backend.start(operations);
        }
    }

    fn count_started(&self, operations: &mut [Box<Operation>]) {
        let now = self.clock.now();
        for operation in operations.iter_mut() {
            operation.ticket.started = Some(now);
        }
        // Nearly always all are of one class and one account: one lock for each instead of one per request.
        self.counters.all().started(operations.len() as u64, now, &self.clock);
        for run in operations.chunk_by(|a, b| a.file.class == b.file.class) {
            if let Some(first) = run.first() {
                self.counters.class(first.file.class).started(run.len() as u64, now, &self.clock);
            }
        }
        let same_account = |a: &Operation, b: &Operation| match (&a.ticket.account, &b.ticket.account) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        for run in operations.chunk_by(|a, b| same_account(a, b)) {
            if let Some(account) = run.first().and_then(|first| first.ticket.account.as_ref()) {
                account.counters.started(run.len() as u64, now, &self.clock);
            }
        }
    }

    fn count_finished(&self, operation: &Operation, failed: bool, now: Instant) {
        let latency = now.saturating_duration_since(
            operation.ticket.started.expect("an operation that ended was started"),
        );
        let traffic = operation.traffic();
        let bytes = operation.done_bytes();
        self.counters.all().finished(traffic, bytes, failed, latency, now);
        self.counters.class(operation.file.class).finished(traffic, bytes, failed, latency, now);
        if let Some(account) = &operation.ticket.account {
            account.counters.finished(traffic, bytes, failed, latency, now);
        }
    }

    /// Gives back slots and starts the operations that waited for them.
    fn leave(&self, slots: Vec<IoSlot>) {
        self.start(self.with_governor(|governor| governor.leave(slots, self.clock.now())));
    }

    /// Drops the waiting operations of an abandoned batch, and starts those that can go instead of them.
    pub(crate) fn withdraw(&self, batch: &Arc<Completions>) {
        let (withdrawn, admitted) = self.with_governor(|governor| governor.withdraw(batch));
        self.start(admitted);
        drop(withdrawn);
    }
}

/// Where the backend of a device reports. Operations keep their device open, and the device its backend.
#[derive(Default)]
struct DeviceSink(OnceLock<Weak<DeviceInner>>);

impl CompletionSink for DeviceSink {
    fn ended(&self, ended: Vec<Ended>) {
        if !ended.is_empty() {
            let device = self.0.get().and_then(Weak::upgrade);
            device.expect("an operation in flight keeps its device open").conclude(ended);
        }
    }
}

impl DeviceInner {
    /// Counts the ended operations, admits those that waited for their slots, and delivers the completions.
    ///
    /// In this order: a thread that is woken by a delivery may take the processor from this one, and on a busy machine
    /// the device would go on with fewer requests than it has slots until this thread gets it back.
    fn conclude(&self, ended: Vec<Ended>) {
        let now = self.clock.now();
        for Ended { operation, outcome, at } in &ended {
            self.count_finished(operation, outcome.is_err(), at.unwrap_or(now));
        }
        self.leave(ended.iter().map(|ended| ended.operation.ticket.slot).collect());
        for Ended { operation, outcome, .. } in ended {
            let (batch, index) = (Arc::clone(&operation.ticket.batch), operation.ticket.index);
            self.deliver(&batch, index, outcome.map(|()| operation.into_completion()));
        }
    }

    /// Adds a result to a batch, and wakes the task that waits for it.
    pub(crate) fn deliver(&self, batch: &Completions, index: usize, result: Result<Completion>) {
        if let Some(waker) = batch.add(index, result) {
            self.backend.sleeper_gone();
            waker.wake();
        }
    }
}
