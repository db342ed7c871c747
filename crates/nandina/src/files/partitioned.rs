//! File formats that write `PARTITIONED BY` one value after the other (`nandina_exec::partitioned_write`), and one file
//! within the memory limit ([`sinks`]).
//!
//! A format is where the partition columns of a write are known, whichever statement it is for: `COPY … TO`, or
//! `INSERT INTO` a table made by `CREATE EXTERNAL TABLE`. Everything else is the wrapped format's.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{GetExt, Result, Statistics};
use datafusion::datasource::file_format::csv::CsvFormatFactory;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::json::JsonFormatFactory;
use datafusion::datasource::file_format::parquet::ParquetFormatFactory;
use datafusion::datasource::file_format::{FileFormat, FileFormatFactory, FileMeta};
use datafusion::datasource::physical_plan::{FileScanConfig, FileSinkConfig, FileSource};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::execution::SessionStateDefaults;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use datafusion::physical_expr::{LexOrdering, LexRequirement};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_datasource::TableSchema;
use nandina_exec::partitioned_write;

use crate::files::csv::CsvFilesFactory;
use crate::files::json::JsonFilesFactory;
use crate::files::output::{OUTPUT, Output};
use crate::files::parquet::AccountedParquetFactory;
use crate::files::schema::{self, OtherTypes};
use crate::files::sinks;

/// The formats that DataFusion knows, with our readers.
pub(crate) fn formats() -> Vec<Arc<dyn FileFormatFactory>> {
    let ours = |format: Arc<dyn FileFormatFactory>| {
        if format.is::<CsvFormatFactory>() {
            Arc::new(CsvFilesFactory::new())
        } else if format.is::<JsonFormatFactory>() {
            Arc::new(JsonFilesFactory::new())
        } else if format.is::<ParquetFormatFactory>() {
            Arc::new(AccountedParquetFactory::new())
        } else {
            format
        }
    };
    let wrapped = |format| Arc::new(ByValueFactory(ours(format))) as Arc<dyn FileFormatFactory>;
    SessionStateDefaults::default_file_formats().into_iter().map(wrapped).collect()
}

#[derive(Debug)]
struct ByValueFactory(Arc<dyn FileFormatFactory>);

impl GetExt for ByValueFactory {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }
}

impl FileFormatFactory for ByValueFactory {
    fn create(&self, state: &dyn Session, options: &HashMap<String, String>) -> Result<Arc<dyn FileFormat>> {
        let mut options = options.clone();
        let output = Output::of(options.remove(OUTPUT).as_ref())?;
        Ok(Arc::new(ByValue { format: self.0.create(state, &options)?, output }))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        Arc::new(ByValue { format: self.0.default(), output: Output::default() })
    }
}

#[derive(Debug)]
struct ByValue {
    format: Arc<dyn FileFormat>,
    output: Output,
}

#[async_trait]
impl FileFormat for ByValue {
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
        store: &Arc<dyn ObjectStore>,
        objects: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        Ok(schema::of_files(state, self.format.as_ref(), store, objects, OtherTypes::Refused).await?)
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

    async fn infer_ordering(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Option<LexOrdering>> {
        self.format.infer_ordering(state, store, table_schema, object).await
    }

    async fn infer_stats_and_ordering(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<FileMeta> {
        self.format.infer_stats_and_ordering(state, store, table_schema, object).await
    }

    async fn create_physical_plan(
        &self,
        state: &dyn Session,
        config: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if self.format.get_ext() == "arrow" {
            // It may be another file than when the table was declared.
            let mut files: Vec<ObjectMeta> = config
                .file_groups
                .iter()
                .flat_map(|group| group.files())
                .map(|file| file.object_meta.clone())
                .collect();
            files.sort_by(|a, b| a.location.cmp(&b.location));
            files.dedup_by(|a, b| a.location == b.location);
            schema::check(self.format.as_ref(), &files)?;
        }
        self.format.create_physical_plan(state, config).await
    }

    async fn create_writer_physical_plan(
        &self,
        input: Arc<dyn ExecutionPlan>,
        state: &dyn Session,
        config: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns: Vec<String> = config.table_partition_cols.iter().map(|(name, _)| name.clone()).collect();
        let plan = self.format.create_writer_physical_plan(input, state, config, order).await?;
        let Some(planned) = plan.downcast_ref::<DataSinkExec>() else { return Ok(plan) };
        let ours = if self.output.is_folder {
            sinks::for_folder(planned, &columns, &self.output)?
        } else {
            match partitioned_write::by_value(planned, &columns, None)? {
                Some(by_value) => Some(by_value),
                None => sinks::for_one_file(planned, &self.output)?,
            }
        };
        Ok(ours.map_or(plan, |ours| Arc::new(ours)))
    }

    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        self.format.file_source(table_schema)
    }
}
