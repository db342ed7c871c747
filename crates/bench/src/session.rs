//! A DataFusion session that runs Nandina's operators, for experiments that choose what a user cannot.

use std::path::Path;
use std::sync::Arc;

use datafusion::common::DataFusionError;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use nandina_device::{Device, DeviceOptions};
use nandina_exec::memory::MemoryGovernor;
use nandina_exec::spill::SessionTempSpace;
use nandina_spill::{TempOptions, TempSpace};

use crate::error::{BenchError, Result};

/// A session whose memory `governor` grants, which spills to `work`.
pub fn session(work: &Path, config: SessionConfig, governor: MemoryGovernor) -> Result<SessionContext> {
    std::fs::create_dir_all(work).map_err(BenchError::file(work))?;
    let device = Device::open(work, DeviceOptions::default())?;
    let space = TempSpace::open(device, TempOptions::default())?;
    let pool: Arc<dyn MemoryPool> = Arc::new(governor);
    let runs_on = SessionStateBuilder::new()
        .with_config(config.with_extension(Arc::new(SessionTempSpace(space))))
        .with_runtime_env(RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().map_err(failed)?);
    let state = nandina_plan::session_state(runs_on).map_err(failed)?;
    Ok(SessionContext::new_with_state(state))
}

/// Makes the Parquet files of a folder tables by their names.
pub async fn register_files(context: &SessionContext, folder: &Path, tables: &[&str]) -> Result<()> {
    for name in tables {
        let path = folder.join(format!("{name}.parquet"));
        let options = ParquetReadOptions::default();
        context.register_parquet(*name, path.to_string_lossy(), options).await.map_err(failed)?;
    }
    Ok(())
}

/// The sum of a counter over all operators of a plan.
pub fn sum(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
    let own =
        plan.metrics().and_then(|metrics| metrics.sum_by_name(name)).map_or(0, |value| value.as_usize());
    own + plan.children().into_iter().map(|child| sum(child, name)).sum::<usize>()
}

/// A statement of an experiment failed.
pub fn failed(error: DataFusionError) -> BenchError {
    BenchError::Setup(error.to_string())
}
