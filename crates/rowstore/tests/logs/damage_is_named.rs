use nandina_device::{Device, FileClass, OpenMode};
use nandina_rowstore::log::{Log, Lsn};
use nandina_simulation::{FaultPlan, in_memory};

use crate::setup::{FILE_BYTES, LOG_ID, open, options, record};

const BLOCK_BYTES: u64 = 4096;

/// A log of so many groups of one record; where each begins, and where the log ends.
fn written(device: &Device, records: usize) -> Vec<u64> {
    let (log, _) = open(device, Lsn::default()).unwrap();
    let mut begins = Vec::new();
    for number in 0..records {
        let lsn = log.append(&record(number)).unwrap();
        log.wait_until_durable(lsn).unwrap();
        begins.push(lsn.0 - lsn.0 % BLOCK_BYTES);
    }
    begins.push(log.end().0);
    begins
}

pub fn flip(device: &Device, lsn: u64) {
    let name = format!("{:016x}.log", lsn / FILE_BYTES);
    let file = device.open_file(&name, FileClass::Log, OpenMode::ReadWrite).unwrap();
    let block = lsn % FILE_BYTES / BLOCK_BYTES * BLOCK_BYTES;
    let mut buffer = file.read_blocking(block, device.buffer(BLOCK_BYTES as usize)).unwrap();
    buffer[(lsn % BLOCK_BYTES) as usize] ^= 0x10;
    file.write_blocking(block, buffer).unwrap();
    file.sync().unwrap();
}

#[test]
fn what_was_durable_is_missed() {
    let records = 20;
    let (device, _simulation) = in_memory(FaultPlan::none());
    let begins = written(&device, records);
    for block in (0..begins[records]).step_by(BLOCK_BYTES as usize) {
        let at = block + 39;
        flip(&device, at);
        let outcome = open(&device, Lsn::default());
        if block >= begins[records - 1] {
            // The last group may not have been on the device: no other one says that it was.
            assert_eq!(outcome.unwrap().1.len(), records - 1, "block {block}");
            flip(&device, at);
            continue;
        }
        let error = outcome.map(|_| ()).unwrap_err().to_string();
        // It is the group with that block whose place is told.
        let group = begins.iter().rev().find(|begin| **begin <= block).unwrap();
        let place = format!("{:016x}.log is damaged at byte {}", group / FILE_BYTES, group % FILE_BYTES);
        assert!(error.contains(&place), "{error}");
        flip(&device, at);
        assert_eq!(open(&device, Lsn::default()).unwrap().1.len(), records);
    }
}

#[test]
fn the_record_to_begin_with_has_to_be_there() {
    let (device, _simulation) = in_memory(FaultPlan::none());
    written(&device, 3);
    let (_, records) = open(&device, Lsn::default()).unwrap();
    let last = records[2].0;
    flip(&device, last.0);
    let error = open(&device, last).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("is not there"), "{error}");
}

#[test]
fn the_log_of_another_database_is_none() {
    let (device, _simulation) = in_memory(FaultPlan::none());
    written(&device, 5);
    let mut records = 0;
    let other = Log::open(device, LOG_ID + 1, options(), Lsn::default(), |_, _| {
        records += 1;
        Ok(())
    });
    assert_eq!((records, other.unwrap().end()), (0, Lsn(0)));
}
