//! Statements that read or change few rows by their keys, without a plan of operators.
//!
//! ```text
//!   values of the parameters ─► key ─► index ─► rows of heap, segments ─► Filter, Sort, … ─┬─► rows of the result
//!                           └─► one row without columns ─────────────────► Project ────────┴─► insert, update, delete
//! ```
//!
//! The expressions are those that DataFusion has planned; what stands for a value of a statement's text, or for a parameter, is a
//! [`Parameter`] in them. So the same statement with other values is the same [`ShortStatement`].

use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray as _, RecordBatch, RecordBatchOptions, UInt64Array};
use datafusion::arrow::compute::{
    concat_batches, filter_record_batch, lexsort_to_indices, take_record_batch,
};
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use nandina_device::FlowId;
use nandina_storage::{FetchOptions, KeyRange, PlannedBy, RowId, StorageError, Table, Transaction, by_place};

use super::applying::{Applying, RowChange};
use super::blocking;
use super::transactions::{SharedTransaction, Transactions};
use crate::error::pages_error;
use crate::scan::{add_few, conform, storage_error};

/// More rows than this, or more bytes, are for a plan.
const MOST_ROWS: usize = 256;
const MOST_BYTES: usize = 1 << 20;

/// A statement whose rows are found by a key, or stand in the statement.
#[derive(Debug)]
pub struct ShortStatement {
    /// The table as it was when the statement was planned.
    pub planned_by: PlannedBy,
    pub source: ShortSource,
    pub steps: Vec<ShortStep>,
    /// What the rows do to the table; nothing in a query.
    pub change: Option<RowChange>,
}

/// The rows that a statement begins with.
#[derive(Debug)]
pub enum ShortSource {
    /// One row without columns.
    One,
    Index(Box<KeyLookup>),
}

/// Rows of a table by an index.
#[derive(Debug)]
pub struct KeyLookup {
    /// Its number.
    pub index: usize,
    /// Values of its first columns.
    pub equal: Vec<KeyValue>,
    /// Bounds of the next column.
    pub lower: Option<KeyValue>,
    pub upper: Option<KeyValue>,
    /// Whether there is one row at most.
    pub is_unique: bool,
    /// Columns of the table that are read.
    pub columns: Vec<usize>,
    /// Where row ids stand among them.
    pub row_ids_at: Option<usize>,
    pub schema: SchemaRef,
}

/// A value of a key.
#[derive(Debug, Clone)]
pub struct KeyValue {
    pub data_type: DataType,
    pub given: Given,
}

#[derive(Debug, Clone)]
pub enum Given {
    Parameter(usize),
    Literal(ScalarValue),
}

/// What is done to rows.
#[derive(Debug)]
pub enum ShortStep {
    Filter(Arc<dyn PhysicalExpr>),
    Project(Vec<Arc<dyn PhysicalExpr>>, SchemaRef),
    /// The first ones in this order, or all.
    Sort(Vec<PhysicalSortExpr>, Option<usize>),
    Limit {
        skip: usize,
        fetch: Option<usize>,
    },
}

/// A change that is ready to be made.
#[derive(Debug)]
pub struct ShortChange {
    statement: Arc<ShortStatement>,
    table: Table,
    transactions: Arc<Transactions>,
    values: Vec<ScalarValue>,
    /// Rows that stand in the statement.
    rows: Option<RecordBatch>,
}

impl ShortStatement {
    /// The rows of a query of this table; `None` if they are for a plan.
    pub fn rows(
        &self,
        table: &Table,
        transactions: &Arc<Transactions>,
        mut values: Vec<ScalarValue>,
    ) -> Result<Option<RecordBatch>> {
        let ShortSource::Index(lookup) = &self.source else { return Ok(None) };
        let Some(range) = lookup.range(&values)? else { return Ok(None) };
        let transaction = transactions.of(table.store())?;
        let Some(table) = self.seen_by(table, &transaction)? else { return Ok(None) };
        let Some(found) = lookup.read(&table, &transaction, &range)? else { return Ok(None) };
        self.computed(found, &mut values).map(Some)
    }

    /// A change of this table with these values; `None` if it is for a plan.
    pub fn change(
        self: &Arc<Self>,
        table: Table,
        transactions: &Arc<Transactions>,
        mut values: Vec<ScalarValue>,
    ) -> Result<Option<ShortChange>> {
        // An INSERT finds no rows that could be put elsewhere meanwhile.
        if table.has_segments() && !matches!(self.source, ShortSource::One) {
            transactions.keep_rows(table.store());
        }
        let transaction = transactions.of(table.store())?;
        if self.seen_by(&table, &transaction)?.is_none() {
            return Ok(None);
        }
        let rows = match &self.source {
            ShortSource::One => Some(self.computed(one_row()?, &mut values)?),
            ShortSource::Index(lookup) => match lookup.range(&values)? {
                Some(_) => None,
                None => return Ok(None),
            },
        };
        let (statement, transactions) = (Arc::clone(self), Arc::clone(transactions));
        Ok(Some(ShortChange { statement, table, transactions, values, rows }))
    }

