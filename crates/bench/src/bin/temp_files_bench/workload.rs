//! What Grace and hybrid hash joins do to a device: partition both inputs, read the partitions back pair by pair, free
//! each pair.
//!
//! Sub-buffers fill in random order, as those of uniformly hashed rows do. When a ring is full, the full sub-buffers of
//! all rings are written together (N-Hash), one request per partition, while the next part of the input is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::executor::block_on;
use futures::future::join_all;
use nandina_bench::random::Random;
use nandina_device::{Batch, Device, File, FileClass, Request};
use nandina_spill::{Extent, TempSpace};

const SUB_BUFFER_BYTES: u64 = 16 << 10;
const RING_SUB_BUFFERS: u64 = 4;
const READ_BYTES: u64 = 256 << 10;
const READS_AT_ONCE: usize = 8;

/// Joins that run at the same time, each again and again.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    pub partitions: usize,
    pub joins_at_once: usize,
    pub joins_each: usize,
    /// Build side and probe side of one join together.
    pub join_bytes: u64,
}

/// How space for partitions is managed.
pub enum Space {
    /// As Nandina does it.
    Extents(Arc<TempSpace>),
    /// As PostgreSQL does it: a file for each partition of each side, removed when it has been read. With `fallocate`,
    /// as large as a partition is expected to be when it begins.
    FilePerPartition { device: Device, fallocate: bool },
}

/// What one join works on.
struct Join<'a> {
    space: &'a Space,
    device: &'a Device,
    input: File,
    input_at: u64,
    contents: Bytes,
    workload: Workload,
    /// Partitions whose build side stays in memory; with them, their probe rows need no space either.
    resident: usize,
    random: Random,
}

/// The bytes of a partition, in pieces of the same size except the last.
#[derive(Default)]
struct SpillFile {
    pieces: Vec<Piece>,
    bytes: u64,
}

/// Those of one side of a join.
struct Files {
    files: Vec<SpillFile>,
    expected_bytes: u64,
}

enum Piece {
    Extent(Extent),
    File { file: File, name: String, device: Device },
}

impl Space {
    fn device(&self) -> &Device {
        match self {
            Space::Extents(space) => space.device(),
            Space::FilePerPartition { device, .. } => device,
        }
    }

    /// Of at most `bytes`; `expected_bytes` of them are likely to be used.
    fn piece(&self, bytes: u64, expected_bytes: u64) -> Piece {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        match self {
            Space::Extents(space) => Piece::Extent(space.query("join").allocate(bytes as usize).unwrap()),
            Space::FilePerPartition { device, fallocate } => {
                let name = format!("partition-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
                let file = device.create(&name, FileClass::Temp).unwrap();
                if *fallocate {
                    file.allocate(0, expected_bytes).unwrap();
                }
                Piece::File { file, name, device: device.clone() }
            }
        }
    }
}

impl Piece {
    fn at(&self, offset: u64) -> (&File, u64) {
        match self {
            Piece::Extent(extent) => (extent.file(), extent.offset() + offset),
            Piece::File { file, .. } => (file, offset),
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Piece::File { name, device, .. } = self {
            device.remove(name).unwrap();
        }
    }
}

impl Workload {
    /// An extent is no more than a quarter of a partition's side, so that small ones do not take much more than they
    /// need.
    fn extent_bytes(&self) -> u64 {
        (self.join_bytes / self.partitions as u64 / 8).next_power_of_two().clamp(64 << 10, 1 << 20)
    }

    fn piece_bytes(&self, space: &Space) -> u64 {
        match space {
            Space::Extents(_) => self.extent_bytes(),
            Space::FilePerPartition { .. } => u64::MAX,
        }
    }

