//! Lists, structs and maps as texts that read as the same values.

use arrow::array::{Array as _, ArrayRef, AsArray as _, StringViewArray, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use datafusion::common::{Result, not_impl_err};

use super::{bits, enums, offset_times, texts, unions};
use crate::types::sql_type;
use crate::variants::{self, is_variant};

pub(super) fn of_values(values: &ArrayRef) -> Result<StringViewArray> {
    let writer = Writer::of(values)?;
    let mut texts = StringViewBuilder::with_capacity(values.len());
    let mut text = String::new();
    for row in 0..values.len() {
        if values.is_null(row) {
            texts.append_null();
            continue;
        }
        text.clear();
        writer.write(row, &mut text);
        texts.append_value(&text);
    }
    Ok(texts.finish())
}

/// Writes the values of an array.
enum Writer {
    Plain(StringViewArray),
    List {
        lists: ArrayRef,
        elements: Box<Writer>,
    },
    Struct {
        structs: ArrayRef,
        names: Option<Vec<String>>,
        fields: Vec<Writer>,
    },
    Map {
        maps: ArrayRef,
        keys: Box<Writer>,
        values: Box<Writer>,
    },
    /// Texts as parts are written.
    Written(StringViewArray),
    /// Members, and which of them each row has.
    Union {
        present: Vec<Option<usize>>,
        members: Vec<Writer>,
    },
}

impl Writer {
    fn of(values: &ArrayRef) -> Result<Self> {
        let boxed = |values: &ArrayRef| Writer::of(values).map(Box::new);
        Ok(match values.data_type() {
            of if enums::enum_texts(of).is_some() => Writer::Plain(enums::texts_of(values)),
            of if bits::is_bit(of) => Writer::Plain(bits::texts_of(values)),
            of if offset_times::is_timetz(of) => Writer::Plain(offset_times::texts_of(values)?),
            of if is_variant(of) => Writer::Written(variants::texts_of(values, variants::Form::Part)?),
            of if unions::is_union(of) => {
                let columns = values.as_struct().columns().iter().skip(1);
                let members = columns.map(Writer::of).collect::<Result<_>>()?;
                Writer::Union { present: unions::present(values.as_struct()), members }
            }
            DataType::List(_) => {
                let elements = boxed(values.as_list::<i32>().values())?;
                Writer::List { lists: ArrayRef::clone(values), elements }
            }
            DataType::LargeList(field) | DataType::FixedSizeList(field, _) | DataType::ListView(field) => {
                let lists = cast(values, &DataType::List(field.clone()))?;
                let elements = boxed(lists.as_list::<i32>().values())?;
                Writer::List { lists, elements }
            }
            DataType::Struct(fields) => {
                let columns = values.as_struct().columns();
                let names = (!are_unnamed(fields.iter().map(AsRef::as_ref)))
                    .then(|| fields.iter().map(|field| field.name().clone()).collect());
                let fields = columns.iter().map(Writer::of).collect::<Result<_>>()?;
                Writer::Struct { structs: ArrayRef::clone(values), names, fields }
            }
            DataType::Map(..) => {
                let map = values.as_map();
                let (keys, of_keys) = (boxed(map.keys())?, boxed(map.values())?);
                Writer::Map { maps: ArrayRef::clone(values), keys, values: of_keys }
            }
            DataType::Dictionary(_, of) => Writer::of(&cast(values, of)?)?,
            of if of.is_nested() => return not_impl_err!("a {} has no text", sql_type(of)),
            _ => Writer::Plain(texts::of_values(values)?),
        })
    }

    fn is_null(&self, row: usize) -> bool {
        match self {
            Writer::Plain(texts) | Writer::Written(texts) => texts.is_null(row),
            Writer::Union { present, .. } => present.get(row).is_none_or(Option::is_none),
            Writer::List { lists: values, .. }
            | Writer::Struct { structs: values, .. }
            | Writer::Map { maps: values, .. } => values.is_null(row),
        }
    }

    fn write_or_null(&self, row: usize, text: &mut String) {
        if self.is_null(row) { text.push_str("NULL") } else { self.write(row, text) }
    }

    fn write(&self, row: usize, text: &mut String) {
        match self {
            Writer::Plain(texts) => write_part(text, texts.value(row)),
            Writer::Written(texts) => text.push_str(texts.value(row)),
            Writer::Union { present, members } => {
                let member = present.get(row).copied().flatten().and_then(|number| members.get(number));
                if let Some(member) = member {
                    member.write(row, text);
                }
            }
            Writer::List { lists, elements } => {
                let offsets = lists.as_list::<i32>().value_offsets();
                text.push('[');
                separated(text, element_range(offsets, row), |text, element| {
                    elements.write_or_null(element, text)
                });
                text.push(']');
            }
            Writer::Struct { names: None, fields, .. } => {
                text.push('(');
                separated(text, fields, |text, field| field.write_or_null(row, text));
                text.push(')');
            }
            Writer::Struct { names: Some(names), fields, .. } => {
                text.push('{');
                separated(text, names.iter().zip(fields), |text, (name, field)| {
                    write_quoted(text, name);
                    text.push_str(": ");
                    field.write_or_null(row, text);
                });
                text.push('}');
            }
            Writer::Map { maps, keys, values } => {
                text.push('{');
                separated(text, element_range(maps.as_map().value_offsets(), row), |text, entry| {
                    keys.write_or_null(entry, text);
                    text.push('=');
                    values.write_or_null(entry, text);
                });
                text.push('}');
            }
        }
    }
}

/// Whether the fields of a struct have the names that are given to those without.
pub(crate) fn are_unnamed<'a>(mut fields: impl Iterator<Item = &'a Field>) -> bool {
    let mut number = 0;
    fields.all(|field| {
        let is_unnamed = field.name().strip_prefix('c').is_some_and(|rest| *rest == number.to_string());
        number += 1;
        is_unnamed
    })
}

/// The elements of a list's row.
pub(crate) fn element_range(offsets: &[i32], row: usize) -> std::ops::Range<usize> {
    match offsets.get(row..row + 2) {
        Some(&[begin, end]) => begin as usize..end as usize,
        _ => unreachable!("lists have an offset more than rows"),
    }
}

fn separated<T>(text: &mut String, parts: impl IntoIterator<Item = T>, write: impl Fn(&mut String, T)) {
    for (number, part) in parts.into_iter().enumerate() {
        if number > 0 {
            text.push_str(", ");
        }
        write(text, part);
    }
}

pub(crate) fn write_part(text: &mut String, part: &str) {
    let is_odd = |letter: char| "\"'(),:=[\\]{}".contains(letter);
    let has_spaces = part.starts_with(char::is_whitespace) || part.ends_with(char::is_whitespace);
    let needs_quotes =
        part.is_empty() || has_spaces || part.eq_ignore_ascii_case("null") || part.contains(is_odd);
    if needs_quotes { write_quoted(text, part) } else { text.push_str(part) }
}

pub(crate) fn write_quoted(text: &mut String, part: &str) {
    text.push('\'');
    for letter in part.chars() {
        if matches!(letter, '\'' | '\\') {
            text.push('\\');
        }
        text.push(letter);
    }
    text.push('\'');
}
