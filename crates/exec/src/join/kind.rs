//! Which rows a join emits, said symmetrically for both sides.
//!
//! DataFusion's [`JoinType`] names twelve cases by side. Inside the operator a join is three independent
//! answers: are matching pairs emitted, and what becomes of the rows of each side. Swapping build and probe
//! side, which a spilled partition does when its probe side is the smaller one, is then a swap of two fields.

use datafusion::common::JoinType;

/// What becomes of the rows of one side, apart from their matching pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideRows {
    /// Nothing (inner side).
    Dropped,
    /// Unmatched rows are emitted, the other side's columns being null (outer side).
    UnmatchedPadded,
    /// Rows with at least one match are emitted once (semi join).
    Matched,
    /// Rows without a match are emitted (anti join).
    Unmatched,
    /// All rows are emitted once, with a column that says whether they matched (mark join).
    Marked,
}

impl SideRows {
    /// Whether a row that has or has not `matched` is emitted.
    #[inline]
    pub fn emits(self, matched: bool) -> bool {
        match self {
            Self::Dropped => false,
            Self::Marked => true,
            Self::Matched => matched,
            Self::UnmatchedPadded | Self::Unmatched => !matched,
        }
    }
}

/// Semantics of a join between a build side (left) and a probe side (right).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinKind {
    /// Whether matching pairs are emitted.
    pub pairs: bool,
    pub build_rows: SideRows,
    pub probe_rows: SideRows,
}

impl JoinKind {
    /// The same join with build and probe side exchanged.
    pub fn swapped(self) -> Self {
        Self { pairs: self.pairs, build_rows: self.probe_rows, probe_rows: self.build_rows }
    }
}

impl From<JoinType> for JoinKind {
    fn from(join_type: JoinType) -> Self {
        use SideRows::{Dropped, Marked, Matched, Unmatched, UnmatchedPadded};
        let (pairs, build_rows, probe_rows) = match join_type {
            JoinType::Inner => (true, Dropped, Dropped),
            JoinType::Left => (true, UnmatchedPadded, Dropped),
            JoinType::Right => (true, Dropped, UnmatchedPadded),
            JoinType::Full => (true, UnmatchedPadded, UnmatchedPadded),
            JoinType::LeftSemi => (false, Matched, Dropped),
            JoinType::LeftAnti => (false, Unmatched, Dropped),
            JoinType::LeftMark => (false, Marked, Dropped),
            JoinType::RightSemi => (false, Dropped, Matched),
            JoinType::RightAnti => (false, Dropped, Unmatched),
            JoinType::RightMark => (false, Dropped, Marked),
        };
        Self { pairs, build_rows, probe_rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swapping_a_kind_swaps_the_join_type() {
        for join_type in
            [JoinType::Inner, JoinType::Left, JoinType::Full, JoinType::LeftSemi, JoinType::LeftMark]
        {
            assert_eq!(JoinKind::from(join_type).swapped(), JoinKind::from(join_type.swap()), "{join_type}");
        }
    }
}
