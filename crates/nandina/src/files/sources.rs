//! What files of the user's are read through, and when their devices are measured.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::SessionState;
use datafusion::physical_plan::ExecutionPlan;
use nandina_exec::scan::TableScanExec;

use super::parquet::budget::ReadBudget;
use super::parquet::footers::Footers;
use crate::media::Media;

/// What files are read through, as an extension of the session's configuration.
pub(crate) struct Sources {
    pub media: Arc<Media>,
    pub parquet: Arc<ReadBudget>,
    pub footers: Footers,
    /// Where the devices of the session may be measured.
    pub folders: Vec<PathBuf>,
    /// Whether they are without being asked.
    pub auto_calibrate: AtomicBool,
}

impl Sources {
    pub fn new(media: Arc<Media>, folders: Vec<PathBuf>, auto_calibrate: bool) -> Self {
        let (parquet, footers) = Default::default();
        Self { media, parquet, footers, folders, auto_calibrate: AtomicBool::new(auto_calibrate) }
    }
}

/// Statements that read less than this are over before a measurement would be.
const WORTH_KNOWING_BYTES: u64 = 256 << 20;

/// Before a plan runs that reads much: makes sure that the devices it uses are known.
pub(crate) async fn know_before(state: &SessionState, plan: &Arc<dyn ExecutionPlan>) {
    let Some(sources) = state.config().get_extension::<Sources>() else { return };
    if sources.auto_calibrate.load(Ordering::Relaxed) && scanned_bytes(plan) >= WORTH_KNOWING_BYTES {
        // It takes a while, and nothing else is to be done meanwhile.
        let measured = tokio::task::spawn_blocking(move || {
            for folder in &sources.folders {
                sources.media.know(folder);
            }
        });
        if let Err(error) = measured.await {
            log::warn!("measuring devices failed: {error}");
        }
    }
}

/// Bytes of the files and tables that a plan reads.
fn scanned_bytes(plan: &Arc<dyn ExecutionPlan>) -> u64 {
    let own = if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
        scan.table().file_bytes()
    } else {
        let config = plan
            .downcast_ref::<DataSourceExec>()
            .and_then(|scan| scan.data_source().downcast_ref::<FileScanConfig>());
        let files = config.iter().flat_map(|config| &config.file_groups).flat_map(|group| group.iter());
        files
            .map(|file| match &file.range {
                Some(range) => (range.end - range.start).max(0) as u64,
                None => file.object_meta.size,
            })
            .sum()
    };
    own + plan.children().into_iter().map(scanned_bytes).sum::<u64>()
}
