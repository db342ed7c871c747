//! The filters of a scan, evaluated term by term on rows that have been read.
//!
//! ```text
//!  filters ── split at AND ──► terms, in order ──► rows left ──► the next term
//!                               │
//!                               ├─ on one column, stored as a dictionary: evaluated once for each value
//!                               ├─ few rows left: evaluated on those
//!                               └─ from a join or a top-k, and turns hardly anything away: evaluated no more
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array,
};
use datafusion::arrow::buffer::BooleanBuffer;
use datafusion::arrow::compute::{concat, filter, prep_null_mask_filter};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal, lit};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_expr_common::physical_expr::{snapshot_generation, snapshot_physical_expr};
use nandina_pages::DictionaryParts;
use parking_lot::Mutex;

use super::text_set::TextSet;

/// Rows that have been read, as columns that are decoded when they are asked for.
pub(super) trait Rows {
    fn count(&self) -> usize;

    fn column(&mut self, column: usize) -> Result<ArrayRef>;

    /// The same as distinct values and codes, if that is how it is stored.
    fn dictionary(&mut self, column: usize) -> Result<Option<Arc<DictionaryParts>>>;
}

/// Rows after which a filter that no operator depends on has to have turned some away, and the percentage that may pass.
const TRIAL_ROWS: usize = 1 << 17;
const MAX_PASS_PERCENT: usize = 90;

/// A term is evaluated on the rows left alone if they are fewer than one of so many.
const FEW_ROWS: usize = 4;

/// Filters of which rows have to pass all.
#[derive(Debug)]
pub(super) struct Conjunction {
    /// Of the rows that are asked about.
    schema: SchemaRef,
    filters: Vec<Arc<dyn PhysicalExpr>>,
    current: Mutex<Option<Generation>>,
}

/// A state of the filters.
#[derive(Debug, Clone)]
struct Generation {
    number: u64,
    terms: Arc<Vec<Term>>,
}

#[derive(Debug)]
struct Term {
    /// On the columns of `columns`, in that order.
    expression: Arc<dyn PhysicalExpr>,
    /// The same, if it compares a text with a few others.
    texts: Option<TextSet>,
    /// Of the rows.
    columns: Vec<usize>,
    schema: SchemaRef,
    /// The operator that sent the filter looks at the rows again.
    is_optional: bool,
    asked: AtomicUsize,
    passed: AtomicUsize,
    is_given_up: AtomicBool,
}

impl Conjunction {
    pub fn new(schema: SchemaRef, filters: Vec<Arc<dyn PhysicalExpr>>) -> Self {
        Self { schema, filters, current: Mutex::new(None) }
    }

    fn terms(&self) -> Result<Arc<Vec<Term>>> {
        // Generations only grow, so that a change of any filter changes the sum.
        let number = self.filters.iter().map(snapshot_generation).fold(0, u64::wrapping_add);
        let mut current = self.current.lock();
        if let Some(generation) = current.as_ref().filter(|generation| generation.number == number) {
            return Ok(Arc::clone(&generation.terms));
        }
        let mut terms = Vec::new();
        for is_optional in [false, true] {
            for filter in &self.filters {
                if is_dynamic(filter) == is_optional {
                    let filter = snapshot_physical_expr(Arc::clone(filter))?;
                    for expression in split_conjunction(&filter) {
                        terms.extend(Term::new(expression, is_optional, &self.schema)?);
                    }
                }
            }
        }
        let terms = Arc::new(terms);
        *current = Some(Generation { number, terms: Arc::clone(&terms) });
        Ok(terms)
    }

