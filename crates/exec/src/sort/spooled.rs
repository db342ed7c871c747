//! SSD-sort of rows that are not those of a stored table: what the sort does not look at is written once, in the order in
//! which it comes, and fetched in the order of the result.
//!
//! ```text
//!   input ─► sort columns + address ─► runs ─► merge ─► windows of rows ─► rows in order
//!       └──► all other columns ──────► pages of a row file ──────┘ (each page once per window, a deep queue)
//! ```
//!
//! Ghodsnia, *Effective Use of SSDs in Database Systems* (Waterloo 2018), chapter 4, where the rows are those of a table. A
//! merge of whole rows writes them once for each pass; it is the better one where they are narrow, since a page is read here
//! for nearly every row, and where one pass is enough.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_stream::try_stream;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{Stream, StreamExt as _};
use nandina_pages::PageSchema;
use nandina_spill::RowFile;

use super::metrics::SortMetrics;
use super::output::output;
use super::spec::SortSpec;
use super::state::SortState;
use crate::batch::data_bytes;
use crate::error::{pages_error, spill_error};
use crate::fetch::{FetchMetrics, Fetching, Source, fetched_in_order};
use crate::memory::HeldMemory;
use crate::spill::operator_space;

/// Of a page, unless a row is longer: reading so much at random takes hardly longer than reading a block.
pub const PAGE_BYTES: usize = 16 << 10;
/// The share of memory that pages may take which are being written. As many are gathered for the next write.
const WRITE_SHARE: usize = 32;

/// Which columns a sort carries along, and which it fetches.
#[derive(Clone, Debug)]
pub struct SpooledColumns {
    pub carried: Vec<usize>,
    pub spooled: Vec<usize>,
}

impl SpooledColumns {
    /// Those of a sort by `ordering` of rows of `schema`: it carries what it looks at.
    pub fn of(ordering: &LexOrdering, schema: &Schema) -> Self {
        let looked_at = ordering.iter().flat_map(|key| collect_columns(&key.expr));
        let mut carried: Vec<usize> = looked_at.map(|column| column.index()).collect();
        carried.sort_unstable();
        carried.dedup();
        let spooled = (0..schema.fields().len()).filter(|column| !carried.contains(column)).collect();
        Self { carried, spooled }
    }

    /// The rows that are sorted: what is carried, and an address.
    fn sorted_schema(&self, schema: &Schema) -> Result<Schema> {
        let mut fields = schema.project(&self.carried)?.fields().to_vec();
        fields.push(Arc::new(Field::new("address", DataType::UInt64, false)));
        Ok(Schema::new(fields))
    }

    /// `ordering` by the columns of those rows.
    fn sorted_by(&self, ordering: &LexOrdering) -> Result<LexOrdering> {
        let places: BTreeMap<usize, usize> = self.carried.iter().copied().zip(0..).collect();
        let sort_keys = ordering.iter().map(|key| {
            let moved = Arc::clone(&key.expr).transform_up(|part| {
                let place = |column: &Column| {
                    places.get(&column.index()).map(|place| Arc::new(Column::new(column.name(), *place)) as _)
                };
                let moved = part.downcast_ref::<Column>().and_then(place);
                Ok(moved.map_or_else(|| Transformed::no(part), Transformed::yes))
            });
            Ok(PhysicalSortExpr::new(moved.data()?, key.options))
        });
        match LexOrdering::new(sort_keys.collect::<Result<Vec<_>>>()?) {
            Some(ordering) => Ok(ordering),
            None => internal_err!("a sort has no sort expressions"),
        }
    }

    /// Where the columns of the result are among those that are carried, the address, and those that are fetched.
    fn places(&self) -> Vec<usize> {
        let behind = self.carried.len() + 1;
        let carried = self.carried.iter().copied().zip(0..);
        let places: BTreeMap<usize, usize> =
            carried.chain(self.spooled.iter().copied().zip(behind..)).collect();
        places.into_values().collect()
    }
}

/// A sort of rows whose other columns are fetched.
pub struct SpooledSort<'a> {
    pub ordering: &'a LexOrdering,
    /// Of the rows.
    pub schema: SchemaRef,
    pub metrics: &'a ExecutionPlanMetricsSet,
    /// Of the output.
    pub partition: usize,
    /// Windows at a time.
    pub tasks: usize,
    /// Outputs that there are beside each other.
    pub outputs: usize,
}

