//! What does it cost to read a page? The queue-depth-aware disk transfer time model, QDTT.
//!
//! Source: Ghodsnia, *Effective Use of SSDs in Database Systems* (thesis), 3.5.2 to 3.5.7. `QDTT(b, q)` is the amortised
//! time of reading one page at random inside a band of `b` pages while `q` requests are outstanding: the time of many
//! such reads, divided by their number. `QDTT(b, 1)` is the older model DTT; `QDTT(1, q)` is reading in sequence.
//! Here the size of the page is a third axis, as reads on today's drives range from 4 KiB to megabytes.
//!
//! ```text
//!   µs per page
//!     │ ╲ depth 1                       stop rule: at the largest band, twice the depth has to be at least 20 %
//!     │  ╲________________              cheaper; else the table ends there, and what is left of it is filled
//!     │    ╲ depth 2                    with slightly more than the cost at depth 1
//!     │     ╲_____________
//!     └────────────────────► band
//! ```
//!
//! Lookup is linear between points: first the band, then the depth (3.5.6), then the page size.

use serde::{Deserialize, Serialize};

/// How much cheaper reads have to become for a doubled depth to be worth measuring on (the thesis' `T`).
pub const STOP_GAIN: f64 = 0.20;

/// What a last doubling has to gain for sizes and depths of transfers to make use of it. Less than `STOP_GAIN`, which
/// spares calibration time, because a fifth of the bandwidth is too much to give away.
const SIZING_GAIN: f64 = 0.05;

/// A device that takes longer for a small read, at the depth that is best, has an arm.
const ARM_MICROS: f64 = 1000.0;

/// What points beyond the stop are worth, relative to depth 1: slightly more, so that they are never chosen.
const BEYOND_STOP: f64 = 1.01;

/// A size counts as reaching the full bandwidth from this share of it on.
const FULL_BANDWIDTH_SHARE: f64 = 0.95;

/// Costs of reads by page size, band and queue depth. See the [module documentation](self).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReadModel {
    /// By ascending page size; never empty.
    pub(super) pages: Vec<PageCosts>,
}

/// Costs of reading pages of one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PageCosts {
    pub page_bytes: u32,
    /// Ascending, from 1 page.
    pub band_pages: Vec<u64>,
    /// Ascending, from 1 request.
    pub depths: Vec<u32>,
    /// Microseconds per page: a row per depth, a column per band.
    pub micros: Vec<Vec<f64>>,
    /// Rows that were measured at all bands; the others are filled as the stop rule says.
    pub measured_depths: usize,
    /// The measurement that ended it. `None` if all depths were measured.
    pub stopped_by: Option<StoppedBy>,
}

/// A doubled depth that did not gain enough to go on from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StoppedBy {
    pub depth: u32,
    /// Microseconds per page at the largest band.
    pub micros: f64,
}

/// A point of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPoint {
    pub page_bytes: u32,
    pub band_pages: u64,
    pub depth: u32,
}

/// Where to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadGrid {
    pub page_bytes: Vec<u32>,
    /// Bands in bytes; a page size has those that are at least a page, and the band of one page.
    pub band_bytes: Vec<u64>,
    /// Ascending, from 1.
    pub depths: Vec<u32>,
}

impl ReadGrid {
    /// Bands for pages of a size, ascending.
    pub fn bands(&self, page_bytes: u32) -> Vec<u64> {
        let mut bands: Vec<u64> = self
            .band_bytes
            .iter()
            .map(|bytes| bytes / u64::from(page_bytes))
            .filter(|&pages| pages > 1)
            .collect();
        bands.push(1);
        bands.sort_unstable();
        bands.dedup();
        bands
    }

    /// Points if the stop rule never applies.
    pub fn most_points(&self) -> usize {
        self.page_bytes.iter().map(|&bytes| self.bands(bytes).len() * self.depths.len()).sum()
    }
}

impl ReadModel {
    /// A model from tables. `None` if one of them is not a table.
    pub fn from_pages(mut pages: Vec<PageCosts>) -> Option<Self> {
        pages.sort_by_key(|costs| costs.page_bytes);
        let model = Self { pages };
        model.is_sound().then_some(model)
    }

