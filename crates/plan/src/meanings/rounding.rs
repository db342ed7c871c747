//! Casts of numbers to integers go to the nearest one, as in Postgres and DuckDB: of two as near, floating-point numbers go
//! to the even one, decimals away from zero. DataFusion's truncate.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{AsArray, Float32Array, Float64Array};
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result, internal_err};
use datafusion::logical_expr::expr::{Cast, ScalarFunction, TryCast};
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
    cast,
};

/// Rounds numbers that are cast to an integer.
#[derive(Debug)]
pub(super) struct RoundingCasts;

impl FunctionRewrite for RoundingCasts {
    fn name(&self) -> &str {
        "rounding_casts"
    }

    fn rewrite(&self, expr: Expr, schema: &DFSchema, _: &ConfigOptions) -> Result<Transformed<Expr>> {
        match expr {
            Expr::Cast(Cast { expr, field }) if field.data_type().is_integer() => {
                let rounded = whole(*expr, schema)?;
                Ok(rounded.update_data(|expr| Expr::Cast(Cast { expr: Box::new(expr), field })))
            }
            Expr::TryCast(TryCast { expr, field }) if field.data_type().is_integer() => {
                let rounded = whole(*expr, schema)?;
                Ok(rounded.update_data(|expr| Expr::TryCast(TryCast { expr: Box::new(expr), field })))
            }
            other => Ok(Transformed::no(other)),
        }
    }
}

/// The nearest whole number, of the same type.
fn whole(number: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match number.get_type(schema).unwrap_or(DataType::Null) {
        DataType::Float32 | DataType::Float64 => {
            let nearest = ScalarFunction::new_udf(Arc::clone(&NEAREST), vec![number]);
            Transformed::yes(Expr::ScalarFunction(nearest))
        }
        // Casts that drop digits of a decimal round.
        DataType::Decimal32(_, scale) if scale > 0 => {
            Transformed::yes(cast(number, DataType::Decimal64(18, 0)))
        }
        DataType::Decimal64(_, scale) if scale > 0 => {
            Transformed::yes(cast(number, DataType::Decimal128(38, 0)))
        }
        DataType::Decimal128(_, scale) if scale > 0 => {
            Transformed::yes(cast(number, DataType::Decimal128(38, 0)))
        }
        DataType::Decimal256(_, scale) if scale > 0 => {
            Transformed::yes(cast(number, DataType::Decimal256(76, 0)))
        }
        _ => Transformed::no(number),
    })
}

static NEAREST: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    Arc::new(ScalarUDF::from(Nearest { signature: Signature::any(1, Volatility::Immutable) }))
});

/// The nearest whole number; the even one of two.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Nearest {
    signature: Signature,
}

impl ScalarUDFImpl for Nearest {
    fn name(&self) -> &str {
        "nearest"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments.first() {
            Some(data_type) => Ok(data_type.clone()),
            None => internal_err!("the nearest number to nothing"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let [numbers] = arrays.as_slice() else { return internal_err!("the nearest number to several") };
        Ok(ColumnarValue::Array(match numbers.data_type() {
            DataType::Float32 => {
                let nearest: Float32Array = numbers.as_primitive::<Float32Type>().unary(f32::round_ties_even);
                Arc::new(nearest)
            }
            DataType::Float64 => {
                let nearest: Float64Array = numbers.as_primitive::<Float64Type>().unary(f64::round_ties_even);
                Arc::new(nearest)
            }
            other => return internal_err!("the nearest number to a {other}"),
        }))
    }
}
