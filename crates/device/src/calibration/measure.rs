//! The experiments that calibration consists of, on one scratch file.
//!
//! The file is written before it is read: reads of blocks that are only reserved, or never written, are answered from a
//! drive's or a file system's map, at a speed that has nothing to do with the medium. Its name is removed as soon as it
//! is open, so that nothing is left behind whatever happens to the process.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::batch::Batch;
use crate::buffer::{AlignedBuffer, WriteBuffer};
use crate::counters::FileClass;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::file::File;
use crate::profile::{PIECE_BYTES, PIECES, ReadPoint, WritePoint};
use crate::random::SplitMix64;
use crate::request::{Completion, Request};

/// Size and number of the writes that fill the scratch file: large and deep enough for every device.
const FILL_BYTES: usize = 1 << 20;
const FILL_DEPTH: usize = 8;

/// A file to measure on.
pub(crate) struct Scratch {
    file: File,
    bytes: u64,
    random: SplitMix64,
    block: bytes::Bytes,
    pub(crate) bytes_written: u64,
}

/// When a measurement of one point has seen enough.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slice {
    pub time: Duration,
    pub least_requests: u64,
    pub most_bytes: u64,
}

impl Scratch {
    /// A new file of `bytes`, a power of two; `filled` is told about every window, with the bandwidth of writing it,
    /// and says whether to go on. If not, the file ends with the largest power of two that has been written.
    pub(crate) fn create(
        device: &Device,
        bytes: u64,
        window_bytes: u64,
        seed: u64,
        mut filled: impl FnMut(u64, f64) -> Result<bool>,
    ) -> Result<Self> {
        let name = format!(".nandina-calibration-{}", std::process::id());
        let created = match device.create(&name, FileClass::Other) {
            Err(error) if error.is_already_there() => {
                device.remove(&name)?;
                device.create(&name, FileClass::Other)
            }
            other => other,
        };
        let file = created?;
        device.remove(&name)?;
        file.allocate(0, bytes)?;
        let mut scratch =
            Self { file, bytes, random: SplitMix64::new(seed), block: noise(device, seed), bytes_written: 0 };
        let mut written = 0;
        while written < bytes {
            let window = window_bytes.min(bytes - written);
            let bandwidth = scratch.fill(written, window)?;
            written += window;
            if !filled(written, bandwidth)? {
                break;
            }
        }
        scratch.file.sync()?;
        scratch.bytes = 1 << written.max(1).ilog2();
        Ok(scratch)
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes a range in sequence; bytes per second.
    fn fill(&mut self, offset: u64, bytes: u64) -> Result<f64> {
        let device = self.file.device().clone();
        let started = device.now();
        let mut flying: VecDeque<Batch> = VecDeque::new();
        let mut at = offset;
        while at < offset + bytes || !flying.is_empty() {
            if at < offset + bytes && flying.len() < FILL_DEPTH {
                let length = (offset + bytes - at).min(FILL_BYTES as u64);
                flying.push_back(self.file.submit(vec![Request::write(at, self.content(length as usize))]));
                at += length;
            } else if let Some(batch) = flying.pop_front() {
                batch.wait()?;
            }
        }
        self.bytes_written += bytes;
        Ok(bytes as f64 / seconds(device.now() - started))
    }

    /// Microseconds of giving back a piece of the file between others that are kept, until the drive has acknowledged
    /// it. The file is full of holes afterwards.
    pub(crate) fn discard(&mut self) -> Result<f64> {
        let device = self.file.device().clone();
        let pieces = PIECES.min(self.bytes / (2 * PIECE_BYTES)).max(1);
        self.file.sync()?;
        let before = device.now();
        self.file.sync()?;
        let started = device.now();
        for piece in 0..pieces {
            self.file.punch_hole(2 * piece * PIECE_BYTES, PIECE_BYTES)?;
        }
        self.file.sync()?;
        let alone = started - before;
        Ok(seconds((device.now() - started).saturating_sub(alone)) * 1e6 / pieces as f64)
    }

    fn content(&self, bytes: usize) -> WriteBuffer {
        WriteBuffer::from(self.block.slice(..bytes.min(self.block.len())))
    }

    /// Microseconds per page: one worker and a ring of `depth` buffers (thesis, 3.5.5). It waits for the oldest
    /// request, reissues into its buffer, and goes on to the next one. The first requests are not counted: they find
    /// an arm that is elsewhere, an empty queue, or a limiter with something saved up.
    pub(crate) fn read(&mut self, point: ReadPoint, slice: Slice) -> Result<f64> {
        let device = self.file.device().clone();
        let mut walk = BandWalk::new(point, self.bytes, self.random.next_u64());
        let mut issue =
            |buffer: AlignedBuffer| self.file.submit(vec![Request::read(walk.next_offset(), buffer)]);
        let mut ring: VecDeque<Batch> =
            (0..point.depth).map(|_| issue(device.buffer(point.page_bytes as usize))).collect();
        let mut watch = slice.watch(&device, u64::from(point.depth), u64::from(point.page_bytes));
        while let Some(batch) = ring.pop_front() {
            let buffer = batch.wait()?.pop().and_then(Completion::into_buffer);
            if watch.saw(device.now(), 1) {
                break;
            }
            if let Some(buffer) = buffer {
                ring.push_back(issue(buffer));
            }
        }
        for batch in ring {
            batch.wait()?;
        }
        Ok(watch.micros_per_request())
    }

    /// The same with `depth` workers that wait for one read each, for comparison. On a device in virtual time they
    /// are tasks of one thread, else threads.
    pub(crate) fn read_by_workers(&mut self, point: ReadPoint, slice: Slice) -> Result<f64> {
        let device = self.file.device().clone();
        let seed = self.random.next_u64();
        let depth = u64::from(point.depth);
        let most = (slice.most_bytes / u64::from(point.page_bytes)).max(1);
        let each = slice.least_requests.max(4 * depth).min(most.max(depth)).div_ceil(depth);
        let started = device.now();
        // Workers take the places that one worker would, in turns.
        let walks = (0..depth).map(|worker| BandWalk::new(point, self.bytes, seed).every(depth, worker));
        let (file, time) = (&self.file, slice.time);
        let pages = if device.inner.backend.woken().is_some() {
            let workers = walks.map(|walk| read_alone_async(file, walk, time, each));
            let pages = crate::block_on(futures::future::try_join_all(workers))?;
            pages.into_iter().sum()
        } else {
            std::thread::scope(|scope| {
                let workers: Vec<_> =
                    walks.map(|walk| scope.spawn(move || read_alone(file, walk, time, each))).collect();
                let mut pages = 0;
                for worker in workers {
                    pages +=
                        worker.join().unwrap_or_else(|_| Err(Error::interrupted(file.device().path())))?;
                }
                Ok::<u64, Error>(pages)
            })?
        };
        Ok(seconds(device.now() - started) * 1e6 / pages as f64)
    }

    /// Bytes per second of writes at random places, `depth` submitted at once and awaited as a whole.
    pub(crate) fn write(&mut self, point: WritePoint, slice: Slice) -> Result<f64> {
        let device = self.file.device().clone();
        let places = (self.bytes / u64::from(point.write_bytes)).max(1);
        let mut watch = slice.watch(&device, 1, u64::from(point.write_bytes));
        loop {
            let mut requests = Vec::with_capacity(point.depth as usize);
            for _ in 0..point.depth {
                let offset = self.random.below(places) * u64::from(point.write_bytes);
                requests.push(Request::write(offset, self.content(point.write_bytes as usize)));
            }
            self.file.submit(requests).wait()?;
            self.bytes_written += u64::from(point.write_bytes) * u64::from(point.depth);
            if watch.saw(device.now(), u64::from(point.depth)) {
                return Ok(f64::from(point.write_bytes) / watch.micros_per_request() * 1e6);
            }
        }
    }
}

impl Slice {
    fn watch(&self, device: &Device, depth: u64, request_bytes: u64) -> Watch {
        let most = (self.most_bytes / request_bytes).max(1);
        Watch {
            time: self.time,
            warm_up: depth.max(self.least_requests / 4).min(most),
            least: self.least_requests.max(2 * depth).min(most),
            most,
            started: device.now(),
            counted: None,
            requests: 0,
            last: device.now(),
        }
    }
}

/// Counts requests from the end of the warm-up on.
struct Watch {
    time: Duration,
    /// Requests, and at least a quarter of the time, before counting begins.
    warm_up: u64,
    least: u64,
    most: u64,
    started: Instant,
    /// Since when requests are counted.
    counted: Option<Instant>,
    requests: u64,
    last: Instant,
}

impl Watch {
    /// More requests have ended. True when enough have.
    fn saw(&mut self, now: Instant, requests: u64) -> bool {
        self.requests += requests;
        self.last = now;
        match self.counted {
            None if self.requests >= self.most => {
                // So few that none can be spared.
                self.counted = Some(self.started);
                true
            }
            None => {
                if self.requests >= self.warm_up && now - self.started >= self.time / 4 {
                    self.counted = Some(now);
                    self.requests = 0;
                }
                false
            }
            Some(since) => {
                self.requests >= self.most || (self.requests >= self.least && now - since >= self.time)
            }
        }
    }

