//! Types by the names that DuckDB and Postgres have for them, in any case.
//!
//! | names | type |
//! |---|---|
//! | `TINYINT`, `INT1` … `BIGINT`, `INT8`, `LONG`, `OID`; `UTINYINT`, `UINT8` … `UBIGINT`, `UINT64` | integers of 8 to 64 bits |
//! | `HUGEINT`, `UHUGEINT`, `INT128`, `UINT128` | `DECIMAL(39, 0)`, which has all numbers of 128 bits |
//! | `DECIMAL`, `NUMERIC`, `DEC` | `DECIMAL(18, 3)`, unless digits are said |
//! | `VARCHAR`, `TEXT`, `STRING`, `CHAR`, `BPCHAR`, of any length; `JSON`, `UUID` | text |
//! | `BLOB`, `BYTEA`, `BINARY`, `VARBINARY` | bytes |
//! | `BIT`, `BITSTRING`, `VARBIT` | strings of bits |
//! | `TIMESTAMP`, `DATETIME`, `TIMESTAMPTZ` | microseconds since 1970 |
//! | `TIMETZ`, `TIME WITH TIME ZONE` | times of the day with an offset from UTC |
//! | `TIMESTAMP_S`, `_MS`, `_NS`, `TIME`, `TIME_NS` | times of their units; a `TIME` has nanoseconds |
//! | `VARIANT`; `UNION(a INT, b TEXT)` | a value that says its type; one of several members |
//! | `INT[]`, `INT[3]`, `STRUCT(a INT)`, `ROW(a INT)`, `MAP(k, v)` | nested types |

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Field, FieldRef, Fields, IntervalUnit,
    TimeUnit,
};
use datafusion::common::{Result, not_impl_err, plan_err};
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, DataType as SqlType, EnumMember, ExactNumberInfo, Ident, StructField, TimezoneInfo,
    UnionField,
};

use crate::casts::bits::bit_type;
use crate::casts::enums::enum_type;
use crate::casts::huge_integers::HUGE;
use crate::casts::offset_times::timetz_type;
use crate::casts::unions::union_type;
use crate::variants::variant_type;

/// Digits of a decimal that says none, and how many of them stand behind the point.
const USUAL_DIGITS: (u64, i64) = (18, 3);
/// Digits of a floating-point number of 32 bits, in the bits that Postgres counts.
const BITS_OF_REAL: u64 = 24;
/// The zone of a session, as long as it cannot be set.
pub(crate) const SESSION_ZONE: &str = "+00:00";

/// Types that statements have made, by their names in small letters.
#[derive(Debug, Default)]
pub struct OwnTypes(RwLock<BTreeMap<String, DataType>>);

impl OwnTypes {
    pub fn get(&self, name: &str) -> Option<DataType> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&name.to_lowercase()).cloned()
    }

    /// Makes a type known, or forgets it.
    pub fn set(&self, name: &str, data_type: Option<DataType>) {
        let mut types = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match data_type {
            Some(data_type) => types.insert(name.to_lowercase(), data_type),
            None => types.remove(&name.to_lowercase()),
        };
    }
}

/// Knows the names of types.
#[derive(Debug)]
pub struct TypeNames(pub Arc<OwnTypes>);

impl TypePlanner for TypeNames {
    fn plan_type_field(&self, sql_type: &SqlType) -> Result<Option<FieldRef>> {
        type_of(sql_type, &self.0).map(|data_type| Some(Arc::new(Field::new("", data_type, true))))
    }
}

