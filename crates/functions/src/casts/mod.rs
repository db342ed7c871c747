//! Casts that mean what they mean in DuckDB.
//!
//! ```text
//!   text ──► numbers     1e3, 0x1F, 1_000, yes            values ──► texts ──► nested_texts
//!        ──► times       calendar, intervals
//!        ──► bytes       \xAA                             lists, structs, maps ──► nested
//!        ──► nested      splitting: [1, 2], {a: 1}
//!        ──► enums       one of a few texts
//!        ──► bits        0101, from and to numbers and bytes, too
//!        ──► offset_times  12:00:00+02, from and to other times
//!
//!   any type ──► unions     as one of their members           any type ◄──► VARIANT: [`variants`](crate::variants)
//! ```
//!
//! Arrow casts what is left: between numbers, rounded first where they become integers, and between times. A value that has
//! no counterpart is an error, or null for `TRY_CAST`: [`Failed`].
//!
//! A cast is a function of one argument in plans, so that no rule looks through it at what it casts.

pub(crate) mod bits;
mod bytes;
mod calendar;
pub(crate) mod enums;
pub(crate) mod huge_integers;
mod nested;
mod nested_texts;
mod numbers;
pub(crate) mod offset_times;
mod splitting;
mod texts;
mod times;
pub(crate) mod unions;
pub(crate) mod uuids;

use std::sync::Arc;

use arrow::array::PrimitiveBuilder;
use arrow::array::{
    Array as _, ArrayRef, ArrowPrimitiveType, AsArray as _, PrimitiveArray, StringViewArray, new_null_array,
};
use arrow::compute::{CastOptions, can_cast_types, cast, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type};
use datafusion::common::cast::as_string_view_array;
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, internal_err, plan_err};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

pub(crate) use self::calendar::is_infinite_time;
pub use self::enums::enum_texts;
pub(crate) use self::nested::check_keys;
pub(crate) use self::nested_texts::{are_unnamed, element_range, write_part, write_quoted};
pub use self::texts::of_values as texts_of;
use crate::function::{arguments, invoke};
use crate::types::sql_type;
use crate::variants::{self, is_variant};

/// What comes of a value that cannot be cast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failed {
    IsError,
    IsNull,
}

impl Failed {
    /// An error, where there is one.
    fn check(self, value: &str, to: &DataType) -> Result<()> {
        match self {
            Failed::IsError => Err(cannot_be_cast(value, to)),
            Failed::IsNull => Ok(()),
        }
    }

    /// What a text says; none for a null, and for a text that says nothing if that is a null.
    fn read<'a, T>(
        self,
        text: Option<&'a str>,
        to: &DataType,
        read: impl FnOnce(&'a str) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(text) = text else { return Ok(None) };
        let value = read(text);
        if value.is_none() {
            self.check(text, to)?;
        }
        Ok(value)
    }
}

/// Begins what a message says about the type that a value could not be cast to.
pub const CANNOT_BE_CAST: &str = " cannot be cast to ";

pub(crate) fn cannot_be_cast(value: &str, to: &DataType) -> DataFusionError {
    const MOST_CHARACTERS: usize = 100;
    let way_out = match to {
        DataType::Time32(_) | DataType::Time64(_) => "; write hours and minutes, as '11:00'",
        DataType::Interval(_) => "; write numbers and units, as '1 day 2 hours'",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            r"; behind \ stand an x and two hexadecimal digits, as in \xAA"
        }
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => {
            "; write elements in brackets, as '[1, 2]'"
        }
        DataType::Struct(_) => "; write names and values, as '{a: 1}'",
        DataType::Map(..) => "; write keys and values, as '{k=1}'",
        _ => "",
    };
    let way_out = if is_marked(to) { "" } else { way_out };
    let mut shown: String = value.chars().take(MOST_CHARACTERS).collect();
    if shown.len() < value.len() {
        shown.push('…');
    }
    exec_datafusion_err!("'{shown}'{CANNOT_BE_CAST}{}{way_out}", sql_type(to))
}

