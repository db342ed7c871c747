//! Requests submitted as one unit, and the ways to wait for them.
//!
//! A batch is awaited as a whole ([`Batch::wait`], [`Batch::wait_async`]: the *Psync* of the parallel-synchronous
//! I/O literature) or piece by piece in order of completion ([`Batch::next_blocking`], [`futures::Stream`]).
//! It may also be kept open as a *window*: [`Batch::add`] submits further requests while earlier ones are in
//! flight, so that one waiter keeps the device at a constant depth. A window of small requests is best refilled one by
//! one as they end: refilling in groups costs up to 17 % of the throughput at depths 8 to 64, as the device runs dry
//! meanwhile (the program `device_bench`).
//!
//! Invariants
//! - Every request is reported exactly once, under the index it got at submission (counting on over `add`).
//! - Dropping a batch withdraws its requests that still wait for a slot at the device; those in flight finish by
//!   themselves with buffers they own, and their results are discarded.

use std::any::Any;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::stream::Stream;

use crate::buffer::{AlignedBuffer, WriteBuffer};
use crate::completions::{Completions, Readiness};
use crate::counters::IoAccount;
use crate::device::{Device, DeviceInner};
use crate::error::{Error, Result};
use crate::file::File;
use crate::medium::OpenFile;
use crate::operation::{Operation, Ticket};
use crate::request::{Completion, Request};

/// See the [module documentation](self).
#[must_use = "a dropped batch withdraws requests that have not started"]
pub struct Batch {
    completions: Arc<Completions>,
    device: Arc<DeviceInner>,
    account: Option<Arc<IoAccount>>,
    submitted: usize,
    /// In virtual time: the tasks that had been woken when it last waited.
    seen_woken: Option<u64>,
}

impl Device {
    /// An empty batch, to be filled with [`Batch::add`]. Its requests are counted for `account` too.
    pub fn batch(&self, account: Option<&Arc<IoAccount>>) -> Batch {
        Batch {
            completions: Arc::default(),
            device: Arc::clone(&self.inner),
            account: account.cloned(),
            submitted: 0,
            seen_woken: None,
        }
    }

    /// Submits requests to several files as one unit.
    pub fn submit_many(&self, requests: Vec<(File, Request)>, account: Option<&Arc<IoAccount>>) -> Batch {
        let mut batch = self.batch(account);
        batch.add(requests);
        batch
    }
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
        batch.submit(self.device(), requests.into_iter().map(|request| (Arc::clone(&self.inner), request)));
        batch
    }

    /// Reads one range and waits for it. The fastest way to do one thing at a time; for more, submit batches.
    pub fn read_blocking(&self, offset: u64, buffer: AlignedBuffer) -> Result<AlignedBuffer> {
        let mut batch = self.device().batch(None);
        batch.run(self, Request::Read { offset, buffer });
        let (_, completion) = batch.next_blocking().expect("one read was submitted")?;
        Ok(completion.into_buffer().expect("a read ends with its buffer"))
    }

    /// Writes one range and waits for it. It is durable after the next [`File::sync`].
    pub fn write_blocking(&self, offset: u64, buffer: impl Into<WriteBuffer>) -> Result<()> {
        let mut batch = self.device().batch(None);
        batch.run(self, Request::write(offset, buffer));
        batch.wait().map(drop)
    }

    /// Makes every write that has been reported complete durable, and the length needed to read it. The file's name
    /// is durable only after [`Device::sync_directory`].
    pub fn sync(&self) -> Result<()> {
        let mut batch = self.device().batch(None);
        if let Some(operation) = batch.prepare_sync(self).1 {
            self.device().inner.run(operation);
        }
        batch.wait().map(drop)
    }

    /// [`File::sync`] for async tasks.
    pub async fn sync_async(&self) -> Result<()> {
        self.submit_sync(None).wait_async().await.map(drop)
    }

    /// Begins a [`File::sync`], counted for `account` and as urgent as its requests.
    pub fn submit_sync(&self, account: Option<&Arc<IoAccount>>) -> Batch {
        let mut batch = self.device().batch(account);
        batch.add_sync(self);
        batch
    }
}

impl Batch {
    /// Submits further requests as one unit; returns their indices.
    ///
    /// A request that is not aligned, or whose file is another device's, is reported as an error under its index; the
    /// others proceed.
    pub fn add(&mut self, requests: Vec<(File, Request)>) -> Range<usize> {
        let first = self.expect(requests.len());
        let operations = (first..).zip(requests).filter_map(|(index, (file, request))| {
            self.prepare(index, file.device(), Arc::clone(&file.inner), request)
        });
        self.device.submit(operations.collect());
        first..self.submitted
    }

    fn submit(&mut self, device: &Device, requests: impl ExactSizeIterator<Item = (Arc<OpenFile>, Request)>) {
        let first = self.expect(requests.len());
        let operations = (first..)
            .zip(requests)
            .filter_map(|(index, (file, request))| self.prepare(index, device, file, request));
        self.device.submit(operations.collect());
    }

    /// Submits one request whose end this thread waits for next, executing it in this thread where that is possible.
    fn run(&mut self, file: &File, request: Request) {
        let index = self.expect(1);
        if let Some(operation) = self.prepare(index, file.device(), Arc::clone(&file.inner), request) {
            self.device.run(operation);
        }
    }

