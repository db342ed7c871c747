//! A medium in memory that fails as planned: what crash tests run on.
//!
//! Every file has two images. Requests see the *live* one; the *durable* one is left after the power fails.
//!
//! ```text
//!   write ──► live image ──────────── sync ───────────► durable image
//!        └──► unsynced changes ─┐                          ▲
//!                               └── crash: none, all, or a random part, the last of it torn between 512-byte sectors
//! ```
//!
//! Names work the same way: creations, renames and removals are live at once and durable after
//! [`nandina_device::Device::sync_directory`]. Syncing a file does not make its name durable.
//!
//! Invariants
//! - Operations are executed in the submitting thread, in order: the same program sees the same run.
//! - Requests (reads, writes, syncs) are counted from 0 as they reach the medium; a continued transfer counts again.
//! - Events are what changes the medium: writes, syncs of files and directories, creations, renames, removals,
//!   changes of size. After a power loss nothing succeeds until [`crate::Machine::crash`].

mod backend;
mod faults;
mod image;
mod names;

pub(crate) use self::backend::MemoryBackend;
pub use self::faults::{Contents, CrashOutcome, FaultPlan};

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nandina_device::backend::{Operation, Transfer};
use nandina_device::medium::{
    FileHandle, FileKey, LockHandle, Medium, OpenFile, OpenMode, Opened, replacement_path,
};
use nandina_device::{DeviceIdentity, Error, FileClass, Result, SplitMix64, WriteBuffer};
use parking_lot::Mutex;

use self::faults::{DamagedRead, Fault};
use self::image::{Change, FileImages, SECTOR_BYTES};
use self::names::{Entry, NameChange, Names};
use crate::power::Power;

/// A file's contents, shared by its names and handles.
pub(crate) type Inode = Arc<Mutex<FileImages>>;

struct InodeHandle(Inode);

impl FileHandle for InodeHandle {}

/// The contents of a file that this medium opened.
fn inode_of(file: &OpenFile) -> &Inode {
    let handle = (file.handle() as &dyn std::any::Any).downcast_ref::<InodeHandle>();
    &handle.expect("a medium in memory gets the files that it opened").0
}

fn key_of(inode: &Inode) -> FileKey {
    Arc::as_ptr(inode).addr() as FileKey
}

fn opened(inode: Inode, direct: bool) -> Opened {
    let (key, bytes) = (key_of(&inode), inode.lock().live.len());
    Opened { handle: Box::new(InodeHandle(inode)), key, bytes, direct }
}

/// See the [module documentation](self). Clones share everything.
#[derive(Clone)]
pub(crate) struct MemoryMedium {
    root: Arc<Path>,
    identity: DeviceIdentity,
    world: Arc<Mutex<World>>,
}

struct World {
    plan: FaultPlan,
    contents: Contents,
    names: Names,
    locks: HashMap<PathBuf, u64>,
    lock_number: u64,
    requests: u64,
    events: u64,
    power: Arc<Power>,
}

fn io_error() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

impl World {
    /// Counts a change of the medium. True when the power fails during it: its effect may remain, but it fails.
    fn event(&mut self) -> io::Result<bool> {
        self.powered()?;
        let fails = self.plan.power_loss_at_event == Some(self.events);
        self.events += 1;
        Ok(self.power.event(fails))
    }

    fn powered(&self) -> io::Result<()> {
        if self.power.is_on() { Ok(()) } else { Err(io_error()) }
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
        let replacement = replacement_path(path);
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
        self.sync_directory(path.parent().expect("a file is in a directory"))
    }

