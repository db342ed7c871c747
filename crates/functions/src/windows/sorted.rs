//! Frames in an order of their own.

use std::ops::Range;

use arrow::array::ArrayRef;
use arrow::compute::SortOptions;
use arrow::row::{RowConverter, SortField};
use datafusion::common::Result;

/// The rows of a partition by their own keys, equal ones in the order of the window.
pub(super) struct Order {
    /// The row at each place.
    rows: Vec<usize>,
    /// The place of each row.
    places: Vec<usize>,
    /// How many different keys are before the one of each row.
    keys: Vec<usize>,
}

impl Order {
    pub(super) fn new(keys: &[ArrayRef], options: &[SortOptions], count: usize) -> Result<Self> {
        let mut rows: Vec<usize> = (0..count).collect();
        let mut places = rows.clone();
        let mut numbers = vec![0; count];
        if !keys.is_empty() {
            let fields = keys.iter().zip(options);
            let field = |(key, options): (&ArrayRef, &SortOptions)| {
                SortField::new_with_options(key.data_type().clone(), *options)
            };
            let converter = RowConverter::new(fields.map(field).collect())?;
            let keys = converter.convert_columns(keys)?;
            rows.sort_by(|a, b| keys.row(*a).cmp(&keys.row(*b)));
            let mut number = 0;
            for (place, row) in rows.iter().enumerate() {
                let before = place.checked_sub(1).map(|place| rows[place]);
                number += usize::from(before.is_some_and(|before| keys.row(before) != keys.row(*row)));
                (places[*row], numbers[*row]) = (place, number);
            }
        }
        Ok(Order { rows, places, keys: numbers })
    }

    /// The place of a row, and the number of its key. Of a row that a filter dropped, those of the next one.
    pub(super) fn place(&self, row: usize) -> usize {
        self.places.get(row).copied().unwrap_or(self.rows.len())
    }

    pub(super) fn key(&self, row: usize) -> usize {
        self.keys.get(row).copied().unwrap_or(self.rows.len())
    }

    pub(super) fn row(&self, place: usize) -> usize {
        self.rows[place]
    }
}

/// The places of the rows in a frame, in order, while frames move from row to row.
pub(super) struct SortedFrame<'a> {
    order: &'a Order,
    ranges: Vec<Range<usize>>,
    places: Vec<usize>,
}

impl<'a> SortedFrame<'a> {
    pub(super) fn new(order: &'a Order) -> Self {
        SortedFrame { order, ranges: Vec::new(), places: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Rows in order.
    pub(super) fn rows(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        self.places.iter().map(|place| self.order.row(*place))
    }

    pub(super) fn row(&self, number: usize) -> Option<usize> {
        self.places.get(number).map(|place| self.order.row(*place))
    }

    /// How many rows of the frame come before a place.
    pub(super) fn rows_before(&self, place: usize) -> usize {
        self.places.partition_point(|other| *other < place)
    }

    /// How many rows have keys before this one, or up to it.
    pub(super) fn keys_before(&self, key: usize) -> usize {
        self.places.partition_point(|place| self.order.keys[self.order.row(*place)] < key)
    }

    pub(super) fn keys_up_to(&self, key: usize) -> usize {
        self.places.partition_point(|place| self.order.keys[self.order.row(*place)] <= key)
    }

    /// How many different keys the first rows have.
    pub(super) fn different_keys(&self, rows: usize) -> usize {
        let mut keys: Vec<usize> = self.rows().take(rows).map(|row| self.order.keys[row]).collect();
        keys.dedup();
        keys.len()
    }

    /// Moves on to the next frame.
    pub(super) fn move_to(&mut self, ranges: Vec<Range<usize>>) {
        if ranges == self.ranges {
            return;
        }
        match (self.ranges.as_slice(), ranges.as_slice()) {
            // Few rows come and go: the others stay in order.
            ([old], [new]) if changes(old, new) < 2 + new.len() / 32 => {
                for row in (old.start..old.end.min(new.start)).chain(old.start.max(new.end)..old.end) {
                    let place = self.order.place(row);
                    if let Ok(at) = self.places.binary_search(&place) {
                        self.places.remove(at);
                    }
                }
                for row in (new.start..new.end.min(old.start)).chain(new.start.max(old.end)..new.end) {
                    let place = self.order.place(row);
                    if let Err(at) = self.places.binary_search(&place) {
                        self.places.insert(at, place);
                    }
                }
            }
            _ => {
                self.places.clear();
                self.places.extend(ranges.iter().cloned().flatten().map(|row| self.order.place(row)));
                self.places.sort_unstable();
            }
        }
        self.ranges = ranges;
    }
}

/// How many rows are in one of two ranges only.
fn changes(a: &Range<usize>, b: &Range<usize>) -> usize {
    let common = a.end.min(b.end).saturating_sub(a.start.max(b.start));
    a.len() + b.len() - 2 * common
}
