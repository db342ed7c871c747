//! Random batches of any schema that a page can hold.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, dead_code, reason = "test code")]

use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::*;
use arrow_array::*;
use arrow_buffer::{ArrowNativeType, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, SchemaRef, UnionMode};
use proptest::prelude::*;

pub fn batch(schema: SchemaRef, rows: Range<usize>) -> impl Strategy<Value = RecordBatch> {
    (rows, any::<u64>()).prop_map(move |(rows, seed)| {
        let mut random = Random(seed | 1);
        let arrays =
            schema.fields().iter().map(|field| array(field.data_type(), rows, &mut random)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&schema), arrays, &options).unwrap()
    })
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// No nulls, few, many, or nothing but nulls.
    fn nulls(&mut self, rows: usize) -> Option<NullBuffer> {
        let share = [0, 0, 1, 5, 10][self.below(5)];
        if share == 0 {
            return None;
        }
        Some((0..rows).map(|_| self.below(10) >= share).collect::<Vec<bool>>().into())
    }

    fn text(&mut self) -> String {
        let alphabet =
            ["", "a", "word ", "ěšč", "🐎", "twelve bytes", "longer than what a view holds inline "];
        (0..self.below(4)).map(|_| alphabet[self.below(alphabet.len())]).collect()
    }
}

fn array(data_type: &DataType, rows: usize, random: &mut Random) -> ArrayRef {
    macro_rules! primitive {
        ($type:ty) => {{
            let width = size_of::<<$type as ArrowPrimitiveType>::Native>();
            let bytes: Vec<u8> = (0..rows * width).map(|_| random.next() as u8).collect();
            let buffer = arrow_buffer::Buffer::from_slice_ref(&bytes);
            let values = ScalarBuffer::<<$type as ArrowPrimitiveType>::Native>::new(buffer, 0, rows);
            let array = PrimitiveArray::<$type>::new(values, random.nulls(rows));
            Arc::new(array.with_data_type(data_type.clone())) as ArrayRef
        }};
    }
    let texts = |random: &mut Random| -> Vec<Option<String>> {
        let nulls = random.nulls(rows);
        (0..rows)
            .map(|row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)).then(|| random.text()))
            .collect()
    };
    let list_offsets = |random: &mut Random| -> OffsetBuffer<i32> {
        OffsetBuffer::from_lengths((0..rows).map(|_| random.below(4)).collect::<Vec<_>>())
    };
    downcast_primitive! {
        data_type => (primitive),
        DataType::Null => Arc::new(NullArray::new(rows)),
        DataType::Boolean => {
            let bits: Vec<bool> = (0..rows).map(|_| random.below(2) == 0).collect();
            Arc::new(BooleanArray::new(bits.into(), random.nulls(rows)))
        },
        DataType::FixedSizeBinary(width) => {
            let bytes: Vec<u8> = (0..rows * *width as usize).map(|_| random.next() as u8).collect();
            Arc::new(FixedSizeBinaryArray::try_new_with_len(*width, bytes.into(), random.nulls(rows), rows).unwrap())
        },
        DataType::Utf8 => Arc::new(StringArray::from(texts(random))),
        DataType::LargeUtf8 => Arc::new(LargeStringArray::from(texts(random))),
        DataType::Utf8View => Arc::new(StringViewArray::from_iter(texts(random))),
        DataType::Binary => Arc::new(texts(random).iter().map(|t| t.as_ref().map(String::as_bytes)).collect::<BinaryArray>()),
        DataType::LargeBinary => {
            Arc::new(texts(random).iter().map(|t| t.as_ref().map(String::as_bytes)).collect::<LargeBinaryArray>())
        },
        DataType::BinaryView => {
            Arc::new(texts(random).iter().map(|t| t.as_ref().map(String::as_bytes)).collect::<BinaryViewArray>())
        },
        DataType::List(item) => {
            let offsets = list_offsets(random);
            let values = array(item.data_type(), offsets.last().unwrap().as_usize(), random);
            Arc::new(ListArray::new(Arc::clone(item), offsets, values, random.nulls(rows)))
        },
        DataType::LargeList(item) => {
            let offsets = OffsetBuffer::<i64>::from_lengths((0..rows).map(|_| random.below(4)).collect::<Vec<_>>());
            let values = array(item.data_type(), offsets.last().unwrap().as_usize(), random);
            Arc::new(LargeListArray::new(Arc::clone(item), offsets, values, random.nulls(rows)))
        },
        DataType::FixedSizeList(item, size) => {
            let values = array(item.data_type(), rows * *size as usize, random);
            Arc::new(FixedSizeListArray::try_new_with_length(Arc::clone(item), *size, values, random.nulls(rows), rows).unwrap())
        },
        DataType::Map(entries, ordered) => {
            let DataType::Struct(fields) = entries.data_type() else { panic!("map entries are structs") };
            let offsets = list_offsets(random);
            let items = offsets.last().unwrap().as_usize();
            let keys = StringArray::from_iter_values((0..items).map(|_| random.text()));
            let columns = vec![Arc::new(keys) as ArrayRef, array(fields[1].data_type(), items, random)];
            let structs = StructArray::try_new_with_length(fields.clone(), columns, None, items).unwrap();
            Arc::new(MapArray::new(Arc::clone(entries), offsets, structs, random.nulls(rows), *ordered))
        },
        DataType::Struct(fields) => {
            let columns = fields.iter().map(|field| array(field.data_type(), rows, random)).collect();
            Arc::new(StructArray::try_new_with_length(fields.clone(), columns, random.nulls(rows), rows).unwrap())
        },
        DataType::Dictionary(keys, values) => {
            let count = 1 + random.below(20);
            let values = array(values, count, random);
            macro_rules! dictionary {
                ($type:ty) => {{
                    let nulls = random.nulls(rows);
                    let keys: PrimitiveArray<$type> = (0..rows)
                        .map(|row| {
                            let key = random.below(count);
                            let valid = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                            valid.then(|| <$type as ArrowPrimitiveType>::Native::from_usize(key).unwrap())
                        })
                        .collect();
                    Arc::new(DictionaryArray::<$type>::new(keys, values)) as ArrayRef
                }};
            }
            downcast_integer! { keys.as_ref() => (dictionary), other => panic!("{other} as key") }
        },
        DataType::RunEndEncoded(_, values) => {
            let mut ends = Vec::new();
            while ends.last().is_none_or(|&end| (end as usize) < rows) && rows > 0 {
                ends.push(ends.last().copied().unwrap_or(0) + 1 + random.below(4) as i32);
            }
            let values = array(values.data_type(), ends.len(), random);
            let ends: Int32Array = ends.into();
            Arc::new(RunArray::<Int32Type>::try_new(&ends, &values).unwrap().slice(0, rows))
        },
        DataType::Union(fields, mode) => {
            let ids: Vec<i8> = fields.iter().map(|(id, _)| id).collect();
            let children = fields.iter().map(|(_, field)| array(field.data_type(), rows, random)).collect();
            let type_ids: ScalarBuffer<i8> = (0..rows).map(|_| ids[random.below(ids.len())]).collect();
            let offsets = (*mode == UnionMode::Dense).then(|| (0..rows as i32).collect());
            Arc::new(UnionArray::try_new(fields.clone(), type_ids, offsets, children).unwrap())
        },
        other => panic!("no generator for {other}"),
    }
}
