//! `TRY(x)`: the value of an expression, null in rows where it fails.
//!
//! The expression is the body of a lambda, as other functions have all of their arguments computed before they are called.
//! It is computed for all rows at once, and row by row only if that fails.

use std::sync::Arc;

use arrow::array::{ArrayRef, NullArray, new_null_array};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DataFusionError, Result, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, HigherOrderFunctionArgs, HigherOrderReturnFieldArgs, HigherOrderSignature, HigherOrderUDF,
    HigherOrderUDFImpl, LambdaArgument, LambdaParametersProgress, ValueOrLambda, Volatility,
};

/// The name of the function, which is called with a lambda of one parameter that it does not use.
pub const TRY_FUNCTION: &str = "try_value";

pub(crate) fn function() -> Arc<HigherOrderUDF> {
    let signature = HigherOrderSignature::variadic_any(Volatility::Immutable);
    Arc::new(HigherOrderUDF::new_from_impl(Try { signature }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Try {
    signature: HigherOrderSignature,
}

fn tried<V, L>(arguments: &[ValueOrLambda<V, L>]) -> Result<&L> {
    match arguments {
        [ValueOrLambda::Lambda(tried)] => Ok(tried),
        _ => plan_err!("TRY tries one expression"),
    }
}

impl HigherOrderUDFImpl for Try {
    fn name(&self) -> &str {
        TRY_FUNCTION
    }

    fn signature(&self) -> &HigherOrderSignature {
        &self.signature
    }

    fn coerce_value_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        Ok(given.to_vec())
    }

    fn lambda_parameters(
        &self,
        _: usize,
        fields: &[ValueOrLambda<FieldRef, Option<FieldRef>>],
    ) -> Result<LambdaParametersProgress> {
        tried(fields)?;
        let unused = Arc::new(Field::new("", DataType::Null, true));
        Ok(LambdaParametersProgress::Complete(vec![vec![unused]]))
    }

    fn return_field_from_args(&self, given: HigherOrderReturnFieldArgs) -> Result<FieldRef> {
        let data_type = tried(given.arg_fields)?.data_type().clone();
        Ok(Arc::new(Field::new("", data_type, true)))
    }

    fn invoke_with_args(&self, given: HigherOrderFunctionArgs) -> Result<ColumnarValue> {
        let lambda = tried(&given.args)?;
        let rows = given.number_rows;
        if let Ok(values) = computed(lambda, 0, rows) {
            return Ok(ColumnarValue::Array(values));
        }
        let null = new_null_array(given.return_type(), 1);
        let row = |row| match computed(lambda, row, 1) {
            Err(error) if is_of_resources(&error) => Err(error),
            computed => Ok(computed.unwrap_or_else(|_| Arc::clone(&null))),
        };
        let values = (0..rows).map(row).collect::<Result<Vec<_>>>()?;
        let values: Vec<_> = values.iter().map(AsRef::as_ref).collect();
        Ok(ColumnarValue::Array(concat(&values)?))
    }
}

/// The values of some rows.
fn computed(lambda: &LambdaArgument, first: usize, rows: usize) -> Result<ArrayRef> {
    let unused = || Ok(Arc::new(NullArray::new(rows)) as ArrayRef);
    let of_rows =
        |captured: &[ArrayRef]| Ok(captured.iter().map(|column| column.slice(first, rows)).collect());
    lambda.evaluate(&[&unused], of_rows)?.into_array(rows)
}

/// Whether an error says nothing about the values.
fn is_of_resources(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_) | DataFusionError::Internal(_))
}
