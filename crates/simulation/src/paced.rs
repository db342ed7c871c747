//! A real directory, slowed down to a model of a drive.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use nandina_device::medium::{FileSystem, Medium as _};
use nandina_device::{Device, DeviceOptions, Error, Result, SystemClock};

use crate::drive::DriveModel;
use crate::timing::{Time, TimedBackend, TimedMedium, Timing};

/// A drive to wait for.
#[derive(Debug, Clone, PartialEq)]
pub struct PacedDrive {
    pub model: DriveModel,
    pub seed: u64,
    /// Whether freed ranges are told to the drive, as on a file system mounted with `discard`.
    pub discard: bool,
}

impl PacedDrive {
    /// A device on an existing directory whose requests take as long as on this drive, in the system's time, whatever
    /// the medium could do; for experiments. A medium that is slower than the model stays so. Small whole files and file
    /// names are not slowed down.
    pub fn open(&self, directory: &Path, options: &DeviceOptions) -> Result<Device> {
        let clock = Arc::new(SystemClock);
        let timing = Arc::new(Timing::new(Arc::clone(&clock) as _, &self.model, self.seed, self.discard));
        let files = FileSystem::of(directory)?;
        let pacer = Pacer::start(Arc::clone(&timing))
            .map_err(|source| Error::path("start a thread for", files.root(), source))?;
        let medium = TimedMedium::new(files, Arc::clone(&timing), self.model.identity());
        Device::assemble(Box::new(medium), clock, options, |sink| {
            let backend = TimedBackend::new(timing, pacer, sink, |sink| options.open_backend(sink))?;
            Ok(Box::new(backend))
        })
    }
}

/// The thread that ends requests at their time.
struct Pacer {
    timing: Arc<Timing>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pacer {
    fn start(timing: Arc<Timing>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("nandina-pacer".into()).spawn({
            let (timing, stop) = (Arc::clone(&timing), Arc::clone(&stop));
            move || {
                sleep_precisely();
                timing.pace(|| stop.load(Ordering::SeqCst));
            }
        })?;
        Ok(Self { timing, stop, thread: Some(thread) })
    }
}

impl Time for Pacer {
    fn woken(&self) -> Option<u64> {
        None
    }

    fn step(&self) -> bool {
        false
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.timing.wake_pacer();
        if let Some(thread) = self.thread.take() {
            // The last owner of the device may be an operation that the pacer has just delivered.
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                log::error!("the pacer thread panicked");
            }
        }
    }
}

/// Sleeps of this thread end when they should, not up to 50 µs later to save power.
fn sleep_precisely() {
    #[cfg(target_os = "linux")]
    // SAFETY: sets a number of this thread.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0);
    }
}
