//! The write-ahead log: what has been changed, in order, on the device before anybody is told that it will last.
//!
//! ```text
//!   append ─► [records waiting] ── one group at a time ──► blocks ── write, sync ──► log files
//!   append ─►        ▲                                                  │
//!   until_durable ───┴──────────── all whose records were in it ◄───────┘
//! ```
//!
//! Records are bytes that mean nothing here. While a group is being written, those that are appended wait for the next one:
//! the more commits there are at once, the more of them share a sync (*group commit*: DeWitt et al., *Implementation
//! Techniques for Main Memory Database Systems*, SIGMOD 1984, section 5.2). No thread is needed for it, and none holds a
//! lock while the device works: a thread that waits for a group writes it itself, and each task that waits for one polls its write
//! and its sync.
//!
//! A record's address, its LSN (log sequence number), is the place of its first byte in the log, which has no end; the files
//! that it is in come and go. Each group begins a block, so that no block that is durable is ever written again: what is on the
//! device stays as it is, whatever happens to the next write.
//!
//! | file | subject |
//! |---|---|
//! | `block` | what is written: the format |
//! | `files` | files with a part of the log each, made ready ahead and used again |
//! | `recovery` | reading a log from a place on, and finding its end |
//!
//! Invariants
//! - Of two records, the one that was appended first has the lower LSN, and is there whenever the other one is.
//! - One group is written at a time, and is found whole or not at all.
//! - Once a write or a sync has failed, nothing is durable any more that was not before: what the device has is not known.

mod block;
mod files;
mod recovery;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use nandina_device::{AlignedBuffer, Device, Error as DeviceError, File, Request, block_on};
use parking_lot::Mutex;

use self::block::{BLOCK_BYTES, Header, PAYLOAD_BYTES, address};
pub use self::files::LogFiles;
use self::files::is_file_size;
use self::recovery::{LogEnd, blocks_of, read_all};
use crate::error::{Error, Result};

/// A record begins with its length.
const LENGTH_BYTES: usize = size_of::<u32>();
/// The longest record. Pages and their images are shorter; what is longer is written as several.
pub const MOST_RECORD_BYTES: usize = 1 << 20;

/// The address of a record: it grows with every record, and is never used again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

/// How a log is kept.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Bytes of a file.
    pub file_bytes: u64,
    /// Bytes of records that may wait before [`Log::throttle`] does.
    pub waiting_bytes: usize,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { file_bytes: 16 << 20, waiting_bytes: 1 << 20 }
    }
}

/// Hands over the records from `start` on of a log that is not being written: `start` and `id` as for [`Log::open`]. Nothing is
/// changed.
pub fn read_only(
    device: Device,
    id: u64,
    start: Lsn,
    take: impl FnMut(Lsn, &[u8]) -> Result<()>,
) -> Result<()> {
    let files = LogFiles::open_to_read(device)?;
    match files.end() {
        0 if start == Lsn::default() => Ok(()),
        0 => Err(files.damaged(start.0, "no file of the log is there")),
        _ => read_all(&files, id, start, take).map(drop),
    }
}

/// See the [module documentation](self). Clones share everything.
#[derive(Clone)]
pub struct Log {
    shared: Arc<Shared>,
}

struct Shared {
    id: u64,
    options: LogOptions,
    device: Device,
    files: Mutex<LogFiles>,
    state: Mutex<State>,
    waiting: Arc<Waiting>,
}

struct State {
    /// Records that are not being written yet.
    records: Vec<u8>,
    /// Where the group that they will be begins.
    base: u64,
    /// The address of the last record, if one has been appended.
    last: u64,
    /// Up to where there are files.
    ready: u64,
    durable: u64,
    /// The checksum of the last block.
    chain: u32,
    writing: Option<Writing>,
    /// Threads that wait while another one writes, by the record that each waits for. They are taken out when they are woken.
    threads: Vec<(u64, Thread)>,
    failed: Option<Error>,
}

/// The write of a group.
enum Writing {
    /// A thread makes blocks of it, writes it, or is about to tell of its end.
    Begun,
    Running(Pin<Box<dyn Future<Output = Result<LogEnd, DeviceError>> + Send>>),
}

/// Tasks that wait for a group, and threads that wait for one that a task has begun.
#[derive(Default)]
struct Waiting(Mutex<Vec<Waker>>);

impl Waiting {
    fn add(&self, waker: &Waker) {
        let mut wakers = self.0.lock();
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }

    fn wake_all(&self) {
        let wakers = std::mem::take(&mut *self.0.lock());
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }
}

