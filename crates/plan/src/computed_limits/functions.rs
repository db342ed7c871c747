//! The functions in plans of computed limits and samples.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::{Result, exec_err, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// `LIMIT __percent(p)`.
pub const PERCENT: &str = "__percent";
/// `LIMIT __with_ties(n)`.
pub const WITH_TIES: &str = "__with_ties";
/// `WHERE __sample(kind, amount, seed)`.
pub const SAMPLE: &str = "__sample";

/// The functions that statements are written with, and that no plan keeps.
pub fn limit_markers() -> [ScalarUDF; 3] {
    [(PERCENT, DataType::Int64), (WITH_TIES, DataType::Int64), (SAMPLE, DataType::Boolean)]
        .map(|(name, is)| function(name, is, Volatility::Volatile, |_| internal_err!("limits are planned")))
}

/// `__percent(p)`.
pub(super) fn percent_of_rows(percent: Expr) -> Expr {
    let marker =
        function(PERCENT, DataType::Int64, Volatility::Volatile, |_| internal_err!("limits are planned"));
    marker.call(vec![percent])
}

/// A condition that holds for the first rows, and for none after them.
pub(super) const ROWS_WHILE: &str = "__rows_while";

/// `condition`, which holds for the first rows, and for none after them.
pub(super) fn rows_while(condition: Expr) -> Expr {
    function(ROWS_WHILE, DataType::Boolean, Volatility::Immutable, |arguments| match arguments {
        [condition] => Ok(Arc::clone(condition)),
        _ => internal_err!("rows end by one condition"),
    })
    .call(vec![condition])
}

/// A number of rows that is not negative, or the whole rows that a percentage of a number of rows is.
pub(super) fn row_amount(arguments: Vec<Expr>) -> Expr {
    function("__row_amount", DataType::Int64, Volatility::Immutable, |arguments| match arguments {
        [amount] => {
            let amount = amount.as_primitive::<Int64Type>();
            match amount.iter().flatten().find(|amount| *amount < 0) {
                Some(amount) => exec_err!("LIMIT and OFFSET cannot be negative, as {amount} is"),
                None => Ok(Arc::new(amount.clone())),
            }
        }
        [percent, rows] => {
            let rows = rows.as_primitive::<Int64Type>();
            let amounts = percent.as_primitive::<Float64Type>().iter().zip(rows).map(|pair| match pair {
                (Some(percent), Some(rows)) if (0.0..=100.0).contains(&percent) => {
                    Ok(Some((percent / 100.0 * rows as f64) as i64))
                }
                (Some(percent), _) => exec_err!("LIMIT of {percent} %: it must be between 0 and 100 %"),
                _ => Ok(None),
            });
            Ok(Arc::new(amounts.collect::<Result<Int64Array>>()?))
        }
        _ => internal_err!("an amount of rows has one argument or two"),
    })
    .call(arguments)
}

/// A number from 0 to 1 for each number of a row, the same for the same seed.
pub(super) fn chance(seed: Expr, row: Expr) -> Expr {
    function("__chance", DataType::Float64, Volatility::Immutable, |arguments| {
        let [seed, row] = arguments else { return internal_err!("a chance has a seed and a row") };
        let seeds = seed.as_primitive::<Int64Type>();
        let chances = seeds.iter().zip(row.as_primitive::<Int64Type>()).map(|pair| match pair {
            (Some(seed), Some(row)) => Some(mixed(mixed(seed as u64).wrapping_add(row as u64))),
            _ => None,
        });
        // 53 bits, which is what a floating-point number holds.
        let chances = chances.map(|bits| bits.map(|bits| (bits >> 11) as f64 / (1u64 << 53) as f64));
        Ok(Arc::new(chances.collect::<Float64Array>()))
    })
    .call(vec![seed, row])
}

/// The step of the generator SplitMix64 (Steele, Lea, Flood: *Fast Splittable Pseudorandom Number Generators*, OOPSLA 2014).
fn mixed(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

type Compute = fn(&[ArrayRef]) -> Result<ArrayRef>;

fn function(name: &'static str, returns: DataType, volatility: Volatility, compute: Compute) -> ScalarUDF {
    ScalarUDF::from(Function { name, returns, compute, signature: Signature::variadic_any(volatility) })
}

#[derive(Debug)]
struct Function {
    name: &'static str,
    returns: DataType,
    compute: Compute,
    signature: Signature,
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Function {}

impl std::hash::Hash for Function {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for Function {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.returns.clone())
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arguments = ColumnarValue::values_to_arrays(&call.args)?;
        Ok(ColumnarValue::Array((self.compute)(&arguments)?))
    }
}
