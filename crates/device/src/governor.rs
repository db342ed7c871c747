//! Who may have how many requests at the device?
//!
//! Requests beyond what a device can serve at once do not make it faster: they wait inside it, in an order outside our
//! control, and every small read waits behind all of them. The governor keeps no more at the device than is useful, and
//! chooses the next request. (The thesis on QDTT leaves this as future work, 5.2: four queries that each use the useful
//! depth of 32 put 128 requests on a device that serves 32.)
//!
//! ```text
//!   flow A  ▢▢▢▢▢  start tag 3 ──┐                           slots: Σ cost ≤ 1
//!   flow B  ▢▢     start tag 5 ──┼─► smallest tag first ─────► device ──► ended ──► next
//!   flow C  ▢▢▢    start tag 7 ──┘
//! ```
//!
//! *How many.* A request of `s` bytes costs `1 / (f · d(s))` of the device, where `d(s)` is the depth that the profile
//! found useful for requests of that size and `f` a small factor. Requests at the device cost at most 1 together; one
//! is always let through, whatever it costs. Large and small requests, reads and writes thereby share one budget.
//!
//! *Who.* Start-time fair queueing over a device of some depth, SFQ(D): Jin, Chase, Kaur, *Interposed proportional
//! sharing for a storage service utility*, SIGMETRICS 2004. The requests of one query are a flow, first in, first out.
//! A request's start tag is that of the flow's previous request plus cost ÷ weight, or the virtual time if the flow had
//! none waiting and that is larger. The smallest tag comes next; of equal ones the more urgent, then the older. Virtual
//! time is the start tag of the request that was let through last. So flows that always have requests waiting share the
//! device in proportion to their weights, and a flow that has rarely any comes next when it has one.
//!
//! *Point reads.* A single request waits for those already inside the device, whatever is admitted next. Therefore, as
//! long as some flow does point reads, all others together get no more than is useful without the factor; on a device
//! with an arm, which serves more requests the more it may choose from but keeps some of them waiting for very long, no
//! more than a handful.
//!
//! *No starvation.* In SFQ every new flow starts at the virtual time, which stands still as long as there is
//! one: queries that come, read once and go, more of them than there are slots, would keep all others waiting for ever.
//! Therefore virtual time also advances by the work done: every admitted request adds cost ÷ weight of all flows that
//! are busy, the rate at which each of them is served in the ideal (fluid) sharing. It stays behind that by the largest
//! step of a scan, so that it is the start tags alone that count where flows stay.
//!
//! *What to ask for.* A flow is granted the depth that it would have if every flow used its share by weight, and none
//! more than it had outstanding lately: weighted max-min fairness. Shares of flows that ask for little go to the
//! others. *Lately*, because requests end in bursts, and the flow that answers first would have the places of all. A
//! quarter and one more are granted than there are slots: only when a request waits is a slot taken again at once, and
//! only then is there anything to choose.
//!
//! Invariants
//! - An admitted request needs nothing further to end, and its end admits the next one: no deadlock.
//! - Requests of one flow are admitted in the order of submission.
//! - After every change, the request that has the next turn does not fit.
//! - A request that is withdrawn costs its flow nothing: only admitted ones move tags.
//! - Without a measured profile, or with one that was disturbed, every request costs the same, and as many are let through as the device was opened for.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::completions::Completions;
use crate::counters::Traffic;
use crate::flow::{FlowId, IoSlot, Priority};
use crate::operation::Operation;
use crate::profile::{DeviceProfile, ProfileKind};

/// Shares of a busy device. Point reads hardly queue at all: their tag is nearly always the virtual time.
fn weight(priority: Priority) -> u64 {
    match priority {
        Priority::Point => FULL_WEIGHT,
        Priority::Scan => FULL_WEIGHT / 8,
        Priority::Background => FULL_WEIGHT / 64,
    }
}

/// Tags count cost ÷ weight in units of which a flow of this weight uses one per cost.
const FULL_WEIGHT: u64 = 64;

