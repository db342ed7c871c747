//! Columns without a flat layout, as a tree of mini-pages: lists, structs, maps, unions, dictionaries, run ends.
//!
//! ```text
//! 0  u32 nodes
//! 4  per node, in the preorder of the type's tree, 20 bytes:
//!      u32 position (units of 64 bytes)   u32 length   u32 rows   u32 null count   u8 encoding   u8[3] reserved
//! …  node bodies, each at a multiple of 64:
//!      leaf            a flat mini-page
//!      list, map       offsets, [validity]            child: the items (the entries)
//!      struct          [validity]                     children: the fields
//!      fixed list      [validity]                     child: the items
//!      union           type ids, pad 8, [offsets]     children: the fields
//!      dictionary      nothing                        children: keys, values
//!      run ends        nothing                        children: run ends, values
//! ```
//!
//! Decoding goes bottom up through Arrow's checked constructors.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int32Type, Int64Type, RunEndIndexType};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, FixedSizeListArray, GenericListArray, MapArray, OffsetSizeTrait,
    RunArray, StructArray, UInt32Array, UnionArray, downcast_dictionary_array, downcast_integer, make_array,
};
use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, FieldRef, UnionMode};

use crate::bitmap::Bitmap;
use crate::error::{PageError, Result};
use crate::format::{DIRECTORY_ENTRY_BYTES, Encoding, MINI_PAGE_ALIGNMENT, MiniPageMeta, u32_at};
use crate::mini_page::{check_offsets, column_array, no_tail, split};
use crate::pieces::Pieces;
use crate::rows::Rows;
use crate::schema::{ColumnLayout, children};
use crate::staging::{ColumnStaging, next_start};

/// Pieces of a nested column, taken from batches, until they are joined and encoded.
#[derive(Debug)]
pub(crate) struct NestedStaging {
    field: Field,
    nodes: usize,
    pieces: Vec<ArrayRef>,
    /// Sum over the pieces of their node bodies, validity always counted, each rounded up to its alignment.
    body_bytes: u64,
    /// Per dictionary and run-end node, what its key type must be able to count.
    loads: Vec<u64>,
}

impl NestedStaging {
    pub fn new(field: &Field) -> Self {
        Self {
            field: field.clone(),
            nodes: node_count(field.data_type()),
            pieces: Vec::new(),
            body_bytes: 0,
            loads: Vec::new(),
        }
    }

    pub fn clear(&mut self) {
        self.pieces.clear();
        self.body_bytes = 0;
        self.loads.clear();
    }

