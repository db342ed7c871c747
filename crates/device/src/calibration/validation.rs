//! Is calibrating itself right? The experiments by which the thesis justifies a single worker and the stop rule.

use std::time::Duration;

use super::measure::{Scratch, Slice};
use super::{Calibration, Ungoverned, powers};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::profile::{PageCosts, ReadGrid, ReadPoint, median};

impl Calibration {
    /// The same reads by the single worker of a calibration, and by as many workers as the queue is deep: microseconds
    /// per page of both, in the order of the points. They should agree (thesis, 3.5.5).
    pub fn compare_workers(&self, device: &Device, points: &[ReadPoint]) -> Result<Vec<(f64, f64)>> {
        let _ungoverned = Ungoverned::begin(device);
        let mut scratch = self.scratch(device)?;
        let mut compared = Vec::with_capacity(points.len());
        for &point in points {
            let mut pairs = Vec::new();
            for _ in 0..self.repeats {
                let single = scratch.read(point, self.read_slice)?;
                pairs.push((single, scratch.read_by_workers(point, self.read_slice)?));
            }
            let of = |side: fn(&(f64, f64)) -> f64| median(&pairs.iter().map(side).collect::<Vec<_>>());
            compared.push((of(|pair| pair.0), of(|pair| pair.1)));
        }
        Ok(compared)
    }

    /// Seconds of device time that the reads of a calibration of 4 KiB pages at depths 1 to 32 take, `requests` a point,
    /// with or without the stop rule: what the rule is worth (thesis, 3.5.7).
    pub fn time_of_reads(&self, device: &Device, requests: u64, stop_rule: bool) -> Result<f64> {
        let _ungoverned = Ungoverned::begin(device);
        let mut scratch = self.scratch(device)?;
        let slice = Slice { time: Duration::ZERO, least_requests: requests, most_bytes: u64::MAX };
        let grid = ReadGrid { depths: powers(0..=5), ..self.reads.clone() };
        let (page_bytes, bands) = (4096, grid.bands(4096));
        let started = device.now();
        if stop_rule {
            PageCosts::calibrate(page_bytes, bands, &grid.depths, |point| scratch.read(point, slice))?;
        } else {
            for &depth in &grid.depths {
                for &band_pages in &bands {
                    scratch.read(ReadPoint { page_bytes, band_pages, depth }, slice)?;
                }
            }
        }
        Ok((device.now() - started).as_secs_f64())
    }

    fn scratch(&self, device: &Device) -> Result<Scratch> {
        let bytes = self.scratch_bytes_on(device)?;
        Scratch::create(device, bytes, self.window_bytes, self.seed, |_, _| Ok::<bool, Error>(true))
    }
}
