//! What a limit of k rows lets drop: rows behind one that k rows are not behind.
//!
//! The threshold only ever tightens, and is shared by all lanes, whichever finds it. Expressions that say the same are
//! evaluated column by column before any key is made, and tell scans below what they need not read.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::compute::{filter_record_batch, prep_null_mask_filter};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, DynamicFilterPhysicalExpr, is_not_null, is_null, lit,
};
use datafusion::physical_expr::{PhysicalExprRef, PhysicalSortExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use parking_lot::RwLock;

use super::chunk::Chunk;
use super::keys::{Key, Keys, OwnedKey};
use super::spec::{KeyEncoder, SortSpec};

/// The threshold of all lanes of a sort.
#[derive(Debug)]
pub struct Threshold {
    spec: Arc<SortSpec>,
    /// The first sort columns, if the input comes in their order.
    sorted_by: Option<KeyEncoder>,
    filter: Option<Arc<DynamicFilterPhysicalExpr>>,
    best: RwLock<Option<Arc<Best>>>,
    /// Outputs that have not consumed all of their input.
    outputs: AtomicUsize,
}

/// The best threshold that is known.
#[derive(Debug)]
pub struct Best {
    key: OwnedKey,
    /// The key of the first columns, by which the input is sorted.
    sorted_key: Option<Box<[u8]>>,
    /// Whether a row comes before the threshold; `None` if expressions cannot decide.
    is_before: Option<PhysicalExprRef>,
}

impl Threshold {
    /// No threshold yet. `filter` is what scans know it by, `sorted_by` what the input is sorted by already, and
    /// `outputs` the number of outputs that share it.
    pub fn try_new(
        spec: Arc<SortSpec>,
        sorted_by: Vec<PhysicalSortExpr>,
        filter: Option<PhysicalExprRef>,
        outputs: usize,
    ) -> Result<Self> {
        let sorted_by: Vec<_> =
            sorted_by.into_iter().take_while(|column| !is_volatile(&column.expr)).collect();
        let sorted_by = match sorted_by.is_empty() {
            true => None,
            false => Some(KeyEncoder::try_new(sorted_by, &spec.schema)?),
        };
        let filter = filter.and_then(|filter| (filter as Arc<dyn Any + Send + Sync>).downcast().ok());
        Ok(Self { spec, sorted_by, filter, best: RwLock::default(), outputs: AtomicUsize::new(outputs) })
    }

    /// The rows that may be among the wanted ones, with their keys.
    pub fn candidates(&self, rows: RecordBatch) -> Result<(RecordBatch, Keys)> {
        let Some(best) = self.best.read().clone() else {
            let keys = self.spec.keys(&rows)?;
            return Ok((rows, keys));
        };
        let rows = match &best.is_before {
            Some(is_before) => {
                let before = is_before.evaluate(&rows)?.into_array(rows.num_rows())?;
                filtered(rows, before.as_boolean())?
            }
            None => {
                let keys = self.spec.keys(&rows)?;
                let before: BooleanArray = keys.iter().map(|key| Some(key < best.key.key())).collect();
                filtered(rows, &before)?
            }
        };
        let keys = self.spec.keys(&rows)?;
        Ok((rows, keys))
    }

    /// Whether all rows after `rows` are behind the threshold, since the input is sorted.
    pub fn ends_behind(&self, rows: &RecordBatch) -> Result<bool> {
        let best = self.best.read().clone();
        let (Some(encoder), Some(best)) = (&self.sorted_by, best) else { return Ok(false) };
        let (Some(sorted_key), Some(last)) = (&best.sorted_key, rows.num_rows().checked_sub(1)) else {
            return Ok(false);
        };
        let keys = encoder.keys(&rows.slice(last, 1))?;
        Ok(keys.iter().next().is_some_and(|key| key.data() > &**sorted_key))
    }

    /// Notes what a sorted chunk knows, if it has as many rows as are wanted.
    pub fn note(&self, chunk: &Chunk, wanted: usize) -> Result<()> {
        let Some(last) = wanted.checked_sub(1) else { return Ok(()) };
        match (chunk.position(last), chunk.row(last)) {
            (Some(position), Some(row)) => self.tighten(chunk.key(position), &row),
            _ => Ok(()),
        }
    }

    /// Notes that as many rows as are wanted are not behind `row`, which has this key.
    fn tighten(&self, key: Key, row: &RecordBatch) -> Result<()> {
        let is_better = |best: &Option<Arc<Best>>| best.as_ref().is_none_or(|best| key < best.key.key());
        if !is_better(&self.best.read()) {
            return Ok(());
        }
        let sorted_keys = self.sorted_by.as_ref().map(|encoder| encoder.keys(row)).transpose()?;
        let sorted_key = sorted_keys.and_then(|keys| keys.iter().next().map(|key| key.data().into()));
        let is_before = before(self.spec.ordering.iter(), row)?;
        let mut best = self.best.write();
        if !is_better(&best) {
            return Ok(());
        }
        // Scans do not have the columns that rows have only here.
        if let (Some(filter), Some(is_before), true) =
            (&self.filter, &is_before, self.spec.volatile.is_empty())
        {
            filter.update(Arc::clone(is_before))?;
        }
        *best = Some(Arc::new(Best { key: key.to_owned(), sorted_key, is_before }));
        Ok(())
    }

    /// Notes that an output has consumed its input. After the last one the filter does not change any more.
    pub fn output_done(&self) {
        if self.outputs.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(filter) = &self.filter
        {
            filter.mark_complete();
        }
    }
}

fn filtered(rows: RecordBatch, keep: &BooleanArray) -> Result<RecordBatch> {
    if keep.null_count() == 0 && !keep.has_false() {
        return Ok(rows);
    }
    match keep.null_count() {
        0 => Ok(filter_record_batch(&rows, keep)?),
        _ => Ok(filter_record_batch(&rows, &prep_null_mask_filter(keep))?),
    }
}

/// An expression that is true of rows before `row`. `None` if some column has a type that expressions do not compare
/// as keys do.
///
/// Rows are before it by the first column, or equal to it there and before it by the second, and so on.
fn before<'a>(
    ordering: impl Iterator<Item = &'a PhysicalSortExpr>,
    row: &RecordBatch,
) -> Result<Option<PhysicalExprRef>> {
    let (mut before, mut equal): (Option<PhysicalExprRef>, Option<PhysicalExprRef>) = (None, None);
    for column in ordering {
        let value = ScalarValue::try_from_array(&column.expr.evaluate(row)?.into_array(1)?, 0)?;
        if value.data_type().is_nested() {
            return Ok(None);
        }
        let here = all(equal.clone(), before_by(column, &value)?);
        before = Some(match before {
            Some(earlier) => binary(earlier, Operator::Or, here),
            None => here,
        });
        equal = Some(all(equal, equal_by(column, &value)?));
    }
    Ok(before)
}

