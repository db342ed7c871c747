//! How sorts and joins are done, for those who want to choose.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use datafusion::prelude::SessionConfig;
use nandina_exec::scan::PageReads;
use nandina_exec::spill::DestagePolicy;

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
    /// Grace hash join of the columns that are needed: once memory is short, all of both inputs is spilled.
    GracePax,
    /// Grace hash join that reads whole pages, as a store of rows has to.
    GraceRows,
    /// DigestJoin: RARE-join that reads whole pages (Li, On, Xu, Choi, Hu: *DigestJoin: Exploiting Fast Random Reads for
    /// Flash-Based Joins*, MDM 2009).
    Digest,
}

impl JoinAlgorithm {
    /// Whether columns may be fetched for the result.
    pub(super) fn may_be_late(self) -> bool {
        matches!(self, Self::Auto) || self.is_late()
    }

    /// Whether columns are fetched for the result, whatever that costs.
    pub(super) fn is_late(self) -> bool {
        matches!(self, Self::Rare | Self::Digest)
    }

    /// Makes sessions of this configuration use it.
    pub fn set_in(self, config: &mut SessionConfig) {
        config.set_extension(Arc::new(self));
        config.set_extension(Arc::new(self.destage_policy()));
        config.set_extension(Arc::new(self.page_reads()));
    }

    /// What hash joins spill when memory is short.
    pub(super) fn destage_policy(self) -> DestagePolicy {
        match self {
            Self::GracePax | Self::GraceRows => DestagePolicy::All,
            Self::Auto | Self::Hybrid | Self::Rare | Self::Digest => DestagePolicy::default(),
        }
    }

    /// What is read of the pages of tables.
    pub(super) fn page_reads(self) -> PageReads {
        match self {
            Self::GraceRows | Self::Digest => PageReads::Whole,
            Self::Auto | Self::Hybrid | Self::Rare | Self::GracePax => PageReads::Columns,
        }
    }
}

/// Algorithms by their names.
pub(super) trait Named: Copy + PartialEq + 'static {
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
    const NAMES: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("hybrid", Self::Hybrid),
        ("rare", Self::Rare),
        ("grace_pax", Self::GracePax),
        ("grace_rows", Self::GraceRows),
        ("digest", Self::Digest),
    ];
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
