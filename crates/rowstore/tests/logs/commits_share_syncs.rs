use std::pin::pin;
use std::task::{Context, Waker};

use futures::future::{join_all, poll_immediate};
use nandina_device::{Device, DeviceOptions, FileClass, block_on};
use nandina_rowstore::log::{Log, LogOptions, Lsn, MOST_RECORD_BYTES};
use nandina_simulation::drive::DriveModel;
use nandina_simulation::{FaultPlan, SimulationOptions, in_memory, on_drive};

use crate::setup::{LOG_ID, open, options};

#[test]
fn those_who_wait_meanwhile_share_the_next_sync() {
    let (device, _simulation) = on_drive(SimulationOptions::of(DriveModel::named("sata-ssd").unwrap()));
    let (log, _) = open(&device, Lsn::default()).unwrap();
    let before = device.counters().of(FileClass::Log).sync_requests;
    let commit = async |number: usize| {
        let lsn = log.append(&number.to_le_bytes()).unwrap();
        log.until_durable(lsn).await.unwrap();
        assert!(log.durable() > lsn);
    };
    const TASKS: usize = 64;
    const ROUNDS: usize = 10;
    block_on(join_all((0..TASKS).map(|task| async move {
        for round in 0..ROUNDS {
            commit(task * ROUNDS + round).await;
        }
    })));
    let syncs = device.counters().of(FileClass::Log).sync_requests - before;
    // One who is first to go on begins a group before the others have anything to write.
    assert!(syncs <= (TASKS * ROUNDS / 6) as u64, "{syncs} syncs for {} commits", TASKS * ROUNDS);
    drop(log);
    assert_eq!(open(&device, Lsn::default()).unwrap().1.len(), TASKS * ROUNDS);
}

#[test]
fn one_who_gives_up_waiting_stops_nobody() {
    let (device, _simulation) = on_drive(SimulationOptions::of(DriveModel::named("sata-ssd").unwrap()));
    let (log, _) = open(&device, Lsn::default()).unwrap();
    let first = log.append(b"first").unwrap();
    {
        let mut waiting = pin!(log.until_durable(first));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    let second = log.append(b"second").unwrap();
    block_on(log.until_durable(second)).unwrap();
    assert_eq!(block_on(poll_immediate(log.until_durable(first))).map(|done| done.is_ok()), Some(true));
}

#[test]
fn threads_that_commit_at_once_lose_nothing() {
    let (device, _simulation) = in_memory(FaultPlan::none());
    let log = Log::open(device.clone(), LOG_ID, options(), Lsn::default(), |_, _| Ok(())).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let log = &log;
            scope.spawn(move || {
                for number in 0..500u64 {
                    let lsn = log.append(&(thread << 32 | number).to_le_bytes()).unwrap();
                    log.wait_until_durable(lsn).unwrap();
                }
            });
        }
    });
    let (_, records) = open(&device, Lsn::default()).unwrap();
    for thread in 0..8u64 {
        let numbers = records.iter().map(|(_, record)| u64::from_le_bytes(record[..].try_into().unwrap()));
        let of_thread: Vec<u64> = numbers.filter(|number| number >> 32 == thread).collect();
        assert!(of_thread.iter().map(|number| number & 0xffff).eq(0..500), "in their order");
    }
}

/// Threads leave the next group to one of them; a task may begin one and be gone before it ends.
#[test]
fn tasks_that_give_up_stop_no_thread() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::open(folder.path(), DeviceOptions::default()).unwrap();
    let (log, _) = open(&device, Lsn::default()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let log = &log;
            scope.spawn(move || {
                for number in 0..200u64 {
                    let lsn = log.append(&number.to_le_bytes()).unwrap();
                    if thread < 2 {
                        let _ = block_on(poll_immediate(log.until_durable(lsn)));
                    } else {
                        log.wait_until_durable(lsn).unwrap();
                        assert!(log.durable() > lsn);
                    }
                }
            });
        }
    });
    log.wait_until_all_durable().unwrap();
    drop(log);
    assert_eq!(open(&device, Lsn::default()).unwrap().1.len(), 6 * 200);
}

#[test]
fn all_threads_that_wait_are_told_of_a_failed_request() {
    for request in 20..24 {
        let (device, simulation) = in_memory(FaultPlan::none());
        let (log, _) = open(&device, Lsn::default()).unwrap();
        simulation.set_plan(FaultPlan::none().fail_request(simulation.requests() + request));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let commit = || log.append(b"record").and_then(|lsn| log.wait_until_durable(lsn));
                    let error = std::iter::repeat_with(commit).find_map(Result::err).unwrap().to_string();
                    assert!(error.contains("the log in"), "{error}");
                });
            }
        });
    }
}

#[test]
fn records_that_wait_are_bounded() {
    let (device, _simulation) = in_memory(FaultPlan::none());
    let options = LogOptions { waiting_bytes: 100_000, ..options() };
    let log = Log::open(device.clone(), LOG_ID, options, Lsn::default(), |_, _| Ok(())).unwrap();
    for _ in 0..300 {
        let last = log.append(&[1; 1000]).unwrap();
        block_on(log.throttle()).unwrap();
        assert!(last.0.saturating_sub(log.durable().0) <= 120_000, "{last:?}, {:?}", log.durable());
    }
    let error = log.append(&vec![0; MOST_RECORD_BYTES + 1]).unwrap_err().to_string();
    assert!(error.contains("too long"), "{error}");
    let longest = log.append(&vec![3; MOST_RECORD_BYTES]).unwrap();
    log.wait_until_durable(longest).unwrap();
    assert_eq!(open(&device, longest).unwrap().1.len(), 1);
}
