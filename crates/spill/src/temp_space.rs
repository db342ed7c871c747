//! Temporary space: extents in a few large files.
//!
//! ```text
//!  <folder>/nandina-temp-<pid>-<n>/          one per open space; `owner.lock` is locked while it lives
//!      owner.lock
//!      extents-0   │ used │ freed │ used │ used │ hole │ used │ reserved, never written │
//!      extents-1   …
//! ```
//!
//! Spilled data lives for seconds. Creating and removing a file for each partition would make the file
//! system's journal part of every query; here an extent is a range of a large file. Where its blocks come from, and
//! what becomes of them, are the policies of [`crate::space_policy`].
//!
//! Invariants
//! - Allocated extents do not overlap, and start and end on multiples of [`GRAIN_BYTES`].
//! - A folder whose lock is free has no living owner; opening a space beside it removes it.
//! - The folder goes when it can no longer be used, not when the last cancelled write has ended: a program that
//!   is being ended does not wait for those. They end in files without a name.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nandina_device::{AlignedBuffer, Device, DirectoryLock, File, FlowId, IoAccount, Priority};

use crate::compression::{Compression, Controller, Group, Outgoing};
use crate::error::{Result, SpillError};
use crate::extent_files::{ExtentFiles, Placed, Policy};
use crate::sealed_page::SealedPage;
use crate::space_policy::{Discard, Preallocation};

/// Extents are multiples of this, so that their neighbours never share a page of any size below it.
const GRAIN_BYTES: u64 = 64 << 10;
/// How long space must not have been wanted before deferred discards begin: longer than a join goes without an
/// extent while it writes, and than the pause between the statements of a script.
const DISCARD_AFTER: Duration = Duration::from_secs(1);

const FOLDER_PREFIX: &str = "nandina-temp-";
const LOCK_NAME: &str = "owner.lock";

/// Settings of a temporary space.
#[derive(Clone, Debug)]
pub struct TempOptions {
    /// Most bytes in use at once; `None`: what the disk has.
    pub quota_bytes: Option<u64>,
    pub preallocation: Preallocation,
    pub discard: Discard,
    /// How long space must not have been wanted before deferred discards begin.
    pub discard_after: Duration,
    pub compression: Compression,
    /// Threads that spill at once; no more are counted than there are processors.
    pub workers: usize,
}

impl Default for TempOptions {
    fn default() -> Self {
        Self {
            quota_bytes: None,
            preallocation: Preallocation::default(),
            discard: Discard::default(),
            discard_after: DISCARD_AFTER,
            compression: Compression::default(),
            workers: usize::MAX,
        }
    }
}

/// The temporary space of a session or database. Dropping it removes its folder.
#[derive(Debug)]
pub struct TempSpace {
    parent: Device,
    folder: String,
    device: Device,
    lock: Option<DirectoryLock>,
    quota_bytes: AtomicU64,
    extents: Arc<ExtentFiles>,
    compression: Controller,
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
            let TempOptions { quota_bytes, preallocation, discard, discard_after, .. } = options;
            let policy = Policy { preallocation, discard, discard_after };
            return Ok(Arc::new(Self {
                folder,
                extents: ExtentFiles::new(device.clone(), policy),
                compression: Controller::new(device.clone(), options.compression, options.workers),
                device,
                lock: Some(lock),
                quota_bytes: AtomicU64::new(quota_bytes.unwrap_or(u64::MAX)),
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
            spilled_page_bytes: AtomicU64::new(0),
            io: IoAccount::of_flow(flow, Priority::Scan),
        })
    }

    /// Bytes in use by all queries.
    pub fn used_bytes(&self) -> u64 {
        self.extents.used_bytes()
    }

    /// Unused bytes that have not been given back to the file system.
    pub fn kept_bytes(&self) -> u64 {
        self.extents.kept_bytes()
    }

    /// Changes the quota for allocations made from now on.
    pub fn set_quota_bytes(&self, quota_bytes: Option<u64>) {
        self.quota_bytes.store(quota_bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Changes the policies for what is allocated and freed from now on.
    pub fn set_policies(&self, preallocation: Preallocation, discard: Discard) {
        self.extents.set_policy(preallocation, discard);
    }

    /// Changes whether pages spilled from now on are compressed, and how many threads spill at once.
    pub fn set_compression(&self, compression: Compression, workers: usize) {
        self.compression.set(compression, workers);
    }

    /// The device on the folder that holds the files.
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn allocate(&self, bytes: u64, label: &str) -> Result<Placed> {
        let quota_bytes = self.quota_bytes.load(Ordering::Relaxed);
        if let Err(used_bytes) = self.extents.reserve(bytes, quota_bytes) {
            let label = label.to_owned();
            return Err(SpillError::QuotaExceeded { label, wanted_bytes: bytes, used_bytes, quota_bytes });
        }
        self.extents.place(bytes, quota_bytes).map_err(|error| {
            self.extents.unreserve(bytes);
            if error.is_no_space() {
                let folder = self.device.path().to_path_buf();
                return SpillError::DiskFull { label: label.to_owned(), folder, wanted_bytes: bytes };
            }
            SpillError::Io(error)
        })
    }
}

impl Drop for TempSpace {
    fn drop(&mut self) {
        self.extents.close();
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

/// The part of a [`TempSpace`] that one query uses.
#[derive(Debug)]
pub struct QuerySpace {
    space: Arc<TempSpace>,
    label: String,
    usage: Arc<Usage>,
    spilled_page_bytes: AtomicU64,
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
        let Placed { file, number, offset } = self.space.allocate(bytes, &self.label)?;
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

    /// Bytes of pages that have gone to the device, before they were compressed.
    pub fn spilled_page_bytes(&self) -> u64 {
        self.spilled_page_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn note_spilled(&self, page_bytes: usize) {
        self.spilled_page_bytes.fetch_add(page_bytes as u64, Ordering::Relaxed);
    }

    /// The page as it is to be written.
    pub(crate) fn outgoing(&self, page: SealedPage) -> Outgoing {
        match self.space.compression.pack(&page) {
            Some(packed) => Outgoing::Packed(packed),
            None => Outgoing::Plain(page),
        }
    }

    /// The next page of a group that has been read.
    pub(crate) fn unpack(&self, group: &mut Group) -> Result<Option<AlignedBuffer>> {
        self.space.compression.unpack(group)
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
/// Its owner must not drop it with writes to it in flight: the next owner may be writing there already. A
/// partition file therefore lets every write hold its extent.
#[derive(Debug)]
pub struct Extent {
    extents: Arc<ExtentFiles>,
    usage: Arc<Usage>,
    file: File,
    number: u64,
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
