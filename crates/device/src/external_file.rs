//! Files that others wrote, such as Parquet files: of any length, read in any ranges, often read twice.
//!
//! ```text
//!   range   ├── in the page cache? ──── yes ──► copied from there
//!           └── no ──► whole blocks, directly, all ranges as one batch
//!                      the part block at the end of the file ──► through the page cache
//! ```
//!
//! A scan of a file larger than memory gains nothing from the page cache: every page costs an allocation, a copy
//! and the eviction of another one, which halves the bandwidth of a fast disk. A file that is in the cache already,
//! because it is small or was just written, is better read from there.

use std::fs;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::batch::Batch;
use crate::buffer::{AlignedBuffer, BLOCK_BYTES};
use crate::counters::{FileClass, IoAccount};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::file::File;
use crate::medium::OpenMode;
use crate::request::{Completion, Request};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A file that this process only reads, shared by its readings. See the [module documentation](self).
#[derive(Debug)]
pub struct ExternalFile {
    direct: File,
    cached: fs::File,
    path: PathBuf,
    bytes: u64,
}

/// A read that has begun: requests for what the page cache does not have are in flight.
#[must_use = "a dropped reading withdraws requests that have not started"]
pub struct Reading {
    file: Arc<ExternalFile>,
    parts: Vec<Part>,
    batch: Batch,
    /// Of every request, its place and the bytes that are needed from there.
    needed: Vec<(u64, usize)>,
}

/// Where the bytes of one range are going to be.
enum Part {
    /// In the page cache, from where they are copied when they are asked for.
    Cached { offset: u64, len: usize },
    /// The buffer of this request of the batch, from this position on.
    Requested { request: usize, skip: usize, len: usize },
}

impl ExternalFile {
    /// Opens a file below the directory of `device`.
    pub fn open(device: &Device, path: &Path) -> Result<Arc<Self>> {
        let name = path.strip_prefix(device.path()).ok().and_then(Path::to_str);
        let name = name.ok_or_else(|| Error::InvalidName { name: path.display().to_string() })?;
        let direct = device.open_file(name, FileClass::Other, OpenMode::Read)?;
        let fail = |source| Error::path("open", path, source);
        let cached = fs::File::open(path).map_err(fail)?;
        let bytes = cached.metadata().map_err(fail)?.len();
        without_read_ahead(&cached);
        Ok(Arc::new(Self { direct, cached, path: path.to_path_buf(), bytes }))
    }

    /// Length of the file when it was opened, in bytes.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Whether the file was empty when it was opened.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The bytes of every range.
    pub async fn read(self: &Arc<Self>, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.begin(ranges, None)?.finish().await
    }

    /// Begins to read every range, all as one batch, and returns at once. Traffic is counted for `account` too.
    pub fn begin(
        self: &Arc<Self>,
        ranges: &[Range<u64>],
        account: Option<&Arc<IoAccount>>,
    ) -> Result<Reading> {
        let mut parts = Vec::with_capacity(ranges.len());
        let mut requests = Vec::new();
        let mut needed = Vec::new();
        for range in ranges {
            parts.push(self.plan(range, &mut requests, &mut needed)?);
        }
        let requests = requests.into_iter().map(|request| (self.direct.clone(), request)).collect();
        let batch = self.direct.device().submit_many(requests, account);
        Ok(Reading { file: Arc::clone(self), parts, batch, needed })
    }

    /// Leaves a range to the page cache, or asks for its blocks.
    fn plan(
        &self,
        range: &Range<u64>,
        requests: &mut Vec<Request>,
        needed: &mut Vec<(u64, usize)>,
    ) -> Result<Part> {
        let len = range.end.saturating_sub(range.start) as usize;
        if range.end > self.bytes {
            return Err(Error::PastEnd {
                file: self.path.clone(),
                offset: range.start,
                wanted_bytes: len as u64,
                found_bytes: self.bytes.saturating_sub(range.start),
            });
        }
        // The page cache is no part of a drive that is only modelled.
        if self.direct.device().inner.medium.has_page_cache() && is_cached(&self.cached, range) {
            return Ok(Part::Cached { offset: range.start, len });
        }
        let start = range.start / BLOCK * BLOCK;
        let whole_blocks = range.end.next_multiple_of(BLOCK).min(self.bytes / BLOCK * BLOCK);
        let bytes = (range.end - start) as usize;
        // Room for the tail; the request covers the whole blocks.
        let mut buffer = self.direct.device().buffer(bytes.next_multiple_of(BLOCK_BYTES));
        buffer.truncate(whole_blocks.saturating_sub(start) as usize);
        requests.push(Request::read(start, buffer));
        needed.push((start, bytes));
        Ok(Part::Requested { request: requests.len() - 1, skip: (range.start - start) as usize, len })
    }

