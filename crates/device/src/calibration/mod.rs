//! What is this device good for? Measured, not assumed.
//!
//! ```text
//!   scratch file ──► fill (writing on and on)  ──► SustainedWrites
//!        │      ──► reads: size × depth × band ──► ReadModel    (DTT, QDTT)
//!        │      ──► writes: size × depth       ──► WriteModel
//!        │      ──► holes                       ──► DiscardCosts
//!        └─ gone as soon as it is open                 │
//!                                                 DeviceProfile ──► ProfileStore ──► the next session
//!                                                      └──► IoSizes: what storage and spill use
//! ```
//!
//! A *quick* calibration takes at most about two seconds and writes at most 256 MiB; it measures fewer sizes and bands
//! over a smaller file. A *full* one measures every point three times and writes until the file is a good part of the
//! drive. Both are the same experiments.

mod measure;
mod validation;

use std::time::{Duration, SystemTime};

use self::measure::{Scratch, Slice};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::profile::{
    DeviceProfile, DiscardCosts, Noise, PageCosts, ProfileKind, ReadGrid, ReadModel, ReadPoint,
    SustainedWrites, WriteModel, WritePoint, median,
};

/// How to calibrate.
#[derive(Debug, Clone)]
pub struct Calibration {
    kind: ProfileKind,
    scratch_bytes: u64,
    window_bytes: u64,
    reads: ReadGrid,
    write_bytes: Vec<u32>,
    write_depths: Vec<u32>,
    /// Of every point.
    repeats: usize,
    read_slice: Slice,
    write_slice: Slice,
    /// After these, reads of further sizes are left out, and writes extended from their neighbours.
    read_deadline: Option<Duration>,
    write_deadline: Option<Duration>,
    /// The same for what has been written.
    most_bytes_written: u64,
    /// Memory for reads in flight: no more of a size are tried than fit.
    ring_bytes: u64,
    /// Time after which the scratch file is large enough, whatever size it has.
    fill_time: Option<Duration>,
    seed: u64,
}

/// What a calibration is going to cost at most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub seconds: f64,
    pub bytes_written: u64,
    /// Space that it takes while it lasts.
    pub scratch_bytes: u64,
}

/// How far a calibration has come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// From 0 to 1.
    pub share: f64,
    /// The measurement in progress.
    pub stage: &'static str,
}

/// Smallest scratch file that tells anything.
const LEAST_SCRATCH_BYTES: u64 = 16 << 20;
/// A calibration never takes more than this part of the free space.
const FREE_SHARE: u64 = 8;

fn powers(range: std::ops::RangeInclusive<u32>) -> Vec<u32> {
    range.map(|power| 1 << power).collect()
}

impl Calibration {
    /// At most about two seconds and 256 MiB.
    pub fn quick() -> Self {
        Self {
            kind: ProfileKind::Quick,
            scratch_bytes: 128 << 20,
            window_bytes: 16 << 20,
            reads: ReadGrid {
                page_bytes: vec![4 << 10, 1 << 20, 64 << 10, 16 << 10, 256 << 10],
                band_bytes: vec![4 << 20, 128 << 20],
                depths: powers(0..=9),
            },
            write_bytes: powers(12..=20).into_iter().step_by(2).collect(),
            write_depths: powers(0..=6).into_iter().step_by(2).collect(),
            repeats: 1,
            read_slice: Slice { time: Duration::from_millis(8), least_requests: 8, most_bytes: 64 << 20 },
            write_slice: Slice { time: Duration::from_millis(8), least_requests: 4, most_bytes: 5 << 20 },
            read_deadline: Some(Duration::from_millis(900)),
            write_deadline: Some(Duration::from_millis(1400)),
            most_bytes_written: 240 << 20,
            ring_bytes: 8 << 20,
            fill_time: Some(Duration::from_millis(300)),
            seed: 1,
        }
    }

