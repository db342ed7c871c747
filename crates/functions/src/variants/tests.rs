use arrow::datatypes::IntervalMonthDayNano;

use super::*;

fn int(number: i32) -> Value {
    Value::Plain(ScalarValue::Int32(Some(number)))
}

fn decimal(number: i128, scale: i8) -> Value {
    Value::Plain(ScalarValue::Decimal128(Some(number), 38, scale))
}

fn double(number: f64) -> Value {
    Value::Plain(ScalarValue::Float64(Some(number)))
}

fn object(members: &[(&str, Value)]) -> Value {
    Value::object(members.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
}

/// Values, each less than the next.
fn ordered() -> Vec<Value> {
    let interval = |months, days, nanoseconds| {
        let interval = IntervalMonthDayNano { months, days, nanoseconds };
        Value::Plain(ScalarValue::IntervalMonthDayNano(Some(interval)))
    };
    vec![
        Value::Plain(ScalarValue::Boolean(Some(false))),
        Value::Plain(ScalarValue::Boolean(Some(true))),
        decimal(-i128::MAX, 0),
        int(i32::MIN),
        int(-100),
        int(-99),
        decimal(-15, 1),
        int(-1),
        decimal(-1, 30),
        int(0),
        decimal(1, 38),
        decimal(99, 2),
        int(1),
        decimal(101, 2),
        int(10),
        int(12),
        int(100),
        Value::Plain(ScalarValue::UInt64(Some(u64::MAX))),
        double(f64::NEG_INFINITY),
        double(-0.0),
        double(0.0),
        double(f64::MAX),
        double(f64::NAN),
        Value::text(""),
        Value::text("a"),
        Value::text("a\0b"),
        Value::text("ab"),
        Value::Plain(ScalarValue::Binary(Some(vec![0, 255]))),
        Value::Plain(ScalarValue::Date32(Some(-i32::MAX))),
        Value::Plain(ScalarValue::Date32(Some(-1))),
        Value::Plain(ScalarValue::TimestampMicrosecond(Some(1), None)),
        Value::Plain(ScalarValue::TimestampSecond(Some(i64::MAX), None)),
        Value::Plain(ScalarValue::Time64Nanosecond(Some(1))),
        interval(0, 29, 5),
        interval(1, 0, 0),
        Value::Bits("01".to_owned()),
        Value::List(vec![]),
        Value::List(vec![int(1)]),
        Value::List(vec![int(1), int(2)]),
        Value::List(vec![int(1), Value::Null]),
        Value::List(vec![Value::List(vec![int(1), int(1)])]),
        object(&[]),
        object(&[("", int(1))]),
        object(&[("a", int(1)), ("b", int(0))]),
        object(&[("a", int(2))]),
        object(&[("b", int(0))]),
    ]
}

#[test]
fn values_come_back_from_their_bytes() {
    for value in ordered() {
        let bytes = encoding::bytes(&value).unwrap();
        assert_eq!(decoding::value(&bytes).unwrap(), value);
    }
}

#[test]
fn keys_are_in_the_order_of_values() {
    let bytes: Vec<_> = ordered().iter().map(|value| encoding::bytes(value).unwrap()).collect();
    for (one, other) in bytes.iter().zip(bytes.iter().skip(1)) {
        let (one, other) = (decoding::key(one).unwrap(), decoding::key(other).unwrap());
        assert!(one < other, "{:?} {:?}", decoding::value(one), decoding::value(other));
    }
}

#[test]
fn values_of_different_types_are_equal() {
    for (one, other) in [
        (int(1), decimal(100, 2)),
        (int(0), decimal(0, 2)),
        (int(-10), decimal(-10_000, 3)),
        (object(&[("a", int(1)), ("b", int(2))]), object(&[("a", decimal(10, 1)), ("b", int(2))])),
    ] {
        assert!(encoding::are_equal(&one, &other).unwrap(), "{one:?} {other:?}");
    }
}

#[test]
fn damaged_bytes_are_refused() {
    for value in ordered() {
        let bytes = encoding::bytes(&value).unwrap();
        for end in 0..bytes.len() {
            assert!(decoding::value(&bytes[..end]).is_err(), "{value:?}");
        }
    }
    assert!(decoding::value(&[14; 100_000]).is_err());
}
