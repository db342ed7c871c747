//! Values of one function for rows that still wait.

use std::collections::VecDeque;

use arrow::array::{Array, ArrayRef};
use arrow::compute::concat;
use datafusion::common::{Result, ScalarValue};

use crate::batch::row_width::value_bytes;

/// A queue of values, in the order of the rows that they belong to.
#[derive(Debug, Default)]
pub struct Results {
    pieces: VecDeque<Piece>,
    rows: usize,
}

#[derive(Debug)]
enum Piece {
    Values(ArrayRef),
    /// The same value for so many rows.
    Constant(ScalarValue, usize),
}

impl Results {
    /// How many rows have values.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of the values.
    pub fn bytes(&self) -> usize {
        let bytes = self.pieces.iter().map(|piece| match piece {
            Piece::Values(values) => value_bytes(values),
            Piece::Constant(value, _) => value.size(),
        });
        bytes.sum()
    }

    pub fn push(&mut self, values: ArrayRef) {
        self.rows += values.len();
        if !values.is_empty() {
            self.pieces.push_back(Piece::Values(values));
        }
    }

    pub fn push_constant(&mut self, value: ScalarValue, rows: usize) {
        self.rows += rows;
        if rows > 0 {
            self.pieces.push_back(Piece::Constant(value, rows));
        }
    }

    /// Takes the values of the first `rows` rows, of which there must be so many.
    pub fn take(&mut self, rows: usize) -> Result<ArrayRef> {
        let mut taken = Vec::new();
        let mut missing = rows;
        while missing > 0 {
            let Some(piece) = self.pieces.pop_front() else {
                unreachable!("{missing} of {rows} rows are not there")
            };
            let count = missing.min(piece.rows());
            taken.push(piece.first(count)?);
            missing -= count;
            if let Some(rest) = piece.without_first(count) {
                self.pieces.push_front(rest);
            }
        }
        self.rows -= rows;
        match taken.as_slice() {
            [only] => Ok(ArrayRef::clone(only)),
            several => Ok(concat(&several.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>())?),
        }
    }
}

impl Piece {
    fn rows(&self) -> usize {
        match self {
            Self::Values(values) => values.len(),
            Self::Constant(_, rows) => *rows,
        }
    }

    fn first(&self, rows: usize) -> Result<ArrayRef> {
        match self {
            Self::Values(values) => Ok(values.slice(0, rows)),
            Self::Constant(value, _) => value.to_array_of_size(rows),
        }
    }

    fn without_first(self, rows: usize) -> Option<Self> {
        match self {
            Self::Values(values) => Some(values.slice(rows, values.len() - rows))
                .filter(|rest| !rest.is_empty())
                .map(Self::Values),
            Self::Constant(value, all) => Some(Self::Constant(value, all - rows)).filter(|_| all > rows),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn values_come_in_the_order_in_which_they_were_put_in() {
        let mut results = Results::default();
        results.push(Arc::new(Int64Array::from_iter_values(0..3)));
        results.push_constant(ScalarValue::Int64(Some(7)), 3);
        results.push_constant(ScalarValue::Int64(Some(8)), 0);
        results.push(Arc::new(Int64Array::from(vec![9])));
        assert_eq!(results.rows(), 7);
        let mut taken = Vec::new();
        for rows in [1, 4, 2] {
            let values = results.take(rows).unwrap();
            assert_eq!(values.len(), rows);
            taken.extend(values.as_primitive::<Int64Type>().values().iter().copied());
        }
        assert_eq!(taken, [0, 1, 2, 7, 7, 7, 9]);
        assert_eq!((results.rows(), results.bytes()), (0, 0));
    }
}