    fn micros_per_request(&self) -> f64 {
        let since = self.counted.unwrap_or(self.started);
        seconds(self.last - since) * 1e6 / self.requests.max(1) as f64
    }
}

fn read_alone(file: &File, mut walk: BandWalk, time: Duration, least: u64) -> Result<u64> {
    let device = file.device();
    let started = device.now();
    let mut buffer = device.buffer(walk.page_bytes as usize);
    let mut pages = 0;
    while pages < least || device.now() - started < time {
        buffer = file.read_blocking(walk.next_offset(), buffer)?;
        pages += 1;
    }
    Ok(pages)
}

async fn read_alone_async(file: &File, mut walk: BandWalk, time: Duration, least: u64) -> Result<u64> {
    let device = file.device();
    let started = device.now();
    let mut pages = 0;
    while pages < least || device.now() - started < time {
        let buffer = device.buffer(walk.page_bytes as usize);
        file.submit(vec![Request::read(walk.next_offset(), buffer)]).wait_async().await?;
        pages += 1;
    }
    Ok(pages)
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64().max(1e-9)
}

/// Incompressible bytes: some drives compress, and would measure their compressor.
fn noise(device: &Device, seed: u64) -> bytes::Bytes {
    let mut buffer = device.buffer(2 << 20);
    let mut random = SplitMix64::new(seed);
    for word in buffer.chunks_exact_mut(8) {
        word.copy_from_slice(&random.next_u64().to_ne_bytes());
    }
    buffer.freeze()
}

/// The places of random reads inside a band that moves over the file: every page of a band once, in an order without
/// one, then the next band. A band of one page is reading in sequence.
pub(crate) struct BandWalk {
    page_bytes: u64,
    band_pages: u64,
    bands: u64,
    first_band: u64,
    keys: [u64; 4],
    step: u64,
    count: u64,
}

impl BandWalk {
    pub(crate) fn new(point: ReadPoint, file_bytes: u64, seed: u64) -> Self {
        let page_bytes = u64::from(point.page_bytes);
        let file_pages = (file_bytes / page_bytes).max(1);
        // A power of two, for the permutation.
        let band_pages = 1 << point.band_pages.clamp(1, file_pages).ilog2();
        let bands = (file_pages / band_pages).max(1);
        let mut random = SplitMix64::new(seed);
        let first_band = random.below(bands);
        Self {
            page_bytes,
            band_pages,
            bands,
            first_band,
            keys: std::array::from_fn(|_| random.next_u64()),
            step: 1,
            count: 0,
        }
    }

