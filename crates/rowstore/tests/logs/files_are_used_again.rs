use nandina_device::Device;
use nandina_rowstore::Result;
use nandina_rowstore::log::Lsn;
use nandina_simulation::{CrashOutcome, FaultPlan, in_memory};

use crate::setup::{FILE_BYTES, open, record};

const RECORDS: usize = 150;
/// So many of the last records are needed.
const NEEDED: usize = 10;

/// Writes records and releases those that are not needed; tells where reading has to begin, as a checkpoint would.
fn run(device: &Device, mut durable: impl FnMut(usize, usize, Lsn)) -> Result<()> {
    let (log, _) = open(device, Lsn::default())?;
    let mut addresses = Vec::new();
    for number in 0..RECORDS {
        let lsn = log.append(&record(number))?;
        log.wait_until_durable(lsn)?;
        addresses.push(lsn);
        let first = addresses.len().saturating_sub(NEEDED);
        durable(number + 1, first, addresses[first]);
        log.release_before(addresses[first])?;
    }
    Ok(())
}

fn log_files(device: &Device) -> Vec<String> {
    device.list().unwrap().into_iter().filter(|name| name.ends_with(".log")).collect()
}

#[test]
fn a_log_takes_no_more_space_than_it_needs() {
    let (device, _simulation) = in_memory(FaultPlan::none());
    let mut most = 0;
    run(&device, |_, _, _| most = most.max(log_files(&device).len())).unwrap();
    assert!(most as u64 <= 2 + NEEDED as u64 * 12_000 / FILE_BYTES + 2, "{most} files");
    // What has been released is missed.
    let error = open(&device, Lsn(0)).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("is damaged"), "{error}");
}

#[test]
fn power_fails_at_every_event_of_using_files_again() {
    let (device, simulation) = in_memory(FaultPlan::none());
    run(&device, |_, _, _| {}).unwrap();
    for event in (0..simulation.events()).rev() {
        for outcome in
            [CrashOutcome::LoseUnsynced, CrashOutcome::KeepAll, CrashOutcome::Random { seed: event }]
        {
            let (device, simulation) = in_memory(FaultPlan::none().power_loss_at(event));
            let (mut durable, mut first, mut start) = (0, 0, Lsn::default());
            let ended = run(&device, |next, needed, lsn| (durable, first, start) = (next, needed, lsn));
            assert!(ended.is_err());
            simulation.crash(outcome);
            let context = format!("event {event}, {outcome:?}");
            let (log, records) = open(&device, start).unwrap_or_else(|error| panic!("{context}: {error}"));
            let numbers = first..first + records.len();
            assert!((durable..=durable + 1).contains(&numbers.end), "{context}: {numbers:?} of {durable}");
            assert!(numbers.zip(&records).all(|(number, (_, bytes))| *bytes == record(number)), "{context}");
            let lsn = log.append(b"more").unwrap();
            log.wait_until_durable(lsn).unwrap();
        }
    }
}