    /// The number of the lock; none while it is held.
    fn try_lock(&mut self, path: &Path) -> io::Result<Option<u64>> {
        self.powered()?;
        if self.locks.contains_key(path) {
            return Ok(None);
        }
        if self.names.get(path).is_err() {
            self.create(path)?;
        }
        self.lock_number += 1;
        self.locks.insert(path.to_owned(), self.lock_number);
        Ok(Some(self.lock_number))
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
        let inode = Arc::clone(inode_of(operation.file()));
        let class = operation.file().class();
        let done = operation.done_bytes() as usize;
        let position = operation.position();
        let bound = match fault {
            Some(Fault::Short(bytes) | Fault::Torn(bytes)) => bytes,
            _ => usize::MAX,
        };
        match operation.transfer() {
            Transfer::Read(buffer) => {
                let wanted = &mut buffer[done..];
                let bytes = wanted.len().min(bound);
                let read = inode.lock().live.read(position, &mut wanted[..bytes]);
                let is_damaged = |damaged: &mut DamagedRead| request >= damaged.first_request && read > 0;
                if let Some(DamagedRead { place, .. }) = self.plan.damaged_read.take_if(is_damaged) {
                    for sector in wanted[..read].chunks_mut(SECTOR_BYTES) {
                        let place = place % sector.len();
                        sector[place] ^= 0xFF;
                    }
                }
                Ok(read)
            }
            Transfer::Write(buffers) => {
                let (bytes, change) = self.written(class, position, buffers, done, bound);
                self.check_space(&inode, position, bytes as u64)?;
                self.change(&inode, change)?;
                if matches!(fault, Some(Fault::Torn(_))) { Err(io_error()) } else { Ok(bytes) }
            }
            Transfer::Sync => self.sync(&inode).map(|()| 0),
        }
    }

    fn crash(&mut self, outcome: CrashOutcome) {
        let mut random = match outcome {
            CrashOutcome::Random { seed } => Some(SplitMix64::new(seed)),
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
    }
}

/// The bytes of all buffers together, from `skip` on and at most `bound` of them.
fn part_of(buffers: &[WriteBuffer], mut skip: usize, bound: usize) -> Arc<[u8]> {
    let mut data = Vec::new();
    for buffer in buffers {
        let from = skip.min(buffer.len());
        skip -= from;
        let until = buffer.len().min(from.saturating_add(bound - data.len()));
        data.extend_from_slice(&buffer[from..until]);
    }
    data.into()
}

impl MemoryMedium {
    pub(crate) fn new(
        root: &str,
        identity: DeviceIdentity,
        plan: FaultPlan,
        contents: Contents,
        power: Arc<Power>,
    ) -> Self {
        let world = World {
            plan,
            contents,
            names: Names::new(Path::new(root)),
            locks: HashMap::new(),
            lock_number: 0,
            requests: 0,
            events: 0,
            power,
        };
        Self { root: Path::new(root).into(), identity, world: Arc::new(Mutex::new(world)) }
    }

    /// The path of its directory.
    pub(crate) fn name(&self) -> &str {
        self.root.to_str().expect("the root was given as text")
    }

    pub(crate) fn requests(&self) -> u64 {
        self.world.lock().requests
    }

    pub(crate) fn events(&self) -> u64 {
        self.world.lock().events
    }

    pub(crate) fn set_plan(&self, plan: FaultPlan) {
        self.world.lock().plan = plan;
    }

    /// Loses power: of unsynced changes, those that `outcome` says are there when it comes back.
    pub(crate) fn crash(&self, outcome: CrashOutcome) {
        self.world.lock().crash(outcome);
    }

    /// Bytes moved, or a negative error number.
    fn execute(&self, operation: &mut Operation) -> i32 {
        self.world.lock().execute(operation)
    }

    fn with<T>(
        &self,
        action: &'static str,
        path: &Path,
        work: impl FnOnce(&mut World) -> io::Result<T>,
    ) -> Result<T> {
        work(&mut self.world.lock()).map_err(|source| Error::path(action, path, source))
    }
}

impl Medium for MemoryMedium {
    fn root(&self) -> &Path {
        &self.root
    }

    fn identity(&self) -> DeviceIdentity {
        self.identity.clone()
    }

    fn is_simulated(&self) -> bool {
        true
    }

    fn has_page_cache(&self) -> bool {
        false
    }

    fn tells_discards(&self) -> bool {
        false
    }

