//! Sums, differences, products and quotients of decimals that have more digits than their type are errors.
//!
//! Arrow looks whether they fit into the bits of a number, which hold a few values of one digit more: those would be shown
//! without their last digit. It can only happen where the type has all the digits that there are.

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Decimal128Type, Decimal256Type,
};
use datafusion::common::{DFSchema, DataFusionError, Result, exec_datafusion_err, internal_err};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

use super::type_of;
use crate::meanings::call_shown_as_argument;

/// The function that checks the digits of the value of its argument.
pub(crate) const CHECKED: &str = "checked_decimal";

pub(super) fn operation(operation: &BinaryExpr, types: &[DataType; 2], schema: &DFSchema) -> Option<Expr> {
    let adds_digits =
        matches!(operation.op, Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide);
    if !adds_digits || !types.iter().any(DataType::is_decimal) {
        return None;
    }
    let operation = Expr::BinaryExpr(operation.clone());
    let is_full = matches!(
        type_of(&operation, schema),
        DataType::Decimal128(DECIMAL128_MAX_PRECISION, _) | DataType::Decimal256(DECIMAL256_MAX_PRECISION, _)
    );
    is_full.then(|| call_shown_as_argument(CHECKED, checked, operation))
}

fn checked(computed: &[ArrayRef]) -> Result<ArrayRef> {
    let [computed] = computed else { return internal_err!("{} results in place of one", computed.len()) };
    let too_large = |_| -> DataFusionError {
        exec_datafusion_err!(
            "a number does not fit into {}; compute with fewer digits or an approximation, as CAST(… AS DOUBLE)",
            computed.data_type()
        )
    };
    match *computed.data_type() {
        DataType::Decimal128(digits, _) => {
            computed
                .as_primitive::<Decimal128Type>()
                .validate_decimal_precision(digits)
                .map_err(too_large)?;
        }
        DataType::Decimal256(digits, _) => {
            computed
                .as_primitive::<Decimal256Type>()
                .validate_decimal_precision(digits)
                .map_err(too_large)?;
        }
        _ => return internal_err!("digits of a {}", computed.data_type()),
    }
    Ok(ArrayRef::clone(computed))
}
