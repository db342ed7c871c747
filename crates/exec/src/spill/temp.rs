//! Where operators find temporary space.

use std::sync::{Arc, OnceLock};

use datafusion::common::Result;
use datafusion::execution::TaskContext;
use nandina_device::{Device, DeviceOptions};
use nandina_spill::{QuerySpace, TempOptions, TempSpace};

use crate::error::{device_error, spill_error};
use crate::execution::query_flow;

/// A session's temporary space, as an extension of DataFusion's `SessionConfig`.
#[derive(Debug)]
pub struct SessionTempSpace(pub Arc<TempSpace>);

/// Space for one operator of a query: that of its session, or, where Nandina's operators run in a session
/// that never heard of it, a shared one in the system's folder for temporary files.
pub fn operator_space(context: &TaskContext, operator: &str) -> Result<Arc<QuerySpace>> {
    static SHARED: OnceLock<Arc<TempSpace>> = OnceLock::new();
    let session = context.session_config().get_extension::<SessionTempSpace>();
    let space = match (session, SHARED.get()) {
        (Some(session), _) => Arc::clone(&session.0),
        (None, Some(shared)) => Arc::clone(shared),
        (None, None) => {
            let device =
                Device::open(std::env::temp_dir(), DeviceOptions::default()).map_err(device_error)?;
            let opened = TempSpace::open(device, TempOptions::default()).map_err(spill_error)?;
            Arc::clone(SHARED.get_or_init(|| opened))
        }
    };
    Ok(space.query_in(query_flow(context), operator))
}
