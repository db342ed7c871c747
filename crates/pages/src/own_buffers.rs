//! Views without what other values left in their buffers.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::ByteViewType;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, GenericByteViewArray, GenericListArray, MapArray, OffsetSizeTrait,
    StructArray,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType};

/// The column with views into buffers of its own. What Arrow copies or takes out of views points to where they pointed, and
/// holds all of that in memory.
pub fn with_own_buffers(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if !has_views(column.data_type()) {
        return Ok(Arc::clone(column));
    }
    Ok(match column.data_type() {
        DataType::Utf8View => Arc::new(with_own_bytes(column.as_string_view())),
        DataType::BinaryView => Arc::new(with_own_bytes(column.as_binary_view())),
        DataType::List(_) => list_with_own_buffers(column.as_list::<i32>())?,
        DataType::LargeList(_) => list_with_own_buffers(column.as_list::<i64>())?,
        DataType::FixedSizeList(field, len) => {
            let (list, nulls) = (column.as_fixed_size_list(), column.nulls().cloned());
            let values = with_own_buffers(list.values())?;
            Arc::new(FixedSizeListArray::try_new_with_length(
                Arc::clone(field),
                *len,
                values,
                nulls,
                column.len(),
            )?)
        }
        DataType::Map(field, sorted) => {
            let map = column.as_map();
            let entries = struct_with_own_buffers(map.entries())?;
            let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
            Arc::new(MapArray::try_new(Arc::clone(field), offsets, entries, nulls, *sorted)?)
        }
        DataType::Struct(_) => Arc::new(struct_with_own_buffers(column.as_struct())?),
        _ => Arc::clone(column),
    })
}

/// Longest value that a view holds itself.
const INLINE_BYTES: u128 = 12;

/// Views of a buffer that holds their values and nothing else. Values that stand together stay so, and are copied
/// together.
fn with_own_bytes<T: ByteViewType + ?Sized>(array: &GenericByteViewArray<T>) -> GenericByteViewArray<T> {
    let length_of = |view: u128| view & u128::from(u32::MAX);
    let is_long = |row: usize, view: u128| length_of(view) > INLINE_BYTES && array.is_valid(row);
    let long = array.views().iter().enumerate().filter(|(row, view)| is_long(*row, **view));
    let bytes: u128 = long.map(|(_, view)| length_of(*view)).sum();
    let buffers = array.data_buffers();
    let is_inside = |view: u128| {
        let end = (view >> 96) + length_of(view);
        buffers.get((view >> 64) as u32 as usize).is_some_and(|buffer| end <= buffer.len() as u128)
    };
    let mut long = array.views().iter().enumerate().filter(|(row, view)| is_long(*row, **view));
    // More than one buffer is needed: Arrow's own way makes as many as it takes. Values outside their buffers, which no
    // valid array has, must not be left out silently by the copying below.
    if bytes > i32::MAX as u128 || !long.all(|(_, view)| is_inside(*view)) {
        return array.gc();
    }
    let mut values = Vec::with_capacity(bytes as usize);
    // The values that are to be copied next: so many bytes from here.
    let (mut buffer, mut start, mut end) = (0, 0, 0);
    let copy = |values: &mut Vec<u8>, buffer: usize, range: Range<usize>| {
        // Of short texts alone there is no buffer.
        if !range.is_empty() {
            values.extend_from_slice(&buffers[buffer][range]);
        }
    };
    let copied = |(row, &view): (usize, &u128)| {
        if !is_long(row, view) {
            return if array.is_valid(row) { view } else { 0 };
        }
        let (of, at) = ((view >> 64) as u32 as usize, (view >> 96) as u32 as usize);
        if (of, at) != (buffer, end) {
            copy(&mut values, buffer, start..end);
            (buffer, start, end) = (of, at, at);
        }
        let place = (values.len() + end - start) as u128;
        end += length_of(view) as usize;
        place << 96 | u128::from(view as u64)
    };
    let views: Vec<u128> = array.views().iter().enumerate().map(copied).collect();
    copy(&mut values, buffer, start..end);
    let nulls = array.nulls().map(|nulls| NullBuffer::from(nulls.iter().collect::<BooleanBuffer>()));
    let own = if values.is_empty() { Vec::new() } else { vec![Buffer::from_vec(values)] };
    // SAFETY: values were copied whole from an array of the same type, and every view says where to.
    unsafe { GenericByteViewArray::new_unchecked(ScalarBuffer::from(views), own, nulls) }
}

fn has_views(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8View | DataType::BinaryView => true,
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => has_views(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_views(field.data_type())),
        _ => false,
    }
}

fn list_with_own_buffers<O: OffsetSizeTrait>(list: &GenericListArray<O>) -> Result<ArrayRef, ArrowError> {
    let (field, offsets, values, nulls) = list.clone().into_parts();
    Ok(Arc::new(GenericListArray::<O>::try_new(field, offsets, with_own_buffers(&values)?, nulls)?))
}

fn struct_with_own_buffers(parts: &StructArray) -> Result<StructArray, ArrowError> {
    let columns = parts.columns().iter().map(with_own_buffers).collect::<Result<Vec<_>, ArrowError>>()?;
    let nulls = parts.nulls().cloned();
    StructArray::try_new_with_length(parts.fields().clone(), columns, nulls, parts.len())
}

#[cfg(test)]
mod tests {
    use arrow_array::StringViewArray;

    use super::*;

    #[test]
    fn texts_that_stand_in_their_views_have_no_buffer_to_copy_from() {
        let short = StringViewArray::from(vec![Some("short"), None, Some("")]);
        assert!(short.data_buffers().is_empty());
        assert_eq!(with_own_bytes(&short), short);
        let nothing = StringViewArray::from(vec![None::<&str>; 3]);
        assert_eq!(with_own_bytes(&nothing), nothing);
    }

    #[test]
    fn texts_are_copied_whole_wherever_they_stand() {
        let in_order = StringViewArray::from_iter((0..1000).map(|number| match number % 5 {
            0 => None,
            1 => Some("short".to_owned()),
            _ => Some(format!("a text that is not in the view itself: {number}")),
        }));
        let places = arrow_array::UInt32Array::from_iter_values((0..1000).map(|row| row * 7 % 1000));
        let apart = arrow_select::take::take(&in_order, &places, None).unwrap();
        for texts in [&in_order, apart.as_string_view(), &in_order.slice(3, 0), &in_order.slice(1, 7)] {
            let own = with_own_bytes(texts);
            assert_eq!(&own, texts);
            own.to_data().validate_full().unwrap();
            let long: usize = texts.iter().flatten().map(str::len).filter(|bytes| *bytes > 12).sum();
            assert_eq!(own.data_buffers().iter().map(|buffer| buffer.len()).sum::<usize>(), long);
        }
    }
}