    fn create(&self, path: &Path, direct: bool) -> Result<Opened> {
        self.with("create", path, |world| world.create(path)).map(|inode| opened(inode, direct))
    }

    fn open(&self, path: &Path, _mode: OpenMode, direct: bool) -> Result<Opened> {
        self.with("open", path, |world| world.open(path)).map(|inode| opened(inode, direct))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.with("remove", path, |world| {
            world.open(path)?;
            world.change_name(NameChange::Unlink { path: path.to_owned() })
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.with("rename", from, |world| world.rename(from, to))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.world.lock().names.get(path).is_ok())
    }

    fn list(&self, directory: &Path) -> Result<Vec<String>> {
        self.with("list", directory, |world| {
            world.powered()?;
            world.names.list(directory)
        })
    }

    fn sync_directory(&self, directory: &Path) -> Result<()> {
        self.with("sync directory", directory, |world| world.sync_directory(directory))
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        self.with("create directory", path, |world| {
            world.names.check_vacant(path)?;
            world.change_name(NameChange::Link { path: path.to_owned(), entry: Entry::Directory })
        })
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.with("remove directory", path, |world| {
            world.names.check_empty_directory(path)?;
            world.change_name(NameChange::Unlink { path: path.to_owned() })
        })
    }

    fn write_small(&self, path: &Path, contents: &[u8]) -> Result<()> {
        self.with("write", path, |world| world.write_small(path, contents))
    }

    fn read_small(&self, path: &Path) -> Result<Vec<u8>> {
        let inode = self.with("read", path, |world| world.open(path))?;
        let images = inode.lock();
        let mut contents = vec![0; images.live.len() as usize];
        images.live.read(0, &mut contents);
        Ok(contents)
    }

    fn try_lock(&self, path: &Path) -> Result<Option<Box<dyn LockHandle>>> {
        let number = self.with("lock", path, |world| world.try_lock(path))?;
        Ok(number.map(|number| {
            Box::new(MemoryLock { medium: self.clone(), path: path.to_owned(), number })
                as Box<dyn LockHandle>
        }))
    }

    fn free_bytes(&self, _directory: &Path) -> Result<u64> {
        let world = self.world.lock();
        Ok(world.plan.capacity_bytes.map_or(u64::MAX, |capacity| capacity.saturating_sub(world.used_bytes())))
    }

    fn key_of(&self, path: &Path) -> Option<FileKey> {
        self.world.lock().open(path).ok().as_ref().map(key_of)
    }

    fn len(&self, file: &OpenFile) -> io::Result<u64> {
        self.world.lock().powered()?;
        Ok(inode_of(file).lock().live.len())
    }

    fn allocate(&self, file: &OpenFile, offset: u64, bytes: u64) -> io::Result<()> {
        let mut world = self.world.lock();
        world.check_space(inode_of(file), offset, bytes)?;
        let change = if world.contents.keeps(file.class()) {
            Change::Allocate { offset, bytes }
        } else {
            Change::Extend { bytes: offset + bytes }
        };
        world.change(inode_of(file), change)
    }

    fn punch_hole(&self, file: &OpenFile, offset: u64, bytes: u64) -> io::Result<()> {
        let mut world = self.world.lock();
        if world.plan.has_no_holes {
            return world.powered();
        }
        world.change(inode_of(file), Change::Punch { offset, bytes })
    }

    fn truncate(&self, file: &OpenFile, bytes: u64) -> io::Result<()> {
        self.world.lock().change(inode_of(file), Change::Truncate { bytes })
    }
}

/// A lock of a simulated device; free again when dropped, or after a crash.
struct MemoryLock {
    medium: MemoryMedium,
    path: PathBuf,
    number: u64,
}

impl LockHandle for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        let mut world = self.medium.world.lock();
        if world.locks.get(&self.path) == Some(&self.number) {
            world.locks.remove(&self.path);
        }
    }
}

impl std::fmt::Debug for MemoryLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryLock").field("path", &self.path).finish()
    }
}
