//! Which operator does a thread compute for, and for how long?
//!
//! Operators run inside each other: an operator that asks for a batch calls its input, on the same thread, and tasks of
//! an operator call its inputs on others. A [`Meter`] is charged with the processor time of a thread from
//! [`Meter::charge`] on, until another one is, or the first goes on:
//!
//! ```text
//!   join  ────┐              ┌──────┐   ┌────        own time: a line without
//!   filter    └────┐    ┌────┘      │   │            those below it
//!   scan           └────┘           └───┘
//! ```
//!
//! A [`MeterExec`] stands in front of every operator of a plan that is measured. Tasks are charged to the operator that
//! spawned them, if they are spawned [`inherited`].

use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{Stream, StreamExt as _};
use nandina_device::thread_processor_time;

/// Processor time of one operator, and time that its outputs were waited for, over all threads.
#[derive(Debug, Default)]
pub struct Meter {
    processor_nanos: AtomicU64,
    waited_nanos: AtomicU64,
}

/// Whom this thread computes for, and its processor time when it began to.
struct Charged {
    meter: Arc<Meter>,
    since: Duration,
}

thread_local! {
    static CURRENT: RefCell<Option<Charged>> = const { RefCell::new(None) };
}

/// Charges what this thread did since the last change to whom it did it for; from now on to `meter`. Returns the former.
fn switch(meter: Option<Arc<Meter>>) -> Option<Arc<Meter>> {
    let change = |current: &RefCell<Option<Charged>>| {
        let mut current = current.borrow_mut();
        if current.is_none() && meter.is_none() {
            return None;
        }
        let now = thread_processor_time();
        let next = meter.map(|meter| Charged { meter, since: now });
        let Charged { meter, since } = std::mem::replace(&mut *current, next)?;
        meter.processor_nanos.fetch_add(now.saturating_sub(since).as_nanos() as u64, Ordering::Relaxed);
        Some(meter)
    };
    // What a thread drops when it ends is charged to no operator.
    CURRENT.try_with(change).ok().flatten()
}

/// While it lives, the thread's time is charged to one meter. Must be dropped where it was made, innermost first.
#[must_use = "charging ends when it is dropped"]
struct Charging {
    outer: Option<Arc<Meter>>,
}

impl Drop for Charging {
    fn drop(&mut self) {
        switch(self.outer.take());
    }
}

impl Meter {
    fn charge(self: &Arc<Self>) -> Charging {
        Charging { outer: switch(Some(Arc::clone(self))) }
    }

    /// Time that processors computed for the operator alone.
    pub fn processor_time(&self) -> Duration {
        Duration::from_nanos(self.processor_nanos.load(Ordering::Relaxed))
    }

    /// Time from a request for a batch that was not there until it was, summed over the outputs.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited_nanos.load(Ordering::Relaxed))
    }
}

fn current() -> Option<Arc<Meter>> {
    CURRENT.with_borrow(|current| current.as_ref().map(|charged| Arc::clone(&charged.meter)))
}

/// A task that computes for the operator that this thread computes for now, wherever it will run.
pub fn inherited<F: Future>(task: F) -> impl Future<Output = F::Output> {
    let meter = current();
    let mut task = Box::pin(task);
    std::future::poll_fn(move |context| {
        let _charging = meter.as_ref().map(Meter::charge);
        task.as_mut().poll(context)
    })
}

/// The same for work on a thread of its own.
pub fn inherited_work<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let meter = current();
    move || {
        let _charging = meter.as_ref().map(Meter::charge);
        work()
    }
}

/// Measures an operator. Its metrics stay the operator's own.
#[derive(Debug)]
pub struct MeterExec {
    input: Arc<dyn ExecutionPlan>,
    meter: Arc<Meter>,
}

impl MeterExec {
    pub fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input, meter: Arc::default() }
    }

    /// The operator that is measured.
    pub fn operator(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    pub fn meter(&self) -> &Meter {
        &self.meter
    }
}

impl DisplayAs for MeterExec {
    fn fmt_as(&self, _: DisplayFormatType, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("MeterExec")
    }
}

impl ExecutionPlan for MeterExec {
    fn name(&self) -> &'static str {
        "MeterExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let input = Arc::clone(&children[0]);
        Ok(Arc::new(Self { input, meter: Arc::clone(&self.meter) }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let _charging = self.meter.charge();
        let input = self.input.execute(partition, context)?;
        Ok(Box::pin(MeteredStream {
            input: Some(input),
            schema: self.input.schema(),
            meter: Arc::clone(&self.meter),
            asked_at: None,
        }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        None
    }
}

struct MeteredStream {
    /// Taken to be dropped, which is work for the operator, too.
    input: Option<SendableRecordBatchStream>,
    schema: SchemaRef,
    meter: Arc<Meter>,
    /// When the batch was first asked for that is not there yet.
    asked_at: Option<Instant>,
}

impl Stream for MeteredStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = &mut *self;
        let Some(input) = &mut stream.input else { return Poll::Ready(None) };
        let charging = stream.meter.charge();
        let polled = input.poll_next_unpin(context);
        drop(charging);
        if polled.is_pending() {
            stream.asked_at.get_or_insert_with(Instant::now);
        }
        let batch = ready!(polled);
        if let Some(asked_at) = stream.asked_at.take() {
            let waited = asked_at.elapsed().as_nanos() as u64;
            stream.meter.waited_nanos.fetch_add(waited, Ordering::Relaxed);
        }
        Poll::Ready(batch)
    }
}

impl RecordBatchStream for MeteredStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

impl Drop for MeteredStream {
    fn drop(&mut self) {
        let _charging = self.meter.charge();
        self.input = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compute(time: Duration) {
        let started = thread_processor_time();
        let mut sum = 0u64;
        while thread_processor_time() - started < time {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(1));
        }
    }

    fn is_about(time: Duration, millis: u64) -> bool {
        (millis..millis + 5).contains(&(time.as_millis() as u64))
    }

    #[test]
    fn time_is_charged_to_the_innermost_meter_and_to_those_who_spawn() {
        let [outer, inner]: [Arc<Meter>; 2] = Default::default();
        let millis = Duration::from_millis;
        {
            let _outer = outer.charge();
            compute(millis(10));
            {
                let _inner = inner.charge();
                compute(millis(20));
            }
            let work = inherited_work(move || compute(millis(30)));
            let task = inherited(async move { compute(millis(40)) });
            std::thread::spawn(work).join().unwrap();
            std::thread::spawn(move || compute(millis(50))).join().unwrap();
            futures::executor::block_on(task);
        }
        compute(millis(60));
        assert!(is_about(inner.processor_time(), 20), "{:?}", inner.processor_time());
        assert!(is_about(outer.processor_time(), 10 + 30 + 40), "{:?}", outer.processor_time());
    }
}
