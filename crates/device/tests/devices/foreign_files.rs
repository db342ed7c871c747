//! Files of any length, read in any ranges, from the page cache and past it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use std::io::Write as _;
use std::ops::Range;
use std::path::Path;

use futures::executor::block_on;
use nandina_device::{Device, DeviceOptions, Error, ExternalFile};

fn contents(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Writes a file and makes the page cache forget it.
fn write_cold(path: &Path, contents: &[u8]) {
    let mut file = std::fs::File::create(path).unwrap();
    file.write_all(contents).unwrap();
    file.sync_all().unwrap();
    #[cfg(target_os = "linux")]
    // SAFETY: advice about an open file.
    unsafe {
        use std::os::fd::AsRawFd as _;
        libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED);
    }
}

#[test]
fn every_range_of_a_file_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::open("/", DeviceOptions::default()).unwrap();
    for bytes in [1usize, 4095, 4096, 4097, 3 * 4096 + 17, (3 << 20) + 5] {
        let (path, expected) = (folder.path().canonicalize().unwrap().join("file"), contents(bytes));
        let end = bytes as u64;
        let mut ranges: Vec<Range<u64>> = vec![0..end, 0..1, end - 1..end, end / 2..end, end / 3..end / 2];
        ranges.push(0..0);
        for warm in [false, true] {
            write_cold(&path, &expected);
            if warm {
                assert_eq!(std::fs::read(&path).unwrap(), expected);
            }
            let file = ExternalFile::open(&device, &path).unwrap();
            assert_eq!((file.len(), file.is_empty()), (end, false));
            let read = block_on(file.read(&ranges)).unwrap();
            for (range, read) in ranges.iter().zip(read) {
                let expected = &expected[range.start as usize..range.end as usize];
                assert!(read == expected, "{range:?} of {bytes} bytes, warm: {warm}");
            }
        }
    }
}

#[test]
fn ranges_past_the_end_and_missing_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::open("/", DeviceOptions::default()).unwrap();
    let path = folder.path().canonicalize().unwrap().join("file");
    assert!(ExternalFile::open(&device, &path).is_err());
    let detour = folder.path().join("nowhere/../file");
    assert!(matches!(ExternalFile::open(&device, &detour), Err(Error::InvalidName { .. })));
    std::fs::write(&path, b"abc").unwrap();
    let file = ExternalFile::open(&device, &path).unwrap();
    let error = block_on(file.read(&[0..3, 1..9])).unwrap_err();
    assert!(matches!(error, Error::PastEnd { found_bytes: 2, .. }), "{error}");
    assert!(block_on(file.read(&[])).unwrap().is_empty());
}
