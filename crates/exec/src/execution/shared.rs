//! What all output partitions of an operator share while it runs.

use datafusion::common::Result;
use parking_lot::Mutex;

/// An execution that the first output partition to ask starts. The last one to ask takes it out of the plan node: when
/// its streams are gone nothing of it is left, however long the plan lives, and the plan can be executed again.
#[derive(Debug)]
pub struct SharedExecution<T>(Mutex<Option<Starting<T>>>);

/// An execution that not all outputs have asked for yet.
#[derive(Debug)]
struct Starting<T> {
    execution: T,
    outputs_to_come: usize,
}

impl<T> Default for SharedExecution<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone> SharedExecution<T> {
    /// The execution, for one of `outputs` outputs.
    pub fn get(&self, outputs: usize, start: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut slot = self.0.lock();
        let mut starting = match slot.take() {
            Some(starting) => starting,
            None => Starting { execution: start()?, outputs_to_come: outputs },
        };
        starting.outputs_to_come = starting.outputs_to_come.saturating_sub(1);
        let execution = starting.execution.clone();
        *slot = Some(starting).filter(|starting| starting.outputs_to_come > 0);
        Ok(execution)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn one_execution_serves_all_outputs_and_is_then_forgotten() {
        let shared = SharedExecution::default();
        let mut executions = Vec::new();
        for run in 0..2 {
            for output in 0..3 {
                let execution = shared.get(3, || Ok(Arc::new(run))).unwrap();
                assert_eq!((*execution, output), (run, output));
                executions.push(execution);
            }
            assert_eq!(Arc::strong_count(&executions[0]), 3, "the node keeps none");
            executions.clear();
        }
    }
}