    pub fn capacity_bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.get_buffer_memory_size()).sum()
    }

    fn front_bytes(&self) -> u64 {
        (4 + self.nodes * DIRECTORY_ENTRY_BYTES).next_multiple_of(MINI_PAGE_ALIGNMENT) as u64
    }

    pub fn bound_bytes(&self) -> u64 {
        // An empty column still has its offsets of zero rows.
        let empty = self.nodes as u64 * MINI_PAGE_ALIGNMENT as u64;
        self.front_bytes() + empty + self.body_bytes
    }

    pub fn bound_bytes_with(&self, array: &dyn Array, rows: &Rows<'_>) -> Result<u64> {
        Ok(self.bound_bytes() + body_bytes(&gather(array, rows)?)?)
    }

    pub fn overflows_with(&self, array: &dyn Array, rows: &Rows<'_>) -> Result<bool> {
        if !counts_keys(self.field.data_type()) {
            return Ok(false);
        }
        let mut limits = Vec::new();
        let mut loads = Vec::new();
        key_loads(&gather(array, rows)?, &mut loads, &mut limits);
        let staged = self.loads.iter().copied().chain(std::iter::repeat(0));
        Ok(loads.iter().zip(staged).zip(limits).any(|((load, staged), limit)| load + staged > limit))
    }

    pub fn append(&mut self, array: &dyn Array, rows: &Rows<'_>) -> Result<()> {
        let piece = gather(array, rows)?;
        self.body_bytes += body_bytes(&piece)?;
        let mut loads = Vec::new();
        key_loads(&piece, &mut loads, &mut Vec::new());
        self.loads.resize(loads.len(), 0);
        self.loads.iter_mut().zip(loads).for_each(|(staged, load)| *staged += load);
        self.pieces.push(piece);
        Ok(())
    }

    /// Writes the tree to the start of `out` and returns its length.
    pub fn encode(&self, out: &mut [u8], column_name: &str) -> Result<usize> {
        let pieces: Vec<&dyn Array> = self.pieces.iter().map(AsRef::as_ref).collect();
        let array = match pieces.as_slice() {
            [] => arrow_array::new_empty_array(self.field.data_type()),
            pieces => arrow_select::concat::concat(pieces)?,
        };
        let mut nodes = Vec::with_capacity(self.nodes);
        encode_node(&array, &mut nodes)?;
        let front = 4 + nodes.len() * DIRECTORY_ENTRY_BYTES;
        let length = nodes.iter().fold(front, |end, node| next_start(end) + node.body.len());
        let buffer_bytes = out.len();
        let out =
            out.get_mut(..length).ok_or(PageError::BufferTooSmall { needed_bytes: length, buffer_bytes })?;
        let too_long = || PageError::ValueTooLong {
            column: column_name.to_owned(),
            value_bytes: length as u64,
            max_bytes: u64::from(u32::MAX),
        };
        u32::try_from(length).map_err(|_| too_long())?;
        out.fill(0);
        let mut directory = Vec::with_capacity(front);
        directory.extend((nodes.len() as u32).to_le_bytes());
        let mut end = front;
        for node in &nodes {
            let start = next_start(end);
            end = start + node.body.len();
            directory.extend(((start / MINI_PAGE_ALIGNMENT) as u32).to_le_bytes());
            directory.extend((node.body.len() as u32).to_le_bytes());
            directory.extend(u32::try_from(node.rows).map_err(|_| too_long())?.to_le_bytes());
            directory.extend((node.nulls as u32).to_le_bytes());
            directory.extend([node.encoding as u8, 0, 0, 0]);
            out[start..end].copy_from_slice(&node.body);
        }
        out[..front].copy_from_slice(&directory);
        Ok(length)
    }
}

fn node_count(data_type: &DataType) -> usize {
    1 + children(data_type).iter().map(|child| node_count(child.data_type())).sum::<usize>()
}

fn counts_keys(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Dictionary(..) | DataType::RunEndEncoded(..))
        || children(data_type).iter().any(|child| counts_keys(child.data_type()))
}

/// Copies the rows out of the batch, with only the dictionary values that they use.
fn gather(array: &dyn Array, rows: &Rows<'_>) -> Result<ArrayRef> {
    let indices: UInt32Array = match rows {
        Rows::Range(range) => (range.start as u32..range.end as u32).collect::<Vec<_>>().into(),
        Rows::Indices(indices) => indices.to_vec().into(),
    };
    let taken = arrow_select::take::take(array, &indices, None)?;
    if counts_keys(array.data_type()) { compact(&taken) } else { Ok(taken) }
}

/// Drops dictionary values that no key refers to, at any depth that SQL types reach.
fn compact(array: &ArrayRef) -> Result<ArrayRef> {
    let array: ArrayRef = match array.data_type() {
        DataType::Dictionary(..) => downcast_dictionary_array! {
            array => Arc::new(arrow_select::dictionary::garbage_collect_dictionary(array)?),
            _ => Arc::clone(array),
        },
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns().iter().map(compact).collect::<Result<Vec<_>>>()?;
            let (nulls, rows) = (array.nulls().cloned(), array.len());
            Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, rows)?)
        }
        DataType::List(item) => {
            let list = array.as_list::<i32>();
            let (values, nulls) = (compact(list.values())?, array.nulls().cloned());
            Arc::new(GenericListArray::try_new(Arc::clone(item), list.offsets().clone(), values, nulls)?)
        }
        _ => Arc::clone(array),
    };
    Ok(array)
}

