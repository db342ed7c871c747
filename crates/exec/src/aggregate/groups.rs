//! Groups in memory: their keys, and the state of every aggregate function for each of them.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, MutableArrayData, RecordBatch, RecordBatchOptions, make_array};
use arrow::buffer::Buffer;
use arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

use super::spec::{AggregateSpec, Arguments, InputRows};
use crate::batch::with_own_buffers;
use crate::keys::{GroupTable, KeyedRows};

/// The groups of one table.
pub struct Groups {
    spec: Arc<AggregateSpec>,
    table: GroupTable,
    accumulators: Vec<Box<dyn GroupsAccumulator>>,
    /// The group of every row of the current batch.
    row_groups: Vec<usize>,
}

impl Groups {
    pub fn try_new(spec: &Arc<AggregateSpec>) -> Result<Self> {
        Ok(Self {
            table: GroupTable::try_new(spec.key_types())?,
            accumulators: spec.accumulators()?,
            row_groups: Vec::new(),
            spec: Arc::clone(spec),
        })
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Bytes held, spare capacity included.
    pub fn memory_bytes(&self) -> usize {
        let states: usize = self.accumulators.iter().map(|accumulator| accumulator.size()).sum();
        self.table.memory_bytes() + states + self.row_groups.capacity() * size_of::<usize>()
    }

    /// Adds input rows under the keys of one grouping set.
    pub fn update(&mut self, keyed: &KeyedRows, arguments: &[Arguments]) -> Result<()> {
        self.table.find_or_insert(&keyed.batch_keys(), &keyed.hashes, &mut self.row_groups);
        let groups = self.table.len();
        for (accumulator, arguments) in self.accumulators.iter_mut().zip(arguments) {
            let filter = arguments.filter.as_ref().map(|filter| filter.as_boolean());
            accumulator.update_batch(&arguments.values, &self.row_groups, filter, groups)?;
        }
        Ok(())
    }

    /// Merges groups in stored form.
    pub fn merge(&mut self, stored: &RecordBatch) -> Result<()> {
        let (keyed, states) = self.spec.parts(stored)?;
        self.table.find_or_insert(&keyed.batch_keys(), &keyed.hashes, &mut self.row_groups);
        let groups = self.table.len();
        for (accumulator, columns) in self.accumulators.iter_mut().zip(self.spec.state_columns()) {
            accumulator.merge_batch(&states[columns], &self.row_groups, groups)?;
        }
        Ok(())
    }

    /// Input rows as groups of one row each, in stored form, without taking them in.
    pub fn convert(&self, keyed: &KeyedRows, rows: &InputRows) -> Result<RecordBatch> {
        let mut states = Vec::new();
        for (accumulator, arguments) in self.accumulators.iter().zip(&rows.arguments) {
            let filter = arguments.filter.as_ref().map(|filter| filter.as_boolean());
            states.extend(accumulator.convert_to_state(&arguments.values, filter)?);
        }
        self.spec.stored(keyed, states)
    }

    /// All groups in stored form; none remain.
    pub fn take_stored(&mut self) -> Result<RecordBatch> {
        let mut accumulators = std::mem::replace(&mut self.accumulators, self.spec.accumulators()?);
        let (hashes, keys) = self.table.take()?;
        let keyed = KeyedRows { hashes: hashes.values().clone(), keys };
        let mut states = Vec::new();
        // Functions that have seen no row have no states, not even empty ones.
        if keyed.hashes.is_empty() {
            return Ok(RecordBatch::new_empty(Arc::clone(self.spec.pages.arrow())));
        }
        for accumulator in &mut accumulators {
            states.extend(accumulator.state(EmitTo::All)?);
        }
        self.spec.stored(&keyed, states)
    }

    /// The results of all groups.
    pub fn finish(mut self) -> Result<Results> {
        let (_, keys) = self.table.take()?;
        let rows = keys.first().map_or(0, |key| key.len());
        let mut values = Vec::new();
        if rows > 0 {
            for accumulator in &mut self.accumulators {
                values.push(accumulator.evaluate(EmitTo::All)?);
            }
        }
        Ok(Results { spec: self.spec, keys, values, rows, emitted: 0 })
    }
}

/// The results of a table's groups, emitted batch by batch.
pub struct Results {
    spec: Arc<AggregateSpec>,
    keys: Vec<ArrayRef>,
    values: Vec<ArrayRef>,
    rows: usize,
    emitted: usize,
}

impl Results {
    /// Bytes of all results.
    pub fn memory_bytes(&self) -> usize {
        self.keys.iter().chain(&self.values).map(array_bytes).sum()
    }

    /// The next batch.
    pub fn next(&mut self) -> Result<Option<RecordBatch>> {
        let count = self.spec.batch_rows.min(self.rows - self.emitted);
        if count == 0 {
            return Ok(None);
        }
        let part = |array: &ArrayRef| own_rows(array, self.emitted, count);
        let keys = self.keys.iter().map(part).collect::<Result<Vec<_>>>()?;
        let mut columns = self.spec.restore_keys(&keys)?;
        for value in &self.values {
            columns.push(part(value)?);
        }
        self.emitted += count;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        RecordBatch::try_new_with_options(Arc::clone(&self.spec.schema), columns, &options)
            .map(Some)
            .map_err(DataFusionError::from)
    }
}

/// Bytes that an array holds. Buffers of views may be windows of one allocation, each of which would count as all of it.
fn array_bytes(array: &ArrayRef) -> usize {
    let of_views = |buffers: &[Buffer]| {
        let allocations: HashMap<_, _> =
            buffers.iter().map(|buffer| (buffer.data_ptr(), buffer.capacity())).collect();
        let bytes: usize = allocations.values().sum();
        bytes + array.len() * size_of::<u128>() + array.len().div_ceil(8)
    };
    match array.data_type() {
        DataType::Utf8View => of_views(array.as_string_view().data_buffers()),
        DataType::BinaryView => of_views(array.as_binary_view().data_buffers()),
        _ => array.get_array_memory_size(),
    }
}

/// Rows of an array in buffers of their own. A slice would keep all of the array in memory, and operators that count
/// what they hold would count all of it for every slice.
fn own_rows(array: &ArrayRef, first: usize, count: usize) -> Result<ArrayRef> {
    if count == array.len() {
        return Ok(Arc::clone(array));
    }
    match array.data_type() {
        DataType::Utf8View | DataType::BinaryView => with_own_buffers(&array.slice(first, count)),
        _ => {
            let data = array.to_data();
            let mut rows = MutableArrayData::new(vec![&data], false, count);
            rows.try_extend(0, first, first + count)?;
            Ok(make_array(rows.freeze()))
        }
    }
}
