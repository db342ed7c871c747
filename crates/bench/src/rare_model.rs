//! What the RARE-join paper predicts: its cost equations and the memory that each algorithm needs.
//!
//! Shah, Harizopoulos, Wiener, Graefe: *Fast Scans and Joins using Flash Drives*, DaMoN 2008, section 4. The paper counts
//! page I/Os, and in its examples the seconds that they take; sizes here may be in either, and costs come out in the same.
//! It was never measured.

/// One table of a join.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Side {
    /// |T|: whole rows.
    pub rows: f64,
    /// |J|: the join columns.
    pub keys: f64,
    /// |V|: the other columns of the result.
    pub payload: f64,
    /// |J + V|, both read together.
    pub keys_and_payload: f64,
    /// σp: the share of its pages that the result needs.
    pub needed_pages: f64,
}

/// A join of `first` with the smaller table `second`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Join {
    pub first: Side,
    pub second: Side,
    /// |R|
    pub result: f64,
    /// |I2|: the row ids of the second table's rows in the result.
    pub row_ids: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    Grace,
    GracePax,
    GraceTwoPasses,
    GracePaxTwoPasses,
    Rare,
    /// One pass over the tables and two over the row ids.
    RareEpsilon,
    RareTwoPasses,
}

/// What memory has to hold, in its own unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Memory {
    /// M
    pub available: f64,
    /// h: what a hash table takes, in multiples of what is in it.
    pub overhead: f64,
    /// |T2|, |J2|, |V2| in the same unit.
    pub rows: f64,
    pub keys: f64,
    pub payload: f64,
    /// |id2|: the row ids of all rows of the second table.
    pub row_ids: f64,
    /// σp2
    pub needed_pages: f64,
    /// A page, of which each partition being written needs one.
    pub page: f64,
}

impl Join {
    /// Equations 1 to 6 and 8. (The paper's equation 5 says `J2 + T2` where its text and example mean `J2 + V2`.)
    pub fn cost(&self, algorithm: Algorithm) -> f64 {
        let Self { first, second, result, row_ids } = self;
        let needed = |side: &Side| side.needed_pages * side.payload;
        let rows = first.rows + second.rows;
        let columns = first.keys_and_payload + second.keys_and_payload;
        let keys = first.keys + second.keys;
        let fetched = needed(first) + needed(second);
        result
            + match algorithm {
                Algorithm::Grace => rows,
                Algorithm::GracePax => columns,
                Algorithm::GraceTwoPasses => 3.0 * rows,
                Algorithm::GracePaxTwoPasses => 3.0 * columns,
                Algorithm::Rare => keys + fetched,
                Algorithm::RareEpsilon => keys + fetched + 2.0 * row_ids,
                Algorithm::RareTwoPasses => 3.0 * keys + fetched + 6.0 * row_ids,
            }
    }

    /// Equations 7 and 9: what RARE-join gains on Grace-PAX of two passes, with keys read apart from the payload at no
    /// extra cost. `None` for the other algorithms.
    pub fn gain(&self, algorithm: Algorithm) -> Option<f64> {
        let passes = |side: &Side| (3.0 - side.needed_pages) * side.payload;
        let payload = passes(&self.first) + passes(&self.second);
        match algorithm {
            Algorithm::RareEpsilon => {
                Some(2.0 * (self.first.keys + self.second.keys) + payload - 2.0 * self.row_ids)
            }
            Algorithm::RareTwoPasses => Some(payload - 6.0 * self.row_ids),
            _ => None,
        }
    }
}