    pub fn pages(&self) -> &[PageCosts] {
        &self.pages
    }

    /// Whether every table has its shape and every cost is one.
    pub fn is_sound(&self) -> bool {
        let ascends =
            |values: &[u64]| values.is_sorted_by(|a, b| a < b) && values.first().is_some_and(|&v| v > 0);
        !self.pages.is_empty()
            && ascends(&self.pages.iter().map(|costs| u64::from(costs.page_bytes)).collect::<Vec<_>>())
            && self.pages.iter().all(|costs| {
                let depths: Vec<u64> = costs.depths.iter().map(|&depth| u64::from(depth)).collect();
                ascends(&costs.band_pages)
                    && ascends(&depths)
                    && costs.micros.len() == depths.len()
                    && (1..=depths.len()).contains(&costs.measured_depths)
                    && costs.micros.iter().all(|row| {
                        row.len() == costs.band_pages.len()
                            && row.iter().all(|cost| cost.is_finite() && *cost > 0.0)
                    })
            })
    }

    /// Microseconds per page of reading pages of `page_bytes` at random inside `band_bytes`, with `depth` requests
    /// outstanding. More requests than are useful cost what the useful ones do: they wait, in the device or before.
    pub fn cost_micros(&self, page_bytes: u64, band_bytes: u64, depth: u32) -> f64 {
        let at = |costs: &PageCosts| {
            let band = (band_bytes as f64 / f64::from(costs.page_bytes)).max(1.0);
            costs.cost_micros(band, f64::from(depth.min(costs.useful_depth())))
        };
        let points: Vec<(f64, f64)> =
            self.pages.iter().map(|costs| (f64::from(costs.page_bytes), at(costs))).collect();
        match points.last() {
            // Beyond the largest measured page the device is at its bandwidth: time grows with bytes.
            Some(&(largest, cost)) if page_bytes as f64 > largest => cost * page_bytes as f64 / largest,
            _ => interpolate(&points, page_bytes as f64),
        }
    }

    /// DTT: the cost with one request at a time, in microseconds per page.
    pub fn dtt_micros(&self, page_bytes: u64, band_bytes: u64) -> f64 {
        self.cost_micros(page_bytes, band_bytes, 1)
    }

    /// Most requests of a size that are worth having outstanding.
    pub fn useful_depth(&self, page_bytes: u64) -> u32 {
        let depth_of =
            |costs: &PageCosts| (f64::from(costs.page_bytes), f64::from(costs.useful_depth()).log2());
        let points: Vec<(f64, f64)> = self.pages.iter().map(depth_of).collect();
        (interpolate(&points, page_bytes as f64).exp2().round() as u32).max(1)
    }

    /// Bytes per second of random reads of a size, over the largest band, at a depth.
    pub fn bandwidth(&self, page_bytes: u64, depth: u32) -> f64 {
        page_bytes as f64 / self.cost_micros(page_bytes, u64::MAX, depth) * 1e6
    }

    /// The depth at which reads of a size reach the most bytes per second that they can.
    pub fn full_depth(&self, page_bytes: u64) -> u32 {
        let depth_of =
            |costs: &PageCosts| (f64::from(costs.page_bytes), f64::from(costs.full_depth()).log2());
        let points: Vec<(f64, f64)> = self.pages.iter().map(depth_of).collect();
        (interpolate(&points, page_bytes as f64).exp2().round() as u32).max(1)
    }

    /// Microseconds per read of a size at random over the largest band, at the depth that is best for it.
    pub fn best_micros(&self, page_bytes: u64) -> f64 {
        page_bytes as f64 / self.best_bandwidth(page_bytes) * 1e6
    }

    /// Whether the device has an arm to move. Such a device serves more requests the more it may choose from, which
    /// this calibration does not see: it waits for the oldest, and that has to wait longest then.
    pub fn has_arm(&self) -> bool {
        self.best_micros(4096) > ARM_MICROS
    }

    /// Bytes per second of random reads of a size at the depth that is best for it.
    fn best_bandwidth(&self, page_bytes: u64) -> f64 {
        let points: Vec<(f64, f64)> =
            self.pages.iter().map(|costs| (f64::from(costs.page_bytes), costs.best_micros())).collect();
        page_bytes as f64 / interpolate(&points, page_bytes as f64) * 1e6
    }

