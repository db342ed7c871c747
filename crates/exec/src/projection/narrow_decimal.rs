//! Sums, differences and products of decimals in 64 bits, where their values fit.
//!
//! A decimal of 128 bits mostly holds what 64 would: prices, quantities, rates. Arrow computes with all of it and looks
//! for an overflow at every step, row by row; a product of two numbers of 64 bits takes one multiplication and cannot
//! overflow. Whether all values of a batch are so small shows while they are multiplied, and if not, Arrow does it.

use std::fmt::{self, Display, Formatter};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Decimal128Array, RecordBatch};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Schema};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, internal_err};
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::sort_properties::ExprProperties;
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};

/// The greatest power of ten that 64 bits hold.
const MOST_DIGITS: u32 = 18;

/// A sum, difference or product of two decimals of 128 bits.
#[derive(Debug, Clone)]
pub struct NarrowDecimal {
    /// The same for values of any size.
    wide: BinaryExpr,
}

/// One side: a number for each row, or one for all.
enum Side {
    Rows(Decimal128Array),
    Constant(i128),
}

impl NarrowDecimal {
    /// The same expression in 64 bits; `None` if it is not arithmetic of two decimals, over rows of `schema`.
    pub fn of(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Option<Self>> {
        let Some(binary) = expression.downcast_ref::<BinaryExpr>() else { return Ok(None) };
        let is_arithmetic = matches!(binary.op(), Operator::Plus | Operator::Minus | Operator::Multiply);
        if !is_arithmetic {
            return Ok(None);
        }
        let types = (binary.left().data_type(schema)?, binary.right().data_type(schema)?);
        let are_decimals = matches!(types, (DataType::Decimal128(..), DataType::Decimal128(..)));
        Ok(are_decimals.then(|| Self { wide: binary.clone() }))
    }

    /// `None` if a value is too large, or the result is of another type.
    fn narrow(
        &self,
        left: &ColumnarValue,
        right: &ColumnarValue,
        result: &DataType,
    ) -> Result<Option<Decimal128Array>> {
        let DataType::Decimal128(precision, scale) = *result else { return Ok(None) };
        let (Some(left_scale), Some(right_scale)) = (scale_of(left), scale_of(right)) else {
            return Ok(None);
        };
        let (Some(left), Some(right)) = (Side::new(left), Side::new(right)) else { return Ok(None) };
        let numbers = match self.wide.op() {
            Operator::Multiply if left_scale + right_scale == scale => narrow(&left, &right, |l, r| l * r),
            Operator::Plus | Operator::Minus => {
                let factors = (power_of_ten(scale - left_scale), power_of_ten(scale - right_scale));
                let (Some(left_factor), Some(right_factor)) = factors else { return Ok(None) };
                // No product of two numbers of 64 bits takes more than 127 bits, nor does the sum of two.
                if *self.wide.op() == Operator::Plus {
                    narrow(&left, &right, |l, r| l * left_factor + r * right_factor)
                } else {
                    narrow(&left, &right, |l, r| l * left_factor - r * right_factor)
                }
            }
            _ => None,
        };
        let Some(numbers) = numbers else { return Ok(None) };
        let nulls = NullBuffer::union(left.nulls(), right.nulls());
        let array = Decimal128Array::try_new(numbers.into(), nulls)?;
        Ok(Some(array.with_precision_and_scale(precision, scale)?))
    }

    /// The same of values of any size. The sides are not evaluated again: they may be such expressions themselves.
    fn wide(&self, left: ColumnarValue, right: ColumnarValue, rows: usize) -> Result<ColumnarValue> {
        let sides = [left.into_array(rows)?, right.into_array(rows)?];
        let fields = sides.iter().zip(["left", "right"]);
        let fields: Vec<Field> =
            fields.map(|(side, name)| Field::new(name, side.data_type().clone(), true)).collect();
        let columns: [Arc<dyn PhysicalExpr>; 2] =
            [Arc::new(Column::new("left", 0)), Arc::new(Column::new("right", 1))];
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), sides.to_vec())?;
        let computed = Arc::new(self.wide.clone()).with_new_children(columns.to_vec())?.evaluate(&batch)?;
        let computed = computed.into_array(rows)?;
        if let DataType::Decimal128(digits, _) = *computed.data_type() {
            // The bits of a number hold some with a digit more.
            let fits = computed.as_primitive::<Decimal128Type>().validate_decimal_precision(digits);
            fits.map_err(|_| {
                exec_datafusion_err!("a result of {self} does not fit into {}", computed.data_type())
            })?;
        }
        Ok(ColumnarValue::Array(computed))
    }
}

fn scale_of(side: &ColumnarValue) -> Option<i8> {
    match side.data_type() {
        DataType::Decimal128(_, scale) => Some(scale),
        _ => None,
    }
}

fn power_of_ten(digits: i8) -> Option<i128> {
    let digits = u32::try_from(digits).ok().filter(|&digits| digits <= MOST_DIGITS)?;
    Some(10_i128.pow(digits))
}

