//! The profile of a device, and the sizes and depths that follow from it.

mod discards;
mod identity;
mod read_model;
mod write_model;

pub use discards::DiscardCosts;
pub(crate) use discards::{PIECE_BYTES, PIECES, is_mounted_with_discard};
pub use identity::DeviceIdentity;
use read_model::to_nanos;
pub use read_model::{PageCosts, ReadGrid, ReadModel, ReadPoint, STOP_GAIN};
pub(crate) use write_model::median;
pub use write_model::{SustainedWrites, WriteModel, WritePoint};

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::BLOCK_BYTES;
use crate::error::{Error, Result};

const MAGIC: &str = "NANDINA DEVICE PROFILE";
const VERSION: u32 = 1;

/// How a profile came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProfileKind {
    /// Nothing was measured: figures of an NVMe drive.
    Assumed,
    Quick,
    Full,
}

/// A measured device. The figures are those of reads and writes past the page cache, as far as the file system permits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceProfile {
    pub kind: ProfileKind,
    pub device: DeviceIdentity,
    /// Seconds since 1970.
    pub measured_at: u64,
    /// `io_uring`, `thread pool` or `simulated`.
    pub backend: String,
    /// Whether the page cache was bypassed.
    pub direct: bool,
    pub reads: ReadModel,
    pub writes: WriteModel,
    /// Of a full calibration.
    pub sustained: Option<SustainedWrites>,
    /// What giving space back costs, if that was measured.
    #[serde(default)]
    pub discards: Option<DiscardCosts>,
    pub noise: Noise,
    /// What measuring took.
    pub seconds: f64,
    pub bytes_written: u64,
    /// Time ran out before all points were measured; the others were extended from their neighbours.
    pub cut_short: bool,
}

/// How far repeated measurements of the same point lay apart: (largest − smallest) ÷ median.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    pub repeated_points: usize,
    pub median_spread: f64,
    pub worst_spread: f64,
}

/// Sizes and depths for reading and writing, from a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoSizes {
    /// Reading a gap of fewer bytes along costs less than another request.
    pub gap_bytes: usize,
    /// The smallest read that reaches the full bandwidth.
    pub read_bytes: usize,
    /// Most reads of that size that are worth having outstanding.
    pub read_depth: usize,
    /// Most 4 KiB reads that are worth having outstanding.
    pub small_read_depth: usize,
    /// The smallest write that reaches the full bandwidth: the partitioner's sub-buffer.
    pub write_bytes: usize,
    /// The smallest write that is worth its request where larger ones would take a pass over the data more. A pass
    /// writes everything again, which costs what writing it once at half the bandwidth does.
    pub least_write_bytes: usize,
    /// The fewest writes of the size that reaches the full bandwidth that have to be outstanding for it.
    pub write_depth: usize,
    /// Fewest writes that a partition's ring of sub-buffers is cut into.
    pub ring_writes: usize,
    /// Size of a table's pages at which skipping one of sixteen columns starts to pay.
    pub page_bytes: usize,
}

/// Large reads that an arm may choose from, and a quarter of the small ones: scans of some columns on a disk take up to
/// 1.6 times as long with 4 (docs/benchmarks/sizes.md).
const ARM_READS: usize = 8;
/// A ring is written while it is filled on: all of it but one sub-buffer at most. More sub-buffers mean fewer and longer
/// trips of an arm, worth a fifth of the time of partitioning; on flash they gain nothing (docs/benchmarks/sizes.md).
const ARM_RING_WRITES: usize = 16;
const RING_WRITES: usize = 4;
/// Below this taking a page apart costs more than reading it (docs/benchmarks/scan.md).
const LEAST_PAGE_BYTES: usize = 64 << 10;
/// Only where an arm has to move is skipping less than this not worth a request. A smaller gap may have been measured
/// while the processor was busy, and a table keeps its page size.
const DISK_GAP_BYTES: u64 = 256 << 10;

/// Spreads beyond this make a measurement worthless.
const WORTHLESS_SPREAD: f64 = 0.5;
/// No storage reads a page faster than this; a faster answer came from somewhere else.
const FASTEST_READ_MICROS: f64 = 0.05;

impl IoSizes {
    /// Reads in flight per read that the device serves at once: while one half is consumed, the other is read.
    const WINDOWS: usize = 2;

    /// Bytes of large reads that one reader keeps in flight or in hand.
    pub fn read_window_bytes(&self) -> usize {
        (self.read_bytes * self.read_depth * Self::WINDOWS).clamp(1 << 20, 16 << 20)
    }

