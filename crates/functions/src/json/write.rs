//! Functions that make JSON of values, or other JSON of it: `to_json(x)`, `json_object('a', 1)`, `json_pretty(json)`.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::builder::{BooleanBuilder, StringViewBuilder};
use arrow::array::{Array as _, ArrayRef, AsArray as _};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, exec_err, internal_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::encode::{JsonEncoder, TimeFormats, write_text};
use super::value::Json;
use super::{is_json, json_field, parse, structure};
use crate::function::{element, list_of};
use crate::types::sql_type;

/// The arguments of a call: values, and how they are written.
struct Given<'a> {
    values: &'a [ArrayRef],
    fields: &'a [FieldRef],
    rows: usize,
}

impl Given<'_> {
    fn encoders(&self) -> Result<Vec<JsonEncoder>> {
        let all = self.fields.iter().zip(self.values);
        all.map(|(field, values)| JsonEncoder::new(field, values, &TimeFormats::default())).collect()
    }

    fn text(&self, argument: usize, row: usize) -> Option<&str> {
        let texts = self.values.get(argument)?.as_string_view_opt()?;
        texts.is_valid(row).then(|| texts.value(row))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    Texts(usize),
    Anything(usize),
    Any,
    /// Names and values in turn.
    Pairs,
    /// A list of texts.
    List,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gives {
    Json,
    Text,
    Boolean,
}

type Compute = fn(&Given<'_>, usize, &[JsonEncoder]) -> Result<Option<String>>;

struct Writer {
    names: &'static [&'static str],
    takes: Takes,
    gives: Gives,
    /// The text of a row; of booleans, `true` or `false`.
    compute: Compute,
}

static WRITERS: &[Writer] = &[
    Writer {
        names: &["to_json", "json_quote", "row_to_json", "array_to_json"],
        takes: Takes::Anything(1),
        gives: Gives::Json,
        compute: |_, row, encoders| Ok(encoders.first().and_then(|encoder| encoded(encoder, row))),
    },
    Writer {
        names: &["json_array"],
        takes: Takes::Any,
        gives: Gives::Json,
        compute: |_, row, encoders| {
            let mut out = "[".to_owned();
            for (place, encoder) in encoders.iter().enumerate() {
                out.push_str(if place > 0 { "," } else { "" });
                encoder.write(row, &mut out);
            }
            Ok(Some(out + "]"))
        },
    },
    Writer {
        names: &["json_object"],
        takes: Takes::Pairs,
        gives: Gives::Json,
        compute: |given, row, encoders| {
            let mut out = "{".to_owned();
            for (place, encoder) in encoders.iter().enumerate() {
                if place % 2 == 1 {
                    encoder.write(row, &mut out);
                    continue;
                }
                let Some(name) = given.text(place, row) else {
                    return exec_err!("a name in json_object(name, value, …) is null");
                };
                out.push_str(if place > 0 { "," } else { "" });
                write_text(name, &mut out);
                out.push(':');
            }
            Ok(Some(out + "}"))
        },
    },
    // What aggregates to objects and lists is made of, beside `array_agg`.
    Writer {
        names: &["json_member"],
        takes: Takes::Pairs,
        gives: Gives::Text,
        compute: |given, row, encoders| {
            let Some(name) = given.text(0, row) else {
                return exec_err!("a name in json_group_object(name, value) is null");
            };
            let mut out = String::new();
            write_text(name, &mut out);
            out.push(':');
            if let Some(encoder) = encoders.get(1) {
                encoder.write(row, &mut out);
            }
            Ok(Some(out))
        },
    },
    Writer {
        names: &["json_list_of"],
        takes: Takes::List,
        gives: Gives::Json,
        compute: |given, row, _| Ok(joined(given, row, "[", "]")),
    },
    Writer {
        names: &["json_object_of"],
        takes: Takes::List,
        gives: Gives::Json,
        compute: |given, row, _| Ok(joined(given, row, "{", "}")),
    },
    Writer {
        names: &["json"],
        takes: Takes::Texts(1),
        gives: Gives::Json,
        compute: |given, row, _| Ok(tree(given, 0, row)?.map(|json| json.to_text())),
    },
    Writer {
        names: &["json_of"],
        takes: Takes::Anything(1),
        gives: Gives::Json,
        compute: |given, row, encoders| match text_of(given, row) {
            Some(text) => parse(text).map(|_| Some(text.to_owned())),
            None => Ok(encoders.first().and_then(|encoder| encoded(encoder, row))),
        },
    },
    Writer {
        names: &["try_json_of"],
        takes: Takes::Anything(1),
        gives: Gives::Json,
        compute: |given, row, encoders| match text_of(given, row) {
            Some(text) => Ok(Json::parse(text).ok().map(|_| text.to_owned())),
            None => Ok(encoders.first().and_then(|encoder| encoded(encoder, row))),
        },
    },
    Writer {
        names: &["json_valid"],
        takes: Takes::Texts(1),
        gives: Gives::Boolean,
        compute: |given, row, _| Ok(given.text(0, row).map(|text| Json::parse(text).is_ok().to_string())),
    },
    Writer {
        names: &["json_pretty"],
        takes: Takes::Texts(1),
        gives: Gives::Text,
        compute: |given, row, _| {
            Ok(tree(given, 0, row)?.map(|json| {
                let mut out = String::new();
                json.write_pretty(0, &mut out);
                out
            }))
        },
    },
    Writer {
        names: &["json_structure"],
        takes: Takes::Texts(1),
        gives: Gives::Json,
        compute: |given, row, _| Ok(tree(given, 0, row)?.map(|json| structure::of(&json).to_text())),
    },
    Writer {
        names: &["json_merge_patch"],
        takes: Takes::Texts(2),
        gives: Gives::Json,
        compute: |given, row, _| {
            Ok(match (tree(given, 0, row)?, tree(given, 1, row)?) {
                (Some(json), Some(patch)) => Some(json.merge(patch).to_text()),
                _ => None,
            })
        },
    },
    Writer {
        names: &["json_contains"],
        takes: Takes::Texts(2),
        gives: Gives::Boolean,
        compute: |given, row, _| {
            Ok(match (tree(given, 0, row)?, tree(given, 1, row)?) {
                (Some(json), Some(other)) => Some(json.contains(&other).to_string()),
                _ => None,
            })
        },
    },
];

fn encoded(encoder: &JsonEncoder, row: usize) -> Option<String> {
    if encoder.is_null(row) {
        return None;
    }
    let mut out = String::new();
    encoder.write(row, &mut out);
    Some(out)
}

fn tree(given: &Given<'_>, argument: usize, row: usize) -> Result<Option<Json>> {
    given.text(argument, row).map(parse).transpose()
}

/// The text that is to be JSON; none if the value is not a text, or known to be JSON.
fn text_of<'a>(given: &'a Given<'_>, row: usize) -> Option<&'a str> {
    given.text(0, row).filter(|_| !given.fields.first().is_some_and(|field| is_json(field)))
}

/// The texts of a list, of which those that are null stand for null.
fn joined(given: &Given<'_>, row: usize, begin: &str, end: &str) -> Option<String> {
    let lists = given.values.first()?.as_list_opt::<i32>().filter(|lists| lists.is_valid(row))?;
    let texts = lists.value(row);
    let texts = texts.as_string_view_opt()?;
    let mut out = begin.to_owned();
    for (place, text) in texts.iter().enumerate() {
        out.push_str(if place > 0 { "," } else { "" });
        out.push_str(text.unwrap_or("null"));
    }
    out.push_str(end);
    Some(out)
}

pub(super) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    WRITERS.iter().map(|writer| {
        let aliases = writer.names.iter().skip(1).map(|&name| name.to_owned()).collect();
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(JsonWriter { writer, aliases, signature }))
    })
}

