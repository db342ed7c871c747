use nandina_device::Device;
use nandina_rowstore::Result;
use nandina_rowstore::log::{Log, LogOptions, Lsn};
use nandina_simulation::{CrashOutcome, FaultPlan, in_memory};

use crate::setup::{FILE_BYTES, LOG_ID, open, options, record};

const RECORDS: usize = 60;
/// So many are appended before the last of them is waited for.
const GROUP: usize = 3;

/// Opens a log and writes the records from `first` on, and says which one comes behind those that are durable.
fn run(device: &Device, first: usize, mut durable: impl FnMut(usize)) -> Result<()> {
    let (log, _) = open(device, Lsn::default())?;
    for group in (first..RECORDS).collect::<Vec<_>>().chunks(GROUP) {
        let mut last = Lsn::default();
        for number in group {
            last = log.append(&record(*number))?;
        }
        log.wait_until_durable(last)?;
        durable(group.last().unwrap() + 1);
    }
    Ok(())
}

/// What is found again: records in order from the first on, so many of them.
fn found(device: &Device, context: &str) -> usize {
    let (_, records) = open(device, Lsn::default()).unwrap_or_else(|error| panic!("{context}: {error}"));
    for (number, (_, bytes)) in records.iter().enumerate() {
        assert!(*bytes == record(number), "{context}: record {number}");
    }
    assert!(records.is_sorted_by(|one, next| one.0 < next.0), "{context}");
    records.len()
}

fn outcomes() -> Vec<CrashOutcome> {
    let random = (0..8).map(|seed| CrashOutcome::Random { seed });
    [CrashOutcome::LoseUnsynced, CrashOutcome::KeepAll].into_iter().chain(random).collect()
}

fn events() -> u64 {
    let (device, simulation) = in_memory(FaultPlan::none());
    run(&device, 0, |_| {}).unwrap();
    simulation.events()
}

#[test]
fn power_fails_at_every_event_and_again_while_the_log_goes_on() {
    let events = events();
    assert!(events > 50, "{events} events");
    for event in 0..events {
        for outcome in outcomes() {
            let (device, simulation) = in_memory(FaultPlan::none().power_loss_at(event));
            let mut durable = 0;
            let written = run(&device, 0, |next| durable = next);
            assert!(written.is_err(), "event {event}");
            simulation.crash(outcome);
            let context = format!("event {event}, {outcome:?}");
            let kept = found(&device, &context);
            // A group is there whole, or not at all.
            assert!(
                (durable..=durable + GROUP).contains(&kept) && kept.is_multiple_of(GROUP),
                "{context}: {kept} of {durable}"
            );
            // Opening once more changes nothing, and what is written then comes behind it, until the power fails again.
            for again in (1..40).step_by(6) {
                simulation.set_plan(FaultPlan::none().power_loss_at(simulation.events() + again));
                let first = found_after_crashes(&device, kept, &context);
                let mut durable = first;
                let ended = run(&device, first, |next| durable = next);
                simulation.crash(outcome);
                let kept = found(&device, &context);
                assert!(kept >= durable, "{context}, again after {again}: {kept} of {durable}, {ended:?}");
            }
        }
    }
}

/// As [`found`], where the power may fail meanwhile.
fn found_after_crashes(device: &Device, at_least: usize, context: &str) -> usize {
    match open(device, Lsn::default()) {
        Ok((_, records)) => {
            assert!(records.len() >= at_least, "{context}");
            records.len()
        }
        Err(error) => {
            assert!(!error.to_string().contains("damaged"), "{context}: {error}");
            at_least
        }
    }
}

#[test]
fn every_failing_request_ends_the_log_without_a_loss() {
    let (device, simulation) = in_memory(FaultPlan::none());
    run(&device, 0, |_| {}).unwrap();
    for request in 0..simulation.requests() {
        let (device, simulation) = in_memory(FaultPlan::none().fail_request(request));
        let mut durable = 0;
        let error = run(&device, 0, |next| durable = next).unwrap_err().to_string();
        assert!(error.contains("the log in"), "{error}");
        simulation.set_plan(FaultPlan::none());
        let kept = found(&device, "a failed request");
        assert!((durable..=durable + GROUP).contains(&kept), "request {request}: {kept} of {durable}");
    }
}

#[test]
fn a_log_that_failed_takes_nothing_more() {
    let (device, simulation) = in_memory(FaultPlan::none());
    let (log, _) = open(&device, Lsn::default()).unwrap();
    let first = log.append(b"first").unwrap();
    log.wait_until_durable(first).unwrap();
    simulation.set_plan(FaultPlan::none().fail_request(simulation.requests() + 1));
    let second = log.append(b"second").unwrap();
    // The write went well and the sync did not: nobody knows what is on the device.
    let error = log.wait_until_durable(second).unwrap_err().to_string();
    simulation.set_plan(FaultPlan::none());
    assert_eq!(log.append(b"third").unwrap_err().to_string(), error);
    assert_eq!(log.wait_until_durable(second).unwrap_err().to_string(), error);
    log.wait_until_durable(first).unwrap();
}