    /// Bytes of reads of single pages' columns, some 16 KiB each, that one reader keeps in flight or in hand.
    pub fn small_read_window_bytes(&self) -> usize {
        (self.small_read_depth * Self::WINDOWS * (16 << 10)).clamp(self.read_window_bytes(), 16 << 20)
    }

    /// Bytes of writes that are waited for together: as many as the device works on at once.
    pub fn write_group_bytes(&self) -> usize {
        (self.write_bytes * self.write_depth).clamp(512 << 10, 4 << 20)
    }

    /// Bytes of one write among many in sequence: larger than what the device needs, for the processor's sake.
    pub fn bulk_write_bytes(&self) -> usize {
        self.write_bytes.max(1 << 20)
    }

    /// Bytes of such writes that one writer keeps in flight.
    pub fn write_window_bytes(&self) -> usize {
        (self.write_bytes * self.write_depth * Self::WINDOWS).clamp(4 * self.bulk_write_bytes(), 16 << 20)
    }
}

impl DeviceProfile {
    /// The profile assumed for a device that was not measured: an NVMe drive of the middling sort, 90 µs for a small
    /// read alone, 3 GB/s, 150,000 small reads a second.
    pub fn assumed(device: DeviceIdentity) -> Self {
        let page = |page_bytes: u32| {
            let depths: Vec<u32> = (0..=9).map(|power| 1 << power).collect();
            let alone = 86.0 + f64::from(page_bytes) / 1024.0;
            let together = (5.3 + f64::from(page_bytes) / 3000.0).max(alone / 32.0);
            let at = |depth: u32| to_nanos((alone / f64::from(depth)).max(together));
            // As the stop rule would have it.
            let gains = |pair: &&[u32]| match **pair {
                [before, depth] => at(depth) <= at(before) * (1.0 - STOP_GAIN),
                _ => false,
            };
            let measured_depths = 1 + depths.windows(2).take_while(gains).count();
            PageCosts {
                page_bytes,
                band_pages: vec![1, 1 << 30],
                micros: depths.iter().map(|&depth| vec![at(depth); 2]).collect(),
                measured_depths,
                stopped_by: None,
                depths,
            }
        };
        let reads = ReadModel { pages: (12..=20).map(|power| page(1 << power)).collect() };
        let write_bytes: Vec<u32> = (12..=21).map(|power| 1 << power).collect();
        let depths: Vec<u32> = (0..=9).map(|power| 1 << power).collect();
        let rate = |bytes: u32, depth: u32| {
            let one = f64::from(bytes) / (30e-6 + f64::from(bytes) / 2.0e9);
            (one * f64::from(depth)).min(f64::from(bytes) / (4e-6 + f64::from(bytes) / 1.7e9)).round()
        };
        let bytes_per_second = write_bytes
            .iter()
            .map(|&bytes| depths.iter().map(|&depth| rate(bytes, depth)).collect())
            .collect();
        Self {
            kind: ProfileKind::Assumed,
            device,
            measured_at: 0,
            backend: String::new(),
            direct: true,
            reads,
            writes: WriteModel { write_bytes, depths, bytes_per_second },
            sustained: None,
            discards: None,
            noise: Noise::default(),
            seconds: 0.0,
            bytes_written: 0,
            cut_short: false,
        }
    }

    /// The sizes and depths that follow.
    pub fn sizes(&self) -> IoSizes {
        let power_of_two = |bytes: u64, least: usize, most: usize| {
            (bytes.max(1) as usize).next_power_of_two().clamp(least, most)
        };
        let gap = self.reads.gap_bytes();
        let (least_depth, ring_writes) =
            if self.reads.has_arm() { (ARM_READS, ARM_RING_WRITES) } else { (1, RING_WRITES) };
        let most_page_bytes = if gap < DISK_GAP_BYTES { 512 << 10 } else { 4 << 20 };
        let read = power_of_two(self.reads.smallest_full_read_bytes(), 64 << 10, 1 << 20);
        let write = power_of_two(self.writes.smallest_full_write_bytes(), 4 << 10, 1 << 20);
        IoSizes {
            // Whole blocks are read along; where not even one is worth it, none is.
            gap_bytes: (gap as usize).min(1 << 20) / BLOCK_BYTES * BLOCK_BYTES,
            read_bytes: read,
            read_depth: (self.reads.full_depth(read as u64) as usize).max(least_depth),
            small_read_depth: (self.reads.full_depth(4096) as usize).max(4 * least_depth),
            write_bytes: write,
            // Twice what reaches half: reads and other writes share the device.
            least_write_bytes: power_of_two(2 * self.writes.smallest_write_bytes(0.5), 4 << 10, write),
            write_depth: self.writes.useful_depth(write as u64) as usize,
            ring_writes,
            page_bytes: power_of_two(gap.saturating_mul(16) * 3 / 4, LEAST_PAGE_BYTES, most_page_bytes),
        }
    }

