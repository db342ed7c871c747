//! What tests of the sort's parts share: a sort of texts, and its state.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::physical_expr::expressions::col;
use datafusion::physical_expr::{LexOrdering, PhysicalExprRef, PhysicalSortExpr};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use nandina_simulation::FaultPlan;
use nandina_spill::{TempOptions, TempSpace};

use super::chunk::Chunk;
use super::metrics::SortMetrics;
use super::spec::SortSpec;
use super::state::SortState;
use crate::batch::data_bytes;
use crate::memory::MemoryGovernor;

/// Rows of one text.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("t", DataType::Utf8, true)]))
}

/// The column of the text.
pub fn text() -> PhysicalExprRef {
    col("t", &schema()).unwrap()
}

/// A sort by this expression.
pub fn sort_by(expression: PhysicalExprRef, batch_rows: usize) -> SortSpec {
    let ordering = LexOrdering::new([PhysicalSortExpr::new_default(expression)]).unwrap();
    SortSpec::try_new(ordering, schema(), batch_rows, None).unwrap()
}

/// The state of a sort of so much memory.
pub fn state(spec: SortSpec, limit_bytes: usize) -> Arc<SortState> {
    let pool: Arc<dyn MemoryPool> = Arc::new(MemoryGovernor::new(Some(limit_bytes)));
    let (device, _no_faults) = nandina_simulation::in_memory(FaultPlan::none());
    let space = TempSpace::open(device, TempOptions::default()).unwrap().query("sort");
    let metrics = SortMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
    SortState::new(Arc::new(spec), &pool, space, None, metrics)
}

/// Adds a batch of these texts.
pub fn push_texts<T: AsRef<str>>(chunk: &mut Chunk, spec: &SortSpec, texts: &[Option<T>]) {
    let texts: StringArray = texts.iter().map(|text| text.as_ref()).collect();
    let batch = RecordBatch::try_new(schema(), vec![Arc::new(texts) as ArrayRef]).unwrap();
    let keys = spec.keys(&batch).unwrap();
    chunk.push(batch.clone(), data_bytes(&batch), keys);
}

/// So many texts of this length, in order.
pub fn numbered(spec: &SortSpec, rows: usize, text_bytes: usize) -> Arc<Chunk> {
    let texts: Vec<_> = (0..rows).map(|row| Some(format!("{row:0text_bytes$}"))).collect();
    let mut chunk = Chunk::default();
    texts.chunks(100).for_each(|texts| push_texts(&mut chunk, spec, texts));
    chunk.sort(None);
    Arc::new(chunk)
}
