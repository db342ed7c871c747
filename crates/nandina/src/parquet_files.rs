//! Parquet files whose read buffers count against the memory limit.
//!
//! DataFusion's reader fetches the needed column chunks of a whole row group at once and holds them until the
//! row group is decoded; no operator accounts for them. Here they are reserved before they are read, together with
//! what decoding them takes, which makes operators that can spill give memory back, and the reservation ends with
//! the last buffer:
//!
//! ```text
//!   ParquetSource ─► AccountedReader ── take(bytes) ─► ReadBudget ─► MemoryGovernor (may ask a join to spill)
//!                         ├─ read exactly the ranges asked for ─► buffers that hold the grant
//!                         └─ begin to read those of the next row group (Ahead)
//! ```
//!
//! Reading exactly those ranges matters, too: the object store's way of merging neighbouring ranges would read
//! and hold the columns in between. What the page cache does not have is read past it, all ranges at once, and
//! while one row group is decoded the next one is on its way.

mod ahead;
mod budget;

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use bytes::Bytes;
use datafusion::catalog::Session;
use datafusion::common::{DataFusionError, Result, Statistics};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::file_format::{FileFormat, FileMeta};
use datafusion::datasource::listing::{FileRange, PartitionedFile};
use datafusion::datasource::physical_plan::parquet::CachedParquetFileReaderFactory;
use datafusion::datasource::physical_plan::{
    FileScanConfig, FileScanConfigBuilder, FileSinkConfig, FileSource, ParquetFileReaderFactory,
    ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};
use datafusion::object_store::local::LocalFileSystem;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use datafusion::physical_expr::{LexOrdering, LexRequirement};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};
use datafusion_datasource::TableSchema;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use nandina_device::{FlowId, ForeignFile, IoAccount, Priority, Reading};
use nandina_exec::flow::QueryFlow;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;

use self::ahead::Ahead;
pub(crate) use self::budget::ReadBudget;
use self::budget::{Grant, TooLarge};
use crate::byte_size;
use crate::engine::Sources;
use crate::error::Error;

/// The share of the memory limit that the estimate for decoding a row group may take.
const DECODING_SHARE: usize = 8;

/// DataFusion's Parquet format, reading through [`AccountedReader`].
#[derive(Debug)]
pub(crate) struct AccountedParquet(pub ParquetFormat);

#[async_trait]
impl FileFormat for AccountedParquet {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }

    fn get_ext_with_compression(&self, compression: &FileCompressionType) -> Result<String> {
        self.0.get_ext_with_compression(compression)
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        self.0.compression_type()
    }

    async fn infer_schema(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        objects: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        self.0.infer_schema(state, store, objects).await
    }

    async fn infer_stats(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Statistics> {
        self.0.infer_stats(state, store, table_schema, object).await
    }

    async fn infer_ordering(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Option<LexOrdering>> {
        self.0.infer_ordering(state, store, table_schema, object).await
    }

    async fn infer_stats_and_ordering(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<FileMeta> {
        self.0.infer_stats_and_ordering(state, store, table_schema, object).await
    }

    async fn create_physical_plan(
        &self,
        state: &dyn Session,
        config: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let runtime = state.runtime_env();
        let store = runtime.object_store(&config.object_store_url)?;
        let plan = self.0.create_physical_plan(state, config).await?;
        let sources = state.config().get_extension::<Sources>();
        let Some((config, source)) = plan.downcast_ref::<DataSourceExec>().and_then(|scan| {
            let config = scan.data_source().downcast_ref::<FileScanConfig>()?;
            Some((config.clone(), config.file_source().downcast_ref::<ParquetSource>()?.clone()))
        }) else {
            return Ok(plan);
        };
        let Some(sources) = sources else { return Ok(plan) };
        let footers =
            CachedParquetFileReaderFactory::new(store, runtime.cache_manager.get_file_metadata_cache());
        let habits =
            Arc::new(Habits { patient: AtomicBool::new(true), trusted: Arc::new(AtomicBool::new(true)) });
        let flow = state.config().get_extension::<QueryFlow>().map_or_else(FlowId::unique, |query| query.0);
        let account = IoAccount::of_flow(flow, Priority::Scan);
        let pool = Arc::clone(&runtime.memory_pool);
        let readers = AccountedReaders { footers, sources, pool, habits, account };
        let source = source.with_parquet_file_reader_factory(Arc::new(readers));
        let config = FileScanConfigBuilder::from(config).with_source(Arc::new(source)).build();
        Ok(DataSourceExec::from_data_source(config))
    }

    async fn create_writer_physical_plan(
        &self,
        input: Arc<dyn ExecutionPlan>,
        state: &dyn Session,
        config: FileSinkConfig,
        order_requirements: Option<LexRequirement>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.0.create_writer_physical_plan(input, state, config, order_requirements).await
    }

    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        self.0.file_source(table_schema)
    }
}

struct AccountedReaders {
    /// Reads footers, and keeps them.
    footers: CachedParquetFileReaderFactory,
    sources: Arc<Sources>,
    pool: Arc<dyn MemoryPool>,
    habits: Arc<Habits>,
    /// Of the query, all files together.
    account: Arc<IoAccount>,
}

/// What the readers of a scan, one for each file or part of a file, learn from each other.
struct Habits {
    /// Whether to wait for memory that other readers hold.
    patient: AtomicBool,
    /// Whether the row groups that are read can be guessed.
    trusted: Arc<AtomicBool>,
}

impl fmt::Debug for AccountedReaders {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AccountedReaders").finish_non_exhaustive()
    }
}

