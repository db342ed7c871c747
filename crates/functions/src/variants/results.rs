//! `VARIANT`s as values of a type.
//!
//! Values that are plain are cast from what they are, those of each type at once; a text may also say a list or a struct.
//! Lists become lists, objects structs by the names of their members, and lists of objects with a `key` and a `value` maps.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ListArray, MapArray, NullBufferBuilder, StructArray, new_null_array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{concat, interleave};
use arrow::datatypes::{DataType, FieldRef, Fields};
use datafusion::common::{Result, ScalarValue, exec_err, internal_err};

use super::texts::{self, Form};
use super::{Value, decoded, encoded, is_variant};
use crate::casts::unions::is_union;
use crate::casts::{Failed, are_unnamed, bits, cannot_be_cast, cast_array, check_keys, enum_texts};
use crate::types::sql_type;

/// The values as those of another type.
pub(crate) fn to_values(variants: &ArrayRef, to: &DataType, failed: Failed) -> Result<ArrayRef> {
    let values = decoded(variants)?;
    if failed == Failed::IsError || !to.is_nested() {
        return to_type(&values.iter().collect::<Vec<_>>(), to, failed);
    }
    // A value is lost with any of its parts.
    let nothing = new_null_array(to, 1);
    let rows: Vec<_> = values.iter().map(|value| to_type(&[value], to, Failed::IsError)).collect();
    let mut parts = vec![nothing.as_ref()];
    parts.extend(rows.iter().map(|row| row.as_ref().map_or(nothing.as_ref(), AsRef::as_ref)));
    Ok(concat(&parts)?.slice(1, values.len()))
}

pub(super) fn to_type(values: &[&Value], to: &DataType, failed: Failed) -> Result<ArrayRef> {
    if is_variant(to) {
        return encoded(values.iter().copied());
    }
    if is_union(to) {
        return exec_err!(
            "a VARIANT cannot be cast to {}; cast it to the type of a member first",
            sql_type(to)
        );
    }
    let mut parts = Parts::of(values.len(), to);
    let is_nested = |value: &Value| matches!(value, Value::List(_) | Value::Object(_));
    let plain = (0..values.len()).filter(|&row| values.get(row).is_some_and(|value| !is_nested(value)));
    parts.add_plain(values, plain, failed)?;
    let nested: Vec<usize> =
        (0..values.len()).filter(|&row| values.get(row).is_some_and(|value| is_nested(value))).collect();
    if !nested.is_empty() {
        let of_rows: Vec<&Value> = nested.iter().filter_map(|&row| values.get(row).copied()).collect();
        parts.add(to_nested(&of_rows, to, failed)?, nested);
    }
    parts.together()
}

/// Arrays, and the rows that they are for. The others are null.
struct Parts<'a> {
    to: &'a DataType,
    arrays: Vec<ArrayRef>,
    places: Vec<(usize, usize)>,
}

impl<'a> Parts<'a> {
    fn of(rows: usize, to: &'a DataType) -> Self {
        Parts { to, arrays: vec![new_null_array(to, 1)], places: vec![(0, 0); rows] }
    }

    fn add(&mut self, array: ArrayRef, rows: Vec<usize>) {
        for (at, row) in rows.into_iter().enumerate() {
            if let Some(place) = self.places.get_mut(row) {
                *place = (self.arrays.len(), at);
            }
        }
        self.arrays.push(array);
    }

    /// Values that are not made of others, those of one type together.
    fn add_plain(
        &mut self,
        values: &[&Value],
        rows: impl Iterator<Item = usize>,
        failed: Failed,
    ) -> Result<()> {
        let mut kinds: Vec<(DataType, Vec<ScalarValue>, Vec<usize>)> = Vec::new();
        let mut digits = (Vec::new(), Vec::new());
        for row in rows {
            match values.get(row) {
                Some(Value::Plain(value)) => {
                    let of = value.data_type();
                    let at = kinds.iter().position(|(known, ..)| *known == of).unwrap_or(kinds.len());
                    match kinds.get_mut(at) {
                        Some((_, values, rows)) => {
                            values.push(value.clone());
                            rows.push(row);
                        }
                        None => kinds.push((of, vec![value.clone()], vec![row])),
                    }
                }
                Some(Value::Bits(text)) => {
                    digits.0.push(ScalarValue::Utf8View(Some(text.clone())));
                    digits.1.push(row);
                }
                _ => {}
            }
        }
        let is_made_of_others =
            self.to.is_nested() && !bits::is_bit(self.to) && enum_texts(self.to).is_none();
        for (of, values, rows) in kinds {
            if is_made_of_others && !of.is_string() {
                // Arrow would make a list of one.
                values.into_iter().try_for_each(|value| refuse(&Value::Plain(value), self.to, failed))?;
                continue;
            }
            let array = ScalarValue::iter_to_array(values)?;
            match cast_array(&array, self.to, failed) {
                Ok(array) => self.add(array, rows),
                // There is no such cast.
                Err(_) if failed == Failed::IsNull => {}
                Err(error) => return Err(error),
            }
        }
        if !digits.1.is_empty() {
            let bits = cast_array(&ScalarValue::iter_to_array(digits.0)?, &bits::bit_type(), failed)?;
            self.add(cast_array(&bits, self.to, failed)?, digits.1);
        }
        Ok(())
    }