struct JsonWriter {
    writer: &'static Writer,
    aliases: Vec<String>,
    signature: Signature,
}

impl std::fmt::Debug for JsonWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JsonWriter").field("name", &self.name()).finish()
    }
}

impl PartialEq for JsonWriter {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for JsonWriter {}

impl Hash for JsonWriter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl JsonWriter {
    fn usage(&self) -> String {
        let name = self.name();
        match self.writer.takes {
            Takes::Texts(1) => format!("{name}(JSON)"),
            Takes::Texts(_) => format!("{name}(JSON, JSON)"),
            Takes::Anything(_) => format!("{name}(ANY)"),
            Takes::Any => format!("{name}(ANY, …)"),
            Takes::Pairs => format!("{name}('name', ANY, …)"),
            Takes::List => format!("{name}(VARCHAR[])"),
        }
    }

    fn accepted(&self, given: &[DataType]) -> Option<Vec<DataType>> {
        let text = |of: &DataType| (of.is_string() || of.is_null()).then_some(DataType::Utf8View);
        let plain = |of: &DataType| if of.is_string() { DataType::Utf8View } else { of.clone() };
        match self.writer.takes {
            Takes::Texts(count) if given.len() == count => given.iter().map(text).collect(),
            Takes::Anything(count) if given.len() == count => Some(given.iter().map(plain).collect()),
            Takes::Any => Some(given.iter().map(plain).collect()),
            Takes::Pairs if given.len().is_multiple_of(2) => given
                .iter()
                .enumerate()
                .map(|(place, of)| if place % 2 == 0 { text(of) } else { Some(plain(of)) })
                .collect(),
            Takes::List if given.len() == 1 => {
                let of = given.first()?;
                let is_list = of.is_null() || element(of).is_some_and(|of| text(of).is_some());
                is_list.then(|| vec![list_of(DataType::Utf8View)])
            }
            _ => None,
        }
    }
}

impl ScalarUDFImpl for JsonWriter {
    fn name(&self) -> &str {
        self.writer.names.first().copied().unwrap_or_default()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let Some(types) = self.accepted(given) else {
            let given: Vec<_> = given.iter().map(sql_type).collect();
            return plan_err!("{}({}) does not exist; write {}", self.name(), given.join(", "), self.usage());
        };
        Ok(types)
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.writer.gives {
            Gives::Json | Gives::Text => DataType::Utf8View,
            Gives::Boolean => DataType::Boolean,
        })
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> Result<FieldRef> {
        Ok(match self.writer.gives {
            Gives::Json => json_field(self.name()),
            Gives::Text => Arc::new(Field::new(self.name(), DataType::Utf8View, true)),
            Gives::Boolean => Arc::new(Field::new(self.name(), DataType::Boolean, true)),
        })
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = call.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { call.number_rows };
        let values = call.args.iter().map(|value| value.to_array(rows)).collect::<Result<Vec<_>>>()?;
        let given = Given { values: &values, fields: &call.arg_fields, rows };
        let encoders = match self.writer.takes {
            Takes::Texts(_) | Takes::List => Vec::new(),
            Takes::Anything(_) | Takes::Any | Takes::Pairs => given.encoders()?,
        };
        let text = |row| (self.writer.compute)(&given, row, &encoders);
        let computed: ArrayRef = match self.writer.gives {
            Gives::Json | Gives::Text => {
                let mut texts = StringViewBuilder::with_capacity(given.rows);
                for row in 0..given.rows {
                    texts.append_option(text(row)?);
                }
                Arc::new(texts.finish())
            }
            Gives::Boolean => {
                let mut flags = BooleanBuilder::with_capacity(given.rows);
                for row in 0..given.rows {
                    flags.append_option(text(row)?.map(|flag| flag == "true"));
                }
                Arc::new(flags.finish())
            }
        };
        if computed.len() != rows {
            return internal_err!("a function made {} rows of {rows}", computed.len());
        }
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&computed, 0)?),
            false => ColumnarValue::Array(computed),
        })
    }
}
