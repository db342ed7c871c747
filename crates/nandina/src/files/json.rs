//! JSON files that hold one array, read to its end.
//!
//! DataFusion's reader of such a file stops where the text does, or where the first array ends: that a file is
//! truncated, or has text after the array, goes unnoticed. Lines of JSON are left to it.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::json::ReaderBuilder;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{GetExt, Result, Statistics, internal_datafusion_err};
use datafusion::config::JsonOptions;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::json::{JsonFormat, JsonFormatFactory};
use datafusion::datasource::file_format::{FileFormat, FileFormatFactory};
use datafusion::datasource::physical_plan::{
    FileScanConfig, FileScanConfigBuilder, FileSinkConfig, FileSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use datafusion::physical_expr::LexRequirement;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_datasource::TableSchema;
use datafusion_datasource_json::utils::JsonArrayToNdjsonReader;
use futures::stream::{BoxStream, StreamExt as _};
use tokio::sync::mpsc::Sender;

use crate::error::{self, Error};
use crate::files::text_scan::{TextFile, TextFormat, TextScan, from_thread};

/// Files of JSON: of lines, or of an array each.
#[derive(Debug)]
pub(crate) struct JsonFiles(pub JsonFormat);

/// Makes [`JsonFiles`] for `STORED AS JSON`.
#[derive(Debug)]
pub(crate) struct JsonFilesFactory(JsonFormatFactory);

/// Bytes of an array that are read at once.
const BUFFER_BYTES: usize = 256 << 10;

/// An array of objects.
#[derive(Debug, Clone, Copy)]
struct JsonArray;

impl TextFormat for JsonArray {
    fn name(&self) -> &'static str {
        "json"
    }

    fn describe(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(", array")
    }

    fn read(&self, file: TextFile) -> BoxStream<'static, Result<RecordBatch>> {
        from_thread(move |sender| Ok(send_rows(&file, sender)?)).boxed()
    }
}

/// Sends the rows of a file until the receiver wants no more.
fn send_rows(file: &TextFile, sender: &Sender<Result<RecordBatch>>) -> error::Result<()> {
    let path = file.path.display().to_string();
    let failed = |reason: String| Error::file(&path, reason);
    let input = File::open(&file.path).map_err(|error| failed(error.to_string()))?;
    let file_bytes = input.metadata().map_err(|error| failed(error.to_string()))?.len();
    file.bytes_scanned.add(file_bytes as usize);
    let mut lines =
        JsonArrayToNdjsonReader::with_capacity(file.compression.convert_read(input)?, BUFFER_BYTES);
    let wanted = file.columns.project(&file.wanted)?;
    let builder = ReaderBuilder::new(Arc::new(wanted)).with_batch_size(file.batch_rows);
    let mut timer = file.time.timer();
    for rows in builder.build(&mut lines).map_err(|error| failed(error.to_string()))? {
        let rows = rows.map_err(|error| failed(error.to_string()))?;
        timer.stop();
        if sender.blocking_send(Ok(rows)).is_err() {
            return Ok(());
        }
        timer.restart();
    }
    lines.validate_complete().map_err(|error| failed(format!("{error}; the file may be incomplete")))
}

#[async_trait]
impl FileFormat for JsonFiles {
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

    async fn create_physical_plan(
        &self,
        state: &dyn Session,
        config: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if self.0.is_newline_delimited() {
            return self.0.create_physical_plan(state, config).await;
        }
        let compression = self.0.compression_type().unwrap_or(FileCompressionType::UNCOMPRESSED);
        let config = FileScanConfigBuilder::from(config).with_file_compression_type(compression).build();
        Ok(DataSourceExec::from_data_source(config))
    }

    async fn create_writer_physical_plan(
        &self,
        input: Arc<dyn ExecutionPlan>,
        state: &dyn Session,
        config: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.0.create_writer_physical_plan(input, state, config, order).await
    }

    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        if self.0.is_newline_delimited() {
            return self.0.file_source(table_schema);
        }
        Arc::new(TextScan::new(table_schema, Arc::new(JsonArray)))
    }
}

impl JsonFilesFactory {
    pub(crate) fn new() -> Self {
        JsonFilesFactory(JsonFormatFactory::new())
    }
}

impl GetExt for JsonFilesFactory {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }
}

impl FileFormatFactory for JsonFilesFactory {
    fn create(&self, state: &dyn Session, options: &HashMap<String, String>) -> Result<Arc<dyn FileFormat>> {
        let format = self.0.create(state, options)?;
        let json = format.downcast_ref::<JsonFormat>();
        let json = json.ok_or_else(|| internal_datafusion_err!("JSON options make another format"))?;
        Ok(Arc::new(JsonFiles(JsonFormat::default().with_options(json.options().clone()))))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        Arc::new(JsonFiles(JsonFormat::default().with_options(JsonOptions::default())))
    }
}