    /// Runs all joins. `input` is a file that is read for both inputs, from random places on.
    pub fn run(&self, space: &Space, input: &File, contents: &Bytes, seed: u64) {
        block_on(join_all((0..self.joins_at_once as u64).map(|at| async move {
            for number in 0..self.joins_each as u64 {
                let mut random = Random::new(seed ^ (at << 32) ^ (number << 40));
                let input_at =
                    random.below(input.len().unwrap() as usize / 2) as u64 / READ_BYTES * READ_BYTES;
                // Every other one is a hybrid hash join.
                let resident = if (at + number) % 2 == 0 { 0 } else { self.partitions / 4 };
                let (input, contents, device) = (input.clone(), contents.clone(), space.device());
                Join { space, device, input, input_at, contents, workload: *self, resident, random }
                    .run()
                    .await;
            }
        })));
    }
}

impl Join<'_> {
    async fn run(mut self) {
        let build = self.partition(self.workload.join_bytes / 3).await;
        let probe = self.partition(self.workload.join_bytes * 2 / 3).await;
        for (build, probe) in build.into_iter().zip(probe) {
            self.read(build).await;
            self.read(probe).await;
        }
    }

    async fn partition(&mut self, bytes: u64) -> Vec<SpillFile> {
        let partitions = self.workload.partitions;
        let expected_bytes = (bytes / partitions as u64).next_multiple_of(SUB_BUFFER_BYTES);
        let files = (0..partitions).map(|_| SpillFile::default()).collect();
        let mut files = Files { files, expected_bytes };
        let mut full = vec![0; partitions];
        let mut in_flight: Option<Batch> = None;
        for _ in 0..bytes / SUB_BUFFER_BYTES {
            let partition = self.random.below(partitions);
            if partition < self.resident {
                continue;
            }
            full[partition] += 1;
            if full[partition] == RING_SUB_BUFFERS {
                self.flush(&mut files, &mut full, &mut in_flight).await;
            }
        }
        self.flush(&mut files, &mut full, &mut in_flight).await;
        if let Some(batch) = in_flight {
            batch.wait_async().await.unwrap();
        }
        files.files
    }

    /// Writes what is full, and reads as much input, when the flush before has ended.
    async fn flush(&mut self, files: &mut Files, full: &mut [u64], in_flight: &mut Option<Batch>) {
        let mut requests = Vec::new();
        let mut flushed = 0;
        for (file, full) in files.files.iter_mut().zip(full) {
            let bytes = std::mem::take(full) * SUB_BUFFER_BYTES;
            flushed += bytes;
            self.append(file, bytes, files.expected_bytes, &mut requests);
        }
        for _ in 0..flushed.div_ceil(READ_BYTES) {
            let buffer = self.device.buffer(READ_BYTES as usize);
            self.input_at =
                (self.input_at + READ_BYTES) % (self.input.len().unwrap() / READ_BYTES * READ_BYTES);
            requests.push((self.input.clone(), Request::read(self.input_at, buffer)));
        }
        if let Some(batch) = in_flight.take() {
            batch.wait_async().await.unwrap();
        }
        *in_flight = Some(self.device.submit_many(requests, None));
    }

    fn append(
        &self,
        file: &mut SpillFile,
        mut bytes: u64,
        expected_bytes: u64,
        requests: &mut Vec<(File, Request)>,
    ) {
        let piece_bytes = self.workload.piece_bytes(self.space);
        while bytes > 0 {
            let at = file.bytes % piece_bytes;
            if at == 0 {
                file.pieces.push(self.space.piece(piece_bytes, expected_bytes));
            }
            let (to, offset) = file.pieces.last().unwrap().at(at);
            let written = bytes.min(piece_bytes - at);
            let contents = self.contents.slice(..written as usize);
            requests.push((to.clone(), Request::write(offset, contents)));
            file.bytes += written;
            bytes -= written;
        }
    }

    /// Reads a file from its start to its end, and frees it.
    async fn read(&self, file: SpillFile) {
        let mut left = file.bytes;
        let mut reads = Vec::new();
        for piece in &file.pieces {
            let end = left.min(self.workload.piece_bytes(self.space));
            for at in (0..end).step_by(READ_BYTES as usize) {
                let buffer = self.device.buffer(READ_BYTES.min(end - at) as usize);
                let (from, offset) = piece.at(at);
                reads.push((from.clone(), Request::read(offset, buffer)));
            }
            left -= end;
        }
        while !reads.is_empty() {
            let rest = reads.split_off(reads.len().min(READS_AT_ONCE));
            self.device.submit_many(reads, None).wait_async().await.unwrap();
            reads = rest;
        }
    }
}
