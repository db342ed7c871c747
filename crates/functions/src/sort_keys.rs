//! `create_sort_key(x, 'ASC NULLS LAST', …)`: bytes that are ordered as the values are.
//!
//! ```text
//!   null           01 or 02, before or behind all values, which begin with the other one
//!   number, time   big-endian, with its sign turned round; a floating-point number with all bits turned if it is negative
//!   text           each byte + 1, then 00            bytes   00 and 01 behind a 01, then 00
//!   list, map      its elements, then 00             struct  its fields
//! ```
//!
//! In a descending key all but the first bytes are turned round. Nulls within values come last in an ascending one, and first
//! in a descending one. A key whose values have up to seven bytes is a `BIGINT`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray as _, BinaryArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int64Type,
    IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit, UInt64Type,
};
use datafusion::common::cast::as_string_view_array;
use datafusion::common::{Result, exec_err, plan_err};

use crate::casts::bits::is_bit;
use crate::casts::huge_integers::HUGE;
use crate::function::Kernel;
use crate::function::Kind::Any;
use crate::types::sql_type;

pub(crate) static FUNCTIONS: &[Kernel] =
    &[Kernel::new(&["create_sort_key"], &[&[Any, Any]], key_type, keys).repeating()];

const MOST_BYTES_OF_NUMBER: usize = size_of::<i64>();

fn key_type(given: &[DataType]) -> Result<DataType> {
    let (pairs, []) = given.as_chunks::<2>() else {
        return plan_err!("create_sort_key takes pairs of a value and its order, as 'ASC NULLS LAST'");
    };
    let mut bytes = 0;
    for [value, order] in pairs {
        if !order.is_string() {
            return plan_err!(
                "create_sort_key: an order is a text, as 'ASC NULLS LAST', and no {}",
                sql_type(order)
            );
        }
        bytes += 1 + width(value).unwrap_or(MOST_BYTES_OF_NUMBER);
    }
    Ok(if bytes <= MOST_BYTES_OF_NUMBER { DataType::Int64 } else { DataType::Binary })
}

/// How many bytes all values of a type have.
fn width(of: &DataType) -> Option<usize> {
    Some(match of {
        DataType::Null => 0,
        DataType::Boolean => 1,
        DataType::Decimal128(digits, _) => match digits {
            ..=4 => 2,
            ..=9 => 4,
            ..=18 => 8,
            _ => 16,
        },
        DataType::Interval(_) => 16,
        of if *of == HUGE => 16,
        DataType::Time32(_) | DataType::Time64(_) => 8,
        of => of.primitive_width()?,
    })
}

/// An order of values.
#[derive(Debug, Clone, Copy)]
struct Order {
    is_descending: bool,
    nulls_first: bool,
}

impl Order {
    fn of(words: &str) -> Result<Self> {
        let words: Vec<String> = words.split_whitespace().map(str::to_uppercase).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let [direction, "NULLS", place] = words.as_slice() else {
            return exec_err!(
                "'{}' is no order of a key; write ASC or DESC, and NULLS FIRST or NULLS LAST",
                words.join(" ")
            );
        };
        match (*direction, *place) {
            ("ASC" | "DESC", "FIRST" | "LAST") => {
                Ok(Order { is_descending: *direction == "DESC", nulls_first: *place == "FIRST" })
            }
            _ => exec_err!("'{}' is no order of a key; write ASC NULLS LAST and the like", words.join(" ")),
        }
    }

    /// That of values within others.
    fn within(self) -> Self {
        Order { nulls_first: self.is_descending, ..self }
    }

    fn validity(self, is_null: bool) -> u8 {
        if is_null == self.nulls_first { 1 } else { 2 }
    }

    fn write(self, key: &mut Vec<u8>, bytes: &[u8]) {
        key.extend(bytes.iter().map(|byte| if self.is_descending { !byte } else { *byte }));
    }
}

fn keys(given: &[ArrayRef], returned: &DataType) -> Result<ArrayRef> {
    let rows = given.first().map_or(0, |values| values.len());
    let mut keys: Vec<Option<Vec<u8>>> = vec![Some(Vec::new()); rows];
    let (pairs, _) = given.as_chunks::<2>();
    for [values, orders] in pairs {
        let values = plain(values)?;
        let orders = cast(orders, &DataType::Utf8View)?;
        let orders = as_string_view_array(&orders)?;
        let mut known: Option<(&str, Order)> = None;
        for (row, key) in keys.iter_mut().enumerate() {
            if orders.is_null(row) {
                *key = None;
                continue;
            }
            let words = orders.value(row);
            let order = match known {
                Some((known, order)) if known == words => order,
                _ => Order::of(words)?,
            };
            known = Some((words, order));
            if let Some(key) = key {
                write(key, &values, row, order)?;
            }
        }
    }
    if *returned == DataType::Int64 {
        let number = |key: Vec<u8>| {
            let padded = key.into_iter().chain(std::iter::repeat(0)).take(MOST_BYTES_OF_NUMBER);
            padded.fold(0_i64, |number, byte| number << 8 | i64::from(byte))
        };
        return Ok(Arc::new(keys.into_iter().map(|key| key.map(number)).collect::<Int64Array>()));
    }
    Ok(Arc::new(keys.iter().map(Option::as_ref).collect::<BinaryArray>()))
}

