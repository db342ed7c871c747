//! Reads the row groups of one Parquet file, ahead of their being asked for.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use datafusion::common::DataFusionError;
use datafusion::datasource::listing::FileRange;
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};
use datafusion::object_store::ObjectMeta;
use datafusion::physical_plan::metrics::Count;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use nandina_device::{ExternalFile, IoAccount, Reading};
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;

use super::ScanState;
use super::ahead::Ahead;
use super::budget::{Grant, TooLarge};
use super::nans::with_nans;
use crate::byte_size;
use crate::error::Error;
use crate::files::sources::Sources;

/// The share of the memory limit that the estimate for decoding a row group may take.
const DECODING_SHARE: usize = 8;

/// Reads one file, or the part of it that one lane of a scan takes.
pub(super) struct AccountedReader {
    scan: ScanOfFiles,
    footer: Box<dyn AsyncFileReader + Send>,
    from: FileToRead,
    /// Opened at the first read.
    file: Option<Arc<ExternalFile>>,
    /// Known with the file's metadata.
    ahead: Option<Ahead>,
    /// Of the row group that is being read, and of the next.
    reading_ahead: Vec<ReadingAhead>,
    held: Vec<Held>,
    bytes_scanned: Count,
}

/// A file, or the part of it that one lane of a scan takes.
pub(super) struct FileToRead {
    pub path: PathBuf,
    pub object: ObjectMeta,
    pub part: Option<FileRange>,
    /// The metadata of a file that is read by windows of rows.
    pub with_pages: Option<Arc<ParquetMetaData>>,
}

/// What the readers of a scan, one for each file or part of a file, have in common.
#[derive(Clone)]
pub(super) struct ScanOfFiles {
    pub sources: Arc<Sources>,
    pub pool: Arc<dyn MemoryPool>,
    pub scan_state: Arc<ScanState>,
    /// Of the query, all files together.
    pub account: Arc<IoAccount>,
}

/// Ranges that are being read before they are asked for.
struct ReadingAhead {
    ranges: Vec<Range<u64>>,
    reading: Reading,
    grant: Grant,
}

/// A range that has been read, and not been asked for yet.
struct Held {
    range: Range<u64>,
    bytes: Bytes,
}

impl AccountedReader {
    /// `footer` reads the file's metadata.
    pub fn new(
        scan: ScanOfFiles,
        footer: Box<dyn AsyncFileReader + Send>,
        from: FileToRead,
        bytes_scanned: Count,
    ) -> Self {
        let (reading_ahead, held) = Default::default();
        Self { scan, footer, from, file: None, ahead: None, reading_ahead, held, bytes_scanned }
    }

    pub fn path(&self) -> &Path {
        &self.from.path
    }

    async fn read(&mut self, ranges: Vec<Range<u64>>) -> parquet::errors::Result<Vec<Bytes>> {
        // Of a file with filters, another reader has been asked for the metadata: only their cache knows it. Without,
        // nothing is read ahead.
        if self.ahead.is_none()
            && let Err(error) = self.get_metadata(None).await
        {
            log::debug!("nothing of '{}' is read ahead: {error}", self.from.path.display());
        }
        let next = self.ahead.as_mut().map(|ahead| ahead.after(&ranges)).unwrap_or_default();
        self.let_go(&ranges, &next);
        // Ranges needed now are submitted before those needed later.
        let asked: Vec<_> = self.reading_ahead.extract_if(.., |ahead| ahead.reads_any_of(&ranges)).collect();
        let missing = ranges.iter().filter(|range| !self.is_held(range));
        let missing = missing.filter(|range| !asked.iter().any(|ahead| ahead.reads(range)));
        let missing: Vec<_> = missing.cloned().collect();
        let now = if missing.is_empty() { None } else { Some(self.begin_needed(missing).await?) };
        self.read_ahead(next);
        for ahead in asked {
            // What failed is read again, if it is asked for, and fails again.
            let ReadingAhead { ranges, reading, grant } = ahead;
            if let Ok(buffers) = reading.finish().await {
                self.hold(ranges, buffers, grant.into_needed());
            }
        }
        if let Some(ReadingAhead { ranges, reading, grant }) = now {
            let buffers = reading.finish().await.map_err(|error| self.failed(&error))?;
            self.hold(ranges, buffers, grant);
        }
        self.bytes_scanned.add(total_bytes(&ranges));
        let mut found = Vec::with_capacity(ranges.len());
        for range in &ranges {
            if self.held_part(range).is_none() {
                let ReadingAhead { ranges, reading, grant } = self.begin_needed(vec![range.clone()]).await?;
                let buffers = reading.finish().await.map_err(|error| self.failed(&error))?;
                self.hold(ranges, buffers, grant);
            }
            found.extend(self.held_part(range));
        }
        assert_eq!(found.len(), ranges.len(), "what has been read is held until it is handed out");
        // Columns are asked for once, as a whole or by pages.
        self.held.retain(|held| !ranges.iter().any(|range| held.holds(range)));
        Ok(found)
    }