#[test]
fn what_is_found_once_is_durable_from_then_on() {
    let (device, simulation) = in_memory(FaultPlan::none());
    let (log, _) = open(&device, Lsn::default()).unwrap();
    let first = log.append(b"first").unwrap();
    log.wait_until_durable(first).unwrap();
    // The write of the second goes well and its sync does not, so that it is there until the power fails.
    simulation.set_plan(FaultPlan::none().fail_request(simulation.requests() + 1));
    let second = log.append(b"second").unwrap();
    log.wait_until_durable(second).unwrap_err();
    drop(log);
    simulation.set_plan(FaultPlan::none());
    let (log, records) = open(&device, Lsn::default()).unwrap();
    assert_eq!(records.len(), 2);
    assert!(log.durable() > second);
    simulation.crash(CrashOutcome::LoseUnsynced);
    assert_eq!(open(&device, Lsn::default()).unwrap().1, records);
}

#[test]
fn what_was_written_before_a_crash_is_not_taken_for_what_came_after_it() {
    let (device, _simulation) = in_memory(FaultPlan::none());
    let (log, _) = open(&device, Lsn::default()).unwrap();
    let first = log.append(b"first").unwrap();
    log.wait_until_durable(first).unwrap();
    let lost = log.append(&record(3)).unwrap();
    log.wait_until_durable(lost).unwrap();
    drop(log);
    // Of a group of three blocks all but the first reached the device.
    crate::damage_is_named::flip(&device, lost.0);
    let (log, records) = open(&device, Lsn::default()).unwrap();
    assert_eq!(records, [(first, b"first".to_vec())]);
    let second = log.append(b"second").unwrap();
    log.wait_until_durable(second).unwrap();
    let end = log.end();
    drop(log);
    // The second block of that group stands where the next one is to begin.
    let (log, records) = open(&device, end).unwrap();
    assert_eq!((records, log.end()), (Vec::new(), end));
    let third = log.append(b"third").unwrap();
    log.wait_until_durable(third).unwrap();
    let (_, records) = open(&device, Lsn::default()).unwrap();
    assert_eq!(records.iter().map(|(lsn, _)| *lsn).collect::<Vec<_>>(), [first, second, third]);
}

#[test]
fn files_of_another_length_are_left_alone() {
    let (device, _simulation) = in_memory(FaultPlan::none());
    run(&device, 0, |_| {}).unwrap();
    let other = LogOptions { file_bytes: 2 * FILE_BYTES, ..options() };
    let error =
        Log::open(device.clone(), LOG_ID, other, Lsn::default(), |_, _| Ok(())).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("not as long as"), "{error}");
    assert_eq!(found(&device, "afterwards"), RECORDS);
}

#[test]
fn a_log_is_read_from_any_record_on() {
    let (device, _simulation) = in_memory(FaultPlan::none());
    run(&device, 0, |_| {}).unwrap();
    let (log, records) = open(&device, Lsn::default()).unwrap();
    let end = log.end();
    drop(log);
    assert!(end.0 > FILE_BYTES, "several files");
    for (number, (lsn, _)) in records.iter().enumerate() {
        let (_, rest) = open(&device, *lsn).unwrap();
        assert_eq!(rest, records[number..]);
    }
    let (log, rest) = open(&device, end).unwrap();
    assert!(rest.is_empty());
    let lsn = log.append(b"more").unwrap();
    log.wait_until_durable(lsn).unwrap();
    let (_, rest) = open(&device, end).unwrap();
    assert_eq!(rest, [(lsn, b"more".to_vec())]);
}

#[test]
fn a_full_disk_refuses_records_and_keeps_those_before() {
    let blocks = 2 * FILE_BYTES / 4096;
    let (device, simulation) = in_memory(FaultPlan::none().capacity(blocks * 4096));
    let mut durable = 0;
    let error = run(&device, 0, |next| durable = next).unwrap_err().to_string();
    assert!(error.contains("no room for the log"), "{error}");
    assert_eq!(found(&device, "a full disk"), durable);
    simulation.set_plan(FaultPlan::none());
    run(&device, durable, |next| durable = next).unwrap();
    assert_eq!(found(&device, "with room again"), RECORDS);
}

#[test]
fn a_log_is_read_from_where_the_next_record_goes() {
    // One record fills a block to its end.
    for bytes in [0, 1, 100, 4056 - 4, 4056, 9000] {
        let (device, _simulation) = in_memory(FaultPlan::none());
        let (log, _) = open(&device, Lsn::default()).unwrap();
        let first = log.append(&vec![1; bytes]).unwrap();
        let next = log.next();
        log.wait_until_durable(first).unwrap();
        drop(log);
        let (log, records) = open(&device, next).unwrap();
        assert!(records.iter().all(|(lsn, _)| *lsn >= next), "{bytes} bytes");
        let second = log.append(b"second").unwrap();
        assert!(second >= next);
        log.wait_until_durable(second).unwrap();
        assert_eq!(
            open(&device, next).unwrap().1.last(),
            Some(&(second, b"second".to_vec())),
            "{bytes} bytes"
        );
        // Both in one group.
        let (device, _simulation) = in_memory(FaultPlan::none());
        let (log, _) = open(&device, Lsn::default()).unwrap();
        log.append(&vec![1; bytes]).unwrap();
        let next = log.next();
        let second = log.append(b"second").unwrap();
        assert!(second >= next, "{bytes} bytes");
        log.wait_until_durable(second).unwrap();
        assert_eq!(
            open(&device, next).unwrap().1.last(),
            Some(&(second, b"second".to_vec())),
            "{bytes} bytes"
        );
    }
}
