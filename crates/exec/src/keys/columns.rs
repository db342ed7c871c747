//! The keys of a table's groups, column by column, and the keys of a batch that are compared with them.
//!
//! Values are vectors of byte arrays of the column's width, which compare as integers do; strings are views
//! ([`ByteViews`]).

use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, AsArray, BooleanArray, make_array, new_null_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result};
use nandina_pages::ColumnLayout;

use super::byte_views::{BatchViews, ByteViews};

/// Calls `$body` with `$values` bound to the vector inside, whatever the width.
macro_rules! each_width {
    ($on:expr, $values:ident => $body:expr, $($other:tt)*) => {
        match $on {
            Values::Fixed1($values) => $body,
            Values::Fixed2($values) => $body,
            Values::Fixed4($values) => $body,
            Values::Fixed8($values) => $body,
            Values::Fixed16($values) => $body,
            Values::Fixed32($values) => $body,
            $($other)*
        }
    };
}

/// One key column of a batch, in stored form.
#[derive(Debug)]
pub struct BatchKey {
    nulls: Option<NullBuffer>,
    values: BatchValues,
}

#[derive(Debug)]
enum BatchValues {
    Null,
    Bits(BooleanBuffer),
    Fixed(Buffer),
    Views(ScalarBuffer<u128>, Arc<[Buffer]>),
}

impl BatchKey {
    pub fn of(key: &ArrayRef) -> Self {
        let nulls = key.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
        let values = match key.data_type() {
            DataType::Null => BatchValues::Null,
            DataType::Boolean => BatchValues::Bits(key.as_boolean().values().clone()),
            DataType::Utf8View => {
                let views = key.as_string_view();
                BatchValues::Views(views.views().clone(), views.data_buffers().into())
            }
            DataType::BinaryView => {
                let views = key.as_binary_view();
                BatchValues::Views(views.views().clone(), views.data_buffers().into())
            }
            fixed => {
                let Some(width) = fixed.primitive_width() else {
                    unreachable!("{fixed} is neither of fixed width nor one of the types before")
                };
                let data = key.to_data();
                let values = &data.buffers()[0];
                BatchValues::Fixed(values.slice_with_length(data.offset() * width, data.len() * width))
            }
        };
        Self { nulls, values }
    }

    /// The values, if they are texts or bytes.
    #[inline]
    pub fn views(&self) -> Option<BatchViews<'_>> {
        match &self.values {
            BatchValues::Views(views, buffers) => Some(BatchViews { views, buffers }),
            _ => None,
        }
    }

    /// Whether there are rows, and all are null. Keys of the type that has only nulls are not meant.
    fn is_all_null(&self) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.null_count() == nulls.len())
    }

    #[inline]
    pub fn is_valid(&self, row: usize) -> bool {
        self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row))
    }
}

/// One key column of all groups.
#[derive(Debug)]
pub struct GroupKey {
    data_type: DataType,
    groups: usize,
    /// Whether a group's value is not null; kept from the first null on.
    valid: Option<Vec<bool>>,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Null,
    Bits(Vec<bool>),
    Fixed1(Vec<[u8; 1]>),
    Fixed2(Vec<[u8; 2]>),
    Fixed4(Vec<[u8; 4]>),
    Fixed8(Vec<[u8; 8]>),
    Fixed16(Vec<[u8; 16]>),
    Fixed32(Vec<[u8; 32]>),
    Bytes(ByteViews),
}

impl GroupKey {
    /// No groups yet; `data_type` is a stored type.
    pub fn try_new(data_type: &DataType) -> Result<Self> {
        let values = match (ColumnLayout::of(data_type), data_type) {
            (ColumnLayout::Null, _) => Values::Null,
            (ColumnLayout::Bits, _) => Values::Bits(Vec::new()),
            (ColumnLayout::Fixed { width_bytes: 1 }, _) => Values::Fixed1(Vec::new()),
            (ColumnLayout::Fixed { width_bytes: 2 }, _) => Values::Fixed2(Vec::new()),
            (ColumnLayout::Fixed { width_bytes: 4 }, _) => Values::Fixed4(Vec::new()),
            (ColumnLayout::Fixed { width_bytes: 8 }, _) => Values::Fixed8(Vec::new()),
            (ColumnLayout::Fixed { width_bytes: 16 }, _) => Values::Fixed16(Vec::new()),
            (ColumnLayout::Fixed { width_bytes: 32 }, _) => Values::Fixed32(Vec::new()),
            (_, DataType::Utf8View | DataType::BinaryView) => Values::Bytes(ByteViews::default()),
            _ => return Err(DataFusionError::Internal(format!("keys are not stored as {data_type}"))),
        };
        Ok(Self { data_type: data_type.clone(), groups: 0, valid: None, values })
    }

