//! Rows by themselves, for stores that change single rows: any value of a row is found without those before it.
//!
//! ```text
//! 0   u16 columns; the highest bit says whether ends have four bytes
//! 2   nulls, a bit per column
//! …   values of a fixed width, in the order of the columns: zeros for nulls, a byte for a truth value
//! …   where each of the other values ends behind all of this: u16, or u32 in long rows
//! …   their bytes: text and binary as they are, nested values as a tree of mini-pages of one row
//! ```
//!
//! Rows that were written before columns were added have fewer; those are null.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    BinaryType, BinaryViewType, LargeBinaryType, LargeUtf8Type, StringViewType, Utf8Type,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, NullArray, RecordBatch, RecordBatchOptions, new_null_array,
};
use arrow_buffer::{BooleanBufferBuilder, Buffer, MutableBuffer, NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::error::{PageError, Result};
use crate::mini_page::{fixed_array, variable_array};
use crate::nested::{self, NestedStaging};
use crate::rows::Rows;
use crate::schema::{ColumnLayout, PageSchema};
use crate::staging::fixed_bytes;

const COUNT_BYTES: usize = 2;
const HAS_LONG_ENDS: u16 = 1 << 15;
const MOST_COLUMNS: usize = HAS_LONG_ENDS as usize - 1;

/// How the rows of a schema are written.
#[derive(Debug, Clone)]
pub struct RowCodec {
    schema: Arc<PageSchema>,
    /// Per column and behind the last one: the fixed-width bytes of those before, and how many of those have none.
    before: Vec<Before>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Before {
    fixed_bytes: usize,
    variable: usize,
}

impl RowCodec {
    pub fn try_new(schema: Arc<PageSchema>) -> Result<Self> {
        if schema.columns() > MOST_COLUMNS {
            return Err(PageError::BatchColumns { found: schema.columns(), expected: MOST_COLUMNS });
        }
        let mut at = Before::default();
        let mut before = vec![at];
        for layout in schema.layouts() {
            match layout {
                ColumnLayout::Null => {}
                ColumnLayout::Bits => at.fixed_bytes += 1,
                ColumnLayout::Fixed { width_bytes } => at.fixed_bytes += width_bytes,
                ColumnLayout::Variable | ColumnLayout::Nested => at.variable += 1,
            }
            before.push(at);
        }
        Ok(Self { schema, before })
    }

    pub fn schema(&self) -> &SchemaRef {
        self.schema.arrow()
    }

    /// Prepares the rows of a batch, whose columns have the types of the schema.
    pub fn encoder<'b>(&self, batch: &'b RecordBatch) -> Result<RowEncoder<'_, 'b>> {
        if batch.num_columns() != self.schema.columns() {
            let (found, expected) = (batch.num_columns(), self.schema.columns());
            return Err(PageError::BatchColumns { found, expected });
        }
        for (column, (array, field)) in batch.columns().iter().zip(self.schema().fields()).enumerate() {
            if array.data_type() != field.data_type() {
                let (found, expected) = (array.data_type().clone(), field.data_type().clone());
                return Err(PageError::TypeMismatch { column, found, expected });
            }
        }
        Ok(RowEncoder { codec: self, batch, ends: Vec::new(), tail: Vec::new() })
    }

    /// Collects these columns of rows.
    pub fn decoder(&self, columns: &[usize]) -> Result<RowDecoder<'_>> {
        let mut builders = Vec::with_capacity(columns.len());
        for &column in columns {
            let layout = self.schema.layouts().get(column);
            let layout = layout.ok_or(PageError::NoSuchColumn { column, columns: self.schema.columns() })?;
            builders.push(ColumnBuilder::new(column, *layout));
        }
        Ok(RowDecoder { codec: self, builders, rows: 0 })
    }
}

/// Writes the rows of one batch.
#[derive(Debug)]
pub struct RowEncoder<'c, 'b> {
    codec: &'c RowCodec,
    batch: &'b RecordBatch,
    ends: Vec<usize>,
    tail: Vec<u8>,
}

