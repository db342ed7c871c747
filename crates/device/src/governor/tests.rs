//! Whose turn it is while flows come, go and withdraw requests.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use proptest::prelude::*;

use super::*;
use crate::counters::{FileClass, IoAccount};
use crate::device::{Device, DeviceOptions};
use crate::file::File;
use crate::operation::Ticket;
use crate::profile::DeviceIdentity;
use crate::request::Request;

/// A governor, and operations to govern that never reach a device.
struct Bed {
    _folder: tempfile::TempDir,
    device: Device,
    file: File,
    governor: Governor,
    now: Instant,
}

/// A profile that was measured, whatever it says.
fn profile() -> DeviceProfile {
    DeviceProfile { kind: ProfileKind::Quick, ..DeviceProfile::assumed(DeviceIdentity::default()) }
}

impl Bed {
    fn new(max_depth: usize, profile: &DeviceProfile) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let device = Device::open(folder.path(), DeviceOptions::default()).unwrap();
        let file = device.create("file", FileClass::Other).unwrap();
        Self {
            _folder: folder,
            device,
            file,
            governor: Governor::new(max_depth, true, profile),
            now: Instant::now(),
        }
    }

    /// Where nothing is measured: as many slots as the device was opened for, all alike.
    fn uniform(max_depth: usize) -> Self {
        Self::new(max_depth, &DeviceProfile::assumed(DeviceIdentity::default()))
    }

    fn operation(
        &self,
        of: &Arc<IoAccount>,
        batch: &Arc<Completions>,
        index: usize,
        bytes: usize,
    ) -> Box<Operation> {
        let request = Request::read(0, self.device.buffer(bytes));
        let device = Arc::clone(&self.device.inner) as _;
        let ticket = Ticket::new(Arc::clone(batch), index, Some(Arc::clone(of)), device);
        Operation::new(request, Arc::clone(&self.file.inner), ticket).unwrap()
    }

    fn submit(
        &mut self,
        of: &Arc<IoAccount>,
        batch: &Arc<Completions>,
        requests: usize,
    ) -> Vec<Box<Operation>> {
        let operations = (0..requests).map(|index| self.operation(of, batch, index, 4096)).collect();
        self.governor.enter(operations, self.now)
    }

    /// Lets the device end its oldest request, so many times; how many requests of each account were admitted.
    fn serve(
        &mut self,
        admitted: &mut VecDeque<Box<Operation>>,
        of: &[&Arc<IoAccount>],
        ends: usize,
    ) -> Vec<usize> {
        let mut served = vec![0; of.len()];
        for _ in 0..ends {
            let ended = admitted.pop_front().unwrap();
            for operation in self.governor.leave([ended.ticket.slot], self.now) {
                if let Some(at) = of.iter().position(|account| account.flow == operation.ticket.slot.flow) {
                    served[at] += 1;
                }
                admitted.push_back(operation);
            }
        }
        served
    }
}

fn account(priority: Priority) -> Arc<IoAccount> {
    IoAccount::of_flow(FlowId::unique(), priority)
}

#[test]
fn backlogged_flows_share_by_weight() {
    let mut bed = Bed::uniform(32);
    let batch = Arc::default();
    let flows = [Priority::Point, Priority::Scan, Priority::Scan, Priority::Background].map(account);
    let mut admitted: VecDeque<_> =
        flows.iter().rev().flat_map(|flow| bed.submit(flow, &batch, 20_000)).collect();
    let served = bed.serve(&mut admitted, &flows.each_ref(), 8_100);
    // 64 : 8 : 8 : 1, beginning with slots that were all taken by who came first.
    for (served, due) in served.iter().zip([6400, 800, 800, 100]) {
        assert!(served.abs_diff(due) <= 33 + due / 100, "{served} of {due}");
    }
}

