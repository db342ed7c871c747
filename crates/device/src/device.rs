//! A place on a medium: a directory, the way requests get there, and the figures about them.

use std::collections::VecDeque;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

use crate::backend::simulated::{FaultHandle, FaultPlan, SimulatedCarrier, SimulatedMedium};
use crate::backend::{Carrier, IoUringBackend, ThreadPool};
use crate::batch::{Batch, BatchState};
use crate::buffer::{AlignedBuffer, BufferPool};
use crate::counters::{Counters, FileClass, IoAccount};
use crate::directory::{DiskDirectory, Medium};
use crate::error::{Error, Result};
use crate::file::{File, FileInner, Handle, OpenMode};
use crate::request::{Operation, Progress, Request};

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
    /// Most requests at the device at once; further ones wait in order of submission. 1 to 4096.
    pub max_depth: usize,
    /// Most threads of the thread pool.
    pub max_threads: usize,
    /// Bypass the page cache. Where the file system cannot, I/O goes through the cache, with a notice in the log.
    pub direct: bool,
    /// Memory of unused buffers kept for reuse.
    pub retained_buffer_bytes: usize,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            backend: Backend::Auto,
            max_depth: 256,
            max_threads: 64,
            direct: true,
            retained_buffer_bytes: 16 << 20,
        }
    }
}

/// See the [module documentation](self). Clones share everything.
#[derive(Clone)]
pub struct Device {
    pub(crate) inner: Arc<DeviceInner>,
    /// Directory that names are relative to.
    root: Arc<Path>,
}

pub(crate) struct DeviceInner {
    pub(crate) backend: Box<dyn Carrier>,
    pub(crate) medium: Medium,
    counters: Counters,
    pool: Arc<BufferPool>,
    gate: Mutex<Gate>,
    max_depth: usize,
    direct: bool,
    noticed_buffered: AtomicBool,
}

