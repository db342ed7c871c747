//! Errors of reading a file name the file.
//!
//! DataFusion's readers report errors in the bytes without naming their file, and panic over some that are damaged.
//! Once a plan is complete, the source of each of its scans is wrapped:
//!
//! ```text
//!   FileScanConfig ─► NamingSource ─► ParquetSource, …
//!                        └── plans and streams of one file ── error or panic ──► file 'a.parquet': …
//! ```
//!
//! Errors of expressions that a scan evaluates are about the query, not the file, and stay as they are.

use std::fmt::{self, Debug, Formatter};
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::error::ArrowError;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, exec_err};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileOpener, FileScanConfig, FileSource};
use datafusion::object_store::ObjectStore;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::parquet::errors::ParquetError;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_plan::DisplayFormatType;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_datasource::TableSchema;
use datafusion_datasource::morsel::{Morsel, MorselPlan, MorselPlanner, Morselizer};
use futures::StreamExt as _;
use futures::stream::BoxStream;

use super::damage::place_of_damage;
use super::guard::{Guarded, guarded};

/// Does what the source inside does.
pub struct NamingSource(Arc<dyn FileSource>);

impl NamingSource {
    /// For a plan that is complete: filters pushed to a scan later do not reach the source.
    pub fn over(source: Arc<dyn FileSource>) -> Self {
        NamingSource(source)
    }

    /// The source inside.
    pub fn inner(&self) -> &Arc<dyn FileSource> {
        &self.0
    }
}

impl FileSource for NamingSource {
    fn create_file_opener(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        self.0.create_file_opener(store, config, partition)
    }

    fn create_morselizer(
        &self,
        store: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        partition: usize,
    ) -> Result<Box<dyn Morselizer>> {
        let morselizer = self.0.create_morselizer(store, config, partition)?;
        Ok(Box::new(NamingMorselizer { morselizer, file_type: self.0.file_type().to_owned() }))
    }

    fn table_schema(&self) -> &TableSchema {
        self.0.table_schema()
    }

    fn with_batch_size(&self, batch_size: usize) -> Arc<dyn FileSource> {
        Arc::new(NamingSource(self.0.with_batch_size(batch_size)))
    }

    fn filter(&self) -> Option<Arc<dyn PhysicalExpr>> {
        self.0.filter()
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        self.0.projection()
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        self.0.metrics()
    }

    fn file_type(&self) -> &str {
        self.0.file_type()
    }

    fn fmt_extra(&self, display: DisplayFormatType, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt_extra(display, formatter)
    }

    fn supports_repartitioning(&self) -> bool {
        self.0.supports_repartitioning()
    }

    fn reorder_files(&self, files: Vec<PartitionedFile>) -> Vec<PartitionedFile> {
        self.0.reorder_files(files)
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.0.apply_expressions(visit)
    }
}

#[derive(Debug)]
struct NamingMorselizer {
    morselizer: Box<dyn Morselizer>,
    file_type: String,
}

impl Morselizer for NamingMorselizer {
    fn plan_file(&self, file: PartitionedFile) -> Result<Box<dyn MorselPlanner>> {
        let name = FileName::of(&file, &self.file_type);
        let planner = name.guard(|| self.morselizer.plan_file(file))?;
        Ok(Box::new(NamingPlanner { name, planner }))
    }
}

struct NamingPlanner {
    name: FileName,
    planner: Box<dyn MorselPlanner>,
}

impl Debug for NamingPlanner {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        Debug::fmt(&self.planner, formatter)
    }
}

impl MorselPlanner for NamingPlanner {
    fn plan(self: Box<Self>) -> Result<Option<MorselPlan>> {
        let NamingPlanner { name, planner } = *self;
        let Some(mut plan) = name.guard(|| planner.plan())? else { return Ok(None) };
        let morsels = plan.take_morsels().into_iter();
        let planners = plan.take_ready_planners().into_iter();
        let mut named = MorselPlan::new()
            .with_morsels(
                morsels.map(|morsel| Box::new(NamingMorsel { name: name.clone(), morsel }) as _).collect(),
            )
            .with_planners(planners.map(|planner| name.planner(planner)).collect());
        if let Some(pending) = plan.take_pending_planner() {
            named.set_pending_planner(async move {
                let planned = Guarded::new(pending).await;
                Ok(name.planner(name.checked(planned)?))
            });
        }
        Ok(Some(named))
    }
}

