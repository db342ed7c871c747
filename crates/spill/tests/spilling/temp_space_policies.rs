//! Every combination of preallocation and discard keeps what temporary space promises.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nandina_device::{Device, DeviceOptions, Error, Request};
use nandina_simulation::{CrashOutcome, FaultPlan};
use nandina_spill::{Discard, Extent, Preallocation, QuerySpace, SpillError, TempOptions, TempSpace};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
/// What extents are rounded up to.
const GRAIN: u64 = 64 << 10;
const NEVER: Duration = Duration::from_secs(1 << 20);

fn combinations() -> impl Iterator<Item = (Preallocation, Discard)> {
    Preallocation::ALL
        .into_iter()
        .flat_map(|preallocation| Discard::ALL.map(|discard| (preallocation, discard)))
}

fn options((preallocation, discard): (Preallocation, Discard)) -> TempOptions {
    TempOptions { preallocation, discard, ..TempOptions::default() }
}

/// An extent, and what its owner has written to it.
struct Owned {
    extent: Extent,
    value: u8,
}

impl Owned {
    fn fill(&self, device: &Device) -> Result<(), Error> {
        let mut buffer = device.buffer(self.extent.len_bytes() as usize);
        buffer.fill(self.value);
        self.extent.file().submit(vec![Request::write(self.extent.offset(), buffer)]).wait().map(drop)
    }

    fn is_intact(&self, device: &Device) -> bool {
        let buffer = device.buffer(self.extent.len_bytes() as usize);
        let read = self.extent.file().read_blocking(self.extent.offset(), buffer).unwrap();
        read.iter().all(|&byte| byte == self.value)
    }

    fn range(&self) -> (std::path::PathBuf, u64, u64) {
        let offset = self.extent.offset();
        (self.extent.file().path().to_owned(), offset, offset + self.extent.len_bytes())
    }
}

#[derive(Clone, Debug)]
enum Step {
    Allocate {
        bytes: usize,
    },
    Free(prop::sample::Index),
    Overwrite(prop::sample::Index),
    SetQuota {
        bytes: u64,
    },
    /// To the policies of this number.
    SetPolicies(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1..600_000usize).prop_map(|bytes| Step::Allocate { bytes }),
        4 => any::<prop::sample::Index>().prop_map(Step::Free),
        2 => any::<prop::sample::Index>().prop_map(Step::Overwrite),
        1 => (0..8 * MIB).prop_map(|bytes| Step::SetQuota { bytes }),
        1 => (0..9usize).prop_map(Step::SetPolicies),
    ];
    prop::collection::vec(step, 1..80)
}

struct Model {
    device: Device,
    space: Arc<TempSpace>,
    query: Arc<QuerySpace>,
    owned: Vec<Owned>,
    quota: u64,
    next_value: u8,
}

