//! Rows that indexes find.

use std::collections::HashSet;
use std::ops::Bound;

use arrow_array::ArrayRef;
use nandina_rowstore::transaction::index::IndexRange;

use super::place::Place;
use super::{IndexDefinition, KeyRange, Transaction};
use crate::error::Result;
use crate::table::Table;

/// How many rows of a table are looked for, in all and in its segments.
#[derive(Debug, Clone, Copy)]
pub struct MostRows {
    pub all: usize,
    pub in_segments: usize,
}

impl MostRows {
    pub const ALL: Self = Self { all: usize::MAX, in_segments: usize::MAX };
}

/// Adds the ids of rows that entries lead to; whether these are no more than `most`, which has those that are there counted.
fn add_few(range: IndexRange<'_>, most: MostRows, ids: &mut Vec<u64>) -> Result<bool> {
    let is_in_segment = |id: &u64| matches!(Place::of(*id), Place::Segment(_));
    let mut in_segments = ids.iter().filter(|id| is_in_segment(id)).count();
    for entry in range.rows() {
        let id = Place::of_entry(entry?).id();
        in_segments += usize::from(is_in_segment(&id));
        if ids.len() == most.all || in_segments > most.in_segments {
            return Ok(false);
        }
        ids.push(id);
    }
    Ok(true)
}

impl Transaction {
    /// The indexes of a table that rows can be found by, with their numbers: those that this transaction sees, and that have not been
    /// dropped since, as what it adds itself is not in these.
    pub fn indexes(&self, table: &Table) -> Result<Vec<(usize, IndexDefinition)>> {
        // Of a table that has been dropped since none is there.
        let newest = table.store().newest(table).ok().and_then(|entry| entry.heap.clone());
        let kept: HashSet<u64> = newest.iter().flat_map(|heap| heap.first_pages()).collect();
        let is_kept = |number: usize| {
            let index = table.heap().ok().and_then(|heap| heap.record.indexes.get(number));
            index.is_some_and(|index| kept.contains(&index.root))
        };
        Ok(table
            .indexes()
            .filter(|(number, _)| is_kept(*number))
            .map(|(number, index)| (number, index.clone()))
            .collect())
    }

    /// Whether this is one of these.
    pub fn has_index(&self, table: &Table, number: usize) -> Result<bool> {
        let Some(index) = table.heap()?.record.indexes.get(number) else { return Ok(false) };
        let newest = table.store().newest(table).ok().and_then(|entry| entry.heap.clone());
        Ok(newest.is_some_and(|heap| heap.first_pages().any(|page| page == index.root)))
    }

    /// Ids of rows whose key in an index begins with these values, as far as it tells: each of them that is in the heap may have another
    /// key in the state that this transaction sees, or not be there. They are in order, those of segments first.
    pub fn find(&self, table: &Table, index: usize, values: &[ArrayRef]) -> Result<Vec<u64>> {
        match self.find_up_to(table, index, values, MostRows::ALL)? {
            Some(found) => Ok(found),
            None => unreachable!("there are no more than that"),
        }
    }

    /// The same; `None` if the index has more of them.
    pub fn find_up_to(
        &self,
        table: &Table,
        index: usize,
        values: &[ArrayRef],
        most: MostRows,
    ) -> Result<Option<Vec<u64>>> {
        let (record, keys) = table.index(index)?;
        let keys = keys.of_columns(values)?;
        let mut found = Vec::new();
        for key in &keys {
            let key = key.as_ref();
            // Keys that go on behind these values are below this.
            let upper = [key, &[u8::MAX]].concat();
            let range = self.reader()?.index_range(
                record.tree(),
                Bound::Included(key),
                Bound::Included(&upper),
                false,
            );
            if !add_few(range, most, &mut found)? {
                return Ok(None);
            }
        }
        found.sort_unstable();
        found.dedup();
        self.leave_out_deleted(table, &mut found)?;
        Ok(Some(found))
    }

    /// The same of keys in a range, in their order; `None` if there are more keys than `most`.
    pub fn find_few(
        &self,
        table: &Table,
        index: usize,
        range: &KeyRange,
        most: usize,
    ) -> Result<Option<Vec<u64>>> {
        let (record, keys) = table.index(index)?;
        let (lower, upper) = keys.bounds(range)?;
        let (lower, upper) = (Bound::Included(lower.as_slice()), Bound::Included(upper.as_slice()));
        let (mut found, most) = (Vec::new(), MostRows { all: most, in_segments: most });
        if !add_few(self.reader()?.index_range(record.tree(), lower, upper, false), most, &mut found)? {
            return Ok(None);
        }
        // A row has several keys where transactions see several states of it, which is rare: sorting is cheaper than a set.
        let mut sorted = found.clone();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| matches!(pair, [one, other] if one == other)) {
            let mut seen = HashSet::new();
            found.retain(|id| seen.insert(*id));
        }
        self.leave_out_deleted(table, &mut found)?;
        Ok(Some(found))
    }

    /// Leaves out rows of segments that this transaction does not see any more: their keys stay in indexes.
    fn leave_out_deleted(&self, table: &Table, ids: &mut Vec<u64>) -> Result<()> {
        let has_segment_rows = ids.iter().any(|id| matches!(Place::of(*id), Place::Segment(_)));
        if !has_segment_rows {
            return Ok(());
        }
        let (deleted, reader) = (table.heap()?.deleted()?, self.reader()?);
        if deleted.pages(reader)? == 0 {
            return Ok(());
        }
        let mut kept = Vec::with_capacity(ids.len());
        for id in ids.drain(..) {
            let is_deleted = match Place::of(id) {
                Place::Heap(_) => false,
                Place::Segment(row) => deleted.has(reader, row)?,
            };
            if !is_deleted {
                kept.push(id);
            }
        }
        *ids = kept;
        Ok(())
    }
}