impl RowEncoder<'_, '_> {
    /// Appends the bytes of a row to `out`.
    pub fn encode(&mut self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        let columns = self.batch.num_columns();
        self.ends.clear();
        self.tail.clear();
        let start = out.len();
        let count = columns as u16;
        out.extend_from_slice(&count.to_le_bytes());
        let nulls_at = out.len();
        out.resize(nulls_at + columns.div_ceil(8), 0);
        let schema = Arc::clone(&self.codec.schema);
        for (column, (array, layout)) in self.batch.columns().iter().zip(schema.layouts()).enumerate() {
            let is_null = *layout == ColumnLayout::Null || array.is_null(row);
            if is_null {
                out[nulls_at + column / 8] |= 1 << (column % 8);
            }
            match layout {
                ColumnLayout::Null => {}
                ColumnLayout::Bits => out.push(u8::from(!is_null && array.as_boolean().value(row))),
                ColumnLayout::Fixed { width_bytes } if is_null => out.resize(out.len() + width_bytes, 0),
                ColumnLayout::Fixed { width_bytes } => {
                    let at = row * width_bytes;
                    out.extend_from_slice(&fixed_bytes(array)[at..at + width_bytes]);
                }
                ColumnLayout::Variable => {
                    if !is_null {
                        self.tail.extend_from_slice(text_or_binary(array, row));
                    }
                    self.ends.push(self.tail.len());
                }
                ColumnLayout::Nested => {
                    if !is_null {
                        self.append_nested(array, column, row)?;
                    }
                    self.ends.push(self.tail.len());
                }
            }
        }
        if self.tail.len() > usize::from(u16::MAX) {
            out[start..start + COUNT_BYTES].copy_from_slice(&(count | HAS_LONG_ENDS).to_le_bytes());
            for (end, column) in self.ends.iter().zip(self.variable_columns()) {
                let end = u32::try_from(*end).map_err(|_| PageError::ValueTooLong {
                    column: column.name().clone(),
                    value_bytes: *end as u64,
                    max_bytes: u64::from(u32::MAX),
                })?;
                out.extend_from_slice(&end.to_le_bytes());
            }
        } else {
            self.ends.iter().for_each(|end| out.extend_from_slice(&(*end as u16).to_le_bytes()));
        }
        out.extend_from_slice(&self.tail);
        Ok(())
    }

    fn variable_columns(&self) -> impl Iterator<Item = &Field> {
        let layouts = self.codec.schema.layouts().iter();
        let is_variable =
            |layout: &ColumnLayout| matches!(layout, ColumnLayout::Variable | ColumnLayout::Nested);
        let fields = self.codec.schema().fields().iter().zip(layouts);
        fields.filter(move |(_, layout)| is_variable(layout)).map(|(field, _)| field.as_ref())
    }

    fn append_nested(&mut self, array: &ArrayRef, column: usize, row: usize) -> Result<()> {
        let field = self.codec.schema().field(column);
        let mut staging = NestedStaging::new(field);
        staging.append(array, &Rows::Range(row..row + 1))?;
        let bytes = usize::try_from(staging.bound_bytes()).unwrap_or(usize::MAX);
        let start = self.tail.len();
        self.tail.resize(start + bytes, 0);
        let used = staging.encode(&mut self.tail[start..], field.name())?;
        self.tail.truncate(start + used);
        Ok(())
    }
}

/// Collects columns of rows, one row after the other.
#[derive(Debug)]
pub struct RowDecoder<'c> {
    codec: &'c RowCodec,
    builders: Vec<ColumnBuilder>,
    rows: usize,
}

