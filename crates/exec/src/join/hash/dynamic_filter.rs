//! The filter that a complete build side sends to the scan of the probe side.
//!
//! Bounds of every key, a look at the join's own tables, and for a handful of distinct keys the keys themselves, which
//! bounds of pages can be held against. It is published once, when the whole build side has been seen, spilled rows
//! included: a filter over part of it would silently drop rows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::{concat, take};
use arrow::datatypes::{DataType, Schema};
use datafusion::common::{NullEquality, Result, ScalarValue};
use datafusion::functions_aggregate::min_max::{MaxAccumulator, MinAccumulator};
use datafusion::logical_expr::{Accumulator, Operator};
use datafusion::physical_expr::expressions::{BinaryExpr, DynamicFilterPhysicalExpr, in_list, is_null, lit};
use datafusion::physical_expr::{PhysicalExprRef, conjunction};

/// Most build rows whose keys are sent one by one: a list longer than this prunes no better than bounds, and
/// takes longer to check than to read.
const MAX_LISTED_ROWS: usize = 128;

/// Smallest and largest build key, column by column, and the keys themselves while they are few.
pub struct BuildBounds {
    columns: Vec<KeyBounds>,
    rows: usize,
}

struct KeyBounds {
    min: Option<MinAccumulator>,
    max: Option<MaxAccumulator>,
    any_null: bool,
    listed: Vec<ArrayRef>,
}

impl BuildBounds {
    /// Empty bounds for keys of these types.
    pub fn new(types: &[DataType]) -> Self {
        let columns = types
            .iter()
            .map(|data_type| {
                // `min` and `>=` order lists and structs with nulls inside differently.
                let is_ordered = !data_type.is_nested();
                KeyBounds {
                    min: is_ordered.then(|| MinAccumulator::try_new(data_type).ok()).flatten(),
                    max: is_ordered.then(|| MaxAccumulator::try_new(data_type).ok()).flatten(),
                    any_null: false,
                    listed: Vec::new(),
                }
            })
            .collect();
        Self { columns, rows: 0 }
    }

    /// Takes the keys of a build batch into account.
    pub fn add(&mut self, keys: &[ArrayRef]) -> Result<()> {
        self.rows += keys.first().map_or(0, |key| key.len());
        for (column, key) in self.columns.iter_mut().zip(keys) {
            column.add(key, self.rows <= MAX_LISTED_ROWS)?;
        }
        Ok(())
    }

    /// Joins what another build stream saw.
    pub fn merge(&mut self, other: Self) -> Result<()> {
        self.rows += other.rows;
        for (column, mut seen) in self.columns.iter_mut().zip(other.columns) {
            column.any_null |= seen.any_null;
            column.listed.append(&mut seen.listed);
            if let (Some(min), Some(other)) = (&mut column.min, &mut seen.min) {
                min.update_batch(&[other.evaluate()?.to_array()?])?;
            }
            if let (Some(max), Some(other)) = (&mut column.max, &mut seen.max) {
                max.update_batch(&[other.evaluate()?.to_array()?])?;
            }
        }
        Ok(())
    }

    /// The bounds of build key number `number` alone, as a condition on `key`, the probe side's; `may_match` asks the
    /// build side itself.
    pub fn of_key(
        &mut self,
        number: usize,
        key: &PhysicalExprRef,
        null_equality: NullEquality,
        may_match: PhysicalExprRef,
    ) -> Result<PhysicalExprRef> {
        let Some(column) = self.columns.get_mut(number) else { return Ok(lit(true)) };
        if null_equality == NullEquality::NullEqualsNull && column.any_null {
            return Ok(lit(true));
        }
        if self.rows == 0 {
            return Ok(lit(false));
        }
        let mut terms = column.bounds(key)?;
        terms.push(may_match);
        Ok(conjunction(terms))
    }

