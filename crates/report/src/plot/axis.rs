//! Where a value lies on an axis, and which places of it are labelled.
//!
//! ```text
//!   linear       0 ── 500 MB/s ── 1 GB/s            steps of 1, 2 or 5 times a power of ten;
//!                0 ── 256 MiB ── 512 MiB            of a power of two for sizes; of seconds, minutes, hours for times
//!   logarithmic  10 µs ─── 100 µs ─── 1 ms          1, 2 and 5, or powers of ten, as many as there is room for
//!                4 KiB ── 64 KiB ── 1 MiB           powers of two for sizes and depths
//! ```
//!
//! Invariant: `low < high`, both finite, and above zero if the axis is logarithmic. So every finite value (above zero)
//! has a place, and a place has one value.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::quantity;

/// What an axis counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    BytesPerSecond,
    Seconds,
    /// Requests in flight: doubled from step to step.
    Depth,
    Number,
}

#[derive(Debug, Clone)]
pub struct Axis {
    pub low: f64,
    pub high: f64,
    pub(crate) is_logarithmic: bool,
    unit: Unit,
}

/// A logarithmic axis spans at least this factor: less of it has hardly a round number to label.
const LEAST_FACTOR: f64 = 8.0;

impl Axis {
    /// From 0 to a little more than the largest value.
    pub fn linear(unit: Unit, values: impl IntoIterator<Item = f64>) -> Self {
        let high = values.into_iter().filter(|value| value.is_finite()).fold(0.0, f64::max);
        let high = if high > 0.0 { (high * 1.12).min(f64::MAX / 4.0) } else { 1.0 };
        Self { low: 0.0, high, is_logarithmic: false, unit }
    }

    /// From 0 to exactly the largest value, or to 1 of the unit.
    pub(crate) fn linear_to(unit: Unit, high: f64) -> Self {
        let high = if high.is_finite() && high > 0.0 { high.min(f64::MAX / 4.0) } else { 1.0 };
        Self { low: 0.0, high, is_logarithmic: false, unit }
    }

    /// Around the values that are above zero.
    pub fn logarithmic(unit: Unit, values: impl IntoIterator<Item = f64>) -> Self {
        let usual = values.into_iter().filter(|value| value.is_finite() && *value > 0.0);
        let (low, high) =
            usual.fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if high > 0.0 { (low, high) } else { (1.0, 1.0) };
        let (low, high) = (low.clamp(1e-250, 1e250) / 1.25, high.clamp(1e-250, 1e250) * 1.25);
        let missing = (LEAST_FACTOR / (high / low)).max(1.0);
        // There is no depth below one to make room for.
        if unit == Unit::Depth {
            return Self { low, high: high * missing, is_logarithmic: true, unit };
        }
        let missing = missing.sqrt();
        Self { low: low / missing, high: high * missing, is_logarithmic: true, unit }
    }

    /// Whether a value can be drawn.
    pub(crate) fn has(&self, value: f64) -> bool {
        value.is_finite() && (!self.is_logarithmic || value > 0.0)
    }

    /// At most about so many places to label, ascending.
    pub(crate) fn ticks(&self, most: usize) -> Vec<f64> {
        let most = most.max(2);
        if !self.is_logarithmic {
            return self.linear_ticks(most);
        }
        let every = match self.unit {
            Unit::Bytes | Unit::Depth => self.powers(2.0, most),
            _ => {
                let fine = self.ones_twos_and_fives();
                if fine.len() <= most { fine } else { self.powers(10.0, most) }
            }
        };
        if every.is_empty() { vec![self.low, self.high] } else { every }
    }

    pub fn tick_label(&self, value: f64) -> String {
        match self.unit {
            Unit::Bytes => quantity::size(value),
            Unit::BytesPerSecond => quantity::rate(value),
            Unit::Seconds => quantity::seconds(value),
            Unit::Depth | Unit::Number => quantity::plain(value),
        }
    }

    fn powers(&self, base: f64, most: usize) -> Vec<f64> {
        let exponent = |value: f64| value.log2() / base.log2();
        let (first, last) = (exponent(self.low).ceil() as i32, exponent(self.high).floor() as i32);
        let count = (last - first).max(0) as usize + 1;
        let fitting = [1, 2, 4, 5, 10, 20, 50, 100].into_iter().find(|step| count.div_ceil(*step) <= most);
        (first..=last).step_by(fitting.unwrap_or(1000)).map(|power| base.powi(power)).collect()
    }

