//! A medium in memory that fails as planned: what crash tests run on. With the timing of a drive (see
//! [`crate::drive`]) also what experiments about devices run on.
//!
//! Every file has two images. Requests see the *live* one; the *durable* one is what is left after the power fails.
//!
//! ```text
//!   write ──► live image ──────────── sync ───────────► durable image
//!        └──► unsynced changes ─┐                          ▲
//!                               └── crash: none, all, or a random part, the last of it torn between 512-byte sectors
//! ```
//!
//! Names work the same way: creations, renames and removals are live at once and durable after
//! [`crate::Device::sync_directory`]. Syncing a file does not make its name durable.
//!
//! Invariants
//! - Operations are executed in the submitting thread, in order: the same program sees the same run.
//! - Requests (reads, writes, syncs) are counted from 0 as they reach the medium; a continued transfer counts again.
//! - Events are what changes the medium: writes, syncs of files and directories, creations, renames, removals,
//!   changes of size. After a power loss nothing succeeds until [`Simulation::crash`].

mod image;
mod names;

pub(crate) use self::names::ROOT;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use self::image::{Change, FileImages};
use self::names::{Entry, NameChange, Names};
use super::IoBackend;
use crate::buffer::WriteBuffer;
use crate::counters::FileClass;
use crate::device::{DeviceInner, finish};
use crate::drive::{DriveFigures, DriveModel};
use crate::error::{Error, Result};
use crate::file::Handle;
use crate::request::{Operation, Transfer};
use crate::timing::Timing;

/// A file's contents, shared by its names and handles.
pub(crate) type Inode = Arc<Mutex<FileImages>>;

/// Which requests fail, and how.
#[derive(Debug, Clone, Default)]
pub struct FaultPlan {
    faults: BTreeMap<u64, Fault>,
    dead_from_request: Option<u64>,
    power_loss_at_event: Option<u64>,
    capacity_bytes: Option<u64>,
    has_no_holes: bool,
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    Error(i32),
    Short(usize),
    Torn(usize),
}

impl FaultPlan {
    pub fn none() -> Self {
        Self::default()
    }

    /// Request number `request` fails with an I/O error and moves nothing.
    pub fn fail_request(mut self, request: u64) -> Self {
        self.faults.insert(request, Fault::Error(libc::EIO));
        self
    }

    /// Every request from number `request` on fails: the device has died.
    pub fn fail_from(mut self, request: u64) -> Self {
        self.dead_from_request = Some(request);
        self
    }

    /// Request number `request` moves at most `bytes`; the rest is asked for again.
    pub fn short_transfer(mut self, request: u64, bytes: usize) -> Self {
        self.faults.insert(request, Fault::Short(bytes));
        self
    }

    /// Write number `request` changes only its first `bytes` and fails.
    pub fn torn_write(mut self, request: u64, bytes: usize) -> Self {
        self.faults.insert(request, Fault::Torn(bytes));
        self
    }

    /// The power fails during event number `event`.
    pub fn power_loss_at(mut self, event: u64) -> Self {
        self.power_loss_at_event = Some(event);
        self
    }

    pub(crate) fn capacity_at_most(mut self, bytes: u64) -> Self {
        self.capacity_bytes = Some(self.capacity_bytes.map_or(bytes, |capacity| capacity.min(bytes)));
        self
    }

    /// The file system cannot give back parts of a file, and says nothing about it.
    pub fn without_holes(mut self) -> Self {
        self.has_no_holes = true;
        self
    }

    /// The medium holds no more than this, in whole blocks.
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity_bytes = Some(bytes);
        self
    }
}

/// What survives of the changes that were not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashOutcome {
    LoseUnsynced,
    KeepAll,
    /// Each unsynced write survives whole, in part (any of its 512-byte sectors), or not at all; of the name changes
    /// a random number of the first survive, as on a journaling file system.
    Random {
        seed: u64,
    },
}

/// Whether a simulated device keeps what is written to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Contents {
    #[default]
    Kept,
    /// Until a crash, after which every file is empty, and those of temporary files not at all: for long experiments
    /// that do not look at what they spill.
    Volatile,
    /// Reads give zeros: for measurements that look at times and not at bytes.
    Forgotten,
}