/// Values of the types that keys are written of.
fn plain(values: &ArrayRef) -> Result<ArrayRef> {
    Ok(match values.data_type() {
        of if of.is_string() => cast(values, &DataType::Utf8View)?,
        of if of.is_binary() => cast(values, &DataType::Binary)?,
        DataType::Time32(_) | DataType::Time64(_) => {
            cast(&cast(values, &DataType::Time64(TimeUnit::Microsecond))?, &DataType::Int64)?
        }
        DataType::Timestamp(..) => cast(values, &DataType::Int64)?,
        DataType::Date32 => cast(values, &DataType::Int32)?,
        DataType::Interval(_) => cast(values, &DataType::Interval(IntervalUnit::MonthDayNano))?,
        _ => Arc::clone(values),
    })
}

fn write(key: &mut Vec<u8>, values: &ArrayRef, row: usize, order: Order) -> Result<()> {
    let is_null = values.data_type().is_null() || values.is_null(row);
    key.push(order.validity(is_null));
    match values.data_type() {
        DataType::Struct(_) => {
            for field in values.as_struct().columns() {
                match is_null {
                    true => key.push(order.within().validity(true)),
                    false => write(key, &plain(field)?, row, order.within())?,
                }
            }
            Ok(())
        }
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) | DataType::Map(..)
            if !is_bit(values.data_type()) =>
        {
            if !is_null {
                let elements = plain(&elements(values, row))?;
                (0..elements.len()).try_for_each(|element| write(key, &elements, element, order.within()))?;
                order.write(key, &[0]);
            }
            Ok(())
        }
        _ if is_null => Ok(()),
        _ => scalar(key, values, row, order),
    }
}

fn elements(lists: &ArrayRef, row: usize) -> ArrayRef {
    match lists.data_type() {
        DataType::LargeList(_) => lists.as_list::<i64>().value(row),
        DataType::FixedSizeList(..) => lists.as_fixed_size_list().value(row),
        DataType::Map(..) => Arc::new(lists.as_map().value(row)),
        _ => lists.as_list::<i32>().value(row),
    }
}

/// Writes a value that is none of several others, and not null.
fn scalar(key: &mut Vec<u8>, values: &ArrayRef, row: usize, order: Order) -> Result<()> {
    let mut written = Vec::new();
    match values.data_type() {
        DataType::Boolean => written.push(u8::from(values.as_boolean().value(row))),
        DataType::Utf8View => {
            written.extend(values.as_string_view().value(row).bytes().map(|byte| byte.wrapping_add(1)));
            written.push(0);
        }
        DataType::Binary => {
            for &byte in values.as_binary::<i32>().value(row) {
                if byte <= 1 {
                    written.push(1);
                }
                written.push(byte);
            }
            written.push(0);
        }
        DataType::Float32 => {
            let number = primitive::<Float32Type>(values, row);
            let bits = match number.to_bits() {
                _ if number.is_nan() => u32::MAX,
                _ if number == 0.0 => 1 << 31,
                _ if number.is_infinite() => {
                    if number > 0.0 {
                        u32::MAX - 1
                    } else {
                        0
                    }
                }
                bits if number < 0.0 => !bits,
                bits => bits | 1 << 31,
            };
            written.extend(bits.to_be_bytes());
        }
        DataType::Float64 => {
            let number = primitive::<Float64Type>(values, row);
            let bits = match number.to_bits() {
                _ if number.is_nan() => u64::MAX,
                _ if number == 0.0 => 1 << 63,
                _ if number.is_infinite() => {
                    if number > 0.0 {
                        u64::MAX - 1
                    } else {
                        0
                    }
                }
                bits if number < 0.0 => !bits,
                bits => bits | 1 << 63,
            };
            written.extend(bits.to_be_bytes());
        }
        DataType::Interval(_) => {
            let [months, days, micros] = normalized(primitive::<IntervalMonthDayNanoType>(values, row));
            signed(&mut written, months.into(), 4);
            signed(&mut written, days.into(), 4);
            signed(&mut written, micros.into(), 8);
        }
        DataType::Decimal128(..) => {
            let number = primitive::<Decimal128Type>(values, row);
            signed(&mut written, number, width(values.data_type()).unwrap_or(16));
        }
        of if *of == HUGE => signed(&mut written, primitive::<Decimal256Type>(values, row).as_i128(), 16),
        of if of.is_unsigned_integer() => {
            let number = primitive::<UInt64Type>(&cast(&values.slice(row, 1), &DataType::UInt64)?, 0);
            written.extend(number.to_be_bytes().iter().skip(8 - width(of).unwrap_or(8)));
        }
        of if of.is_integer() => {
            let number = primitive::<Int64Type>(&cast(&values.slice(row, 1), &DataType::Int64)?, 0);
            signed(&mut written, number.into(), width(of).unwrap_or(8));
        }
        other => return exec_err!("create_sort_key makes no keys of {}", sql_type(other)),
    }
    order.write(key, &written);
    Ok(())
}

fn primitive<T: ArrowPrimitiveType>(values: &ArrayRef, row: usize) -> T::Native {
    values.as_primitive::<T>().value(row)
}

/// Writes a number in so many bytes, so that the least one has zeros alone.
fn signed(key: &mut Vec<u8>, number: i128, bytes: usize) {
    let turned = number ^ 1 << (8 * bytes - 1);
    key.extend(turned.to_be_bytes().iter().skip(16 - bytes));
}

/// Months, days and microseconds of an interval in which months have 30 days, and days 24 hours.
fn normalized(length: IntervalMonthDayNano) -> [i64; 3] {
    const MICROS_PER_DAY: i64 = 86_400_000_000;
    let micros = length.nanoseconds / 1_000;
    let days = i64::from(length.days) + micros / MICROS_PER_DAY;
    [i64::from(length.months) + days / 30, days % 30, micros % MICROS_PER_DAY]
}
