//! A medium that tells a drive model where files come to lie.

use std::io;
use std::path::Path;
use std::sync::Arc;

use nandina_device::medium::{FileKey, LockHandle, Medium, OpenFile, OpenMode, Opened};
use nandina_device::{BLOCK_BYTES, DeviceIdentity, Result};

use super::Timing;

pub(crate) struct TimedMedium<M> {
    below: M,
    timing: Arc<Timing>,
    identity: DeviceIdentity,
}

impl<M: Medium> TimedMedium<M> {
    /// In front of the medium `below`, on a drive that is called `identity`.
    pub(crate) fn new(below: M, timing: Arc<Timing>, identity: DeviceIdentity) -> Self {
        Self { below, timing, identity }
    }

    fn reserve(&self, file: FileKey, offset: u64, bytes: u64) {
        self.timing.state.lock().placement.reserve(file, offset, bytes);
    }

    fn release(&self, file: &OpenFile, offset: u64, bytes: u64) {
        self.timing.discard(|placement| placement.release(file.key(), offset, bytes));
    }
}

impl<M: Medium> Medium for TimedMedium<M> {
    fn root(&self) -> &Path {
        self.below.root()
    }

    fn identity(&self) -> DeviceIdentity {
        self.identity.clone()
    }

    fn is_simulated(&self) -> bool {
        self.below.is_simulated()
    }

    /// The page cache is no part of a drive that is only modelled.
    fn has_page_cache(&self) -> bool {
        false
    }

    fn tells_discards(&self) -> bool {
        self.timing.discard
    }

    fn create(&self, path: &Path, direct: bool) -> Result<Opened> {
        self.below.create(path, direct)
    }

    fn open(&self, path: &Path, mode: OpenMode, direct: bool) -> Result<Opened> {
        let opened = self.below.open(path, mode, direct)?;
        // What lay there before the model was put in front gets its place now. In memory, all files began here.
        if !self.below.is_simulated() {
            self.reserve(opened.key, 0, opened.bytes.next_multiple_of(BLOCK_BYTES as u64));
        }
        Ok(opened)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let key = self.below.key_of(path);
        self.below.remove(path)?;
        if let Some(key) = key {
            self.timing.discard(|placement| placement.remove(key));
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.below.rename(from, to)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.below.exists(path)
    }

    fn list(&self, directory: &Path) -> Result<Vec<String>> {
        self.below.list(directory)
    }

    fn sync_directory(&self, directory: &Path) -> Result<()> {
        self.below.sync_directory(directory)
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        self.below.create_directory(path)
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        self.below.remove_directory(path)
    }

    fn write_small(&self, path: &Path, contents: &[u8]) -> Result<()> {
        self.below.write_small(path, contents)
    }

    fn read_small(&self, path: &Path) -> Result<Vec<u8>> {
        self.below.read_small(path)
    }

    fn try_lock(&self, path: &Path) -> Result<Option<Box<dyn LockHandle>>> {
        self.below.try_lock(path)
    }

    fn free_bytes(&self, directory: &Path) -> Result<u64> {
        self.below.free_bytes(directory)
    }

    fn key_of(&self, path: &Path) -> Option<FileKey> {
        self.below.key_of(path)
    }

    fn len(&self, file: &OpenFile) -> io::Result<u64> {
        self.below.len(file)
    }

    fn allocate(&self, file: &OpenFile, offset: u64, bytes: u64) -> io::Result<()> {
        self.below.allocate(file, offset, bytes)?;
        self.reserve(file.key(), offset, bytes);
        Ok(())
    }

    fn punch_hole(&self, file: &OpenFile, offset: u64, bytes: u64) -> io::Result<()> {
        self.below.punch_hole(file, offset, bytes)?;
        self.release(file, offset, bytes);
        Ok(())
    }

    fn truncate(&self, file: &OpenFile, bytes: u64) -> io::Result<()> {
        self.below.truncate(file, bytes)?;
        let kept = bytes.next_multiple_of(BLOCK_BYTES as u64);
        self.release(file, kept, u64::MAX - kept);
        Ok(())
    }
}
