//! Which rows of a batch go to which partition.

/// The rows of one batch, grouped by partition: a counting sort of row numbers by partition number.
///
/// Reused from batch to batch, so that scattering allocates only while batches still grow.
#[derive(Debug, Default)]
pub struct Scatter {
    /// Row numbers, partition after partition, in row order inside each.
    rows: Vec<u32>,
    /// `rows[starts[p]..starts[p + 1]]` are the rows of partition `p`.
    starts: Vec<u32>,
}

impl Scatter {
    /// Groups rows by the top `partition_bits` of their hashes.
    pub fn by_hash(&mut self, hashes: &[u64], partition_bits: u32) {
        self.by_hash_behind(hashes, 0, partition_bits);
    }

    /// Groups rows by the `partition_bits` behind the top `used_bits` of their hashes.
    pub fn by_hash_behind(&mut self, hashes: &[u64], used_bits: u32, partition_bits: u32) {
        let partition = |row: usize| partition_of(hashes[row] << used_bits, partition_bits);
        self.group(hashes.len(), 1 << partition_bits, partition);
    }

    /// Groups the rows named by `selected` by the top `partition_bits` of their hashes.
    pub fn by_hash_of(&mut self, selected: &[u32], hashes: &[u64], partition_bits: u32) {
        let partition = |at: usize| partition_of(hashes[selected[at] as usize], partition_bits);
        self.group(selected.len(), 1 << partition_bits, partition);
        for row in &mut self.rows {
            *row = selected[*row as usize];
        }
    }

    /// Sends all of `row_count` rows to one partition.
    pub fn to_partition(&mut self, partition: usize, row_count: usize, partition_bits: u32) {
        self.group(row_count, 1 << partition_bits, |_| partition);
    }

    /// Number of partitions of the last grouping.
    pub fn partitions(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// The rows of `partition`, in batch order.
    pub fn rows_of(&self, partition: usize) -> &[u32] {
        &self.rows[self.starts[partition] as usize..self.starts[partition + 1] as usize]
    }

    fn group(&mut self, row_count: usize, partitions: usize, partition_of_row: impl Fn(usize) -> usize) {
        self.starts.clear();
        self.starts.resize(partitions + 1, 0);
        for row in 0..row_count {
            self.starts[partition_of_row(row) + 1] += 1;
        }
        let mut sum = 0;
        for start in &mut self.starts {
            sum += *start;
            *start = sum;
        }
        self.rows.clear();
        self.rows.resize(row_count, 0);
        // `starts[p]` serves as the write cursor of partition `p` and ends up at the start of `p + 1`.
        for row in 0..row_count {
            let cursor = &mut self.starts[partition_of_row(row)];
            self.rows[*cursor as usize] = row as u32;
            *cursor += 1;
        }
        self.starts.rotate_right(1);
        self.starts[0] = 0;
    }
}

/// The partition of a row: the top `partition_bits` of its hash.
#[inline]
pub fn partition_of(hash: u64, partition_bits: u32) -> usize {
    // A shift by 64 would be undefined for one partition; splitting it in two is not.
    ((hash >> 1) >> (63 - partition_bits)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_rows_by_top_bits_in_order() {
        let hashes: Vec<u64> = [3u64, 0, 3, 1, 0, 2].iter().map(|p| p << 62).collect();
        let mut scatter = Scatter::default();
        scatter.by_hash(&hashes, 2);
        assert_eq!(scatter.partitions(), 4);
        assert_eq!(scatter.rows_of(0), [1, 4]);
        assert_eq!(scatter.rows_of(1), [3]);
        assert_eq!(scatter.rows_of(2), [5]);
        assert_eq!(scatter.rows_of(3), [0, 2]);
    }

    #[test]
    fn one_partition_takes_every_row() {
        let mut scatter = Scatter::default();
        scatter.by_hash(&[u64::MAX, 0, 7], 0);
        assert_eq!(scatter.rows_of(0), [0, 1, 2]);
    }

    #[test]
    fn all_rows_go_where_they_are_sent() {
        let mut scatter = Scatter::default();
        scatter.to_partition(2, 3, 2);
        assert_eq!(scatter.rows_of(2), [0, 1, 2]);
        assert_eq!(scatter.rows_of(1), [0u32; 0]);
    }

    #[test]
    fn selected_rows_keep_their_numbers() {
        let hashes: Vec<u64> = [1u64, 0, 1, 0].iter().map(|p| p << 63).collect();
        let mut scatter = Scatter::default();
        scatter.by_hash_of(&[0, 2, 3], &hashes, 1);
        assert_eq!(scatter.rows_of(0), [3]);
        assert_eq!(scatter.rows_of(1), [0, 2]);
        scatter.by_hash(&[], 1);
        assert_eq!(scatter.rows_of(1), [0u32; 0]);
    }
}
