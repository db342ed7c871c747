//! Values of options: `read_csv('f', name = value)`, `COPY … (NAME value)`.

use std::fmt;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value};

use crate::error::{Error, Result};

/// What an option is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OptionValue {
    /// `'text'`
    Text(String),
    /// `word`
    Word(String),
    Number(String),
    Flag(bool),
    /// `['a', 'b']`, `(a, b)`
    List(Vec<OptionValue>),
    /// `{'name': value}`
    Map(Vec<(String, OptionValue)>),
    /// `*`
    All,
}

impl OptionValue {
    /// The value of an expression; none where it would have to be computed.
    pub(crate) fn of(expr: &Expr) -> Option<Self> {
        Some(match expr {
            Expr::Value(value) => match &value.value {
                Value::SingleQuotedString(text)
                | Value::EscapedStringLiteral(text)
                | Value::UnicodeStringLiteral(text) => Self::Text(text.clone()),
                Value::DollarQuotedString(text) => Self::Text(text.value.clone()),
                Value::Number(digits, _) => Self::Number(digits.clone()),
                Value::Boolean(flag) => Self::Flag(*flag),
                Value::Null => Self::Word("NULL".to_owned()),
                _ => return None,
            },
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match Self::of(expr)? {
                Self::Number(digits) => Self::Number(format!("-{digits}")),
                _ => return None,
            },
            Expr::Identifier(name) => Self::Word(name.value.clone()),
            Expr::BinaryOp { left, op: BinaryOperator::StringConcat, right } => {
                match (Self::of(left)?, Self::of(right)?) {
                    (Self::Text(left), Self::Text(right)) => Self::Text(left + &right),
                    _ => return None,
                }
            }
            Expr::Nested(inner) => Self::List(vec![Self::of(inner)?]),
            Expr::Tuple(values) => Self::List(values.iter().map(Self::of).collect::<Option<_>>()?),
            Expr::Array(array) => Self::List(array.elem.iter().map(Self::of).collect::<Option<_>>()?),
            Expr::Dictionary(fields) => {
                let field = |field: &datafusion::sql::sqlparser::ast::DictionaryField| {
                    Some((field.key.value.clone(), Self::of(&field.value)?))
                };
                Self::Map(fields.iter().map(field).collect::<Option<_>>()?)
            }
            // `'\xAA'::BLOB`: bytes that are a text are one.
            Expr::Cast { expr, .. } => match Self::of(expr)? {
                Self::Text(text) if !text.contains('\\') => Self::Text(text),
                _ => return None,
            },
            Expr::Map(map) => {
                let entry = |entry: &datafusion::sql::sqlparser::ast::MapEntry| match Self::of(&entry.key)? {
                    Self::Text(key) | Self::Word(key) | Self::Number(key) => {
                        Some((key, Self::of(&entry.value)?))
                    }
                    _ => None,
                };
                Self::Map(map.entries.iter().map(entry).collect::<Option<_>>()?)
            }
            Expr::Wildcard(_) => Self::All,
            _ => return None,
        })
    }

    pub(crate) fn flag(&self, option: &str) -> Result<bool> {
        let word = match self {
            Self::Flag(flag) => return Ok(*flag),
            Self::Text(word) | Self::Word(word) | Self::Number(word) => word.to_lowercase(),
            _ => String::new(),
        };
        match word.as_str() {
            "true" | "on" | "yes" | "1" => Ok(true),
            "false" | "off" | "no" | "0" => Ok(false),
            _ => Err(self.refused(option, "true or false")),
        }
    }

    pub(crate) fn text(&self, option: &str) -> Result<String> {
        match self {
            Self::Text(text) | Self::Word(text) => Ok(text.clone()),
            _ => Err(self.refused(option, "a text")),
        }
    }

    /// One text, or a list of them.
    pub(crate) fn texts(&self, option: &str) -> Result<Vec<String>> {
        match self {
            Self::List(values) => values.iter().map(|value| value.text(option)).collect(),
            value => Ok(vec![value.text(option)?]),
        }
    }

    /// `{'name': 'text'}`
    pub(crate) fn named_texts(&self, option: &str) -> Result<Vec<(String, String)>> {
        match self {
            Self::Map(entries) => {
                entries.iter().map(|(name, value)| Ok((name.clone(), value.text(option)?))).collect()
            }
            _ => Err(self.refused(option, "names and types, as {'id': 'BIGINT'}")),
        }
    }

    /// `{'name': value}` of values as texts.
    pub(crate) fn named_values(&self, option: &str) -> Result<Vec<(String, String)>> {
        let Self::Map(entries) = self else { return Err(self.refused(option, "{'name': 'value'}")) };
        let value = |value: &Self| match value {
            Self::Text(text) | Self::Word(text) | Self::Number(text) => text.clone(),
            other => other.to_string(),
        };
        Ok(entries.iter().map(|(name, of)| (name.clone(), value(of))).collect())
    }

    /// A single byte; none for an empty text.
    pub(crate) fn byte(&self, option: &str) -> Result<Option<u8>> {
        match self.text(option)?.as_bytes() {
            [] => Ok(None),
            [byte] if byte.is_ascii() => Ok(Some(*byte)),
            b"\\t" => Ok(Some(b'\t')),
            _ => Err(self.refused(option, "a single ASCII character")),
        }
    }

    /// A count; none for -1, which stands for all there are.
    pub(crate) fn count(&self, option: &str) -> Result<Option<usize>> {
        match self {
            Self::Number(digits) if digits == "-1" => Ok(None),
            Self::Number(digits) | Self::Text(digits) => {
                digits.parse().map(Some).map_err(|_| self.refused(option, "a count"))
            }
            _ => Err(self.refused(option, "a count")),
        }
    }

    pub(crate) fn refused(&self, option: &str, wanted: &str) -> Error {
        Error::setting(format!("option '{option}' is {wanted}, not {self}"))
    }
}

/// As SQL, which reads as the same value.
impl fmt::Display for OptionValue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write_text(formatter, text),
            Self::Word(word) | Self::Number(word) => formatter.write_str(word),
            Self::Flag(flag) => write!(formatter, "{flag}"),
            Self::All => formatter.write_str("*"),
            Self::List(values) => {
                formatter.write_str("[")?;
                for (place, value) in values.iter().enumerate() {
                    let comma = if place > 0 { ", " } else { "" };
                    write!(formatter, "{comma}{value}")?;
                }
                formatter.write_str("]")
            }
            Self::Map(entries) => {
                formatter.write_str("{")?;
                for (place, (name, value)) in entries.iter().enumerate() {
                    formatter.write_str(if place > 0 { ", " } else { "" })?;
                    write_text(formatter, name)?;
                    write!(formatter, ": {value}")?;
                }
                formatter.write_str("}")
            }
        }
    }
}

fn write_text(formatter: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    write!(formatter, "'{}'", text.replace('\'', "''"))
}