    /// Most bytes per second that any measured page size and depth reaches, at random over the largest band.
    pub fn full_bandwidth(&self) -> f64 {
        self.pages.iter().map(|costs| self.best_bandwidth(u64::from(costs.page_bytes))).fold(0.0, f64::max)
    }

    /// Most bytes per second of reading in sequence with any measured page size.
    pub fn sequential_bandwidth(&self) -> f64 {
        let best = |costs: &PageCosts| {
            let page = u64::from(costs.page_bytes);
            page as f64 / self.cost_micros(page, 1, costs.useful_depth()) * 1e6
        };
        self.pages.iter().map(best).fold(self.full_bandwidth(), f64::max)
    }

    /// The smallest read that reaches the full bandwidth at the depth that is useful for it.
    pub fn smallest_full_read_bytes(&self) -> u64 {
        let wanted = self.full_bandwidth() * FULL_BANDWIDTH_SHARE;
        let sizes = self.pages.iter().map(|costs| u64::from(costs.page_bytes));
        let mut doubled = sizes.clone().min().unwrap_or(4096);
        let largest = sizes.max().unwrap_or(doubled);
        while doubled < largest && self.best_bandwidth(doubled) < wanted {
            doubled *= 2;
        }
        doubled
    }

    /// Bytes that are as cheap to read along as another request is to make, when requests go out at the useful depth:
    /// reading a gap of fewer bytes costs less than skipping it.
    pub fn gap_bytes(&self) -> u64 {
        let smallest = self.pages.first().map_or(4096, |costs| u64::from(costs.page_bytes));
        let request = self.pages.first().map_or(0.0, PageCosts::best_micros);
        let bandwidth = self.sequential_bandwidth();
        ((request / 1e6 * bandwidth) as u64).saturating_sub(smallest)
    }
}

impl PageCosts {
    /// Measures the costs of one page size: the calibration of 3.5.5 and 3.5.7. `measure` gives microseconds per page.
    ///
    /// Beyond the thesis, a point that would end it is measured twice, and the better figure counts: a disturbance in
    /// one short measurement would otherwise hide what greater depths gain.
    pub fn calibrate<E>(
        page_bytes: u32,
        band_pages: Vec<u64>,
        depths: &[u32],
        mut measure: impl FnMut(ReadPoint) -> Result<f64, E>,
    ) -> Result<Self, E> {
        let mut micros: Vec<Vec<f64>> = Vec::with_capacity(depths.len());
        let mut stopped_by = None;
        for &depth in depths {
            let mut row = vec![0.0; band_pages.len()];
            for (column, &band_pages) in band_pages.iter().enumerate().rev() {
                let point = ReadPoint { page_bytes, band_pages, depth };
                let mut cost = measure(point)?;
                let is_largest = column + 1 == row.len();
                if is_largest && let Some(before) = micros.last().and_then(|row| row.last()) {
                    let wanted = before * (1.0 - STOP_GAIN);
                    if cost > wanted {
                        cost = cost.min(measure(point)?);
                    }
                    if cost > wanted {
                        stopped_by = Some(StoppedBy { depth, micros: to_nanos(cost) });
                        row.clear();
                        break;
                    }
                }
                let cost = to_nanos(cost);
                if let Some(place) = row.get_mut(column) {
                    *place = cost;
                }
            }
            if row.is_empty() {
                break;
            }
            micros.push(row);
        }
        let measured_depths = micros.len();
        let filler: Vec<f64> = micros
            .first()
            .map(|row| row.iter().map(|cost| to_nanos(cost * BEYOND_STOP)).collect())
            .unwrap_or_default();
        micros.resize(depths.len(), filler);
        Ok(Self { page_bytes, band_pages, depths: depths.to_vec(), micros, measured_depths, stopped_by })
    }

    /// The deepest queue that still made reads cheaper.
    pub fn useful_depth(&self) -> u32 {
        self.depths.get(self.measured_depths.saturating_sub(1)).copied().unwrap_or(1)
    }