struct NamingMorsel {
    name: FileName,
    morsel: Box<dyn Morsel>,
}

impl Debug for NamingMorsel {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        Debug::fmt(&self.morsel, formatter)
    }
}

impl Morsel for NamingMorsel {
    fn into_stream(self: Box<Self>) -> BoxStream<'static, Result<RecordBatch>> {
        let NamingMorsel { name, morsel } = *self;
        let rows = match name.guard(|| Ok(morsel.into_stream())) {
            Ok(rows) => rows,
            Err(error) => return futures::stream::once(async { Err(error) }).boxed(),
        };
        Guarded::new(rows).map(move |batch| name.checked(batch)).boxed()
    }
}

/// The path of a file that is being read.
#[derive(Clone)]
struct FileName {
    path: Arc<str>,
    /// Whether it is of Arrow's own format, whose reader only takes bytes for arrays: all that Arrow refuses is about
    /// them.
    is_arrow: bool,
    is_parquet: bool,
}

impl FileName {
    fn of(file: &PartitionedFile, file_type: &str) -> Self {
        let location = &file.object_meta.location;
        let path = LocalFileSystem::new().path_to_filesystem(location);
        let path = path.map_or_else(|_| location.as_ref().into(), |path| path.to_string_lossy().into());
        FileName { path, is_arrow: file_type.starts_with("arrow"), is_parquet: file_type == "parquet" }
    }

    fn is_about_bytes(&self, error: &DataFusionError) -> bool {
        is_about_bytes(error) || self.is_arrow && matches!(error, DataFusionError::ArrowError(..))
    }

    fn planner(&self, planner: Box<dyn MorselPlanner>) -> Box<dyn MorselPlanner> {
        Box::new(NamingPlanner { name: self.clone(), planner })
    }

    fn guard<T>(&self, read: impl FnOnce() -> Result<T>) -> Result<T> {
        self.checked(guarded(read))
    }

    /// The result of a read, with the file's name in errors.
    fn checked<T>(&self, read: std::thread::Result<Result<T>>) -> Result<T> {
        match read {
            Ok(Err(error)) if self.is_about_bytes(error.find_root()) => {
                let reason = error.strip_backtrace();
                exec_err!(
                    "file '{}': {}it cannot be read, and may be damaged ({reason})",
                    self.path,
                    self.place()
                )
            }
            Ok(read) => read,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
                if text.contains("offset overflow") {
                    // More text than a batch holds, which is no fault of the file.
                    resume_unwind(panic);
                }
                let place = self.place();
                exec_err!(
                    "file '{}': {place}it is damaged, or of a kind that cannot be read ({text})",
                    self.path
                )
            }
        }
    }

    /// Which part of the file is damaged, if that can be determined.
    fn place(&self) -> String {
        if !self.is_parquet {
            return String::new();
        }
        let place = place_of_damage(Path::new(&*self.path));
        place.map_or_else(String::new, |place| format!("; the first damage is in {place}"))
    }
}

/// Whether an error says that bytes are not what they should be.
fn is_about_bytes(error: &DataFusionError) -> bool {
    match error {
        DataFusionError::ParquetError(error) => match error.as_ref() {
            ParquetError::ArrowError(_) => false,
            // Of a filter that looks at the rows of a file, of a codec, or one that names the file already.
            ParquetError::External(error) => match error.downcast_ref::<ArrowError>() {
                Some(error) => matches!(error, ArrowError::ParquetError(_)),
                None => !error.is::<DataFusionError>(),
            },
            _ => true,
        },
        DataFusionError::ArrowError(error, _) => matches!(
            error.as_ref(),
            ArrowError::ParquetError(_)
                | ArrowError::IpcError(_)
                | ArrowError::JsonError(_)
                | ArrowError::IoError(..)
        ),
        DataFusionError::IoError(_) => true,
        _ => false,
    }
}
