//! Aggregates of floating-point numbers whose state is a few of them.
//!
//! Moments are central, and merged as Pébay does ("Formulas for robust, one-pass parallel computation of covariances and
//! arbitrary-order statistical moments", 2008, section 2). Sums carry what rounding lost (Neumaier 1974).

use std::fmt;
use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::cast::as_float64_array;
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::EmitTo;

use super::{States, state_of};

const MOST_FIELDS: usize = 5;

/// The number of values, then what the function needs.
type State = [f64; MOST_FIELDS];

/// One such function.
pub(super) struct Fold {
    pub(super) names: &'static [&'static str],
    pub(super) fields: usize,
    /// Whether it takes booleans, and gives a whole number.
    pub(super) of_booleans: bool,
    start: State,
    add: fn(&mut State, f64),
    merge: fn(&mut State, &State),
    /// The result of at least one value.
    finish: fn(&State) -> Option<f64>,
}

impl fmt::Debug for Fold {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{:?}", self.names)
    }
}

const MOMENTS: Fold = Fold {
    names: &[],
    fields: 5,
    of_booleans: false,
    start: [0.0; 5],
    add: |state, value| {
        let of_one = [1.0, value, 0.0, 0.0, 0.0];
        merge_moments(state, &of_one);
    },
    merge: merge_moments,
    finish: |_| None,
};

const SUM: Fold = Fold {
    names: &[],
    fields: 3,
    of_booleans: false,
    start: [0.0; 5],
    add: add_exactly,
    merge: |state, other| {
        let [count, _, _, ..] = *state;
        let [others, sum, lost, ..] = *other;
        add_exactly(state, sum);
        add_exactly(state, lost);
        let [first, ..] = state;
        *first = count + others;
    },
    finish: |&[_, sum, lost, ..]| Some(sum + lost),
};

pub(super) static FOLDS: &[Fold] = &[
    Fold {
        names: &["product"],
        fields: 2,
        of_booleans: false,
        start: [0.0, 1.0, 0.0, 0.0, 0.0],
        add: |[count, product, ..], value| {
            *count += 1.0;
            *product *= value;
        },
        merge: |[count, product, ..], [others, value, ..]| {
            *count += others;
            *product *= value;
        },
        finish: |&[_, product, ..]| Some(product),
    },
    Fold {
        names: &["geomean", "geometric_mean"],
        fields: 2,
        of_booleans: false,
        start: [0.0; 5],
        add: |[count, logarithms, ..], value| {
            *count += 1.0;
            *logarithms += value.ln();
        },
        merge: |[count, logarithms, ..], [others, value, ..]| {
            *count += others;
            *logarithms += value;
        },
        finish: |&[count, logarithms, ..]| Some((logarithms / count).exp()),
    },
    Fold { names: &["fsum", "kahan_sum", "sumkahan"], ..SUM },
    Fold { names: &["favg"], finish: |&[count, sum, lost, ..]| Some((sum + lost) / count), ..SUM },
    Fold { names: &["count_if", "countif"], of_booleans: true, ..SUM },
    Fold {
        names: &["sem"],
        finish: |&[count, _, squares, ..]| Some((squares / count).sqrt() / count.sqrt()),
        ..MOMENTS
    },
    Fold {
        names: &["skewness"],
        finish: |&[count, _, squares, cubes, _]| {
            let variance = squares / count;
            let bias = (count * (count - 1.0)).sqrt() / (count - 2.0);
            (count > 2.0 && variance > 0.0).then(|| bias * (cubes / count) / variance.powf(1.5))
        },
        ..MOMENTS
    },
    Fold {
        names: &["kurtosis"],
        finish: |&[count, _, squares, _, fourths]| {
            let excess = (count + 1.0) * count * fourths / (squares * squares) - 3.0 * (count - 1.0);
            let bias = (count - 1.0) / ((count - 2.0) * (count - 3.0));
            (count > 3.0 && squares > 0.0).then_some(bias * excess)
        },
        ..MOMENTS
    },
    Fold {
        names: &["kurtosis_pop"],
        finish: |&[count, _, squares, _, fourths]| {
            (count > 1.0 && squares > 0.0).then(|| count * fourths / (squares * squares) - 3.0)
        },
        ..MOMENTS
    },
];

/// Counts a value and adds it to the sum, and what that lost to the second one.
fn add_exactly([count, sum, lost, ..]: &mut State, value: f64) {
    *count += 1.0;
    let total = *sum + value;
    if total.is_finite() {
        *lost += if sum.abs() >= value.abs() { (*sum - total) + value } else { (value - total) + *sum };
    }
    *sum = total;
}

/// The moments of two sets together: count, mean, and sums of powers of distances from it.
fn merge_moments(state: &mut State, other: &State) {
    let [n, mean, squares, cubes, fourths] = *state;
    let [m, other_mean, other_squares, other_cubes, other_fourths] = *other;
    if m == 0.0 {
        return;
    }
    let count = n + m;
    let delta = other_mean - mean;
    let share = delta / count;
    *state = [
        count,
        mean + m * share,
        squares + other_squares + delta * share * n * m,
        cubes
            + other_cubes
            + delta * share * share * n * m * (n - m)
            + 3.0 * share * (n * other_squares - m * squares),
        fourths
            + other_fourths
            + delta * share * share * share * n * m * (n * n - n * m + m * m)
            + 6.0 * share * share * (n * n * other_squares + m * m * squares)
            + 4.0 * share * (n * other_cubes - m * cubes),
    ];
}

