//! Temporary space: extents in a few large files.
//!
//! ```text
//!  <folder>/nandina-temp-<pid>-<n>/          one per open space; `owner.lock` is locked while it lives
//!      owner.lock
//!      extents-0   │ used │ free │ used │ used │ free      │ preallocated, never written │
//!      extents-1   …                                       └─ end
//! ```
//!
//! Spilled data lives for seconds. Creating and removing a file for each partition would make the file
//! system's journal part of every query; here files only grow, freed extents are handed to the next writer,
//! and when the last extent is freed the files are cut to nothing.
//!
//! Invariants
//! - Extents handed out do not overlap, and start and end on multiples of [`GRAIN_BYTES`].
//! - A folder whose lock is free belongs to nobody alive; whoever opens a space beside it removes it.
//! - The folder goes when nobody can use it any more, not when the last cancelled write has ended: a program that
//!   is being ended does not wait for those. They end in files without a name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nandina_device::{Device, DirectoryLock, File, FileClass, FlowId, IoAccount, Priority};
use parking_lot::Mutex;

use crate::error::{Result, SpillError};

/// Extents are multiples of this, so that their neighbours never share a page of any size below it.
const GRAIN_BYTES: u64 = 64 << 10;
/// Files grow in steps of this, preallocated: writes inside a file's size need no journal entry each.
const GROWTH_BYTES: u64 = 64 << 20;
/// Size at which another file is begun.
const FILE_BYTES: u64 = 64 << 30;

const FOLDER_PREFIX: &str = "nandina-temp-";
const LOCK_NAME: &str = "owner.lock";

/// Settings of a temporary space.
#[derive(Clone, Debug, Default)]
pub struct TempOptions {
    /// Most bytes in use at once; `None`: what the disk has.
    pub quota_bytes: Option<u64>,
}

/// The temporary space of a session or database. Dropping it removes its folder.
#[derive(Debug)]
pub struct TempSpace {
    parent: Device,
    folder: String,
    device: Device,
    lock: Option<DirectoryLock>,
    quota_bytes: AtomicU64,
    extents: Arc<Extents>,
}

/// Which parts of the files are in use. Writes in flight hold this; it can outlive the space by them.
#[derive(Debug, Default)]
struct Extents {
    used_bytes: AtomicU64,
    files: Mutex<Vec<TempFile>>,
}

#[derive(Debug)]
struct TempFile {
    name: String,
    file: File,
    /// Free ranges below `end`: start to length, neighbours merged.
    free: BTreeMap<u64, u64>,
    end: u64,
    allocated: u64,
}