impl Side {
    /// `None` for a constant null.
    fn new(value: &ColumnarValue) -> Option<Self> {
        match value {
            ColumnarValue::Array(array) => {
                Some(Self::Rows(array.as_primitive_opt::<Decimal128Type>()?.clone()))
            }
            ColumnarValue::Scalar(ScalarValue::Decimal128(number, ..)) => number.map(Self::Constant),
            ColumnarValue::Scalar(_) => None,
        }
    }

    fn nulls(&self) -> Option<&NullBuffer> {
        match self {
            Self::Rows(array) => array.nulls(),
            Self::Constant(_) => None,
        }
    }
}

/// `compute` of each row, if all numbers have 64 bits and there are rows on some side.
fn narrow(left: &Side, right: &Side, compute: impl Fn(i128, i128) -> i128) -> Option<Vec<i128>> {
    let is_narrow = |number: i128| i64::try_from(number).is_ok();
    match (left, right) {
        (Side::Rows(left), Side::Rows(right)) if left.len() == right.len() => {
            let pairs = left.values().iter().copied().zip(right.values().iter().copied());
            computed(pairs, compute)
        }
        (Side::Rows(left), Side::Constant(right)) if is_narrow(*right) => {
            computed(left.values().iter().map(|&left| (left, *right)), compute)
        }
        (Side::Constant(left), Side::Rows(right)) if is_narrow(*left) => {
            computed(right.values().iter().map(|&right| (*left, right)), compute)
        }
        _ => None,
    }
}

fn computed(
    pairs: impl ExactSizeIterator<Item = (i128, i128)>,
    compute: impl Fn(i128, i128) -> i128,
) -> Option<Vec<i128>> {
    // The upper half of a number of 64 bits repeats its sign. One look at all rows in the end costs less than one at each.
    let surplus = |number: i128| (number >> 64) as i64 ^ (number as i64 >> 63);
    let mut wide = 0;
    let mut numbers = Vec::with_capacity(pairs.len());
    numbers.extend(pairs.map(|(left, right)| {
        wide |= surplus(left) | surplus(right);
        compute(i128::from(left as i64), i128::from(right as i64))
    }));
    (wide == 0).then_some(numbers)
}

impl PhysicalExpr for NarrowDecimal {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.wide.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.wide.nullable(schema)
    }

    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.wide.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let (left, right) = (self.wide.left().evaluate(batch)?, self.wide.right().evaluate(batch)?);
        match self.narrow(&left, &right, &self.wide.data_type(&batch.schema())?)? {
            Some(array) => Ok(ColumnarValue::Array(Arc::new(array))),
            None => self.wide(left, right, batch.num_rows()),
        }
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.wide.children()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let wide = Arc::new(self.wide.clone()).with_new_children(children)?;
        match wide.downcast_ref::<BinaryExpr>() {
            Some(wide) => Ok(Arc::new(Self { wide: wide.clone() })),
            None => internal_err!("an arithmetic expression became {wide}"),
        }
    }

    fn evaluate_bounds(&self, children: &[&Interval]) -> Result<Interval> {
        self.wide.evaluate_bounds(children)
    }

    fn propagate_constraints(
        &self,
        interval: &Interval,
        children: &[&Interval],
    ) -> Result<Option<Vec<Interval>>> {
        self.wide.propagate_constraints(interval, children)
    }

    fn get_properties(&self, children: &[ExprProperties]) -> Result<ExprProperties> {
        self.wide.get_properties(children)
    }

    fn fmt_sql(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.wide.fmt_sql(f)
    }
}

impl Display for NarrowDecimal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(&self.wide, f)
    }
}

impl PartialEq for NarrowDecimal {
    fn eq(&self, other: &Self) -> bool {
        self.wide == other.wide
    }
}

impl Eq for NarrowDecimal {}

impl Hash for NarrowDecimal {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.wide.hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    use datafusion::physical_expr::expressions::{col, lit};
    use proptest::prelude::*;

    use super::*;

    fn array(numbers: Vec<Option<i128>>, precision: u8, scale: i8) -> Decimal128Array {
        Decimal128Array::from(numbers).with_precision_and_scale(precision, scale).unwrap()
    }

    /// `left operator right` in both ways: the result, or its error.
    fn both(
        left: Decimal128Array,
        operator: Operator,
        right: Decimal128Array,
    ) -> [Result<Vec<Option<i128>>, String>; 2] {
        let fields = [("l", &left), ("r", &right)];
        let fields = fields.map(|(name, array)| Field::new(name, array.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(left), Arc::new(right)]).unwrap();
        let (left, right) = (col("l", &schema).unwrap(), col("r", &schema).unwrap());
        let wide: Arc<dyn PhysicalExpr> = Arc::new(BinaryExpr::new(left, operator, right));
        let narrow: Arc<dyn PhysicalExpr> = Arc::new(NarrowDecimal::of(&wide, &schema).unwrap().unwrap());
        [wide, narrow].map(|expression| {
            let result = expression.evaluate(&batch).and_then(|value| value.into_array(batch.num_rows()));
            let result = result.map_err(|error| error.to_string())?;
            assert_eq!(*result.data_type(), expression.data_type(&schema).unwrap());
            Ok(result.as_primitive::<Decimal128Type>().iter().collect())
        })
    }

