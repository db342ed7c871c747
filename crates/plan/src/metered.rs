//! Plans that measure their operators.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_plan::ExecutionPlan;
use nandina_exec::execution::meter::MeterExec;

use crate::spools::replace_operators;

/// The same plan with a [`MeterExec`] above every operator.
pub fn metered(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    replace_operators(plan, &mut |node| Ok(Arc::new(MeterExec::new(node))))
}
