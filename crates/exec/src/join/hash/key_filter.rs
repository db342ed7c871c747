//! Whether a row's keys may lie on the build side of a join: the filter that scans of the probe side apply.
//!
//! It asks a bitmap of the keys, where they are integers of a narrow range, or else the tables and the filter over the
//! spilled rows that the join has anyway. A row that it turns away would have been turned away by the join, but after the
//! rest of it had been decoded and handed up through every operator between.

use std::any::type_name;
use std::fmt::{self, Debug, Display, Formatter};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};

use arrow::array::{BooleanArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::Result;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;

use super::state::JoinState;

/// True for rows whose keys the build side may hold. Every row passes once the join is done with its probe side.
pub struct KeyFilter {
    keys: Vec<Arc<dyn PhysicalExpr>>,
    /// Of several keys it looks at this one alone.
    only: Option<usize>,
    /// Plans outlive what they ran.
    state: Weak<JoinState>,
}

impl KeyFilter {
    /// `keys` are the probe side's, in the order of the join's.
    pub fn new(keys: Vec<Arc<dyn PhysicalExpr>>, state: &Arc<JoinState>) -> Self {
        Self { keys, only: None, state: Arc::downgrade(state) }
    }

    /// Looks at one of several keys, the probe side's number `number`.
    pub fn of_one(key: Arc<dyn PhysicalExpr>, number: usize, state: &Arc<JoinState>) -> Self {
        Self { keys: vec![key], only: Some(number), state: Arc::downgrade(state) }
    }

    fn may_match(&self, state: &JoinState, batch: &RecordBatch) -> Result<BooleanBuffer> {
        let rows = batch.num_rows();
        let Some((build, _)) = state.probing() else { return Ok(BooleanBuffer::new_set(rows)) };
        let keys =
            self.keys.iter().map(|key| key.evaluate(batch)?.into_array(rows)).collect::<Result<Vec<_>>>()?;
        if let (Some(number), [key]) = (self.only, keys.as_slice()) {
            return Ok(state.holds_key(number, key)?.unwrap_or_else(|| BooleanBuffer::new_set(rows)));
        }
        if let Some(held) = state.on_build_side(&keys)? {
            return Ok(held);
        }
        let mut hashes = Vec::new();
        state.hasher().hash(&keys, rows, &mut hashes)?;
        // Neighbours with the same key, as of the lines of an order, are looked up once.
        let found = build.may_hold(&without_repetitions(&hashes));
        let mut at = 0;
        let held = BooleanBuffer::collect_bool(rows, |row| {
            at += usize::from(row > 0 && hashes.get(row) != hashes.get(row - 1));
            found.get(at).copied().unwrap_or(true)
        });
        Ok(match state.spec.matchable(&keys) {
            Some(matchable) => &held & matchable.inner(),
            None => held,
        })
    }
}

/// The hashes, each once where it stands several times in a row. Without branches, which nothing could predict.
fn without_repetitions(hashes: &[u64]) -> Vec<u64> {
    let mut different = vec![0; hashes.len()];
    let mut length = 0;
    for (row, &hash) in hashes.iter().enumerate() {
        if let Some(slot) = different.get_mut(length) {
            *slot = hash;
        }
        length += usize::from(hashes.get(row + 1) != Some(&hash));
    }
    different.truncate(length);
    different
}

impl PhysicalExpr for KeyFilter {
    fn data_type(&self, _: &Schema) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn nullable(&self, _: &Schema) -> Result<bool> {
        Ok(false)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let passing = match self.state.upgrade() {
            Some(state) => self.may_match(&state, batch)?,
            None => BooleanBuffer::new_set(batch.num_rows()),
        };
        Ok(ColumnarValue::Array(Arc::new(BooleanArray::new(passing, None))))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.keys.iter().collect()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(Arc::new(Self { keys: children, only: self.only, state: Weak::clone(&self.state) }))
    }

    fn fmt_sql(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

impl Display for KeyFilter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let keys: Vec<String> = self.keys.iter().map(ToString::to_string).collect();
        write!(f, "{} among the build keys", keys.join(", "))
    }
}

impl Debug for KeyFilter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct(type_name::<Self>()).field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl PartialEq for KeyFilter {
    fn eq(&self, other: &Self) -> bool {
        self.keys == other.keys && self.only == other.only && Weak::ptr_eq(&self.state, &other.state)
    }
}

impl Eq for KeyFilter {}

impl Hash for KeyFilter {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.keys.hash(hasher);
        self.only.hash(hasher);
        self.state.as_ptr().hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_left_out() {
        assert!(without_repetitions(&[]).is_empty());
        assert_eq!(without_repetitions(&[7]), [7]);
        assert_eq!(without_repetitions(&[7, 7, 7, 0, 0, 7, 1, 1]), [7, 0, 7, 1]);
    }
}
