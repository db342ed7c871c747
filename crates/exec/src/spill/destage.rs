//! Which partitions leave memory first.
//!
//! Every spilled build byte is written once and read once, whichever partition it is of. What a choice can save is
//! probe rows: those of a resident partition are joined at once, those of a spilled one are written and read, too.
//! Before the probe side has been seen every key is as likely as any other, so that a partition expects probe rows
//! by the number of its keys, not of its bytes: a partition is large because its rows are wide or because one key
//! has many of them. The largest partition frees most memory for the probe rows it is likely to cost
//! (`docs/benchmarks/destage.md` measures the alternatives).

/// The order in which partitions are spilled. A session may have another one than the default as an extension of its
/// configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DestagePolicy {
    /// The largest first.
    #[default]
    Largest,
    /// The smallest first.
    Smallest,
    /// By number: an order that was fixed before the first row came, as in Shapiro's hybrid hash join.
    Numbered,
    /// All as soon as memory is short, as in a Grace hash join.
    All,
}

impl DestagePolicy {
    /// Partitions in the order in which they are to be spilled, given the bytes that each would free. Those that
    /// free nothing are left out.
    pub fn order(self, bytes: impl Iterator<Item = usize>) -> Vec<usize> {
        // Sizes change while others push: the order is that of one moment.
        let mut partitions: Vec<(usize, usize)> = bytes
            .enumerate()
            .map(|(partition, bytes)| (bytes, partition))
            .filter(|(bytes, _)| *bytes > 0)
            .collect();
        match self {
            Self::Largest => partitions.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes)),
            Self::Smallest => partitions.sort_unstable(),
            Self::Numbered | Self::All => {}
        }
        partitions.into_iter().map(|(_, partition)| partition).collect()
    }

    /// How much to spill when `bytes` are wanted.
    pub fn wanted_bytes(self, bytes: usize) -> usize {
        if self == Self::All { usize::MAX } else { bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_ordered_by_what_they_free() {
        let sizes = || [30, 0, 10, 20].into_iter();
        assert_eq!(DestagePolicy::Largest.order(sizes()), [0, 3, 2]);
        assert_eq!(DestagePolicy::Smallest.order(sizes()), [2, 3, 0]);
        assert_eq!(DestagePolicy::Numbered.order(sizes()), [0, 2, 3]);
        assert_eq!(DestagePolicy::All.wanted_bytes(1), usize::MAX);
    }
}
