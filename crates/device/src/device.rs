//! A place on a medium: a directory, the way requests get there, and the figures about them.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};

use crate::backend::simulated::{
    Contents, FaultPlan, SimulatedBackend, SimulatedMedium, Simulation, SimulationOptions,
};
use crate::backend::{IoBackend, IoUringBackend, ThreadPool};
use crate::batch::{Batch, BatchState};
use crate::buffer::{AlignedBuffer, BLOCK_BYTES, BufferPool};
use crate::calibration::discards::is_mounted_with_discard;
use crate::calibration::{DeviceIdentity, DeviceProfile, IoSizes};
use crate::clock::Clock;
use crate::counters::{Counters, FileClass, FlowId, IoAccount};
use crate::directory::{DiskDirectory, Medium};
use crate::drive::DriveModel;
use crate::error::{Error, Result};
use crate::file::{File, FileInner, Handle, OpenMode};
use crate::governor::{Governor, IoSlot};
use crate::request::{Operation, Progress, Request};
use crate::timing::{Executed, Timing};

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
    /// Requests take as long as on this drive, in the system's time, whatever the medium could do; for experiments.
    /// A medium that is slower than the model stays so. Small whole files and file names are not slowed down.
    pub paced: Option<PacedDrive>,
}

/// A drive to wait for. See [`DeviceOptions::paced`].
#[derive(Debug, Clone, PartialEq)]
pub struct PacedDrive {
    pub model: DriveModel,
    pub seed: u64,
    /// Whether freed ranges are told to the drive, as on a file system mounted with `discard`.
    pub discard: bool,
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
            paced: None,
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
    pub(crate) medium: Medium,
    /// The drive model that decides when requests end, if there is one.
    pub(crate) timing: Option<Timing>,
    clock: Clock,
    /// What is known about the medium, and the sizes that follow from it.
    knowledge: RwLock<Knowledge>,
    counters: Counters,
    pool: Arc<BufferPool>,
    pub(crate) governor: Mutex<Governor>,
    max_depth: usize,
    direct: bool,
    noticed_buffered: AtomicBool,
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
        let directory = directory.as_ref();
        let root =
            directory.canonicalize().map_err(|source| Error::path("open directory", directory, source))?;
        if !root.is_dir() {
            return Err(Error::path("open directory", &root, io::Error::from(io::ErrorKind::NotADirectory)));
        }
        let backend = open_backend(&options, options.max_depth.clamp(1, MAX_DEPTH))?;
        let timing = match &options.paced {
            Some(PacedDrive { model, seed, discard }) => Some(
                Timing::paced(model, *seed, *discard)
                    .map_err(|source| Error::path("start a thread for", &root, source))?,
            ),
            None => None,
        };
        Ok(Self::assemble(
            root,
            backend,
            (Medium::Disk(DiskDirectory), None),
            (timing, Clock::Real),
            &options,
        ))
    }

    /// A device in memory that fails as planned, for tests. Requests end at once. See [`FaultPlan`].
    pub fn simulated(plan: FaultPlan) -> (Device, Simulation) {
        Self::simulate(SimulatedMedium::new(plan, Contents::Kept), None, (None, Clock::Real), true)
    }

    /// A device in memory whose requests take as long as on a drive of the given model, in virtual time.
    pub fn simulated_drive(options: SimulationOptions) -> (Device, Simulation) {
        let SimulationOptions { model, seed, discard, contents, faults, governed } = options;
        let clock = Clock::virtual_time();
        let timing = Timing::virtual_time(&clock, &model, seed, discard);
        let faults = faults.capacity_at_most(model.capacity_bytes());
        let medium = SimulatedMedium::new(faults, contents);
        Self::simulate(medium, Some(&model), (Some(timing), clock), governed)
    }

    fn simulate(
        medium: SimulatedMedium,
        model: Option<&DriveModel>,
        timing: (Option<Timing>, Clock),
        governed: bool,
    ) -> (Device, Simulation) {
        let medium = Arc::new(medium);
        let device = Self::assemble(
            PathBuf::from(crate::backend::simulated::ROOT),
            Box::new(SimulatedBackend::new(Arc::clone(&medium))),
            (Medium::Simulated(Arc::clone(&medium)), model),
            timing,
            &DeviceOptions { governed, ..DeviceOptions::default() },
        );
        let simulation = Simulation::new(medium, Arc::downgrade(&device.inner));
        (device, simulation)
    }

    fn assemble(
        root: PathBuf,
        backend: Box<dyn IoBackend>,
        (medium, model): (Medium, Option<&DriveModel>),
        (timing, clock): (Option<Timing>, Clock),
        options: &DeviceOptions,
    ) -> Device {
        let identity = match (&medium, &options.paced) {
            (_, Some(paced)) => paced.model.identity(),
            (Medium::Disk(_), None) => DeviceIdentity::of(&root),
            (Medium::Simulated(_), None) => model.map(DriveModel::identity).unwrap_or_default(),
        };
        let max_depth = options.max_depth.clamp(1, MAX_DEPTH);
        let profile = DeviceProfile::assumed(identity);
        let inner = DeviceInner {
            backend,
            medium,
            timing,
            clock,
            governor: Mutex::new(Governor::new(max_depth, options.governed, &profile)),
            knowledge: RwLock::new(Knowledge::of(profile)),
            counters: Counters::default(),
            pool: (options.buffer_pool.clone())
                .unwrap_or_else(|| BufferPool::new(options.retained_buffer_bytes)),
            max_depth,
            direct: options.direct,
            noticed_buffered: AtomicBool::new(false),
        };
        Device { inner: Arc::new(inner), root: root.into() }
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

    fn resolve(&self, name: &str) -> Result<PathBuf> {
        let relative = Path::new(name);
        let is_inside = relative.components().all(|part| matches!(part, Component::Normal(_)));
        if name.is_empty() || !is_inside {
            return Err(Error::InvalidName { name: name.to_owned() });
        }
        Ok(self.root.join(relative))
    }

    /// Creates a file. Fails if the name is taken.
    pub fn create(&self, name: &str, class: FileClass) -> Result<File> {
        let path = self.resolve(name)?;
        let (handle, direct) = self.inner.medium.create(&path, self.inner.direct)?;
        Ok(self.file(path, handle, direct, class))
    }

    pub fn open_file(&self, name: &str, class: FileClass, mode: OpenMode) -> Result<File> {
        let path = self.resolve(name)?;
        let (handle, direct) = self.inner.medium.open(&path, mode, self.inner.direct)?;
        Ok(self.file(path, handle, direct, class))
    }

    fn file(&self, path: PathBuf, handle: Handle, direct: bool, class: FileClass) -> File {
        if self.inner.direct && !direct && !self.inner.noticed_buffered.swap(true, Ordering::Relaxed) {
            log::warn!(
                "the file system of {} has no direct I/O; reading and writing through the page cache",
                path.display()
            );
        }
        let key = self.inner.timing.as_ref().map_or(0, |timing| {
            let key = self.inner.medium.key(&handle);
            // What lies on the disk already has its place. In memory, all files began here.
            if !timing.is_virtual() {
                timing.allocate(
                    key,
                    0,
                    self.inner.medium.len_of(&handle).next_multiple_of(BLOCK_BYTES as u64),
                );
            }
            key
        });
        File { inner: Arc::new(FileInner { handle, path, class, direct, key, device: self.clone() }) }
    }

    /// Removes a file. Open handles stay usable; the space is free when the last is closed.
    pub fn remove(&self, name: &str) -> Result<()> {
        let path = self.resolve(name)?;
        let key =
            self.inner.timing.as_ref().and_then(|timing| Some((timing, self.inner.medium.key_of(&path)?)));
        self.inner.medium.remove(&path)?;
        if let Some((timing, key)) = key {
            timing.remove(key);
        }
        Ok(())
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
        self.count_small(crate::counters::Traffic::Write, contents.len(), || {
            self.inner.medium.write_small(&path, contents)
        })
    }

    /// Contents of a whole small file.
    pub fn read_small(&self, name: &str) -> Result<Vec<u8>> {
        let path = self.resolve(name)?;
        let started = self.now();
        let contents = self.inner.medium.read_small(&path)?;
        self.count_small_from(crate::counters::Traffic::Read, contents.len(), started);
        Ok(contents)
    }

    fn count_small(
        &self,
        traffic: crate::counters::Traffic,
        bytes: usize,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let started = self.now();
        work()?;
        self.count_small_from(traffic, bytes, started);
        Ok(())
    }

    fn count_small_from(&self, traffic: crate::counters::Traffic, bytes: usize, started: Instant) {
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

    /// What is known about the device: measured, or assumed until [`Device::set_profile`].
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
        match &self.inner.timing {
            Some(timing) => timing.tells_discards(),
            None => is_mounted_with_discard(self.path()),
        }
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
        matches!(self.inner.medium, Medium::Simulated(_))
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

    /// Submits requests to several files as one unit.
    pub fn submit_many(&self, requests: Vec<(File, Request)>, account: Option<&Arc<IoAccount>>) -> Batch {
        let mut batch = self.batch(account);
        batch.add(requests);
        batch
    }

    /// An empty batch, to be filled with [`Batch::add`].
    pub fn batch(&self, account: Option<&Arc<IoAccount>>) -> Batch {
        Batch::new(Arc::clone(&self.inner), account.cloned())
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
    _handle: crate::directory::LockHandle,
    path: PathBuf,
}

impl DirectoryLock {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn open_backend(options: &DeviceOptions, max_depth: usize) -> Result<Box<dyn IoBackend>> {
    let pool = || Box::new(ThreadPool::new(options.max_threads.min(max_depth)));
    match options.backend {
        Backend::ThreadPool => Ok(pool()),
        Backend::IoUring => match IoUringBackend::new(max_depth) {
            Ok(ring) => Ok(Box::new(ring)),
            Err(source) => Err(Error::BackendUnavailable { backend: "io_uring", source }),
        },
        Backend::Auto => match IoUringBackend::new(max_depth) {
            Ok(ring) => Ok(Box::new(ring)),
            Err(error) => {
                log::info!("io_uring is not available ({error}); using a thread pool for I/O");
                Ok(pool())
            }
        },
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
            self.begin(std::slice::from_mut(&mut operation));
            self.backend.run(operation);
        }
    }

    /// Lets the governor change which operations are admitted. If operations wait then, the backend has to notice
    /// completions whether or not anybody waits for those.
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
            self.begin(&mut operations);
            self.backend.start(operations);
        }
    }

    fn begin(&self, operations: &mut [Box<Operation>]) {
        self.count_started(operations);
        if let Some(timing) = &self.timing {
            timing.begin(operations);
        }
    }

    fn count_started(&self, operations: &mut [Box<Operation>]) {
        let now = self.clock.now();
        for operation in operations.iter_mut() {
            operation.started = Some(now);
        }
        // Nearly always all are of one class and one account: one lock for each instead of one per request.
        self.counters.all().started(operations.len() as u64, now, &self.clock);
        for run in operations.chunk_by(|a, b| a.file.class == b.file.class) {
            if let Some(first) = run.first() {
                self.counters.class(first.file.class).started(run.len() as u64, now, &self.clock);
            }
        }
        let same_account = |a: &Operation, b: &Operation| match (&a.account, &b.account) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        for run in operations.chunk_by(|a, b| same_account(a, b)) {
            if let Some(account) = run.first().and_then(|first| first.account.as_ref()) {
                account.counters.started(run.len() as u64, now, &self.clock);
            }
        }
    }

    fn count_finished(&self, operation: &Operation, failed: bool, now: Instant) {
        let latency =
            operation.started.map_or_else(Default::default, |started| now.saturating_duration_since(started));
        let traffic = operation.traffic();
        let bytes = operation.done_bytes;
        self.counters.all().finished(traffic, bytes, failed, latency, now);
        self.counters.class(operation.file.class).finished(traffic, bytes, failed, latency, now);
        if let Some(account) = &operation.account {
            account.counters.finished(traffic, bytes, failed, latency, now);
        }
    }

    /// Lets a blocking thread that has nothing else to do bring its request to its end. False if it can only sleep.
    pub(crate) fn drive(&self, ready: &dyn Fn() -> bool) -> bool {
        match &self.timing {
            None => self.backend.drive(ready),
            Some(timing) => timing.is_virtual() && timing.step(),
        }
    }

    pub(crate) fn waits_in_virtual_time(&self) -> bool {
        self.timing.as_ref().is_some_and(Timing::is_virtual)
    }

    /// Gives back slots and starts those who waited for them.
    fn leave(&self, slots: Vec<IoSlot>) {
        self.start(self.with_governor(|governor| governor.leave(slots, self.clock.now())));
    }

    /// Drops the waiting operations of an abandoned batch, and starts those that can go instead of them.
    pub(crate) fn withdraw(&self, batch: &Arc<BatchState>) {
        let (withdrawn, admitted) = self.with_governor(|governor| governor.withdraw(batch));
        self.start(admitted);
        drop(withdrawn);
    }
}

