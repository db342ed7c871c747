//! Who may have how many requests at the device?
//!
//! Requests beyond what a device can serve at once do not make it faster: they wait inside it, in an order that nobody
//! chose, and every small read waits behind all of them. The governor keeps no more at the device than is useful, and
//! chooses who comes next. (The thesis on QDTT leaves this as future work, 5.2: four queries that each use the useful
//! depth of 32 put 128 requests on a device that serves 32.)
//!
//! ```text
//!   requests of flow A ──┐  start tags                       seats: Σ cost ≤ 1
//!   requests of flow B ──┼─► 3 5 7 9 …  smallest first ─────► device ──► ended ──► next
//!   requests of flow C ──┘
//! ```
//!
//! *How many.* A request of `s` bytes costs `1 / (f · d(s))` of the device, where `d(s)` is the depth that the profile
//! found useful for requests of that size and `f` a small factor. Requests at the device cost at most 1 together; one
//! is always let through. Large and small requests, reads and writes thereby share one budget.
//!
//! *Who.* Start-time fair queueing over a device of some depth, SFQ(D): Jin, Chase, Kaur, *Interposed proportional
//! sharing for a storage service utility*, SIGMETRICS 2004. The requests of one query are a flow. A request's start
//! tag is the larger of the virtual time and the tag at which the flow's previous request finishes, which is its own
//! start plus cost ÷ weight. Virtual time is the start tag of the request that was let through last. So flows that
//! always have requests waiting share the device in proportion to their weights, a flow that has rarely any comes next
//! when it has one, and no flow waits for ever.
//!
//! Invariants
//! - A seated request needs nothing further to end, and its end seats the next one: no deadlock.
//! - Requests of one flow are seated in the order of submission.
//! - Without a measured profile every request costs the same, and as many are let through as the device was opened for.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use crate::batch::BatchState;
use crate::calibration::{DeviceProfile, ProfileKind};
use crate::counters::{FlowId, Traffic};
use crate::request::Operation;

/// How urgent requests are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Priority {
    /// Somebody waits for this very request: point reads, commits.
    Point,
    /// Part of a longer piece of work.
    #[default]
    Scan,
    /// Nobody waits.
    Background,
}

impl Priority {
    /// Shares of a busy device. Point reads hardly queue at all: their tag is nearly always the virtual time.
    fn weight(self) -> u64 {
        match self {
            Priority::Point => 64,
            Priority::Scan => 8,
            Priority::Background => 1,
        }
    }
}

/// What the whole device costs; costs are parts of it.
const WHOLE: u64 = 1 << 20;
/// Requests of a size at the device per request that is useful. One more than useful hides the time between the end of
/// one and the start of the next.
const FACTOR: u64 = 2;
/// Never fewer of a size than this: what a measurement found useless may be useful beside other work.
const LEAST_DEPTH: u64 = 4;
/// Sizes from 4 KiB to 2 MiB, by powers of two.
const SIZES: usize = 10;

/// From so many on, flows that are owed nothing are looked for and forgotten.
const MANY_FLOWS: usize = 256;

/// Costs of requests by size.
#[derive(Debug, Clone)]
struct Costs {
    read: [u64; SIZES],
    write: [u64; SIZES],
}

impl Costs {
    fn uniform(max_depth: usize) -> Self {
        let cost = WHOLE / max_depth.max(1) as u64;
        Self { read: [cost; SIZES], write: [cost; SIZES] }
    }

    fn of(profile: &DeviceProfile, max_depth: usize) -> Self {
        if profile.kind == ProfileKind::Assumed {
            return Self::uniform(max_depth);
        }
        let cost =
            |depth: u32| WHOLE / (u64::from(depth) * FACTOR).clamp(LEAST_DEPTH, max_depth.max(1) as u64);
        let bytes = |size: usize| 4096u64 << size;
        Self {
            read: std::array::from_fn(|size| cost(profile.reads.full_depth(bytes(size)))),
            write: std::array::from_fn(|size| cost(profile.writes.useful_depth(bytes(size)))),
        }
    }

    fn cost(&self, traffic: Traffic, bytes: u64) -> u64 {
        let size = (bytes.div_ceil(4096).max(1).next_power_of_two().ilog2() as usize).min(SIZES - 1);
        let costs = if traffic == Traffic::Read { &self.read } else { &self.write };
        costs.get(size).copied().unwrap_or(WHOLE)
    }
}

/// What an operation holds while it is at the device.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seat {
    cost: u64,
    flow: FlowId,
}

/// See the [module documentation](self).
pub(crate) struct Governor {
    max_depth: usize,
    /// Measurements under way, which must see the device and not the governor.
    paused: usize,
    /// Whether anything but `max_depth` bounds the requests, and anything but their order chooses the next one.
    governs: bool,
    /// In force, and by the profile.
    costs: Costs,
    profiled: Costs,
    seated: usize,
    seated_cost: u64,
    waiting: BinaryHeap<Reverse<Waiting>>,
    virtual_time: u64,
    flows: HashMap<FlowId, Flow>,
    sequence: u64,
    /// The backend knows that operations wait.
    pub(crate) watched: bool,
}

