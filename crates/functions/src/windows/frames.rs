//! Which rows of a partition the frame of a row has.

use std::cmp::Ordering;
use std::ops::Range;

use arrow::array::{Array as _, ArrayRef, Int64Array};
use arrow::compute::partition;
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::cast::as_int64_array;
use datafusion::common::{Result, exec_err};

use super::{Exclusion, Frame, FrameBound, FrameUnits};

/// The frames of all rows.
pub(super) struct Frames {
    ranges: Vec<Range<usize>>,
    exclusion: Exclusion,
    /// The peers of each row, if they matter.
    peers: Peers,
}

/// Rows that are equal in the window's order; all of them if there is none.
struct Peers {
    groups: Vec<Range<usize>>,
    /// The group of each row.
    group_of: Vec<usize>,
}

impl Peers {
    fn new(keys: &[ArrayRef], rows: usize) -> Result<Self> {
        let all = || std::iter::once(0..rows).filter(|range| !range.is_empty()).collect();
        let groups = if keys.is_empty() { all() } else { partition(keys)?.ranges() };
        let numbered = groups.iter().enumerate();
        let group_of = numbered.flat_map(|(number, group)| group.clone().map(move |_| number)).collect();
        Ok(Peers { groups, group_of })
    }

    fn of(&self, row: usize) -> Range<usize> {
        self.groups[self.group_of[row]].clone()
    }
}

impl Frames {
    /// The frames in a partition of so many rows, from the keys of its order and what bounds are computed from.
    pub(super) fn new(
        frame: &Frame,
        rows: usize,
        keys: &[ArrayRef],
        bounds: [Option<&ArrayRef>; 2],
    ) -> Result<Self> {
        let peers = Peers::new(keys, rows)?;
        let [start, end] = bounds;
        let starts = Edge { bound: frame.start, is_end: false }.of_rows(frame, &peers, keys, start, rows)?;
        let ends = Edge { bound: frame.end, is_end: true }.of_rows(frame, &peers, keys, end, rows)?;
        let ranges = starts.into_iter().zip(ends).map(|(start, end)| start..end.max(start)).collect();
        Ok(Frames { ranges, exclusion: frame.exclusion, peers })
    }

    /// The ranges that the frame of a row consists of, in their order; some may be empty.
    pub(super) fn of(&self, row: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let all = self.ranges[row].clone();
        let current = row..row + 1;
        let (hole, island) = match self.exclusion {
            Exclusion::Nothing => (all.end..all.end, 0..0),
            Exclusion::CurrentRow => (current, 0..0),
            Exclusion::Group => (self.peers.of(row), 0..0),
            Exclusion::Ties => (self.peers.of(row), current),
        };
        let before = all.start..all.end.min(hole.start);
        let island = island.start.max(all.start)..island.end.min(all.end);
        let after = all.start.max(hole.end)..all.end;
        [before, island, after].into_iter().filter(|range| !range.is_empty())
    }
}

/// One end of frames.
struct Edge {
    bound: FrameBound,
    is_end: bool,
}

impl Edge {
    /// Where this end is, for every row: the first row that belongs to the frame, or the first behind it.
    fn of_rows(
        &self,
        frame: &Frame,
        peers: &Peers,
        keys: &[ArrayRef],
        values: Option<&ArrayRef>,
        rows: usize,
    ) -> Result<Vec<usize>> {
        let unbounded = if self.is_end { rows } else { 0 };
        let of_row = |row: usize| match frame.units {
            FrameUnits::Rows => row + usize::from(self.is_end),
            FrameUnits::Range | FrameUnits::Groups if self.is_end => peers.of(row).end,
            FrameUnits::Range | FrameUnits::Groups => peers.of(row).start,
        };
        match (self.bound, values) {
            (FrameBound::Unbounded, _) => Ok(vec![unbounded; rows]),
            (FrameBound::Preceding | FrameBound::Following, Some(values)) => match frame.units {
                FrameUnits::Rows => {
                    self.of_distances(values, |row, distance| self.row_at(row, distance, rows))
                }
                FrameUnits::Groups => {
                    self.of_distances(values, |row, distance| self.group_at(peers, row, distance, rows))
                }
                FrameUnits::Range => self.of_keys(frame, keys, values),
            },
            _ => Ok((0..rows).map(of_row).collect()),
        }
    }

    fn of_distances(&self, distances: &ArrayRef, at: impl Fn(usize, usize) -> usize) -> Result<Vec<usize>> {
        let distances: &Int64Array = as_int64_array(distances)?;
        let mut rows = Vec::with_capacity(distances.len());
        for (row, distance) in distances.iter().enumerate() {
            let Some(distance) = distance.and_then(|distance| usize::try_from(distance).ok()) else {
                return exec_err!(
                    "a frame is bounded by a number of rows or groups that is 0 or more, and not {}",
                    distance.map_or("NULL".to_owned(), |distance| distance.to_string())
                );
            };
            rows.push(at(row, distance));
        }
        Ok(rows)
    }

    fn row_at(&self, row: usize, distance: usize, rows: usize) -> usize {
        let row = row + usize::from(self.is_end);
        match self.bound {
            FrameBound::Preceding => row.saturating_sub(distance),
            _ => row.saturating_add(distance).min(rows),
        }
    }

    fn group_at(&self, peers: &Peers, row: usize, distance: usize, rows: usize) -> usize {
        let group = peers.group_of[row];
        let group = match self.bound {
            FrameBound::Preceding if distance > group => return 0,
            FrameBound::Preceding => group - distance,
            _ => group.saturating_add(distance),
        };
        match peers.groups.get(group) {
            Some(group) if self.is_end => group.end,
            Some(group) => group.start,
            None => rows,
        }
    }

    /// Where keys stand that are a distance away, among those of the rows.
    fn of_keys(&self, frame: &Frame, keys: &[ArrayRef], wanted: &ArrayRef) -> Result<Vec<usize>> {
        let ([key], [options]) = (keys, frame.keys.as_slice()) else {
            return exec_err!("a RANGE with a distance needs an ORDER BY of one key");
        };
        let field = SortField::new_with_options(key.data_type().clone(), *options);
        let converter = RowConverter::new(vec![field])?;
        let keys = converter.convert_columns(std::slice::from_ref(key))?;
        let wanted = converter.convert_columns(std::slice::from_ref(wanted))?;
        let is_negative = |row: &usize| match self.bound {
            FrameBound::Preceding => wanted.row(*row) > keys.row(*row),
            _ => wanted.row(*row) < keys.row(*row),
        };
        if (0..keys.num_rows()).any(|row| is_negative(&row)) {
            return exec_err!("a RANGE is bounded by a distance that is not negative");
        }
        let stays_before = match self.is_end {
            false => |order: Ordering| order.is_lt(),
            true => |order: Ordering| order.is_le(),
        };
        let of_row = |row: usize| first_of(&keys, |key| !stays_before(keys.row(key).cmp(&wanted.row(row))));
        Ok((0..keys.num_rows()).map(of_row).collect())
    }
}

/// The first row of which something is true, if it is of all that follow.
fn first_of(rows: &Rows, is_there: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, rows.num_rows());
    while low < high {
        let middle = low.midpoint(high);
        match is_there(middle) {
            true => high = middle,
            false => low = middle + 1,
        }
    }
    low
}
