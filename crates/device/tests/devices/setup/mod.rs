//! The devices that behaviour tests run on: every test holds on each of them.

#![allow(dead_code, clippy::unwrap_used, reason = "each test program uses a part")]

use std::path::Path;

use nandina_device::{AlignedBuffer, Backend, Device, DeviceOptions};
use nandina_simulation::FaultPlan;

pub struct TestDevice {
    pub name: &'static str,
    pub device: Device,
    _directory: Option<tempfile::TempDir>,
}

fn on_disk(name: &'static str, parent: &Path, options: DeviceOptions) -> Option<TestDevice> {
    let directory = tempfile::tempdir_in(parent).unwrap();
    match Device::open(directory.path(), options) {
        Ok(device) => Some(TestDevice { name, device, _directory: Some(directory) }),
        // Only io_uring may be missing, where the kernel forbids it.
        Err(error) => {
            assert!(error.to_string().contains("io_uring"), "{error}");
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// Real devices with the given options, on disk and (through the page cache) in shared memory.
pub fn real_devices(options: &DeviceOptions) -> Vec<TestDevice> {
    let with = |backend, direct| DeviceOptions { backend, direct, ..options.clone() };
    let disk = std::env::temp_dir();
    let memory = Path::new("/dev/shm");
    let mut devices = vec![
        on_disk("io_uring", &disk, with(Backend::IoUring, true)),
        on_disk("thread pool", &disk, with(Backend::ThreadPool, true)),
        on_disk("io_uring, page cache", &disk, with(Backend::IoUring, false)),
    ];
    if memory.is_dir() {
        devices.push(on_disk("io_uring in memory", memory, with(Backend::IoUring, true)));
        devices.push(on_disk("thread pool in memory", memory, with(Backend::ThreadPool, true)));
    }
    devices.into_iter().flatten().collect()
}

/// Real devices and the simulated one.
pub fn all_devices() -> Vec<TestDevice> {
    let mut devices = real_devices(&DeviceOptions::default());
    let (device, _) = nandina_simulation::in_memory(FaultPlan::none());
    devices.push(TestDevice { name: "simulated", device, _directory: None });
    devices
}

pub const KIB4: usize = 4096;

pub fn filled(device: &Device, bytes: usize, value: u8) -> AlignedBuffer {
    let mut buffer = device.buffer(bytes);
    buffer.fill(value);
    buffer
}
