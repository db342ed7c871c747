//! How sorts and joins are done, for those who want to choose.

use std::fmt;
use std::str::FromStr;

/// `SET sort_algorithm`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortAlgorithm {
    /// What costs less.
    #[default]
    Auto,
    /// Whole rows are sorted and merged.
    Merge,
    /// SSD-sort: keys and row ids are sorted, all other columns of stored tables are fetched in the order of the result.
    Ssd,
}

/// `SET join_algorithm`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JoinAlgorithm {
    /// What costs less.
    #[default]
    Auto,
    /// Hybrid hash join: rows are joined with all of their columns.
    Hybrid,
    /// RARE-join: keys and row ids are joined, all other columns of stored tables are fetched for the rows of the result.
    Rare,
}

/// Algorithms by their names.
trait Named: Copy + PartialEq + 'static {
    const NAMES: &'static [(&'static str, Self)];

    fn named(text: &str) -> Result<Self, String> {
        let named = Self::NAMES.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
        let names = || Self::NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        named.map(|(_, algorithm)| *algorithm).ok_or_else(|| format!("'{text}' is not one of {}", names()))
    }

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, algorithm)| *algorithm == self).map_or("", |(name, _)| name)
    }
}

impl Named for SortAlgorithm {
    const NAMES: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("merge", Self::Merge), ("ssd", Self::Ssd)];
}

impl Named for JoinAlgorithm {
    const NAMES: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("hybrid", Self::Hybrid), ("rare", Self::Rare)];
}

impl fmt::Display for SortAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for JoinAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SortAlgorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::named(text)
    }
}

impl FromStr for JoinAlgorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::named(text)
    }
}