impl Log {
    /// Opens the log in the directory of `device`, or begins one, and hands the records over that are there from `start` on:
    /// the address of a record, or [`Log::next`] of another time.
    ///
    /// `id` tells this database's log from all others. What is behind the last whole group is written over.
    pub fn open(
        device: Device,
        id: u64,
        options: LogOptions,
        start: Lsn,
        take: impl FnMut(Lsn, &[u8]) -> Result<()>,
    ) -> Result<Self> {
        assert!(is_file_size(options.file_bytes), "a log file has at least sixteen whole blocks");
        let mut files = LogFiles::open(device.clone(), options.file_bytes)?;
        if files.end() == 0 && start > Lsn::default() {
            return Err(files.damaged(start.0, "no file of the log is there"));
        }
        let end = read_all(&files, id, start, take)?;
        files.sync(start.0, end.lsn)?;
        files.tidy(start.0, id)?;
        files.make_ready(end.lsn, end.lsn + 1)?;
        let state = State {
            records: Vec::new(),
            base: end.lsn,
            last: end.lsn,
            ready: files.end(),
            durable: end.lsn,
            chain: end.chain,
            writing: None,
            threads: Vec::new(),
            failed: None,
        };
        let (files, state, waiting) = (Mutex::new(files), Mutex::new(state), Arc::default());
        Ok(Self { shared: Arc::new(Shared { id, options, device, files, state, waiting }) })
    }

    /// A log that takes no records, and says why.
    pub fn closed(device: Device, id: u64, base: Lsn, why: Error) -> Result<Self> {
        let files = LogFiles::open_to_read(device.clone())?;
        let state = State {
            records: Vec::new(),
            base: base.0,
            last: base.0,
            ready: base.0,
            durable: base.0,
            chain: 0,
            writing: None,
            threads: Vec::new(),
            failed: Some(why),
        };
        let (files, state, waiting) = (Mutex::new(files), Mutex::new(state), Arc::default());
        let options = LogOptions::default();
        Ok(Self { shared: Arc::new(Shared { id, options, device, files, state, waiting }) })
    }

    /// Hands the durable records from `start` on over, as [`Log::open`] does.
    pub fn read(&self, start: Lsn, take: impl FnMut(Lsn, &[u8]) -> Result<()>) -> Result<()> {
        let files = self.shared.files.lock().clone();
        read_all(&files, self.shared.id, start, take).map(drop)
    }

    /// Copies everything from `start` on that is durable now. Nothing behind `start` is released meanwhile.
    pub fn copy(&self, start: Lsn, to: &Device) -> Result<()> {
        let end = self.durable();
        let files = self.shared.files.lock().clone();
        files.copy(start.0, end.0, to)
    }

    /// What to report of a record that means nothing.
    pub fn damaged(&self, lsn: Lsn, reason: &'static str) -> Error {
        self.shared.files.lock().damaged(lsn.0, reason)
    }

    /// Waits until everything that has been appended is on the device.
    pub fn wait_until_all_durable(&self) -> Result<()> {
        let end = self.end();
        if end > self.durable() { self.wait_until_durable(Lsn(end.0 - 1)) } else { Ok(()) }
    }

    /// Adds a record, which is durable when [`Log::until_durable`] has said so; its address.
    pub fn append(&self, record: &[u8]) -> Result<Lsn> {
        if record.len() > MOST_RECORD_BYTES {
            return Err(Error::RecordTooLong { bytes: record.len(), most_bytes: MOST_RECORD_BYTES });
        }
        let mut state = self.shared.state.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        let at = state.records.len();
        let behind = at + LENGTH_BYTES + record.len();
        let end = state.base + (blocks_of(behind) * BLOCK_BYTES) as u64;
        if end > state.ready {
            // A file that is used again takes no time; a new one is rare.
            let mut files = self.shared.files.lock();
            files.make_ready(state.base, end)?;
            state.ready = files.end();
        }
        state.records.extend_from_slice(&(record.len() as u32).to_le_bytes());
        state.records.extend_from_slice(record);
        state.last = address(state.base, at);
        Ok(Lsn(state.last))
    }

    /// No record that is appended from now on has a lower address. Reading may start there, once [`Log::end`] is durable.
    pub fn next(&self) -> Lsn {
        let state = self.shared.state.lock();
        let behind = state.records.len();
        Lsn(match (behind, behind % PAYLOAD_BYTES) {
            (0, _) => state.base,
            // The next one begins a block, of this group or of another one: of the two, reading could not tell.
            (_, 0) => state.last,
            _ => address(state.base, behind),
        })
    }

    /// Behind everything that has been appended. The next record may still come before it, into the same block.
    pub fn end(&self) -> Lsn {
        let state = self.shared.state.lock();
        Lsn(state.base + (blocks_of(state.records.len()) * BLOCK_BYTES) as u64)
    }