/// Dictionary sizes and run-end row counts, with the most that their key types can count, in preorder.
fn key_loads(array: &ArrayRef, loads: &mut Vec<u64>, limits: &mut Vec<u64>) {
    let key_limit = |data_type: &DataType| match data_type {
        DataType::Int8 => i8::MAX as u64,
        DataType::UInt8 => u64::from(u8::MAX),
        DataType::Int16 => i16::MAX as u64,
        DataType::UInt16 => u64::from(u16::MAX),
        _ => i32::MAX as u64,
    };
    match array.data_type() {
        DataType::Dictionary(keys, _) => {
            limits.push(key_limit(keys));
            loads.push(array.as_any_dictionary().values().len() as u64);
        }
        DataType::RunEndEncoded(run_ends, _) => {
            limits.push(key_limit(run_ends.data_type()));
            loads.push(array.len() as u64);
        }
        _ => {}
    }
    for child in child_arrays(array) {
        key_loads(&child, loads, limits);
    }
}

/// Child arrays as they are encoded: only what the node's rows refer to.
fn child_arrays(array: &ArrayRef) -> Vec<ArrayRef> {
    fn list_items<O: OffsetSizeTrait>(offsets: &[O], values: &ArrayRef) -> ArrayRef {
        let (first, last) = (offsets[0].as_usize(), offsets[offsets.len() - 1].as_usize());
        values.slice(first, last - first)
    }
    match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            vec![list_items(list.value_offsets(), list.values())]
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            vec![list_items(list.value_offsets(), list.values())]
        }
        DataType::Map(..) => {
            let map = array.as_map();
            let entries: ArrayRef = Arc::new(map.entries().clone());
            vec![list_items(map.value_offsets(), &entries)]
        }
        DataType::FixedSizeList(..) => vec![Arc::clone(array.as_fixed_size_list().values())],
        DataType::Struct(_) => array.as_struct().columns().to_vec(),
        DataType::Union(fields, _) => {
            let union = array.as_union();
            fields.iter().map(|(id, _)| Arc::clone(union.child(id))).collect()
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            vec![make_array(dictionary.keys().to_data()), Arc::clone(dictionary.values())]
        }
        DataType::RunEndEncoded(run_ends, _) => match run_ends.data_type() {
            DataType::Int16 => run_children::<Int16Type>(array),
            DataType::Int32 => run_children::<Int32Type>(array),
            _ => run_children::<Int64Type>(array),
        },
        _ => Vec::new(),
    }
}

fn run_children<R: RunEndIndexType>(array: &ArrayRef) -> Vec<ArrayRef> {
    let runs = array.as_run::<R>();
    let ends = runs.run_ends().inner().clone();
    vec![Arc::new(arrow_array::PrimitiveArray::<R>::new(ends, None)), Arc::clone(runs.values())]
}

/// Upper bound of the node bodies of `array` and everything below it.
fn body_bytes(array: &ArrayRef) -> Result<u64> {
    let rows = array.len() as u64;
    let all = Rows::Range(0..array.len());
    let own = match array.data_type() {
        DataType::List(_) | DataType::Map(..) => (rows + 1) * 4,
        DataType::LargeList(_) => (rows + 1) * 8,
        DataType::Union(..) => rows * 5 + 8,
        data_type if children(data_type).is_empty() => {
            ColumnStaging::new(&Field::new("", data_type.clone(), true))
                .mini_page_bytes_with(array.as_ref(), &all)?
        }
        _ => 0,
    };
    let with_validity = (own + 8 + rows.div_ceil(8)).next_multiple_of(MINI_PAGE_ALIGNMENT as u64);
    let below = child_arrays(array).iter().map(body_bytes).sum::<Result<u64>>()?;
    Ok(with_validity + below)
}

struct Node {
    rows: usize,
    nulls: usize,
    encoding: Encoding,
    body: Vec<u8>,
}

