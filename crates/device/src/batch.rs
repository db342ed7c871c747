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

use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::stream::Stream;
use parking_lot::{Condvar, Mutex};

use crate::counters::IoAccount;
use crate::device::DeviceInner;
use crate::error::{Error, Result};
use crate::file::{File, FileInner};
use crate::request::{Completion, Operation, Request};

#[derive(Default)]
pub(crate) struct BatchState {
    progress: Mutex<BatchProgress>,
    changed: Condvar,
}

#[derive(Default)]
struct BatchProgress {
    finished: VecDeque<(usize, Result<Completion>)>,
    unfinished: usize,
    waker: Option<Waker>,
    parked: bool,
    /// Who waits wants all results, not the next one.
    wants_whole: bool,
}

impl BatchState {
    pub(crate) fn deliver(&self, index: usize, result: Result<Completion>, device: &DeviceInner) {
        let mut progress = self.progress.lock();
        progress.finished.push_back((index, result));
        progress.unfinished -= 1;
        if progress.wants_whole && progress.unfinished > 0 {
            return;
        }
        let waker = progress.waker.take();
        let parked = progress.parked;
        drop(progress);
        if parked {
            self.changed.notify_all();
        }
        if let Some(waker) = waker {
            device.backend.sleeper_gone();
            waker.wake();
        }
    }

    fn is_ready(&self, whole: bool) -> bool {
        let progress = self.progress.lock();
        progress.unfinished == 0 || (!whole && !progress.finished.is_empty())
    }
}

/// See the [module documentation](self).
#[must_use = "a dropped batch withdraws requests that have not started"]
pub struct Batch {
    state: Arc<BatchState>,
    device: Arc<DeviceInner>,
    account: Option<Arc<IoAccount>>,
    submitted: usize,
    /// In virtual time: other tasks had their turn since the last request ended.
    gave_way: bool,
}

impl Batch {
    pub(crate) fn new(device: Arc<DeviceInner>, account: Option<Arc<IoAccount>>) -> Self {
        Self { state: Arc::default(), device, account, submitted: 0, gave_way: false }
    }

    /// Submits further requests as one unit; returns their indices.
    ///
    /// A request that is not aligned, or whose file is another device's, is reported as an error under its index; the
    /// others proceed.
    pub fn add(&mut self, requests: Vec<(File, Request)>) -> Range<usize> {
        self.submit(requests.into_iter().map(|(file, request)| (file.inner, request)))
    }

    pub(crate) fn submit(
        &mut self,
        requests: impl ExactSizeIterator<Item = (Arc<FileInner>, Request)>,
    ) -> Range<usize> {
        let first = self.submitted;
        self.submitted += requests.len();
        self.state.progress.lock().unfinished += requests.len();
        let operations =
            (first..).zip(requests).filter_map(|(index, (file, request))| self.prepare(index, file, request));
        self.device.submit(operations.collect());
        first..self.submitted
    }

    /// Submits one request whose end this thread waits for next, executing it in this thread where that is possible.
    pub(crate) fn run(&mut self, file: &File, request: Request) {
        let index = self.submitted;
        self.submitted += 1;
        self.state.progress.lock().unfinished += 1;
        if let Some(operation) = self.prepare(index, Arc::clone(&file.inner), request) {
            self.device.run(operation);
        }
    }

    /// The operation to execute, unless the request has its result already.
    fn prepare(&self, index: usize, file: Arc<FileInner>, request: Request) -> Option<Box<Operation>> {
        // Seats and counters are the device's: it cannot take in what another one would have to end.
        let operation = if Arc::ptr_eq(&file.device.inner, &self.device) {
            Operation::new(request, file, Arc::clone(&self.state), index, self.account.clone())
        } else {
            Err(Error::OtherDevice { file: file.path.clone() })
        };
        let result = match operation {
            Ok(operation) if operation.is_empty() => Ok(operation.into_completion()),
            Ok(operation) => return Some(operation),
            Err(error) => Err(error),
        };
        self.state.deliver(index, result, &self.device);
        None
    }

    pub(crate) fn submit_sync(&mut self, file: &File) {
        self.submitted += 1;
        self.state.progress.lock().unfinished += 1;
        let operation =
            Operation::sync(Arc::clone(&file.inner), Arc::clone(&self.state), self.account.clone());
        self.device.submit(vec![operation]);
    }

    /// Requests not yet taken out of the batch.
    pub fn len(&self) -> usize {
        let progress = self.state.progress.lock();
        progress.unfinished + progress.finished.len()
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
        if !self.state.is_ready(false) {
            self.device.backend.reap();
        }
        self.take_finished()
    }

    fn take_finished(&mut self) -> Option<Result<(usize, Completion)>> {
        let (index, result) = self.state.progress.lock().finished.pop_front()?;
        Some(result.map(|completion| (index, completion)))
    }

    fn block_until_ready(&self, whole: bool) {
        while !self.state.is_ready(whole) {
            if self.device.drive(&|| self.state.is_ready(whole)) {
                continue;
            }
            self.device.backend.sleeper_added();
            let mut progress = self.state.progress.lock();
            progress.wants_whole = whole;
            while progress.unfinished > 0 && (whole || progress.finished.is_empty()) {
                progress.parked = true;
                self.state.changed.wait(&mut progress);
            }
            progress.parked = false;
            drop(progress);
            self.device.backend.sleeper_gone();
        }
    }

    fn poll_ready(&mut self, context: &mut Context<'_>, whole: bool) -> Poll<()> {
        if !self.state.is_ready(whole) {
            self.device.backend.reap();
        }
        if self.device.waits_in_virtual_time() && !self.state.is_ready(whole) {
            // The first time round, other tasks have their turn: they may have requests to submit at this moment. When
            // all of them only wait, time goes on.
            if std::mem::replace(&mut self.gave_way, true) && !self.device.drive(&|| false) {
                return self.sleep_until_ready(context, whole);
            }
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.gave_way = false;
        self.sleep_until_ready(context, whole)
    }

    fn sleep_until_ready(&mut self, context: &mut Context<'_>, whole: bool) -> Poll<()> {
        let mut progress = self.state.progress.lock();
        if progress.unfinished == 0 || (!whole && !progress.finished.is_empty()) {
            let was_asleep = progress.waker.take().is_some();
            drop(progress);
            if was_asleep {
                self.device.backend.sleeper_gone();
            }
            return Poll::Ready(());
        }
        progress.wants_whole = whole;
        if let Some(waker) = &mut progress.waker {
            waker.clone_from(context.waker());
        } else {
            progress.waker = Some(context.waker().clone());
            drop(progress);
            self.device.backend.sleeper_added();
        }
        Poll::Pending
    }

    fn collect_results(&self) -> Result<Vec<Completion>> {
        let mut finished = std::mem::take(&mut self.state.progress.lock().finished);
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
        let mut progress = self.state.progress.lock();
        let was_asleep = progress.waker.take().is_some();
        let unfinished = progress.unfinished > 0;
        drop(progress);
        if was_asleep {
            self.device.backend.sleeper_gone();
        }
        if unfinished {
            self.device.withdraw(&self.state);
        }
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("submitted", &self.submitted).field("left", &self.len()).finish()
    }
}
