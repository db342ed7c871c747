//! An open file: requests to it, its size and its durability.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backend::simulated::Inode;
use crate::batch::Batch;
use crate::buffer::{AlignedBuffer, BLOCK_BYTES, WriteBuffer};
use crate::counters::{FileClass, IoAccount};
use crate::device::Device;
use crate::drive::placement::FileKey;
use crate::error::{Error, Result};
use crate::request::Request;
use crate::timing::Timing;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    Read,
    ReadWrite,
}

/// What the backend needs to reach the contents.
pub(crate) enum Handle {
    Descriptor(OwnedFd),
    Simulated(Inode),
}

pub(crate) struct FileInner {
    pub(crate) handle: Handle,
    pub(crate) path: PathBuf,
    pub(crate) class: FileClass,
    pub(crate) direct: bool,
    /// Tells the file from others on a drive model; 0 without one.
    pub(crate) key: FileKey,
    pub(crate) device: Device,
}

/// An open file. Clones share the handle, which is closed with the last clone and the last request in flight.
#[derive(Clone)]
pub struct File {
    pub(crate) inner: Arc<FileInner>,
}

impl File {
    /// Submits requests as one unit.
    pub fn submit(&self, requests: Vec<Request>) -> Batch {
        self.submit_to(self.device().batch(None), requests)
    }

    /// Submits requests as one unit, counted for `account` too.
    pub fn submit_for(&self, requests: Vec<Request>, account: &Arc<IoAccount>) -> Batch {
        self.submit_to(self.device().batch(Some(account)), requests)
    }

    fn submit_to(&self, mut batch: Batch, requests: Vec<Request>) -> Batch {
        batch.submit(requests.into_iter().map(|request| (Arc::clone(&self.inner), request)));
        batch
    }

    /// Reads one range and waits for it. The fastest way to do one thing at a time; for more, submit batches.
    pub fn read_blocking(&self, offset: u64, buffer: AlignedBuffer) -> Result<AlignedBuffer> {
        let mut batch = self.device().batch(None);
        batch.run(self, Request::Read { offset, buffer });
        let completion = batch.next_blocking().transpose()?;
        // One read was submitted, so there is one completion with a buffer.
        Ok(completion
            .and_then(|(_, completion)| completion.into_buffer())
            .unwrap_or_else(|| self.device().buffer(0)))
    }

    /// Writes one range and waits for it. It is durable after the next [`File::sync`].
    pub fn write_blocking(&self, offset: u64, buffer: impl Into<WriteBuffer>) -> Result<()> {
        let mut batch = self.device().batch(None);
        batch.run(self, Request::write(offset, buffer));
        batch.wait().map(drop)
    }

    /// Reserves space for a range and extends the file to its end. Bytes never written read as zeros.
    pub fn allocate(&self, offset: u64, bytes: u64) -> Result<()> {
        self.device().inner.medium.allocate(&self.inner, offset, bytes)?;
        if let Some(timing) = self.timing() {
            timing.allocate(self.inner.key, offset, bytes);
        }
        Ok(())
    }

    /// Gives the space of a range back where the file system can; its contents are undefined afterwards.
    pub fn punch_hole(&self, offset: u64, bytes: u64) -> Result<()> {
        self.device().inner.medium.punch_hole(&self.inner, offset, bytes)?;
        if let Some(timing) = self.timing() {
            timing.release(self.inner.key, offset, bytes);
        }
        Ok(())
    }

    /// Cuts or extends (with zeros, without reserving space) the file.
    pub fn truncate(&self, bytes: u64) -> Result<()> {
        self.device().inner.medium.truncate(&self.inner, bytes)?;
        if let Some(timing) = self.timing() {
            let kept = bytes.next_multiple_of(BLOCK_BYTES as u64);
            timing.release(self.inner.key, kept, u64::MAX - kept);
        }
        Ok(())
    }

    fn timing(&self) -> Option<&Timing> {
        self.device().inner.timing.as_ref()
    }

    pub fn len(&self) -> Result<u64> {
        self.device().inner.medium.len(&self.inner)
    }

    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Makes every write that has been reported complete durable, and the length needed to read it. The file's name
    /// is durable only after [`Device::sync_directory`].
    pub fn sync(&self) -> Result<()> {
        self.submit_sync().wait().map(drop)
    }

    /// [`File::sync`] for async tasks.
    pub async fn sync_async(&self) -> Result<()> {
        self.submit_sync().wait_async().await.map(drop)
    }

    fn submit_sync(&self) -> Batch {
        let mut batch = self.device().batch(None);
        batch.submit_sync(self);
        batch
    }

    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    pub fn class(&self) -> FileClass {
        self.inner.class
    }

    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Whether transfers bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.inner.direct
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("path", &self.inner.path).field("direct", &self.inner.direct).finish()
    }
}

impl FileInner {
    pub(crate) fn error(
        &self,
        operation: &'static str,
        offset: u64,
        bytes: u64,
        source: std::io::Error,
    ) -> Error {
        match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Error::NoSpace { file: self.path.clone(), offset, bytes },
            Some(libc::EFBIG) => Error::FileTooLarge { file: self.path.clone() },
            _ => Error::Request { operation, file: self.path.clone(), offset, bytes, source },
        }
    }
}