impl SpooledSort<'_> {
    /// The rows of all inputs in order.
    pub fn output(
        self,
        inputs: Vec<SendableRecordBatchStream>,
        context: &Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let columns = SpooledColumns::of(self.ordering, &self.schema);
        let sorted_schema = Arc::new(columns.sorted_schema(&self.schema)?);
        let spooled_schema = Arc::new(self.schema.project(&columns.spooled)?);
        let batch_rows = context.session_config().batch_size();
        let ordering = columns.sorted_by(self.ordering)?;
        let spec = Arc::new(SortSpec::try_new(ordering, Arc::clone(&sorted_schema), batch_rows, None)?);
        let space = operator_space(context, "sort")?;
        let pages = PageSchema::try_new(Arc::clone(&spooled_schema)).map_err(pages_error)?;
        let file = RowFile::new(pages, Arc::clone(&space));
        // Rows are counted when they have been fetched for.
        let metrics = SortMetrics::without_rows(self.metrics, self.partition);
        let state = SortState::new(spec, context.memory_pool(), space, None, metrics);
        let write_bytes = state.memory_limit.map_or(usize::MAX, |limit| limit / WRITE_SHARE);
        let writer_bytes = (write_bytes / (inputs.len() * self.outputs).max(1))
            .clamp(PAGE_BYTES, state.space.device().sizes().write_group_bytes());
        let inputs = inputs.into_iter().map(|input| {
            let spooling = Spooling {
                writer_bytes,
                memory: state.another_reservation(),
                columns: columns.clone(),
                file: Arc::clone(&file),
                sorted_schema: Arc::clone(&sorted_schema),
            };
            let rows = RecordBatchStreamAdapter::new(Arc::clone(&sorted_schema), spooling.rows(input));
            Box::pin(rows) as SendableRecordBatchStream
        });
        let inputs = inputs.collect();
        let sorted = RecordBatchStreamAdapter::new(Arc::clone(&sorted_schema), output(state, inputs).boxed());

        let fields = sorted_schema.fields().iter().chain(spooled_schema.fields()).cloned();
        let fetched_schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let metrics = FetchMetrics::new(self.metrics, self.partition);
        let sources = Arc::from([Source::File { file, addresses: columns.carried.len() }]);
        let fetching = Fetching::new(sources, fetched_schema, self.tasks, Arc::default(), metrics, context);
        let (schema, places) = (Arc::clone(&self.schema), columns.places());
        let rows = fetched_in_order(fetching, Box::pin(sorted)).map(move |rows| {
            let rows = rows?.project(&places)?;
            Ok(rows.with_schema(Arc::clone(&schema))?)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema, rows)))
    }
}

/// What becomes of one input.
struct Spooling {
    columns: SpooledColumns,
    file: Arc<RowFile>,
    sorted_schema: SchemaRef,
    /// Bytes of pages that are written at once.
    writer_bytes: usize,
    memory: HeldMemory,
}

impl Spooling {
    /// What is sorted of the rows of `input`. The rest has been written when this ends.
    fn rows(self, mut input: SendableRecordBatchStream) -> impl Stream<Item = Result<RecordBatch>> + Send {
        try_stream! {
            let mut writer = self.file.writer(PAGE_BYTES, self.writer_bytes);
            let mut waiting = Waiting::default();
            while let Some(batch) = input.next().await {
                let batch = batch?;
                waiting.add(batch.project(&self.columns.carried)?);
                let spooled = batch.project(&self.columns.spooled)?;
                writer.push(&spooled, &mut waiting.addresses).await.map_err(spill_error)?;
                // It is bounded, and without it nothing could leave memory.
                self.memory.resize(writer.memory_bytes() + waiting.bytes());
                drop((batch, spooled));
                while let Some(rows) = waiting.next(&self.sorted_schema)? {
                    yield rows;
                }
            }
            drop(input);
            writer.finish(&mut waiting.addresses).await.map_err(spill_error)?;
            drop(self.memory);
            while let Some(rows) = waiting.next(&self.sorted_schema)? {
                yield rows;
            }
            assert!(waiting.batches.is_empty(), "every row that has been written has an address");
        }
    }
}

/// Rows in the order in which they came, and the addresses of the first of them.
#[derive(Default)]
struct Waiting {
    batches: VecDeque<RecordBatch>,
    addresses: Vec<u64>,
}

impl Waiting {
    fn add(&mut self, rows: RecordBatch) {
        if rows.num_rows() > 0 {
            self.batches.push_back(rows);
        }
    }

    fn bytes(&self) -> usize {
        self.batches.iter().map(data_bytes).sum::<usize>() + size_of_val(self.addresses.as_slice())
    }

    /// The next rows with their addresses, as far as these are known.
    fn next(&mut self, schema: &SchemaRef) -> Result<Option<RecordBatch>> {
        let Some(first) = self.batches.pop_front() else { return Ok(None) };
        let known = self.addresses.len().min(first.num_rows());
        if known < first.num_rows() {
            self.batches.push_front(first.slice(known, first.num_rows() - known));
        }
        if known == 0 {
            return Ok(None);
        }
        let addresses = UInt64Array::from_iter_values(self.addresses.drain(..known));
        let mut columns = first.slice(0, known).columns().to_vec();
        columns.push(Arc::new(addresses));
        Ok(Some(RecordBatch::try_new(Arc::clone(schema), columns)?))
    }
}
