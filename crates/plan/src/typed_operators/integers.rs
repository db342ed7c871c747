//! Sums, differences, products and negations of integers that do not fit into their type are errors.
//!
//! DataFusion's operators wrap around. They could refuse (`BinaryExpr::with_fail_on_overflow`), but nothing makes its planner
//! ask for that. So the operators of integers become functions, which show themselves as the operators that they are.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::compute::kernels::numeric;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;
use datafusion::common::{Result, ScalarValue, exec_err, internal_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

/// A sum, difference or product of integers of one type.
pub(super) fn operation(operation: &BinaryExpr, [left, right]: &[DataType; 2]) -> Option<Expr> {
    let are_integers = left.is_integer() && left == right;
    let function = of_operator(operation.op).filter(|_| are_integers)?;
    let operands = vec![operation.left.as_ref().clone(), operation.right.as_ref().clone()];
    Some(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), operands)))
}

/// The negation of an integer.
pub(super) fn negation(negated: &Expr, data_type: &DataType) -> Option<Expr> {
    let function = || ScalarFunction::new_udf(Arc::clone(&NEGATION), vec![negated.clone()]);
    data_type.is_signed_integer().then(|| Expr::ScalarFunction(function()))
}

/// An operand of an operator that is a function already, which has its type: types are asked for at every link of a chain.
pub(super) fn operand(expression: &Expr) -> Option<&Expr> {
    let Expr::ScalarFunction(function) = expression else { return None };
    let checked = [&SUM, &DIFFERENCE, &PRODUCT, &NEGATION];
    let is_checked = checked.iter().any(|checked| Arc::ptr_eq(checked, &function.func));
    function.args.last().filter(|_| is_checked)
}

static SUM: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Operation::Add));
static DIFFERENCE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Operation::Subtract));
static PRODUCT: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Operation::Multiply));
static NEGATION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Operation::Negate));

fn function(operation: Operation) -> Arc<ScalarUDF> {
    let arguments = if operation == Operation::Negate { 1 } else { 2 };
    Arc::new(ScalarUDF::from(Checked {
        operation,
        signature: Signature::any(arguments, Volatility::Immutable),
    }))
}

fn of_operator(operator: Operator) -> Option<&'static LazyLock<Arc<ScalarUDF>>> {
    match operator {
        Operator::Plus => Some(&SUM),
        Operator::Minus => Some(&DIFFERENCE),
        Operator::Multiply => Some(&PRODUCT),
        _ => None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Negate,
}

/// An operator of integers of one type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    operation: Operation,
    signature: Signature,
}

impl Checked {
    /// The expression that this stands for, of operands that are shown already: names are asked for again and again, and
    /// making the expression would copy all below.
    fn shown(&self, arguments: &[Expr], operand: impl Fn(&Expr, Operator) -> String) -> String {
        let operator = match self.operation {
            Operation::Add => Operator::Plus,
            Operation::Subtract | Operation::Negate => Operator::Minus,
            Operation::Multiply => Operator::Multiply,
        };
        match arguments {
            [negated] => format!("(- {})", operand(negated, operator)),
            [left, right] => format!("{} {operator} {}", operand(left, operator), operand(right, operator)),
            _ => self.name().to_owned(),
        }
    }
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        match self.operation {
            Operation::Add => "checked_add",
            Operation::Subtract => "checked_subtract",
            Operation::Multiply => "checked_multiply",
            Operation::Negate => "checked_negate",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments.first() {
            Some(data_type) => Ok(data_type.clone()),
            None => internal_err!("{} of nothing", self.name()),
        }
    }

    fn display_name(&self, arguments: &[Expr]) -> Result<String> {
        let is_pair = arguments.len() == 2;
        Ok(self.shown(arguments, |operand, operator| match operand {
            Expr::BinaryExpr(child) if is_pair && child.op.precedence() < operator.precedence() => {
                format!("({operand})")
            }
            _ => operand.to_string(),
        }))
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        Ok(self.shown(arguments, |operand, _| operand.schema_name().to_string()))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let are_scalars = arguments.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let operands = arguments.args.iter().map(|argument| match argument {
            ColumnarValue::Array(array) => Ok(Operand::Array(array)),
            ColumnarValue::Scalar(value) => Ok(Operand::Scalar(value.to_scalar()?)),
        });
        let operands = operands.collect::<Result<Vec<_>>>()?;
        let computed = match (self.operation, operands.as_slice()) {
            (Operation::Add, [left, right]) => numeric::add(left.datum(), right.datum()),
            (Operation::Subtract, [left, right]) => numeric::sub(left.datum(), right.datum()),
            (Operation::Multiply, [left, right]) => numeric::mul(left.datum(), right.datum()),
            (Operation::Negate, [Operand::Array(array)]) => numeric::neg(array.as_ref()),
            (Operation::Negate, [Operand::Scalar(value)]) => {
                numeric::neg(datafusion::arrow::array::Datum::get(value).0)
            }
            (_, operands) => return internal_err!("{} of {} operands", self.name(), operands.len()),
        };
        let computed = match computed {
            Ok(computed) => computed,
            Err(ArrowError::ArithmeticOverflow(what)) => {
                return exec_err!(
                    "a number does not fit into {}: {what}; cast to a larger type, as DECIMAL(38, 0)",
                    arguments.return_field.data_type()
                );
            }
            Err(error) => return Err(error.into()),
        };
        Ok(match are_scalars {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&computed, 0)?),
            false => ColumnarValue::Array(computed),
        })
    }
}

/// An operand as the kernels take it.
enum Operand<'a> {
    Array(&'a datafusion::arrow::array::ArrayRef),
    Scalar(datafusion::arrow::array::Scalar<datafusion::arrow::array::ArrayRef>),
}

impl Operand<'_> {
    fn datum(&self) -> &dyn datafusion::arrow::array::Datum {
        match self {
            Operand::Array(array) => *array,
            Operand::Scalar(scalar) => scalar,
        }
    }
}