/// What the whole device costs; costs are parts of it.
const WHOLE: u64 = 1 << 20;
/// Requests of a size at the device per request that is useful. One more than useful hides the time between the end of
/// one and the start of the next. The drive models need no more than 1; on a virtual NVMe disk whose calibration finds
/// 32 useful, 64 give a tenth more (`docs/benchmarks/device.md`, `docs/benchmarks/governor.md`).
const FACTOR: u64 = 2;
/// Never fewer of a size than this: what a measurement found useless may be useful beside other work.
const LEAST_DEPTH: u64 = 4;
/// An arm that may choose the nearest of many requests serves more of them. Calibration does not see that: it waits for
/// the oldest, which has to wait longest then. As many as drives of the kind take, 32, give 2.2 times the requests per
/// second of 4, and 1.2 times those of 16 (`docs/benchmarks/governor.md`).
const ARM_DEPTH: u64 = 32;

/// Sizes from 4 KiB to 2 MiB, by powers of two.
const SIZES: usize = 10;

/// What a flow makes use of is forgotten over so many ends of its requests. Less would let others take the places of
/// those that have just ended, before their flow has had time to answer.
const MEMORY_REQUESTS: u64 = 64;
/// For the same reason a flow without requests counts on until the device has been filled so often since its last one.
const MEMORY_ROUNDS: u64 = 2;
/// Or until the device has rested for so long: a flow that takes longer to answer does not make use of it.
const MEMORY_AT_REST: Duration = Duration::from_millis(10);

/// From so many on, flows that are owed nothing are looked for and forgotten.
const MANY_FLOWS: usize = 32;

/// A profile whose repeated measurements lay further apart was made on a busy machine. Depths look too small then, and
/// requests that are kept back for nothing cost more than a queue that is too long.
const TRUSTED_SPREAD: f64 = 0.25;

/// Costs of requests by size.
#[derive(Debug, Clone)]
struct Costs {
    read: [u64; SIZES],
    write: [u64; SIZES],
    /// What all but point reads may cost together while a flow does those.
    beside_points: u64,
}

impl Costs {
    fn uniform(max_depth: usize) -> Self {
        let cost = WHOLE / max_depth.max(1) as u64;
        Self { read: [cost; SIZES], write: [cost; SIZES], beside_points: WHOLE }
    }

    fn of(profile: &DeviceProfile, max_depth: usize) -> Self {
        if profile.kind == ProfileKind::Assumed || profile.noise.median_spread > TRUSTED_SPREAD {
            return Self::uniform(max_depth);
        }
        // The device may have been opened for less than the least depth.
        let most = max_depth.max(1) as u64;
        let has_arm = profile.reads.has_arm();
        let least = if has_arm { ARM_DEPTH } else { LEAST_DEPTH };
        let cost = |depth: u32| WHOLE / (u64::from(depth) * FACTOR).max(least).min(most);
        let bytes = |size: usize| 4096u64 << size;
        Self {
            read: std::array::from_fn(|size| cost(profile.reads.full_depth(bytes(size)))),
            write: std::array::from_fn(|size| cost(profile.writes.useful_depth(bytes(size)))),
            beside_points: if has_arm { WHOLE * LEAST_DEPTH / ARM_DEPTH } else { WHOLE / FACTOR },
        }
    }

    fn cost(&self, traffic: Traffic, bytes: u64) -> u64 {
        let size = (bytes.div_ceil(4096).max(1).next_power_of_two().ilog2() as usize).min(SIZES - 1);
        let costs = if traffic == Traffic::Read { &self.read } else { &self.write };
        costs.get(size).copied().unwrap_or(WHOLE)
    }

    fn largest(&self) -> u64 {
        self.read.iter().chain(&self.write).copied().max().unwrap_or(WHOLE)
    }