    /// The cost over the largest band at the useful depth.
    fn useful_micros(&self) -> f64 {
        self.micros
            .get(self.measured_depths.saturating_sub(1))
            .and_then(|row| row.last())
            .copied()
            .unwrap_or(f64::NAN)
    }

    /// The last doubling, if it gained enough for transfers.
    fn last_gain(&self) -> Option<StoppedBy> {
        self.stopped_by.filter(|stop| stop.micros <= self.useful_micros() * (1.0 - SIZING_GAIN))
    }

    /// The depth with the most bytes per second.
    fn full_depth(&self) -> u32 {
        self.last_gain().map_or(self.useful_depth(), |stop| stop.depth)
    }

    /// The cost over the largest band at that depth.
    fn best_micros(&self) -> f64 {
        self.last_gain().map_or(self.useful_micros(), |stop| stop.micros)
    }

    /// Microseconds per page in a band of so many pages at a depth: linear between points, first by band, then by
    /// depth. Outside the table the nearest point counts.
    pub fn cost_micros(&self, band_pages: f64, depth: f64) -> f64 {
        let by_band = |row: &Vec<f64>| {
            let points: Vec<(f64, f64)> =
                self.band_pages.iter().zip(row).map(|(&band, &cost)| (band as f64, cost)).collect();
            interpolate(&points, band_pages)
        };
        let points: Vec<(f64, f64)> = self
            .depths
            .iter()
            .zip(&self.micros)
            .map(|(&depth, row)| (f64::from(depth), by_band(row)))
            .collect();
        interpolate(&points, depth)
    }
}

/// Microseconds as whole nanoseconds: more is noise, and short numbers survive being written down.
pub(crate) fn to_nanos(micros: f64) -> f64 {
    (micros * 1e3).round() / 1e3
}