    /// Makes new groups of the keys of `rows`.
    pub fn append(&mut self, batch: &BatchKey, rows: &[u32]) {
        if self.valid.is_none() && rows.iter().any(|&row| !batch.is_valid(row as usize)) {
            self.valid = Some(vec![true; self.groups]);
        }
        if let Some(valid) = &mut self.valid {
            valid.extend(rows.iter().map(|&row| batch.is_valid(row as usize)));
        }
        self.groups += rows.len();
        each_width!(&mut self.values, values => append_fixed(values, batch, rows),
            Values::Null => {}
            Values::Bits(values) => {
                let BatchValues::Bits(bits) = &batch.values else { return };
                values.extend(rows.iter().map(|&row| bits.value(row as usize)));
            }
            Values::Bytes(values) => append_views(values, batch, rows),
        );
    }

    /// Keeps those of `rows` whose keys are those of their groups, and moves the others to `others`.
    pub fn retain_equal(
        &self,
        batch: &BatchKey,
        groups: &[usize],
        rows: &mut Vec<u32>,
        others: &mut Vec<u32>,
    ) {
        let mut keep = |row: u32, equal: bool| {
            if !equal {
                others.push(row);
            }
            equal
        };
        if batch.is_all_null() {
            // As of keys that are not in a grouping set.
            let Some(valid) = &self.valid else { return others.append(rows) };
            return rows.retain(|&row| keep(row, !valid[groups[row as usize]]));
        }
        if self.valid.is_some() || batch.nulls.is_some() {
            return self.retain_equal_or_null(batch, groups, rows, keep);
        }
        each_width!(&self.values, values => {
                let bytes = fixed_values(batch, values);
                rows.retain(|&row| keep(row, values[groups[row as usize]] == bytes[row as usize]));
            },
            Values::Null => {}
            Values::Bits(values) => {
                let BatchValues::Bits(bits) = &batch.values else { return };
                rows.retain(|&row| keep(row, values[groups[row as usize]] == bits.value(row as usize)));
            }
            Values::Bytes(values) => {
                let Some(views) = batch.views() else { return };
                rows.retain(|&row| keep(row, values.is_equal(groups[row as usize], views, row as usize)));
            }
        );
    }

    /// [`Self::retain_equal`] where some are null.
    fn retain_equal_or_null(
        &self,
        batch: &BatchKey,
        groups: &[usize],
        rows: &mut Vec<u32>,
        mut keep: impl FnMut(u32, bool) -> bool,
    ) {
        let valid = self.valid.as_deref();
        each_width!(&self.values, values => {
                let bytes = fixed_values(batch, values);
                rows.retain(|&row| {
                    let group = groups[row as usize];
                    let is_valid = valid.is_none_or(|valid| valid[group]);
                    let is_same = !is_valid || values[group] == bytes[row as usize];
                    keep(row, is_same && is_valid == batch.is_valid(row as usize))
                });
            },
            Values::Null | Values::Bits(_) | Values::Bytes(_) => {
                rows.retain(|&row| keep(row, self.is_equal(batch, row as usize, groups[row as usize])));
            }
        );
    }

    /// Whether the key of `row` is that of `group`.
    pub fn is_equal(&self, batch: &BatchKey, row: usize, group: usize) -> bool {
        let valid = self.valid.as_ref().is_none_or(|valid| valid[group]);
        if valid != batch.is_valid(row) {
            return false;
        }
        if !valid {
            return true;
        }
        each_width!(&self.values, values => values[group] == fixed_values(batch, values)[row],
            Values::Null => true,
            Values::Bits(values) => {
                matches!(&batch.values, BatchValues::Bits(bits) if bits.value(row) == values[group])
            }
            Values::Bytes(values) => {
                batch.views().is_some_and(|views| values.is_equal(group, views, row))
            }
        )
    }

    /// Bytes held, spare capacity included.
    pub fn memory_bytes(&self) -> usize {
        let values = each_width!(&self.values, values => vector_bytes(values),
            Values::Null => 0,
            Values::Bits(values) => vector_bytes(values),
            Values::Bytes(values) => values.memory_bytes(),
        );
        values + self.valid.as_ref().map_or(0, Vec::capacity)
    }

