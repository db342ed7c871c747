//! Which device is it? A profile holds for the device it was measured on and for no other.

use std::ffi::CString;
use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// What a device tells about itself, as far as it does. See [`DeviceIdentity::of`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceIdentity {
    /// Name of the block device, such as `nvme0n1`; of a model, if the device is simulated.
    pub name: String,
    pub model: String,
    pub serial: String,
    /// Bytes of the block device; of the file system, if it has none.
    pub bytes: u64,
    /// Whether it turns, if the system knows.
    pub rotational: Option<bool>,
    /// `ext4`, `tmpfs`, `nfs` and so on.
    pub file_system: String,
    /// The file system's own identifier, in hex digits.
    pub file_system_id: String,
}

impl DeviceIdentity {
    /// Of the device behind an existing directory. What cannot be found out stays empty.
    pub fn of(directory: &Path) -> Self {
        let mut identity = Self::default();
        if let Some(figures) = statfs(directory) {
            identity.file_system = file_system_name(figures.f_type as u64);
            // SAFETY: eight bytes of plain numbers.
            let id: u64 = unsafe { std::mem::transmute(figures.f_fsid) };
            identity.file_system_id = format!("{id:016x}");
            identity.bytes = figures.f_blocks * figures.f_bsize as u64;
        }
        let Ok(found) = fs::metadata(directory) else { return identity };
        let (major, minor) = (libc::major(found.dev()), libc::minor(found.dev()));
        let Ok(block) = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) else { return identity };
        // A partition's folder lies in that of its disk, which has the queue.
        let disk = if block.join("queue").is_dir() { Some(block.as_path()) } else { block.parent() };
        let Some(disk) = disk else { return identity };
        let fact = |name: &str| fs::read_to_string(disk.join(name)).unwrap_or_default().trim().to_owned();
        identity.name = disk.file_name().unwrap_or_default().to_string_lossy().into_owned();
        identity.model = fact("device/model");
        identity.serial = [fact("device/serial"), fact("serial"), fact("wwid"), fact("device/wwid")]
            .into_iter()
            .find(|serial| !serial.is_empty())
            .unwrap_or_default();
        identity.bytes = fact("size").parse::<u64>().map_or(identity.bytes, |sectors| sectors * 512);
        identity.rotational = match fact("queue/rotational").as_str() {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        };
        identity
    }

    /// Of a drive model.
    pub fn of_model(name: &str, bytes: u64) -> Self {
        Self {
            name: format!("simulated {name}"),
            bytes,
            file_system: "none (in memory)".to_owned(),
            ..Self::default()
        }
    }

    /// Whether this is the same device: what may change between two looks (sizes of file systems, names given at
    /// start-up) does not count where there is something better.
    pub fn is_same_as(&self, other: &Self) -> bool {
        self.key() == other.key()
    }

    /// A name for files about this device: the same for the same device, of letters, digits and dashes.
    pub fn key(&self) -> String {
        let plain = |text: &str| -> String {
            let kept =
                text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
            kept.collect::<String>().split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
        };
        let own = if self.serial.is_empty() { &self.file_system_id } else { &self.serial };
        let parts = [&self.model, own, &self.file_system].map(|part| plain(part));
        let known = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
        if known.is_empty() { plain(&self.name) } else { known }
    }

    /// The device in words.
    pub fn describe(&self) -> String {
        let mut words: Vec<&str> = Vec::new();
        words.extend([self.model.as_str(), self.name.as_str()].into_iter().filter(|word| !word.is_empty()));
        if words.is_empty() {
            words.push("unnamed device");
        }
        match self.file_system.as_str() {
            "" => words.join(" "),
            file_system => format!("{}, {file_system}", words.join(" ")),
        }
    }

    /// What a measurement on it is worth mentioning for: files in memory, or on another machine.
    pub fn caveat(&self) -> Option<&'static str> {
        match self.file_system.as_str() {
            "tmpfs" | "ramfs" => {
                Some("files are kept in memory here; what was measured is memory, not a device")
            }
            "nfs" | "smb" | "cifs" | "9p" | "fuse" | "ceph" => Some(
                "files are kept by another system here; what was measured includes the way to it and its caches",
            ),
            "overlay" => Some("files go through an overlay here, as in containers"),
            _ => None,
        }
    }
}

fn statfs(directory: &Path) -> Option<libc::statfs> {
    let path = CString::new(directory.as_os_str().as_bytes()).ok()?;
    let mut figures = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the path ends in a zero byte and `figures` has room for the answer.
    if unsafe { libc::statfs(path.as_ptr(), figures.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: filled in by the call that succeeded.
    Some(unsafe { figures.assume_init() })
}

/// The names of Linux's magic numbers (`statfs(2)`).
fn file_system_name(magic: u64) -> String {
    let name = match magic & 0xffff_ffff {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x2fc1_2fc1 => "zfs",
        0xf2f5_2010 => "f2fs",
        0xca45_1a4e => "bcachefs",
        0x0102_1994 => "tmpfs",
        0x8584_58f6 => "ramfs",
        0x794c_7630 => "overlay",
        0x6969 => "nfs",
        0xfe53_4d42 => "smb",
        0xff53_4d42 => "cifs",
        0x0102_1997 => "9p",
        0x6573_5546 => "fuse",
        0x00c3_6400 => "ceph",
        other => return format!("{other:#x}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_directory_is_the_same_device() {
        let here = DeviceIdentity::of(&std::env::temp_dir());
        assert!(here.is_same_as(&DeviceIdentity::of(&std::env::temp_dir())));
        assert!(!here.key().is_empty());
        assert!(here.bytes > 0);
        assert!(here.key().chars().all(|c| c.is_ascii_alphanumeric() || c == '-'));
    }

    #[test]
    fn memory_and_network_are_said_to_be_so() {
        let shared_memory = Path::new("/dev/shm");
        if shared_memory.is_dir() {
            let memory = DeviceIdentity::of(shared_memory);
            assert_eq!(memory.file_system, "tmpfs");
            assert!(memory.caveat().unwrap_or_default().contains("memory"));
            assert!(!memory.is_same_as(&DeviceIdentity::of(Path::new("/proc"))));
        }
        let network = DeviceIdentity { file_system: file_system_name(0x6969), ..Default::default() };
        assert!(network.caveat().is_some());
    }

    #[test]
    fn a_serial_number_decides_and_a_name_does_not() {
        let disk = |name: &str, serial: &str| DeviceIdentity {
            name: name.to_owned(),
            model: "Fast 2000".to_owned(),
            serial: serial.to_owned(),
            ..Default::default()
        };
        assert!(disk("sda", "X1").is_same_as(&disk("sdb", "X1")));
        assert!(!disk("sda", "X1").is_same_as(&disk("sda", "X2")));
        assert_eq!(disk("sda", "X/1").key(), "fast-2000-x-1");
    }
}