    /// Everything: about a minute on a fast drive, and gigabytes written.
    pub fn full() -> Self {
        Self {
            kind: ProfileKind::Full,
            scratch_bytes: 8 << 30,
            window_bytes: 64 << 20,
            reads: ReadGrid {
                page_bytes: powers(12..=20).into_iter().step_by(2).collect(),
                band_bytes: vec![64 << 10, 1 << 20, 16 << 20, 256 << 20, 8 << 30],
                depths: powers(0..=9),
            },
            write_bytes: powers(12..=21),
            write_depths: powers(0..=9),
            repeats: 3,
            read_slice: Slice { time: Duration::from_millis(40), least_requests: 32, most_bytes: 512 << 20 },
            write_slice: Slice { time: Duration::from_millis(40), least_requests: 16, most_bytes: 24 << 20 },
            read_deadline: None,
            write_deadline: None,
            most_bytes_written: u64::MAX,
            ring_bytes: 256 << 20,
            fill_time: Some(Duration::from_secs(60)),
            seed: 1,
        }
    }

    /// With a scratch file of at most so many bytes.
    pub fn with_scratch_bytes(mut self, bytes: u64) -> Self {
        self.scratch_bytes = bytes.max(LEAST_SCRATCH_BYTES);
        self
    }

    /// The file that fits, a power of two.
    fn scratch_bytes_on(&self, device: &Device) -> Result<u64> {
        let free = device.free_bytes()?;
        let affordable = free / FREE_SHARE;
        if affordable < LEAST_SCRATCH_BYTES {
            return Err(Error::Calibration {
                device: device.path().display().to_string(),
                reason: format!(
                    "only {} MiB are free there, and a device that is nearly full is not written to for measuring; free at \
                     least {} MiB or choose another directory",
                    free >> 20,
                    (LEAST_SCRATCH_BYTES * FREE_SHARE) >> 20
                ),
            });
        }
        Ok(1 << affordable.min(self.scratch_bytes).ilog2())
    }

    /// What it costs at most on a device. Seconds are a guess where nothing bounds them.
    pub fn estimate(&self, device: &Device) -> Result<Estimate> {
        let scratch_bytes = self.scratch_bytes_on(device)?;
        let points = self.write_bytes.len() * self.write_depths.len() * self.repeats;
        let bytes_written =
            (scratch_bytes + points as u64 * self.write_slice.most_bytes).min(self.most_bytes_written);
        // Half of the read points, as the stop rule spares about as many; filling at 1 GB/s.
        let reads =
            (self.reads.most_points() * self.repeats) as f64 / 2.0 * self.read_slice.time.as_secs_f64();
        let writes = points as f64 * self.write_slice.time.as_secs_f64();
        let seconds = reads + writes + scratch_bytes as f64 / 1e9;
        let most = self.write_deadline.map_or(f64::INFINITY, |deadline| deadline.as_secs_f64() + 0.6);
        Ok(Estimate { seconds: seconds.min(most), bytes_written, scratch_bytes })
    }

    /// Measures the device behind a directory. `progress` is told how far it is and says whether to go on.
    ///
    /// Nothing is left on the device, whether it succeeds or not.
    pub fn run(&self, device: &Device, progress: &mut dyn FnMut(Progress) -> bool) -> Result<DeviceProfile> {
        let scratch_bytes = self.scratch_bytes_on(device)?;
        let _ungoverned = Ungoverned::begin(device);
        Run {
            calibration: self,
            device,
            started: device.now(),
            progress,
            spreads: Vec::new(),
            scratch_bytes,
            cut_short: false,
        }
        .measure()
    }
}

/// Keeps the governor out of a measurement.
struct Ungoverned<'a>(&'a Device);

impl<'a> Ungoverned<'a> {
    fn begin(device: &'a Device) -> Self {
        device.pause_governing();
        Self(device)
    }
}

impl Drop for Ungoverned<'_> {
    fn drop(&mut self) {
        self.0.resume_governing();
    }
}

/// A calibration under way.
struct Run<'a> {
    calibration: &'a Calibration,
    device: &'a Device,
    started: std::time::Instant,
    progress: &'a mut dyn FnMut(Progress) -> bool,
    spreads: Vec<f64>,
    scratch_bytes: u64,
    cut_short: bool,
}

/// Parts of the progress bar.
const FILL_SHARE: f64 = 0.2;
const READ_SHARE: f64 = 0.5;

