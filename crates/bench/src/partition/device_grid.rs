//! Write bandwidth over I/O size and outstanding level (section 2.4, Figure 2): the calibration of
//! [`nandina_device::calibration`], with the bandwidth that counts, which is the sustained one.

use nandina_device::Device;
use nandina_device::calibration::Calibration;
use nandina_device::profile::DeviceProfile;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::quantity;
use crate::table::Table;

/// The scratch file; its filling is the sustained bandwidth.
const FILE_BYTES: u64 = 4 << 30;
/// Share of the best bandwidth that counts as reaching it; less than what points differ from run to run.
const REACHED: f64 = 0.95;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DeviceGrid {
    /// Over several gigabytes.
    pub sustained_bytes_per_second: f64,
    pub points: Vec<GridPoint>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct GridPoint {
    pub io_bytes: usize,
    pub outstanding: usize,
    pub bytes_per_second: f64,
}

impl DeviceGrid {
    /// Sizes 4 KB to 2 MB and outstanding levels 1 to 512, doubled; with `coarse` a quick calibration.
    pub fn measure(device: &Device, coarse: bool) -> Result<(Self, DeviceProfile)> {
        let calibration =
            if coarse { Calibration::quick() } else { Calibration::full().with_scratch_bytes(FILE_BYTES) };
        let profile = calibration.run(device, &mut |_| true)?;
        Ok((Self::of(&profile), profile))
    }

    fn of(profile: &DeviceProfile) -> Self {
        let writes = &profile.writes;
        let mut points = Vec::new();
        for (&io_bytes, row) in writes.write_bytes.iter().zip(&writes.bytes_per_second) {
            for (&outstanding, &bytes_per_second) in writes.depths.iter().zip(row) {
                let (io_bytes, outstanding) = (io_bytes as usize, outstanding as usize);
                points.push(GridPoint { io_bytes, outstanding, bytes_per_second });
            }
        }
        let sustained = profile.sustained.as_ref().map(|sustained| sustained.sustained_bytes_per_second);
        let sustained_bytes_per_second = sustained.unwrap_or_else(|| writes.full_bandwidth());
        Self { sustained_bytes_per_second, points }
    }

    /// The smallest I/O size that reaches the sustained bandwidth at some outstanding level: the default
    /// sub-buffer.
    pub fn smallest_sufficient_bytes(&self) -> usize {
        let best = self.points.iter().map(|point| point.bytes_per_second).fold(0.0, f64::max);
        let enough = best.min(self.sustained_bytes_per_second) * REACHED;
        let sufficient = self.points.iter().filter(|point| point.bytes_per_second >= enough);
        sufficient.map(|point| point.io_bytes).min().unwrap_or(64 << 10)
    }

    pub fn sizes(&self) -> Vec<usize> {
        distinct(self.points.iter().map(|point| point.io_bytes))
    }

    pub fn levels(&self) -> Vec<usize> {
        distinct(self.points.iter().map(|point| point.outstanding))
    }

    pub fn at(&self, io_bytes: usize, outstanding: usize) -> Option<f64> {
        let found =
            self.points.iter().find(|point| (point.io_bytes, point.outstanding) == (io_bytes, outstanding));
        found.map(|point| point.bytes_per_second)
    }

    /// MB/s, a row per I/O size and a column per outstanding level.
    pub fn table(&self) -> Table {
        let levels = self.levels();
        let header = std::iter::once("I/O size".to_owned()).chain(levels.iter().map(ToString::to_string));
        let mut table = Table::new(0, header);
        for size in self.sizes() {
            let cell = |level: &usize| self.at(size, *level).map_or(String::new(), megabytes);
            table.row(std::iter::once(quantity::bytes(size as u64)).chain(levels.iter().map(cell)));
        }
        table
    }
}

pub fn megabytes(bytes_per_second: f64) -> String {
    format!("{:.0}", bytes_per_second / f64::from(1 << 20))
}

fn distinct(values: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut values: Vec<usize> = values.collect();
    values.sort_unstable();
    values.dedup();
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_sufficient_size_is_found() {
        let point =
            |io_bytes, outstanding, bytes_per_second| GridPoint { io_bytes, outstanding, bytes_per_second };
        let grid = DeviceGrid {
            sustained_bytes_per_second: 100.0,
            points: vec![
                point(4096, 1, 10.0),
                point(4096, 64, 80.0),
                point(65536, 1, 40.0),
                point(65536, 64, 96.0),
                point(131072, 64, 140.0),
            ],
        };
        assert_eq!(grid.smallest_sufficient_bytes(), 65536);
        assert_eq!((grid.sizes().len(), grid.levels()), (3, vec![1, 64]));
        assert_eq!(grid.at(131072, 1), None);
    }
}
