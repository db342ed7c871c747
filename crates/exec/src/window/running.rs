//! Functions whose results follow the rows.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::physical_expr::window::WindowExpr;

use super::cumulative::Cumulative;
use super::expression::looks_ahead_for_values;

/// A function whose results follow the rows.
#[derive(Clone, Debug)]
pub enum Running {
    /// DataFusion's, over the rows that a frame may reach.
    Streamed(Arc<dyn WindowExpr>),
    /// Ours, of all rows so far.
    Cumulative(Cumulative),
}

impl Running {
    /// The function, if its results follow the rows.
    pub fn of(expression: &Arc<dyn WindowExpr>) -> Result<Option<Self>> {
        if let Some(function) = Cumulative::of(expression)? {
            return Ok(Some(Self::Cumulative(function)));
        }
        let follows = expression.uses_bounded_memory() && !looks_ahead_for_values(expression.as_ref())?;
        Ok(follows.then(|| Self::Streamed(Arc::clone(expression))))
    }

    /// The type of results.
    pub fn data_type(&self) -> Result<DataType> {
        match self {
            Self::Streamed(expression) => Ok(expression.field()?.data_type().clone()),
            Self::Cumulative(function) => function.data_type(),
        }
    }
}