    /// Publishes the filter to the probe side's scans; `may_match` asks the build side itself.
    pub fn publish(
        mut self,
        filter: &DynamicFilterPhysicalExpr,
        keys: &[PhysicalExprRef],
        null_equality: NullEquality,
        null_aware: bool,
        probe_schema: &Schema,
        may_match: PhysicalExprRef,
    ) -> Result<()> {
        let nulls_match = null_equality == NullEquality::NullEqualsNull
            && self.columns.iter().any(|column| column.any_null);
        let mut condition: Option<PhysicalExprRef> = None;
        // Null keys that match escape any comparison, so a filter of comparisons must not be sent.
        if !nulls_match && self.rows == 0 {
            condition = Some(lit(false));
        } else if !nulls_match {
            let list = self.rows <= MAX_LISTED_ROWS;
            let mut terms = Vec::new();
            for (column, key) in self.columns.iter_mut().zip(keys) {
                terms.extend(column.bounds(key)?);
            }
            terms.push(may_match);
            for (column, key) in self.columns.iter().zip(keys).filter(|_| list) {
                terms.extend(column.list(key, probe_schema)?);
            }
            condition = Some(conjunction(terms));
        }
        let mut condition = condition.unwrap_or_else(|| lit(true));
        // `NOT IN` has to see that there is a null among the probe keys: it empties the result.
        for key in keys.iter().filter(|_| null_aware) {
            if key.nullable(probe_schema)? {
                condition = Arc::new(BinaryExpr::new(is_null(Arc::clone(key))?, Operator::Or, condition));
            }
        }
        // Also where it says nothing: a join that runs again must not leave what it said before.
        filter.update(condition)?;
        filter.mark_complete();
        Ok(())
    }
}

impl KeyBounds {
    fn add(&mut self, key: &ArrayRef, list: bool) -> Result<()> {
        self.any_null |= key.logical_null_count() > 0;
        if let Some(min) = &mut self.min {
            min.update_batch(std::slice::from_ref(key))?;
        }
        if let Some(max) = &mut self.max {
            max.update_batch(std::slice::from_ref(key))?;
        }
        // Lists tell zeros of both signs apart, which joins do not, in nested values too; comparisons do as joins do.
        if list && !key.data_type().is_floating() && !key.data_type().is_nested() {
            // A copy: a slice of the input would keep its whole batch alive.
            let rows = arrow::array::UInt32Array::from_iter_values(0..key.len() as u32);
            self.listed.push(take(key, &rows, None)?);
        } else {
            self.listed.clear();
        }
        Ok(())
    }

    fn bounds(&mut self, key: &PhysicalExprRef) -> Result<Vec<PhysicalExprRef>> {
        let bounds = [
            (Operator::GtEq, self.min.as_mut().map(MinAccumulator::evaluate).transpose()?),
            (Operator::LtEq, self.max.as_mut().map(MaxAccumulator::evaluate).transpose()?),
        ];
        let known = bounds.into_iter().filter_map(|(operator, bound)| Some((operator, bound?)));
        let term = |(operator, bound)| -> PhysicalExprRef {
            Arc::new(BinaryExpr::new(Arc::clone(key), operator, lit(bound)))
        };
        Ok(known.filter(|(_, bound): &(_, ScalarValue)| !bound.is_null()).map(term).collect())
    }

    /// The keys one by one, if they are listed.
    fn list(&self, key: &PhysicalExprRef, probe_schema: &Schema) -> Result<Option<PhysicalExprRef>> {
        let arrays: Vec<&dyn Array> = self.listed.iter().map(AsRef::as_ref).collect();
        if arrays.is_empty() {
            return Ok(None);
        }
        let values = concat(&arrays)?;
        let mut literals = Vec::with_capacity(values.len());
        for row in (0..values.len()).filter(|&row| values.is_valid(row)) {
            literals.push(lit(ScalarValue::try_from_array(&values, row)?));
        }
        if literals.is_empty() {
            return Ok(None);
        }
        in_list(Arc::clone(key), literals, &false, probe_schema).map(Some)
    }
}