impl RowDecoder<'_> {
    /// Rows that were collected.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of memory that they take, about.
    pub fn bytes(&self) -> usize {
        self.builders
            .iter()
            .map(|builder| builder.fixed.len() + builder.bytes.len() + builder.ends.len() * 4)
            .sum()
    }

    /// Collects the values of a row. After an error some columns may have one more than others: nothing can be done with them.
    pub fn push(&mut self, row: &[u8]) -> Result<()> {
        let row = StoredRow::parse(self.codec, row)?;
        for builder in &mut self.builders {
            builder.push(self.codec, &row)?;
        }
        self.rows += 1;
        Ok(())
    }

    /// The columns of all rows so far; the next rows begin anew.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let columns = self.finish_columns()?;
        // Whether a row may have nulls is for those who write it: one from before a column was added has some.
        let nullable = |builder: &ColumnBuilder| {
            Arc::new(self.codec.schema().fields()[builder.column].as_ref().clone().with_nullable(true))
        };
        let fields: Vec<_> = self.builders.iter().map(nullable).collect();
        Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)?)
    }

    /// The columns of the rows since the last time alone.
    pub fn finish_columns(&mut self) -> Result<Vec<ArrayRef>> {
        let rows = std::mem::take(&mut self.rows);
        let column =
            |builder: &mut ColumnBuilder| builder.finish(&self.codec.schema().fields()[builder.column], rows);
        self.builders.iter_mut().map(column).collect()
    }
}

/// The parts of a row.
struct StoredRow<'r> {
    columns: usize,
    nulls: &'r [u8],
    fixed: &'r [u8],
    ends: &'r [u8],
    /// Bytes of an end.
    end_bytes: usize,
    tail: &'r [u8],
}

impl<'r> StoredRow<'r> {
    fn parse(codec: &RowCodec, row: &'r [u8]) -> Result<Self> {
        let malformed = || PageError::malformed("", "a row is shorter than its columns need");
        let (count, rest) = row.split_first_chunk::<COUNT_BYTES>().ok_or_else(malformed)?;
        let count = u16::from_le_bytes(*count);
        let columns = usize::from(count & !HAS_LONG_ENDS);
        let Some(before) = codec.before.get(columns) else {
            let reason = format!("a row has {columns} columns, its table {}", codec.schema.columns());
            return Err(PageError::malformed("", reason));
        };
        let end_bytes = if count & HAS_LONG_ENDS == 0 { 2 } else { 4 };
        let (nulls, rest) = rest.split_at_checked(columns.div_ceil(8)).ok_or_else(malformed)?;
        let (fixed, rest) = rest.split_at_checked(before.fixed_bytes).ok_or_else(malformed)?;
        let (ends, tail) = rest.split_at_checked(before.variable * end_bytes).ok_or_else(malformed)?;
        Ok(Self { columns, nulls, fixed, ends, end_bytes, tail })
    }

    fn is_null(&self, column: usize) -> bool {
        column >= self.columns || self.nulls[column / 8] >> (column % 8) & 1 == 1
    }

    fn variable(&self, number: usize) -> Option<&'r [u8]> {
        let start = number.checked_sub(1).map_or(0, |before| self.end(before));
        self.tail.get(start..self.end(number))
    }

    fn end(&self, number: usize) -> usize {
        let at = number * self.end_bytes;
        match self.ends[at..at + self.end_bytes] {
            [low, high] => usize::from(u16::from_le_bytes([low, high])),
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]) as usize,
            _ => unreachable!("ends have two or four bytes"),
        }
    }
}

#[derive(Debug)]
struct ColumnBuilder {
    column: usize,
    layout: ColumnLayout,
    validity: BooleanBufferBuilder,
    nulls: usize,
    fixed: MutableBuffer,
    bits: BooleanBufferBuilder,
    ends: Vec<i32>,
    bytes: Vec<u8>,
    nested: Vec<ArrayRef>,
}

impl ColumnBuilder {
    fn new(column: usize, layout: ColumnLayout) -> Self {
        Self {
            column,
            layout,
            validity: BooleanBufferBuilder::new(0),
            nulls: 0,
            fixed: MutableBuffer::new(0),
            bits: BooleanBufferBuilder::new(0),
            ends: vec![0],
            bytes: Vec::new(),
            nested: Vec::new(),
        }
    }