    fn ones_twos_and_fives(&self) -> Vec<f64> {
        let decades = self.low.log10().floor() as i32..=self.high.log10().floor() as i32;
        let steps = decades.flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(power)));
        steps.filter(|tick| (self.low..=self.high).contains(tick)).collect()
    }

    fn linear_ticks(&self, most: usize) -> Vec<f64> {
        let rough = (self.high - self.low) / most as f64;
        let step = self.round_step(rough);
        // Multiples, not sums: a tenth added ten times is not one.
        (0..=most)
            .map(|number| self.low + number as f64 * step)
            .take_while(|tick| *tick <= self.high)
            .collect()
    }

    /// The smallest round step that is at least so large.
    fn round_step(&self, rough: f64) -> f64 {
        const CLOCK: [f64; 15] = [
            20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10_800.0, 21_600.0,
            43_200.0, 86_400.0, 172_800.0,
        ];
        if self.unit == Unit::Bytes && rough > 0.5 {
            return rough.log2().ceil().exp2();
        }
        if self.unit == Unit::Seconds
            && rough > 10.0
            && let Some(step) = CLOCK.into_iter().find(|step| *step >= rough)
        {
            return step;
        }
        let unit = 10f64.powi(rough.max(f64::MIN_POSITIVE).log10().floor() as i32);
        [1.0, 2.0, 5.0, 10.0].map(|step| step * unit).into_iter().find(|step| *step >= rough).unwrap_or(rough)
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let scaled = |value: f64| if self.is_logarithmic { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let (low, high) = (scaled(self.low), scaled(self.high));
        let share = (scaled(*value) - low) / (high - low);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        self.ticks(hint.max_num_points())
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        self.tick_label(*value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, most: usize) -> Vec<String> {
        axis.ticks(most).into_iter().map(|tick| axis.tick_label(tick)).collect()
    }

    #[test]
    fn linear_ticks_are_round_in_their_unit() {
        assert_eq!(
            labels(&Axis::linear(Unit::BytesPerSecond, [1.4e9]), 4),
            ["0 B/s", "500 MB/s", "1 GB/s", "1.5 GB/s"]
        );
        assert_eq!(
            labels(&Axis::linear(Unit::Bytes, [550e6]), 5),
            ["0 B", "128 MiB", "256 MiB", "384 MiB", "512 MiB"]
        );
        assert_eq!(
            labels(&Axis::linear_to(Unit::Seconds, 85e-6), 5),
            ["0 s", "20 µs", "40 µs", "60 µs", "80 µs"]
        );
        assert_eq!(
            labels(&Axis::linear_to(Unit::Seconds, 8000.0), 5),
            ["0 s", "30 min", "1 h", "1 h 30 min", "2 h"]
        );
        assert_eq!(labels(&Axis::linear(Unit::Number, [0.0]), 2), ["0", "0.5", "1"]);
    }

    #[test]
    fn logarithmic_ticks_fit_the_room_that_there_is() {
        let bands = Axis::logarithmic(Unit::Bytes, [4096.0, (8_u64 << 30) as f64]);
        assert_eq!(labels(&bands, 6), ["4 KiB", "64 KiB", "1 MiB", "16 MiB", "256 MiB", "4 GiB"]);
        assert_eq!(labels(&bands, 3), ["4 KiB", "4 MiB", "4 GiB"]);
        let costs = Axis::logarithmic(Unit::Seconds, [6e-6, 90e-6]);
        assert_eq!(labels(&costs, 6), ["5 µs", "10 µs", "20 µs", "50 µs", "100 µs"]);
        assert_eq!(labels(&costs, 2), ["10 µs", "100 µs"]);
        assert_eq!(labels(&Axis::logarithmic(Unit::Depth, [1.0, 2.0]), 6), ["1", "2", "4"]);
        assert_eq!(labels(&Axis::logarithmic(Unit::Seconds, [3e-4]), 6), ["200 µs", "500 µs"], "one value");
    }

    #[test]
    fn extreme_values_still_make_an_axis() {
        for values in [
            vec![],
            vec![0.0],
            vec![f64::NAN, f64::INFINITY],
            vec![f64::MAX],
            vec![f64::MIN_POSITIVE],
            vec![-1.0],
        ] {
            for axis in [
                Axis::linear(Unit::Bytes, values.clone()),
                Axis::linear(Unit::Seconds, values.clone()),
                Axis::logarithmic(Unit::Bytes, values.clone()),
                Axis::logarithmic(Unit::Seconds, values.clone()),
            ] {
                assert!(axis.low < axis.high && axis.high.is_finite(), "{values:?}: {axis:?}");
                let ticks = axis.ticks(6);
                assert!((1..=12).contains(&ticks.len()), "{values:?}: {axis:?} {ticks:?}");
                assert!(
                    ticks.iter().all(|tick| tick.is_finite() && *tick <= axis.high),
                    "{values:?}: {ticks:?}"
                );
            }
        }
    }
}