impl Model {
    fn used(&self) -> u64 {
        self.owned.iter().map(|owned| owned.extent.len_bytes()).sum()
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Allocate { bytes } => {
                let rounded = (bytes as u64).next_multiple_of(GRAIN);
                match self.query.allocate(bytes) {
                    Ok(extent) => {
                        assert!(self.used() + rounded <= self.quota, "more than the quota");
                        assert_eq!((extent.len_bytes(), extent.offset() % GRAIN), (rounded, 0));
                        self.next_value = self.next_value.wrapping_add(1);
                        self.owned.push(Owned { extent, value: self.next_value });
                        self.owned.last().unwrap().fill(&self.device).unwrap();
                    }
                    Err(SpillError::QuotaExceeded { used_bytes, wanted_bytes, .. }) => {
                        assert_eq!((used_bytes, wanted_bytes), (self.used(), rounded));
                        assert!(self.used() + rounded > self.quota, "less than the quota");
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Free(which) if !self.owned.is_empty() => {
                drop(self.owned.swap_remove(which.index(self.owned.len())));
            }
            Step::Overwrite(which) if !self.owned.is_empty() => {
                let at = which.index(self.owned.len());
                self.owned[at].value ^= 0x5a;
                self.owned[at].fill(&self.device).unwrap();
            }
            Step::Free(_) | Step::Overwrite(_) => {}
            Step::SetQuota { bytes } => {
                self.quota = bytes;
                self.space.set_quota_bytes(Some(bytes));
            }
            Step::SetPolicies(number) => {
                let (preallocation, discard) = combinations().nth(number).unwrap();
                self.space.set_policies(preallocation, discard);
            }
        }
    }

    fn check(&self) {
        let mut ranges: Vec<_> = self.owned.iter().map(Owned::range).collect();
        ranges.sort_unstable();
        let apart =
            |pair: &[(std::path::PathBuf, u64, u64)]| pair[0].0 != pair[1].0 || pair[0].2 <= pair[1].1;
        assert!(ranges.windows(2).all(apart), "{ranges:?}");
        assert!(self.owned.iter().all(|owned| owned.is_intact(&self.device)));
        assert_eq!((self.space.used_bytes(), self.query.used_bytes()), (self.used(), self.used()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// No range has two owners, contents stay, the quota is exact, and in the end nothing is left.
    #[test]
    fn extents_are_their_owners(combination in 0..9usize, lingers in any::<bool>(), steps in steps()) {
        let (device, _) = nandina_simulation::in_memory(FaultPlan::none().capacity(1 << 40));
        let all = device.free_bytes().unwrap();
        let discard_after = if lingers { NEVER } else { Duration::ZERO };
        let chosen = options(combinations().nth(combination).unwrap());
        let space = TempSpace::open(device.clone(), TempOptions { discard_after, ..chosen }).unwrap();
        let query = space.query("test");
        let (quota, owned) = (u64::MAX, Vec::new());
        let mut model = Model { device: device.clone(), space, query, owned, quota, next_value: 0 };
        for step in steps {
            model.take(step);
            model.check();
        }
        model.owned.clear();
        prop_assert_eq!(model.space.used_bytes(), 0);
        drop(model);
        prop_assert_eq!(device.list().unwrap(), Vec::<String>::new());
        prop_assert_eq!(device.free_bytes().unwrap(), all);
    }

    /// A disk is full when what is in use fills it, whatever is kept and however it is scattered.
    #[test]
    fn the_disk_is_full_when_it_is(
        combination in 3..9usize,
        has_holes in any::<bool>(),
        lingers in any::<bool>(),
        steps in prop::collection::vec((1..40u64, any::<prop::sample::Index>(), any::<bool>()), 1..60),
    ) {
        const CAPACITY: u64 = 8 * MIB;
        let plan = FaultPlan::none().capacity(CAPACITY);
        let (device, _) = nandina_simulation::in_memory(if has_holes { plan } else { plan.without_holes() });
        let discard_after = if lingers { NEVER } else { Duration::ZERO };
        let chosen = options(combinations().nth(combination).unwrap());
        let space = TempSpace::open(device.clone(), TempOptions { discard_after, ..chosen }).unwrap();
        let query = space.query("sort");
        let mut owned: Vec<Owned> = Vec::new();
        for (value, (grains, which, frees)) in (0..=u8::MAX).cycle().zip(steps) {
            if frees && !owned.is_empty() {
                owned.swap_remove(which.index(owned.len()));
            }
            let used: u64 = owned.iter().map(|owned| owned.extent.len_bytes()).sum();
            prop_assert_eq!(space.used_bytes(), used);
            match query.allocate((grains * GRAIN) as usize) {
                Ok(extent) => {
                    owned.push(Owned { extent, value });
                    owned.last().unwrap().fill(&device).unwrap();
                }
                Err(error @ SpillError::DiskFull { .. }) => {
                    prop_assert!(error.to_string().contains("sort needs"), "{}", error);
                    // Where parts of files cannot be given back, only a range that is long enough helps.
                    prop_assert!(used + grains * GRAIN > CAPACITY || !has_holes, "{} of {CAPACITY} are used", used);
                }
                Err(error) => prop_assert!(false, "{}", error),
            }
            prop_assert!(owned.iter().all(|owned| owned.is_intact(&device)));
        }
    }
}

#[test]
fn the_next_writer_gets_what_was_freed_only_where_it_is_recycled() {
    for combination in combinations() {
        let (device, _) = nandina_simulation::in_memory(FaultPlan::none());
        let options = TempOptions { discard_after: NEVER, ..options(combination) };
        let space = TempSpace::open(device.clone(), options).unwrap();
        let query = space.query("test");
        let held = query.allocate(MIB as usize).unwrap();
        let first = Owned { extent: query.allocate(MIB as usize).unwrap(), value: 7 };
        first.fill(&device).unwrap();
        let place = first.range();
        drop(first);
        let second = Owned { extent: query.allocate(MIB as usize).unwrap(), value: 7 };
        if combination.0 == Preallocation::None {
            // Nothing is there before it is written.
            second.extent.file().truncate(place.2.max(second.range().2)).unwrap();
        }
        let is_same_place = second.range() == place;
        match combination {
            (_, Discard::None) | (Preallocation::Recycle, Discard::Deferred | Discard::Auto) => {
                assert!(is_same_place && second.is_intact(&device), "{combination:?}: the blocks stay");
            }
            (_, Discard::Immediate) => {
                assert!(!second.is_intact(&device), "{combination:?}: the blocks went");
            }
            (_, Discard::Deferred | Discard::Auto) => {
                assert!(!is_same_place, "{combination:?}: they wait to be discarded");
            }
        }
        drop(held);
    }
}

#[test]
fn what_may_not_be_recycled_is_so_before_the_quota_is_passed_on_disk() {
    let (device, _) = nandina_simulation::in_memory(FaultPlan::none());
    let policies = options((Preallocation::Fallocate, Discard::Deferred));
    let options = TempOptions { quota_bytes: Some(4 * MIB), discard_after: NEVER, ..policies };
    let space = TempSpace::open(device, options).unwrap();
    let query = space.query("test");
    let _held = query.allocate(MIB as usize).unwrap();
    let mut ends = Vec::new();
    for _ in 0..20 {
        let extent = query.allocate(MIB as usize).unwrap();
        ends.push(extent.offset() + extent.len_bytes());
    }
    assert_eq!(ends.iter().max(), Some(&(4 * MIB)), "{ends:?}");
}

#[test]
fn deferred_discards_happen_by_themselves() {
    let directory = tempfile::tempdir().unwrap();
    let device = Device::open(directory.path(), DeviceOptions::default()).unwrap();
    let options = TempOptions { discard_after: Duration::from_millis(5), ..TempOptions::default() };
    let space = TempSpace::open(device.clone(), options).unwrap();
    let query = space.query("test");
    let written = |value| {
        let owned = Owned { extent: query.allocate(16 * MIB as usize).unwrap(), value };
        owned.fill(&device).unwrap();
        owned
    };
    let mut owned: Vec<Owned> = (1..=4).map(written).collect();
    let blocks = |owned: &Owned| std::fs::metadata(owned.extent.file().path()).unwrap().blocks() * 512;
    let until = |what: &str, is_so: &dyn Fn() -> bool| {
        let started = Instant::now();
        while !is_so() {
            assert!(started.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let before = blocks(&owned[0]);
    assert!(before >= 64 * MIB);
    owned.drain(1..3);
    until("half of the file is given back", &|| blocks(&owned[0]) <= before - 32 * MIB);
    assert!(owned.iter().all(|owned| owned.is_intact(&device)));
    owned.extend((5..=6).map(written));
    assert!(owned.iter().all(|owned| owned.is_intact(&device)));
    owned.clear();
    until("the files are removed", &|| space.device().list().unwrap() == ["owner.lock"]);
    // And begun anew.
    assert!(written(9).is_intact(&device));
    drop(query);
    drop(space);
    assert!(device.list().unwrap().is_empty());
}

#[test]
fn files_are_kept_for_the_next_query_where_nothing_is_discarded() {
    let (device, _) = nandina_simulation::in_memory(FaultPlan::none());
    for preallocation in Preallocation::ALL {
        let space = TempSpace::open(device.clone(), options((preallocation, Discard::None))).unwrap();
        for _ in 0..3 {
            let query = space.query("test");
            let extents: Vec<Extent> = (0..4).map(|_| query.allocate(MIB as usize).unwrap()).collect();
            assert_eq!(extents.iter().map(Extent::offset).max(), Some(3 * MIB));
        }
        assert!(space.kept_bytes() >= 4 * MIB);
        assert_eq!(space.device().list().unwrap(), ["extents-0", "owner.lock"]);
        drop(space);
        assert!(device.list().unwrap().is_empty());
    }
}

/// Spills, frees and spills again until something fails.
fn spill(device: &Device, options: TempOptions) -> Result<(), Box<dyn std::error::Error>> {
    let space = TempSpace::open(device.clone(), options)?;
    let query = space.query("test");
    let mut owned: Vec<Owned> = Vec::new();
    for value in 0..8 {
        let extent = query.allocate(128 << 10)?;
        owned.push(Owned { extent, value });
        owned.last().unwrap().fill(device)?;
        if value % 3 == 2 {
            owned.remove(0);
        }
    }
    Ok(())
}

#[test]
fn a_power_failure_at_any_moment_leaves_nothing_after_the_next_start() {
    for combination in combinations() {
        let options = TempOptions { discard_after: Duration::ZERO, ..options(combination) };
        let (device, faults) = nandina_simulation::in_memory(FaultPlan::none().capacity(16 * MIB));
        spill(&device, options.clone()).unwrap();
        let events = faults.events();
        assert!(events > 10, "{events}");
        for event in 0..events {
            for outcome in
                [CrashOutcome::LoseUnsynced, CrashOutcome::KeepAll, CrashOutcome::Random { seed: event }]
            {
                let plan = FaultPlan::none().capacity(16 * MIB).power_loss_at(event);
                let (device, faults) = nandina_simulation::in_memory(plan);
                // The last event may be one that closing the space survives.
                let _ = spill(&device, options.clone());
                faults.crash(outcome);
                let after = TempSpace::open(device.clone(), options.clone()).unwrap();
                assert_eq!(device.list().unwrap().len(), 1, "{combination:?}, {event}, {outcome:?}");
                drop(after);
                assert!(device.list().unwrap().is_empty());
                assert_eq!(device.free_bytes().unwrap(), 16 * MIB);
            }
        }
    }
}

#[test]
fn failing_writes_leave_the_space_usable() {
    for combination in combinations() {
        let (device, faults) = nandina_simulation::in_memory(FaultPlan::none());
        let space = TempSpace::open(device.clone(), options(combination)).unwrap();
        let query = space.query("test");
        faults.set_plan(FaultPlan::none().fail_request(faults.requests()));
        let failed = Owned { extent: query.allocate(1).unwrap(), value: 1 };
        assert!(failed.fill(&device).is_err());
        drop(failed);
        let owned = Owned { extent: query.allocate(1).unwrap(), value: 2 };
        owned.fill(&device).unwrap();
        assert!(owned.is_intact(&device) && space.used_bytes() == GRAIN);
    }
}

#[test]
fn without_preallocation_a_full_disk_is_noticed_by_the_write_and_said_so() {
    let (device, _) = nandina_simulation::in_memory(FaultPlan::none().capacity(4 * MIB));
    let space = TempSpace::open(device.clone(), options((Preallocation::None, Discard::Immediate))).unwrap();
    let query = space.query("test");
    let fits = Owned { extent: query.allocate(3 * MIB as usize).unwrap(), value: 1 };
    fits.fill(&device).unwrap();
    let too_much = Owned { extent: query.allocate(2 * MIB as usize).unwrap(), value: 2 };
    let error = too_much.fill(&device).unwrap_err();
    assert!(error.is_no_space() && error.to_string().contains("no space left"), "{error}");
    drop(fits);
    too_much.fill(&device).unwrap();
}
