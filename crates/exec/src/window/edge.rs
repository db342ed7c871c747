//! `first_value` and `last_value` of a whole partition, from two of its rows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt64Array};
use arrow::compute::{concat, take};
use datafusion::common::{Result, ScalarValue};
use datafusion::physical_expr::window::{StandardWindowExpr, WindowExpr};

use super::expression::Edge;
use crate::batch::with_own_buffers;

/// The rows kept so far: the first one and the first whose value is not null, or the last ones. One of them has the
/// value, whether the function ignores nulls or not.
#[derive(Debug)]
pub struct EdgeRows {
    edge: Edge,
    arguments: Vec<ArrayRef>,
}

impl EdgeRows {
    pub fn new(edge: Edge) -> Self {
        Self { edge, arguments: Vec::new() }
    }

    /// Takes further rows into account.
    pub fn add(&mut self, function: &dyn WindowExpr, rows: &RecordBatch) -> Result<()> {
        let came = function.evaluate_args(rows)?;
        let joined: Vec<ArrayRef> = if self.arguments.is_empty() {
            came
        } else {
            let pairs = self.arguments.iter().zip(&came);
            pairs.map(|(kept, came)| Ok(concat(&[kept.as_ref(), came.as_ref()])?)).collect::<Result<_>>()?
        };
        let Some(values) = joined.first() else { return Ok(()) };
        let rows = values.len();
        let (ends, valid) = match self.edge {
            Edge::First => (0, (0..rows).find(|row| values.is_valid(*row))),
            Edge::Last => (rows.saturating_sub(1), (0..rows).rev().find(|row| values.is_valid(*row))),
        };
        let mut kept: Vec<u64> = valid.into_iter().chain([ends]).map(|row| row as u64).collect();
        kept.sort_unstable();
        kept.dedup();
        let kept = UInt64Array::from(kept);
        self.arguments = joined
            .iter()
            .map(|column| with_own_buffers(&take(column, &kept, None)?))
            .collect::<Result<_>>()?;
        Ok(())
    }

    /// The value for all rows; `None` if there were none.
    pub fn value(&self, function: &Arc<dyn WindowExpr>) -> Result<Option<ScalarValue>> {
        let rows = self.arguments.first().map_or(0, |values| values.len());
        let Some(standard) = function.as_any().downcast_ref::<StandardWindowExpr>() else { return Ok(None) };
        if rows == 0 {
            return Ok(None);
        }
        let mut evaluator = standard.get_standard_func_expr().create_evaluator()?;
        evaluator.evaluate(&self.arguments, &(0..rows)).map(Some)
    }

    /// Bytes of the rows that are kept.
    pub fn bytes(&self) -> usize {
        self.arguments.iter().map(|column| column.get_array_memory_size()).sum()
    }
}