/// Takes results from a backend: continues short transfers, concludes the others unless a drive model holds them.
pub(crate) fn finish(ended: impl IntoIterator<Item = (Box<Operation>, i32)>) {
    let mut again = Vec::new();
    let mut device: Option<Arc<DeviceInner>> = None;
    let over = ended.into_iter().filter_map(|(operation, result)| {
        // All operations of one backend belong to one device.
        let device = device.get_or_insert_with(|| Arc::clone(&operation.file.device.inner));
        match operation.advance(result) {
            Progress::Again(operation) => {
                again.push(operation);
                None
            }
            Progress::Done(operation, outcome) => {
                let executed = Executed { operation, outcome };
                match (&device.timing, executed.operation.timing_tag) {
                    (Some(timing), Some(tag)) => timing.hold(tag, executed),
                    _ => Some(executed),
                }
            }
        }
    });
    let over: Vec<Executed> = over.collect();
    if let Some(device) = device {
        if !again.is_empty() {
            device.backend.start(again);
        }
        let now = device.clock.now();
        conclude(over.into_iter().map(|executed| (now, executed)));
    }
}

/// Counts what is over, admits the operations that waited for its slots, and delivers it.
///
/// In this order: whoever is woken by a delivery may take the processor from this thread, and on a busy machine the
/// device would go on with fewer requests than it has slots until the thread gets it back.
pub(crate) fn conclude(over: impl IntoIterator<Item = (Instant, Executed)>) {
    let over: Vec<(Instant, Executed)> = over.into_iter().collect();
    let Some((_, first)) = over.first() else { return };
    // All operations of one backend belong to one device.
    let device = Arc::clone(&first.operation.file.device.inner);
    for (at, Executed { operation, outcome }) in &over {
        device.count_finished(operation, outcome.is_err(), *at);
    }
    device.leave(over.iter().map(|(_, executed)| executed.operation.slot).collect());
    for (_, Executed { operation, outcome }) in over {
        let batch = Arc::clone(&operation.batch);
        let index = operation.index;
        batch.deliver(index, outcome.map(|()| operation.into_completion()), &device);
    }
}
