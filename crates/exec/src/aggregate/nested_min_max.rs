//! `min` and `max` of the lists or structs of one group or window frame, in Arrow's row format, whose bytes have their order.
//!
//! A frame that moves loses its first rows while it takes new ones. A value that stands before one that wins against it is
//! never the answer again, so those that can be are kept alone; they are in order, and the first is the answer.

use std::cmp::Ordering;
use std::collections::VecDeque;

use arrow::array::{Array, ArrayRef};
use arrow::compute::{SortOptions, cast};
use arrow::datatypes::DataType;
use arrow::row::{OwnedRow, Row, RowConverter, SortField};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::Accumulator;

use crate::keys::floats::canonical;

/// The least or greatest of some rows.
#[derive(Debug)]
pub struct NestedMinMax {
    /// What a value is, compared with the one it takes the place of.
    wins: Ordering,
    data_type: DataType,
    converter: RowConverter,
    /// Whether rows leave in the order in which they came.
    moves: bool,
    /// Rows that have left, and all that have come.
    begin: u64,
    end: u64,
    /// Values that are the answer or may become it, with their places.
    candidates: VecDeque<(u64, OwnedRow)>,
    candidate_bytes: usize,
    /// The value at a place, which was asked for last.
    answer: Option<(u64, ScalarValue)>,
}

impl NestedMinMax {
    /// Of no rows yet; `None` if the type is not nested or something inside has no order.
    pub fn new(wins: Ordering, data_type: &DataType, moves: bool) -> Option<Self> {
        let converter = converter_of(data_type)?;
        let data_type = data_type.clone();
        Some(Self {
            wins,
            data_type,
            converter,
            moves,
            begin: 0,
            end: 0,
            candidates: VecDeque::new(),
            candidate_bytes: 0,
            answer: None,
        })
    }

    fn push(&mut self, place: u64, row: Row<'_>) {
        while let Some((_, last)) = self.candidates.back() {
            let (order, last_bytes) = (row.cmp(&last.row()), bytes_of(last));
            if order != self.wins && !self.moves {
                return;
            }
            if order != self.wins && order.is_ne() {
                break;
            }
            self.candidates.pop_back();
            self.candidate_bytes -= last_bytes;
        }
        let row = row.owned();
        self.candidate_bytes += bytes_of(&row);
        self.candidates.push_back((place, row));
    }
}

/// What writes lists and structs as rows, nulls inside of them as the greatest values; `None` for other types, and for what
/// has something inside that has no order.
pub fn converter_of(data_type: &DataType) -> Option<RowConverter> {
    let is_list = matches!(
        data_type,
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) | DataType::Struct(_)
    );
    let options = SortOptions { descending: false, nulls_first: false };
    let field = SortField::new_with_options(data_type.clone(), options);
    let fields = vec![field];
    (is_list && RowConverter::supports_fields(&fields)).then(|| RowConverter::new(fields).ok())?
}

fn only_argument(values: &[ArrayRef]) -> Result<&ArrayRef> {
    match values {
        [values] => Ok(values),
        _ => internal_err!("min and max have one argument, not {}", values.len()),
    }
}

fn bytes_of(row: &OwnedRow) -> usize {
    row.row().as_ref().len()
}

impl Accumulator for NestedMinMax {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = only_argument(values)?;
        let rows = self.converter.convert_columns(&[canonical(values)?])?;
        let nulls = values.logical_nulls();
        for (at, row) in rows.iter().enumerate() {
            if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(at)) {
                self.push(self.end + at as u64, row);
            }
        }
        self.end += rows.num_rows() as u64;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.begin += only_argument(values)?.len() as u64;
        let begin = self.begin;
        while let Some((_, row)) = self.candidates.pop_front_if(|(place, _)| *place < begin) {
            self.candidate_bytes -= bytes_of(&row);
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        self.moves
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let Some((place, best)) = self.candidates.front() else {
            return ScalarValue::try_from(&self.data_type);
        };
        if let Some((known, answer)) = &self.answer
            && known == place
        {
            return Ok(answer.clone());
        }
        let columns = self.converter.convert_rows([best.row()])?;
        let Some(column) = columns.first() else { unreachable!("a converter of one column gives one") };
        // Dictionaries inside have become plain.
        let answer = ScalarValue::try_from_array(&cast(column, &self.data_type)?, 0)?;
        self.answer = Some((*place, answer.clone()));
        Ok(answer)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn size(&self) -> usize {
        let candidates = self.candidates.capacity() * size_of::<(u64, OwnedRow)>();
        let answer = self.answer.as_ref().map_or(0, |(_, answer)| answer.size());
        size_of_val(self) + self.converter.size() + candidates + self.candidate_bytes + answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray as _, ListArray};
    use arrow::datatypes::Int32Type;
    use proptest::prelude::*;

    use super::*;

    type Values = Vec<Option<Vec<Option<i32>>>>;

    fn lists(values: &[Option<Vec<Option<i32>>>]) -> ArrayRef {
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(values.to_vec()))
    }

    /// Nulls inside are greater than any number.
    fn order(list: &[Option<i32>]) -> Vec<i64> {
        list.iter().map(|number| number.map_or(i64::MAX, i64::from)).collect()
    }

    fn best(values: &[Option<Vec<Option<i32>>>], wins: Ordering) -> Option<Vec<i64>> {
        let there = values.iter().flatten().map(|list| order(list));
        if wins == Ordering::Less { there.min() } else { there.max() }
    }

    fn answer(accumulator: &mut NestedMinMax) -> Option<Vec<i64>> {
        let value = accumulator.evaluate().unwrap().to_array().unwrap();
        let list = value.as_list::<i32>();
        list.is_valid(0).then(|| {
            let numbers = list.value(0);
            order(&numbers.as_primitive::<Int32Type>().iter().collect::<Vec<_>>())
        })
    }

    proptest! {
        #[test]
        fn frames_that_move_have_the_best_of_their_rows(
            values in prop::collection::vec(
                prop::option::weighted(0.9, prop::collection::vec(prop::option::of(0..3), 0..3)), 0..40),
            steps in prop::collection::vec((0..4_usize, 0..4_usize), 0..40),
            is_least: bool,
        ) {
            let values: Values = values;
            let wins = if is_least { Ordering::Less } else { Ordering::Greater };
            let data_type = lists(&[]).data_type().clone();
            let mut moving = NestedMinMax::new(wins, &data_type, true).unwrap();
            let mut growing = NestedMinMax::new(wins, &data_type, false).unwrap();
            let (mut begin, mut end) = (0, 0);
            for (more, fewer) in steps {
                let next = (end + more).min(values.len());
                moving.update_batch(&[lists(&values[end..next])]).unwrap();
                growing.update_batch(&[lists(&values[end..next])]).unwrap();
                end = next;
                let next = (begin + fewer).min(end);
                moving.retract_batch(&[lists(&values[begin..next])]).unwrap();
                begin = next;
                prop_assert_eq!(answer(&mut moving), best(&values[begin..end], wins));
                prop_assert_eq!(answer(&mut growing), best(&values[..end], wins));
                prop_assert!(growing.candidates.len() <= 1);
            }
        }
    }
}
