//! Parquet files whose read buffers count against the memory limit.
//!
//! DataFusion's reader fetches the needed column chunks of a whole row group at once, or first those that a filter looks
//! at, and holds them until the row group is decoded; no operator accounts for them. Here they are reserved before they are read, together with
//! what decoding them takes, which makes operators that can spill give memory back, and the reservation ends with
//! the last buffer:
//!
//! ```text
//!   ParquetSource ─► AccountedReader ── take(bytes) ─► ReadBudget ─► MemoryGovernor (may ask a join to spill)
//!                         ├─ read exactly the ranges asked for ─► buffers that hold the grant
//!                         └─ begin to read those of the next row group (Ahead)
//! ```
//!
//! Row groups that are too large for this are read as windows of their rows ([`windows`]), those of so many columns that
//! decoding all of them at a time takes too much in groups of columns ([`nandina_exec::scan::ColumnGroupsExec`]).
//!
//! Reading exactly those ranges matters, too: the object store's way of merging neighbouring ranges would read
//! and hold the columns in between. What the page cache does not have is read past it, all ranges at once, and
//! while one row group is decoded the next one is being read.

mod ahead;
pub(super) mod budget;
mod decoding;
pub(super) mod footers;
mod nans;
mod reader;
mod windows;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{GetExt, Result, Statistics};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::parquet::ParquetFormatFactory;
use datafusion::datasource::file_format::{FileFormat, FileFormatFactory, FileMeta};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::CachedParquetFileReaderFactory;
use datafusion::datasource::physical_plan::{
    FileScanConfig, FileScanConfigBuilder, FileSinkConfig, FileSource, ParquetFileReaderFactory,
    ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use datafusion::physical_expr::{LexOrdering, LexRequirement};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder};
use datafusion_datasource::TableSchema;
use nandina_device::{FlowId, IoAccount, Priority};
use nandina_exec::execution::QueryFlow;
use parquet::arrow::async_reader::AsyncFileReader;

use self::decoding::with_decoding_bytes;
use self::nans::without_greatest;
use self::reader::{AccountedReader, FileToRead, ScanOfFiles};
use self::windows::{Wanted, WithPages};
use crate::files::sources::Sources;

/// The share of the memory limit that columns may take which a filter has looked at and that are wanted afterwards. What
/// does not fit is decoded twice.
const FILTERED_SHARE: usize = 16;

/// The share of the memory limit that the row groups of all lanes of a scan may take. Larger ones are read as windows.
const ROW_GROUPS_SHARE: usize = 2;

/// Rows per batch of a scan. Where a filter leaves one row of twenty, so many rows are decoded at a time as hold a batch
/// of the remaining ones: twenty times as many, of every column, which are not reserved.
fn filtered_batch_rows(batch_rows: usize, limit: &MemoryLimit) -> usize {
    const SMALL_LIMIT: usize = 256 << 20;
    match limit {
        MemoryLimit::Finite(bytes) if *bytes < SMALL_LIMIT => batch_rows.min(2048),
        _ => batch_rows,
    }
}

/// DataFusion's Parquet format, reading through [`AccountedReader`].
#[derive(Debug)]
pub(crate) struct AccountedParquet(pub Arc<dyn FileFormat>);

/// Makes [`AccountedParquet`] for `STORED AS PARQUET`.
#[derive(Debug)]
pub(crate) struct AccountedParquetFactory(ParquetFormatFactory);

impl AccountedParquetFactory {
    pub(crate) fn new() -> Self {
        AccountedParquetFactory(ParquetFormatFactory::new())
    }
}

impl GetExt for AccountedParquetFactory {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }
}