    /// The table in the state that a transaction sees, if the statement was planned for that.
    fn seen_by(&self, table: &Table, transaction: &SharedTransaction) -> Result<Option<Table>> {
        let table = transaction.read(|transaction| transaction.table(table.name()))?;
        Ok(Some(table).filter(|table| self.planned_by.is_of(table)))
    }

    fn computed(&self, rows: RecordBatch, values: &mut Vec<ScalarValue>) -> Result<RecordBatch> {
        with_values(values, || self.steps.iter().try_fold(rows, |rows, step| step.of(&rows)))
    }
}

impl ShortStep {
    fn of(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        match self {
            Self::Filter(condition) => {
                let kept = condition.evaluate(rows)?.into_array(rows.num_rows())?;
                match kept.as_boolean_opt() {
                    Some(kept) => Ok(filter_record_batch(rows, kept)?),
                    None => internal_err!("a condition is true or false"),
                }
            }
            Self::Project(expressions, schema) => {
                let column = |expression: &Arc<dyn PhysicalExpr>| {
                    expression.evaluate(rows)?.into_array(rows.num_rows())
                };
                let columns = expressions.iter().map(column).collect::<Result<Vec<_>>>()?;
                batch(schema, columns, rows.num_rows())
            }
            Self::Sort(by, fetch) => {
                let column = |by: &PhysicalSortExpr| by.evaluate_to_sort_column(rows);
                let columns = by.iter().map(column).collect::<Result<Vec<_>>>()?;
                Ok(take_record_batch(rows, &lexsort_to_indices(&columns, *fetch)?)?)
            }
            Self::Limit { skip, fetch } => {
                let skipped = rows.num_rows().min(*skip);
                let left = rows.num_rows() - skipped;
                Ok(rows.slice(skipped, fetch.map_or(left, |fetch| fetch.min(left))))
            }
        }
    }
}

