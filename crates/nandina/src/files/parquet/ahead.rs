//! Which bytes of a Parquet file a scan is going to ask for next.
//!
//! Which row groups a scan reads is decided by statistics and filters above the reader. Mostly it is one after the
//! other, so the guess is: the next row group of the scan's part of the file, and of that the columns that were asked
//! for last. A scan that filters rows asks twice, for the columns of the filter and then for what else it needs of the
//! rows that are left, which may be nothing, or a few pages; columns are guessed if all or most of them were asked
//! for. Where filters leave row groups out the guess is wrong, and costs the read of a row group; after a wrong guess
//! none is acted upon, in any file of the scan, until one would have been right.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::datasource::listing::FileRange;
use nandina_exec::scan::begin_of_row_group;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use super::decoding::decoding_bytes;

/// Follows what one scan asks for in one file.
#[derive(Debug)]
pub(super) struct Ahead {
    metadata: Arc<ParquetMetaData>,
    /// The scan reads the row groups that begin here; all if there is none.
    part: Option<FileRange>,
    /// The row group that was asked for last.
    current: Option<usize>,
    /// Which of its columns were, and which of the one before.
    asked: Vec<bool>,
    asked_before: Vec<bool>,
    /// The row group that is likely to follow.
    guess: Option<usize>,
    /// Whether the scan's last guess was right.
    trusted: Arc<AtomicBool>,
}

impl Ahead {
    pub fn new(metadata: Arc<ParquetMetaData>, part: Option<FileRange>, trusted: Arc<AtomicBool>) -> Self {
        let (asked, asked_before) = Default::default();
        Self { metadata, part, current: None, asked, asked_before, guess: None, trusted }
    }

    /// Learns that `ranges` are asked for, and guesses what comes after them: whole columns of one row group. Empty if
    /// there is nothing more, or nothing that would be worth reading on a guess.
    pub fn after(&mut self, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
        let Some(group) = self.group_of(ranges) else { return Vec::new() };
        let row_groups = self.metadata.row_groups();
        if self.current != Some(group) {
            if let Some(guess) = self.guess.take() {
                self.trusted.store(guess == group, Ordering::Relaxed);
            }
            self.current = Some(group);
            self.asked_before = std::mem::take(&mut self.asked);
        }
        let places = row_groups.get(group).into_iter().flat_map(columns);
        let is_asked = places.map(|column| column.is_some_and(|column| covers_most(ranges, &column)));
        let is_asked: Vec<bool> = is_asked.collect();
        self.asked.resize(is_asked.len(), false);
        self.asked.iter_mut().zip(is_asked).for_each(|(asked, now)| *asked |= now);

        let next = row_groups.get(group + 1).filter(|next| self.is_in_part(next));
        self.guess = next.map(|_| group + 1);
        if !self.trusted.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let is_wanted = |column: usize| {
            let asked = |columns: &[bool]| columns.get(column).copied().unwrap_or(false);
            asked(&self.asked) || asked(&self.asked_before)
        };
        let places = next.into_iter().flat_map(columns).enumerate();
        places.filter(|(column, _)| is_wanted(*column)).filter_map(|(_, place)| place).collect()
    }

    /// Whether `range` belongs to the row group that was asked for last.
    pub fn is_current(&self, range: &Range<u64>) -> bool {
        self.current.is_some() && self.group_of(std::slice::from_ref(range)) == self.current
    }

    /// The row group that the first of `ranges` lies in.
    fn group_of(&self, ranges: &[Range<u64>]) -> Option<usize> {
        let first = ranges.first()?;
        let row_groups = self.metadata.row_groups();
        let holds = |&group: &usize| {
            row_groups
                .get(group)
                .is_some_and(|group| columns(group).flatten().any(|column| overlap(&column, first)))
        };
        // Mostly the one that is being read, or the next.
        let near = self.current.map_or(0..2, |current| current..current + 2);
        near.chain(0..row_groups.len()).find(holds)
    }