    /// All before it is on the device.
    pub fn durable(&self) -> Lsn {
        Lsn(self.shared.state.lock().durable)
    }

    /// Waits until the record at `lsn`, and all before it, are on the device. It may be dropped at any time.
    pub async fn until_durable(&self, lsn: Lsn) -> Result<()> {
        std::future::poll_fn(|context| self.shared.poll_durable(lsn.0, context)).await
    }

    /// [`Log::until_durable`], blocking the thread. Where no group is being written, this thread writes the next one: nobody has to be
    /// woken between its write, its sync and the end.
    pub fn wait_until_durable(&self, lsn: Lsn) -> Result<()> {
        let shared = &self.shared;
        loop {
            let mut state = shared.state.lock();
            if let Some(is_durable) = state.is_durable(lsn.0) {
                return is_durable;
            }
            match state.writing {
                None => {
                    let group = state.begin(shared.id, lsn.0);
                    drop(state);
                    let unwinding = Unwinding(shared);
                    let written = shared.write_blocking(group);
                    std::mem::forget(unwinding);
                    shared.written(written);
                }
                Some(Writing::Begun) => {
                    let this = thread::current();
                    state.threads.push((lsn.0, this.clone()));
                    while state.threads.iter().any(|(_, thread)| thread.id() == this.id()) {
                        drop(state);
                        thread::park();
                        state = shared.state.lock();
                    }
                }
                Some(Writing::Running(_)) => {
                    drop(state);
                    block_on(std::future::poll_fn(|context| shared.poll_group(lsn.0, true, context)));
                }
            }
        }
    }

    /// Waits until no more records than [`LogOptions::waiting_bytes`] wait to be written.
    pub async fn throttle(&self) -> Result<()> {
        let last = {
            let state = self.shared.state.lock();
            (state.records.len() > self.shared.options.waiting_bytes)
                .then(|| address(state.base, state.records.len() - 1))
        };
        match last {
            Some(last) => self.until_durable(Lsn(last)).await,
            None => Ok(()),
        }
    }

    /// No record before `lsn` is read any more. Files that have none behind it are used again.
    pub fn release_before(&self, lsn: Lsn) -> Result<()> {
        let end = {
            let state = self.shared.state.lock();
            assert!(lsn.0 <= state.durable, "records are needed until what they change is on the device");
            state.base
        };
        let mut files = self.shared.files.lock();
        files.release_before(lsn.0, end)?;
        let ready = files.end();
        drop(files);
        let mut state = self.shared.state.lock();
        state.ready = state.ready.max(ready);
        Ok(())
    }
}

impl Shared {
    fn poll_durable(&self, lsn: u64, context: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            let mut state = self.state.lock();
            if let Some(is_durable) = state.is_durable(lsn) {
                return Poll::Ready(is_durable);
            }
            if state.writing.is_none() {
                let group = state.begin(self.id, lsn);
                drop(state);
                let writing = self.write(group);
                let mut state = self.state.lock();
                state.writing = Some(Writing::Running(writing));
                // From now on, all who wait see to it: this task may be dropped.
                let threads = std::mem::take(&mut state.threads);
                drop(state);
                threads.into_iter().for_each(|(_, thread)| thread.unpark());
            } else {
                drop(state);
                std::task::ready!(self.poll_group(lsn, false, context));
            }
        }
    }

    /// Goes on with the group that is being written; ready when none is, or the record at `lsn` is durable. A thread waits for a
    /// group that another thread writes in [`State::threads`].
    fn poll_group(&self, lsn: u64, is_thread: bool, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.is_durable(lsn).is_some() {
            return Poll::Ready(());
        }
        match &mut state.writing {
            None => Poll::Ready(()),
            Some(Writing::Begun) if is_thread => Poll::Ready(()),
            Some(Writing::Begun) => {
                self.waiting.add(context.waker());
                Poll::Pending
            }
            Some(Writing::Running(group)) => {
                self.waiting.add(context.waker());
                // When the device has ended, all are woken: any of them can go on with it.
                let waker = Waker::from(Arc::clone(&self.waiting));
                let written = std::task::ready!(group.as_mut().poll(&mut Context::from_waker(&waker)));
                state.writing = Some(Writing::Begun);
                drop(state);
                self.written(written);
                Poll::Ready(())
            }
        }
    }

    /// A group is durable, or what the device has of it is not known.
    fn written(&self, written: Result<LogEnd, DeviceError>) {
        let mut state = self.state.lock();
        state.writing = None;
        match written {
            Ok(end) => (state.durable, state.chain) = (end.lsn, end.chain),
            Err(source) => state.failed = Some(self.files.lock().failed_error(source)),
        }
        let threads = state.threads_to_wake();
        drop(state);
        threads.iter().for_each(Thread::unpark);
        self.waiting.wake_all();
    }

    /// Writes a group, in this thread.
    fn write_blocking(&self, group: Group) -> Result<LogEnd, DeviceError> {
        let (blocks, end) = group.blocks(&self.device);
        let writes = self.files.lock().writes(group.first.lsn, blocks);
        for (file, offset, blocks) in &writes {
            file.write_blocking(*offset, blocks.clone())?;
        }
        writes.iter().try_for_each(|(file, ..)| file.sync())?;
        Ok(end)
    }

    /// Makes blocks of a group and begins to write them.
    fn write(&self, group: Group) -> Pin<Box<dyn Future<Output = Result<LogEnd, DeviceError>> + Send>> {
        let (blocks, end) = group.blocks(&self.device);
        let writes = self.files.lock().writes(group.first.lsn, blocks);
        let files: Vec<File> = writes.iter().map(|(file, ..)| file.clone()).collect();
        let requests =
            writes.into_iter().map(|(file, offset, blocks)| (file, Request::write(offset, blocks)));
        let writes = self.device.submit_many(requests.collect(), None);
        Box::pin(async move {
            writes.wait_async().await?;
            for file in files {
                file.sync_async().await?;
            }
            Ok(end)
        })
    }
}