    fn together(self) -> Result<ArrayRef> {
        let arrays: Vec<&dyn Array> = self.arrays.iter().map(AsRef::as_ref).collect();
        Ok(interleave(&arrays, &self.places)?)
    }
}

/// Lists and objects as values of a type.
fn to_nested(values: &[&Value], to: &DataType, failed: Failed) -> Result<ArrayRef> {
    if to.is_string() {
        let mut written = Vec::with_capacity(values.len());
        for value in values {
            let mut text = String::new();
            texts::write(value, Form::Text, &mut text)?;
            written.push(ScalarValue::Utf8View(Some(text)));
        }
        return cast_array(&ScalarValue::iter_to_array(written)?, to, failed);
    }
    match to {
        _ if bits::is_bit(to) || enum_texts(to).is_some() => {}
        DataType::List(field) => return lists(values, field, to, failed),
        DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            let lists = lists(values, field, to, failed)?;
            return cast_array(&lists, to, failed);
        }
        DataType::Struct(fields) => return structs(values, fields, to, failed),
        DataType::Map(entries, _) => return maps(values, entries, to, failed),
        _ => {}
    }
    values.iter().try_for_each(|value| refuse(value, to, failed))?;
    Ok(new_null_array(to, values.len()))
}

/// An error for a value that has no counterpart, where it is one.
fn refuse(value: &Value, to: &DataType, failed: Failed) -> Result<()> {
    if failed == Failed::IsNull {
        return Ok(());
    }
    let mut text = String::new();
    texts::write(value, Form::Text, &mut text)?;
    Err(cannot_be_cast(&text, to))
}

/// The elements of lists, one list behind the other.
struct Elements<'a> {
    all: Vec<&'a Value>,
    lengths: Vec<usize>,
    nulls: NullBufferBuilder,
}

fn elements<'a>(values: &[&'a Value], to: &DataType, failed: Failed) -> Result<Elements<'a>> {
    let nulls = NullBufferBuilder::new(values.len());
    let mut elements = Elements { all: Vec::new(), lengths: Vec::with_capacity(values.len()), nulls };
    for value in values {
        let of_list = match value {
            Value::List(of_list) => Some(of_list),
            other => {
                refuse(other, to, failed)?;
                None
            }
        };
        elements.lengths.push(of_list.map_or(0, Vec::len));
        elements.nulls.append(of_list.is_some());
        elements.all.extend(of_list.into_iter().flatten());
    }
    Ok(elements)
}

fn lists(values: &[&Value], field: &FieldRef, to: &DataType, failed: Failed) -> Result<ArrayRef> {
    let Elements { all, lengths, mut nulls } = elements(values, to, failed)?;
    let offsets = OffsetBuffer::from_lengths(lengths);
    let all = to_type(&all, field.data_type(), failed)?;
    Ok(Arc::new(ListArray::try_new(Arc::clone(field), offsets, all, nulls.finish())?))
}

fn structs(values: &[&Value], fields: &Fields, to: &DataType, failed: Failed) -> Result<ArrayRef> {
    let mut columns: Vec<Vec<&Value>> = fields.iter().map(|_| Vec::with_capacity(values.len())).collect();
    let mut nulls = NullBufferBuilder::new(values.len());
    let is_unnamed = are_unnamed(fields.iter().map(AsRef::as_ref));
    for value in values {
        let members: Option<Vec<&Value>> = match value {
            Value::List(elements) if is_unnamed && elements.len() == fields.len() => {
                Some(elements.iter().collect())
            }
            value => fields.iter().map(|field| value.field(field.name())).collect(),
        };
        if members.is_none() {
            refuse(value, to, failed)?;
        }
        nulls.append(members.is_some());
        for (place, column) in columns.iter_mut().enumerate() {
            let member = members.as_ref().and_then(|members| members.get(place).copied());
            column.push(member.unwrap_or(&Value::Null));
        }
    }
    let columns =
        columns.iter().zip(fields).map(|(column, field)| to_type(column, field.data_type(), failed));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls.finish(), values.len())?))
}

fn maps(values: &[&Value], entries: &FieldRef, to: &DataType, failed: Failed) -> Result<ArrayRef> {
    let DataType::Struct(fields) = entries.data_type() else { return internal_err!("a map of no entries") };
    let [key, value] = fields.as_ref() else { return internal_err!("a map of {} fields", fields.len()) };
    let Elements { all, lengths, mut nulls } = elements(values, to, failed)?;
    let mut pairs = (Vec::with_capacity(all.len()), Vec::with_capacity(all.len()));
    for entry in all {
        match (entry.member("key"), entry.member("value")) {
            (Some(key), value) if *key != Value::Null => {
                pairs.0.push(key);
                pairs.1.push(value.unwrap_or(&Value::Null));
            }
            // Which row's it is does not matter: all of them are lost.
            _ => {
                refuse(entry, to, failed)?;
                return Ok(new_null_array(to, values.len()));
            }
        }
    }
    let keys = to_type(&pairs.0, key.data_type(), Failed::IsError)?;
    let of_keys = to_type(&pairs.1, value.data_type(), failed)?;
    let offsets = OffsetBuffer::from_lengths(lengths);
    check_keys(&keys, &offsets)?;
    let pairs = StructArray::try_new(fields.clone(), vec![keys, of_keys], None)?;
    Ok(Arc::new(MapArray::try_new(Arc::clone(entries), offsets, pairs, nulls.finish(), false)?))
}