    /// Whether telling the drive of freed space costs next to nothing, so that it can be told at once.
    pub fn discards_cheaply(&self) -> bool {
        self.discards.is_some_and(|costs| costs.is_cheap(self.writes.full_bandwidth()))
    }

    /// Why the profile cannot be true, if it cannot.
    pub fn nonsense(&self) -> Option<String> {
        if !self.reads.is_sound() || !self.writes.is_sound() {
            return Some("its tables are incomplete or hold figures that are none".to_owned());
        }
        let fastest = self.reads.pages().iter().flat_map(|costs| costs.micros.iter().flatten());
        let fastest = fastest.copied().fold(f64::INFINITY, f64::min);
        if fastest < FASTEST_READ_MICROS {
            return Some(format!("a page cannot be read in {fastest:.3} µs"));
        }
        if self.noise.median_spread > WORTHLESS_SPREAD {
            return Some(format!(
                "repeated measurements lay {:.0} % apart: something else keeps the device or the processor busy",
                self.noise.median_spread * 100.0
            ));
        }
        None
    }

    /// The profile as a file: a line with a checksum, then JSON.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let json = serde_json::to_vec_pretty(self).map_err(|error| Error::Profile {
            file: PathBuf::from("new profile"),
            reason: error.to_string(),
        })?;
        let mut file =
            format!("{MAGIC} {VERSION} {:08x} {}\n", crc32c::crc32c(&json), json.len()).into_bytes();
        file.extend(json);
        Ok(file)
    }

    /// Reads what [`Self::to_bytes`] wrote; the name is for messages.
    pub fn from_bytes(bytes: &[u8], file: &Path) -> Result<Self> {
        let fail = |reason: String| Error::Profile { file: file.to_path_buf(), reason };
        let line_end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
        let (line, json) = bytes.split_at(line_end);
        let json = json.get(1..).unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let Some(facts) = line.strip_prefix(MAGIC) else {
            return Err(fail("it is not a device profile".to_owned()));
        };
        let facts: Vec<&str> = facts.split_whitespace().collect();
        let &[version, checksum, length] = facts.as_slice() else {
            return Err(fail("its first line is damaged".to_owned()));
        };
        if version.parse() != Ok(VERSION) {
            return Err(fail(format!("it has format version {version}; this program knows {VERSION}")));
        }
        if length.parse() != Ok(json.len()) {
            return Err(fail(format!("it has {} bytes of {length}: it is truncated", json.len())));
        }
        if u32::from_str_radix(checksum, 16) != Ok(crc32c::crc32c(json)) {
            return Err(fail("its checksum does not match".to_owned()));
        }
        let profile: Self = serde_json::from_slice(json).map_err(|error| fail(error.to_string()))?;
        match profile.nonsense() {
            Some(reason) => Err(fail(reason)),
            None => Ok(profile),
        }
    }
}

/// Folders that hold profiles, a file per device. The first one is written to.
#[derive(Debug, Clone)]
pub struct ProfileStore {
    folders: Vec<PathBuf>,
}

impl ProfileStore {
    pub fn new(folders: Vec<PathBuf>) -> Self {
        Self { folders }
    }

    /// The user's folder for what can be made again, if there is one: `$XDG_CACHE_HOME/nandina` or `~/.cache/nandina`.
    pub fn user_folder() -> Option<PathBuf> {
        let absolute = |path: PathBuf| path.is_absolute().then_some(path);
        let from = |variable: &str| std::env::var_os(variable).map(PathBuf::from).and_then(absolute);
        let cache = from("XDG_CACHE_HOME").or_else(|| from("HOME").map(|home| home.join(".cache")))?;
        Some(cache.join("nandina"))
    }

    fn file(folder: &Path, device: &DeviceIdentity) -> PathBuf {
        folder.join(format!("device-{}.profile", device.key()))
    }