fn encode_node(array: &ArrayRef, nodes: &mut Vec<Node>) -> Result<()> {
    let rows = array.len();
    let nulls = array.null_count();
    let node = match array.data_type() {
        DataType::List(_) => offsets_node(array.as_list::<i32>().value_offsets(), array),
        DataType::LargeList(_) => offsets_node(array.as_list::<i64>().value_offsets(), array),
        DataType::Map(..) => offsets_node(array.as_map().value_offsets(), array),
        DataType::Struct(_) | DataType::FixedSizeList(..) => {
            Node { rows, nulls, encoding: Encoding::Nested, body: with_validity(Vec::new(), array) }
        }
        DataType::Union(..) => {
            let union = array.as_union();
            let mut body: Vec<u8> = union.type_ids().inner().as_slice().to_vec();
            if let Some(offsets) = union.offsets() {
                body.resize(rows.next_multiple_of(8), 0);
                body.extend(offsets.iter().flat_map(|offset| offset.to_le_bytes()));
            }
            Node { rows, nulls: 0, encoding: Encoding::Nested, body }
        }
        DataType::Dictionary(..) | DataType::RunEndEncoded(..) => {
            Node { rows, nulls: 0, encoding: Encoding::Nested, body: Vec::new() }
        }
        data_type => {
            let field = Field::new("item", data_type.clone(), true);
            let mut staging = ColumnStaging::new(&field);
            staging.append(array.as_ref(), &Rows::Range(0..rows), field.name())?;
            let mut body = vec![0; staging.mini_page_bytes() as usize];
            let (encoding, _) = staging.encode(&mut body, field.name())?;
            Node { rows, nulls: staging.null_count(), encoding, body }
        }
    };
    nodes.push(node);
    child_arrays(array).iter().try_for_each(|child| encode_node(child, nodes))
}

fn offsets_node<O: OffsetSizeTrait>(offsets: &[O], array: &ArrayRef) -> Node {
    let first = offsets[0];
    let (mut head, mut encoding) = (Vec::new(), Encoding::Offsets32);
    for offset in offsets {
        let offset = (*offset - first).as_usize() as u64;
        if O::IS_LARGE {
            head.extend(offset.to_le_bytes());
            encoding = Encoding::Offsets64;
        } else {
            head.extend((offset as u32).to_le_bytes());
        }
    }
    Node { rows: array.len(), nulls: array.null_count(), encoding, body: with_validity(head, array) }
}

fn with_validity(mut head: Vec<u8>, array: &ArrayRef) -> Vec<u8> {
    let Some(nulls) = array.nulls().filter(|nulls| nulls.null_count() > 0) else { return head };
    let pieces = Pieces::new(head.len() as u64, array.len(), true);
    let start = pieces.validity_start as usize;
    head.resize(pieces.tail_start as usize, 0);
    let mut validity = Bitmap::default();
    validity.append(nulls.inner(), Rows::Range(0..array.len()));
    validity.write(&mut head[start..]);
    head
}

/// Decodes the tree of one column.
pub(crate) fn decode(bytes: &Buffer, field: &Field, rows: usize) -> Result<ArrayRef> {
    let found = u32_at(bytes, 0) as usize;
    let expected = node_count(field.data_type());
    let front = 4 + expected * DIRECTORY_ENTRY_BYTES;
    if found != expected || bytes.len() < front {
        let reason = format!("{found} nodes in {} bytes, its type has {expected}", bytes.len());
        return Err(PageError::malformed(field.name(), reason));
    }
    let mut reader = NodeReader { bytes, column: field.name(), next: 0 };
    reader.read(field, Some(rows))
}

struct NodeReader<'a> {
    bytes: &'a Buffer,
    column: &'a str,
    next: usize,
}

struct NodeBody {
    rows: usize,
    nulls: usize,
    encoding: Encoding,
    bytes: Buffer,
}

