//! A spool in a logical plan.

use std::fmt;

use datafusion::common::{DFSchemaRef, DataFusionError, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};

/// A part of the plan that stands in it elsewhere, too, with the same number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Hash)]
pub struct Spool {
    pub number: usize,
    pub input: LogicalPlan,
}

impl UserDefinedLogicalNodeCore for Spool {
    fn name(&self) -> &str {
        "Spool"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Spool: {}", self.number)
    }

    fn with_exprs_and_inputs(&self, _exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        match <[_; 1]>::try_from(inputs) {
            Ok([input]) => Ok(Self { number: self.number, input }),
            Err(_) => Err(DataFusionError::Internal("a spool has one input".to_owned())),
        }
    }
}
