//! Values out of their bytes. Bytes that no value has are an error, as files that others wrote may have any.

use arrow::datatypes::{IntervalMonthDayNano, TimeUnit, i256};
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_datafusion_err};

use super::encoding::{ESCAPED, NANOSECONDS_OF_DAY, class, nanoseconds_of, shape};
use super::{MOST_LEVELS, Value, numbers};
use crate::type_names::SESSION_ZONE;

pub(super) fn damaged() -> DataFusionError {
    exec_datafusion_err!("the bytes of a VARIANT are damaged")
}

/// The value that bytes are.
pub(super) fn value(bytes: &[u8]) -> Result<Value> {
    let (key, shape) = split(bytes)?;
    let mut parts = Parts { key: Bytes(key), shape: Bytes(shape) };
    let value = parts.value(0)?;
    if parts.key.0.is_empty() && parts.shape.0.is_empty() { Ok(value) } else { Err(damaged()) }
}

/// What a value is compared by.
pub(super) fn key(bytes: &[u8]) -> Result<&[u8]> {
    split(bytes).map(|(key, _)| key)
}

fn split(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let mut rest = Bytes(bytes);
    rest.skip(0)?;
    bytes.split_at_checked(bytes.len() - rest.0.len()).ok_or_else(damaged)
}

/// Bytes that are read one behind the other.
pub(super) struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub fn byte(&mut self) -> Result<u8> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk().ok_or_else(damaged)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn pass<const N: usize>(&mut self) -> Result<()> {
        self.array::<N>().map(|_| ())
    }

    /// Up to two zeros, and those between without their marks.
    fn delimited(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        loop {
            match self.byte()? {
                0 => match self.byte()? {
                    0 => return Ok(bytes),
                    ESCAPED => bytes.push(0),
                    _ => return Err(damaged()),
                },
                byte => bytes.push(byte),
            }
        }
    }

    fn text(&mut self) -> Result<String> {
        String::from_utf8(self.delimited()?).map_err(|_| damaged())
    }

    fn skip_delimited(&mut self) -> Result<()> {
        loop {
            if self.byte()? == 0 && self.byte()? == 0 {
                return Ok(());
            }
        }
    }

    /// Passes over the key of a value.
    fn skip(&mut self, level: usize) -> Result<()> {
        if level > MOST_LEVELS {
            return Err(damaged());
        }
        match self.byte()? {
            class::NULL => {}
            class::BOOLEAN => self.pass::<1>()?,
            class::NUMBER => numbers::skip(self)?,
            class::FLOAT => self.pass::<8>()?,
            class::TIMESTAMP | class::TIMESTAMP_IN_ZONE | class::TIME | class::INTERVAL => {
                self.pass::<16>()?;
            }
            class::TEXT | class::BYTES | class::BITS => self.skip_delimited()?,
            class::LIST => {
                while !self.ends() {
                    self.skip(level + 1)?;
                }
            }
            class::OBJECT => {
                while !self.ends() {
                    self.byte()?;
                    self.skip_delimited()?;
                    self.skip(level + 1)?;
                }
            }
            _ => return Err(damaged()),
        }
        Ok(())
    }

    /// Whether elements or members end here; passes over their end.
    fn ends(&mut self) -> bool {
        match self.0.split_first() {
            Some((&class::END, rest)) => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }
}

struct Parts<'a> {
    key: Bytes<'a>,
    shape: Bytes<'a>,
}