impl Memory {
    /// Whether an algorithm has enough memory. Those of two passes always have.
    pub fn suffices(&self, algorithm: Algorithm) -> bool {
        let table = |held: f64| self.overhead * held;
        let needed = match algorithm {
            Algorithm::Grace => table(self.rows),
            Algorithm::GracePax => table(self.keys + self.payload),
            Algorithm::Rare => table(self.keys + self.row_ids) + self.needed_pages * self.payload,
            Algorithm::RareEpsilon => {
                table(self.keys + self.row_ids) + 2.0 * self.page * self.payload / self.available
            }
            Algorithm::GraceTwoPasses | Algorithm::GracePaxTwoPasses | Algorithm::RareTwoPasses => 0.0,
        };
        needed < self.available
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: f64 = 1e9;

    /// Two tables of 256 million rows, in seconds (section 4.3.1).
    fn first_example() -> Join {
        let side =
            Side { rows: 8.0 * 36.6, keys: 55.1, payload: 86.5, keys_and_payload: 117.8, needed_pages: 1.0 };
        Join { first: side, second: side, result: 91.4, row_ids: 18.3 }
    }

    /// Tables four times as large (section 4.3.2).
    fn second_example() -> Join {
        let side = Side {
            rows: 32.0 * 36.6,
            keys: 220.0,
            payload: 346.0,
            keys_and_payload: 471.2,
            needed_pages: 1.0,
        };
        Join { first: side, second: side, result: 366.0, row_ids: 73.1 }
    }

    fn assert_close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 0.6, "{found} is not {expected}");
    }

    #[test]
    fn the_first_example_of_the_paper() {
        let join = first_example();
        let (pax, rare) = (join.cost(Algorithm::GracePaxTwoPasses), join.cost(Algorithm::RareEpsilon));
        assert_close(pax, 798.2);
        assert_close(rare, 411.2);
        assert!((pax / rare - 1.94).abs() < 0.005);
    }

    #[test]
    fn the_first_example_needs_more_memory_than_it_has() {
        // A table over J2 and id2 fills the memory of 2 GB even at h = 1.
        let memory = |available: f64| Memory {
            available,
            overhead: 1.0,
            rows: 8.0 * GB,
            keys: GB,
            payload: 2.0 * GB,
            row_ids: GB,
            needed_pages: 1.0,
            page: 65536.0,
        };
        assert!(!memory(2.0 * GB).suffices(Algorithm::RareEpsilon));
        assert!(!memory(2.0 * GB).suffices(Algorithm::GracePax));
        assert!(memory(2.0 * GB).suffices(Algorithm::RareTwoPasses));
        // What really applies are two passes, which gain little.
        let join = first_example();
        assert_close(join.cost(Algorithm::RareTwoPasses), 704.8);
        assert!((join.cost(Algorithm::GracePaxTwoPasses) / 704.8 - 1.13).abs() < 0.005);
        // With a little more memory the example holds.
        assert!(memory(2.01 * GB).suffices(Algorithm::RareEpsilon));
        assert!(!memory(2.01 * GB).suffices(Algorithm::Rare));
        assert!(memory(4.01 * GB).suffices(Algorithm::Rare));
    }

    #[test]
    fn the_second_example_of_the_paper() {
        let join = second_example();
        let (pax, rare) = (join.cost(Algorithm::GracePaxTwoPasses), join.cost(Algorithm::RareTwoPasses));
        assert_close(pax, 3193.2);
        assert_close(rare, 2816.6);
        // The text says 2,817 s and 1.12 times; the figures give 1.13.
        assert!((pax / rare - 1.13).abs() < 0.005);
    }

    #[test]
    fn gains_are_differences_of_costs() {
        let apart = |join: Join| {
            let together = |side: Side| Side { keys_and_payload: side.keys + side.payload, ..side };
            Join { first: together(join.first), second: together(join.second), ..join }
        };
        for (join, algorithm) in
            [(first_example(), Algorithm::RareEpsilon), (second_example(), Algorithm::RareTwoPasses)]
        {
            let join = apart(join);
            let gain = join.gain(algorithm).unwrap();
            assert_close(gain, join.cost(Algorithm::GracePaxTwoPasses) - join.cost(algorithm));
        }
        assert_eq!(first_example().gain(Algorithm::Grace), None);
    }

    #[test]
    fn rows_cost_more_than_columns_and_two_passes_more_than_one() {
        let join = first_example();
        let cost = |algorithm| join.cost(algorithm);
        assert!(cost(Algorithm::Grace) > cost(Algorithm::GracePax));
        assert!(cost(Algorithm::GraceTwoPasses) > cost(Algorithm::GracePaxTwoPasses));
        assert!(cost(Algorithm::Rare) < cost(Algorithm::RareEpsilon));
    }
}
