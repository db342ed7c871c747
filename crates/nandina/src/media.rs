//! Which device does a path lie on? One [`Device`] per file system, shared by everything that lies there.
//!
//! ```text
//!   /data/shop (database) ──┐
//!   /data/shop/temp ────────┼──► Device of /data ──► its profile, its governor, its counters
//!   /data/in/*.parquet ─────┘
//!   /var/tmp ───────────────────► Device of /
//! ```
//!
//! A device starts with the profile that was stored for it, or with an assumed one. It is measured the first time a
//! statement is about to read so much that sizes and depths matter ([`Media::know`]).

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nandina_device::calibration::Calibration;
use nandina_device::profile::{DeviceProfile, ProfileKind, ProfileStore};
use nandina_device::{BufferPool, Device, DeviceOptions, ExternalFile};
use parking_lot::Mutex;

use crate::options::OpenDevice;

/// The devices that a database and its sessions use.
pub(crate) struct Media {
    options: DeviceOptions,
    open_device: OpenDevice,
    profiles: ProfileStore,
    database: Option<PathBuf>,
    known: Mutex<HashMap<u64, Known>>,
}

struct Known {
    device: Device,
    /// Measuring was tried, or there was nothing to measure.
    settled: bool,
    /// Why a stored profile is not used.
    complaint: Option<String>,
}

impl Media {
    /// `database` is where a database lies, and where profiles go if the user has no folder for them.
    pub(crate) fn new(options: DeviceOptions, open_device: OpenDevice, database: Option<&Path>) -> Arc<Self> {
        // However many devices there are, the memory for idle buffers is one.
        let pool = BufferPool::new(options.retained_buffer_bytes);
        let options = DeviceOptions { buffer_pool: Some(pool), ..options };
        Arc::new(Self {
            options,
            open_device,
            profiles: profile_store(database),
            database: database.map(Path::to_path_buf),
            known: Mutex::default(),
        })
    }

    /// Where the database lies, if it lies anywhere.
    pub(crate) fn database_folder(&self) -> Option<PathBuf> {
        self.database.clone()
    }

    /// The device that an existing file or directory lies on. Names are relative to the root of its file system.
    pub(crate) fn device_of(&self, path: &Path) -> nandina_device::Result<Device> {
        let fail =
            |source| nandina_device::Error::Path { operation: "open", path: path.to_path_buf(), source };
        let path = path.canonicalize().map_err(fail)?;
        let number = fs::metadata(&path).map_err(fail)?.dev();
        let mut known = self.known.lock();
        if let Some(known) = known.get(&number) {
            return Ok(known.device.clone());
        }
        let device = self.open_device.open(&mount_point(&path, number), &self.options)?;
        let mut complaint = None;
        match self.profiles.load(&device.identity()) {
            Ok(Some(profile)) => device.set_profile(profile),
            Ok(None) => {}
            Err(error) => {
                log::warn!("{error}");
                complaint = Some(error.to_string());
            }
        }
        let settled = device.profile().kind != ProfileKind::Assumed;
        known.insert(number, Known { device: device.clone(), settled, complaint });
        Ok(device)
    }

    /// The device of an existing directory, with names relative to it.
    pub(crate) fn directory(&self, directory: &Path) -> nandina_device::Result<Device> {
        let device = self.device_of(directory)?;
        let path = directory.canonicalize().map_err(|source| nandina_device::Error::Path {
            operation: "open directory",
            path: directory.to_path_buf(),
            source,
        })?;
        match path.strip_prefix(device.path()).ok().map(Path::to_str) {
            Some(Some("")) => Ok(device),
            Some(Some(names)) => device.subdirectory(names),
            // Names in other encodings cannot be relative to a device.
            _ => self.open_device.open(&path, &self.options),
        }
    }

    /// Opens a file that another program wrote.
    pub(crate) fn open(&self, path: &Path) -> nandina_device::Result<Arc<ExternalFile>> {
        let device = self.device_of(path)?;
        let fail =
            |source| nandina_device::Error::Path { operation: "open", path: path.to_path_buf(), source };
        ExternalFile::open(&device, &path.canonicalize().map_err(fail)?)
    }