#[test]
fn queries_that_come_and_go_do_not_keep_others_waiting_for_ever() {
    for priority in [Priority::Point, Priority::Scan] {
        let mut bed = Bed::uniform(4);
        let batch = Arc::default();
        let (scan, background) = (account(Priority::Scan), account(Priority::Background));
        let mut admitted: VecDeque<_> = bed.submit(&scan, &batch, 5_000).into();
        admitted.extend(bed.submit(&background, &batch, 5_000));
        // There are always 20 that have just come, each with a single request.
        for _ in 0..20 {
            admitted.extend(bed.submit(&account(priority), &batch, 1));
        }
        let mut served = [0, 0];
        for _ in 0..40_000 {
            let counts = bed.serve(&mut admitted, &[&scan, &background], 1);
            served = [served[0] + counts[0], served[1] + counts[1]];
            if counts == [0, 0] {
                admitted.extend(bed.submit(&account(priority), &batch, 1));
            }
        }
        // Up to 24 are busy. By weight the scan has 1 in 25 of the service beside other scans, 1 in 193 beside point
        // reads, and background work an eighth of that.
        let (least, of_background) = if priority == Priority::Scan { (1_500, 180) } else { (190, 23) };
        assert!(served[0] >= least, "the scan got {} beside {priority:?}", served[0]);
        assert!(served[1] >= of_background, "background got {} beside {priority:?}", served[1]);
    }
}

#[test]
fn what_is_withdrawn_costs_nothing() {
    let mut bed = Bed::uniform(8);
    let (abandoned, kept) = (Arc::default(), Arc::default());
    let flows = [account(Priority::Scan), account(Priority::Scan)];
    let mut admitted: VecDeque<_> = bed.submit(&flows[0], &abandoned, 10_000).into();
    assert_eq!(admitted.len(), 8);
    admitted.extend(bed.submit(&flows[1], &kept, 1_000));
    let (withdrawn, next) = bed.governor.withdraw(&abandoned);
    assert_eq!((withdrawn.len(), next.len()), (9_992, 0));
    admitted.extend(bed.submit(&flows[0], &kept, 1_000));
    let served = bed.serve(&mut admitted, &flows.each_ref(), 400);
    assert!(served[0].abs_diff(served[1]) <= 9, "{served:?}");
}

#[test]
fn a_large_request_that_is_withdrawn_lets_small_ones_through() {
    let mut bed = Bed::new(256, &profile());
    let flow = account(Priority::Scan);
    let (first, large, small) = (Arc::default(), Arc::default(), Arc::default());
    let slots = bed.submit(&flow, &first, 30).len();
    let wide = (0..4).map(|index| bed.operation(&flow, &large, index, 2 << 20)).collect();
    let mut admitted = bed.governor.enter(wide, bed.now).len();
    admitted += bed.submit(&flow, &small, 1).len();
    assert_eq!((slots, admitted), (30, 0), "32 small ones fill the device, a large one is a quarter of it");
    let (withdrawn, next) = bed.governor.withdraw(&large);
    assert_eq!((withdrawn.len(), next.len()), (4, 1));
}

#[test]
fn a_request_as_large_as_the_device_gets_through() {
    // The device may be opened for less than the least depth.
    for max_depth in 1..=3 {
        let mut bed = Bed::new(max_depth, &profile());
        let (flow, batch) = (account(Priority::Scan), Arc::default());
        let wide = (0..5).map(|index| bed.operation(&flow, &batch, index, 64 << 20)).collect();
        let mut admitted: VecDeque<_> = bed.governor.enter(wide, bed.now).into();
        assert_eq!(admitted.len(), max_depth);
        let served = bed.serve(&mut admitted, &[&flow], 5);
        assert_eq!(served[0], 5 - max_depth);
        assert!(bed.governor.is_at_rest());
    }
}