    /// Requests in which a flow that is silent is forgotten.
    fn memory(&self) -> u64 {
        MEMORY_ROUNDS * self.read.first().map_or(1, |cost| WHOLE / (*cost).max(1))
    }
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
    admitted: usize,
    admitted_cost: u64,
    /// Of all but point reads.
    admitted_beside: u64,
    flows: HashMap<FlowId, Flow>,
    /// Flows with requests waiting, in the order of their turns: those whose next request is a point read, and others.
    points: BTreeMap<Turn, Next>,
    others: BTreeMap<Turn, Next>,
    virtual_time: u64,
    /// How far ideal sharing would be.
    ideal_time: u64,
    /// Of the flows that have requests, together.
    busy_weight: u64,
    /// Requests that came, and that were admitted.
    came: u64,
    served: u64,
    /// Point reads waiting or admitted, and `served` when there last was one.
    point_reads: usize,
    last_point_read: Option<u64>,
    /// Since when no flow has had requests.
    at_rest_since: Option<Instant>,
    /// From so many flows on, those that are owed nothing are looked for.
    many_flows: usize,
    /// The backend knows that operations wait.
    pub(crate) watched: bool,
}

#[derive(Default)]
struct Flow {
    waiting: VecDeque<Waiting>,
    /// Start tag of the first one waiting. If none is, the least that the next one gets.
    tag: u64,
    /// Requests admitted or waiting, and what they cost.
    requests: usize,
    cost: u64,
    /// The most that they cost lately: how much of the device it makes use of.
    wanted: u64,
    /// That of its latest request.
    weight: u64,
    /// `served` when it last had a request.
    last: u64,
}

struct Waiting {
    number: u64,
    operation: Box<Operation>,
}

/// Whose turn it is: the smallest. Start tag, priority, number.
type Turn = (u64, Priority, u64);

/// What a flow's next request is.
struct Next {
    flow: FlowId,
    cost: u64,
}