impl Run<'_> {
    fn measure(mut self) -> Result<DeviceProfile> {
        let mut scratch = None;
        let measured = self.measure_on(&mut scratch);
        let (reads, writes, sustained, discards) = measured?;
        let device = self.device;
        let noise = Noise {
            repeated_points: self.spreads.len(),
            median_spread: median(&self.spreads),
            worst_spread: self.spreads.iter().copied().fold(0.0, f64::max),
        };
        Ok(DeviceProfile {
            kind: self.calibration.kind,
            device: device.identity(),
            measured_at: SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()),
            backend: device.backend_name().to_owned(),
            direct: device.is_direct(),
            reads,
            writes,
            discards: Some(discards),
            sustained: (self.calibration.kind == ProfileKind::Full).then_some(sustained),
            noise,
            seconds: (device.now() - self.started).as_secs_f64(),
            bytes_written: scratch.map_or(0, |scratch: Scratch| scratch.bytes_written),
            cut_short: self.cut_short,
        })
    }

    fn measure_on(
        &mut self,
        place: &mut Option<Scratch>,
    ) -> Result<(ReadModel, WriteModel, SustainedWrites, DiscardCosts)> {
        let (sustained, scratch) = self.fill()?;
        let scratch = place.insert(scratch);
        let reads = self.read(scratch)?;
        let writes = self.write(scratch, &sustained)?;
        if self.calibration.repeats == 1 {
            self.repeat_some(scratch, &reads, &writes)?;
        }
        let discards =
            DiscardCosts { told: self.device.tells_discards(), micros_per_piece: scratch.discard()? };
        self.tell(1.0, "done")?;
        Ok((reads, writes, sustained, discards))
    }

    fn tell(&mut self, share: f64, stage: &'static str) -> Result<()> {
        if (self.progress)(Progress { share, stage }) {
            Ok(())
        } else {
            Err(Error::interrupted(self.device.path()))
        }
    }

    fn elapsed(&self) -> Duration {
        self.device.now() - self.started
    }

    fn is_late(&self, deadline: Option<Duration>) -> bool {
        deadline.is_some_and(|deadline| self.elapsed() > deadline)
    }

    fn fill(&mut self) -> Result<(SustainedWrites, Scratch)> {
        let Calibration { window_bytes, seed, fill_time, .. } = *self.calibration;
        let (device, bytes) = (self.device, self.scratch_bytes);
        let mut bandwidths = Vec::new();
        let scratch = Scratch::create(device, bytes, window_bytes, seed, |written, bandwidth| {
            bandwidths.push(bandwidth);
            self.tell(FILL_SHARE * written as f64 / bytes as f64, "writing in sequence")?;
            let enough =
                fill_time.is_some_and(|time| self.elapsed() > time) && written >= LEAST_SCRATCH_BYTES;
            Ok(!enough)
        })?;
        Ok((SustainedWrites::of(window_bytes, bandwidths), scratch))
    }

    fn read(&mut self, scratch: &mut Scratch) -> Result<ReadModel> {
        let calibration = self.calibration;
        let mut grid = calibration.reads.clone();
        for bytes in &mut grid.band_bytes {
            *bytes = (*bytes).min(scratch.len_bytes());
        }
        grid.page_bytes.retain(|&bytes| u64::from(bytes) <= scratch.len_bytes() / 4);
        let sizes = grid.page_bytes.len() as f64;
        let mut pages = Vec::new();
        for (number, &page_bytes) in grid.page_bytes.iter().enumerate() {
            // Lookup fills in sizes that are missing, between the smallest and the largest.
            if pages.len() >= 2 && self.is_late(self.calibration.read_deadline) {
                self.cut_short = true;
                break;
            }
            let fits = |depth: &&u32| u64::from(**depth) * u64::from(page_bytes) <= calibration.ring_bytes;
            let depths: Vec<u32> = grid.depths.iter().take_while(fits).copied().collect();
            pages.push(PageCosts::calibrate(page_bytes, grid.bands(page_bytes), &depths, |point| {
                let depth = f64::from(point.depth.ilog2()) / grid.depths.len() as f64;
                self.tell(FILL_SHARE + READ_SHARE * (number as f64 + depth) / sizes, "reading")?;
                self.repeated(|| scratch.read(point, calibration.read_slice))
            })?);
        }
        ReadModel::from_pages(pages).ok_or_else(|| Error::Calibration {
            device: self.device.path().display().to_string(),
            reason: "its reads took no time that could be measured".to_owned(),
        })
    }

    /// The grid is gone through as a whole, as often as points are repeated: in between, a drive's write cache gives
    /// out or comes back, and all points should see about the same of that.
    fn write(&mut self, scratch: &mut Scratch, sequential: &SustainedWrites) -> Result<WriteModel> {
        let passes = self.calibration.repeats;
        let mut grids = Vec::with_capacity(passes);
        for pass in 0..passes {
            grids.push(self.write_once(scratch, sequential.burst_bytes_per_second, pass)?);
        }
        let mut model = grids.pop().unwrap_or_else(|| WriteModel {
            write_bytes: Vec::new(),
            depths: Vec::new(),
            bytes_per_second: Vec::new(),
        });
        for (row, rates) in model.bytes_per_second.iter_mut().enumerate() {
            for (column, rate) in rates.iter_mut().enumerate() {
                let at = |grid: &WriteModel| grid.bytes_per_second.get(row)?.get(column).copied();
                let values: Vec<f64> = grids.iter().filter_map(at).chain([*rate]).collect();
                if values.len() > 1 && sequential.gave_out_after_bytes.is_none() {
                    self.spreads.push(spread(&values));
                }
                *rate = median(&values);
            }
        }
        Ok(model)
    }

    fn write_once(&mut self, scratch: &mut Scratch, sequential: f64, pass: usize) -> Result<WriteModel> {
        let calibration = self.calibration;
        let most_bytes = calibration.write_slice.most_bytes.max(8 << 20);
        let points = calibration.write_bytes.len() * calibration.write_depths.len();
        let total = (points * calibration.repeats) as f64;
        let mut done = (points * pass) as f64;
        let mut last: Option<(WritePoint, f64)> = None;
        WriteModel::calibrate(&calibration.write_bytes, &calibration.write_depths, |point| {
            self.tell(FILL_SHARE + READ_SHARE + (1.0 - FILL_SHARE - READ_SHARE) * done / total, "writing")?;
            done += 1.0;
            let round_bytes = u64::from(point.write_bytes) * u64::from(point.depth);
            if let Some((near, rate)) = last {
                // More at once than a measurement may write: the device has long been at its bandwidth.
                if near.write_bytes == point.write_bytes && round_bytes > most_bytes {
                    return Ok(rate);
                }
                let is_enough = scratch.bytes_written + 2 * round_bytes > calibration.most_bytes_written;
                if is_enough || self.is_late(calibration.write_deadline) {
                    self.cut_short = true;
                    // As many writes a second, until the bandwidth of writing in sequence is reached.
                    let larger = f64::from(point.write_bytes) / f64::from(near.write_bytes);
                    return Ok((rate * larger).min(sequential.max(rate)));
                }
            }
            let rate = scratch.write(point, calibration.write_slice)?;
            last = Some((point, rate));
            Ok(rate)
        })
    }

    /// The median of the repeats; their spread is kept.
    fn repeated(&mut self, mut measure: impl FnMut() -> Result<f64>) -> Result<f64> {
        let mut values = Vec::with_capacity(self.calibration.repeats);
        for _ in 0..self.calibration.repeats {
            values.push(measure()?);
        }
        if values.len() > 1 {
            self.spreads.push(spread(&values));
        }
        Ok(median(&values))
    }

    /// How much can the figures be trusted, where points were measured once: a few that matter are measured again.
    fn repeat_some(&mut self, scratch: &mut Scratch, reads: &ReadModel, writes: &WriteModel) -> Result<()> {
        let calibration = self.calibration;
        let largest_band = scratch.len_bytes();
        let read_points =
            [(4096, 1), (4096, reads.useful_depth(4096)), (256 << 10, reads.useful_depth(256 << 10))];
        for (page_bytes, depth) in read_points {
            let point = ReadPoint { page_bytes, band_pages: largest_band / u64::from(page_bytes), depth };
            let first = scratch.read(point, calibration.read_slice)?;
            let again = scratch.read(point, calibration.read_slice)?;
            let mut values = vec![first, again];
            if !self.cut_short {
                values.push(reads.cost_micros(u64::from(page_bytes), largest_band, depth));
            }
            self.spreads.push(spread(&values));
        }
        let write_bytes = writes.smallest_full_write_bytes() as u32;
        let point = WritePoint { write_bytes, depth: writes.useful_depth(u64::from(write_bytes)) };
        let first = scratch.write(point, calibration.write_slice)?;
        self.spreads.push(spread(&[first, scratch.write(point, calibration.write_slice)?]));
        Ok(())
    }
}

/// (largest − smallest) ÷ median.
fn spread(values: &[f64]) -> f64 {
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let smallest = values.iter().copied().fold(f64::INFINITY, f64::min);
    (largest - smallest) / median(values)
}
