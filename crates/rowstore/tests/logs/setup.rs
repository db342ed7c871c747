//! A log in memory, and the records that tests write.

use nandina_device::Device;
use nandina_rowstore::Result;
use nandina_rowstore::log::{Log, LogOptions, Lsn};

pub const LOG_ID: u64 = 0x10_6000;
pub const FILE_BYTES: u64 = 64 << 10;

pub fn options() -> LogOptions {
    LogOptions { file_bytes: FILE_BYTES, waiting_bytes: 32 << 10 }
}

pub type Records = Vec<(Lsn, Vec<u8>)>;

/// Opens a log; with it the records that it had from `start` on.
pub fn open(device: &Device, start: Lsn) -> Result<(Log, Records)> {
    let mut records = Vec::new();
    let log = Log::open(device.clone(), LOG_ID, options(), start, |lsn, record| {
        records.push((lsn, record.to_vec()));
        Ok(())
    })?;
    Ok((log, records))
}

/// The record of this number: of a few bytes mostly, of several blocks now and then.
pub fn record(number: usize) -> Vec<u8> {
    let bytes = match number % 7 {
        3 => 9000 + number,
        5 => 0,
        _ => 20 + number % 50,
    };
    (0..bytes).map(|at| (number * 31 + at) as u8).collect()
}