    /// The stored profile of a device. A damaged file, or one about another device, is an error that names it.
    pub fn load(&self, device: &DeviceIdentity) -> Result<Option<DeviceProfile>> {
        for folder in &self.folders {
            let path = Self::file(folder, device);
            let bytes = match fs::read(&path) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(source) => return Err(Error::path("read", &path, source)),
            };
            let profile = DeviceProfile::from_bytes(&bytes, &path)?;
            if !profile.device.is_same_as(device) {
                let reason = format!("it is about another device ({})", profile.device.describe());
                return Err(Error::Profile { file: path, reason });
            }
            return Ok(Some(profile));
        }
        Ok(None)
    }

    /// Stores a profile in the first folder that can be written to; returns where. Nonsense is refused.
    pub fn save(&self, profile: &DeviceProfile) -> Result<PathBuf> {
        if let Some(reason) = profile.nonsense() {
            return Err(Error::Calibration { device: profile.device.describe(), reason });
        }
        let bytes = profile.to_bytes()?;
        let mut failure = None;
        for folder in &self.folders {
            let path = Self::file(folder, &profile.device);
            match replace(&path, &bytes) {
                Ok(()) => return Ok(path),
                Err(source) => failure = failure.or(Some(Error::path("write", &path, source))),
            }
        }
        Err(failure.unwrap_or_else(|| Error::Calibration {
            device: profile.device.describe(),
            reason: "there is no folder to keep the profile in; set HOME or XDG_CACHE_HOME".to_owned(),
        }))
    }
}

/// Replaces a file as a whole, so that another process reads the old or the new one.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let unfinished = path.with_extension(format!("new-{}", std::process::id()));
    let written = fs::File::create(&unfinished).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_data()?;
        fs::rename(&unfinished, path)
    });
    if written.is_err() {
        // Whatever is left of it; that it cannot be removed either is no further news.
        let _ = fs::remove_file(&unfinished);
    }
    written
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

    use super::*;

    fn profile() -> DeviceProfile {
        DeviceProfile::assumed(DeviceIdentity { serial: "A1".to_owned(), ..Default::default() })
    }

    #[test]
    fn assumed_sizes_are_those_that_served_an_nvme_drive() {
        let profile = profile();
        assert_eq!(profile.nonsense(), None);
        let sizes = profile.sizes();
        assert_eq!(sizes.read_bytes, 256 << 10, "{sizes:?}");
        assert_eq!(sizes.small_read_depth, 16);
        assert_eq!(sizes.page_bytes, 256 << 10);
        assert!((8 << 10..=16 << 10).contains(&sizes.gap_bytes), "{sizes:?}");
        assert_eq!(sizes.write_bytes, 64 << 10);
    }

    #[test]
    fn profiles_are_kept_per_device() {
        let folder = tempfile::tempdir().unwrap();
        let unwritable = folder.path().join("a file");
        fs::write(&unwritable, "").unwrap();
        let store = ProfileStore::new(vec![unwritable, folder.path().to_path_buf()]);
        let profile = profile();
        assert_eq!(store.load(&profile.device).ok(), None, "a file is no folder");

        let store = ProfileStore::new(vec![folder.path().to_path_buf()]);
        assert_eq!(store.load(&profile.device).unwrap(), None);
        let path = store.save(&profile).unwrap();
        assert_eq!(store.load(&profile.device).unwrap().unwrap(), profile);
        let other = DeviceIdentity { serial: "B2".to_owned(), ..Default::default() };
        assert_eq!(store.load(&other).unwrap(), None);
        // A file under the name of another device.
        fs::copy(&path, ProfileStore::file(folder.path(), &other)).unwrap();
        assert!(store.load(&other).unwrap_err().to_string().contains("another device"));
    }

    #[test]
    fn damaged_files_are_refused_with_the_reason() {
        let path = Path::new("x.profile");
        let bytes = profile().to_bytes().unwrap();
        assert!(DeviceProfile::from_bytes(&bytes, path).is_ok());
        let reason = |bytes: &[u8]| DeviceProfile::from_bytes(bytes, path).unwrap_err().to_string();
        assert!(reason(b"").contains("x.profile"));
        assert!(reason(b"PAR1").contains("not a device profile"));
        assert!(reason(&bytes[..bytes.len() - 1]).contains("truncated"));
        let mut flipped = bytes.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 1;
        assert!(reason(&flipped).contains("checksum"));
        let newer = String::from_utf8(bytes).unwrap().replacen("PROFILE 1", "PROFILE 2", 1);
        assert!(reason(newer.as_bytes()).contains("version 2"));
    }

    #[test]
    fn nonsense_is_not_stored() {
        let folder = tempfile::tempdir().unwrap();
        let store = ProfileStore::new(vec![folder.path().to_path_buf()]);
        let mut noisy = profile();
        noisy.noise.median_spread = 0.8;
        assert!(store.save(&noisy).unwrap_err().to_string().contains("80 % apart"));
        let mut empty = profile();
        empty.writes.bytes_per_second.clear();
        assert!(store.save(&empty).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