/// A device in memory with the timing of a drive. See [`crate::Device::simulated_drive`].
#[derive(Debug, Clone)]
pub struct SimulationOptions {
    pub model: DriveModel,
    /// Decides everything that is random about the drive.
    pub seed: u64,
    /// Whether freed ranges are told to the drive, as on a file system mounted with `discard`.
    pub discard: bool,
    pub contents: Contents,
    pub faults: FaultPlan,
    /// As [`crate::DeviceOptions::governed`].
    pub governed: bool,
}

impl Contents {
    /// Whether what is written to a file of a class can be read again.
    fn keeps(self, class: FileClass) -> bool {
        match self {
            Contents::Kept => true,
            Contents::Volatile => class != FileClass::Temp,
            Contents::Forgotten => false,
        }
    }
}

impl SimulationOptions {
    /// A faultless drive that keeps its contents.
    pub fn of(model: DriveModel) -> Self {
        let faults = FaultPlan::none();
        Self { model, seed: 1, discard: false, contents: Contents::Kept, faults, governed: true }
    }
}

/// Steers and observes a simulated device.
#[derive(Clone)]
pub struct Simulation {
    medium: Arc<SimulatedMedium>,
    device: Weak<DeviceInner>,
}

impl Simulation {
    pub(crate) fn new(medium: Arc<SimulatedMedium>, device: Weak<DeviceInner>) -> Self {
        Self { medium, device }
    }

    /// Lets a span of virtual time go by, as computing would; requests go on meanwhile. Nothing without a drive.
    pub fn pass(&self, span: Duration) {
        self.with_timing(|timing| timing.pass(span));
    }

    /// What happened inside the drive; zeros without one.
    pub fn drive_figures(&self) -> DriveFigures {
        self.with_timing(Timing::figures).unwrap_or_default()
    }

    /// Brings the drive into the state of having been written to once, from the first address to the last.
    pub fn fill_drive(&self) {
        self.with_timing(Timing::fill);
    }

    fn with_timing<T>(&self, work: impl FnOnce(&Timing) -> T) -> Option<T> {
        let device = self.device.upgrade()?;
        device.timing.as_ref().map(work)
    }

    /// Requests that have reached the medium.
    pub fn requests(&self) -> u64 {
        self.medium.world.lock().requests
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.medium.world.lock().events
    }

    /// Replaces the plan. Its numbers count on from [`Self::requests`] and [`Self::events`].
    pub fn set_plan(&self, plan: FaultPlan) {
        self.medium.world.lock().plan = plan;
    }

    pub fn has_power(&self) -> bool {
        !self.medium.world.lock().power_lost
    }

