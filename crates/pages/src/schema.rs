//! Which layout each column of a schema takes in a page.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, IntervalUnit, SchemaRef};

use crate::error::{PageError, Result};

/// Layout of a column's mini-page; follows from its Arrow type alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnLayout {
    Null,
    Bits,
    Fixed {
        width_bytes: usize,
    },
    /// Strings and binary in all their forms: offsets and value bytes.
    Variable,
    Nested,
}

impl ColumnLayout {
    pub fn of(data_type: &DataType) -> Self {
        use DataType as T;
        let fixed = |width_bytes| Self::Fixed { width_bytes };
        match data_type {
            T::Null => Self::Null,
            T::Boolean => Self::Bits,
            T::Int8 | T::UInt8 => fixed(1),
            T::Int16 | T::UInt16 | T::Float16 => fixed(2),
            T::Int32 | T::UInt32 | T::Float32 | T::Date32 | T::Time32(_) | T::Decimal32(..) => fixed(4),
            T::Interval(IntervalUnit::YearMonth) => fixed(4),
            T::Int64 | T::UInt64 | T::Float64 | T::Date64 | T::Time64(_) | T::Decimal64(..) => fixed(8),
            T::Timestamp(..) | T::Duration(_) | T::Interval(IntervalUnit::DayTime) => fixed(8),
            T::Decimal128(..) | T::Interval(IntervalUnit::MonthDayNano) => fixed(16),
            T::Decimal256(..) => fixed(32),
            T::FixedSizeBinary(width) => fixed(usize::try_from(*width).unwrap_or(0)),
            T::Utf8 | T::LargeUtf8 | T::Utf8View | T::Binary | T::LargeBinary | T::BinaryView => {
                Self::Variable
            }
            _ => Self::Nested,
        }
    }
}

/// An Arrow schema and the layout of each of its columns. Shared by all builders and pages of a table or partition.
#[derive(Debug, Clone)]
pub struct PageSchema {
    schema: SchemaRef,
    layouts: Vec<ColumnLayout>,
}

impl PageSchema {
    pub fn try_new(schema: SchemaRef) -> Result<Arc<Self>> {
        for field in schema.fields() {
            if !is_supported(field.data_type()) {
                return Err(PageError::Unsupported {
                    column: field.name().clone(),
                    data_type: field.data_type().clone(),
                });
            }
        }
        let layouts = schema.fields().iter().map(|field| ColumnLayout::of(field.data_type())).collect();
        Ok(Arc::new(Self { schema, layouts }))
    }

    pub fn arrow(&self) -> &SchemaRef {
        &self.schema
    }

    pub fn layouts(&self) -> &[ColumnLayout] {
        &self.layouts
    }

    pub fn columns(&self) -> usize {
        self.layouts.len()
    }
}

/// Whether a type can be stored at all. List views are the exception.
fn is_supported(data_type: &DataType) -> bool {
    match data_type {
        DataType::ListView(_) | DataType::LargeListView(_) => false,
        _ => children(data_type).iter().all(|child| is_supported(child.data_type())),
    }
}

/// Fields of the nodes directly below a node of this type.
pub(crate) fn children(data_type: &DataType) -> Vec<FieldRef> {
    let unnamed = |name: &str, data_type: &DataType| Arc::new(Field::new(name, data_type.clone(), true));
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            vec![Arc::clone(item)]
        }
        DataType::Map(entries, _) => vec![Arc::clone(entries)],
        DataType::Struct(fields) => fields.iter().cloned().collect(),
        DataType::Union(fields, _) => fields.iter().map(|(_, field)| Arc::clone(field)).collect(),
        DataType::Dictionary(keys, values) => vec![unnamed("keys", keys), unnamed("values", values)],
        DataType::RunEndEncoded(run_ends, values) => vec![Arc::clone(run_ends), Arc::clone(values)],
        _ => Vec::new(),
    }
}
