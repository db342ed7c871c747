//! Batches that are kept for a while: they hold on to no more than their rows need, and know how much that is.
//!
//! Batches of a scan point into the buffers that were read, slices and views into what they were cut from. That
//! does not matter while rows pass by; of rows that wait it would keep far more in memory than is reserved.

use arrow::array::RecordBatch;
use datafusion::common::Result;

use super::bytes::array_bytes;
use super::compact::compact;

/// A batch and the memory that it holds.
#[derive(Clone, Debug)]
pub struct HeldBatch {
    pub rows: RecordBatch,
    pub bytes: usize,
}

impl HeldBatch {
    /// The batch, or a copy if it holds on to much more than its rows.
    pub fn new(batch: RecordBatch) -> Result<Self> {
        let (rows, bytes) = compact(batch)?;
        let bytes = bytes + array_bytes(&rows);
        Ok(Self { rows, bytes })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringViewArray};
    use datafusion::common::utils::memory::get_record_batch_memory_size;

    use super::*;

    #[test]
    fn a_few_rows_do_not_keep_the_batch_they_were_cut_from() {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..50_000));
        let text = |number| format!("a text of more bytes than a view has: {number}");
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..50_000).map(text)));
        let whole = RecordBatch::try_from_iter([("number", numbers), ("text", texts)]).unwrap();
        let few = whole.slice(700, 20);
        let held = HeldBatch::new(few.clone()).unwrap();
        assert_eq!(held.rows, few);
        assert!(held.bytes < 20_000, "{}", held.bytes);
        assert!(get_record_batch_memory_size(&held.rows) <= held.bytes);
        let all = HeldBatch::new(whole.clone()).unwrap();
        assert!(Arc::ptr_eq(all.rows.column(1), whole.column(1)), "nothing to be gained by a copy");
    }
}
