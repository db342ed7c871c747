//! Types of columns and the values that stand in them, as SQL of either engine.

use crate::random::Random;

/// Whose SQL is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Nandina,
    DuckDb,
}

/// The type of a column or an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    Boolean,
    Integer { bits: u8, signed: bool },
    Float,
    Double,
    Decimal { precision: u8, scale: u8 },
    Text,
    Binary,
    Date,
    Time,
    Timestamp,
    List(Box<Type>),
    Struct(Vec<(&'static str, Type)>),
}

pub const INT: Type = Type::Integer { bits: 32, signed: true };
pub const BIGINT: Type = Type::Integer { bits: 64, signed: true };

/// Types whose values can be compared with each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Family {
    Boolean,
    Number,
    Text,
    Binary,
    Date,
    Time,
    Timestamp,
    Nested(Type),
}

impl Type {
    pub fn family(&self) -> Family {
        match self {
            Type::Boolean => Family::Boolean,
            Type::Integer { .. } | Type::Float | Type::Double | Type::Decimal { .. } => Family::Number,
            Type::Text => Family::Text,
            Type::Binary => Family::Binary,
            Type::Date => Family::Date,
            Type::Time => Family::Time,
            Type::Timestamp => Family::Timestamp,
            Type::List(_) | Type::Struct(_) => Family::Nested(self.clone()),
        }
    }

    pub fn is_nested(&self) -> bool {
        matches!(self, Type::List(_) | Type::Struct(_))
    }

    pub fn is_number(&self) -> bool {
        self.family() == Family::Number
    }

    /// Integers that 64 bits still hold when a few are multiplied or many are added.
    pub fn is_small_integer(&self) -> bool {
        matches!(self, Type::Integer { bits: 8 | 16, .. } | Type::Integer { bits: 32, signed: true })
    }

    /// Numbers whose sums are the same in any order.
    pub fn adds_exactly(&self) -> bool {
        self.is_small_integer() || matches!(self, Type::Decimal { precision: 0..=18, .. })
    }

    pub fn sql(&self, dialect: Dialect) -> String {
        match self {
            Type::Boolean => "BOOLEAN".to_owned(),
            Type::Integer { bits, signed } => {
                let name = match bits {
                    8 => "TINYINT",
                    16 => "SMALLINT",
                    32 => "INTEGER",
                    _ => "BIGINT",
                };
                match (signed, dialect) {
                    (true, _) => name.to_owned(),
                    (false, Dialect::Nandina) => format!("{name} UNSIGNED"),
                    (false, Dialect::DuckDb) => format!("U{name}"),
                }
            }
            Type::Float => "REAL".to_owned(),
            Type::Double => "DOUBLE".to_owned(),
            Type::Decimal { precision, scale } => format!("DECIMAL({precision}, {scale})"),
            Type::Text => "VARCHAR".to_owned(),
            Type::Binary => match dialect {
                Dialect::Nandina => "BYTEA".to_owned(),
                Dialect::DuckDb => "BLOB".to_owned(),
            },
            Type::Date => "DATE".to_owned(),
            Type::Time => "TIME".to_owned(),
            Type::Timestamp => "TIMESTAMP".to_owned(),
            Type::List(item) => format!("{}[]", item.sql(dialect)),
            Type::Struct(fields) => {
                let fields: Vec<String> =
                    fields.iter().map(|(name, ty)| format!("{name} {}", ty.sql(dialect))).collect();
                match dialect {
                    Dialect::Nandina => format!("STRUCT<{}>", fields.join(", ")),
                    Dialect::DuckDb => format!("STRUCT({})", fields.join(", ")),
                }
            }
        }
    }
}

/// One value. What is not nested is kept as the text that a cast reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Null,
    Scalar(String),
    List(Vec<Value>),
    Struct(Vec<Value>),
}

impl Value {
    pub fn scalar(text: impl Into<String>) -> Self {
        Value::Scalar(text.into())
    }