/// Values of another type.
pub fn cast_array(values: &ArrayRef, to: &DataType, failed: Failed) -> Result<ArrayRef> {
    let from = values.data_type();
    if from == to {
        return Ok(Arc::clone(values));
    }
    if from.is_null() {
        return Ok(new_null_array(to, values.len()));
    }
    if is_variant(to) {
        return variants::of_values(&Field::new("", from.clone(), true), values);
    }
    if is_variant(from) {
        return variants::to_values(values, to, failed);
    }
    if unions::is_union(to) {
        return unions::of_values(values, to, failed);
    }
    if unions::is_union(from) && !to.is_string() {
        return plan_err!(
            "a value of type {}{CANNOT_BE_CAST}{}; name a member, as u.a",
            sql_type(from),
            sql_type(to)
        );
    }
    let of_bits = match (bits::is_bit(from), bits::is_bit(to)) {
        (false, true) => bits::of_values(values, failed)?,
        (true, false) => bits::to_values(values, to, failed)?,
        _ => None,
    };
    let of_times = match (offset_times::is_timetz(from), offset_times::is_timetz(to)) {
        (false, true) => offset_times::of_values(values, failed)?,
        (true, false) => offset_times::to_values(values, to)?,
        _ => None,
    };
    if let Some(settled) = of_bits.or(of_times) {
        return Ok(settled);
    }
    if offset_times::is_timetz(from) || offset_times::is_timetz(to) {
        let [from, to] = [from, to].map(sql_type);
        return Err(exec_datafusion_err!("a value of type {from}{CANNOT_BE_CAST}{to}"));
    }
    if enum_texts(from).is_some() {
        let texts: ArrayRef = Arc::new(enums::texts_of(values));
        return cast_array(&texts, to, failed);
    }
    if enum_texts(to).is_some() {
        return enums::of_texts(&cast_array(values, &DataType::Utf8View, failed)?, to, failed);
    }
    match (from, to) {
        (DataType::Dictionary(_, of), _) => cast_array(&cast(values, of)?, to, failed),
        (_, DataType::Dictionary(_, of)) => Ok(cast(&cast_array(values, of, failed)?, to)?),
        (from, to) if from.is_string() && !to.is_string() => of_texts(values, to, failed),
        (from, to) if to.is_string() && !from.is_string() => texts::in_form(texts::of_values(values)?, to),
        _ => nested::of_nested(values, to, failed)
            .or_else(|| times::of_timestamps(values, to))
            .or_else(|| times::of_infinite(values, to, failed))
            .unwrap_or_else(|| of_arrow(values, to, failed)),
    }
}

fn of_texts(values: &ArrayRef, to: &DataType, failed: Failed) -> Result<ArrayRef> {
    let views = cast(values, &DataType::Utf8View)?;
    let texts = as_string_view_array(&views)?;
    if matches!(to, DataType::Binary | DataType::LargeBinary | DataType::BinaryView) {
        return bytes::of_texts(texts, to, failed);
    }
    numbers::of_texts(texts, to, failed)
        .or_else(|| times::of_texts(texts, to, failed))
        .or_else(|| nested::of_texts(texts, to, failed))
        .unwrap_or_else(|| of_arrow(values, to, failed))
}

/// Numbers or times that a function reads from texts.
fn primitives<T: ArrowPrimitiveType>(
    texts: &StringViewArray,
    to: &DataType,
    failed: Failed,
    read: impl Fn(&str) -> Option<T::Native>,
) -> Result<ArrayRef> {
    let mut values = PrimitiveBuilder::<T>::with_capacity(texts.len()).with_data_type(to.clone());
    for text in texts {
        values.append_option(failed.read(text, to, &read)?);
    }
    Ok(Arc::new(values.finish()))
}

/// What Arrow casts; to integers, the nearest ones.
fn of_arrow(values: &ArrayRef, to: &DataType, failed: Failed) -> Result<ArrayRef> {
    let rounded = if to.is_integer() { rounded(values)? } else { Arc::clone(values) };
    let through = match (rounded.data_type(), to) {
        (DataType::Boolean, to) if to.is_decimal() => Some(DataType::Int8),
        (from, DataType::Boolean) if from.is_decimal() => Some(DataType::Float64),
        _ => None,
    };
    let rounded = through.map_or_else(|| Ok(Arc::clone(&rounded)), |through| cast(&rounded, &through))?;
    if !can_cast_types(rounded.data_type(), to) {
        let from = sql_type(values.data_type());
        return Err(exec_datafusion_err!("a value of type {from}{CANNOT_BE_CAST}{}", sql_type(to)));
    }
    let casted = cast_with_options(&rounded, to, &CastOptions { safe: true, ..CastOptions::default() })?;
    if failed == Failed::IsError && casted.logical_null_count() > values.logical_null_count() {
        let (before, behind) = (values.logical_nulls(), casted.logical_nulls());
        let is_null = |nulls: &Option<arrow::buffer::NullBuffer>, row| {
            nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
        };
        if let Some(row) = (0..values.len()).find(|&row| is_null(&behind, row) && !is_null(&before, row)) {
            let text = texts::of_values(&values.slice(row, 1))?;
            return Err(cannot_be_cast(text.value(0), to));
        }
    }
    Ok(casted)
}

/// The nearest whole numbers, of the same kind: of two as near, floating-point numbers go to the even one, decimals away
/// from zero. Arrow would cut fractions off.
fn rounded(values: &ArrayRef) -> Result<ArrayRef> {
    let rounded = |whole: DataType| Ok(cast(values, &whole)?);
    match values.data_type() {
        DataType::Float32 => {
            let whole: PrimitiveArray<Float32Type> =
                values.as_primitive::<Float32Type>().unary(f32::round_ties_even);
            Ok(Arc::new(whole))
        }
        DataType::Float64 => {
            let whole: PrimitiveArray<Float64Type> =
                values.as_primitive::<Float64Type>().unary(f64::round_ties_even);
            Ok(Arc::new(whole))
        }
        // Casts that drop digits of a decimal round.
        DataType::Decimal32(_, scale) if *scale > 0 => rounded(DataType::Decimal64(18, 0)),
        DataType::Decimal64(_, scale) if *scale > 0 => rounded(DataType::Decimal128(38, 0)),
        DataType::Decimal128(_, scale) if *scale > 0 => rounded(DataType::Decimal128(38, 0)),
        DataType::Decimal256(_, scale) if *scale > 0 => rounded(DataType::Decimal256(76, 0)),
        _ => Ok(Arc::clone(values)),
    }
}