impl KeyLookup {
    /// The keys that are looked up; `None` if a value cannot be one of the index as it is.
    fn range(&self, values: &[ScalarValue]) -> Result<Option<KeyRange>> {
        let mut range = KeyRange::default();
        for value in &self.equal {
            let Some(value) = value.array(values)? else { return Ok(None) };
            range.equal.push(value);
        }
        for (bound, value) in [(&mut range.lower, &self.lower), (&mut range.upper, &self.upper)] {
            if let Some(value) = value {
                *bound = value.array(values)?;
                if bound.is_none() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(range))
    }

    /// The rows that a transaction sees, and perhaps others whose keys were in the range; `None` if they are too many or too large.
    fn read(
        &self,
        table: &Table,
        transaction: &SharedTransaction,
        range: &KeyRange,
    ) -> Result<Option<RecordBatch>> {
        let codec = table.row_codec().map_err(storage_error)?;
        let mut rows = codec.decoder(&self.columns).map_err(pages_error)?;
        let (mut ids, mut in_segments) = (Vec::new(), Vec::new());
        // A whole key has one row, and an entry for each of those that had it before.
        let (most_rows, most_bytes) =
            if self.is_unique { (usize::MAX, usize::MAX) } else { (MOST_ROWS, MOST_BYTES) };
        let mut read = |transaction: &Transaction| -> Result<bool, StorageError> {
            // An index that has been dropped meanwhile does not have what this transaction has added since.
            if !transaction.has_index(table, self.index)? {
                return Ok(false);
            }
            let Some(found) = transaction.find_few(table, self.index, range, most_rows)? else {
                return Ok(false);
            };
            let (of_segments, in_heap) = by_place(&found);
            in_segments = of_segments;
            transaction.read_rows_up_to(table, &in_heap, &mut rows, Some(&mut ids), most_bytes)
        };
        if !transaction.read(&mut read)? {
            return Ok(None);
        }
        let count = rows.rows();
        let found = self.batch(rows.finish_columns().map_err(pages_error)?, ids, count)?;
        if in_segments.is_empty() {
            return Ok(Some(found));
        }
        let mut batches = Vec::new();
        // Twice as many each time: how large they are is known when they have been read.
        let (mut left, mut count, mut bytes) = (in_segments.as_slice(), 1, 0);
        while !left.is_empty() {
            let (next, others) = left.split_at(count.min(left.len()));
            let fetched = self.fetch(table, next)?;
            bytes += fetched.get_array_memory_size();
            if bytes > most_bytes {
                return Ok(None);
            }
            batches.push(fetched);
            (left, count) = (others, count * 2);
        }
        batches.push(found);
        Ok(Some(concat_batches(&self.schema, &batches)?))
    }

    /// Rows of segments.
    fn fetch(&self, table: &Table, rows: &[RowId]) -> Result<RecordBatch> {
        let options = FetchOptions::default();
        let fetched = blocking(|| table.fetch_blocking(rows, &self.columns, &options));
        let columns = fetched.map_err(storage_error)?.columns().to_vec();
        self.batch(columns, rows.iter().map(|row| row.to_bits()).collect(), rows.len())
    }

    fn batch(&self, mut columns: Vec<ArrayRef>, ids: Vec<u64>, rows: usize) -> Result<RecordBatch> {
        if let Some(at) = self.row_ids_at {
            columns.insert(at, Arc::new(UInt64Array::from(ids)));
        }
        batch(&self.schema, columns, rows)
    }
}

impl KeyValue {
    /// As the column has it; `None` for null, which is equal to nothing, and for values that its type does not have.
    fn array(&self, values: &[ScalarValue]) -> Result<Option<ArrayRef>> {
        let value = match &self.given {
            Given::Literal(value) => value,
            Given::Parameter(number) => match values.get(*number) {
                Some(value) => value,
                None => return internal_err!("parameter {} has no value", number + 1),
            },
        };
        if value.is_null() {
            return Ok(None);
        }
        if value.data_type() == self.data_type {
            return value.to_array().map(Some);
        }
        let Ok(own) = value.cast_to(&self.data_type) else { return Ok(None) };
        match own.cast_to(&value.data_type()) {
            Ok(same) if same == *value => own.to_array().map(Some),
            _ => Ok(None),
        }
    }
}

impl ShortChange {
    /// Makes the change; how many rows were changed.
    pub fn make(self, pool: &Arc<dyn MemoryPool>) -> Result<u64> {
        let Self { statement, table, transactions, mut values, rows } = self;
        let Some(change) = &statement.change else { return internal_err!("a query changes nothing") };
        if let (Some(rows), RowChange::Insert) = (&rows, change)
            && table.has_segments()
            && !transactions.are_of_session()
        {
            let rows = conform(rows.columns(), table.schema())?;
            let count = rows.num_rows() as u64;
            add_few(&table, &[rows], transactions.durability()).map_err(storage_error)?;
            return Ok(count);
        }
        let changing = transactions.begin_change(FlowId::unique())?;
        let transaction = transactions.to_write(table.store())?;
        let Some(table) = statement.seen_by(&table, &transaction)? else {
            // Others have changed what the statement was planned for.
            return Err(storage_error(StorageError::conflict()));
        };
        let rows = match (rows, &statement.source) {
            (Some(rows), _) => rows,
            (None, ShortSource::Index(lookup)) => {
                let range = lookup.range(&values)?;
                let found = match &range {
                    Some(range) => lookup.read(&table, &transaction, range)?,
                    None => None,
                };
                match found {
                    Some(found) => statement.computed(found, &mut values)?,
                    None => return Err(storage_error(StorageError::conflict())),
                }
            }
            (None, ShortSource::One) => return internal_err!("the rows of the statement are known"),
        };
        let memory = MemoryConsumer::new("ShortChange").register(pool);
        let mut applying = Applying::new(&table, &transaction, change, false, memory);
        applying.apply(&rows)?;
        let count = applying.finish()?;
        changing.end()?;
        Ok(count)
    }
}

fn one_row() -> Result<RecordBatch> {
    batch(&Arc::new(Schema::empty()), Vec::new(), 1)
}

fn batch(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}

thread_local! {
    /// The values of the statement that this thread computes at the moment.
    static VALUES: RefCell<Vec<ScalarValue>> = const { RefCell::new(Vec::new()) };
}

/// Computes with these values. A panic leaves them behind, and the next statement of the thread has its own.
fn with_values<T>(values: &mut Vec<ScalarValue>, compute: impl FnOnce() -> T) -> T {
    let swap = |values: &mut Vec<ScalarValue>| VALUES.with_borrow_mut(|own| std::mem::swap(own, values));
    swap(values);
    let computed = compute();
    swap(values);
    computed
}

/// A function without arguments: the value that a parameter of the statement has.
#[derive(Debug)]
pub struct Parameter {
    number: usize,
    data_type: DataType,
    signature: Signature,
}

impl Parameter {
    /// The first one has the number 0.
    pub fn new(number: usize, data_type: DataType) -> Self {
        Self { number, data_type, signature: Signature::nullary(Volatility::Volatile) }
    }
}

impl PartialEq for Parameter {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number && self.data_type == other.data_type
    }
}

impl Eq for Parameter {}

impl Hash for Parameter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
        self.data_type.hash(state);
    }
}

impl ScalarUDFImpl for Parameter {
    fn name(&self) -> &str {
        "parameter"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.data_type.clone())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let value = VALUES.with_borrow(|values| values.get(self.number).cloned());
        match value {
            Some(value) if value.data_type() == self.data_type => Ok(ColumnarValue::Scalar(value)),
            other => {
                internal_err!("parameter {} is {other:?}, and of type {}", self.number + 1, self.data_type)
            }
        }
    }
}
