//! Functions that read JSON: `json_extract(json, path)`, `json_type`, `json_keys` and so on.
//!
//! A path is a text or the number of an element. A list of paths makes a list of answers, and so does a path with a wildcard,
//! which is a constant then.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::builder::{BooleanBuilder, ListBuilder, StringViewBuilder, UInt64Builder};
use arrow::array::{Array as _, ArrayRef, AsArray as _, ListArray, new_null_array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::path::Path;
use super::value::Json;
use super::{json_field, parse};
use crate::function::{element, invoke, list_of};
use crate::types::sql_type;

/// What is said of a value.
enum Answer {
    Text(String),
    Boolean(bool),
    Count(u64),
    Texts(Vec<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Json,
    Text,
    Boolean,
    Count,
    Texts,
}

impl Kind {
    fn data_type(self) -> DataType {
        match self {
            Kind::Json | Kind::Text => DataType::Utf8View,
            Kind::Boolean => DataType::Boolean,
            Kind::Count => DataType::UInt64,
            Kind::Texts => list_of(DataType::Utf8View),
        }
    }

    fn array(self, answers: Vec<Option<Answer>>) -> ArrayRef {
        match self {
            Kind::Json | Kind::Text => {
                let mut texts = StringViewBuilder::with_capacity(answers.len());
                for answer in answers {
                    texts.append_option(match answer {
                        Some(Answer::Text(text)) => Some(text),
                        _ => None,
                    });
                }
                Arc::new(texts.finish())
            }
            Kind::Boolean => {
                let mut flags = BooleanBuilder::with_capacity(answers.len());
                for answer in answers {
                    flags.append_option(match answer {
                        Some(Answer::Boolean(flag)) => Some(flag),
                        _ => None,
                    });
                }
                Arc::new(flags.finish())
            }
            Kind::Count => {
                let mut counts = UInt64Builder::with_capacity(answers.len());
                for answer in answers {
                    counts.append_option(match answer {
                        Some(Answer::Count(count)) => Some(count),
                        _ => None,
                    });
                }
                Arc::new(counts.finish())
            }
            Kind::Texts => {
                let mut lists = ListBuilder::new(StringViewBuilder::new());
                for answer in answers {
                    lists.append_option(match answer {
                        Some(Answer::Texts(texts)) => Some(texts.into_iter().map(Some)),
                        _ => None,
                    });
                }
                Arc::new(lists.finish())
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Reader {
    /// Its name, then others that it has.
    names: &'static [&'static str],
    kind: Kind,
    /// Whether it can be asked without a path.
    of_all: bool,
    read: fn(Option<&Json>) -> Option<Answer>,
}

static READERS: &[Reader] = &[
    Reader {
        names: &["json_extract", "json_extract_path"],
        kind: Kind::Json,
        of_all: false,
        read: |found| found.map(|value| Answer::Text(value.to_text())),
    },
    Reader {
        names: &["json_extract_string", "json_extract_path_text"],
        kind: Kind::Text,
        of_all: false,
        read: |found| found.and_then(|value| value.clone().into_plain()).map(Answer::Text),
    },
    Reader {
        names: &["json_value"],
        kind: Kind::Json,
        of_all: false,
        read: |found| match found? {
            Json::Null | Json::List(_) | Json::Object(_) => None,
            value => Some(Answer::Text(value.to_text())),
        },
    },
    Reader {
        names: &["json_exists"],
        kind: Kind::Boolean,
        of_all: false,
        read: |found| Some(Answer::Boolean(found.is_some())),
    },
    Reader {
        names: &["json_type"],
        kind: Kind::Text,
        of_all: true,
        read: |found| found.map(|value| Answer::Text(value.type_name().to_owned())),
    },
    Reader {
        names: &["json_array_length"],
        kind: Kind::Count,
        of_all: true,
        read: |found| {
            found.map(|value| match value {
                Json::List(values) => Answer::Count(values.len() as u64),
                _ => Answer::Count(0),
            })
        },
    },
    Reader {
        names: &["json_keys"],
        kind: Kind::Texts,
        of_all: true,
        read: |found| {
            found.map(|value| match value {
                Json::Object(members) => {
                    Answer::Texts(members.iter().map(|(name, _)| name.clone()).collect())
                }
                _ => Answer::Texts(Vec::new()),
            })
        },
    },
];

pub(super) fn functions() -> impl Iterator<Item = Arc<ScalarUDF>> {
    READERS.iter().map(|reader| {
        let aliases = reader.names.iter().skip(1).map(|&name| name.to_owned()).collect();
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(JsonReader { reader, aliases, signature }))
    })
}

/// The place in JSON that a row asks for.
enum Asked {
    One(Path),
    All(Path),
    Each(Vec<Option<Path>>),
}

#[derive(Debug)]
struct JsonReader {
    reader: &'static Reader,
    aliases: Vec<String>,
    signature: Signature,
}

impl PartialEq for JsonReader {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for JsonReader {}

impl Hash for JsonReader {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl JsonReader {
    fn usage(&self) -> String {
        let name = self.name();
        let alone = if self.reader.of_all { format!("{name}(JSON) or ") } else { String::new() };
        format!("{alone}{name}(JSON, '$.path') or {name}(JSON, index)")
    }

    fn read(&self, found: Option<&Json>) -> Option<Answer> {
        (self.reader.read)(found)
    }

    fn compute(&self, given: &[ArrayRef], returned: &DataType) -> Result<ArrayRef> {
        let Some(texts) = given.first() else { return plan_err!("write {}", self.usage()) };
        let texts = texts.as_string_view();
        let plain_paths = given.get(1).filter(|paths| paths.data_type().is_string());
        let plain_paths = plain_paths.map(|paths| cast(paths, &DataType::Utf8View)).transpose()?;
        let paths = plain_paths.as_ref().or(given.get(1));
        if paths.is_some_and(|paths| paths.data_type().is_null()) {
            return Ok(new_null_array(returned, texts.len()));
        }
        let is_list = element(returned).is_some() && *returned != self.reader.kind.data_type();
        let is_list = is_list || element(returned).is_some_and(|of| element(of).is_some());
        let mut known: Option<(String, Path)> = None;
        let mut answers = Vec::with_capacity(texts.len());
        let mut offsets = vec![0_i32];
        let mut valid = Vec::with_capacity(texts.len());
        for row in 0..texts.len() {
            let asked = match paths {
                None => Some(Asked::One(Path::root())),
                Some(paths) => asked(paths, row, &mut known)?,
            };
            let asked = asked.filter(|_| texts.is_valid(row));
            valid.push(asked.is_some());
            let json = match &asked {
                Some(_) => Some(parse(texts.value(row))?),
                None => None,
            };
            match (asked, &json) {
                (Some(Asked::One(path)), Some(json)) => answers.push(self.read(path.find(json))),
                (Some(Asked::All(path)), Some(json)) if is_list => {
                    answers.extend(path.find_all(json).into_iter().map(|value| self.read(Some(value))));
                }
                (Some(Asked::All(_)), _) => {
                    return exec_err!("a path with a wildcard is a constant; it gives a list");
                }
                (Some(Asked::Each(paths)), Some(json)) => answers.extend(
                    paths.iter().map(|path| path.as_ref().and_then(|path| self.read(path.find(json)))),
                ),
                _ if is_list => {}
                _ => answers.push(None),
            }
            offsets.push(answers.len() as i32);
        }
        let values = self.reader.kind.array(answers);
        if !is_list {
            return Ok(values);
        }
        let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
        let nulls = NullBuffer::from(valid);
        Ok(Arc::new(ListArray::try_new(field, OffsetBuffer::new(offsets.into()), values, Some(nulls))?))
    }
}

/// What a row of the paths asks for; `known` is the path of the row before.
fn asked(paths: &ArrayRef, row: usize, known: &mut Option<(String, Path)>) -> Result<Option<Asked>> {
    if paths.is_null(row) {
        return Ok(None);
    }
    if let Some(places) = paths.as_primitive_opt::<Int64Type>() {
        return Ok(Some(Asked::One(Path::element(places.value(row)))));
    }
    if let Some(lists) = paths.as_list_opt::<i32>() {
        let texts = lists.value(row);
        let texts = texts.as_string_view();
        let paths = texts.iter().map(|text| text.map(Path::parse).transpose());
        return Ok(Some(Asked::Each(paths.collect::<Result<_>>()?)));
    }
    let text = paths.as_string_view().value(row);
    let path = match known {
        Some((before, path)) if before == text => path.clone(),
        _ => {
            let path = Path::parse(text)?;
            *known = Some((text.to_owned(), path.clone()));
            path
        }
    };
    Ok(Some(if path.has_wildcard() { Asked::All(path) } else { Asked::One(path) }))
}

impl ScalarUDFImpl for JsonReader {
    fn name(&self) -> &str {
        self.reader.names.first().copied().unwrap_or_default()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let is_text = |of: &DataType| of.is_string() || of.is_null();
        let types = match given {
            [json] if self.reader.of_all && is_text(json) => Some(vec![DataType::Utf8View]),
            [json, path] if is_text(json) => {
                let path = match path {
                    DataType::Null => Some(DataType::Null),
                    // As it is: a constant in a cast is none while types are found.
                    path if path.is_string() => Some(path.clone()),
                    path if path.is_integer() => Some(DataType::Int64),
                    path if element(path).is_some_and(is_text) => Some(list_of(DataType::Utf8View)),
                    _ => None,
                };
                path.map(|path| vec![DataType::Utf8View, path])
            }
            _ => None,
        };
        let Some(types) = types else {
            let given: Vec<_> = given.iter().map(sql_type).collect();
            return plan_err!("{}({}) does not exist; write {}", self.name(), given.join(", "), self.usage());
        };
        Ok(types)
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.reader.kind.data_type())
    }

    fn return_field_from_args(&self, call: ReturnFieldArgs) -> Result<FieldRef> {
        let of_one = match self.reader.kind {
            Kind::Json => json_field(self.name()),
            kind => Arc::new(Field::new(self.name(), kind.data_type(), true)),
        };
        let has_list = call.arg_fields.get(1).is_some_and(|path| element(path.data_type()).is_some());
        let constant = call.scalar_arguments.get(1).copied().flatten();
        let path = constant.and_then(|path| path.try_as_str().flatten());
        let has_wildcard = match path {
            Some(path) => Path::parse(path)?.has_wildcard(),
            None => false,
        };
        if !has_list && !has_wildcard {
            return Ok(of_one);
        }
        let list = DataType::List(Arc::new(Field::new_list_field(of_one.data_type().clone(), true)));
        Ok(Arc::new(Field::new(self.name(), list, true)))
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        invoke(&call, |given, returned| self.compute(given, returned))
    }
}
