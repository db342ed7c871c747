//! Which bytes of a Parquet file a scan is going to ask for next.
//!
//! Which row groups a scan reads is decided by statistics and filters above the reader. Mostly it is one after the
//! other, so the guess is: the same columns of the next row group of the scan's part of the file. Where filters
//! leave row groups out the guess is wrong, and costs the read of a row group; after a wrong guess none is acted
//! upon, in any file of the scan, until one would have been right.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::datasource::listing::FileRange;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};

/// Follows what one scan asks for in one file.
#[derive(Debug)]
pub(super) struct Ahead {
    metadata: Arc<ParquetMetaData>,
    /// The scan reads the row groups that begin here; all if there is none.
    part: Option<FileRange>,
    guess: Option<Vec<Range<u64>>>,
    /// Whether the scan's last guess was right.
    trusted: Arc<AtomicBool>,
}

impl Ahead {
    pub fn new(metadata: Arc<ParquetMetaData>, part: Option<FileRange>, trusted: Arc<AtomicBool>) -> Self {
        Self { metadata, part, guess: None, trusted }
    }

    /// Learns that `ranges` are asked for, and guesses what comes after them. `None` if there is nothing more, or
    /// nothing that would be worth reading on a guess.
    pub fn after(&mut self, ranges: &[Range<u64>]) -> Option<&[Range<u64>]> {
        if let Some(guess) = self.guess.take() {
            self.trusted.store(guess == ranges, Ordering::Relaxed);
        }
        self.guess = self.next(ranges);
        self.guess.as_deref().filter(|_| self.trusted.load(Ordering::Relaxed))
    }

    /// Memory that decoding takes beside the bytes of `ranges` themselves: of every column one page and its
    /// dictionary, decompressed. Zero for what is no part of the columns of a row group.
    pub fn decoding_bytes(&self, ranges: &[Range<u64>]) -> usize {
        let Some(first) = ranges.first() else { return 0 };
        let overlaps = |column: &Option<Range<u64>>, range: &Range<u64>| {
            column.as_ref().is_some_and(|column| range.start < column.end && column.start < range.end)
        };
        let asked_of = |group: &&RowGroupMetaData| columns(group).any(|column| overlaps(&column, first));
        let Some(group) = self.metadata.row_groups().iter().find(asked_of) else { return 0 };
        let asked = columns(group).zip(group.columns());
        let asked = asked.filter(|(place, _)| ranges.iter().any(|range| overlaps(place, range)));
        let bytes = asked.map(|(_, column)| page_and_dictionary_bytes(column, group.num_rows()));
        usize::try_from(bytes.fold(0, u64::saturating_add)).unwrap_or(usize::MAX)
    }

    /// The same columns in the row group behind the one that `ranges` are whole columns of.
    fn next(&self, ranges: &[Range<u64>]) -> Option<Vec<Range<u64>>> {
        let first = ranges.first()?;
        let row_groups = self.metadata.row_groups();
        let first = Some(first.clone());
        let current = row_groups.iter().position(|group| columns(group).any(|column| column == first))?;
        let next = row_groups.get(current + 1).filter(|next| self.is_in_part(next))?;
        let mut asked = ranges.iter().peekable();
        let mut guess = Vec::with_capacity(ranges.len());
        for (column, same_column) in columns(row_groups.get(current)?).zip(columns(next)) {
            if asked.next_if(|asked| column.as_ref() == Some(asked)).is_some() {
                guess.push(same_column?);
            }
        }
        // What is left is not a whole column, so the scan picks pages.
        asked.next().is_none().then_some(guess)
    }

    /// DataFusion gives a row group to the part of the file in which its first page lies.
    fn is_in_part(&self, group: &RowGroupMetaData) -> bool {
        let Some(first) = group.columns().first() else { return false };
        let begin = first.dictionary_page_offset().unwrap_or_else(|| first.data_page_offset());
        self.part.as_ref().is_none_or(|part| (part.start..part.end).contains(&begin))
    }
}

/// Of a column of a row group of so many rows: its largest page and its dictionary, decompressed, as far as the
/// file's metadata tells. Writers end a page at 1 MiB or 20,000 rows, whichever comes first, and a dictionary at
/// 1 MiB.
fn page_and_dictionary_bytes(column: &ColumnChunkMetaData, rows: i64) -> u64 {
    const PAGE_BYTES: u64 = 1 << 20;
    const PAGE_ROWS: u64 = 20_000;
    let unsigned = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
    let compressed = unsigned(column.compressed_size()).max(1);
    let whole = u128::from(unsigned(column.uncompressed_size()));
    let most = |bytes: u128| bytes.min(u128::from(PAGE_BYTES)) as u64;
    let dictionary = column.dictionary_page_offset().filter(|&offset| offset > 0).map_or(0, |offset| {
        let bytes = unsigned(column.data_page_offset().saturating_sub(offset)).min(compressed);
        most(u128::from(bytes) * whole / u128::from(compressed))
    });
    let page = whole * u128::from(PAGE_ROWS) / u128::from(unsigned(rows).max(1));
    dictionary + most(page.min(whole))
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
            let guess = ahead.after(&ranges(&metadata, group, &[0, 2])).unwrap();
            assert_eq!(guess, ranges(&metadata, group + 1, &[0, 2]));
        }
        assert_eq!(ahead.after(&ranges(&metadata, 3, &[0, 2])), None);
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
        assert_eq!(ahead.after(&ranges(&metadata, 0, &[0])), Some(&[second][..]));
        assert_eq!(ahead.after(&ranges(&metadata, 1, &[0])), None);
    }

    #[test]
    fn a_wrong_guess_is_not_followed_by_another() {
        let metadata = metadata();
        let mut ahead = Ahead::new(Arc::clone(&metadata), None, trusting());
        assert!(ahead.after(&ranges(&metadata, 0, &[1])).is_some());
        assert_eq!(ahead.after(&ranges(&metadata, 2, &[1])), None);
        let again = ranges(&metadata, 3, &[1]);
        assert_eq!(ahead.after(&again), None, "the last one");
        let mut ahead = Ahead::new(Arc::clone(&metadata), None, trusting());
        assert!(ahead.after(&ranges(&metadata, 0, &[1])).is_some());
        assert_eq!(ahead.after(&ranges(&metadata, 0, &[2])), None);
        assert!(ahead.after(&ranges(&metadata, 1, &[2])).is_some(), "right again");
    }

    #[test]
    fn parts_of_columns_are_not_followed() {
        let metadata = metadata();
        let mut ahead = Ahead::new(Arc::clone(&metadata), None, trusting());
        let mut asked = ranges(&metadata, 0, &[0, 1]);
        asked[1].start += 1;
        assert_eq!(ahead.after(&asked), None);
        asked[0].end -= 1;
        assert_eq!(ahead.after(&asked), None);
        assert_eq!(ahead.after(&[]), None);
    }
}