/// Ends the log where the thread that writes a group panics: the others would wait for it for ever.
struct Unwinding<'s>(&'s Shared);

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        let source = std::io::Error::other("the thread that wrote it panicked");
        let file = self.0.device.path().to_path_buf();
        self.0.written(Err(DeviceError::Request { operation: "write", file, offset: 0, bytes: 0, source }));
    }
}

impl Drop for Shared {
    /// A write in flight must not reach the device after the log has been opened again.
    fn drop(&mut self) {
        if let Some(Writing::Running(group)) = self.state.get_mut().writing.take()
            && let Err(error) = block_on(group)
        {
            log::warn!("records that nobody waited for were not written: {error}");
        }
    }
}

impl State {
    /// Whether the record at `lsn` is durable; an error if it never will be, and `None` if it is not yet.
    fn is_durable(&self, lsn: u64) -> Option<Result<()>> {
        match &self.failed {
            _ if self.durable > lsn => Some(Ok(())),
            Some(error) => Some(Err(error.clone())),
            None => None,
        }
    }

    /// Of the threads that wait, those whose records are durable, and one more, which writes the next group: the others have nothing
    /// to do until that is written.
    fn threads_to_wake(&mut self) -> Vec<Thread> {
        let (durable, is_over) = (self.durable, self.failed.is_some());
        let mut has_writer = false;
        let woken = self.threads.extract_if(.., |(lsn, _)| {
            is_over || *lsn < durable || !std::mem::replace(&mut has_writer, true)
        });
        woken.map(|(_, thread)| thread).collect()
    }

    /// Takes the records that wait, one of which is wanted.
    fn begin(&mut self, log_id: u64, lsn: u64) -> Group {
        let blocks = blocks_of(self.records.len());
        let end = self.base + (blocks * BLOCK_BYTES) as u64;
        assert!(lsn < end, "only records that have been appended are waited for");
        let records = std::mem::take(&mut self.records);
        let first = Header {
            log_id,
            lsn: self.base,
            durable: self.durable,
            chain: self.chain,
            left: blocks.saturating_sub(1) as u32,
        };
        self.base = end;
        self.writing = Some(Writing::Begun);
        Group { records, first }
    }
}

/// Records that are written together.
struct Group {
    records: Vec<u8>,
    /// Of its first block.
    first: Header,
}

impl Group {
    fn blocks(&self, device: &Device) -> (AlignedBuffer, LogEnd) {
        let mut buffer = device.buffer(blocks_of(self.records.len()) * BLOCK_BYTES);
        let mut header = self.first;
        let (blocks, _) = buffer.as_chunks_mut::<BLOCK_BYTES>();
        for (block, records) in blocks.iter_mut().zip(self.records.chunks(PAYLOAD_BYTES)) {
            header.chain = block::write(block, &header, records);
            header.lsn += BLOCK_BYTES as u64;
            header.left = header.left.saturating_sub(1);
        }
        (buffer, LogEnd { lsn: header.lsn, chain: header.chain })
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.shared.state.lock();
        f.debug_struct("Log")
            .field("end", &state.base)
            .field("durable", &state.durable)
            .finish_non_exhaustive()
    }
}
