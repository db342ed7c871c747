//! What to do with a table that is full: keep it, empty it, or stop using one.
//!
//! A table that takes rows in before they are scattered pays if it makes fewer groups of them than they are rows.
//! How many it makes is told by two measurements while it fills: new groups per row until it is half full, and from
//! then on.
//!
//! ```text
//!   new groups    1 ┤▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔  all different: nothing to gain, pass rows on as they are
//!   per row         │▔▔▔▔╲
//!                   │      ╲___         few enough keys in random order: a larger table would have them all
//!                   │▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁   rows of a key stand together: the table has done its part, empty it
//!                 0 ┴───────┬───────┬
//!                         half     full
//! ```
//!
//! Keys that come round again, as those of every month's data do, look all different to a table that is full before the
//! first of them is back. The rows that are passed on tell (`bounded`, `distinct_sketch`).

/// New groups per row above which pre-aggregation costs more than it saves: a row that makes a group is written
/// to a partition all the same, and its lookup was wasted.
const USELESS: f64 = 0.7;
/// A rate is falling if it is lower than before by more than this many standard deviations.
const DEVIATIONS: f64 = 4.0;
/// Tables' fills for which rows are passed on before another is tried.
const PASSED_FILLS: usize = 16;

/// What to do with a full table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Let it grow: it is likely to have all groups soon.
    Grow,
    /// Empty it into the partitions and fill it again.
    Empty,
    /// Empty it, and pass the next so many rows on without it.
    Pass(usize),
}

/// Watches one table fill.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reduction {
    rows: usize,
    /// Rows and groups when the table was half full.
    half: Option<(usize, usize)>,
}

impl Reduction {
    /// Notes that `rows` more have been consumed, which leaves `groups` in the table.
    pub fn note(&mut self, rows: usize, groups: usize, half_full: bool) {
        self.rows += rows;
        if half_full && self.half.is_none() {
            self.half = Some((self.rows, groups));
        }
    }

    /// What to do with the table, which is full with `groups`; `growth` is how many times as large it may become.
    pub fn judge(&self, groups: usize, growth: usize) -> Verdict {
        let (early_rows, early_groups) = self.half.unwrap_or((self.rows, groups));
        let (late_rows, late_groups) = (self.rows - early_rows, groups - early_groups);
        let early = early_groups as f64 / early_rows.max(1) as f64;
        let late = if late_rows == 0 { early } else { late_groups as f64 / late_rows as f64 };
        let deviation = (late * (1.0 - late) / late_rows.max(1) as f64).sqrt();
        if late < early - DEVIATIONS * deviation {
            // Of so many keys in random order the middle of the second half finds all but this share known.
            let keys = early_groups.midpoint(groups) as f64 / (1.0 - late);
            if keys <= (groups * growth) as f64 {
                return Verdict::Grow;
            }
        }
        if late > USELESS { Verdict::Pass(self.rows * PASSED_FILLS) } else { Verdict::Empty }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    const CAPACITY: usize = 32_768;

    /// The verdict when a table of `CAPACITY` groups is full of these keys.
    fn verdict(mut key: impl FnMut(usize) -> usize) -> Verdict {
        let (mut groups, mut reduction) = (HashSet::new(), Reduction::default());
        for row in 0.. {
            groups.insert(key(row));
            reduction.note(1, groups.len(), groups.len() >= CAPACITY / 2);
            if groups.len() >= CAPACITY {
                break;
            }
        }
        reduction.judge(groups.len(), 64)
    }

    #[test]
    fn different_keys_are_passed_on() {
        assert!(matches!(verdict(|row| row), Verdict::Pass(rows) if rows > 10 * CAPACITY));
        let mut random = StdRng::seed_from_u64(1);
        assert!(matches!(verdict(|_| random.random_range(0..100 * CAPACITY)), Verdict::Pass(_)));
    }

    #[test]
    fn keys_that_stand_together_empty_the_table() {
        assert_eq!(verdict(|row| row / 4), Verdict::Empty);
        assert_eq!(verdict(|row| row / 2), Verdict::Empty);
    }

    #[test]
    fn few_keys_in_random_order_let_it_grow() {
        for keys in [CAPACITY + CAPACITY / 8, 2 * CAPACITY, 6 * CAPACITY, 30 * CAPACITY] {
            let mut random = StdRng::seed_from_u64(2);
            assert_eq!(verdict(|_| random.random_range(0..keys)), Verdict::Grow, "{keys} keys");
        }
    }
}
