//! A function of the planner's own: what DataFusion computes, with a check before or after it.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// Computes an array from the arguments, which are as long as it has to be.
pub(crate) type Compute = fn(&[ArrayRef]) -> Result<ArrayRef>;

/// A call of a function that gives values of its first argument's type.
pub(crate) fn call(name: &'static str, compute: Compute, arguments: Vec<Expr>) -> Expr {
    call_of(Volatility::Immutable, name, compute, arguments)
}

/// The same of one argument, under whose name it goes: it says what it does.
pub(crate) fn call_shown_as_argument(name: &'static str, compute: Compute, argument: Expr) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    let function = Function { name, data_type: None, is_shown: false, compute, signature };
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::from(function)), vec![argument]))
}

/// The same where it matters whether it is computed ahead.
pub(super) fn call_of(
    volatility: Volatility,
    name: &'static str,
    compute: Compute,
    arguments: Vec<Expr>,
) -> Expr {
    called(volatility, name, None, compute, arguments)
}

/// A call of a function that gives values of another type.
pub(crate) fn call_giving(
    data_type: DataType,
    name: &'static str,
    compute: Compute,
    arguments: Vec<Expr>,
) -> Expr {
    called(Volatility::Immutable, name, Some(data_type), compute, arguments)
}

fn called(
    volatility: Volatility,
    name: &'static str,
    data_type: Option<DataType>,
    compute: Compute,
    arguments: Vec<Expr>,
) -> Expr {
    let signature = Signature::any(arguments.len(), volatility);
    let function =
        Arc::new(ScalarUDF::from(Function { name, data_type, is_shown: true, compute, signature }));
    Expr::ScalarFunction(ScalarFunction::new_udf(function, arguments))
}

#[derive(Debug)]
struct Function {
    name: &'static str,
    /// That of the values, if it is not the first argument's.
    data_type: Option<DataType>,
    /// Whether columns are named after it, rather than after its argument.
    is_shown: bool,
    compute: Compute,
    signature: Signature,
}

// A name stands for one computation.
impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.data_type == other.data_type
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.name, &self.data_type).hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match self.data_type.as_ref().or(arguments.first()) {
            Some(data_type) => Ok(data_type.clone()),
            None => internal_err!("{} of nothing", self.name),
        }
    }

    fn display_name(&self, arguments: &[Expr]) -> Result<String> {
        let shown: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        Ok(if self.is_shown { format!("{}({})", self.name, shown.join(", ")) } else { shown.join(", ") })
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        let shown: Vec<String> =
            arguments.iter().map(|argument| argument.schema_name().to_string()).collect();
        Ok(if self.is_shown { format!("{}({})", self.name, shown.join(",")) } else { shown.join(",") })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let are_scalars = arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if are_scalars { 1 } else { arguments.number_rows };
        let arrays = arguments.args.iter().map(|argument| argument.to_array(rows));
        let computed = (self.compute)(&arrays.collect::<Result<Vec<_>>>()?)?;
        Ok(match are_scalars {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&computed, 0)?),
            false => ColumnarValue::Array(computed),
        })
    }
}