    /// The first five have 64 bits.
    const EDGES: [i128; 7] =
        [0, 1, -1, i64::MAX as i128, i64::MIN as i128, i64::MAX as i128 + 1, i64::MIN as i128 - 1];

    fn number() -> impl Strategy<Value = Option<i128>> {
        prop_oneof![
            1 => Just(None),
            8 => (-100_000_000_i128..100_000_000).prop_map(Some),
            2 => proptest::sample::select(&EDGES[..5]).prop_map(Some),
            1 => proptest::sample::select(&EDGES[..]).prop_map(Some),
        ]
    }

    proptest! {
        #[test]
        fn narrow_numbers_are_computed_like_wide_ones(
            pairs in prop::collection::vec((number(), number()), 0..20),
            scales in (0_i8..6, 0_i8..6),
            operator in prop::sample::select(vec![Operator::Plus, Operator::Minus, Operator::Multiply]),
        ) {
            let (left, right) = pairs.into_iter().unzip();
            let [wide, narrow] = both(array(left, 38, scales.0), operator, array(right, 30, scales.1));
            prop_assert_eq!(wide, narrow);
        }
    }

    #[test]
    fn deep_expressions_of_wide_numbers_are_computed_once() {
        let schema = Schema::new(vec![Field::new("l", DataType::Decimal128(38, 18), true)]);
        let number = 10_i128.pow(20);
        let column: Arc<dyn Array> = Arc::new(array(vec![Some(number), None], 38, 18));
        let batch = RecordBatch::try_new(Arc::new(schema.clone()), vec![column]).unwrap();
        let mut sum = col("l", &schema).unwrap();
        // Twice the work at every step would never end.
        for _ in 0..64 {
            let next = Arc::new(BinaryExpr::new(sum, Operator::Plus, col("l", &schema).unwrap()));
            sum = Arc::new(NarrowDecimal::of(&(next as _), &schema).unwrap().unwrap());
        }
        let sums = sum.evaluate(&batch).unwrap().into_array(2).unwrap();
        let sums: Vec<_> = sums.as_primitive::<Decimal128Type>().iter().collect();
        assert_eq!(sums, [Some(65 * number), None]);
    }

    #[test]
    fn overflow_is_still_an_error() {
        let most = 10_i128.pow(37);
        for operator in [Operator::Multiply, Operator::Plus] {
            let numbers = || {
                array(vec![Some(1), Some(if operator == Operator::Plus { i128::MAX } else { most })], 38, 0)
            };
            let [wide, narrow] = both(numbers(), operator, numbers());
            assert!(wide.is_err());
            assert_eq!(wide, narrow);
        }
    }

    #[test]
    fn constants_stand_on_either_side() {
        let schema = Schema::new(vec![Field::new("l", DataType::Decimal128(15, 2), true)]);
        let column: Arc<dyn Array> = Arc::new(array(vec![Some(5), None, Some(-7)], 15, 2));
        let batch = RecordBatch::try_new(Arc::new(schema.clone()), vec![column]).unwrap();
        let numbers = |left: Arc<dyn PhysicalExpr>, right: Arc<dyn PhysicalExpr>| {
            let wide: Arc<dyn PhysicalExpr> = Arc::new(BinaryExpr::new(left, Operator::Minus, right));
            let narrow = NarrowDecimal::of(&wide, &schema).unwrap().unwrap();
            let sides = narrow.children().into_iter().map(|side| side.evaluate(&batch).unwrap());
            let sides: Vec<_> = sides.collect();
            let result_type = narrow.data_type(&schema).unwrap();
            let result = narrow.narrow(&sides[0], &sides[1], &result_type).unwrap();
            let result = result.map(|numbers| numbers.iter().collect::<Vec<_>>());
            let right = wide.evaluate(&batch).unwrap().into_array(3).unwrap();
            if let Some(result) = &result {
                assert_eq!(*result, right.as_primitive::<Decimal128Type>().iter().collect::<Vec<_>>());
            }
            result
        };
        let one = || lit(ScalarValue::Decimal128(Some(1), 20, 0));
        let column = || col("l", &schema).unwrap();
        assert_eq!(numbers(one(), column()), Some(vec![Some(95), None, Some(107)]));
        assert_eq!(numbers(column(), one()), Some(vec![Some(-95), None, Some(-107)]));
        assert_eq!(numbers(column(), lit(ScalarValue::Decimal128(None, 20, 0))), None);
        assert_eq!(numbers(one(), one()), None);
        assert_eq!(numbers(column(), lit(ScalarValue::Decimal128(Some(1 << 63), 20, 0))), None);
    }
}