    /// One flag per row, without nulls; `None` if all pass.
    pub fn passing(&self, rows: &mut dyn Rows) -> Result<Option<BooleanArray>> {
        let count = rows.count();
        let mut keep: Option<BooleanArray> = None;
        let mut left = count;
        for term in self.terms()?.iter() {
            if left == 0 {
                break;
            }
            if term.is_useless() {
                continue;
            }
            let passing = match &keep {
                None => term.all(rows),
                Some(keep) if left * FEW_ROWS < count => term.among(rows, keep),
                Some(keep) => match term.all(rows) {
                    Ok(passing) => Ok(and(keep, &passing)),
                    // The terms before may be there to keep what it cannot compute away from it.
                    Err(_) => term.among(rows, keep),
                },
            };
            let passing = match passing {
                Err(_) if term.is_optional => {
                    // A join between may be there to keep such rows from its sender.
                    term.give_up();
                    continue;
                }
                passing => passing?,
            };
            let passed = passing.true_count();
            term.note(left, passed);
            left = passed;
            keep = Some(passing);
        }
        Ok(keep.filter(|_| left < count))
    }
}

/// Whether a filter may change while the query runs: then its sender does not depend on its being applied.
pub fn is_dynamic(filter: &Arc<dyn PhysicalExpr>) -> bool {
    snapshot_generation(filter) != 0
}

/// All of the terms as one condition, whose tree is as shallow as it can be: evaluating it recurses as deep.
pub fn all_of(terms: impl IntoIterator<Item = Arc<dyn PhysicalExpr>>) -> Arc<dyn PhysicalExpr> {
    let mut terms: Vec<Arc<dyn PhysicalExpr>> = terms.into_iter().collect();
    while terms.len() > 1 {
        let mut unpaired = terms.into_iter();
        terms = Vec::with_capacity(unpaired.len().div_ceil(2));
        while let Some(left) = unpaired.next() {
            terms.push(match unpaired.next() {
                Some(right) => Arc::new(BinaryExpr::new(left, Operator::And, right)),
                None => left,
            });
        }
    }
    terms.pop().unwrap_or_else(|| lit(true))
}

