//! Which rows of a batch are meant.

use std::ops::Range;

use crate::error::{PageError, Result};

/// Which rows of a batch to append, in this order.
#[derive(Debug, Clone)]
pub enum Rows<'a> {
    Range(Range<usize>),
    Indices(&'a [u32]),
}

impl Rows<'_> {
    pub fn len(&self) -> usize {
        match self {
            Self::Range(range) => range.len(),
            Self::Indices(indices) => indices.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `count` rows, or all if there are fewer.
    #[must_use]
    pub fn first(&self, count: usize) -> Self {
        match self {
            Self::Range(range) => Self::Range(range.start..range.end.min(range.start.saturating_add(count))),
            Self::Indices(indices) => Self::Indices(&indices[..count.min(indices.len())]),
        }
    }

    /// Without the first `count` rows.
    #[must_use]
    pub fn skip(&self, count: usize) -> Self {
        assert!(count <= self.len(), "at most all rows are skipped");
        match self {
            Self::Range(range) => Self::Range(range.start + count..range.end),
            Self::Indices(indices) => Self::Indices(&indices[count..]),
        }
    }

    pub(crate) fn for_each(&self, mut visit: impl FnMut(usize)) {
        match self {
            Self::Range(range) => range.clone().for_each(visit),
            Self::Indices(indices) => indices.iter().for_each(|&index| visit(index as usize)),
        }
    }

    pub(crate) fn sum(&self, mut value: impl FnMut(usize) -> u64) -> u64 {
        let mut total = 0;
        self.for_each(|row| total += value(row));
        total
    }

    pub(crate) fn check(&self, batch_rows: usize) -> Result<()> {
        let end = match self {
            Self::Range(range) => range.end,
            Self::Indices(indices) => indices.iter().max().map_or(0, |&index| index as usize + 1),
        };
        if end > batch_rows {
            return Err(PageError::RowOutOfRange { row: end - 1, rows: batch_rows });
        }
        Ok(())
    }
}
