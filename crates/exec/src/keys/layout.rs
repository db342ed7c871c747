//! Group keys in stored form: the few layouts that tables and pages hold.
//!
//! ```text
//!   numbers, dates, decimals, booleans, nulls ──► as they are; floats with one zero and one NaN
//!   strings and binary                        ──► views
//!   dictionaries of these                     ──► their values
//!   everything else (lists, structs, …)       ──► Arrow's row format, in a binary view
//! ```
//!
//! Two keys are equal exactly if they are null or have the same bytes in this form. Nulls equal each other, and both
//! zeros do: that is how DataFusion groups; and all NaNs.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow::row::{RowConverter, SortField};
use datafusion::common::{DataFusionError, Result};
use nandina_pages::ColumnLayout;

use super::floats::canonical;

/// How every key column is stored.
#[derive(Debug)]
pub struct KeyLayout(Vec<KeyForm>);

#[derive(Debug)]
struct KeyForm {
    original: DataType,
    stored: DataType,
    /// For types that are stored in row format.
    rows: Option<RowConverter>,
}

impl KeyLayout {
    /// The layout of keys of these types. Fails if Arrow's row format does not know one that needs it.
    pub fn try_new<'a>(types: impl IntoIterator<Item = &'a DataType>) -> Result<Self> {
        types.into_iter().map(KeyForm::try_new).collect::<Result<_>>().map(Self)
    }

    /// The columns of stored keys.
    pub fn fields(&self) -> impl Iterator<Item = FieldRef> {
        let field = |(number, form): (usize, &KeyForm)| {
            Arc::new(Field::new(format!("key {number}"), form.stored.clone(), true))
        };
        self.0.iter().enumerate().map(field)
    }

    /// Keys in stored form.
    pub fn store(&self, keys: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        self.0.iter().zip(keys).map(|(form, key)| form.store(key)).collect()
    }

    /// Keys of a column themselves. Nulls in stored form stay nulls.
    pub fn restore(&self, column: usize, stored: &ArrayRef) -> Result<ArrayRef> {
        let form = self.0.get(column);
        form.ok_or_else(|| DataFusionError::Internal(format!("there is no key column {column}")))?
            .restore(stored)
    }
}

impl KeyForm {
    fn try_new(original: &DataType) -> Result<Self> {
        if let Some(stored) = simple_form(original) {
            return Ok(Self { original: original.clone(), stored, rows: None });
        }
        let field = SortField::new(original.clone());
        if !RowConverter::supports_fields(std::slice::from_ref(&field)) {
            return Err(DataFusionError::NotImplemented(format!("grouping by {original}")));
        }
        let rows = Some(RowConverter::new(vec![field])?);
        Ok(Self { original: original.clone(), stored: DataType::BinaryView, rows })
    }

    fn store(&self, key: &ArrayRef) -> Result<ArrayRef> {
        if let Some(converter) = &self.rows {
            let rows = converter.convert_columns(&[canonical(key)?])?;
            return Ok(cast(&rows.try_into_binary()?, &self.stored)?);
        }
        if key.data_type() == &self.stored {
            return canonical(key);
        }
        canonical(&cast(key, &self.stored)?)
    }

    fn restore(&self, stored: &ArrayRef) -> Result<ArrayRef> {
        let Some(converter) = &self.rows else {
            return if stored.data_type() == &self.original {
                Ok(Arc::clone(stored))
            } else {
                Ok(cast(stored, &self.original)?)
            };
        };
        let parser = converter.parser();
        let stored = stored.as_binary_view();
        let null = converter.convert_columns(&[new_null_array(&self.original, 1)])?.try_into_binary()?;
        let rows = stored.iter().map(|bytes| parser.parse(bytes.unwrap_or(null.value(0))));
        let restored = converter.convert_rows(rows)?.pop();
        let restored = restored.ok_or_else(|| {
            DataFusionError::Internal("the row format gave no column for a column of keys".to_owned())
        })?;
        // The row format holds the values of dictionaries.
        if restored.data_type() == &self.original {
            Ok(restored)
        } else {
            Ok(cast(&restored, &self.original)?)
        }
    }
}

/// The stored type of keys that need no row format.
fn simple_form(original: &DataType) -> Option<DataType> {
    match original {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Some(DataType::Utf8View),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Some(DataType::BinaryView),
        DataType::Dictionary(_, values) => simple_form(values),
        DataType::FixedSizeBinary(_) => None,
        _ => match ColumnLayout::of(original) {
            ColumnLayout::Null | ColumnLayout::Bits | ColumnLayout::Fixed { .. } => Some(original.clone()),
            ColumnLayout::Variable | ColumnLayout::Nested => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{DictionaryArray, Float64Array, ListArray, StringArray};
    use arrow::datatypes::{Float64Type, Int8Type, Int32Type};

    use super::*;

    fn round_trip(key: ArrayRef) -> (ArrayRef, ArrayRef) {
        let layout = KeyLayout::try_new([key.data_type()]).unwrap();
        let stored = layout.store(&[key]).unwrap();
        let restored = layout.restore(0, &stored[0]).unwrap();
        (Arc::clone(&stored[0]), restored)
    }

    #[test]
    fn keys_come_back_as_they_were() {
        let strings: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("a longer string")]));
        let dictionary: DictionaryArray<Int8Type> = vec![Some("x"), None, Some("y")].into_iter().collect();
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), None]),
            None,
            Some(vec![]),
        ]));
        for key in [strings, Arc::new(dictionary) as ArrayRef, lists] {
            let (_, restored) = round_trip(Arc::clone(&key));
            assert_eq!(&restored, &key);
        }
    }

    #[test]
    fn zeros_become_one() {
        let (stored, _) = round_trip(Arc::new(Float64Array::from(vec![0.0, -0.0])));
        let bits: Vec<u64> =
            stored.as_primitive::<Float64Type>().values().iter().map(|value| value.to_bits()).collect();
        assert_eq!(bits, [0, 0]);
    }
}