    /// Gives back ranges that will not be asked for, before memory is taken for `ranges`: the rest of the row group
    /// before, and those read ahead of a row group that was left out.
    fn let_go(&mut self, ranges: &[Range<u64>], next: &[Range<u64>]) {
        let is_current = |held: &Held| self.ahead.as_ref().is_some_and(|ahead| ahead.is_current(&held.range));
        self.held.retain(is_current);
        self.reading_ahead.retain(|reading| reading.reads_any_of(ranges) || reading.reads_any_of(next));
    }

    async fn begin_needed(&mut self, ranges: Vec<Range<u64>>) -> parquet::errors::Result<ReadingAhead> {
        let grant = self.take(self.needed_bytes(&ranges)).await?;
        let reading = self.begin(&ranges)?;
        Ok(ReadingAhead { ranges, reading, grant })
    }

    fn hold(&mut self, ranges: Vec<Range<u64>>, buffers: Vec<Bytes>, grant: Grant) {
        let grant = Arc::new(grant);
        let accounted = |bytes| Bytes::from_owner(AccountedBytes { bytes, _grant: Arc::clone(&grant) });
        assert_eq!(buffers.len(), ranges.len(), "each range is read into a buffer of its own");
        let held = ranges.into_iter().zip(buffers);
        self.held.extend(held.map(|(range, bytes)| Held { range, bytes: accounted(bytes) }));
    }

    fn is_held(&self, range: &Range<u64>) -> bool {
        self.held.iter().any(|held| held.holds(range))
    }

    fn held_part(&self, range: &Range<u64>) -> Option<Bytes> {
        self.held.iter().find(|held| held.holds(range)).map(|held| held.part(range))
    }

    /// Begins to read `next`, which is likely to be asked for, if there is memory for it. What fails here fails again when
    /// it is asked for, if it ever is. What turns out not to be wanted gives its memory back at once, although the device
    /// may still be filling some of it.
    fn read_ahead(&mut self, next: Vec<Range<u64>>) {
        let is_wanted = |range: &Range<u64>| !self.reading_ahead.iter().any(|ahead| ahead.reads(range));
        let ranges: Vec<Range<u64>> = next.into_iter().filter(is_wanted).collect();
        if ranges.is_empty() {
            return;
        }
        let grant = self.scan.sources.parquet.take_ahead(&self.scan.pool, self.needed_bytes(&ranges));
        // From the page cache there is nothing to read ahead.
        let reading = grant.and_then(|grant| {
            let reading = self.begin(&ranges).ok().filter(Reading::is_in_flight)?;
            Some(ReadingAhead { ranges, reading, grant })
        });
        self.reading_ahead.extend(reading);
    }

    /// Memory that `ranges` take, read and being decoded. The latter is an estimate, which must not push all other
    /// operators out of a small limit.
    fn needed_bytes(&self, ranges: &[Range<u64>]) -> usize {
        let bytes = total_bytes(ranges);
        let decoding = self.ahead.as_ref().map_or(0, |ahead| ahead.decoding_bytes(ranges));
        let MemoryLimit::Finite(limit_bytes) = self.scan.pool.memory_limit() else {
            return bytes.saturating_add(decoding);
        };
        bytes + decoding.min(limit_bytes.saturating_sub(bytes) / DECODING_SHARE)
    }

    async fn take(&mut self, bytes: usize) -> parquet::errors::Result<Grant> {
        let granted = self
            .scan
            .sources
            .parquet
            .take(&self.scan.pool, bytes, &self.scan.scan_state.waits_for_memory)
            .await;
        granted.map_err(|TooLarge { limit_bytes }| {
            let message = format!(
                "one row group of '{}' needs {} for the columns that are read, more than the memory limit of {}; \
                 raise the limit (-m, SET memory_limit), or import the file into a table",
                self.from.path.display(),
                byte_size::format(bytes as u64),
                byte_size::format(limit_bytes as u64)
            );
            external(Error::Resources { message })
        })
    }

    fn begin(&mut self, ranges: &[Range<u64>]) -> parquet::errors::Result<Reading> {
        self.open()?.begin(ranges, Some(&self.scan.account)).map_err(|error| self.failed(&error))
    }

