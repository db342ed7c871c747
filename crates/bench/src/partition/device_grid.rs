//! Write bandwidth over I/O size and outstanding level (section 2.4, Figure 2).
//!
//! As there: random offsets, direct I/O, a number of writes submitted at once and all awaited before the
//! next (Psync). Unlike there, the file is 2 GB and a point writes for a fraction of a second. That shows bursts
//! that the device cannot keep up, so the bandwidth that counts is measured apart: large writes, one submitted
//! for each that ends, for several gigabytes.

use std::time::{Duration, Instant};

use nandina_device::{Device, File, FileClass, Request};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::quantity;
use crate::table::Table;

const FILE_NAME: &str = "device-grid";
const FILE_BYTES: u64 = 2 << 30;
/// The sustained bandwidth is that of writing the file this many times more, after once.
const PASSES: u64 = 2;
const PASS_IO_BYTES: usize = 1 << 20;
const PASS_OUTSTANDING: usize = 32;
const POINT_TIME: Duration = Duration::from_millis(250);
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
    /// Sizes 4 KB to 2 MB and outstanding levels 1 to 256, doubled; with `coarse` every second of each.
    pub fn measure(device: &Device, coarse: bool) -> Result<Self> {
        let step = if coarse { 2 } else { 1 };
        let file = device.create(FILE_NAME, FileClass::Other)?;
        let result = Self::measure_in(&file, step);
        drop(file);
        device.remove(FILE_NAME)?;
        result
    }

    fn measure_in(file: &File, step: usize) -> Result<Self> {
        file.allocate(0, FILE_BYTES)?;
        // Written once first, so that nothing pays for the first write to a block, or lives on a burst.
        write_through(file)?;
        let start = Instant::now();
        for _ in 0..PASSES {
            write_through(file)?;
        }
        let sustained_bytes_per_second = (PASSES * FILE_BYTES) as f64 / start.elapsed().as_secs_f64();
        let mut points = Vec::new();
        for io_bytes in (12..=21).step_by(step).map(|bits| 1usize << bits) {
            for outstanding in (0..=8).step_by(step).map(|bits| 1usize << bits) {
                points.push(measure_point(file, io_bytes, outstanding)?);
            }
        }
        Ok(Self { sustained_bytes_per_second, points })
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

fn measure_point(file: &File, io_bytes: usize, outstanding: usize) -> Result<GridPoint> {
    let places = FILE_BYTES / io_bytes as u64;
    let mut random = SplitMix(io_bytes as u64 ^ ((outstanding as u64) << 32));
    let mut written = 0;
    let start = Instant::now();
    while start.elapsed() < POINT_TIME {
        let offsets: Vec<u64> = (0..outstanding).map(|_| random.next() % places * io_bytes as u64).collect();
        write_at(file, &offsets, io_bytes)?;
        written += outstanding * io_bytes;
    }
    Ok(GridPoint { io_bytes, outstanding, bytes_per_second: written as f64 / start.elapsed().as_secs_f64() })
}

/// Writes the whole file in order, with a steady number of writes outstanding.
fn write_through(file: &File) -> Result<()> {
    let bytes = file.device().buffer(PASS_IO_BYTES).freeze();
    let write = |offset: u64| vec![(file.clone(), Request::write(offset, bytes.clone()))];
    let mut offsets = (0..FILE_BYTES).step_by(PASS_IO_BYTES);
    let mut batch = file.device().batch(None);
    for offset in offsets.by_ref().take(PASS_OUTSTANDING) {
        batch.add(write(offset));
    }
    while let Some(ended) = batch.next_blocking() {
        ended?;
        if let Some(offset) = offsets.next() {
            batch.add(write(offset));
        }
    }
    Ok(())
}

/// Writes `io_bytes` at each offset, all submitted together and awaited.
fn write_at(file: &File, offsets: &[u64], io_bytes: usize) -> Result<()> {
    // All requests write the same memory: what is measured is the device.
    let bytes = file.device().buffer(io_bytes).freeze();
    let request = |offset: &u64| Request::write(*offset, bytes.clone());
    file.submit(offsets.iter().map(request).collect()).wait()?;
    Ok(())
}

/// Steele, Lea and Flood's generator: reproducible offsets without a dependency.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        super::trial::mix(self.0)
    }
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