    /// Memory that decoding takes beside the bytes of `ranges` themselves. Zero for ranges outside the columns of a row
    /// group.
    pub fn decoding_bytes(&self, ranges: &[Range<u64>]) -> usize {
        let Some(group) = self.group_of(ranges).and_then(|group| self.metadata.row_groups().get(group))
        else {
            return 0;
        };
        let asked = columns(group).zip(group.columns());
        let asked = asked.filter(|(place, _)| {
            place.iter().any(|column| ranges.iter().any(|range| overlap(column, range)))
        });
        let bytes = asked.map(|(_, column)| decoding_bytes(column, group.num_rows()));
        usize::try_from(bytes.fold(0, u64::saturating_add)).unwrap_or(usize::MAX)
    }

    /// DataFusion gives a row group to the part of the file in which its first page lies.
    fn is_in_part(&self, group: &RowGroupMetaData) -> bool {
        let Some(begin) = begin_of_row_group(group) else { return false };
        self.part.as_ref().is_none_or(|part| (part.start..part.end).contains(&begin))
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Whether at least half of the bytes of `column` are among `ranges`, which do not overlap.
fn covers_most(ranges: &[Range<u64>], column: &Range<u64>) -> bool {
    let common = |range: &Range<u64>| range.end.min(column.end).saturating_sub(range.start.max(column.start));
    let covered = ranges.iter().map(common).fold(0, u64::saturating_add);
    column.end > column.start && covered >= (column.end - column.start).div_ceil(2)
}

/// Where the columns lie; `None` for one whose place is no place in a file.
fn columns(group: &RowGroupMetaData) -> impl Iterator<Item = Option<Range<u64>>> {
    group.columns().iter().map(|column| {
        let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
        let start = u64::try_from(start).ok()?;
        Some(start..start.checked_add(u64::try_from(column.compressed_size()).ok()?)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use arrow::array::{Int64Array, RecordBatch};
    use parquet::arrow::ArrowWriter;
    use parquet::file::properties::WriterProperties;
    use parquet::file::reader::{FileReader as _, SerializedFileReader};

    /// Of a file of four row groups with three columns.
    fn metadata() -> Arc<ParquetMetaData> {
        let column = || Arc::new(Int64Array::from_iter_values(0..40)) as _;
        let batch = RecordBatch::try_from_iter([("a", column()), ("b", column()), ("c", column())]).unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(10)).build();
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        let file = bytes::Bytes::from(writer.into_inner().unwrap());
        let metadata = SerializedFileReader::new(file).unwrap().metadata().clone();
        assert_eq!(metadata.num_row_groups(), 4);
        Arc::new(metadata)
    }

    fn trusting() -> Arc<AtomicBool> {
        Arc::new(AtomicBool::new(true))
    }

    fn ranges(metadata: &ParquetMetaData, group: usize, wanted: &[usize]) -> Vec<Range<u64>> {
        let all: Vec<_> = columns(metadata.row_group(group)).map(Option::unwrap).collect();
        wanted.iter().map(|&column| all[column].clone()).collect()
    }

    #[test]
    fn the_same_columns_of_the_next_row_group_follow() {
        let metadata = metadata();
        let mut ahead = Ahead::new(Arc::clone(&metadata), None, trusting());
        for group in 0..3 {
            let guess = ahead.after(&ranges(&metadata, group, &[0, 2]));
            assert_eq!(guess, ranges(&metadata, group + 1, &[0, 2]));
        }
        assert_eq!(ahead.after(&ranges(&metadata, 3, &[0, 2])), []);
    }

    #[test]
    fn what_a_filter_leaves_is_guessed_with_the_filter() {
        let metadata = metadata();
        let mut ahead = Ahead::new(Arc::clone(&metadata), None, trusting());
        let of = |group, columns: &[usize]| ranges(&metadata, group, columns);
        assert_eq!(ahead.after(&of(0, &[1])), of(1, &[1]));
        assert_eq!(ahead.after(&of(0, &[0, 2])), of(1, &[0, 1, 2]));
        assert_eq!(ahead.after(&of(1, &[1])), of(2, &[0, 1, 2]), "as in the row group before");
        assert_eq!(ahead.after(&of(2, &[1])), of(3, &[1]), "nothing was left");
    }

    #[test]
    fn a_few_pages_of_a_column_are_not_followed_by_all_of_it() {
        let metadata = metadata();
        let mut ahead = Ahead::new(Arc::clone(&metadata), None, trusting());
        let whole = ranges(&metadata, 0, &[0, 1]);
        let begin = whole[0].start..whole[0].start + 2;
        assert_eq!(ahead.after(&[begin, whole[1].clone()]), ranges(&metadata, 1, &[1]));
        let most = whole[0].start + 2..whole[0].end - 2;
        assert_eq!(ahead.after(std::slice::from_ref(&most)), ranges(&metadata, 1, &[0, 1]));
    }

    #[test]
    fn decoding_takes_a_page_and_a_dictionary_of_every_column() {
        let metadata = metadata();
        let ahead = Ahead::new(Arc::clone(&metadata), None, trusting());
        let of = |columns: &[usize]| ahead.decoding_bytes(&ranges(&metadata, 2, columns));
        // Ten values of eight bytes in a dictionary, and indexes of four bits; with their headers.
        assert!((80..300).contains(&of(&[1])), "{}", of(&[1]));
        assert_eq!(of(&[0, 2]), of(&[0]) + of(&[2]));
        let mut part = ranges(&metadata, 2, &[1]);
        part[0].start += 4;
        assert_eq!(ahead.decoding_bytes(&part), of(&[1]), "pages of a column");
        assert_eq!(ahead.decoding_bytes(&[]), 0);
        let behind = std::slice::from_ref(&(u64::MAX - 1..u64::MAX));
        assert_eq!(ahead.decoding_bytes(behind), 0, "a bloom filter or an index");
    }

    #[test]
    fn a_scan_does_not_leave_its_part() {
        let metadata = metadata();
        let second = columns(metadata.row_group(1)).next().unwrap().unwrap();
        let third = columns(metadata.row_group(2)).next().unwrap().unwrap();
        let part = FileRange { start: 0, end: third.start as i64 };
        let mut ahead = Ahead::new(Arc::clone(&metadata), Some(part), trusting());
        assert_eq!(ahead.after(&ranges(&metadata, 0, &[0])), [second]);
        assert_eq!(ahead.after(&ranges(&metadata, 1, &[0])), []);
    }

    #[test]
    fn a_wrong_guess_is_not_followed_by_another() {
        let metadata = metadata();
        let mut ahead = Ahead::new(Arc::clone(&metadata), None, trusting());
        assert_eq!(ahead.after(&ranges(&metadata, 0, &[1])), ranges(&metadata, 1, &[1]));
        assert_eq!(ahead.after(&ranges(&metadata, 2, &[1])), []);
        let mut ahead = Ahead::new(Arc::clone(&metadata), None, trusting());
        assert_eq!(ahead.after(&ranges(&metadata, 0, &[1])), ranges(&metadata, 1, &[1]));
        assert_eq!(ahead.after(&ranges(&metadata, 2, &[1])), []);
        assert_eq!(ahead.after(&ranges(&metadata, 3, &[1])), [], "the last one");
        let mut ahead = Ahead::new(Arc::clone(&metadata), None, Arc::new(AtomicBool::new(false)));
        assert_eq!(ahead.after(&ranges(&metadata, 0, &[1])), []);
        assert_eq!(ahead.after(&ranges(&metadata, 1, &[1])), ranges(&metadata, 2, &[1]), "right again");
    }

    #[test]
    fn what_is_no_column_is_followed_by_nothing() {
        let metadata = metadata();
        let mut ahead = Ahead::new(Arc::clone(&metadata), None, trusting());
        assert_eq!(ahead.after(std::slice::from_ref(&(u64::MAX - 1..u64::MAX))), [], "a bloom filter");
        assert_eq!(ahead.after(&[]), []);
    }
}
