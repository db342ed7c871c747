//! An open file: its size, and its place on the medium.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::counters::FileClass;
use crate::device::Device;
use crate::error::Result;
use crate::medium::{OpenFile, OpenMode, Opened};

/// An open file. Clones share the handle, which is closed with the last clone and the last request in flight.
#[derive(Clone)]
pub struct File {
    pub(crate) inner: Arc<OpenFile>,
    device: Device,
}

impl Device {
    /// Creates a file. Fails if the name is taken.
    pub fn create(&self, name: &str, class: FileClass) -> Result<File> {
        let path = self.resolve(name)?;
        let opened = self.inner.medium.create(&path, self.inner.direct)?;
        Ok(self.file(path, opened, class))
    }

    pub fn open_file(&self, name: &str, class: FileClass, mode: OpenMode) -> Result<File> {
        let path = self.resolve(name)?;
        let opened = self.inner.medium.open(&path, mode, self.inner.direct)?;
        Ok(self.file(path, opened, class))
    }

    fn file(&self, path: PathBuf, opened: Opened, class: FileClass) -> File {
        let Opened { handle, key, direct, .. } = opened;
        if self.inner.direct && !direct && !self.inner.noticed_buffered.swap(true, Ordering::Relaxed) {
            log::warn!(
                "the file system of {} has no direct I/O; reading and writing through the page cache",
                path.display()
            );
        }
        File { inner: Arc::new(OpenFile { handle, key, path, class, direct }), device: self.clone() }
    }
}

impl File {
    /// Reserves space for a range and extends the file to its end. Bytes never written read as zeros.
    pub fn allocate(&self, offset: u64, bytes: u64) -> Result<()> {
        let done = self.device.inner.medium.allocate(&self.inner, offset, bytes);
        done.map_err(|source| self.inner.error("allocation", offset, bytes, source))
    }

    /// Gives the space of a range back where the file system can; its contents are undefined afterwards.
    pub fn punch_hole(&self, offset: u64, bytes: u64) -> Result<()> {
        let done = self.device.inner.medium.punch_hole(&self.inner, offset, bytes);
        done.map_err(|source| self.inner.error("hole punching", offset, bytes, source))
    }

    /// Cuts or extends (with zeros, without reserving space) the file.
    pub fn truncate(&self, bytes: u64) -> Result<()> {
        let done = self.device.inner.medium.truncate(&self.inner, bytes);
        done.map_err(|source| self.inner.error("truncation", bytes, 0, source))
    }

    pub fn len(&self) -> Result<u64> {
        let bytes = self.device.inner.medium.len(&self.inner);
        bytes.map_err(|source| self.inner.error("asking for the length", 0, 0, source))
    }

    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    pub fn class(&self) -> FileClass {
        self.inner.class
    }

    pub fn device(&self) -> &Device {
        &self.device
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
