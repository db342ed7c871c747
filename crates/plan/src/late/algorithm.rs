//! How sorts are done, for those who want to choose.

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

impl SortAlgorithm {
    const NAMES: [(&str, Self); 3] = [("auto", Self::Auto), ("merge", Self::Merge), ("ssd", Self::Ssd)];
}

impl fmt::Display for SortAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::NAMES.iter().find(|(_, algorithm)| algorithm == self);
        f.write_str(named.map_or("", |(name, _)| name))
    }
}

impl FromStr for SortAlgorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::NAMES.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
        named
            .map(|(_, algorithm)| *algorithm)
            .ok_or_else(|| format!("'{text}' is not one of auto, merge, ssd"))
    }
}