    fn open(&mut self) -> parquet::errors::Result<Arc<ExternalFile>> {
        if let Some(file) = &self.file {
            return Ok(Arc::clone(file));
        }
        let file = self.scan.sources.media.open(&self.from.path);
        Ok(Arc::clone(self.file.insert(file.map_err(|error| self.failed(&error))?)))
    }

    fn failed(&self, error: &nandina_device::Error) -> ParquetError {
        external(Error::file(self.from.path.display().to_string(), error.to_string()))
    }
}

impl AsyncFileReader for AccountedReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
        async move {
            let mut buffers = self.get_byte_ranges(vec![range]).await?;
            buffers.pop().ok_or_else(|| ParquetError::General("nothing was read".to_owned()))
        }
        .boxed()
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, parquet::errors::Result<Vec<Bytes>>> {
        self.read(ranges).boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, parquet::errors::Result<Arc<ParquetMetaData>>> {
        async move {
            let metadata = match &self.from.with_pages {
                Some(known) => Arc::clone(known),
                None => {
                    let read = self.footer.get_metadata(options).map(|read| with_nans(read?));
                    self.scan.sources.footers.of(&self.from.object, read).await?
                }
            };
            self.ahead = Some(Ahead::new(
                Arc::clone(&metadata),
                self.from.part.clone(),
                Arc::clone(&self.scan.scan_state.trusted),
            ));
            Ok(metadata)
        }
        .boxed()
    }
}

impl ReadingAhead {
    fn reads(&self, range: &Range<u64>) -> bool {
        self.ranges.iter().any(|read| includes(read, range))
    }

    fn reads_any_of(&self, ranges: &[Range<u64>]) -> bool {
        ranges.iter().any(|range| self.reads(range))
    }
}

impl Held {
    fn holds(&self, range: &Range<u64>) -> bool {
        includes(&self.range, range)
    }

    /// `range`, which is held, without a copy.
    fn part(&self, range: &Range<u64>) -> Bytes {
        let begin = (range.start - self.range.start) as usize;
        self.bytes.slice(begin..begin + (range.end - range.start) as usize)
    }
}