impl Parts<'_> {
    fn value(&mut self, level: usize) -> Result<Value> {
        if level > MOST_LEVELS {
            return Err(damaged());
        }
        Ok(match self.key.byte()? {
            class::NULL => Value::Null,
            class::LIST => {
                let mut elements = Vec::new();
                while !self.key.ends() {
                    elements.push(self.value(level + 1)?);
                }
                Value::List(elements)
            }
            class::OBJECT => self.object(level)?,
            class::BITS => Value::Bits(self.key.text()?),
            class => Value::Plain(self.plain(class)?),
        })
    }

    fn object(&mut self, level: usize) -> Result<Value> {
        let mut members: Vec<(String, Value)> = Vec::new();
        while !self.key.ends() {
            self.key.byte()?;
            members.push((self.key.text()?, self.value(level + 1)?));
        }
        Ok(Value::Object(members))
    }

    fn plain(&mut self, class: u8) -> Result<ScalarValue> {
        Ok(match class {
            class::BOOLEAN => ScalarValue::Boolean(Some(self.key.byte()? != 0)),
            class::NUMBER => self.number()?,
            class::FLOAT => {
                let bits = u64::from_be_bytes(self.key.array()?);
                let turned = if bits >> 63 == 1 { 1 << 63 } else { u64::MAX };
                let number = f64::from_bits(bits ^ turned);
                match self.shape.byte()? {
                    shape::SINGLE => ScalarValue::Float32(Some(number as f32)),
                    shape::DOUBLE => ScalarValue::Float64(Some(number)),
                    _ => return Err(damaged()),
                }
            }
            class::TEXT => ScalarValue::Utf8View(Some(self.key.text()?)),
            class::BYTES => ScalarValue::Binary(Some(self.key.delimited()?)),
            class::TIMESTAMP => self.timestamp(false)?,
            class::TIMESTAMP_IN_ZONE => self.timestamp(true)?,
            class::TIME => {
                let time = i64::try_from(self.nanoseconds()?).map_err(|_| damaged())?;
                ScalarValue::Time64Nanosecond(Some(time))
            }
            class::INTERVAL => {
                self.nanoseconds()?;
                let months = i32::from_le_bytes(self.shape.array()?);
                let days = i32::from_le_bytes(self.shape.array()?);
                let nanoseconds = i64::from_le_bytes(self.shape.array()?);
                ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano { months, days, nanoseconds }))
            }
            _ => return Err(damaged()),
        })
    }

    fn number(&mut self) -> Result<ScalarValue> {
        fn parsed<T: std::str::FromStr>(digits: &str) -> Result<Option<T>> {
            digits.parse().map(Some).map_err(|_| damaged())
        }
        let of = self.shape.byte()?;
        if matches!(of, shape::DECIMAL_128 | shape::DECIMAL_256) {
            let [precision, scale] = self.shape.array()?.map(u8::cast_signed);
            let digits = numbers::read(&mut self.key, scale)?;
            let precision = precision.cast_unsigned();
            return Ok(match of {
                shape::DECIMAL_128 => ScalarValue::Decimal128(parsed(&digits)?, precision, scale),
                _ => {
                    let number = i256::from_string(&digits).ok_or_else(damaged)?;
                    ScalarValue::Decimal256(Some(number), precision, scale)
                }
            });
        }
        let [tiny, small, int, big, u_tiny, u_small, u_int, u_big] = shape::INTEGERS;
        let digits = numbers::read(&mut self.key, 0)?;
        Ok(match of {
            of if of == tiny => ScalarValue::Int8(parsed(&digits)?),
            of if of == small => ScalarValue::Int16(parsed(&digits)?),
            of if of == int => ScalarValue::Int32(parsed(&digits)?),
            of if of == big => ScalarValue::Int64(parsed(&digits)?),
            of if of == u_tiny => ScalarValue::UInt8(parsed(&digits)?),
            of if of == u_small => ScalarValue::UInt16(parsed(&digits)?),
            of if of == u_int => ScalarValue::UInt32(parsed(&digits)?),
            of if of == u_big => ScalarValue::UInt64(parsed(&digits)?),
            _ => return Err(damaged()),
        })
    }

    fn nanoseconds(&mut self) -> Result<i128> {
        Ok(i128::from_be_bytes(self.key.array()?) ^ i128::MIN)
    }

    fn timestamp(&mut self, is_in_zone: bool) -> Result<ScalarValue> {
        let nanoseconds = self.nanoseconds()?;
        let [second, millisecond, microsecond, nanosecond] = shape::UNITS;
        let unit = match self.shape.byte()? {
            shape::DATE => {
                let days = match nanoseconds {
                    i128::MAX => i32::MAX,
                    i128::MIN => -i32::MAX,
                    finite => i32::try_from(finite / NANOSECONDS_OF_DAY).map_err(|_| damaged())?,
                };
                return Ok(ScalarValue::Date32(Some(days)));
            }
            unit if unit == second => TimeUnit::Second,
            unit if unit == millisecond => TimeUnit::Millisecond,
            unit if unit == microsecond => TimeUnit::Microsecond,
            unit if unit == nanosecond => TimeUnit::Nanosecond,
            _ => return Err(damaged()),
        };
        let time = Some(match nanoseconds {
            i128::MAX => i64::MAX,
            i128::MIN => -i64::MAX,
            finite => i64::try_from(finite / nanoseconds_of(unit)).map_err(|_| damaged())?,
        });
        let zone = is_in_zone.then(|| SESSION_ZONE.into());
        Ok(match unit {
            TimeUnit::Second => ScalarValue::TimestampSecond(time, zone),
            TimeUnit::Millisecond => ScalarValue::TimestampMillisecond(time, zone),
            TimeUnit::Microsecond => ScalarValue::TimestampMicrosecond(time, zone),
            TimeUnit::Nanosecond => ScalarValue::TimestampNanosecond(time, zone),
        })
    }
}