fn before_by(column: &PhysicalSortExpr, value: &ScalarValue) -> Result<PhysicalExprRef> {
    let expression = || Arc::clone(&column.expr);
    let operator = if column.options.descending { Operator::Gt } else { Operator::Lt };
    match (column.options.nulls_first, value.is_null()) {
        (true, true) => Ok(lit(false)),
        (false, true) => is_not_null(expression()),
        (true, false) => Ok(binary(
            is_null(expression())?,
            Operator::Or,
            binary(expression(), operator, lit(value.clone())),
        )),
        (false, false) => Ok(binary(expression(), operator, lit(value.clone()))),
    }
}

fn equal_by(column: &PhysicalSortExpr, value: &ScalarValue) -> Result<PhysicalExprRef> {
    match value.is_null() {
        true => is_null(Arc::clone(&column.expr)),
        false => Ok(binary(Arc::clone(&column.expr), Operator::Eq, lit(value.clone()))),
    }
}

fn all(first: Option<PhysicalExprRef>, second: PhysicalExprRef) -> PhysicalExprRef {
    match first {
        Some(first) => binary(first, Operator::And, second),
        None => second,
    }
}

fn binary(left: PhysicalExprRef, operator: Operator, right: PhysicalExprRef) -> PhysicalExprRef {
    Arc::new(BinaryExpr::new(left, operator, right))
}
