//! `* REPLACE (value AS column)`, where DataFusion passes over a column that is not there.

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// The name of [`replaced_column`], which users do not write.
pub const REPLACED_COLUMN: &str = "__replaced_column";

/// `__replaced_column(column, value)` is the value. The column only has to exist.
pub fn replaced_column() -> ScalarUDF {
    ScalarUDF::from(ReplacedColumn { signature: Signature::any(2, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ReplacedColumn {
    signature: Signature,
}

impl ScalarUDFImpl for ReplacedColumn {
    fn name(&self) -> &str {
        REPLACED_COLUMN
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("a value in place of a column has its field")
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        match arguments.arg_fields {
            [_, value] => Ok(FieldRef::clone(value)),
            _ => internal_err!("a value in place of {} columns", arguments.arg_fields.len()),
        }
    }

    fn simplify(&self, mut arguments: Vec<Expr>, _: &SimplifyContext) -> Result<ExprSimplifyResult> {
        match arguments.pop() {
            Some(value) => Ok(ExprSimplifyResult::Simplified(value)),
            None => internal_err!("a column without a value in its place"),
        }
    }

    fn invoke_with_args(&self, mut arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.pop() {
            Some(value) => Ok(value),
            None => internal_err!("a column without a value in its place"),
        }
    }
}