impl Fold {
    fn result(&self, state: &State) -> Option<f64> {
        let [count, ..] = *state;
        if count > 0.0 { (self.finish)(state) } else { None }
    }

    /// The function of these values.
    pub(super) fn over(&self, values: impl Iterator<Item = f64>) -> Option<f64> {
        let mut state = self.start;
        values.for_each(|value| (self.add)(&mut state, value));
        self.result(&state)
    }

    /// Results in the type of the function.
    pub(super) fn array(&self, results: impl Iterator<Item = Option<f64>>) -> ArrayRef {
        if self.of_booleans {
            return Arc::new(results.map(|count| count.map(|count| count as i64)).collect::<Int64Array>());
        }
        Arc::new(results.collect::<Float64Array>())
    }
}

#[derive(Debug)]
pub(super) struct Folds {
    fold: &'static Fold,
    states: Vec<State>,
}

impl Folds {
    pub(super) fn new(fold: &'static Fold) -> Self {
        Folds { fold, states: Vec::new() }
    }
}

impl States for Folds {
    fn empty(&self) -> Box<dyn States> {
        Box::new(Folds::new(self.fold))
    }

    fn grow(&mut self, groups: usize) {
        if groups > self.states.len() {
            self.states.resize(groups, self.fold.start);
        }
    }

    fn update(&mut self, values: &[ArrayRef], groups: &mut dyn Iterator<Item = Option<usize>>) -> Result<()> {
        let [values, ..] = values else { return exec_err!("an aggregate lacks its argument") };
        let values = cast(values, &DataType::Float64)?;
        for (value, group) in as_float64_array(&values)?.iter().zip(groups) {
            if let Some((value, group)) = value.zip(group) {
                (self.fold.add)(state_of(&mut self.states, group)?, value);
            }
        }
        Ok(())
    }

    fn merge(&mut self, states: &[ArrayRef], groups: &mut dyn Iterator<Item = Option<usize>>) -> Result<()> {
        let fields = states.iter().map(|field| as_float64_array(field)).collect::<Result<Vec<_>>>()?;
        let rows = states.first().map_or(0, |field| field.len());
        for (row, group) in (0..rows).zip(groups) {
            let mut other = self.fold.start;
            for (value, field) in other.iter_mut().zip(&fields) {
                *value = field.value(row);
            }
            if let Some(group) = group {
                (self.fold.merge)(state_of(&mut self.states, group)?, &other);
            }
        }
        Ok(())
    }

    fn split(&mut self, emit: EmitTo) -> Box<dyn States> {
        Box::new(Folds { fold: self.fold, states: emit.take_needed(&mut self.states) })
    }

    fn states(&self) -> Result<Vec<ArrayRef>> {
        let field = |number: usize| {
            let values = self.states.iter().map(|state| state.get(number).copied());
            Arc::new(values.collect::<Float64Array>()) as ArrayRef
        };
        Ok((0..self.fold.fields).map(field).collect())
    }

    fn results(&self) -> Result<ArrayRef> {
        Ok(self.fold.array(self.states.iter().map(|state| self.fold.result(state))))
    }

    fn size(&self) -> usize {
        self.states.capacity() * size_of::<State>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> &'static Fold {
        FOLDS.iter().find(|fold| fold.names.contains(&name)).unwrap()
    }

    #[test]
    fn parts_merge_to_the_whole() {
        let values = [1.5, -2.0, 8.0, 0.25, 3.0, 3.0, 1e3];
        for fold in FOLDS {
            let whole = fold.over(values.into_iter());
            for cut in 0..=values.len() {
                let part = |values: &[f64]| {
                    let mut state = fold.start;
                    values.iter().for_each(|value| (fold.add)(&mut state, *value));
                    state
                };
                let mut state = part(&values[..cut]);
                (fold.merge)(&mut state, &part(&values[cut..]));
                let merged = fold.result(&state);
                let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs() || (a.is_nan() && b.is_nan());
                assert!(near(merged.unwrap(), whole.unwrap()), "{fold:?} {cut}: {merged:?} {whole:?}");
            }
        }
    }

    #[test]
    fn moments_of_few_values() {
        let values = [1.0, 2.0, 2.0, 4.0];
        let near = |name: &str, expected: f64| {
            let result = named(name).over(values.into_iter()).unwrap();
            assert!((result - expected).abs() < 1e-12, "{name}: {result}");
        };
        near("kurtosis", 2.2271468144044304);
        near("kurtosis_pop", -0.9030470914127426);
        near("skewness", 1.1293381149712474);
        near("sem", 0.5448623679425842);
        near("geomean", 2.0);
        assert_eq!(named("kurtosis").over([1.0, 2.0, 3.0].into_iter()), None);
        assert_eq!(named("skewness").over([2.0, 2.0, 2.0].into_iter()), None);
        assert_eq!(named("product").over(std::iter::empty()), None);
    }

    #[test]
    fn sums_keep_what_rounding_loses() {
        let values = [1e16, 1.0, 1.0, -1e16];
        assert_eq!(named("fsum").over(values.into_iter()), Some(2.0));
        assert_eq!(named("fsum").over([f64::INFINITY, 1.0].into_iter()), Some(f64::INFINITY));
    }
}