impl ParquetFileReaderFactory for AccountedReaders {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let path = LocalFileSystem::new().path_to_filesystem(&file.object_meta.location)?;
        Ok(Box::new(AccountedReader {
            path,
            part: file.range.clone(),
            file: None,
            ahead: None,
            reading_ahead: None,
            habits: Arc::clone(&self.habits),
            account: Arc::clone(&self.account),
            sources: Arc::clone(&self.sources),
            pool: Arc::clone(&self.pool),
            bytes_scanned: MetricBuilder::new(metrics).counter("bytes_scanned", partition),
            footer: self.footers.create_reader(partition, file, metadata_size_hint, metrics)?,
        }))
    }
}

/// Reads one file, or the part of it that one lane of a scan takes.
struct AccountedReader {
    footer: Box<dyn AsyncFileReader + Send>,
    path: PathBuf,
    part: Option<FileRange>,
    /// Opened at the first read.
    file: Option<Arc<ForeignFile>>,
    /// Known with the file's metadata.
    ahead: Option<Ahead>,
    reading_ahead: Option<ReadingAhead>,
    habits: Arc<Habits>,
    account: Arc<IoAccount>,
    sources: Arc<Sources>,
    pool: Arc<dyn MemoryPool>,
    bytes_scanned: Count,
}

/// Ranges that are being read before they are asked for.
struct ReadingAhead {
    ranges: Vec<Range<u64>>,
    reading: Reading,
    grant: Grant,
}

impl AccountedReader {
    async fn read(&mut self, ranges: Vec<Range<u64>>) -> parquet::errors::Result<Vec<Bytes>> {
        let begun = match self.reading_ahead.take().filter(|ahead| ahead.ranges == ranges) {
            Some(ahead) => (ahead.reading, ahead.grant.into_needed()),
            None => {
                let grant = self.take(self.needed_bytes(&ranges)).await?;
                (self.begin(&ranges)?, grant)
            }
        };
        self.read_ahead(&ranges);
        let (reading, grant) = begun;
        let grant = Arc::new(grant);
        let buffers = reading.finish().await.map_err(|error| self.failed(&error))?;
        self.bytes_scanned.add(total_bytes(&ranges));
        let accounted = |bytes| AccountedBytes { bytes, _grant: Arc::clone(&grant) };
        Ok(buffers.into_iter().map(|bytes| Bytes::from_owner(accounted(bytes))).collect())
    }

    /// Begins to read what is likely to be asked for after `ranges`, if there is memory for it. What fails here
    /// fails again when it is asked for, if it ever is. What turns out not to be wanted gives its memory back at
    /// once, although the device may still be filling some of it.
    fn read_ahead(&mut self, ranges: &[Range<u64>]) {
        let next = self.ahead.as_mut().and_then(|ahead| ahead.after(ranges)).map(<[_]>::to_vec);
        self.reading_ahead = next.and_then(|ranges| {
            let bytes = self.needed_bytes(&ranges);
            let grant = self.sources.parquet.take_ahead(&self.pool, bytes)?;
            // From the page cache there is nothing to read ahead.
            let reading = self.begin(&ranges).ok().filter(Reading::is_in_flight)?;
            Some(ReadingAhead { ranges, reading, grant })
        });
    }

