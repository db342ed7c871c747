//! CSV as a format of DataFusion's tables of files.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::config::CsvOptions;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, GetExt, Result, Statistics, internal_datafusion_err};
use datafusion::datasource::file_format::csv::{CsvFormat, CsvFormatFactory};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::{FileFormat, FileFormatFactory};
use datafusion::datasource::physical_plan::{
    FileScanConfig, FileScanConfigBuilder, FileSinkConfig, FileSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool, UnboundedMemoryPool};
use datafusion::object_store::local::LocalFileSystem;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use datafusion::physical_expr::LexRequirement;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_datasource::TableSchema;

use super::chunks::ChunkSize;
use super::extras::Extras;
use super::formats::FoundFormats;
use super::infer::Inferred;
use super::scan::CsvText;
use crate::files::text_scan::TextScan;

/// CSV files that are read record by record, and written by DataFusion.
#[derive(Debug)]
pub(crate) struct CsvFiles {
    format: CsvFormat,
    extras: Arc<Extras>,
    /// What was found out together with the columns.
    formats: Arc<FoundFormats>,
}

/// Makes [`CsvFiles`] for `STORED AS CSV`.
#[derive(Debug)]
pub(crate) struct CsvFilesFactory(CsvFormatFactory);

impl CsvFiles {
    pub(crate) fn new(options: CsvOptions, extras: Extras) -> Self {
        let format = CsvFormat::default().with_options(options);
        CsvFiles { format, extras: Arc::new(extras), formats: Arc::default() }
    }

    /// The formats of dates and times that were found together with the columns, by the names of these.
    pub(crate) fn found_formats(&self) -> HashMap<String, String> {
        self.formats.lock().clone()
    }

    /// The text format for use without a session.
    fn text(&self) -> CsvText {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        CsvText {
            options: self.format.options().clone(),
            extras: Arc::clone(&self.extras),
            formats: Arc::clone(&self.formats),
            has_header: self.format.options().has_header.unwrap_or(true),
            size: self.chunk_size(&pool),
            pool,
            threads: 1,
        }
    }

    /// How much of a file is read at once under a memory limit.
    fn chunk_size(&self, pool: &Arc<dyn MemoryPool>) -> ChunkSize {
        /// Of the limit: several chunks are in flight, and each takes several times its size while it is parsed.
        const SHARE: usize = 256;
        const RECORD_SHARE: usize = 8;
        let limit_bytes = match pool.memory_limit() {
            MemoryLimit::Finite(bytes) => bytes,
            _ => usize::MAX,
        };
        ChunkSize {
            usual_bytes: (limit_bytes / SHARE).clamp(64 << 10, 1 << 20),
            most_bytes: self
                .extras
                .most_record_bytes
                .unwrap_or(usize::MAX)
                .min((limit_bytes / RECORD_SHARE).clamp(16 << 20, 1 << 30)),
            skipped_lines: self.extras.skipped_lines,
            encoding: self.extras.encoding,
        }
    }

    fn has_header(&self, state: &dyn Session) -> bool {
        self.format.options().has_header.unwrap_or_else(|| state.config_options().catalog.has_header)
    }
}

#[async_trait]
impl FileFormat for CsvFiles {
    fn get_ext(&self) -> String {
        self.format.get_ext()
    }

    fn get_ext_with_compression(&self, compression: &FileCompressionType) -> Result<String> {
        self.format.get_ext_with_compression(compression)
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        self.format.compression_type()
    }

    async fn infer_schema(
        &self,
        state: &dyn Session,
        _store: &Arc<dyn ObjectStore>,
        objects: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        let disk = LocalFileSystem::new();
        let paths = objects.iter().map(|object| disk.path_to_filesystem(&object.location));
        let files = paths.collect::<Result<Vec<_>, _>>()?;
        let (options, has_header) = (self.format.options().clone(), self.has_header(state));
        let size = self.chunk_size(&state.runtime_env().memory_pool);
        let extras = Arc::clone(&self.extras);
        let reading = SpawnedTask::spawn_blocking(move || {
            Inferred { options: &options, extras: &extras, has_header, size }.schema_of(&files)
        });
        let inferred = reading.join().await.map_err(|error| DataFusionError::External(Box::new(error)))??;
        let (schema, formats) = inferred;
        *self.formats.lock() = formats;
        Ok(Arc::new(schema))
    }

    async fn infer_stats(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Statistics> {
        self.format.infer_stats(state, store, table_schema, object).await
    }

    async fn create_physical_plan(
        &self,
        state: &dyn Session,
        config: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let scan = config.file_source().downcast_ref::<TextScan>();
        let scan = scan.ok_or_else(|| internal_datafusion_err!("a CSV table has another source"))?;
        let text = CsvText {
            has_header: self.has_header(state),
            pool: Arc::clone(&state.runtime_env().memory_pool),
            size: self.chunk_size(&state.runtime_env().memory_pool),
            // Each lane reads a file of its own.
            threads: state.config().target_partitions() / config.file_groups.len().max(1),
            ..self.text()
        };
        let scan = scan.with_format(Arc::new(text));
        let config = FileScanConfigBuilder::from(config)
            .with_file_compression_type(self.format.options().compression.into())
            .with_source(Arc::new(scan))
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }

    async fn create_writer_physical_plan(
        &self,
        input: Arc<dyn ExecutionPlan>,
        state: &dyn Session,
        config: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.format.create_writer_physical_plan(input, state, config, order).await
    }

    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        Arc::new(TextScan::new(table_schema, Arc::new(self.text())))
    }
}

impl CsvFilesFactory {
    pub(crate) fn new() -> Self {
        CsvFilesFactory(CsvFormatFactory::new())
    }
}

impl GetExt for CsvFilesFactory {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }
}

impl FileFormatFactory for CsvFilesFactory {
    fn create(&self, state: &dyn Session, options: &HashMap<String, String>) -> Result<Arc<dyn FileFormat>> {
        let format = self.0.create(state, options)?;
        let csv = format.downcast_ref::<CsvFormat>();
        let csv = csv.ok_or_else(|| internal_datafusion_err!("CSV options make another format"))?;
        Ok(Arc::new(CsvFiles::new(csv.options().clone(), Extras::default())))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        Arc::new(CsvFiles::new(CsvOptions::default(), Extras::default()))
    }
}