    /// Submits a [`File::sync`]; returns its index.
    pub fn add_sync(&mut self, file: &File) -> usize {
        let (index, operation) = self.prepare_sync(file);
        self.device.submit(operation.into_iter().collect());
        index
    }

    /// The index of a [`File::sync`], and the operation to execute, unless it has its result already.
    fn prepare_sync(&mut self, file: &File) -> (usize, Option<Box<Operation>>) {
        let index = self.expect(1);
        match self.check_device(file.device(), &file.inner) {
            Ok(()) => (index, Some(Operation::sync(Arc::clone(&file.inner), self.ticket(index)))),
            Err(error) => {
                self.device.deliver(&self.completions, index, Err(error));
                (index, None)
            }
        }
    }

    /// Counts requests that are to come; the index of the first.
    fn expect(&mut self, requests: usize) -> usize {
        let first = self.submitted;
        self.submitted += requests;
        self.completions.expect(requests);
        first
    }

    fn ticket(&self, index: usize) -> Ticket {
        let device = Arc::clone(&self.device) as Arc<dyn Any + Send + Sync>;
        Ticket::new(Arc::clone(&self.completions), index, self.account.clone(), device)
    }

    /// Slots and counters are the device's: it cannot accept operations that another device would have to end.
    fn check_device(&self, device: &Device, file: &OpenFile) -> Result<()> {
        if Arc::ptr_eq(&device.inner, &self.device) {
            Ok(())
        } else {
            Err(Error::OtherDevice { file: file.path.clone() })
        }
    }

    /// The operation to execute, unless the request has its result already.
    fn prepare(
        &self,
        index: usize,
        device: &Device,
        file: Arc<OpenFile>,
        request: Request,
    ) -> Option<Box<Operation>> {
        let operation =
            self.check_device(device, &file).and_then(|()| Operation::new(request, file, self.ticket(index)));
        let result = match operation {
            Ok(operation) if operation.is_empty() => Ok(operation.into_completion()),
            Ok(operation) => return Some(operation),
            Err(error) => Err(error),
        };
        self.device.deliver(&self.completions, index, result);
        None
    }

    /// Requests not yet taken out of the batch.
    pub fn len(&self) -> usize {
        self.completions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until nothing is in flight; results in request order, of the requests not taken piecewise before.
    /// The first failure in that order is returned, after all requests have ended.
    pub fn wait(self) -> Result<Vec<Completion>> {
        self.block_until_ready(true);
        self.collect_results()
    }

    /// [`Batch::wait`] for async tasks.
    pub async fn wait_async(mut self) -> Result<Vec<Completion>> {
        std::future::poll_fn(|context| self.poll_ready(context, true)).await;
        self.collect_results()
    }

    /// Blocks until the next request ends. `None` when nothing is left.
    pub fn next_blocking(&mut self) -> Option<Result<(usize, Completion)>> {
        self.block_until_ready(false);
        self.take_finished()
    }

    /// A request that has ended already, without waiting.
    pub fn try_next(&mut self) -> Option<Result<(usize, Completion)>> {
        if !self.completions.is_ready(false) {
            self.device.backend.reap();
        }
        self.take_finished()
    }

    fn take_finished(&mut self) -> Option<Result<(usize, Completion)>> {
        let (index, result) = self.completions.take_next()?;
        Some(result.map(|completion| (index, completion)))
    }

    fn block_until_ready(&self, whole: bool) {
        let backend = &self.device.backend;
        while !self.completions.is_ready(whole) {
            if backend.drive(&|| self.completions.is_ready(whole)) {
                continue;
            }
            backend.sleeper_added();
            self.completions.park(whole);
            backend.sleeper_gone();
        }
    }

    fn poll_ready(&mut self, context: &mut Context<'_>, whole: bool) -> Poll<()> {
        let backend = &self.device.backend;
        if !self.completions.is_ready(whole) {
            backend.reap();
        }
        if let Some(woken) = backend.woken()
            && !self.completions.is_ready(whole)
        {
            // Other tasks have their turn first: they may have requests to submit at this moment. When all of them
            // only wait, time goes on.
            if self.seen_woken == Some(woken) && !backend.drive(&|| false) {
                return self.sleep_until_ready(context, whole);
            }
            self.seen_woken = Some(woken);
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.seen_woken = None;
        self.sleep_until_ready(context, whole)
    }

    fn sleep_until_ready(&mut self, context: &mut Context<'_>, whole: bool) -> Poll<()> {
        match self.completions.poll(context, whole) {
            Readiness::Ready { was_asleep } => {
                if was_asleep {
                    self.device.backend.sleeper_gone();
                }
                Poll::Ready(())
            }
            Readiness::Asleep { is_new } => {
                if is_new {
                    self.device.backend.sleeper_added();
                }
                Poll::Pending
            }
        }
    }

    fn collect_results(&self) -> Result<Vec<Completion>> {
        let mut finished = self.completions.take_all();
        finished.make_contiguous().sort_unstable_by_key(|(index, _)| *index);
        finished.into_iter().map(|(_, result)| result).collect()
    }
}

impl Stream for Batch {
    type Item = Result<(usize, Completion)>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_ready(context, false).map(|()| self.take_finished())
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let (was_asleep, unfinished) = self.completions.abandon();
        if was_asleep {
            self.device.backend.sleeper_gone();
        }
        if unfinished {
            self.device.withdraw(&self.completions);
        }
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("submitted", &self.submitted).field("left", &self.len()).finish()
    }
}