impl Governor {
    pub(crate) fn new(max_depth: usize, governs: bool, profile: &DeviceProfile) -> Self {
        let mut governor = Self {
            max_depth,
            paused: 0,
            governs,
            costs: Costs::uniform(max_depth),
            profiled: Costs::uniform(max_depth),
            admitted: 0,
            admitted_cost: 0,
            admitted_beside: 0,
            flows: HashMap::new(),
            points: BTreeMap::new(),
            others: BTreeMap::new(),
            virtual_time: 0,
            ideal_time: 0,
            busy_weight: 0,
            came: 0,
            served: 0,
            point_reads: 0,
            last_point_read: None,
            at_rest_since: None,
            many_flows: MANY_FLOWS,
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
    pub(crate) fn enter(&mut self, operations: Vec<Box<Operation>>, now: Instant) -> Vec<Box<Operation>> {
        if self.has_rested(now) {
            self.flows.clear();
            self.last_point_read = None;
        }
        if !operations.is_empty() {
            self.at_rest_since = None;
        }
        if self.flows.len() > self.many_flows {
            self.forget();
            self.many_flows = MANY_FLOWS.max(2 * self.flows.len());
        }
        for mut operation in operations {
            let cost = self.costs.cost(operation.traffic(), operation.total_bytes());
            let (id, priority) = match &operation.ticket.account {
                Some(account) => (account.flow, account.priority),
                None => (FlowId::default(), Priority::default()),
            };
            operation.ticket.slot = IoSlot { cost, flow: id, priority };
            self.came += 1;
            self.point_reads += usize::from(priority == Priority::Point);
            let flow = self.flows.entry(id).or_default();
            if flow.requests > 0 {
                self.busy_weight -= flow.weight;
            }
            flow.weight = weight(priority);
            self.busy_weight += flow.weight;
            flow.requests += 1;
            flow.cost += cost;
            flow.wanted = flow.wanted.max(flow.cost);
            let is_first = flow.waiting.is_empty();
            flow.waiting.push_back(Waiting { number: self.came, operation });
            if is_first {
                flow.tag = flow.tag.max(self.virtual_time);
                self.queue(id);
            }
        }
        self.next()
    }

    /// Gives slots back; returns the operations that get them.
    pub(crate) fn leave(
        &mut self,
        slots: impl IntoIterator<Item = IoSlot>,
        now: Instant,
    ) -> Vec<Box<Operation>> {
        for slot in slots {
            self.admitted -= 1;
            self.admitted_cost -= slot.cost;
            if slot.priority != Priority::Point {
                self.admitted_beside -= slot.cost;
            }
            self.end(slot);
        }
        self.at_rest_since = (self.busy_weight == 0).then_some(now);
        self.next()
    }

    fn has_rested(&self, now: Instant) -> bool {
        self.at_rest_since.is_some_and(|since| now.saturating_duration_since(since) > MEMORY_AT_REST)
    }

    /// A request is over.
    fn end(&mut self, slot: IoSlot) {
        if slot.priority == Priority::Point {
            self.point_reads -= 1;
            self.last_point_read = Some(self.served);
        }
        let flow = self.flows.get_mut(&slot.flow).expect("flows with requests are not forgotten");
        flow.requests -= 1;
        flow.cost -= slot.cost;
        flow.wanted -= (flow.wanted - flow.cost) / MEMORY_REQUESTS;
        flow.last = self.served;
        if flow.requests == 0 {
            self.busy_weight -= flow.weight;
        }
        if self.busy_weight == 0 {
            // An idle device owes nothing to any flow.
            self.virtual_time = 0;
            self.ideal_time = 0;
            self.flows.values_mut().for_each(|flow| flow.tag = 0);
            self.forget();
        }
    }

    /// Drops flows that are neither busy nor owe anything nor have been so lately.
    fn forget(&mut self) {
        let (served, memory) = (self.served, self.costs.memory());
        let virtual_time = self.virtual_time;
        self.flows.retain(|_, flow| flow.is_present(served, memory) || flow.tag > virtual_time);
    }

    /// Gives a flow the turn of its next request, if it has one.
    fn queue(&mut self, id: FlowId) {
        if let Some((turn, next)) = self.flows[&id].turn(id, self.governs) {
            self.turns(turn).insert(turn, next);
        }
    }

    fn turns(&mut self, turn: Turn) -> &mut BTreeMap<Turn, Next> {
        if turn.1 == Priority::Point { &mut self.points } else { &mut self.others }
    }

    fn next(&mut self) -> Vec<Box<Operation>> {
        let mut admitted = Vec::new();
        while let Some((turn, id)) = self.fitting() {
            self.turns(turn).remove(&turn);
            let flow = self.flows.get_mut(&id).expect("a flow with a turn is known");
            let first = flow.waiting.pop_front();
            let Waiting { operation, .. } = first.expect("a flow with a turn has requests waiting");
            let IoSlot { cost, priority, .. } = operation.ticket.slot;
            self.admitted += 1;
            self.admitted_cost += cost;
            if priority != Priority::Point {
                self.admitted_beside += cost;
            }
            self.served += 1;
            if self.governs {
                let start = flow.tag;
                flow.tag += cost * FULL_WEIGHT / weight(priority);
                self.ideal_time = self.ideal_time.max(start) + cost * FULL_WEIGHT / self.busy_weight.max(1);
                let largest_step = self.costs.largest() * FULL_WEIGHT / weight(Priority::Scan);
                let least = self.ideal_time.saturating_sub(largest_step);
                self.virtual_time = self.virtual_time.max(start).max(least);
            }
            self.queue(id);
            admitted.push(operation);
        }
        admitted
    }

    /// Whose turn it is, if there is a slot for it.
    fn fitting(&self) -> Option<(Turn, FlowId)> {
        let has_room = |next: &Next| {
            self.admitted_beside == 0 || self.admitted_beside + next.cost <= self.costs.beside_points
        };
        let is_held_back = self.admitted > 0 && self.has_point_reads();
        let other = self.others.first_key_value().filter(|(_, next)| !is_held_back || has_room(next));
        let point = self.points.first_key_value();
        let (turn, next) = match (point, other) {
            (Some(point), Some(other)) => {
                if point.0 < other.0 {
                    point
                } else {
                    other
                }
            }
            (one, None) | (None, one) => one?,
        };
        let fits = self.admitted == 0 || self.admitted_cost + next.cost <= WHOLE;
        (fits && self.admitted < self.max_depth).then_some((*turn, next.flow))
    }

    /// Whether a flow does point reads, now or between two of them.
    fn has_point_reads(&self) -> bool {
        let is_recent = |last: u64| self.served - last <= self.costs.memory();
        self.governs && (self.point_reads > 0 || self.last_point_read.is_some_and(is_recent))
    }

    /// Takes back the operations of an abandoned batch that have not started; returns those, and others that may go
    /// now: the next request may be smaller than the one that had the turn before.
    pub(crate) fn withdraw(
        &mut self,
        batch: &Arc<Completions>,
    ) -> (Vec<Box<Operation>>, Vec<Box<Operation>>) {
        let is_of_batch = |waiting: &Waiting| Arc::ptr_eq(&waiting.operation.ticket.batch, batch);
        let concerned = self.flows.iter().filter(|(_, flow)| flow.waiting.iter().any(is_of_batch));
        let concerned: Vec<FlowId> = concerned.map(|(id, _)| *id).collect();
        let mut withdrawn = Vec::new();
        for id in concerned {
            let flow = self.flows.get_mut(&id).expect("it was found a moment ago");
            let turn = flow.turn(id, self.governs);
            let waiting = std::mem::take(&mut flow.waiting);
            let (gone, left) = waiting.into_iter().partition::<VecDeque<_>, _>(is_of_batch);
            flow.waiting = left;
            if let Some((turn, _)) = turn {
                self.turns(turn).remove(&turn);
            }
            self.queue(id);
            withdrawn.extend(gone.into_iter().map(|waiting| waiting.operation));
        }
        for operation in &withdrawn {
            self.end(operation.ticket.slot);
        }
        (withdrawn, self.next())
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.points.is_empty() || !self.others.is_empty()
    }

    /// Reads of a size that a flow should have outstanding, beside those that are about.
    pub(crate) fn depth(&self, id: FlowId, bytes: u64, now: Instant) -> usize {
        let cost = self.costs.cost(Traffic::Read, bytes).max(1);
        if !self.governs {
            return (WHOLE / cost).max(1) as usize;
        }
        let (served, memory, is_alone) = (self.served, self.costs.memory(), self.has_rested(now));
        let about = |flow: &&Flow| !is_alone && flow.is_present(served, memory);
        let scan = weight(Priority::Scan);
        let weight = self.flows.get(&id).filter(about).map_or(scan, |flow| flow.weight);
        let is_held_back = weight <= scan && !is_alone && self.has_point_reads();
        let others = self.flows.iter().filter(|(other, _)| **other != id).map(|(_, flow)| flow).filter(about);
        let others = others.filter(|other| !is_held_back || other.weight <= scan);
        let mut others: Vec<(u64, u64)> = others.map(|flow| (flow.wanted, flow.weight)).collect();
        let mut left = if is_held_back { self.costs.beside_points } else { WHOLE };
        let mut weights = weight + others.iter().map(|(_, weight)| weight).sum::<u64>();
        // The flow that asks least for its weight is served first; what it leaves is shared among the others.
        others.sort_unstable_by(|(a, of_a), (b, of_b)| (a * of_b).cmp(&(b * of_a)));
        for (wanted, of) in others {
            if wanted * weights >= left * of {
                break;
            }
            left -= wanted;
            weights -= of;
        }
        let slots = (left * weight).div_ceil(weights * cost);
        (slots + slots / 4 + 1).min(self.max_depth as u64) as usize
    }
}

impl Flow {
    fn turn(&self, id: FlowId, governs: bool) -> Option<(Turn, Next)> {
        let Waiting { number, operation } = self.waiting.front()?;
        let IoSlot { cost, priority, .. } = operation.ticket.slot;
        // Ungoverned, nothing but the order of submission counts.
        let turn = if governs { (self.tag, priority, *number) } else { (0, Priority::default(), *number) };
        Some((turn, Next { flow: id, cost }))
    }

    /// Whether it has requests, or had some when the device was last filled.
    fn is_present(&self, served: u64, memory: u64) -> bool {
        self.requests > 0 || served - self.last <= memory
    }
}

#[cfg(test)]
mod tests;