#[test]
fn point_reads_halve_what_others_may_have_until_they_are_over() {
    let mut bed = Bed::new(256, &profile());
    let (scan, point, batch) = (account(Priority::Scan), account(Priority::Point), Arc::default());
    let mut admitted: VecDeque<_> = bed.submit(&scan, &batch, 2_000).into();
    assert_eq!(admitted.len(), 32);
    assert!(bed.submit(&point, &batch, 1).is_empty());
    let beside = |admitted: &VecDeque<Box<Operation>>| {
        admitted.iter().filter(|operation| operation.ticket.slot.flow == scan.flow).count()
    };
    bed.serve(&mut admitted, &[], 1);
    assert_eq!(admitted.back().unwrap().ticket.slot.flow, point.flow, "the point read comes next");
    bed.serve(&mut admitted, &[], 40);
    assert_eq!(beside(&admitted), 16);
    let granted = bed.governor.depth(scan.flow, 4096, bed.now);
    assert_eq!(granted, 16 + 16 / 4 + 1);
    // It has ended by now, and none has come after it.
    bed.serve(&mut admitted, &[], 200);
    assert_eq!(beside(&admitted), 32);
}

#[test]
fn however_little_room_point_reads_leave_one_request_has_it() {
    let mut bed = Bed::new(4, &profile());
    bed.governor.costs.beside_points = 1;
    let (scan, batch) = (account(Priority::Scan), Arc::default());
    let points: [Arc<IoAccount>; 6] = std::array::from_fn(|_| account(Priority::Point));
    let mut admitted: VecDeque<_> =
        points.iter().flat_map(|point| bed.submit(point, &batch, 5_000)).collect();
    admitted.extend(bed.submit(&scan, &batch, 100));
    let served = bed.serve(&mut admitted, &[&scan], 4_900);
    // By weight one in 49.
    assert!((95..=100).contains(&served[0]), "{}", served[0]);
}

#[test]
fn grants_follow_who_is_about_and_what_they_use() {
    let mut bed = Bed::new(256, &profile());
    let flows: [Arc<IoAccount>; 4] = std::array::from_fn(|_| account(Priority::Scan));
    let batch = Arc::default();
    let slots = |share: usize| share + share / 4 + 1;
    let granted = |bed: &Bed, flow: &Arc<IoAccount>| bed.governor.depth(flow.flow, 4096, bed.now);
    assert_eq!(granted(&bed, &flows[0]), slots(32), "alone");
    let mut admitted: VecDeque<_> = bed.submit(&flows[0], &batch, 64).into();
    assert_eq!(granted(&bed, &flows[0]), slots(32), "what it has itself does not count");
    assert_eq!(granted(&bed, &flows[1]), slots(16));
    admitted.extend(bed.submit(&flows[1], &batch, 64));
    admitted.extend(bed.submit(&flows[2], &batch, 2));
    // A flow that wants but two leaves the rest of its third to the others.
    assert_eq!(granted(&bed, &flows[0]), slots(15));
    assert_eq!(granted(&bed, &flows[3]), slots(10));
    let background = account(Priority::Background);
    admitted.extend(bed.submit(&background, &batch, 64));
    assert_eq!(granted(&bed, &flows[0]), slots(15), "background work has an eighth of a share");
    assert_eq!(granted(&bed, &background), slots(2));
    while !admitted.is_empty() {
        bed.serve(&mut admitted, &[], 1);
    }
    // Whether they have gone, or are about to answer, only time tells; or that others go on without them, as they did
    // without the one that wanted but two.
    assert_eq!(granted(&bed, &account(Priority::Scan)), slots(11));
    bed.now += Duration::from_secs(1);
    assert_eq!(granted(&bed, &account(Priority::Scan)), slots(32));
    bed.now -= Duration::from_secs(1);
    let last = account(Priority::Scan);
    let mut admitted: VecDeque<_> = bed.submit(&last, &batch, 100).into();
    bed.serve(&mut admitted, &[], 70);
    assert_eq!(granted(&bed, &last), slots(32));
}

#[derive(Debug, Clone)]
enum Step {
    Submit { flow: usize, batch: usize, requests: usize, size: u32 },
    End { at: usize },
    Withdraw { batch: usize },
    Measure,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..5usize, 0..4usize, 1..20usize, 0..11u32)
            .prop_map(|(flow, batch, requests, size)| Step::Submit { flow, batch, requests, size }),
        6 => (0..64usize).prop_map(|at| Step::End { at }),
        1 => (0..4usize).prop_map(|batch| Step::Withdraw { batch }),
        1 => Just(Step::Measure),
    ]
}