/// The type that a name says, which may be one that a statement has made.
pub fn type_of(name: &SqlType, own: &OwnTypes) -> Result<DataType> {
    let named = |name: &SqlType| type_of(name, own);
    Ok(match name {
        SqlType::Boolean | SqlType::Bool => DataType::Boolean,
        SqlType::TinyInt(_) => DataType::Int8,
        SqlType::SmallInt(_) | SqlType::Int2(_) | SqlType::Int16 => DataType::Int16,
        SqlType::Int(_) | SqlType::Integer(_) | SqlType::Int4(_) | SqlType::Int32 | SqlType::MediumInt(_) => {
            DataType::Int32
        }
        SqlType::BigInt(_) | SqlType::Int8(_) | SqlType::Int64 | SqlType::Signed | SqlType::SignedInteger => {
            DataType::Int64
        }
        SqlType::UTinyInt | SqlType::TinyIntUnsigned(_) | SqlType::UInt8 => DataType::UInt8,
        SqlType::USmallInt | SqlType::SmallIntUnsigned(_) | SqlType::Int2Unsigned(_) | SqlType::UInt16 => {
            DataType::UInt16
        }
        SqlType::IntUnsigned(_)
        | SqlType::IntegerUnsigned(_)
        | SqlType::Int4Unsigned(_)
        | SqlType::MediumIntUnsigned(_)
        | SqlType::UInt32 => DataType::UInt32,
        SqlType::UBigInt
        | SqlType::BigIntUnsigned(_)
        | SqlType::Int8Unsigned(_)
        | SqlType::Unsigned
        | SqlType::UnsignedInteger
        | SqlType::UInt64 => DataType::UInt64,
        SqlType::HugeInt | SqlType::Int128 | SqlType::UHugeInt | SqlType::UInt128 => HUGE,
        SqlType::Float(ExactNumberInfo::Precision(bits)) if *bits > BITS_OF_REAL => DataType::Float64,
        SqlType::Float(_) | SqlType::Real | SqlType::Float4 | SqlType::Float32 => DataType::Float32,
        SqlType::Double(_) | SqlType::DoublePrecision | SqlType::Float8 | SqlType::Float64 => {
            DataType::Float64
        }
        SqlType::Numeric(digits) | SqlType::Decimal(digits) | SqlType::Dec(digits) => decimal(digits)?,
        SqlType::Varchar(_)
        | SqlType::Nvarchar(_)
        | SqlType::Char(_)
        | SqlType::Character(_)
        | SqlType::CharVarying(_)
        | SqlType::CharacterVarying(_)
        | SqlType::Text
        | SqlType::String(_)
        | SqlType::Clob(_)
        | SqlType::Uuid
        | SqlType::JSON => DataType::Utf8View,
        SqlType::Bytea
        | SqlType::Blob(_)
        | SqlType::Binary(_)
        | SqlType::Varbinary(_)
        | SqlType::Bytes(_) => DataType::Binary,
        SqlType::Bit(_) | SqlType::BitVarying(_) | SqlType::VarBit(_) => bit_type(),
        SqlType::Date | SqlType::Date32 => DataType::Date32,
        SqlType::Time(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            DataType::Time64(TimeUnit::Nanosecond)
        }
        SqlType::Time(_, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone) => timetz_type(),
        SqlType::Timestamp(digits, zone) => {
            let has_zone = matches!(zone, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone);
            DataType::Timestamp(unit(*digits)?, has_zone.then(|| SESSION_ZONE.into()))
        }
        SqlType::Datetime(digits) | SqlType::TimestampNtz(digits) => {
            DataType::Timestamp(unit(*digits)?, None)
        }
        SqlType::Interval { fields: None, precision: None } => DataType::Interval(IntervalUnit::MonthDayNano),
        SqlType::Array(
            ArrayElemTypeDef::AngleBracket(element) | ArrayElemTypeDef::SquareBracket(element, None),
        ) => DataType::new_list(named(element)?, true),
        SqlType::Array(ArrayElemTypeDef::SquareBracket(element, Some(length))) => {
            let Some(length) = i32::try_from(*length).ok().filter(|&length| length > 0) else {
                return plan_err!("{name} has no length that an array can have; write INT[3] or INT[]");
            };
            DataType::new_fixed_size_list(named(element)?, length, true)
        }
        SqlType::Struct(fields, _) => structure(fields, own)?,
        SqlType::Enum(members, None) => {
            let texts = members.iter().map(|member| match member {
                EnumMember::Name(text) => Ok(text.as_str()),
                EnumMember::NamedValue(text, _) => plan_err!("'{text}' of an ENUM has a number of its own"),
            });
            enum_type(&texts.collect::<Result<Vec<_>>>()?)?
        }
        SqlType::Union(members) => {
            let member =
                |member: &UnionField| Ok((normalized(&member.field_name), named(&member.field_type)?));
            union_type(members.iter().map(member).collect::<Result<_>>()?)?
        }
        SqlType::Map(key, value) => map(named(key)?, named(value)?),
        SqlType::Custom(custom, modifiers) => {
            let last = custom.0.last().and_then(|part| part.as_ident());
            let known = |last: &Ident| of_word(&last.value, modifiers).or_else(|| own.get(&last.value));
            match last.and_then(known) {
                Some(data_type) => data_type,
                None => return plan_err!("there is no type {custom}"),
            }
        }
        other => return not_impl_err!("the type {other} is not supported"),
    })
}

