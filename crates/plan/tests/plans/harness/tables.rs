//! Random tables whose keys are drawn from a small domain and then written in any type.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array,
    FixedSizeBinaryArray, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, LargeBinaryArray,
    LargeStringArray, RecordBatch, StringArray, StringViewArray, Time64MicrosecondArray,
    TimestampNanosecondArray, UInt64Array,
};
use arrow::datatypes::{Field, Schema, SchemaRef, i256};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::physical_plan::ExecutionPlan;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::BATCH_ROWS;

/// A key column's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyType {
    Int8,
    Int16,
    Int32,
    Int64,
    UInt64,
    Utf8,
    LargeUtf8,
    Utf8View,
    Date32,
    Time64,
    Timestamp,
    Decimal128,
    Decimal256,
    Boolean,
    Float64,
    Binary,
    LargeBinary,
    BinaryView,
    FixedSizeBinary,
    /// A view of so many bytes: keys that are worth spilling by themselves. Not one of [`KEY_TYPES`].
    LongText(usize),
}

pub const KEY_TYPES: [KeyType; 19] = [
    KeyType::Int8,
    KeyType::Int16,
    KeyType::Int32,
    KeyType::Int64,
    KeyType::UInt64,
    KeyType::Utf8,
    KeyType::LargeUtf8,
    KeyType::Utf8View,
    KeyType::Date32,
    KeyType::Time64,
    KeyType::Timestamp,
    KeyType::Decimal128,
    KeyType::Decimal256,
    KeyType::Boolean,
    KeyType::Float64,
    KeyType::Binary,
    KeyType::LargeBinary,
    KeyType::BinaryView,
    KeyType::FixedSizeBinary,
];

/// Text of a key: every third is longer than a string view holds itself, one is empty.
fn text(value: i64) -> String {
    match value {
        0 => String::new(),
        value if value % 3 == 0 => format!("a key that is longer than twelve bytes, number {value}"),
        value => format!("k{value}"),
    }
}

/// Zero of both signs and no number, then what comes.
fn float(value: i64) -> f64 {
    match value {
        0 => 0.0,
        1 => -0.0,
        2 => f64::NAN,
        3 => f64::INFINITY,
        value => value as f64 / 3.0,
    }
}

impl KeyType {
    /// The values as an array of this type; different values may become equal keys (booleans).
    pub fn array(self, values: &[Option<i64>]) -> ArrayRef {
        let texts = || values.iter().map(|value| value.map(text));
        let bytes = || values.iter().map(|value| value.map(|value| text(value).into_bytes()));
        let copied = || values.iter().copied();
        match self {
            Self::Int8 => Arc::new(Int8Array::from_iter(copied().map(|v| v.map(|v| v as i8)))),
            Self::Int16 => Arc::new(Int16Array::from_iter(copied().map(|v| v.map(|v| v as i16)))),
            Self::Int32 => Arc::new(Int32Array::from_iter(copied().map(|v| v.map(|v| v as i32)))),
            Self::Int64 => Arc::new(Int64Array::from_iter(copied())),
            Self::UInt64 => Arc::new(UInt64Array::from_iter(copied().map(|v| v.map(|v| v as u64 | 1 << 63)))),
            Self::Utf8 => Arc::new(StringArray::from_iter(texts())),
            Self::LargeUtf8 => Arc::new(LargeStringArray::from_iter(texts())),
            Self::Utf8View => Arc::new(StringViewArray::from_iter(texts())),
            Self::Date32 => Arc::new(Date32Array::from_iter(copied().map(|v| v.map(|v| v as i32 - 500)))),
            Self::Time64 => Arc::new(Time64MicrosecondArray::from_iter(copied())),
            Self::Timestamp => {
                let nanos = copied().map(|v| v.map(|v| v * 1_000_000_007));
                Arc::new(TimestampNanosecondArray::from_iter(nanos).with_timezone("+02:00"))
            }
            Self::Decimal128 => {
                let unscaled = copied().map(|v| v.map(|v| i128::from(v) * 10_i128.pow(18) - 7));
                Arc::new(
                    Decimal128Array::from_iter(unscaled).with_precision_and_scale(38, 10).expect("a scale"),
                )
            }
            Self::Decimal256 => {
                let unscaled = copied().map(|v| v.map(|v| i256::from_i128(i128::from(v) * 10_i128.pow(30))));
                Arc::new(
                    Decimal256Array::from_iter(unscaled).with_precision_and_scale(60, 5).expect("a scale"),
                )
            }
            Self::Boolean => Arc::new(BooleanArray::from_iter(copied().map(|v| v.map(|v| v % 2 == 0)))),
            Self::Float64 => Arc::new(Float64Array::from_iter(copied().map(|v| v.map(float)))),
            Self::Binary => Arc::new(BinaryArray::from_iter(bytes())),
            Self::LargeBinary => Arc::new(LargeBinaryArray::from_iter(bytes())),
            Self::BinaryView => Arc::new(BinaryViewArray::from_iter(bytes())),
            Self::LongText(bytes) => {
                let padded = copied().map(|v| v.map(|v| format!("{v:0bytes$}")));
                Arc::new(StringViewArray::from_iter(padded))
            }
            Self::FixedSizeBinary => {
                let values = copied().map(|v| v.map(|v| [[0; 4], (v as u32).to_be_bytes()].concat()));
                Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, 8).expect("an array"))
            }
        }
    }
}