/// Whether a type is one of ours that looks like a list of others.
pub fn is_marked(of: &DataType) -> bool {
    bits::is_bit(of) || enum_texts(of).is_some() || offset_times::is_timetz(of)
}

/// Whether a cast between two types is one of those here, and not one that DataFusion's rules may look into.
pub fn is_own_cast(from: &DataType, to: &DataType) -> bool {
    if let DataType::Dictionary(_, of) = from {
        return is_own_cast(of, to);
    }
    let is_marked = |of: &DataType| is_marked(of) || is_variant(of) || unions::is_union(of);
    if from != to && (is_marked(from) || is_marked(to)) && !from.is_null() {
        return true;
    }
    if from == to || from.is_null() || to.is_null() || matches!(to, DataType::Dictionary(..)) {
        return false;
    }
    match (from.is_string(), to.is_string()) {
        (true, true) => false,
        (true, false) => true,
        (false, true) => {
            let is_bytes = matches!(
                from,
                DataType::Binary
                    | DataType::LargeBinary
                    | DataType::BinaryView
                    | DataType::FixedSizeBinary(_)
            );
            is_bytes || from.is_nested() || from.is_floating() || from.is_temporal()
        }
        (false, false) if from.is_nested() => to.is_nested(),
        (false, false) => match (from, to) {
            (DataType::Boolean, to) => to.is_decimal(),
            (from, DataType::Boolean) => from.is_decimal(),
            (from, to) if to.is_integer() => loses_digits(from, to),
            (from, to) => (from.is_floating() && to.is_decimal()) || times::is_of_timestamps(from, to),
        },
    }
}

/// Whether a cast of ours may be left to Arrow in a comparison, which rules that prune look into.
pub fn is_cast_of_points(from: &DataType, to: &DataType) -> bool {
    times::is_but_for_infinite(from, to)
}

/// Whether numbers of a type may be none of an integer type.
fn loses_digits(from: &DataType, to: &DataType) -> bool {
    if !from.is_integer() {
        return from.is_numeric();
    }
    let bits = |integer: &DataType| integer.primitive_width();
    match (from.is_unsigned_integer(), to.is_unsigned_integer()) {
        (true, false) => bits(from) >= bits(to),
        (false, true) => true,
        _ => bits(from) > bits(to),
    }
}

/// Whether a type, or one that it is made of, is one that values of any type become.
pub fn takes_all(of: &DataType) -> bool {
    match of {
        of if is_variant(of) || unions::is_union(of) => true,
        DataType::Struct(fields) => fields.iter().any(|field| takes_all(field.data_type())),
        DataType::Map(entries, _) => takes_all(entries.data_type()),
        of => crate::function::element(of).is_some_and(takes_all),
    }
}

/// A cast as a function of a value.
pub fn cast_call(value: Expr, to: &DataType, failed: Failed) -> Expr {
    let signature = Signature::any(1, Volatility::Immutable);
    let function = ScalarUDF::from(Cast { to: to.clone(), failed, signature });
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), vec![value]))
}

/// The names of the function that casts, for those who ask what failed.
pub const CAST_FUNCTION: &str = "cast";
const TRY_CAST_FUNCTION: &str = "try_cast";

#[derive(Debug, PartialEq, Eq, Hash)]
struct Cast {
    to: DataType,
    failed: Failed,
    signature: Signature,
}

impl ScalarUDFImpl for Cast {
    fn name(&self) -> &str {
        match self.failed {
            Failed::IsError => CAST_FUNCTION,
            Failed::IsNull => TRY_CAST_FUNCTION,
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.clone())
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let is_nullable = arguments.arg_fields.iter().any(|field| field.is_nullable());
        let may_be_null = is_nullable || self.failed == Failed::IsNull;
        Ok(Arc::new(Field::new(self.name(), self.to.clone(), may_be_null)))
    }

    fn display_name(&self, arguments: &[Expr]) -> Result<String> {
        let [value] = arguments else { return internal_err!("a cast of {} values", arguments.len()) };
        Ok(format!("{}({value} AS {})", self.name().to_uppercase(), sql_type(&self.to)))
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        let [value] = arguments else { return internal_err!("a cast of {} values", arguments.len()) };
        Ok(format!("{}({} AS {})", self.name().to_uppercase(), value.schema_name(), sql_type(&self.to)))
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        invoke(&call, |given, to| {
            let [values] = arguments(given)?;
            match call.arg_fields.first() {
                // Its field tells whether a text is JSON.
                Some(field) if is_variant(to) => variants::of_values(field, values),
                _ => cast_array(values, to, self.failed),
            }
        })
    }
}
