//! Types as SQL names them, and `typeof`.

use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

/// A type in the words of SQL: `BIGINT`, `DECIMAL(15,2)`, `STRUCT(a INTEGER, b VARCHAR[])`.
///
/// `TIMESTAMP` is the type that is declared so, which has microseconds; results of some functions have nanoseconds.
pub fn sql_type(data_type: &DataType) -> String {
    if crate::casts::bits::is_bit(data_type) {
        return "BIT".to_owned();
    }
    if crate::casts::offset_times::is_timetz(data_type) {
        return "TIME WITH TIME ZONE".to_owned();
    }
    if let Some(texts) = crate::casts::enum_texts(data_type) {
        let texts: Vec<_> = texts.iter().map(|text| format!("'{}'", text.replace('\'', "''"))).collect();
        return format!("ENUM({})", texts.join(", "));
    }
    if crate::variants::is_variant(data_type) {
        return "VARIANT".to_owned();
    }
    if let Some(members) = crate::casts::unions::members(data_type) {
        return format!("UNION({})", named(members.iter().map(AsRef::as_ref)));
    }
    let name = match data_type {
        DataType::Null => "\"NULL\"",
        DataType::Boolean => "BOOLEAN",
        DataType::Int8 => "TINYINT",
        DataType::Int16 => "SMALLINT",
        DataType::Int32 => "INTEGER",
        DataType::Int64 => "BIGINT",
        DataType::UInt8 => "UTINYINT",
        DataType::UInt16 => "USMALLINT",
        DataType::UInt32 => "UINTEGER",
        DataType::UInt64 => "UBIGINT",
        DataType::Float16 | DataType::Float32 => "FLOAT",
        DataType::Float64 => "DOUBLE",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "VARCHAR",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "BLOB"
        }
        DataType::Date32 | DataType::Date64 => "DATE",
        DataType::Time32(_) | DataType::Time64(_) => "TIME",
        DataType::Timestamp(_, Some(_)) => "TIMESTAMP WITH TIME ZONE",
        DataType::Timestamp(TimeUnit::Second, None) => "TIMESTAMP_S",
        DataType::Timestamp(TimeUnit::Millisecond, None) => "TIMESTAMP_MS",
        DataType::Timestamp(TimeUnit::Microsecond, None) => "TIMESTAMP",
        DataType::Timestamp(TimeUnit::Nanosecond, None) => "TIMESTAMP_NS",
        DataType::Interval(IntervalUnit::YearMonth | IntervalUnit::DayTime | IntervalUnit::MonthDayNano)
        | DataType::Duration(_) => "INTERVAL",
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => return format!("DECIMAL({precision},{scale})"),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field) => return format!("{}[]", sql_type(field.data_type())),
        DataType::FixedSizeList(field, length) => {
            return format!("{}[{length}]", sql_type(field.data_type()));
        }
        DataType::Struct(fields) => return format!("STRUCT({})", named(fields.iter().map(AsRef::as_ref))),
        DataType::Union(fields, _) => {
            return format!("UNION({})", named(fields.iter().map(|(_, field)| field.as_ref())));
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => {
                let types: Vec<_> = fields.iter().map(|field| sql_type(field.data_type())).collect();
                return format!("MAP({})", types.join(", "));
            }
            _ => "MAP",
        },
        DataType::Dictionary(_, values) => return sql_type(values),
        DataType::RunEndEncoded(_, values) => return sql_type(values.data_type()),
    };
    name.to_owned()
}

fn named<'a>(fields: impl Iterator<Item = &'a Field>) -> String {
    let fields = fields.map(|field| format!("{} {}", quoted(field.name()), sql_type(field.data_type())));
    fields.collect::<Vec<_>>().join(", ")
}

/// A name as it must be written to be read back: in quotes where it has other than plain letters.
fn quoted(name: &str) -> String {
    let is_plain = |(position, letter): (usize, char)| {
        letter == '_' || letter.is_ascii_alphabetic() || (position > 0 && letter.is_ascii_digit())
    };
    match !name.is_empty() && name.chars().enumerate().all(is_plain) {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// `typeof(x)`: the name of the type, also where the value is null.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct TypeOf {
    signature: Signature,
    aliases: Vec<String>,
}

impl TypeOf {
    pub(crate) fn new() -> Self {
        let signature = Signature::new(TypeSignature::Any(1), Volatility::Immutable);
        TypeOf { signature, aliases: vec!["pg_typeof".to_owned()] }
    }
}

impl ScalarUDFImpl for TypeOf {
    fn name(&self) -> &str {
        "typeof"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(field) = call.arg_fields.first() else { return exec_err!("typeof takes one argument") };
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8View(Some(sql_type(field.data_type())))))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::Fields;

    use super::*;

    #[test]
    fn types_are_named_as_they_are_declared() {
        let list = |of: DataType| DataType::List(Arc::new(Field::new_list_field(of, true)));
        let fields = Fields::from(vec![
            Field::new("a", DataType::Int32, true),
            Field::new("b c", list(DataType::Utf8View), true),
            Field::new("d\"", DataType::Float64, true),
        ]);
        let entries = Fields::from(vec![
            Field::new("keys", DataType::Utf8, false),
            Field::new("values", DataType::Int64, true),
        ]);
        let map = DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries), false)), false);
        for (data_type, name) in [
            (DataType::Int32, "INTEGER"),
            (DataType::UInt8, "UTINYINT"),
            (DataType::Utf8View, "VARCHAR"),
            (DataType::Decimal128(18, 3), "DECIMAL(18,3)"),
            (list(list(DataType::Int32)), "INTEGER[][]"),
            (DataType::FixedSizeList(Arc::new(Field::new("x", DataType::Float32, true)), 3), "FLOAT[3]"),
            (DataType::Struct(fields), "STRUCT(a INTEGER, \"b c\" VARCHAR[], \"d\"\"\" DOUBLE)"),
            (map, "MAP(VARCHAR, BIGINT)"),
            (DataType::Timestamp(TimeUnit::Microsecond, None), "TIMESTAMP"),
            (DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), "TIMESTAMP WITH TIME ZONE"),
            (DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)), "VARCHAR"),
            (DataType::Null, "\"NULL\""),
        ] {
            assert_eq!(sql_type(&data_type), name);
        }
    }
}