    /// Only every `of`th place, beginning with number `first`.
    fn every(mut self, of: u64, first: u64) -> Self {
        self.step = of;
        self.count = first;
        self
    }

    pub(crate) fn next_offset(&mut self) -> u64 {
        let round = self.count / self.band_pages;
        let band = (self.first_band + round) % self.bands;
        let page = band * self.band_pages + self.permuted(self.count % self.band_pages, round);
        self.count += self.step;
        page * self.page_bytes
    }

    /// A permutation of the pages of a band, another one in every round. Each step is invertible: multiplication by
    /// an odd number, and the xor of a number with its own upper bits.
    fn permuted(&self, page: u64, round: u64) -> u64 {
        let mask = self.band_pages - 1;
        let half = (self.band_pages.ilog2() / 2).max(1);
        let mut mixed = page;
        for key in self.keys {
            let key = key ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed = mixed.wrapping_add(key >> 32) & mask;
            mixed = mixed.wrapping_mul(key | 1) & mask;
            mixed ^= mixed >> half;
        }
        mixed
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn walk(band_pages: u64, pages: usize) -> Vec<u64> {
        let point = ReadPoint { page_bytes: 4096, band_pages, depth: 1 };
        let mut walk = BandWalk::new(point, 1 << 22, 7);
        (0..pages).map(|_| walk.next_offset() / 4096).collect()
    }

    #[test]
    fn a_band_of_one_page_is_sequential() {
        let pages = walk(1, 1500);
        assert!(pages.windows(2).all(|pair| pair[1] == (pair[0] + 1) % 1024), "wraps at the end of the file");
    }

    #[test]
    fn every_page_of_a_band_is_read_once_before_the_next_band() {
        for band_pages in [2, 16, 256, 1024] {
            let pages = walk(band_pages, 1024);
            for band in pages.chunks(band_pages as usize) {
                let distinct: HashSet<u64> = band.iter().copied().collect();
                assert_eq!(distinct.len(), band.len());
                assert!(band.iter().all(|page| page / band_pages == band[0] / band_pages));
            }
        }
    }

    #[test]
    fn large_bands_have_no_order() {
        let pages = walk(1024, 1024);
        let mean_step: f64 =
            pages.windows(2).map(|pair| pair[0].abs_diff(pair[1]) as f64).sum::<f64>() / 1023.0;
        // A random permutation's mean step is a third of the range.
        assert!((250.0..430.0).contains(&mean_step), "{mean_step}");
    }
}
