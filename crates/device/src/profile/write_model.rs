//! How fast does the device write? Bandwidth by size of a write and by writes outstanding.
//!
//! Source: Shin, Roh, Jung, Park, *Optimizing Hash Partitioning for Solid State Drives* (SAC 2016), 2.4: a number of
//! writes of one size at random places is submitted at once and awaited as a whole, again and again. From the grid
//! follow the sub-buffer of the partitioner (section 3: the smallest write that reaches the full bandwidth) and how
//! many of them to flush together.

use serde::{Deserialize, Serialize};

/// A point counts as reaching the full bandwidth from this share of it on.
const FULL_BANDWIDTH_SHARE: f64 = 0.90;

/// Bandwidths of writes. See the [module documentation](self).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WriteModel {
    /// Ascending.
    pub write_bytes: Vec<u32>,
    /// Ascending, from 1.
    pub depths: Vec<u32>,
    /// Bytes per second: a row per size, a column per depth.
    pub bytes_per_second: Vec<Vec<f64>>,
}

/// A point of the grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WritePoint {
    pub write_bytes: u32,
    pub depth: u32,
}

/// Writing on and on in sequence: what the device takes at first, and in the long run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SustainedWrites {
    /// Bytes that each entry of `bytes_per_second` stands for.
    pub window_bytes: u64,
    /// Bandwidth of every window, in order.
    pub bytes_per_second: Vec<f64>,
    /// Median of the windows before the bandwidth fell; of all, if it did not.
    pub burst_bytes_per_second: f64,
    /// Median of the windows after it fell; of all, if it did not.
    pub sustained_bytes_per_second: f64,
    /// Bytes after which the bandwidth fell for good. `None` if the device held on for as long as it was written to.
    pub gave_out_after_bytes: Option<u64>,
}

impl WriteModel {
    /// Measures a grid. `measure` gives bytes per second.
    pub fn calibrate<E>(
        write_bytes: &[u32],
        depths: &[u32],
        mut measure: impl FnMut(WritePoint) -> Result<f64, E>,
    ) -> Result<Self, E> {
        let mut rows = Vec::with_capacity(write_bytes.len());
        for &write_bytes in write_bytes {
            let row: Result<Vec<f64>, E> =
                depths.iter().map(|&depth| Ok(measure(WritePoint { write_bytes, depth })?.round())).collect();
            rows.push(row?);
        }
        Ok(Self { write_bytes: write_bytes.to_vec(), depths: depths.to_vec(), bytes_per_second: rows })
    }

    /// Whether the grid has its shape and every bandwidth is one.
    pub fn is_sound(&self) -> bool {
        !self.write_bytes.is_empty()
            && !self.depths.is_empty()
            && self.write_bytes.is_sorted_by(|a, b| a < b)
            && self.depths.is_sorted_by(|a, b| a < b)
            && self.bytes_per_second.len() == self.write_bytes.len()
            && self.bytes_per_second.iter().all(|row| {
                row.len() == self.depths.len() && row.iter().all(|rate| rate.is_finite() && *rate > 0.0)
            })
    }

    /// Most bytes per second of any point.
    pub fn full_bandwidth(&self) -> f64 {
        self.bytes_per_second.iter().flatten().copied().fold(0.0, f64::max)
    }

    /// The smallest write that reaches the full bandwidth at some depth.
    pub fn smallest_full_write_bytes(&self) -> u64 {
        self.smallest_write_bytes(FULL_BANDWIDTH_SHARE)
    }

    /// The smallest write that reaches this share of the full bandwidth at some depth.
    pub fn smallest_write_bytes(&self, share: f64) -> u64 {
        let wanted = self.full_bandwidth() * share;
        let reaches = |row: &&Vec<f64>| row.iter().any(|rate| *rate >= wanted);
        let found = self.write_bytes.iter().zip(&self.bytes_per_second).find(|(_, row)| reaches(row));
        found.map_or(4096, |(bytes, _)| u64::from(*bytes))
    }

    /// The fewest writes of a size that have to be outstanding for the most that this size can reach.
    pub fn useful_depth(&self, write_bytes: u64) -> u32 {
        let larger = self.write_bytes.iter().position(|&bytes| u64::from(bytes) >= write_bytes);
        let row =
            larger.and_then(|number| self.bytes_per_second.get(number)).or(self.bytes_per_second.last());
        let Some(row) = row else { return 1 };
        let wanted = row.iter().copied().fold(0.0, f64::max) * FULL_BANDWIDTH_SHARE;
        let found = self.depths.iter().zip(row).find(|(_, rate)| **rate >= wanted);
        found.map_or(1, |(depth, _)| *depth)
    }
}