#[derive(Debug, Default)]
struct Flow {
    /// Tag at which its last request finishes.
    finish: u64,
    /// Requests seated or waiting.
    requests: usize,
}

struct Waiting {
    start: u64,
    sequence: u64,
    operation: Box<Operation>,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.start, self.sequence).cmp(&(other.start, other.sequence))
    }
}

impl Governor {
    pub(crate) fn new(max_depth: usize, governs: bool, profile: &DeviceProfile) -> Self {
        let mut governor = Self {
            max_depth,
            paused: 0,
            governs,
            costs: Costs::uniform(max_depth),
            profiled: Costs::uniform(max_depth),
            seated: 0,
            seated_cost: 0,
            waiting: BinaryHeap::new(),
            virtual_time: 0,
            flows: HashMap::new(),
            sequence: 0,
            watched: false,
        };
        governor.set_profile(profile);
        governor
    }

    pub(crate) fn set_profile(&mut self, profile: &DeviceProfile) {
        if self.governs {
            self.profiled = Costs::of(profile, self.max_depth);
        }
        self.costs = if self.paused == 0 { self.profiled.clone() } else { Costs::uniform(self.max_depth) };
    }

    /// Lets as many requests through as the device was opened for, until [`Self::resume`].
    pub(crate) fn pause(&mut self) {
        self.paused += 1;
        self.costs = Costs::uniform(self.max_depth);
    }

    pub(crate) fn resume(&mut self) {
        self.paused -= 1;
        if self.paused == 0 {
            self.costs = self.profiled.clone();
        }
    }

    /// Takes operations that want to the device; returns those that may go now.
    pub(crate) fn enter(&mut self, operations: Vec<Box<Operation>>) -> Vec<Box<Operation>> {
        if self.flows.len() > MANY_FLOWS {
            self.flows.retain(|_, flow| flow.requests > 0 || flow.finish > self.virtual_time);
        }
        for mut operation in operations {
            let cost = self.costs.cost(operation.traffic(), operation.total_bytes);
            let (flow, priority) = match &operation.account {
                Some(account) => (account.flow, account.priority),
                None => (FlowId::default(), Priority::default()),
            };
            operation.seat = Seat { cost, flow };
            let known = self.flows.entry(flow).or_default();
            known.requests += 1;
            let start = if self.governs { self.virtual_time.max(known.finish) } else { 0 };
            known.finish = start + cost * 64 / priority.weight();
            self.sequence += 1;
            self.waiting.push(Reverse(Waiting { start, sequence: self.sequence, operation }));
        }
        self.next()
    }

    /// Gives seats back; returns the operations that get them.
    pub(crate) fn leave(&mut self, seats: impl IntoIterator<Item = Seat>) -> Vec<Box<Operation>> {
        for seat in seats {
            self.seated -= 1;
            self.seated_cost -= seat.cost;
            self.end(seat.flow);
        }
        self.next()
    }

    /// A request of a flow is over.
    fn end(&mut self, flow: FlowId) {
        let virtual_time = self.virtual_time;
        if let Some(known) = self.flows.get_mut(&flow) {
            known.requests -= 1;
            if known.requests == 0 && known.finish <= virtual_time {
                self.flows.remove(&flow);
            }
        }
        if self.seated == 0 && self.waiting.is_empty() {
            // Nobody is owed anything by an idle device.
            self.flows.clear();
            self.virtual_time = 0;
        }
    }

    fn next(&mut self) -> Vec<Box<Operation>> {
        let mut seated = Vec::new();
        while let Some(Reverse(first)) = self.waiting.peek() {
            let cost = first.operation.seat.cost;
            let fits = self.seated == 0 || self.seated_cost + cost <= WHOLE;
            if !fits || self.seated >= self.max_depth {
                break;
            }
            let Some(Reverse(Waiting { start, operation, .. })) = self.waiting.pop() else { break };
            self.virtual_time = self.virtual_time.max(start);
            self.seated += 1;
            self.seated_cost += cost;
            seated.push(operation);
        }
        seated
    }

    /// Takes back the operations of an abandoned batch that have not started.
    pub(crate) fn withdraw(&mut self, batch: &Arc<BatchState>) -> Vec<Box<Operation>> {
        let all = std::mem::take(&mut self.waiting).into_vec();
        let (withdrawn, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|Reverse(waiting)| Arc::ptr_eq(&waiting.operation.batch, batch));
        self.waiting = others.into();
        let mut operations = Vec::with_capacity(withdrawn.len());
        for Reverse(Waiting { operation, .. }) in withdrawn {
            self.end(operation.seat.flow);
            operations.push(operation);
        }
        operations
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Reads of a size that one more flow, beside those that are busy now, may expect to have at the device.
    pub(crate) fn depth(&self, flow: FlowId, bytes: u64) -> usize {
        let whole = (WHOLE / self.costs.cost(Traffic::Read, bytes)).max(1) as usize;
        let others = self.flows.iter().filter(|(known, state)| **known != flow && state.requests > 0).count();
        if self.governs { whole.div_ceil(others + 1) } else { whole }
    }
}
