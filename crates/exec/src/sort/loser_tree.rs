//! A tree of losers: which of several sorted sources has the smallest row.
//!
//! ```text
//!                 winner: 2                 every inner node holds its loser; the winner of all
//!                    │                      stands above the root
//!                   [0]
//!                 ┌──┴──┐
//!                [1]   [3]                  after the winner has moved on, only the nodes between its
//!               ┌─┴─┐ ┌─┴─┐                 leaf and the root are played again: one comparison a level
//!               0   1 2   3
//! ```
//!
//! Knuth, *The Art of Computer Programming* 3, section 5.4.1.

/// No source has arrived here yet.
const NO_SOURCE: u32 = u32::MAX;

/// The tournament of some sources, which are known by their numbers.
#[derive(Debug, Default)]
pub struct LoserTree {
    /// The winner, then the loser of every inner node: node `n` has the nodes `2n` and `2n + 1` below it, and source
    /// `s` enters at what would be node `sources + s`.
    nodes: Vec<u32>,
}

impl LoserTree {
    /// A tournament of `sources` sources; `beats` says whether the first comes before the second.
    pub fn new(sources: usize, beats: impl Fn(usize, usize) -> bool) -> Self {
        let mut tree = Self { nodes: vec![NO_SOURCE; sources.max(1)] };
        for source in 0..sources {
            tree.enter(source, &beats);
        }
        tree
    }

    /// The source that comes first; `None` if there are none.
    #[inline]
    pub fn winner(&self) -> Option<usize> {
        self.nodes.first().filter(|&&winner| winner != NO_SOURCE).map(|&winner| winner as usize)
    }

    /// Plays the winner's games again, after it has moved on.
    #[inline]
    pub fn replay(&mut self, beats: impl Fn(usize, usize) -> bool) {
        if let Some(winner) = self.winner() {
            self.enter(winner, beats);
        }
    }

    #[inline]
    fn enter(&mut self, source: usize, beats: impl Fn(usize, usize) -> bool) {
        let mut winner = source as u32;
        let mut node = (self.nodes.len() + source) / 2;
        while node > 0 {
            let loser = &mut self.nodes[node];
            if *loser == NO_SOURCE {
                // The second source to arrive here plays on.
                *loser = winner;
                return;
            }
            if beats(*loser as usize, winner as usize) {
                std::mem::swap(loser, &mut winner);
            }
            node /= 2;
        }
        if let Some(root) = self.nodes.first_mut() {
            *root = winner;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Merges sorted lists; a list that has ended comes behind all others.
    fn merged(lists: &[Vec<u8>]) -> Vec<u8> {
        let mut at = vec![0; lists.len()];
        let head =
            |at: &[usize], list: usize| lists[list].get(at[list]).map_or((true, 0), |&value| (false, value));
        let mut tree = LoserTree::new(lists.len(), |a, b| (head(&at, a), a) < (head(&at, b), b));
        let mut rows = Vec::new();
        while let Some(winner) = tree.winner() {
            let Some(&value) = lists[winner].get(at[winner]) else { break };
            rows.push(value);
            at[winner] += 1;
            tree.replay(|a, b| (head(&at, a), a) < (head(&at, b), b));
        }
        rows
    }

    proptest! {
        #[test]
        fn merges_any_sorted_lists(mut lists in vec(vec(any::<u8>(), 0..20), 0..40)) {
            lists.iter_mut().for_each(|list| list.sort_unstable());
            let mut right: Vec<u8> = lists.concat();
            right.sort_unstable();
            prop_assert_eq!(merged(&lists), right);
        }
    }

    #[test]
    fn no_source_wins_if_there_are_none() {
        assert_eq!(LoserTree::new(0, |_, _| true).winner(), None);
    }
}