impl Term {
    /// `None` if it keeps every row.
    fn new(expression: &Arc<dyn PhysicalExpr>, is_optional: bool, rows: &Schema) -> Result<Option<Self>> {
        let literal = expression.downcast_ref::<Literal>();
        if literal.is_some_and(|literal| literal.value() == &true.into()) {
            return Ok(None);
        }
        let mut columns: Vec<usize> =
            collect_columns(expression).iter().map(|column| column.index()).collect();
        columns.sort_unstable();
        columns.dedup();
        // Nullable, whatever the schema says: a dictionary's values are followed by a null.
        let fields = columns.iter().map(|&column| rows.field(column).clone().with_nullable(true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let position = |column: &Column| columns.iter().position(|&other| other == column.index());
        let expression = Arc::clone(expression).transform_down(|expression| {
            let column = expression.downcast_ref::<Column>();
            Ok(match column.and_then(|column| Some(Column::new(column.name(), position(column)?))) {
                Some(column) => Transformed::yes(Arc::new(column) as _),
                None => Transformed::no(expression),
            })
        })?;
        let (asked, passed, is_given_up) = Default::default();
        let expression = expression.data;
        let texts = TextSet::of(&expression).filter(|_| columns.len() == 1);
        Ok(Some(Self { expression, texts, columns, schema, is_optional, asked, passed, is_given_up }))
    }

    fn note(&self, asked: usize, passed: usize) {
        if self.is_optional {
            self.asked.fetch_add(asked, Ordering::Relaxed);
            self.passed.fetch_add(passed, Ordering::Relaxed);
        }
    }

    /// Never evaluates it again.
    fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    fn is_useless(&self) -> bool {
        if self.is_given_up.load(Ordering::Relaxed) {
            return true;
        }
        let (asked, passed) = (self.asked.load(Ordering::Relaxed), self.passed.load(Ordering::Relaxed));
        self.is_optional && asked >= TRIAL_ROWS && passed * 100 > asked * MAX_PASS_PERCENT
    }

    /// Evaluated on all rows.
    fn all(&self, rows: &mut dyn Rows) -> Result<BooleanArray> {
        if let [column] = self.columns.as_slice()
            && let Some(dictionary) = rows.dictionary(*column)?
        {
            // What it cannot compute may stand for nulls, or for no row at all.
            if let Ok(passing) = self.by_value(&dictionary) {
                return Ok(passing);
            }
        }
        self.evaluate(self.columns_of(rows)?, rows.count())
    }

    /// Evaluated on the rows that are left.
    fn among(&self, rows: &mut dyn Rows, keep: &BooleanArray) -> Result<BooleanArray> {
        let left =
            self.columns_of(rows)?.iter().map(|array| filter(array, keep)).collect::<Result<_, _>>()?;
        let passing = self.evaluate(left, keep.true_count())?;
        Ok(BooleanArray::new(scattered(keep.values(), passing.values()), None))
    }

    fn columns_of(&self, rows: &mut dyn Rows) -> Result<Vec<ArrayRef>> {
        self.columns.iter().map(|&column| rows.column(column)).collect()
    }

    /// Evaluated once for each value, and for null.
    fn by_value(&self, dictionary: &DictionaryParts) -> Result<BooleanArray> {
        let (values, codes) = (&dictionary.values, &dictionary.codes);
        let null = new_null_array(values.data_type(), 1);
        let passing = self.evaluate(vec![concat(&[values, &null])?], values.len() + 1)?;
        let passing: Vec<bool> = passing.values().iter().collect();
        let passes = |code: usize| passing.get(code).copied().unwrap_or(false);
        let bits = match &dictionary.validity {
            None => BooleanBuffer::collect_bool(codes.len(), |row| {
                passes(codes.get(row).map_or(usize::MAX, |&code| code as usize))
            }),
            Some(validity) => BooleanBuffer::collect_bool(codes.len(), |row| {
                let code = codes.get(row).map_or(usize::MAX, |&code| code as usize);
                passes(if validity.is_valid(row) { code } else { values.len() })
            }),
        };
        Ok(BooleanArray::new(bits, None))
    }

    fn evaluate(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<BooleanArray> {
        if let (Some(texts), [column]) = (&self.texts, columns.as_slice())
            && let Some(column) = column.as_string_view_opt()
        {
            return Ok(texts.test(column));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?;
        let passing = self.expression.evaluate(&batch)?.into_array(rows)?;
        let passing = passing.as_boolean();
        // Unknown is not true.
        Ok(if passing.null_count() > 0 { prep_null_mask_filter(passing) } else { passing.clone() })
    }
}

/// The set bits of `keep` that are set in `passing` too, which has a bit for each of them.
fn scattered(keep: &BooleanBuffer, passing: &BooleanBuffer) -> BooleanBuffer {
    let mut passing = passing.iter();
    let mut words: Vec<u64> = Vec::with_capacity(keep.len().div_ceil(64));
    words.extend(keep.bit_chunks().iter_padded().take(keep.len().div_ceil(64)).map(|kept| {
        let mut left = kept;
        let mut bits = 0;
        while left != 0 {
            let lowest = left & left.wrapping_neg();
            bits |= lowest & u64::from(passing.next().unwrap_or(false)).wrapping_neg();
            left ^= lowest;
        }
        bits
    }));
    BooleanBuffer::new(words.into(), 0, keep.len())
}

fn and(left: &BooleanArray, right: &BooleanArray) -> BooleanArray {
    BooleanArray::new(left.values() & right.values(), None)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_passes_is_scattered_to_where_it_was_kept(
            rows in prop::collection::vec((any::<bool>(), any::<bool>()), 0..300),
            skipped in 0_usize..70,
        ) {
            let rows = &rows[skipped.min(rows.len())..];
            let keep: Vec<bool> = rows.iter().map(|(keep, _)| *keep).collect();
            let padded: Vec<bool> = std::iter::repeat_n(true, skipped).chain(keep.iter().copied()).collect();
            let kept = BooleanBuffer::from(padded).slice(skipped, keep.len());
            let passing: Vec<bool> = rows.iter().filter(|(keep, _)| *keep).map(|(_, passes)| *passes).collect();
            let right: Vec<bool> = rows.iter().map(|(keep, passes)| *keep && *passes).collect();
            let ours: Vec<bool> = scattered(&kept, &BooleanBuffer::from(passing)).iter().collect();
            prop_assert_eq!(ours, right);
        }
    }
}