/// Types that the parser has no word for.
fn of_word(word: &str, modifiers: &[String]) -> Option<DataType> {
    Some(match (word.to_ascii_lowercase().as_str(), modifiers) {
        ("int1", []) => DataType::Int8,
        ("short", []) => DataType::Int16,
        ("integral" | "int32", []) => DataType::Int32,
        ("long" | "oid", []) => DataType::Int64,
        ("uinteger", []) => DataType::UInt32,
        ("logical", []) => DataType::Boolean,
        ("null", []) => DataType::Null,
        ("variant", []) => variant_type(),
        ("float", []) => DataType::Float32,
        ("bpchar" | "text" | "string", _) | ("guid" | "json", []) => DataType::Utf8View,
        ("bitstring", _) => bit_type(),
        ("timestamp_s", []) => DataType::Timestamp(TimeUnit::Second, None),
        ("timestamp_ms", []) => DataType::Timestamp(TimeUnit::Millisecond, None),
        ("timestamp_us", []) => DataType::Timestamp(TimeUnit::Microsecond, None),
        ("timestamp_ns", []) => DataType::Timestamp(TimeUnit::Nanosecond, None),
        ("timestamptz_ns", []) => DataType::Timestamp(TimeUnit::Nanosecond, Some(SESSION_ZONE.into())),
        ("time_ns", []) => DataType::Time64(TimeUnit::Nanosecond),
        _ => return None,
    })
}

fn decimal(digits: &ExactNumberInfo) -> Result<DataType> {
    let (precision, scale) = match *digits {
        ExactNumberInfo::None => USUAL_DIGITS,
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    let of_scale = u8::try_from(precision).ok().zip(i8::try_from(scale).ok());
    let Some((precision, scale)) =
        of_scale.filter(|&(precision, scale)| scale >= 0 && scale.unsigned_abs() <= precision)
    else {
        return plan_err!("DECIMAL({precision}, {scale}) has more digits behind the point than in all");
    };
    match precision {
        1..=DECIMAL128_MAX_PRECISION => Ok(DataType::Decimal128(precision, scale)),
        ..=DECIMAL256_MAX_PRECISION if precision > 0 => Ok(DataType::Decimal256(precision, scale)),
        _ => plan_err!("DECIMAL({precision}, {scale}): a decimal has 1 to {DECIMAL256_MAX_PRECISION} digits"),
    }
}

fn unit(digits_of_seconds: Option<u64>) -> Result<TimeUnit> {
    Ok(match digits_of_seconds {
        Some(0) => TimeUnit::Second,
        Some(1..=3) => TimeUnit::Millisecond,
        None | Some(4..=6) => TimeUnit::Microsecond,
        Some(7..=9) => TimeUnit::Nanosecond,
        Some(more) => {
            return plan_err!("TIMESTAMP({more}): the seconds of a timestamp have 9 digits at most");
        }
    })
}

/// A struct; fields without names are called after their places.
fn structure(fields: &[StructField], own: &OwnTypes) -> Result<DataType> {
    let mut names = std::collections::HashSet::new();
    let fields = fields.iter().enumerate().map(|(place, field)| {
        let name = field.field_name.as_ref().map_or_else(|| format!("c{place}"), normalized);
        if !names.insert(name.to_lowercase()) {
            return plan_err!("two fields of a STRUCT are called {name}");
        }
        Ok(Field::new(name, type_of(&field.field_type, own)?, true))
    });
    Ok(DataType::Struct(fields.collect::<Result<Fields>>()?))
}

/// A name as the planner knows it.
fn normalized(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}

/// A map, with the names that DataFusion's functions give to its parts.
fn map(key: DataType, value: DataType) -> DataType {
    let entries = Fields::from(vec![Field::new("key", key, false), Field::new("value", value, true)]);
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries), false)), false)
}
