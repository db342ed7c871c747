//! Values as bytes: the key, then the shape.

use arrow::datatypes::{DataType, IntervalMonthDayNano, TimeUnit};
use datafusion::common::{Result, ScalarValue, exec_err, not_impl_err};

use super::{MOST_LEVELS, Value, numbers};
use crate::types::sql_type;

/// What a value is, in the order of such values. Between them, what belongs to a type that is not there.
pub(super) mod class {
    pub const BOOLEAN: u8 = 1;
    pub const NUMBER: u8 = 2;
    pub const FLOAT: u8 = 3;
    pub const TEXT: u8 = 4;
    pub const BYTES: u8 = 5;
    pub const TIMESTAMP: u8 = 7;
    pub const TIMESTAMP_IN_ZONE: u8 = 8;
    pub const TIME: u8 = 9;
    pub const INTERVAL: u8 = 11;
    pub const BITS: u8 = 12;
    pub const LIST: u8 = 14;
    pub const OBJECT: u8 = 15;
    pub const NULL: u8 = 16;
    /// Behind the elements of a list and the members of an object, of which each begins with a [`MEMBER`].
    pub const END: u8 = 0;
    pub const MEMBER: u8 = 1;
}

/// The types of numbers and times in shapes.
pub(super) mod shape {
    pub const INTEGERS: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
    pub const DECIMAL_128: u8 = 10;
    pub const DECIMAL_256: u8 = 11;
    pub const SINGLE: u8 = 1;
    pub const DOUBLE: u8 = 2;
    pub const DATE: u8 = 0;
    pub const UNITS: [u8; 4] = [1, 2, 3, 4];
}

pub(super) const ESCAPED: u8 = 0xFF;
pub(super) const NANOSECONDS_OF_DAY: i128 = 86_400_000_000_000;
const DAYS_OF_MONTH: i128 = 30;

/// The bytes of a value.
pub(super) fn bytes(value: &Value) -> Result<Vec<u8>> {
    let mut parts = Parts::default();
    parts.add(value, 0)?;
    let Parts { mut key, shape } = parts;
    key.extend(shape);
    Ok(key)
}

/// Whether two values are equal, of whatever types.
pub(super) fn are_equal(one: &Value, other: &Value) -> Result<bool> {
    let key = |value| {
        let mut parts = Parts::default();
        parts.add(value, 0).map(|()| parts.key)
    };
    Ok(key(one)? == key(other)?)
}

#[derive(Default)]
struct Parts {
    key: Vec<u8>,
    shape: Vec<u8>,
}

impl Parts {
    fn add(&mut self, value: &Value, level: usize) -> Result<()> {
        if level > MOST_LEVELS {
            return exec_err!("the values of a VARIANT stand in each other {MOST_LEVELS} deep at most");
        }
        match value {
            Value::Null => self.key.push(class::NULL),
            Value::Plain(plain) => self.plain(plain)?,
            Value::Bits(digits) => self.delimited(class::BITS, digits.as_bytes()),
            Value::List(elements) => {
                self.key.push(class::LIST);
                elements.iter().try_for_each(|element| self.add(element, level + 1))?;
                self.key.push(class::END);
            }
            Value::Object(members) => {
                self.key.push(class::OBJECT);
                for (name, value) in members {
                    self.delimited(class::MEMBER, name.as_bytes());
                    self.add(value, level + 1)?;
                }
                self.key.push(class::END);
            }
        }
        Ok(())
    }