    /// Adds what lies behind the file's last whole block.
    fn with_tail(&self, mut buffer: AlignedBuffer, offset: u64, needed: usize) -> Result<AlignedBuffer> {
        let have = buffer.len();
        if have < needed {
            assert!(buffer.resize(needed), "the buffer was made with room for the tail");
            self.read_through_cache(&mut buffer[have..], offset + have as u64)?;
        }
        Ok(buffer)
    }

    fn bytes_of(&self, part: Part, buffers: &[Bytes]) -> Result<Bytes> {
        match part {
            Part::Cached { offset, len } => {
                let mut buffer = self.direct.device().buffer(len);
                self.read_through_cache(&mut buffer, offset)?;
                Ok(buffer.freeze())
            }
            Part::Requested { request, skip, len } => Ok(buffers[request].slice(skip..skip + len)),
        }
    }

    fn read_through_cache(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.cached.read_exact_at(buffer, offset).map_err(|source| Error::path("read", &self.path, source))
    }
}

impl Reading {
    /// Whether the device has anything to do for it.
    pub fn is_in_flight(&self) -> bool {
        !self.needed.is_empty()
    }

    /// The bytes of every range, in the order in which they were asked for.
    pub async fn finish(self) -> Result<Vec<Bytes>> {
        let Self { file, parts, batch, needed } = self;
        let mut buffers: Vec<Bytes> = Vec::with_capacity(needed.len());
        let completions = batch.wait_async().await?.into_iter().filter_map(Completion::into_buffer);
        let wanted = needed.len();
        for (buffer, (offset, bytes)) in completions.zip(needed) {
            buffers.push(file.with_tail(buffer, offset, bytes)?.freeze());
        }
        assert_eq!(buffers.len(), wanted, "every read that succeeded has a buffer");
        parts.into_iter().map(|part| file.bytes_of(part, &buffers)).collect()
    }
}

/// Turns the kernel's read-ahead off for a descriptor. Reads of cached ranges would start it, the ranges behind them would
/// look cached then, and be read this way, too.
pub fn without_read_ahead(file: &fs::File) {
    #[cfg(target_os = "linux")]
    // SAFETY: a descriptor that is open. It is advice: what the kernel answers changes nothing.
    unsafe {
        libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// Whether all of a range is in the page cache.
///
/// Just trying would not do: even a read that must not wait starts reading ahead when it misses, and that fills the
/// cache with data that is then read a second time.
#[cfg(target_os = "linux")]
fn is_cached(file: &fs::File, range: &Range<u64>) -> bool {
    /// Not in libc yet; the same on all architectures but Alpha.
    const SYS_CACHESTAT: libc::c_long = 451;
    #[repr(C)]
    struct CachestatRange {
        offset: u64,
        len: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct Cachestat {
        cached: u64,
        dirty: u64,
        writeback: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    // To the kernel a length of zero means up to the end.
    if range.is_empty() {
        return true;
    }
    let asked = CachestatRange { offset: range.start, len: range.end - range.start };
    let mut found = Cachestat::default();
    // SAFETY: two structures of the layout that the kernel documents, in local variables. A kernel before 6.5 says
    // that it does not know the call.
    let known = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const asked, &raw mut found, 0 as libc::c_uint)
    };
    let pages = range.end.div_ceil(BLOCK) - range.start / BLOCK;
    known == 0 && found.cached >= pages
}

#[cfg(not(target_os = "linux"))]
fn is_cached(_file: &fs::File, range: &Range<u64>) -> bool {
    range.is_empty()
}