/// The value at `x` between points of ascending `x`; that of the nearest one outside.
fn interpolate(points: &[(f64, f64)], x: f64) -> f64 {
    let above = points.partition_point(|(at, _)| *at < x);
    match (above.checked_sub(1).and_then(|below| points.get(below)), points.get(above)) {
        (Some(&(x0, y0)), Some(&(x1, y1))) => y0 + (y1 - y0) * (x - x0) / (x1 - x0),
        (None, Some(&(_, y))) | (Some(&(_, y)), None) => y,
        (None, None) => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::convert::Infallible;

    use super::*;

    fn grid() -> ReadGrid {
        ReadGrid {
            page_bytes: vec![4096, 65536],
            band_bytes: vec![1 << 16, 1 << 20, 1 << 30],
            depths: (0..10).map(|power| 1 << power).collect(),
        }
    }

    /// Costs fall with depth down to that of `channels`, and grow with the band.
    fn calibrated(channels: u32, asked: &mut Vec<ReadPoint>) -> ReadModel {
        model(&grid(), |point| {
            asked.push(point);
            let page = 80.0 + f64::from(point.page_bytes) / 1000.0;
            let spread = 1.0 + (point.band_pages as f64).log2() / 20.0;
            page * spread / f64::from(point.depth.min(channels))
        })
    }

    fn model(grid: &ReadGrid, mut cost: impl FnMut(ReadPoint) -> f64) -> ReadModel {
        let mut pages = Vec::new();
        for &page_bytes in &grid.page_bytes {
            let measured = PageCosts::calibrate(page_bytes, grid.bands(page_bytes), &grid.depths, |point| {
                Ok::<_, Infallible>(cost(point))
            });
            pages.push(measured.unwrap());
        }
        ReadModel::from_pages(pages).unwrap()
    }

    #[test]
    fn calibration_goes_from_large_to_small_bands_and_stops_when_depth_gains_nothing() {
        let mut asked = Vec::new();
        let model = calibrated(8, &mut asked);
        let of_4k: Vec<(u64, u32)> =
            asked.iter().filter(|p| p.page_bytes == 4096).map(|p| (p.band_pages, p.depth)).collect();
        let bands = [1 << 18, 256, 16, 1];
        let mut expected: Vec<(u64, u32)> =
            [1, 2, 4, 8].iter().flat_map(|&depth| bands.map(|band| (band, depth))).collect();
        expected.extend([(1 << 18, 16); 2]);
        assert_eq!(of_4k, expected);

        let costs = &model.pages()[0];
        assert_eq!(costs.measured_depths, 4);
        assert_eq!(costs.useful_depth(), 8);
        assert_eq!(model.useful_depth(4096), 8);
        assert_eq!(costs.stopped_by, Some(StoppedBy { depth: 16, micros: costs.micros[3][3] }));
        // Points that were not measured are slightly worse than no depth at all.
        assert_eq!(costs.micros[4][0], to_nanos(costs.micros[0][0] * 1.01));
        assert_eq!(costs.micros[9], costs.micros[4]);
        assert!(model.is_sound());
    }

    #[test]
    fn a_device_without_parallelism_is_measured_at_depths_1_and_2_only() {
        let mut asked = Vec::new();
        let model = calibrated(1, &mut asked);
        assert_eq!(asked.iter().filter(|p| p.page_bytes == 4096).count(), 6);
        assert_eq!(model.useful_depth(4096), 1);
        assert_eq!(model.cost_micros(4096, 1 << 30, 64), model.dtt_micros(4096, 1 << 30));
    }

    #[test]
    fn lookup_is_linear_by_band_then_depth_then_page_size() {
        let model = calibrated(8, &mut Vec::new());
        let costs = &model.pages()[0];
        let point = |depth: usize, band: usize| costs.micros[depth][band];
        assert_eq!(model.cost_micros(4096, 256 * 4096, 4), point(2, 2));
        let band = (point(0, 1) + point(0, 2)) / 2.0;
        assert!((model.cost_micros(4096, 136 * 4096, 1) - band).abs() < 1e-9);
        let depth_3 = (point(1, 1) + point(2, 1)) / 2.0;
        assert!((model.cost_micros(4096, 16 * 4096, 3) - depth_3).abs() < 1e-9);
        let page = (model.cost_micros(4096, 1 << 20, 2) + model.cost_micros(65536, 1 << 20, 2)) / 2.0;
        assert!((model.cost_micros((4096 + 65536) / 2, 1 << 20, 2) - page).abs() < 1e-9);
        // Outside the table the nearest point counts; larger pages take longer by their bytes.
        assert_eq!(model.cost_micros(512, 1, 1), point(0, 0));
        assert_eq!(model.cost_micros(131072, 1 << 30, 1), 2.0 * model.cost_micros(65536, 1 << 30, 1));
    }

    #[test]
    fn derived_sizes_follow_from_the_table() {
        // A request takes 10 µs of the device, a byte 1 ns, and the device serves 16 requests at once up to its 1 GB/s.
        let model = model(
            &ReadGrid {
                page_bytes: (2..=10).map(|power| 1024 << power).collect(),
                band_bytes: vec![1 << 30],
                depths: (0..10).map(|power| 1 << power).collect(),
            },
            |point| {
                let bytes = f64::from(point.page_bytes) / 1000.0;
                ((160.0 + bytes) / f64::from(point.depth)).max(10.0 + bytes)
            },
        );
        assert_eq!(model.useful_depth(4096), 16);
        assert!((model.full_bandwidth() / 0.99e9 - 1.0).abs() < 0.01);
        assert_eq!(model.smallest_full_read_bytes(), 256 << 10);
        assert!((9_000..11_000).contains(&model.gap_bytes()), "{}", model.gap_bytes());
    }

    #[test]
    fn broken_tables_are_recognised() {
        let sound = calibrated(4, &mut Vec::new());
        let broken = |change: fn(&mut PageCosts)| {
            let mut pages = sound.pages.clone();
            change(&mut pages[0]);
            ReadModel::from_pages(pages).is_none()
        };
        assert!(broken(|costs| costs.micros[0][0] = f64::NAN));
        assert!(broken(|costs| costs.micros[0][0] = 0.0));
        assert!(broken(|costs| drop(costs.micros.pop())));
        assert!(broken(|costs| costs.depths.reverse()));
        assert!(broken(|costs| costs.measured_depths = 0));
        assert!(ReadModel::from_pages(Vec::new()).is_none());
        assert!(ReadModel::from_pages(sound.pages).is_some());
    }
}