/// How often the keys of a table occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skew {
    /// Every key of the domain equally often.
    Even,
    /// Half of the rows have one key.
    Half,
    /// All rows have one key.
    One,
}

/// What a random table looks like.
#[derive(Clone, Debug)]
pub struct TableShape {
    pub rows: usize,
    /// Keys are drawn from so many values: fewer than rows means duplicates.
    pub domain: i64,
    pub null_percent: u32,
    pub skew: Skew,
    /// Mean length of the payload text.
    pub text_bytes: usize,
    pub seed: u64,
}

impl TableShape {
    pub fn of_rows(rows: usize) -> Self {
        Self { rows, domain: rows as i64, null_percent: 0, skew: Skew::Even, text_bytes: 20, seed: 1 }
    }
}

/// A table of key columns `k0`, `k1`, …, and a payload: a row number, a small number with nulls, a text.
#[derive(Clone, Debug)]
pub struct Table {
    pub schema: SchemaRef,
    pub batches: Vec<RecordBatch>,
    /// Columns before the payload.
    pub keys: usize,
}

impl Table {
    /// Column of the row number.
    pub fn id_column(&self) -> usize {
        self.keys
    }

    /// Column of the small number.
    pub fn number_column(&self) -> usize {
        self.keys + 1
    }

    /// Draws a table; its columns' names start with `prefix`.
    pub fn draw(prefix: &str, key_types: &[KeyType], shape: &TableShape) -> Self {
        let mut random = StdRng::seed_from_u64(shape.seed);
        let hot = shape.domain.min(7) - 1;
        let mut key_values: Vec<Vec<Option<i64>>> = vec![Vec::with_capacity(shape.rows); key_types.len()];
        for _ in 0..shape.rows {
            let value = match shape.skew {
                Skew::One => hot,
                Skew::Half if random.random_bool(0.5) => hot,
                _ => random.random_range(0..shape.domain.max(1)),
            };
            for (column, values) in key_values.iter_mut().enumerate() {
                let null = random.random_range(0..100) < shape.null_percent;
                // Later key columns are coarser, so that neither column alone decides.
                values.push((!null).then_some(value >> (2 * column)));
            }
        }
        let ids: Vec<i64> = (0..shape.rows as i64).collect();
        let numbers: Vec<Option<i32>> =
            ids.iter().map(|_| random.random_bool(0.9).then(|| random.random_range(0..100))).collect();
        let texts: Vec<Option<String>> = ids
            .iter()
            .map(|id| {
                let len = random.random_range(0..=2 * shape.text_bytes);
                random.random_bool(0.95).then(|| format!("{id} {}", "x".repeat(len)))
            })
            .collect();
        let mut names: Vec<String> =
            (0..key_types.len()).map(|number| format!("{prefix}k{number}")).collect();
        names.extend(["id", "number", "text"].map(|name| format!("{prefix}{name}")));
        let mut columns: Vec<ArrayRef> =
            key_types.iter().zip(&key_values).map(|(key_type, values)| key_type.array(values)).collect();
        columns.push(Arc::new(Int64Array::from(ids)));
        columns.push(Arc::new(Int32Array::from(numbers)));
        columns.push(Arc::new(StringViewArray::from(texts.iter().map(Option::as_deref).collect::<Vec<_>>())));
        Self { keys: key_types.len(), ..Self::of_columns(&names, columns) }
    }

    /// A table of these columns, cut into batches.
    pub fn of_columns<N: AsRef<str>>(names: &[N], columns: Vec<ArrayRef>) -> Self {
        let fields: Vec<Field> = names
            .iter()
            .zip(&columns)
            .map(|(name, column)| Field::new(name.as_ref(), column.data_type().clone(), true))
            .collect();
        let schema = Arc::new(Schema::new(fields));
        let whole = RecordBatch::try_new(Arc::clone(&schema), columns).expect("a batch");
        let batches = (0..whole.num_rows())
            .step_by(BATCH_ROWS)
            .map(|start| whole.slice(start, BATCH_ROWS.min(whole.num_rows() - start)))
            .collect();
        Self { schema, batches, keys: 1 }
    }

    /// The same table in batches of so many rows: for wide rows, of which few fit into memory at once.
    pub fn in_batches_of(&self, rows: usize) -> Self {
        let cut = |batch: &RecordBatch| {
            let starts = (0..batch.num_rows()).step_by(rows);
            starts.map(|start| batch.slice(start, rows.min(batch.num_rows() - start))).collect::<Vec<_>>()
        };
        Self { batches: self.batches.iter().flat_map(cut).collect(), ..self.clone() }
    }

    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// The batches, dealt to `partitions` in turn.
    pub fn deal(&self, partitions: usize) -> Vec<Vec<RecordBatch>> {
        let mut dealt = vec![Vec::new(); partitions];
        for (number, batch) in self.batches.iter().enumerate() {
            dealt[number % partitions].push(batch.clone());
        }
        dealt
    }

    /// A scan of `partitions` partitions.
    pub fn scan(&self, partitions: usize) -> Arc<dyn ExecutionPlan> {
        MemorySourceConfig::try_new_exec(&self.deal(partitions), Arc::clone(&self.schema), None)
            .expect("a scan")
    }
}
