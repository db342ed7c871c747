//! Numbers and truth values in texts.
//!
//! | text | becomes |
//! |---|---|
//! | `' 12 '`, `+12`, `1_000` | as written without spaces and separators |
//! | `1.5`, `15e-1` | to the nearest number of the type; away from zero of two as near |
//! | `0x1F`, `0b101` | an integer |
//! | `inf`, `-Infinity`, `nan` | floating-point numbers |
//! | `t`, `f`, `yes`, `no`, `y`, `n`, `1`, `0`, `true`, `false` in any case | truth values |

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, ArrowPrimitiveType, BooleanBuilder, StringViewArray};
use arrow::datatypes::{
    ArrowNativeType, ArrowNativeTypeOp, DataType, Decimal32Type, Decimal64Type, Decimal128Type,
    Decimal256Type, DecimalType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};
use datafusion::common::Result;

use super::{Failed, primitives};

/// The numbers that texts say, if the type is one of numbers.
pub(super) fn of_texts(texts: &StringViewArray, to: &DataType, failed: Failed) -> Option<Result<ArrayRef>> {
    Some(match to {
        DataType::Int8 => integers::<Int8Type>(texts, to, failed),
        DataType::Int16 => integers::<Int16Type>(texts, to, failed),
        DataType::Int32 => integers::<Int32Type>(texts, to, failed),
        DataType::Int64 => integers::<Int64Type>(texts, to, failed),
        DataType::UInt8 => integers::<UInt8Type>(texts, to, failed),
        DataType::UInt16 => integers::<UInt16Type>(texts, to, failed),
        DataType::UInt32 => integers::<UInt32Type>(texts, to, failed),
        DataType::UInt64 => integers::<UInt64Type>(texts, to, failed),
        DataType::Float32 => primitives::<Float32Type>(texts, to, failed, float),
        DataType::Float64 => primitives::<Float64Type>(texts, to, failed, float),
        DataType::Decimal32(precision, scale) => {
            decimals::<Decimal32Type, i128>(texts, to, failed, *precision, *scale, |value| {
                value.try_into().ok()
            })
        }
        DataType::Decimal64(precision, scale) => {
            decimals::<Decimal64Type, i128>(texts, to, failed, *precision, *scale, |value| {
                value.try_into().ok()
            })
        }
        DataType::Decimal128(precision, scale) => {
            decimals::<Decimal128Type, i128>(texts, to, failed, *precision, *scale, Some)
        }
        DataType::Decimal256(precision, scale) => {
            decimals::<Decimal256Type, i256>(texts, to, failed, *precision, *scale, Some)
        }
        DataType::Boolean => booleans(texts, to, failed),
        _ => return None,
    })
}

fn integers<T>(texts: &StringViewArray, to: &DataType, failed: Failed) -> Result<ArrayRef>
where
    T: ArrowPrimitiveType,
    T::Native: TryFrom<i64> + TryFrom<i128>,
{
    let is_unsigned = to.is_unsigned_integer();
    primitives::<T>(texts, to, failed, |text| match short_integer(text.as_bytes()) {
        Some(number) => number.try_into().ok(),
        None => integer(text, is_unsigned)?.try_into().ok(),
    })
}

/// An integer of so few digits, and nothing else, that none is too many.
fn short_integer(text: &[u8]) -> Option<i64> {
    const MOST_DIGITS: usize = 18;
    let (is_negative, digits) = signed(text);
    if digits.is_empty() || digits.len() > MOST_DIGITS {
        return None;
    }
    let mut number = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number * 10 + i64::from(digit - b'0');
    }
    Some(if is_negative { -number } else { number })
}

fn integer(text: &str, is_unsigned: bool) -> Option<i128> {
    let text = text.trim_ascii();
    let of_radix = |radix, digits: &str| {
        let plain: String = digits.chars().filter(|&digit| digit != '_').collect();
        (are_separated(digits.as_bytes()) && !plain.starts_with('+'))
            .then(|| i128::from_str_radix(&plain, radix).ok())
            .flatten()
    };
    match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => of_radix(16, text.get(2..)?),
        [b'0', b'b' | b'B', ..] => of_radix(2, text.get(2..)?),
        bytes => {
            let digits = Digits::of(bytes)?;
            if is_unsigned && digits.is_negative && !digits.is_zero() {
                return None;
            }
            digits.scaled(0)
        }
    }
}

fn decimals<T, N>(
    texts: &StringViewArray,
    to: &DataType,
    failed: Failed,
    precision: u8,
    scale: i8,
    narrow: impl Fn(N) -> Option<T::Native>,
) -> Result<ArrayRef>
where
    T: DecimalType,
    N: ArrowNativeType + ArrowNativeTypeOp,
{
    primitives::<T>(texts, to, failed, |text| {
        let digits = Digits::of(text.trim_ascii().as_bytes())?;
        let value = narrow(digits.scaled(scale.into())?)?;
        T::is_valid_decimal_precision(value, precision).then_some(value)
    })
}

/// A floating-point number; Rust reads what SQL does, but for spaces and separators.
fn float<F: std::str::FromStr>(text: &str) -> Option<F> {
    let text = text.trim_ascii();
    if !text.contains('_') {
        return text.parse().ok();
    }
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let separates = |at: usize| at > 0 && is_digit(at - 1) && is_digit(at + 1);
    let all_separate = bytes.iter().enumerate().all(|(at, &byte)| byte != b'_' || separates(at));
    all_separate.then(|| text.replace('_', "").parse().ok()).flatten()
}