    /// Measures the device behind a directory if nothing is known about it, once: at most about two seconds, and
    /// 256 MiB written and deleted. What goes wrong is logged, and the assumed profile stays.
    pub(crate) fn know(&self, directory: &Path) {
        let Ok(device) = self.directory(directory) else { return };
        let Ok(number) = fs::metadata(device.path()).map(|found| found.dev()) else { return };
        match self.known.lock().get_mut(&number) {
            Some(known) if !known.settled => known.settled = true,
            _ => return,
        }
        // Another session or process may have measured it meanwhile.
        let identity = device.identity();
        if let Ok(Some(profile)) = self.profiles.load(&identity) {
            return device.set_profile(profile);
        }
        log::info!("measuring {}, once", identity.describe());
        match Calibration::quick().run(&device, &mut |_| true) {
            Ok(profile) => match self.profiles.save(&profile) {
                Ok(_) => device.set_profile(profile),
                Err(error) => {
                    log::warn!("{error}");
                    if profile.nonsense().is_none() {
                        device.set_profile(profile);
                    }
                }
            },
            Err(error) => log::info!("{error}"),
        }
    }

    /// Why the stored profile of a device is not used, if it is not.
    pub(crate) fn complaint(&self, device: &Device) -> Option<String> {
        let known = self.known.lock();
        let same = known.values().find(|known| known.device.identity() == device.identity());
        same.and_then(|known| known.complaint.clone())
    }

    /// All devices used so far.
    pub(crate) fn devices(&self) -> Vec<Device> {
        self.known.lock().values().map(|known| known.device.clone()).collect()
    }

    /// A new profile takes effect for what lies on the same device.
    pub(crate) fn learn(&self, profile: &DeviceProfile) {
        for known in self.known.lock().values_mut() {
            if known.device.identity().is_same_as(&profile.device) {
                known.device.set_profile(profile.clone());
                known.settled = true;
                known.complaint = None;
            }
        }
    }
}

/// Where profiles are kept: in the user's folder, or with the database.
pub(crate) fn profile_store(database: Option<&Path>) -> ProfileStore {
    ProfileStore::new(ProfileStore::user_folder().into_iter().chain(database.map(PathBuf::from)).collect())
}

/// The topmost directory above `path` that lies on the same file system.
fn mount_point(path: &Path, number: u64) -> PathBuf {
    let is_there = |candidate: &&Path| fs::metadata(candidate).is_ok_and(|found| found.dev() == number);
    let topmost = path.ancestors().take_while(is_there).last().unwrap_or(path);
    if topmost.is_dir() { topmost.to_path_buf() } else { path.parent().unwrap_or(path).to_path_buf() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_on_one_file_system_shares_a_device() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("a/b");
        fs::create_dir_all(&inside).unwrap();
        fs::write(inside.join("file"), "x").unwrap();
        let media = Media::new(DeviceOptions::default(), OpenDevice::default(), None);
        let devices: Vec<Device> = [folder.path(), &inside, &inside.join("file")]
            .into_iter()
            .map(|path| media.device_of(path).unwrap())
            .collect();
        assert!(devices.windows(2).all(|pair| std::ptr::eq(pair[0].counters(), pair[1].counters())));
        assert!(inside.canonicalize().unwrap().starts_with(devices[0].path()));
        let below = media.directory(&inside).unwrap();
        assert_eq!(below.path(), inside.canonicalize().unwrap());
        assert!(std::ptr::eq(below.counters(), devices[0].counters()));
        let memory = Path::new("/dev/shm");
        if memory.is_dir() && fs::metadata(memory).unwrap().dev() != fs::metadata(&inside).unwrap().dev() {
            let other = media.device_of(memory).unwrap();
            assert!(!std::ptr::eq(other.counters(), devices[0].counters()));
            assert!(Arc::ptr_eq(other.buffer_pool(), devices[0].buffer_pool()), "idle buffers are shared");
        }
        assert!(media.device_of(&inside.join("missing")).is_err());
    }
}