impl TempSpace {
    /// A space in a new folder of `parent`. Folders that dead processes left there are removed first.
    pub fn open(parent: Device, options: TempOptions) -> Result<Arc<Self>> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let in_folder = |source| SpillError::Folder { folder: parent.path().to_path_buf(), source };
        remove_leftovers(&parent);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let folder = format!("{FOLDER_PREFIX}{}-{number}", std::process::id());
            match parent.create_directory(&folder) {
                Ok(()) => {}
                Err(error) if error.is_already_there() => continue,
                Err(error) => return Err(in_folder(error)),
            }
            let device = parent.subdirectory(&folder).map_err(in_folder)?;
            // Another process may have taken the new folder for a leftover before it was locked, and may even have
            // removed it between the opening of the lock file and the locking.
            let Some(lock) = device.try_lock(LOCK_NAME).ok().flatten() else { continue };
            if !device.exists(LOCK_NAME).map_err(in_folder)? {
                continue;
            }
            return Ok(Arc::new(Self {
                folder,
                device,
                lock: Some(lock),
                quota_bytes: AtomicU64::new(options.quota_bytes.unwrap_or(u64::MAX)),
                extents: Arc::default(),
                parent,
            }));
        }
    }

    /// Space for one query or operator, whose use is counted apart.
    pub fn query(self: &Arc<Self>, label: impl Into<String>) -> Arc<QuerySpace> {
        self.query_in(FlowId::unique(), label)
    }

    /// The same for an operator whose requests are part of a query's flow.
    pub fn query_in(self: &Arc<Self>, flow: FlowId, label: impl Into<String>) -> Arc<QuerySpace> {
        Arc::new(QuerySpace {
            space: Arc::clone(self),
            label: label.into(),
            usage: Arc::default(),
            io: IoAccount::of_flow(flow, Priority::Scan),
        })
    }

    /// Bytes in use by all queries.
    pub fn used_bytes(&self) -> u64 {
        self.extents.used_bytes.load(Ordering::Relaxed)
    }

    /// Changes the quota for allocations made from now on.
    pub fn set_quota_bytes(&self, quota_bytes: Option<u64>) {
        self.quota_bytes.store(quota_bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The device on the folder that holds the files.
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn allocate(&self, bytes: u64, label: &str) -> Result<(File, usize, u64)> {
        let quota = self.quota_bytes.load(Ordering::Relaxed);
        let used_bytes = &self.extents.used_bytes;
        let reserved = used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|&sum| sum <= quota)
        });
        if let Err(used_bytes) = reserved {
            return Err(SpillError::QuotaExceeded {
                label: label.to_owned(),
                wanted_bytes: bytes,
                used_bytes,
                quota_bytes: quota,
            });
        }
        self.place(bytes).map_err(|error| {
            used_bytes.fetch_sub(bytes, Ordering::Relaxed);
            if error.is_no_space() {
                let folder = self.device.path().to_path_buf();
                return SpillError::DiskFull { label: label.to_owned(), folder, wanted_bytes: bytes };
            }
            SpillError::Io(error)
        })
    }

    /// Finds room for an extent: the first free range that is long enough, else behind the end of a file.
    fn place(&self, bytes: u64) -> std::result::Result<(File, usize, u64), nandina_device::Error> {
        let mut files = self.extents.files.lock();
        for (number, file) in files.iter_mut().enumerate() {
            if let Some(offset) = file.take_free(bytes) {
                return Ok((file.file.clone(), number, offset));
            }
        }
        if files.last().is_none_or(|file| file.end + bytes > FILE_BYTES) {
            let name = format!("extents-{}", files.len());
            let file = self.device.create(&name, FileClass::Temp)?;
            files.push(TempFile { name, file, free: BTreeMap::new(), end: 0, allocated: 0 });
        }
        let number = files.len() - 1;
        let Some(file) = files.last_mut() else {
            return Err(nandina_device::Error::InvalidName { name: String::new() });
        };
        let offset = file.end;
        if offset + bytes > file.allocated {
            // A full step may be more than the disk has left; what is needed now may still fit.
            let step = bytes.next_multiple_of(GROWTH_BYTES);
            let grown = match file.file.allocate(file.allocated, step) {
                Ok(()) => step,
                Err(_) => {
                    let needed = offset + bytes - file.allocated;
                    file.file.allocate(file.allocated, needed)?;
                    needed
                }
            };
            file.allocated += grown;
        }
        file.end = offset + bytes;
        Ok((file.file.clone(), number, offset))
    }
}

impl Extents {
    fn free(&self, number: usize, offset: u64, bytes: u64) {
        let mut files = self.files.lock();
        if let Some(file) = files.get_mut(number) {
            file.put_free(offset, bytes);
        }
        let used = self.used_bytes.fetch_sub(bytes, Ordering::Relaxed) - bytes;
        if used == 0 {
            for file in files.iter_mut() {
                file.free.clear();
                file.end = 0;
                file.allocated = 0;
                if let Err(error) = file.file.truncate(0) {
                    log::warn!("cannot shrink {}: {error}", file.file.path().display());
                }
            }
        }
    }
}

impl Drop for TempSpace {
    fn drop(&mut self) {
        for file in self.extents.files.lock().drain(..) {
            let name = file.name;
            drop(file.file);
            if let Err(error) = self.device.remove(&name) {
                log::warn!("cannot remove a temporary file: {error}");
            }
        }
        let removed = self.device.remove(LOCK_NAME);
        self.lock.take();
        if let Err(error) = removed.and_then(|()| self.parent.remove_directory(&self.folder)) {
            log::warn!("cannot remove a temporary folder: {error}");
        }
    }
}