    /// Memory that `ranges` take, read and being decoded. The latter is an estimate, which must not push everybody
    /// else out of a small limit.
    fn needed_bytes(&self, ranges: &[Range<u64>]) -> usize {
        let bytes = total_bytes(ranges);
        let decoding = self.ahead.as_ref().map_or(0, |ahead| ahead.decoding_bytes(ranges));
        let MemoryLimit::Finite(limit_bytes) = self.pool.memory_limit() else {
            return bytes.saturating_add(decoding);
        };
        bytes + decoding.min(limit_bytes.saturating_sub(bytes) / DECODING_SHARE)
    }

    async fn take(&mut self, bytes: usize) -> parquet::errors::Result<Grant> {
        let granted = self.sources.parquet.take(&self.pool, bytes, &self.habits.patient).await;
        granted.map_err(|TooLarge { limit_bytes }| {
            let message = format!(
                "one row group of '{}' needs {} for the columns that are read, more than the memory limit of {}; \
                 raise the limit (-m, SET memory_limit), or import the file into a table",
                self.path.display(),
                byte_size::format(bytes as u64),
                byte_size::format(limit_bytes as u64)
            );
            external(Error::Resources { message })
        })
    }

    fn begin(&mut self, ranges: &[Range<u64>]) -> parquet::errors::Result<Reading> {
        self.open()?.begin(ranges, Some(&self.account)).map_err(|error| self.failed(&error))
    }

    fn open(&mut self) -> parquet::errors::Result<Arc<ForeignFile>> {
        if let Some(file) = &self.file {
            return Ok(Arc::clone(file));
        }
        let file = self.sources.media.open(&self.path);
        Ok(Arc::clone(self.file.insert(file.map_err(|error| self.failed(&error))?)))
    }

    fn failed(&self, error: &nandina_device::Error) -> ParquetError {
        external(Error::file(self.path.display().to_string(), error.to_string()))
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
            let metadata = self.footer.get_metadata(options).await?;
            self.ahead =
                Some(Ahead::new(Arc::clone(&metadata), self.part.clone(), Arc::clone(&self.habits.trusted)));
            Ok(metadata)
        }
        .boxed()
    }
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
    use std::path::Path;

    use super::*;
    use nandina_device::DeviceOptions;

    use crate::media::Media;
    use nandina_exec::memory::MemoryGovernor;

    fn reader(path: &Path, limit: usize) -> (AccountedReader, Arc<dyn MemoryPool>) {
        let pool: Arc<dyn MemoryPool> = Arc::new(MemoryGovernor::new(Some(limit)));
        let footer: Box<dyn AsyncFileReader + Send> = Box::new(NoFooter);
        let bytes_scanned = Count::new();
        (
            AccountedReader {
                account: IoAccount::new(),
                footer,
                path: path.to_path_buf(),
                part: None,
                file: None,
                ahead: None,
                reading_ahead: None,
                habits: Arc::new(Habits { patient: AtomicBool::new(true), trusted: Arc::default() }),
                sources: Arc::new(Sources::new(
                    Media::new(DeviceOptions::default(), None),
                    Vec::new(),
                    false,
                )),
                pool: Arc::clone(&pool),
                bytes_scanned,
            },
            pool,
        )
    }

    struct NoFooter;

    impl AsyncFileReader for NoFooter {
        fn get_bytes(&mut self, _: Range<u64>) -> BoxFuture<'_, parquet::errors::Result<Bytes>> {
            async { Err(ParquetError::General("not asked for".to_owned())) }.boxed()
        }

        fn get_metadata<'a>(
            &'a mut self,
            _: Option<&'a ArrowReaderOptions>,
        ) -> BoxFuture<'a, parquet::errors::Result<Arc<ParquetMetaData>>> {
            async { Err(ParquetError::General("not asked for".to_owned())) }.boxed()
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
}