proptest! {
    #[test]
    fn nothing_is_lost_and_nobody_overtakes_in_a_flow(
        max_depth in 1..40usize,
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let mut bed = Bed::uniform(max_depth);
        let priorities =
            [Priority::Point, Priority::Scan, Priority::Background, Priority::Scan, Priority::Point];
        let flows = priorities.map(account);
        let mut batches: [Arc<Completions>; 4] = Default::default();
        // The model: the requests waiting in each flow, in order, with their batches; and those admitted.
        let mut waiting: [VecDeque<(usize, usize)>; 5] = Default::default();
        let mut admitted: Vec<Box<Operation>> = Vec::new();
        let mut last = 0;
        let mut drain = 0;
        let mut steps = steps.into_iter();
        loop {
            let came = match steps.next() {
                Some(Step::Submit { flow, batch, requests, size }) => {
                    let new: Vec<_> = (1..=requests)
                        .map(|of| bed.operation(&flows[flow], &batches[batch], last + of, 4096 << size))
                        .collect();
                    waiting[flow].extend((1..=requests).map(|of| (last + of, batch)));
                    last += requests;
                    bed.governor.enter(new, bed.now)
                }
                Some(Step::End { at }) if !admitted.is_empty() => {
                    let ended = admitted.swap_remove(at % admitted.len());
                    bed.governor.leave([ended.ticket.slot], bed.now)
                }
                Some(Step::Withdraw { batch }) => {
                    let (withdrawn, next) = bed.governor.withdraw(&batches[batch]);
                    let mut withdrawn: Vec<usize> = withdrawn.iter().map(|gone| gone.ticket.index).collect();
                    let mut expected: Vec<usize> = Vec::new();
                    for flow in &mut waiting {
                        expected.extend(flow.iter().filter(|of| of.1 == batch).map(|of| of.0));
                        flow.retain(|of| of.1 != batch);
                    }
                    withdrawn.sort_unstable();
                    expected.sort_unstable();
                    prop_assert_eq!(withdrawn, expected);
                    batches[batch] = Arc::default();
                    next
                }
                Some(Step::Measure) => {
                    bed.governor.set_profile(&profile());
                    Vec::new()
                }
                Some(Step::End { .. }) => Vec::new(),
                None if admitted.is_empty() => break,
                None => {
                    drain += 1;
                    let ended = admitted.swap_remove(drain % admitted.len());
                    bed.governor.leave([ended.ticket.slot], bed.now)
                }
            };
            for operation in came {
                let flow = flows.iter().position(|flow| flow.flow == operation.ticket.slot.flow).unwrap();
                prop_assert_eq!(waiting[flow].pop_front().map(|of| of.0), Some(operation.ticket.index));
                admitted.push(operation);
            }
            let cost: u64 = admitted.iter().map(|operation| operation.ticket.slot.cost).sum();
            prop_assert!(cost <= WHOLE || admitted.len() == 1, "{} cost {}", admitted.len(), cost);
            prop_assert!(admitted.len() <= max_depth);
            let left: usize = waiting.iter().map(VecDeque::len).sum();
            prop_assert!(left == 0 || !admitted.is_empty(), "{} wait for nobody", left);
            prop_assert_eq!(bed.governor.has_waiting(), left > 0);
        }
        prop_assert!(waiting.iter().all(VecDeque::is_empty));
        prop_assert!(bed.governor.is_at_rest());
    }
}

impl Governor {
    /// No flow has requests, and none is owed anything.
    fn is_at_rest(&self) -> bool {
        let sums =
            (self.admitted, self.admitted_cost, self.admitted_beside, self.busy_weight, self.point_reads);
        let flows = self.flows.values();
        sums == (0, 0, 0, 0, 0)
            && self.points.is_empty()
            && self.others.is_empty()
            && self.virtual_time == 0
            && flows.clone().all(|flow| (flow.requests, flow.cost, flow.tag) == (0, 0, 0))
    }
}