    /// As an expression of exactly this type.
    pub fn literal(&self, ty: &Type, dialect: Dialect) -> String {
        match (self, ty) {
            (Value::List(items), Type::List(item)) if !items.is_empty() => {
                let items: Vec<String> = items.iter().map(|value| value.literal(item, dialect)).collect();
                format!("[{}]", items.join(", "))
            }
            (Value::List(_), _) => format!("CAST([] AS {})", ty.sql(dialect)),
            (Value::Struct(values), Type::Struct(fields)) => {
                let field = |((name, ty), value): (&(&str, Type), &Value)| {
                    format!("'{name}': {}", value.literal(ty, dialect))
                };
                let fields: Vec<String> = fields.iter().zip(values).map(field).collect();
                format!("{{{}}}", fields.join(", "))
            }
            (Value::Scalar(text), Type::Boolean) => text.to_uppercase(),
            (Value::Scalar(text), Type::Text) => quoted(text),
            (Value::Scalar(text), Type::Integer { bits: 32, signed: true }) if !text.starts_with('-') => {
                text.clone()
            }
            (Value::Scalar(text), _) => format!("CAST({} AS {})", quoted(text), ty.sql(dialect)),
            _ => format!("CAST(NULL AS {})", ty.sql(dialect)),
        }
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Which rare values a schema has.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rarities {
    /// How many of a hundred values are null.
    pub nulls: usize,
    /// Whether the least and greatest of a type are among them.
    pub has_extremes: bool,
    /// Whether some floating-point numbers are none, or infinite.
    pub has_nan: bool,
    /// Whether some zeros are negative.
    pub has_negative_zero: bool,
}

const TEXTS: [&str; 14] = [
    "",
    "a",
    "b",
    "ab",
    "A",
    "a%",
    "b_c",
    "ü",
    "null",
    "it's",
    " a ",
    "10",
    "a text of more than twelve bytes",
    "a text of more than twelve letters",
];

/// A random value. Few different ones are drawn, so that joins find partners and groups have several rows.
pub fn random_value(random: &mut Random, ty: &Type, rare: &Rarities) -> Value {
    if random.chance(rare.nulls) {
        return Value::Null;
    }
    let is_extreme = rare.has_extremes && random.chance(4);
    match ty {
        Type::Boolean => Value::scalar(random.one_of(["true", "false"])),
        Type::Integer { bits, signed } if is_extreme => {
            let (least, greatest) = if *signed {
                (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
            } else {
                (0, (1i128 << bits) - 1)
            };
            Value::scalar(random.one_of([least, greatest]).to_string())
        }
        Type::Integer { signed, .. } => {
            let number = random.one_of([0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 7, 10, 100]);
            Value::scalar(if *signed && random.chance(15) { -number } else { number }.to_string())
        }
        Type::Float | Type::Double => {
            if rare.has_nan && random.chance(8) {
                return Value::scalar(random.one_of(["NaN", "inf", "-inf"]));
            }
            if rare.has_negative_zero && random.chance(8) {
                return Value::scalar("-0.0");
            }
            // Sums of these are the same in every order, and the same in both widths.
            Value::scalar(
                random.one_of(["0", "1", "1", "2", "3", "0.5", "1.5", "-1", "-2.25", "100", "4096"]),
            )
        }
        Type::Decimal { precision, scale } => {
            if is_extreme {
                let nines = "9".repeat(usize::from(*precision));
                let (whole, fraction) = nines.split_at(usize::from(precision - scale));
                return Value::scalar(format!("{}{whole}.{fraction}", random.one_of(["", "-"])));
            }
            Value::scalar(match *scale {
                0 => random.one_of(["0", "1", "2", "3", "-1"]),
                1 => random.one_of(["0", "1", "2", "1.5", "0.5", "-1"]),
                _ => random.one_of(["0", "1", "2", "1.5", "0.25", "0.01", "-1.5"]),
            })
        }
        Type::Text => Value::scalar(random.one_of(TEXTS)),
        Type::Binary => Value::scalar(random.one_of(["", "a", "b", "ab", "abcdefghijklmnop"])),
        Type::Date => {
            let usual = ["2020-01-01", "2020-01-02", "2020-02-29", "2021-12-31", "1969-12-31"];
            Value::scalar(if is_extreme {
                random.one_of(["0001-01-01", "9999-12-31"])
            } else {
                random.one_of(usual)
            })
        }
        Type::Time => Value::scalar(random.one_of(["00:00:00", "12:30:00", "12:30:00.5", "23:59:59.999999"])),
        Type::Timestamp => {
            let usual = [
                "2020-01-01 00:00:00",
                "2020-01-01 12:00:00",
                "2020-02-29 23:59:59.5",
                "1969-12-31 23:59:59",
                "2021-12-31 00:00:00.000001",
            ];
            Value::scalar(random.one_of(usual))
        }
        Type::List(item) => {
            let length = random.one_of([0, 1, 1, 2, 2, 3]);
            Value::List((0..length).map(|_| random_value(random, item, rare)).collect())
        }
        Type::Struct(fields) => {
            Value::Struct(fields.iter().map(|(_, ty)| random_value(random, ty, rare)).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_with_their_type() {
        let decimal = Type::Decimal { precision: 5, scale: 2 };
        let ty = Type::Struct(vec![("x", INT), ("y", decimal)]);
        let value = Value::Struct(vec![Value::Null, Value::scalar("1.5")]);
        assert_eq!(
            value.literal(&ty, Dialect::Nandina),
            "{'x': CAST(NULL AS INTEGER), 'y': CAST('1.5' AS DECIMAL(5, 2))}"
        );
        let unsigned = Type::Integer { bits: 8, signed: false };
        assert_eq!(unsigned.sql(Dialect::Nandina), "TINYINT UNSIGNED");
        assert_eq!(Type::List(Box::new(unsigned)).sql(Dialect::DuckDb), "UTINYINT[]");
        assert_eq!(Value::scalar("it's").literal(&Type::Text, Dialect::DuckDb), "'it''s'");
    }
}