    fn plain(&mut self, value: &ScalarValue) -> Result<()> {
        let [tiny, small, int, big, u_tiny, u_small, u_int, u_big] = shape::INTEGERS;
        match value {
            ScalarValue::Boolean(Some(value)) => self.key.extend([class::BOOLEAN, (*value).into()]),
            ScalarValue::Int8(Some(number)) => self.number(number, 0, &[tiny]),
            ScalarValue::Int16(Some(number)) => self.number(number, 0, &[small]),
            ScalarValue::Int32(Some(number)) => self.number(number, 0, &[int]),
            ScalarValue::Int64(Some(number)) => self.number(number, 0, &[big]),
            ScalarValue::UInt8(Some(number)) => self.number(number, 0, &[u_tiny]),
            ScalarValue::UInt16(Some(number)) => self.number(number, 0, &[u_small]),
            ScalarValue::UInt32(Some(number)) => self.number(number, 0, &[u_int]),
            ScalarValue::UInt64(Some(number)) => self.number(number, 0, &[u_big]),
            ScalarValue::Decimal128(Some(number), precision, scale) => {
                self.number(number, *scale, &[shape::DECIMAL_128, *precision, scale.cast_unsigned()]);
            }
            ScalarValue::Decimal256(Some(number), precision, scale) => {
                self.number(number, *scale, &[shape::DECIMAL_256, *precision, scale.cast_unsigned()]);
            }
            ScalarValue::Float32(Some(number)) => self.float((*number).into(), shape::SINGLE),
            ScalarValue::Float64(Some(number)) => self.float(*number, shape::DOUBLE),
            ScalarValue::Utf8View(Some(text)) => self.delimited(class::TEXT, text.as_bytes()),
            ScalarValue::Binary(Some(bytes)) => self.delimited(class::BYTES, bytes),
            ScalarValue::Date32(Some(days)) => {
                let is_finite = *days != i32::MAX && *days != -i32::MAX;
                let nanoseconds = i128::from(*days) * NANOSECONDS_OF_DAY;
                self.time(class::TIMESTAMP, nanoseconds, is_finite);
                self.shape.push(shape::DATE);
            }
            ScalarValue::TimestampSecond(Some(time), zone) => {
                self.timestamp(*time, TimeUnit::Second, zone.is_some());
            }
            ScalarValue::TimestampMillisecond(Some(time), zone) => {
                self.timestamp(*time, TimeUnit::Millisecond, zone.is_some());
            }
            ScalarValue::TimestampMicrosecond(Some(time), zone) => {
                self.timestamp(*time, TimeUnit::Microsecond, zone.is_some());
            }
            ScalarValue::TimestampNanosecond(Some(time), zone) => {
                self.timestamp(*time, TimeUnit::Nanosecond, zone.is_some());
            }
            ScalarValue::Time64Nanosecond(Some(time)) => self.time(class::TIME, (*time).into(), true),
            ScalarValue::IntervalMonthDayNano(Some(interval)) => {
                let IntervalMonthDayNano { months, days, nanoseconds } = *interval;
                let all_days = i128::from(months) * DAYS_OF_MONTH + i128::from(days);
                let length = all_days * NANOSECONDS_OF_DAY + i128::from(nanoseconds);
                self.time(class::INTERVAL, length, true);
                self.shape.extend(months.to_le_bytes());
                self.shape.extend(days.to_le_bytes());
                self.shape.extend(nanoseconds.to_le_bytes());
            }
            other => {
                return not_impl_err!("a VARIANT of a {} is not supported", sql_type(&other.data_type()));
            }
        }
        Ok(())
    }

    fn number(&mut self, number: &impl ToString, scale: i8, of: &[u8]) {
        self.key.push(class::NUMBER);
        numbers::write(&number.to_string(), scale, &mut self.key);
        self.shape.extend(of);
    }

    /// The bits of a number, which are in its order when the sign is turned, and negative ones wholly.
    fn float(&mut self, number: f64, of: u8) {
        let number = if number.is_nan() { f64::NAN } else { number };
        let bits = number.to_bits();
        let turned = if number.is_sign_negative() { u64::MAX } else { 1 << 63 };
        self.key.push(class::FLOAT);
        self.key.extend((bits ^ turned).to_be_bytes());
        self.shape.push(of);
    }

    fn timestamp(&mut self, time: i64, unit: TimeUnit, is_in_zone: bool) {
        let is_finite = time != i64::MAX && time != -i64::MAX;
        let class = if is_in_zone { class::TIMESTAMP_IN_ZONE } else { class::TIMESTAMP };
        self.time(class, i128::from(time) * nanoseconds_of(unit), is_finite);
        let [second, millisecond, microsecond, nanosecond] = shape::UNITS;
        self.shape.push(match unit {
            TimeUnit::Second => second,
            TimeUnit::Millisecond => millisecond,
            TimeUnit::Microsecond => microsecond,
            TimeUnit::Nanosecond => nanosecond,
        });
    }

    /// Nanoseconds; what is infinite lies beyond all others.
    fn time(&mut self, class: u8, nanoseconds: i128, is_finite: bool) {
        let nanoseconds = match (is_finite, nanoseconds > 0) {
            (true, _) => nanoseconds,
            (false, true) => i128::MAX,
            (false, false) => i128::MIN,
        };
        self.key.push(class);
        self.key.extend((nanoseconds ^ i128::MIN).to_be_bytes());
    }

    /// Bytes of any length, which end with two zeros: a zero among them is marked.
    fn delimited(&mut self, class: u8, bytes: &[u8]) {
        self.key.push(class);
        for &byte in bytes {
            self.key.push(byte);
            if byte == 0 {
                self.key.push(ESCAPED);
            }
        }
        self.key.extend([0, 0]);
    }
}

pub(super) fn nanoseconds_of(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

/// The type in which values of a type become a `VARIANT`, if it is another one.
pub(super) fn stands_for(of: &DataType) -> Option<DataType> {
    Some(match of {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            DataType::Decimal128(*precision, *scale)
        }
        DataType::Float16 => DataType::Float32,
        DataType::Date64 => DataType::Date32,
        DataType::Time32(_) | DataType::Time64(TimeUnit::Microsecond) => {
            DataType::Time64(TimeUnit::Nanosecond)
        }
        DataType::Interval(_) | DataType::Duration(_) => crate::function::INTERVAL,
        DataType::Dictionary(_, of) => stands_for(of).unwrap_or_else(|| of.as_ref().clone()),
        _ => return None,
    })
}