fn includes(outer: &Range<u64>, inner: &Range<u64>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

fn total_bytes(ranges: &[Range<u64>]) -> usize {
    ranges.iter().map(|range| (range.end - range.start) as usize).sum()
}

/// Bytes of a file, and the grant they are part of.
struct AccountedBytes {
    bytes: Bytes,
    _grant: Arc<Grant>,
}

impl AsRef<[u8]> for AccountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn external(error: impl Into<DataFusionError>) -> ParquetError {
    ParquetError::External(Box::new(error.into()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use arrow::array::{Int64Array, RecordBatch};
    use datafusion::object_store::path::Path as ObjectPath;
    use nandina_device::DeviceOptions;

    use crate::media::Media;
    use crate::options::OpenDevice;
    use nandina_exec::memory::MemoryGovernor;
    use parquet::arrow::ArrowWriter;
    use parquet::file::properties::WriterProperties;

    fn reader(path: &Path, limit: usize) -> (AccountedReader, Arc<dyn MemoryPool>) {
        let pool: Arc<dyn MemoryPool> = Arc::new(MemoryGovernor::new(Some(limit)));
        let scan = ScanOfFiles {
            sources: Arc::new(Sources::new(
                Media::new(DeviceOptions::default(), OpenDevice::default(), None),
                Vec::new(),
                false,
            )),
            pool: Arc::clone(&pool),
            scan_state: Arc::new(ScanState {
                waits_for_memory: AtomicBool::new(true),
                trusted: Arc::default(),
            }),
            account: IoAccount::new(),
        };
        let location = ObjectPath::from_absolute_path(path).unwrap();
        let (last_modified, size) = Default::default();
        let object = ObjectMeta { location, last_modified, size, e_tag: None, version: None };
        let from = FileToRead { path: path.to_path_buf(), object, part: None, with_pages: None };
        (AccountedReader::new(scan, Box::new(Footer(None)), from, Count::new()), pool)
    }

    /// Metadata that another reader has read, or none.
    struct Footer(Option<Arc<ParquetMetaData>>);

    impl AsyncFileReader for Footer {
        fn get_bytes(&mut self, _: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
            async { Err(ParquetError::General("not asked for".to_owned())) }.boxed()
        }

        fn get_metadata<'a>(
            &'a mut self,
            _: Option<&'a ArrowReaderOptions>,
        ) -> BoxFuture<'a, parquet::errors::Result<Arc<ParquetMetaData>>> {
            let metadata = self.0.clone();
            async move { metadata.ok_or_else(|| ParquetError::General("there is none".to_owned())) }.boxed()
        }
    }

    #[tokio::test]
    async fn buffers_are_reserved_until_the_last_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, b"0123456789").unwrap();
        let (mut reader, pool) = reader(&path, 1000);
        let mut buffers = reader.get_byte_ranges(vec![0..3, 5..9]).await.unwrap();
        assert_eq!(buffers, [&b"012"[..], &b"5678"[..]]);
        assert_eq!(pool.reserved(), 7);
        let slice = buffers.remove(1).slice(1..2);
        drop(buffers);
        assert_eq!(pool.reserved(), 7);
        drop(slice);
        assert_eq!(pool.reserved(), 0);
        assert_eq!(reader.bytes_scanned.value(), 7);
    }

    #[tokio::test]
    async fn only_what_can_never_fit_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, vec![7; 100]).unwrap();
        let (mut reader, pool) = reader(&path, 60);
        let _held = reader.get_bytes(0..50).await.unwrap();
        let _over = reader.get_bytes(0..50).await.unwrap();
        assert_eq!(pool.reserved(), 100);
        let error = Error::from(DataFusionError::from(reader.get_bytes(0..61).await.unwrap_err()));
        assert!(error.to_string().contains("needs 61 B for the columns that are read"), "{error}");
    }

    #[tokio::test]
    async fn missing_and_short_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let (mut reader, _) = reader(&path, 1000);
        assert!(reader.get_bytes(0..5).await.unwrap_err().to_string().contains("x"));
        std::fs::write(&path, b"abc").unwrap();
        assert!(reader.get_bytes(0..5).await.is_err());
    }

    /// A reader of a file of three row groups with two columns, and where those lie.
    fn reader_of_row_groups(path: &Path) -> (AccountedReader, Arc<dyn MemoryPool>, Vec<[Range<u64>; 2]>) {
        let column = || Arc::new(Int64Array::from_iter_values(0..3_000)) as _;
        let batch = RecordBatch::try_from_iter([("a", column()), ("b", column())]).unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(1_000)).build();
        let file = std::fs::File::create(path).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        let metadata = Arc::new(writer.close().unwrap());
        let place = |group: usize, column: usize| {
            let (offset, bytes) = metadata.row_group(group).column(column).byte_range();
            offset..offset + bytes
        };
        let places = (0..3).map(|group| [place(group, 0), place(group, 1)]).collect();
        let (mut reader, pool) = reader(path, 1 << 20);
        reader.footer = Box::new(Footer(Some(metadata)));
        (reader, pool, places)
    }

    #[tokio::test]
    async fn what_was_read_ahead_is_handed_out_part_by_part() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.parquet");
        let (mut reader, pool, places) = reader_of_row_groups(&path);
        let file = std::fs::read(&path).unwrap();
        let bytes = |range: &Range<u64>| &file[range.start as usize..range.end as usize];
        reader.get_byte_ranges(vec![places[0][0].clone()]).await.unwrap();

        let grant = reader.take(100).await.unwrap();
        let ranges = places[1].to_vec();
        let reading = reader.begin(&ranges).unwrap();
        reader.reading_ahead.push(ReadingAhead { ranges, reading, grant });
        let [filtered, rest] = &places[1];
        let first = reader.get_byte_ranges(vec![filtered.clone()]).await.unwrap();
        assert_eq!((first.len(), &first[0][..]), (1, bytes(filtered)));
        assert!(reader.is_held(rest) && !reader.is_held(filtered));
        let pages = [rest.start..rest.start + 10, rest.end - 10..rest.end];
        let second = reader.get_byte_ranges(pages.to_vec()).await.unwrap();
        assert_eq!(second, [bytes(&pages[0]), bytes(&pages[1])]);
        assert!(reader.held.is_empty());
        drop((first, second));
        assert_eq!(pool.reserved(), 0);
    }

    #[tokio::test]
    async fn what_nobody_wanted_goes_with_its_row_group() {
        let folder = tempfile::tempdir().unwrap();
        let (mut reader, pool, places) = reader_of_row_groups(&folder.path().join("x.parquet"));
        let grant = reader.take(100).await.unwrap();
        let ranges = places[0].to_vec();
        let reading = reader.begin(&ranges).unwrap();
        reader.reading_ahead.push(ReadingAhead { ranges, reading, grant });
        drop(reader.get_byte_ranges(vec![places[0][0].clone()]).await.unwrap());
        assert!(reader.is_held(&places[0][1]) && pool.reserved() == 100);
        drop(reader.get_byte_ranges(vec![places[1][0].clone()]).await.unwrap());
        assert!(reader.held.is_empty());
        assert_eq!(pool.reserved(), 0);
    }
}