/// Seats at the device. Operations without a seat wait in order of submission.
///
/// No deadlock: an operation with a seat needs nothing further to end, and its end seats the next one.
#[derive(Default)]
struct Gate {
    seated: usize,
    waiting: VecDeque<Box<Operation>>,
    /// The backend knows that operations wait.
    watched: bool,
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
        let max_depth = options.max_depth.clamp(1, 4096);
        let backend = carrier(&options, max_depth)?;
        Ok(Self::assemble(root, backend, Medium::Disk(DiskDirectory), max_depth, &options))
    }

    /// A device in memory that fails as planned, for tests. See [`FaultPlan`].
    pub fn simulated(plan: FaultPlan) -> (Device, FaultHandle) {
        let medium = Arc::new(SimulatedMedium::new(plan));
        let options = DeviceOptions::default();
        let device = Self::assemble(
            PathBuf::from(crate::backend::simulated::ROOT),
            Box::new(SimulatedCarrier::new(Arc::clone(&medium))),
            Medium::Simulated(Arc::clone(&medium)),
            options.max_depth,
            &options,
        );
        (device, FaultHandle::new(medium))
    }

    fn assemble(
        root: PathBuf,
        backend: Box<dyn Carrier>,
        medium: Medium,
        max_depth: usize,
        options: &DeviceOptions,
    ) -> Device {
        let inner = DeviceInner {
            backend,
            medium,
            counters: Counters::default(),
            pool: BufferPool::new(options.retained_buffer_bytes),
            gate: Mutex::default(),
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
        File { inner: Arc::new(FileInner { handle, path, class, direct, device: self.clone() }) }
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
        self.count_small(crate::counters::Traffic::Write, contents.len(), || {
            self.inner.medium.write_small(&path, contents)
        })
    }

    /// Contents of a whole small file.
    pub fn read_small(&self, name: &str) -> Result<Vec<u8>> {
        let path = self.resolve(name)?;
        let started = Instant::now();
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
        let started = Instant::now();
        work()?;
        self.count_small_from(traffic, bytes, started);
        Ok(())
    }

    fn count_small_from(&self, traffic: crate::counters::Traffic, bytes: usize, started: Instant) {
        let now = Instant::now();
        for counters in [self.inner.counters.all(), self.inner.counters.class(FileClass::Catalog)] {
            counters.started(1, started);
            counters.finished(traffic, bytes as u64, false, now - started, now);
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

fn carrier(options: &DeviceOptions, max_depth: usize) -> Result<Box<dyn Carrier>> {
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
    /// Starts as many operations as there are seats; the others wait.
    pub(crate) fn submit(&self, operations: Vec<Box<Operation>>) {
        let mut gate = self.gate.lock();
        if gate.waiting.is_empty() && gate.seated + operations.len() <= self.max_depth {
            gate.seated += operations.len();
            drop(gate);
            self.start(operations);
        } else {
            gate.waiting.extend(operations);
            let seated = gate.seat(self.max_depth);
            self.watch_for_seats(gate);
            self.start(seated);
        }
    }

    /// Carries an operation in this thread if there is a seat, else submits it.
    pub(crate) fn run(&self, mut operation: Box<Operation>) {
        let mut gate = self.gate.lock();
        if !gate.waiting.is_empty() || gate.seated >= self.max_depth {
            drop(gate);
            return self.submit(vec![operation]);
        }
        gate.seated += 1;
        drop(gate);
        self.count_started(std::slice::from_mut(&mut operation));
        self.backend.run(operation);
    }

    fn start(&self, mut operations: Vec<Box<Operation>>) {
        if !operations.is_empty() {
            self.count_started(&mut operations);
            self.backend.start(operations);
        }
    }

    fn count_started(&self, operations: &mut [Box<Operation>]) {
        let now = Instant::now();
        for operation in operations.iter_mut() {
            operation.started = Some(now);
        }
        // Nearly always all are of one class and one account: one lock for each instead of one per request.
        self.counters.all().started(operations.len() as u64, now);
        for run in operations.chunk_by(|a, b| a.file.class == b.file.class) {
            if let Some(first) = run.first() {
                self.counters.class(first.file.class).started(run.len() as u64, now);
            }
        }
        let same_account = |a: &Operation, b: &Operation| match (&a.account, &b.account) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        for run in operations.chunk_by(|a, b| same_account(a, b)) {
            if let Some(account) = run.first().and_then(|first| first.account.as_ref()) {
                account.counters.started(run.len() as u64, now);
            }
        }
    }

    fn count_finished(&self, operation: &Operation, failed: bool, now: Instant) {
        let latency = operation.started.map_or_else(Default::default, |started| now - started);
        let traffic = operation.traffic();
        let bytes = operation.done_bytes;
        self.counters.all().finished(traffic, bytes, failed, latency, now);
        self.counters.class(operation.file.class).finished(traffic, bytes, failed, latency, now);
        if let Some(account) = &operation.account {
            account.counters.finished(traffic, bytes, failed, latency, now);
        }
    }

    /// Gives back seats and starts those who waited for them.
    fn leave(&self, seats: usize) {
        let mut gate = self.gate.lock();
        gate.seated -= seats;
        let seated = gate.seat(self.max_depth);
        self.watch_for_seats(gate);
        self.start(seated);
    }

    /// Waiting operations rely on completions being noticed, whether or not anybody waits for those.
    fn watch_for_seats(&self, mut gate: MutexGuard<'_, Gate>) {
        let waiting = !gate.waiting.is_empty();
        let change = waiting != gate.watched;
        gate.watched = waiting;
        drop(gate);
        match (change, waiting) {
            (true, true) => self.backend.sleeper_added(),
            (true, false) => self.backend.sleeper_gone(),
            (false, _) => {}
        }
    }

    /// Drops the waiting operations of an abandoned batch.
    pub(crate) fn withdraw(&self, batch: &Arc<BatchState>) {
        let mut gate = self.gate.lock();
        let waiting = std::mem::take(&mut gate.waiting);
        let (withdrawn, others): (VecDeque<_>, VecDeque<_>) =
            waiting.into_iter().partition(|operation| Arc::ptr_eq(&operation.batch, batch));
        gate.waiting = others;
        self.watch_for_seats(gate);
        drop(withdrawn);
    }
}

impl Gate {
    fn seat(&mut self, max_depth: usize) -> Vec<Box<Operation>> {
        let free = max_depth.saturating_sub(self.seated).min(self.waiting.len());
        self.seated += free;
        self.waiting.drain(..free).collect()
    }
}

/// Takes results from a backend: continues short transfers, counts and delivers the others, seats waiting ones.
pub(crate) fn finish(ended: impl IntoIterator<Item = (Box<Operation>, i32)>) {
    let now = Instant::now();
    let mut device: Option<Arc<DeviceInner>> = None;
    let mut again = Vec::new();
    let mut left = 0;
    for (operation, result) in ended {
        // All operations of one backend belong to one device.
        let device = device.get_or_insert_with(|| Arc::clone(&operation.file.device.inner));
        match operation.advance(result) {
            Progress::Again(operation) => again.push(operation),
            Progress::Done(operation, outcome) => {
                device.count_finished(&operation, outcome.is_err(), now);
                left += 1;
                let batch = Arc::clone(&operation.batch);
                let index = operation.index;
                batch.deliver(index, outcome.map(|()| operation.into_completion()), device);
            }
        }
    }
    if let Some(device) = device {
        if !again.is_empty() {
            device.backend.start(again);
        }
        if left > 0 {
            device.leave(left);
        }
    }
}