    fn push(&mut self, codec: &RowCodec, row: &StoredRow<'_>) -> Result<()> {
        let is_null = row.is_null(self.column);
        let before = codec.before[self.column];
        let field = codec.schema().field(self.column);
        let outside = || PageError::malformed(field.name(), "a value ends outside of its row");
        match self.layout {
            ColumnLayout::Null => {}
            ColumnLayout::Bits if is_null => self.bits.append(false),
            ColumnLayout::Bits => self.bits.append(row.fixed[before.fixed_bytes] != 0),
            ColumnLayout::Fixed { width_bytes } if is_null => self.fixed.extend_zeros(width_bytes),
            ColumnLayout::Fixed { width_bytes } => {
                let at = before.fixed_bytes;
                self.fixed.extend_from_slice(&row.fixed[at..at + width_bytes]);
            }
            ColumnLayout::Variable => {
                if !is_null {
                    self.bytes.extend_from_slice(row.variable(before.variable).ok_or_else(outside)?);
                }
                let end = i32::try_from(self.bytes.len()).map_err(|_| PageError::ValueTooLong {
                    column: field.name().clone(),
                    value_bytes: self.bytes.len() as u64,
                    max_bytes: i32::MAX as u64,
                })?;
                self.ends.push(end);
            }
            ColumnLayout::Nested => {
                let value = if is_null {
                    new_null_array(field.data_type(), 1)
                } else {
                    let bytes = row.variable(before.variable).ok_or_else(outside)?;
                    nested::decode(&Buffer::from(bytes), field, 1)?
                };
                self.nested.push(value);
            }
        }
        self.validity.append(!is_null);
        self.nulls += usize::from(is_null);
        Ok(())
    }

    fn finish(&mut self, field: &Field, rows: usize) -> Result<ArrayRef> {
        let validity = self.validity.finish();
        let nulls = std::mem::take(&mut self.nulls);
        let validity = (nulls > 0).then(|| NullBuffer::new(validity));
        match self.layout {
            ColumnLayout::Null => Ok(Arc::new(NullArray::new(rows))),
            ColumnLayout::Bits => Ok(Arc::new(BooleanArray::new(self.bits.finish(), validity))),
            ColumnLayout::Fixed { width_bytes } => fixed_array(
                std::mem::replace(&mut self.fixed, MutableBuffer::new(0)).into(),
                field,
                rows,
                width_bytes,
                validity,
            ),
            ColumnLayout::Variable => {
                let ends = ScalarBuffer::from(std::mem::replace(&mut self.ends, vec![0]));
                variable_array(field, ends, Buffer::from_vec(std::mem::take(&mut self.bytes)), validity)
            }
            ColumnLayout::Nested => {
                let pieces = std::mem::take(&mut self.nested);
                if pieces.is_empty() {
                    return Ok(arrow_array::new_empty_array(field.data_type()));
                }
                let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
                Ok(arrow_select::concat::concat(&pieces)?)
            }
        }
    }
}

/// The bytes of a value of variable width.
fn text_or_binary(array: &dyn Array, row: usize) -> &[u8] {
    match array.data_type() {
        DataType::Utf8 => array.as_bytes::<Utf8Type>().value(row).as_bytes(),
        DataType::LargeUtf8 => array.as_bytes::<LargeUtf8Type>().value(row).as_bytes(),
        DataType::Binary => array.as_bytes::<BinaryType>().value(row),
        DataType::LargeBinary => array.as_bytes::<LargeBinaryType>().value(row),
        DataType::Utf8View => array.as_byte_view::<StringViewType>().value(row).as_bytes(),
        DataType::BinaryView => array.as_byte_view::<BinaryViewType>().value(row),
        other => unreachable!("{other} has a layout of its own"),
    }
}
