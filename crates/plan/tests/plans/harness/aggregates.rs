//! An aggregation over any input: by the first columns, with a state of fixed width, one of text and one that grows.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::functions_aggregate::array_agg::array_agg_udaf;
use datafusion::functions_aggregate::min_max::max_udaf;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::AggregateUDF;
use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion::physical_expr::expressions::col;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::{ExecutionPlan, collect};
use nandina_exec::aggregate::HashAggregateExec;

use super::plain;
use super::tables::Table;

/// The functions of an aggregation, and the columns they take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Functions {
    /// `sum(id), max(text)`
    Flat,
    /// `array_agg(id)` of at most one row per group, which stays comparable.
    Growing,
}

/// DataFusion's plan of `table`'s aggregation over `input`.
fn datafusion(table: &Table, functions: Functions, input: Arc<dyn ExecutionPlan>) -> AggregateExec {
    let schema = input.schema();
    let names = schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    let column = |at: usize| col(&names[at], &schema).expect("a column");
    let function = |udaf: Arc<AggregateUDF>, at: usize, alias: &str| -> Arc<AggregateFunctionExpr> {
        let builder =
            AggregateExprBuilder::new(udaf, vec![column(at)]).schema(Arc::clone(&schema)).alias(alias);
        Arc::new(builder.build().expect("a function"))
    };
    let text = table.number_column() + 1;
    let functions = match functions {
        Functions::Flat => {
            vec![function(sum_udaf(), table.id_column(), "sum"), function(max_udaf(), text, "max")]
        }
        Functions::Growing => vec![function(array_agg_udaf(), table.id_column(), "ids")],
    };
    let keys = (0..table.keys).map(|at| (column(at), names[at].clone())).collect();
    let filters = vec![None; functions.len()];
    AggregateExec::try_new(
        AggregateMode::Single,
        PhysicalGroupBy::new_single(keys),
        functions,
        filters,
        input,
        Arc::clone(&schema),
    )
    .expect("an aggregation")
}

/// Our plan of `table`'s aggregation over `input`.
pub fn aggregation(
    table: &Table,
    functions: Functions,
    input: Arc<dyn ExecutionPlan>,
) -> Arc<dyn ExecutionPlan> {
    let ours = HashAggregateExec::replacing(&datafusion(table, functions, input)).expect("a plan");
    Arc::new(ours.expect("an aggregation that is ours"))
}

/// What DataFusion makes of it.
pub async fn right_rows(table: &Table, functions: Functions) -> Vec<RecordBatch> {
    let plan = Arc::new(datafusion(table, functions, table.scan(1)));
    collect(plan, plain().task_ctx()).await.expect("rows")
}