    /// The keys of all groups as an array; none remain.
    pub fn take(&mut self) -> Result<ArrayRef> {
        let groups = std::mem::take(&mut self.groups);
        let nulls = self.valid.take().map(|valid| NullBuffer::from(BooleanBuffer::from(valid)));
        let fixed = |bytes: Vec<u8>| -> Result<ArrayRef> {
            let data = ArrayData::builder(self.data_type.clone())
                .len(groups)
                .add_buffer(Buffer::from_vec(bytes))
                .nulls(nulls.clone())
                .align_buffers(true)
                .build()?;
            Ok(make_array(data))
        };
        each_width!(&mut self.values, values => fixed(std::mem::take(values).into_flattened()),
            Values::Null => Ok(new_null_array(&DataType::Null, groups)),
            Values::Bits(values) => {
                Ok(Arc::new(BooleanArray::new(BooleanBuffer::from(std::mem::take(values)), nulls)))
            }
            Values::Bytes(values) => Ok(values.take(&self.data_type, nulls)),
        )
    }
}

fn vector_bytes<T>(vector: &Vec<T>) -> usize {
    vector.capacity() * size_of::<T>()
}

/// The values of a batch in the width of those in `like`.
#[inline]
fn fixed_values<'a, const WIDTH: usize>(batch: &'a BatchKey, _like: &[[u8; WIDTH]]) -> &'a [[u8; WIDTH]] {
    match &batch.values {
        BatchValues::Fixed(bytes) => bytes.as_slice().as_chunks::<WIDTH>().0,
        _ => &[],
    }
}

fn append_fixed<const WIDTH: usize>(values: &mut Vec<[u8; WIDTH]>, batch: &BatchKey, rows: &[u32]) {
    let bytes = fixed_values(batch, values);
    values.extend(rows.iter().map(|&row| bytes[row as usize]));
}

fn append_views(values: &mut ByteViews, batch: &BatchKey, rows: &[u32]) {
    let Some(views) = batch.views() else { return };
    for &row in rows {
        if batch.is_valid(row as usize) {
            values.push(views, row as usize);
        } else {
            values.push_empty();
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Decimal128Array, Int32Array, NullArray, StringViewArray};

    use super::*;

    /// Groups made of all rows of `keys`.
    fn groups_of(keys: &ArrayRef) -> (GroupKey, BatchKey) {
        let batch = BatchKey::of(keys);
        let mut groups = GroupKey::try_new(keys.data_type()).unwrap();
        let rows: Vec<u32> = (0..keys.len() as u32).collect();
        groups.append(&batch, &rows);
        (groups, batch)
    }

    fn samples() -> Vec<ArrayRef> {
        let long = "a value of more than twelve bytes";
        vec![
            Arc::new(Int32Array::from(vec![Some(1), None, Some(2), Some(0)])),
            Arc::new(
                Decimal128Array::from(vec![1, 2, -3, 1 << 100]).with_precision_and_scale(38, 2).unwrap(),
            ),
            Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
            Arc::new(StringViewArray::from(vec![
                Some("a"),
                Some(long),
                None,
                Some(""),
                Some("a value of mo!"),
            ])),
            Arc::new(Int32Array::from(vec![None])),
            Arc::new(NullArray::new(1)),
        ]
    }

    #[test]
    fn keys_are_given_back() {
        for keys in samples() {
            let (mut groups, _) = groups_of(&keys.slice(0, keys.len()));
            assert_eq!(&groups.take().unwrap(), &keys);
            assert_eq!(groups.take().unwrap().len(), 0);
        }
    }

    #[test]
    fn a_key_equals_itself_only() {
        for keys in samples() {
            let (groups, batch) = groups_of(&keys);
            for row in 0..keys.len() {
                for group in 0..keys.len() {
                    assert_eq!(groups.is_equal(&batch, row, group), row == group, "{keys:?}");
                }
            }
            let count = keys.len();
            let next: Vec<usize> = (0..count).map(|row| (row + 1) % count).collect();
            let (mut rows, mut others) = ((0..count as u32).collect::<Vec<_>>(), Vec::new());
            groups.retain_equal(&batch, &next, &mut rows, &mut others);
            assert_eq!(others.len(), if count == 1 { 0 } else { count });
        }
    }

    #[test]
    fn slices_are_read_from_their_first_row() {
        let keys: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3, 4]));
        let (mut groups, _) = groups_of(&keys.slice(2, 2));
        assert_eq!(groups.take().unwrap().as_ref(), &Int32Array::from(vec![3, 4]));
    }
}