impl NodeReader<'_> {
    fn malformed(&self, reason: impl Into<String>) -> PageError {
        PageError::malformed(self.column, reason)
    }

    fn next_body(&mut self) -> Result<NodeBody> {
        let at = 4 + self.next * DIRECTORY_ENTRY_BYTES;
        self.next += 1;
        let start = u32_at(self.bytes, at) as usize * MINI_PAGE_ALIGNMENT;
        let length = u32_at(self.bytes, at + 4) as usize;
        if start + length > self.bytes.len() {
            let reason = format!("a node at {start} of {length} bytes lies outside its mini-page");
            return Err(self.malformed(reason));
        }
        let encoding = self.bytes.get(at + 16).copied().and_then(Encoding::from_byte);
        Ok(NodeBody {
            rows: u32_at(self.bytes, at + 8) as usize,
            nulls: u32_at(self.bytes, at + 12) as usize,
            encoding: encoding.ok_or_else(|| self.malformed("a node has an unknown encoding"))?,
            bytes: self.bytes.slice_with_length(start, length),
        })
    }

    /// Reads the next node and everything below it. `rows` is what its parent says, where the parent knows.
    fn read(&mut self, field: &Field, rows: Option<usize>) -> Result<ArrayRef> {
        let data_type = field.data_type();
        let body = self.next_body()?;
        if rows.is_some_and(|rows| rows != body.rows) {
            return Err(self.malformed(format!("a node has {} rows, its parent says {rows:?}", body.rows)));
        }
        let rows = body.rows;
        let array: ArrayRef = match data_type {
            DataType::List(item) => self.read_list::<i32>(&body, item)?,
            DataType::LargeList(item) => self.read_list::<i64>(&body, item)?,
            DataType::Map(entries_field, ordered) => {
                let (offsets, nulls) = self.offsets::<i32>(&body)?;
                let items = offsets.last().map_or(0, |last| last.as_usize());
                let entries = self.read(entries_field, Some(items))?;
                let entries = entries.as_struct_opt().ok_or_else(|| self.malformed("map without entries"))?;
                let entries_field = Arc::clone(entries_field);
                Arc::new(MapArray::try_new(entries_field, offsets, entries.clone(), nulls, *ordered)?)
            }
            DataType::FixedSizeList(item, size) => {
                let nulls = self.validity(&body)?;
                let items = usize::try_from(*size).unwrap_or(0).saturating_mul(rows);
                let values = self.read(item, Some(items))?;
                let item = Arc::clone(item);
                Arc::new(FixedSizeListArray::try_new_with_length(item, *size, values, nulls, rows)?)
            }
            DataType::Struct(fields) => {
                let nulls = self.validity(&body)?;
                let columns =
                    fields.iter().map(|child| self.read(child, Some(rows))).collect::<Result<Vec<_>>>()?;
                Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, rows)?)
            }
            DataType::Union(fields, mode) => {
                let (type_ids, offsets) = self.union_parts(&body, *mode)?;
                let child_rows = (*mode == UnionMode::Sparse).then_some(rows);
                let columns = fields
                    .iter()
                    .map(|(_, child)| self.read(child, child_rows))
                    .collect::<Result<Vec<_>>>()?;
                Arc::new(UnionArray::try_new(fields.clone(), type_ids, offsets, columns)?)
            }
            DataType::Dictionary(key_type, value_type) => {
                let keys = self.read(&Field::new("keys", key_type.as_ref().clone(), true), Some(rows))?;
                let values = self.read(&Field::new("values", value_type.as_ref().clone(), true), None)?;
                self.dictionary(key_type, &keys, values)?
            }
            DataType::RunEndEncoded(run_ends_field, values_field) => {
                let ends = self.read(run_ends_field, None)?;
                let values = self.read(values_field, Some(ends.len()))?;
                match run_ends_field.data_type() {
                    DataType::Int16 => run_array::<Int16Type>(data_type, &ends, &values)?,
                    DataType::Int32 => run_array::<Int32Type>(data_type, &ends, &values)?,
                    _ => run_array::<Int64Type>(data_type, &ends, &values)?,
                }
            }
            _ => {
                let meta = MiniPageMeta {
                    offset_bytes: 0,
                    length_bytes: body.bytes.len() as u32,
                    null_count: body.nulls as u32,
                    encoding: body.encoding,
                    checksum: 0,
                };
                if ColumnLayout::of(data_type) == ColumnLayout::Nested {
                    return Err(self.malformed(format!("{data_type} cannot be stored")));
                }
                let leaf = Field::new(self.column, data_type.clone(), true);
                column_array(body.bytes, &leaf, rows, &meta)?
            }
        };
        if array.len() != rows || array.data_type() != data_type {
            return Err(self.malformed(format!("{} rows decoded, {rows} expected", array.len())));
        }
        Ok(array)
    }

    fn validity(&self, body: &NodeBody) -> Result<Option<NullBuffer>> {
        let (_, nulls, tail) = split(&body.bytes, 0, body.rows, body.nulls, self.column)?;
        no_tail(&tail, self.column)?;
        Ok(nulls)
    }

    fn offsets<O: OffsetSizeTrait>(&self, body: &NodeBody) -> Result<(OffsetBuffer<O>, Option<NullBuffer>)> {
        let head_bytes = (body.rows as u64 + 1) * size_of::<O>() as u64;
        let (head, nulls, tail) = split(&body.bytes, head_bytes, body.rows, body.nulls, self.column)?;
        no_tail(&tail, self.column)?;
        let offsets = ScalarBuffer::<O>::new(head, 0, body.rows + 1);
        let end = offsets.last().and_then(|last| last.to_usize()).unwrap_or(usize::MAX);
        check_offsets(&offsets, end, self.column)?;
        // SAFETY: `check_offsets` proved that the offsets ascend from 0.
        Ok((unsafe { OffsetBuffer::new_unchecked(offsets) }, nulls))
    }

    fn read_list<O: OffsetSizeTrait>(&mut self, body: &NodeBody, item: &FieldRef) -> Result<ArrayRef> {
        let (offsets, nulls) = self.offsets::<O>(body)?;
        let items = offsets.last().map_or(0, |last| last.as_usize());
        let values = self.read(item, Some(items))?;
        Ok(Arc::new(GenericListArray::<O>::try_new(Arc::clone(item), offsets, values, nulls)?))
    }

    fn union_parts(
        &self,
        body: &NodeBody,
        mode: UnionMode,
    ) -> Result<(ScalarBuffer<i8>, Option<ScalarBuffer<i32>>)> {
        let ids_bytes = body.rows.next_multiple_of(8);
        let needed = match mode {
            UnionMode::Sparse => body.rows,
            UnionMode::Dense => ids_bytes + body.rows * 4,
        };
        if body.bytes.len() != needed {
            return Err(self.malformed(format!("a union needs {needed} bytes, found {}", body.bytes.len())));
        }
        let type_ids = ScalarBuffer::<i8>::new(body.bytes.clone(), 0, body.rows);
        let offsets = (mode == UnionMode::Dense)
            .then(|| ScalarBuffer::<i32>::new(body.bytes.slice(ids_bytes), 0, body.rows));
        Ok((type_ids, offsets))
    }

    fn dictionary(&self, key_type: &DataType, keys: &ArrayRef, values: ArrayRef) -> Result<ArrayRef> {
        macro_rules! dictionary {
            ($type:ty) => {{
                let keys = keys.as_primitive::<$type>().clone();
                Ok(Arc::new(DictionaryArray::<$type>::try_new(keys, values)?))
            }};
        }
        downcast_integer! {
            key_type => (dictionary),
            other => Err(self.malformed(format!("{other} cannot be a dictionary key"))),
        }
    }
}

/// Arrow's constructor names the children itself; a column's type may name them otherwise.
fn run_array<R: RunEndIndexType>(
    data_type: &DataType,
    ends: &ArrayRef,
    values: &ArrayRef,
) -> Result<ArrayRef> {
    let runs = RunArray::<R>::try_new(ends.as_primitive::<R>(), values.as_ref())?;
    Ok(make_array(runs.into_data().into_builder().data_type(data_type.clone()).build()?))
}