fn booleans(texts: &StringViewArray, to: &DataType, failed: Failed) -> Result<ArrayRef> {
    let mut values = BooleanBuilder::with_capacity(texts.len());
    for text in texts {
        match text.map(|text| boolean(text).ok_or(text)) {
            None => values.append_null(),
            Some(Ok(value)) => values.append_value(value),
            Some(Err(text)) => {
                failed.check(text, to)?;
                values.append_null();
            }
        }
    }
    Ok(Arc::new(values.finish()))
}

fn boolean(text: &str) -> Option<bool> {
    let is_one_of = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is_one_of(&["true", "t", "1", "yes", "y"]) {
        return Some(true);
    }
    is_one_of(&["false", "f", "0", "no", "n"]).then_some(false)
}

fn signed(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    }
}

/// Whether underscores stand one by one between other characters.
fn are_separated(digits: &[u8]) -> bool {
    let is_outside = digits.first() == Some(&b'_') || digits.last() == Some(&b'_');
    !is_outside && !digits.windows(2).any(|pair| pair == b"__")
}

/// A number as it is written: digits with separators, before and behind the point, and an exponent.
struct Digits<'a> {
    is_negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i32,
}

impl<'a> Digits<'a> {
    fn of(text: &'a [u8]) -> Option<Self> {
        let (is_negative, rest) = signed(text);
        let (whole, rest) = digits(rest)?;
        let (fraction, rest) = match rest {
            [b'.', rest @ ..] => digits(rest)?,
            rest => (rest.get(..0)?, rest),
        };
        let exponent = match rest {
            [] => 0,
            [b'e' | b'E', exponent @ ..] => self::exponent(exponent)?,
            _ => return None,
        };
        let has_digits = !whole.is_empty() || !fraction.is_empty();
        has_digits.then_some(Digits { is_negative, whole, fraction, exponent })
    }

    fn values(&self) -> impl Iterator<Item = u8> {
        self.whole.iter().chain(self.fraction).filter(|&&digit| digit != b'_').map(|digit| digit - b'0')
    }

    fn is_zero(&self) -> bool {
        self.values().all(|digit| digit == 0)
    }

    /// The whole number nearest to this one with the point moved to the right; none if it is too large.
    fn scaled<N: ArrowNativeType + ArrowNativeTypeOp>(&self, by: i32) -> Option<N> {
        let before_point = self.whole.iter().filter(|&&digit| digit != b'_').count() as i64;
        let kept = before_point + i64::from(self.exponent) + i64::from(by);
        if kept < 0 {
            return Some(N::ZERO);
        }
        let ten = N::usize_as(10);
        let mut digits = self.values();
        let mut number = N::ZERO;
        for _ in 0..kept {
            let digit = digits.next();
            if digit.is_none() && number.is_zero() {
                break;
            }
            let digit = N::usize_as(digit.unwrap_or(0).into());
            number = number.mul_checked(ten).and_then(|number| number.add_checked(digit)).ok()?;
        }
        if digits.next().is_some_and(|digit| digit >= 5) {
            number = number.add_checked(N::ONE).ok()?;
        }
        if self.is_negative { number.neg_checked().ok() } else { Some(number) }
    }
}

/// The digits that a text begins with, and what follows; none if separators stand elsewhere than between them.
fn digits(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_part = |byte: &&u8| byte.is_ascii_digit() || **byte == b'_';
    let (digits, rest) = text.split_at(text.iter().take_while(is_part).count());
    are_separated(digits).then_some((digits, rest))
}

/// An exponent; one of more digits than matter is as large as one can be.
fn exponent(text: &[u8]) -> Option<i32> {
    let (is_negative, digits) = signed(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let exponent = digits
        .iter()
        .fold(0i32, |exponent, digit| exponent.saturating_mul(10).saturating_add(i32::from(digit - b'0')));
    Some(if is_negative { -exponent } else { exponent })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_they_are_written() {
        for (text, number) in [
            ("12", Some(12)),
            (" 12\n", Some(12)),
            ("+12", Some(12)),
            ("1e3", Some(1000)),
            ("15e-1", Some(2)),
            ("-1.5", Some(-2)),
            (".5", Some(1)),
            ("5.", Some(5)),
            ("0x1_F", Some(31)),
            ("0B101", Some(5)),
            ("1_000.5", Some(1001)),
            ("1.4999999999999999999999999999999999999999999999", Some(1)),
            ("1e-400000000000000", Some(0)),
            ("0e400000000000000", Some(0)),
            ("1e400", None),
            ("1__0", None),
            ("_1", None),
            ("- 1", None),
            ("-0x1", None),
            ("0x+1", None),
            ("0x", None),
            ("1e", None),
            (".", None),
            (".e5", None),
            ("", None),
        ] {
            assert_eq!(integer(text, false), number, "{text}");
        }
        assert_eq!(integer("-0", true), Some(0));
        assert_eq!(integer("-0.4", true), None);
    }

    #[test]
    fn separators_of_floats_stand_between_digits() {
        assert_eq!(float::<f64>(" 1_000.5_5 "), Some(1000.55));
        assert_eq!(float::<f64>("1_e5"), None);
        assert_eq!(float::<f64>("-Infinity"), Some(f64::NEG_INFINITY));
        assert_eq!(float::<f64>(""), None);
    }
}