    /// The power fails and comes back: unsynced changes are lost as `outcome` says, locks are free, faults are
    /// forgotten (what the file system is like stays). Files have to be opened again.
    pub fn crash(&self, outcome: CrashOutcome) {
        self.medium.world.lock().crash(outcome);
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

pub(crate) struct SimulatedMedium {
    world: Mutex<World>,
}

struct World {
    plan: FaultPlan,
    contents: Contents,
    names: Names,
    locks: HashMap<PathBuf, u64>,
    lock_number: u64,
    requests: u64,
    events: u64,
    power_lost: bool,
}

fn io_error() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

impl World {
    /// Counts a change of the medium. True when the power fails during it: its effect may remain, but it fails.
    fn event(&mut self) -> io::Result<bool> {
        if self.power_lost {
            return Err(io_error());
        }
        self.power_lost = self.plan.power_loss_at_event == Some(self.events);
        self.events += 1;
        Ok(self.power_lost)
    }

    fn powered(&self) -> io::Result<()> {
        if self.power_lost { Err(io_error()) } else { Ok(()) }
    }

    /// What writing the buffers, from `skip` on and at most `bound` bytes of them, is to the contents.
    fn written(
        &self,
        class: FileClass,
        offset: u64,
        buffers: &[WriteBuffer],
        skip: usize,
        bound: usize,
    ) -> (usize, Change) {
        if self.contents.keeps(class) {
            let data = part_of(buffers, skip, bound);
            return (data.len(), Change::Write { offset, data });
        }
        let all: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let bytes = all.saturating_sub(skip).min(bound);
        (bytes, Change::Extend { bytes: offset + bytes as u64 })
    }

    fn check_space(&self, inode: &Inode, offset: u64, bytes: u64) -> io::Result<()> {
        let Some(capacity) = self.plan.capacity_bytes else { return Ok(()) };
        let added = inode.lock().live.missing_bytes(offset, bytes);
        if added > 0 && self.used_bytes() + added > capacity {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        Ok(())
    }

    fn used_bytes(&self) -> u64 {
        let mut seen = HashSet::new();
        self.names
            .live_files()
            .filter(|inode| seen.insert(Arc::as_ptr(inode)))
            .map(|inode| inode.lock().live.held_bytes())
            .sum()
    }

    fn change(&mut self, inode: &Inode, change: Change) -> io::Result<()> {
        let lost = self.event()?;
        inode.lock().apply(change, self.contents);
        if lost { Err(io_error()) } else { Ok(()) }
    }

    fn change_name(&mut self, change: NameChange) -> io::Result<()> {
        let lost = self.event()?;
        self.names.apply(change);
        if lost { Err(io_error()) } else { Ok(()) }
    }

    fn sync(&mut self, inode: &Inode) -> io::Result<()> {
        if self.event()? {
            return Err(io_error());
        }
        inode.lock().sync(self.contents);
        Ok(())
    }

    fn sync_directory(&mut self, directory: &Path) -> io::Result<()> {
        if self.event()? {
            return Err(io_error());
        }
        self.names.sync(directory);
        Ok(())
    }

    fn create(&mut self, path: &Path) -> io::Result<Inode> {
        self.names.check_vacant(path)?;
        let inode = Inode::default();
        self.change_name(NameChange::Link { path: path.to_owned(), entry: Entry::File(Arc::clone(&inode)) })?;
        Ok(inode)
    }

    fn open(&self, path: &Path) -> io::Result<Inode> {
        self.powered()?;
        match self.names.get(path)? {
            Entry::File(inode) => Ok(Arc::clone(inode)),
            Entry::Directory => Err(io::Error::from(io::ErrorKind::IsADirectory)),
        }
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.names.get(from)?;
        self.names.check_parent(to)?;
        self.change_name(NameChange::Rename { from: from.to_owned(), to: to.to_owned() })
    }

    fn write_small(&mut self, path: &Path, contents: &[u8]) -> io::Result<()> {
        let replacement = crate::directory::replacement_path(path);
        let inode = match self.open(&replacement) {
            Ok(inode) => {
                self.change(&inode, Change::Truncate { bytes: 0 })?;
                inode
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.create(&replacement)?,
            Err(error) => return Err(error),
        };
        self.check_space(&inode, 0, contents.len() as u64)?;
        self.change(&inode, Change::Write { offset: 0, data: contents.into() })?;
        self.sync(&inode)?;
        self.rename(&replacement, path)?;
        self.sync_directory(path.parent().unwrap_or(Path::new("/")))
    }

    /// Bytes moved, or a negative error number.
    fn execute(&mut self, operation: &mut Operation) -> i32 {
        match self.try_execute(operation) {
            Ok(bytes) => bytes as i32,
            Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
        }
    }

    fn try_execute(&mut self, operation: &mut Operation) -> io::Result<usize> {
        self.powered()?;
        let request = self.requests;
        self.requests += 1;
        if self.plan.dead_from_request.is_some_and(|first| request >= first) {
            return Err(io_error());
        }
        let fault = self.plan.faults.get(&request).copied();
        if let Some(Fault::Error(number)) = fault {
            return Err(io::Error::from_raw_os_error(number));
        }
        let Handle::Simulated(inode) = &operation.file.handle else {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        };
        let inode = Arc::clone(inode);
        let done = operation.done_bytes as usize;
        let position = operation.position();
        let bound = match fault {
            Some(Fault::Short(bytes) | Fault::Torn(bytes)) => bytes,
            _ => usize::MAX,
        };
        match &mut operation.transfer {
            Transfer::Read(buffer) => {
                let wanted = buffer.get_mut(done..).unwrap_or_default();
                let bytes = wanted.len().min(bound);
                Ok(inode.lock().live.read(position, wanted.get_mut(..bytes).unwrap_or_default()))
            }
            Transfer::Write(buffers) => {
                let (bytes, change) = self.written(operation.file.class, position, buffers, done, bound);
                self.check_space(&inode, position, bytes as u64)?;
                self.change(&inode, change)?;
                if matches!(fault, Some(Fault::Torn(_))) { Err(io_error()) } else { Ok(bytes) }
            }
            Transfer::Sync => self.sync(&inode).map(|()| 0),
        }
    }

    fn crash(&mut self, outcome: CrashOutcome) {
        let mut random = match outcome {
            CrashOutcome::Random { seed } => Some(SplitMix64(seed)),
            _ => None,
        };
        let kept_names = match (&mut random, outcome) {
            (Some(random), _) => random.below(self.names.unsynced() as u64 + 1) as usize,
            (None, CrashOutcome::KeepAll) => self.names.unsynced(),
            (None, _) => 0,
        };
        self.names.crash(kept_names);
        let mut seen = HashSet::new();
        for inode in self.names.live_files() {
            if seen.insert(Arc::as_ptr(inode)) {
                inode.lock().crash(outcome, random.as_mut());
            }
        }
        let FaultPlan { capacity_bytes, has_no_holes, .. } = self.plan;
        self.plan = FaultPlan { capacity_bytes, has_no_holes, ..FaultPlan::default() };
        self.locks.clear();
        self.power_lost = false;
    }
}

/// The bytes of all buffers together, from `skip` on and at most `bound` of them.
fn part_of(buffers: &[WriteBuffer], mut skip: usize, bound: usize) -> Arc<[u8]> {
    let mut data = Vec::new();
    for buffer in buffers {
        let from = skip.min(buffer.len());
        skip -= from;
        let until = buffer.len().min(from.saturating_add(bound - data.len()));
        data.extend_from_slice(buffer.get(from..until).unwrap_or_default());
    }
    data.into()
}

/// A small reproducible generator (Steele, Lea, Flood: *Fast splittable pseudorandom number generators*, 2014).
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

impl SimulatedMedium {
    pub(crate) fn new(plan: FaultPlan, contents: Contents) -> Self {
        Self {
            world: Mutex::new(World {
                plan,
                contents,
                names: Names::new(),
                locks: HashMap::new(),
                lock_number: 0,
                requests: 0,
                events: 0,
                power_lost: false,
            }),
        }
    }

    pub(crate) fn create(&self, path: &Path) -> Result<Inode> {
        self.world.lock().create(path).map_err(|source| Error::path("create", path, source))
    }

    pub(crate) fn open(&self, path: &Path) -> Result<Inode> {
        self.world.lock().open(path).map_err(|source| Error::path("open", path, source))
    }

    pub(crate) fn remove(&self, path: &Path) -> Result<()> {
        let mut world = self.world.lock();
        world
            .open(path)
            .and_then(|_| world.change_name(NameChange::Unlink { path: path.to_owned() }))
            .map_err(|source| Error::path("remove", path, source))
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.world.lock().rename(from, to).map_err(|source| Error::path("rename", from, source))
    }

    pub(crate) fn exists(&self, path: &Path) -> bool {
        self.world.lock().names.get(path).is_ok()
    }

    pub(crate) fn list(&self, directory: &Path) -> Result<Vec<String>> {
        let world = self.world.lock();
        world
            .powered()
            .and_then(|()| world.names.list(directory))
            .map_err(|source| Error::path("list", directory, source))
    }

    pub(crate) fn sync_directory(&self, directory: &Path) -> Result<()> {
        self.world
            .lock()
            .sync_directory(directory)
            .map_err(|source| Error::path("sync directory", directory, source))
    }

    pub(crate) fn create_directory(&self, path: &Path) -> Result<()> {
        let mut world = self.world.lock();
        world
            .names
            .check_vacant(path)
            .and_then(|()| {
                world.change_name(NameChange::Link { path: path.to_owned(), entry: Entry::Directory })
            })
            .map_err(|source| Error::path("create directory", path, source))
    }

    pub(crate) fn remove_directory(&self, path: &Path) -> Result<()> {
        let mut world = self.world.lock();
        world
            .names
            .check_empty_directory(path)
            .and_then(|()| world.change_name(NameChange::Unlink { path: path.to_owned() }))
            .map_err(|source| Error::path("remove directory", path, source))
    }

    pub(crate) fn write_small(&self, path: &Path, contents: &[u8]) -> Result<()> {
        self.world.lock().write_small(path, contents).map_err(|source| Error::path("write", path, source))
    }

    pub(crate) fn read_small(&self, path: &Path) -> Result<Vec<u8>> {
        let inode = self.world.lock().open(path).map_err(|source| Error::path("read", path, source))?;
        let images = inode.lock();
        let mut contents = vec![0; images.live.len() as usize];
        images.live.read(0, &mut contents);
        Ok(contents)
    }

    pub(crate) fn try_lock(self: &Arc<Self>, path: &Path) -> Result<Option<SimulatedLock>> {
        let mut world = self.world.lock();
        let error = |source| Error::path("lock", path, source);
        world.powered().map_err(error)?;
        if world.locks.contains_key(path) {
            return Ok(None);
        }
        if world.names.get(path).is_err() {
            world.create(path).map_err(error)?;
        }
        world.lock_number += 1;
        let number = world.lock_number;
        world.locks.insert(path.to_owned(), number);
        Ok(Some(SimulatedLock { medium: Arc::clone(self), path: path.to_owned(), number }))
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        let world = self.world.lock();
        world.plan.capacity_bytes.map_or(u64::MAX, |capacity| capacity.saturating_sub(world.used_bytes()))
    }

    pub(crate) fn allocate(
        &self,
        inode: &Inode,
        class: FileClass,
        offset: u64,
        bytes: u64,
    ) -> io::Result<()> {
        let mut world = self.world.lock();
        world.check_space(inode, offset, bytes)?;
        let change = if world.contents.keeps(class) {
            Change::Allocate { offset, bytes }
        } else {
            Change::Extend { bytes: offset + bytes }
        };
        world.change(inode, change)
    }

    pub(crate) fn punch_hole(&self, inode: &Inode, offset: u64, bytes: u64) -> io::Result<()> {
        let mut world = self.world.lock();
        if world.plan.has_no_holes {
            return world.powered();
        }
        world.change(inode, Change::Punch { offset, bytes })
    }

    pub(crate) fn truncate(&self, inode: &Inode, bytes: u64) -> io::Result<()> {
        self.world.lock().change(inode, Change::Truncate { bytes })
    }

    pub(crate) fn len(&self, inode: &Inode) -> io::Result<u64> {
        self.world.lock().powered()?;
        Ok(inode.lock().live.len())
    }
}

/// A lock of a simulated device; free again when dropped, or after a crash.
pub(crate) struct SimulatedLock {
    medium: Arc<SimulatedMedium>,
    path: PathBuf,
    number: u64,
}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        let mut world = self.medium.world.lock();
        if world.locks.get(&self.path) == Some(&self.number) {
            world.locks.remove(&self.path);
        }
    }
}

impl std::fmt::Debug for SimulatedLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimulatedLock").field("path", &self.path).finish()
    }
}

/// Executes operations on a [`SimulatedMedium`] one after the other.
pub(crate) struct SimulatedBackend {
    medium: Arc<SimulatedMedium>,
    queue: Mutex<BackendQueue>,
}

#[derive(Default)]
struct BackendQueue {
    operations: VecDeque<Box<Operation>>,
    /// A thread is emptying the queue. Reporting a result may start further operations; they are queued for that
    /// thread instead of being executed recursively.
    busy: bool,
}

impl SimulatedBackend {
    pub(crate) fn new(medium: Arc<SimulatedMedium>) -> Self {
        Self { medium, queue: Mutex::default() }
    }
}

impl IoBackend for SimulatedBackend {
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
            let result = self.medium.world.lock().execute(&mut operation);
            finish([(operation, result)]);
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

    fn reap(&self) {}
}