impl FileFormatFactory for AccountedParquetFactory {
    fn create(&self, state: &dyn Session, options: &HashMap<String, String>) -> Result<Arc<dyn FileFormat>> {
        Ok(Arc::new(AccountedParquet(self.0.create(state, options)?)))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        Arc::new(AccountedParquet(self.0.default()))
    }
}

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
        let statistics = self.0.infer_stats(state, store, Arc::clone(&table_schema), object).await?;
        Ok(without_greatest(statistics, &table_schema))
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
        let schema = Arc::clone(&table_schema);
        let mut known = self.0.infer_stats_and_ordering(state, store, table_schema, object).await?;
        known.statistics = without_greatest(known.statistics, &schema);
        Ok(known)
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
        let scan_state = Arc::new(ScanState {
            waits_for_memory: AtomicBool::new(true),
            trusted: Arc::new(AtomicBool::new(true)),
        });
        let flow = state.config().get_extension::<QueryFlow>().map_or_else(FlowId::unique, |query| query.0);
        let account = IoAccount::of_flow(flow, Priority::Scan);
        let pool = Arc::clone(&runtime.memory_pool);
        let readers = AccountedReaders { footers, scan: ScanOfFiles { sources, pool, scan_state, account } };
        let mut options = source.table_parquet_options().clone();
        let mut file_groups = config.file_groups.clone();
        if let MemoryLimit::Finite(limit_bytes) = runtime.memory_pool.memory_limit() {
            let lanes = state.config().target_partitions().max(1);
            options.global.max_predicate_cache_size.get_or_insert(limit_bytes / FILTERED_SHARE / lanes);
            let fields = fields_that_are_read(&config);
            let wanted = Wanted {
                fields: fields.clone(),
                most_bytes: (limit_bytes / ROW_GROUPS_SHARE / lanes) as u64,
            };
            let unmeasured = ExecutionPlanMetricsSet::new();
            let reader = |file: &PartitionedFile| {
                readers.reader(0, file.clone(), file.metadata_size_hint, &unmeasured)
            };
            file_groups = wanted.in_windows(file_groups, reader).await?;
            let schema = config.file_schema();
            file_groups =
                with_decoding_bytes(file_groups, schema, &fields, limit_bytes, lanes, reader).await?;
        }
        let source =
            source.with_table_parquet_options(options).with_parquet_file_reader_factory(Arc::new(readers));
        let batch_rows =
            filtered_batch_rows(state.config().batch_size(), &runtime.memory_pool.memory_limit());
        let config = FileScanConfigBuilder::from(config)
            .with_source(Arc::new(source))
            .with_file_groups(file_groups)
            .with_batch_size(Some(batch_rows))
            .build();
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

/// The fields of the files' schema of which a scan reads anything.
fn fields_that_are_read(config: &FileScanConfig) -> HashSet<&str> {
    let fields = config.file_schema().fields();
    match config.file_source().projection() {
        None => fields.iter().map(|field| field.name().as_str()).collect(),
        Some(projection) => {
            // Behind the files' fields come those that their folders' names give.
            let read = projection.column_indices().into_iter().filter_map(|at| fields.get(at));
            read.map(|field| field.name().as_str()).collect()
        }
    }
}

/// Makes the readers of a scan.
struct AccountedReaders {
    /// Reads footers, and keeps those that fit into DataFusion's cache.
    footers: CachedParquetFileReaderFactory,
    scan: ScanOfFiles,
}

/// What the readers of a scan learn from each other.
struct ScanState {
    /// Whether to wait for memory that other readers hold.
    waits_for_memory: AtomicBool,
    /// Whether the row groups that are read can be guessed.
    trusted: Arc<AtomicBool>,
}

impl fmt::Debug for AccountedReaders {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AccountedReaders").finish_non_exhaustive()
    }
}

impl AccountedReaders {
    fn reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        metadata_size_hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<AccountedReader> {
        let path = LocalFileSystem::new().path_to_filesystem(&file.object_meta.location)?;
        let part = file.range.clone();
        let bytes_scanned = MetricBuilder::new(metrics).counter("bytes_scanned", partition);
        let object = file.object_meta.clone();
        let with_pages = file.extension::<WithPages>().map(|known| Arc::clone(&known.0));
        let footer = self.footers.create_reader(partition, file, metadata_size_hint, metrics)?;
        let file = FileToRead { path, object, part, with_pages };
        Ok(AccountedReader::new(self.scan.clone(), footer, file, bytes_scanned))
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
        Ok(Box::new(self.reader(partition, file, metadata_size_hint, metrics)?))
    }
}