/// A fall below this share of the best windows is the end of a write cache, if it lasts.
const GAVE_OUT_SHARE: f64 = 0.70;

impl SustainedWrites {
    /// Finds out from the bandwidths of consecutive windows whether and when the device fell behind.
    pub fn of(window_bytes: u64, mut bytes_per_second: Vec<f64>) -> Self {
        bytes_per_second.iter_mut().for_each(|rate| *rate = rate.round());
        let best = median(bytes_per_second.get(..bytes_per_second.len().div_ceil(4)).unwrap_or_default());
        // The first window from which on half of all windows are slow, and which is slow itself.
        let is_slow = |rate: &f64| *rate < best * GAVE_OUT_SHARE;
        let fell = (0..bytes_per_second.len()).find(|&from| {
            let rest = bytes_per_second.get(from..).unwrap_or_default();
            rest.len() >= 3
                && rest.first().is_some_and(is_slow)
                && rest.iter().filter(|rate| is_slow(rate)).count() * 4 >= rest.len() * 3
        });
        let (before, after) = bytes_per_second.split_at(fell.unwrap_or(bytes_per_second.len()));
        let burst = median(before);
        Self {
            window_bytes,
            burst_bytes_per_second: burst,
            sustained_bytes_per_second: if after.is_empty() { burst } else { median(after) },
            gave_out_after_bytes: fell.map(|windows| windows as u64 * window_bytes),
            bytes_per_second,
        }
    }
}

/// The middle of the values, the mean of the two middle ones; 0 of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (middle.checked_sub(1).and_then(|below| sorted.get(below)), sorted.get(middle)) {
        (Some(below), Some(above)) if sorted.len().is_multiple_of(2) => (below + above) / 2.0,
        (_, Some(value)) => *value,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::convert::Infallible;

    use super::*;

    /// 20 µs and 1 ns per byte for each write, eight at once, at most 500 MB/s.
    fn grid() -> WriteModel {
        let sizes: Vec<u32> = (2..=11).map(|power| 1024 << power).collect();
        let depths: Vec<u32> = (0..=9).map(|power| 1 << power).collect();
        WriteModel::calibrate(&sizes, &depths, |point| {
            let one = f64::from(point.write_bytes) / (20e-6 + f64::from(point.write_bytes) * 1e-9);
            Ok::<_, Infallible>((one * f64::from(point.depth.min(8))).min(500e6))
        })
        .unwrap()
    }

    #[test]
    fn sub_buffer_and_depth_follow_from_the_grid() {
        let grid = grid();
        assert!(grid.is_sound());
        assert_eq!(grid.full_bandwidth(), 500e6);
        // 4 KiB: 8 × 4096 / 24.1 µs = 1.36 GB/s, cut to 500 MB/s.
        assert_eq!(grid.smallest_full_write_bytes(), 4096);
        assert_eq!(grid.useful_depth(4096), 4);
        assert_eq!(grid.useful_depth(1 << 20), 1);
        assert_eq!(grid.useful_depth(1 << 30), 1);
    }

    #[test]
    fn the_end_of_a_write_cache_is_found() {
        let mut rates = vec![3.0e9; 40];
        rates.extend([1.2e9; 30]);
        // One hiccup each is no end, and no recovery.
        rates[10] = 1.0e9;
        rates[55] = 3.0e9;
        let sustained = SustainedWrites::of(64 << 20, rates);
        assert_eq!(sustained.gave_out_after_bytes, Some(40 * (64 << 20)));
        assert_eq!(sustained.burst_bytes_per_second, 3.0e9);
        assert_eq!(sustained.sustained_bytes_per_second, 1.2e9);

        let steady = SustainedWrites::of(64 << 20, vec![5.0e8; 20]);
        assert_eq!(steady.gave_out_after_bytes, None);
        assert_eq!(steady.sustained_bytes_per_second, 5.0e8);
        assert_eq!(SustainedWrites::of(1, Vec::new()).burst_bytes_per_second, 0.0);
    }

    #[test]
    fn medians() {
        assert_eq!(
            [median(&[]), median(&[3.0]), median(&[9.0, 1.0]), median(&[5.0, 1.0, 9.0])],
            [0.0, 3.0, 5.0, 5.0]
        );
    }
}
