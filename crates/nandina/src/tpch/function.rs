//! `tpch('table', scale)`: a TPC-H table inside SQL, generated while it is read.

use std::sync::{Arc, LazyLock, Once};

use arrow::datatypes::SchemaRef;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{DataFusionError, Result, plan_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::scalar::ScalarValue;
use futures::TryStreamExt as _;
use tokio::sync::watch;
use tpchgen::text::TextPool;

use super::Table;

/// The table function.
#[derive(Debug)]
pub struct TpchFunction;

impl TableFunctionImpl for TpchFunction {
    fn call_with_args(&self, arguments: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let (table, scale) = parse(arguments.exprs())?;
        let parts = arguments.session().config().target_partitions();
        // A part below some hundred rows would be all start-up.
        let parts = if table.rows(scale) < 10_000 { 1 } else { parts };
        let streams =
            (0..parts).map(|part| Arc::new(Part { table, scale, part, parts }) as Arc<dyn PartitionStream>);
        Ok(Arc::new(StreamingTable::try_new(table.schema(), streams.collect())?))
    }
}

fn parse(arguments: &[Expr]) -> Result<(Table, f64)> {
    let usage = || plan_err!("write tpch('table', scale), for example tpch('orders', 0.1)");
    let (name, scale) = match arguments {
        [name] => (name, &Expr::Literal(ScalarValue::Float64(Some(1.0)), None)),
        [name, scale] => (name, scale),
        _ => return usage(),
    };
    let Expr::Literal(name, _) = name else { return usage() };
    let Some(Some(name)) = name.try_as_str() else { return usage() };
    let Expr::Literal(scale, _) = scale else { return usage() };
    let scale = match scale.cast_to(&arrow::datatypes::DataType::Float64)? {
        ScalarValue::Float64(Some(scale)) if scale > 0.0 && scale <= 100_000.0 => scale,
        _ => return plan_err!("the scale of tpch(…) is above 0 and at most 100000"),
    };
    Ok((name.parse().map_err(DataFusionError::from)?, scale))
}

#[derive(Debug)]
struct Part {
    table: Table,
    scale: f64,
    part: usize,
    parts: usize,
}

impl PartitionStream for Part {
    fn schema(&self) -> &SchemaRef {
        static SCHEMAS: std::sync::LazyLock<Vec<SchemaRef>> =
            std::sync::LazyLock::new(|| Table::ALL.iter().map(|table| table.schema()).collect());
        // `Table::ALL` is in the order of the variants.
        #[allow(clippy::indexing_slicing, reason = "one schema per variant, in the order of the variants")]
        &SCHEMAS[self.table as usize]
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let rows = context.session_config().batch_size();
        let Self { table, scale, part, parts } = *self;
        let batches = async move {
            text_pool_is_made().await;
            let batches = table.batches(scale, part, parts, rows);
            Ok::<_, DataFusionError>(futures::stream::iter(
                batches.map(|batch| batch.map_err(DataFusionError::from)),
            ))
        };
        let batches = futures::stream::once(batches).try_flatten();
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(self.schema()), batches))
    }
}

/// Waits for the text that all comments are cut from. The generator takes a second to make it, once in a process, and
/// cannot be interrupted: it does so in a thread that neither a cancelled query nor the end of the process waits for.
async fn text_pool_is_made() {
    static IS_MADE: LazyLock<watch::Sender<bool>> = LazyLock::new(|| watch::Sender::new(false));
    static MAKING: Once = Once::new();
    let mut is_made = IS_MADE.subscribe();
    MAKING.call_once(|| {
        let make = || {
            TextPool::get_or_init_default();
            IS_MADE.send_replace(true);
        };
        if std::thread::Builder::new().name("tpch texts".to_owned()).spawn(make).is_err() {
            // There is no thread to be had: it is made here.
            make();
        }
    });
    let waited = is_made.wait_for(|is_made| *is_made).await;
    assert!(waited.is_ok(), "the sender is there as long as the process");
}