/// Removes the folders of processes that ended without doing so. What cannot be removed is left for later.
fn remove_leftovers(parent: &Device) {
    for folder in parent.list().unwrap_or_default() {
        if !folder.starts_with(FOLDER_PREFIX) {
            continue;
        }
        let Ok(device) = parent.subdirectory(&folder) else { continue };
        let Ok(Some(lock)) = device.try_lock(LOCK_NAME) else { continue };
        let mut removed = Ok(());
        for name in device.list().unwrap_or_default().iter().filter(|name| *name != LOCK_NAME) {
            removed = removed.and(device.remove(name));
        }
        removed = removed.and_then(|()| device.remove(LOCK_NAME));
        drop(lock);
        if let Err(error) = removed.and_then(|()| parent.remove_directory(&folder)) {
            log::warn!("cannot remove what an earlier process left in {}: {error}", device.path().display());
        }
    }
}

impl TempFile {
    fn take_free(&mut self, bytes: u64) -> Option<u64> {
        let (&offset, &length) = self.free.iter().find(|(_, length)| **length >= bytes)?;
        self.free.remove(&offset);
        if length > bytes {
            self.free.insert(offset + bytes, length - bytes);
        }
        Some(offset)
    }

    fn put_free(&mut self, mut offset: u64, mut bytes: u64) {
        if let Some((&before, &length)) = self.free.range(..offset).next_back()
            && before + length == offset
        {
            self.free.remove(&before);
            offset = before;
            bytes += length;
        }
        if let Some(length) = self.free.remove(&(offset + bytes)) {
            bytes += length;
        }
        if offset + bytes == self.end {
            self.end = offset;
        } else {
            self.free.insert(offset, bytes);
        }
    }
}

/// The part of a [`TempSpace`] that one query uses.
#[derive(Debug)]
pub struct QuerySpace {
    space: Arc<TempSpace>,
    label: String,
    usage: Arc<Usage>,
    io: Arc<IoAccount>,
}

/// How much one query has in use.
#[derive(Debug, Default)]
struct Usage {
    used_bytes: AtomicU64,
    peak_bytes: AtomicU64,
}

impl QuerySpace {
    /// A contiguous extent of at least `bytes`.
    pub fn allocate(&self, bytes: usize) -> Result<Extent> {
        let bytes = (bytes.max(1) as u64).next_multiple_of(GRAIN_BYTES);
        let (file, number, offset) = self.space.allocate(bytes, &self.label)?;
        let used = self.usage.used_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.usage.peak_bytes.fetch_max(used, Ordering::Relaxed);
        let (extents, usage) = (Arc::clone(&self.space.extents), Arc::clone(&self.usage));
        Ok(Extent { extents, usage, file, number, offset, bytes })
    }

    /// The device that extents lie on.
    pub fn device(&self) -> &Device {
        &self.space.device
    }

    /// Counts this query's requests.
    pub fn io(&self) -> &Arc<IoAccount> {
        &self.io
    }

    /// What the space is used for.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Bytes in use now.
    pub fn used_bytes(&self) -> u64 {
        self.usage.used_bytes.load(Ordering::Relaxed)
    }

    /// The most bytes that were in use at once.
    pub fn peak_bytes(&self) -> u64 {
        self.usage.peak_bytes.load(Ordering::Relaxed)
    }
}

/// A contiguous piece of temporary space; freed when dropped.
///
/// Whoever drops it must not have writes to it in flight: the next owner may be writing there already. A
/// partition file therefore lets every write hold its extent.
#[derive(Debug)]
pub struct Extent {
    extents: Arc<Extents>,
    usage: Arc<Usage>,
    file: File,
    number: usize,
    offset: u64,
    bytes: u64,
}

impl Extent {
    /// The file that the extent is part of.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where it starts in that file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its length in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        self.usage.used_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.extents.free(self.number, self.offset, self.bytes);
    }
}
