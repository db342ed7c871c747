//! Exchanges give out every row once, whatever the memory limit and whoever reads first, and leave nothing behind.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::physical_expr::expressions::col;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use futures::StreamExt;
use nandina_exec::exchange::ExchangeExec;
use nandina_simulation::FaultPlan;

use crate::harness::input::{Ending, Tap, scripted};
use crate::harness::rows::{assert_same_rows, row_count};
use crate::harness::streams::streams;
use crate::harness::tables::{KeyType, Skew, Table, TableShape};
use crate::harness::{Engine, KIB, MIB, count_nodes, metric, plain, planned, run};

const OUTPUTS: usize = 3;

/// Some 4 MB.
fn table(skew: Skew) -> Table {
    Table::draw("", &[KeyType::Int64], &TableShape { text_bytes: 150, skew, ..TableShape::of_rows(20_000) })
}

fn by_hash(table: &Table) -> Partitioning {
    Partitioning::Hash(vec![col("k0", &table.schema).unwrap()], OUTPUTS)
}

fn exchange(input: Arc<dyn ExecutionPlan>, partitioning: Partitioning) -> Arc<dyn ExecutionPlan> {
    let planned = RepartitionExec::try_new(input, partitioning).unwrap();
    Arc::new(ExchangeExec::try_new(planned).unwrap())
}

async fn read(mut stream: SendableRecordBatchStream) -> Result<Vec<RecordBatch>> {
    let mut batches = Vec::new();
    while let Some(batch) = stream.next().await {
        batches.push(batch?);
    }
    Ok(batches)
}

/// The rows of every output, one output after the other: all others have to wait somewhere.
async fn in_turn(streams: Vec<SendableRecordBatchStream>) -> Result<Vec<Vec<RecordBatch>>> {
    let mut outputs = Vec::new();
    for stream in streams {
        outputs.push(read(stream).await?);
    }
    Ok(outputs)
}

/// The rows of every output, all read at once.
async fn at_once(streams: Vec<SendableRecordBatchStream>) -> Result<Vec<Vec<RecordBatch>>> {
    let readers: Vec<_> = streams.into_iter().map(|stream| tokio::spawn(read(stream))).collect();
    let mut outputs = Vec::new();
    for reader in readers {
        outputs.push(reader.await.unwrap()?);
    }
    Ok(outputs)
}

#[test]
fn every_row_comes_out_once_and_where_it_belongs() {
    for skew in [Skew::Even, Skew::Half, Skew::One] {
        let table = table(skew);
        for limit in [None, Some(2 * MIB), Some(600 * KIB)] {
            for one_by_one in [false, true] {
                run(async {
                    let engine = Engine::new(limit, OUTPUTS);
                    let plan = exchange(table.scan(4), by_hash(&table));
                    let streams = streams(&engine, &plan);
                    let outputs =
                        if one_by_one { in_turn(streams).await } else { at_once(streams).await }.unwrap();
                    let what = format!("{skew:?}, limit {limit:?}, one by one {one_by_one}");
                    assert_same_rows(&outputs.concat(), &table.batches, &what);
                    let right = RepartitionExec::try_new(table.scan(4), by_hash(&table)).unwrap();
                    for (number, output) in outputs.iter().enumerate() {
                        let right = read(right.execute(number, plain().task_ctx()).unwrap()).await.unwrap();
                        assert_same_rows(output, &right, &format!("output {number}, {what}"));
                    }
                    let must_spill = limit.is_some() && one_by_one && skew == Skew::Even;
                    assert!(!must_spill || metric(&plan, "spilled_rows") > 0, "{what}");
                    assert!(limit.is_some() || metric(&plan, "spilled_rows") == 0, "{what}");
                    assert_eq!(plan.metrics().unwrap().output_rows(), Some(table.rows()));
                    engine.assert_clean(&what).await;
                });
            }
        }
    }
}

#[test]
fn rows_in_turn_are_spread_evenly() {
    let table = table(Skew::One);
    run(async {
        let engine = Engine::new(Some(2 * MIB), OUTPUTS);
        let plan = exchange(table.scan(4), Partitioning::RoundRobinBatch(OUTPUTS));
        let outputs = at_once(streams(&engine, &plan)).await.unwrap();
        assert_same_rows(&outputs.concat(), &table.batches, "in turn");
        for output in &outputs {
            assert!(row_count(output) > table.rows() / OUTPUTS / 2, "{}", row_count(output));
        }
    });
}

#[test]
fn a_plan_can_be_run_again() {
    let table = table(Skew::Even);
    run(async {
        let engine = Engine::new(None, OUTPUTS);
        let plan = exchange(table.scan(2), by_hash(&table));
        for _ in 0..2 {
            let outputs = at_once(streams(&engine, &plan)).await.unwrap();
            assert_same_rows(&outputs.concat(), &table.batches, "again");
        }
    });
}

#[test]
fn an_input_that_fails_ends_all_outputs() {
    let table = table(Skew::Even);
    run(async {
        let engine = Engine::new(Some(600 * KIB), OUTPUTS);
        let input = scripted(&table, 3, Ending::Error("the input broke"), &Tap::open());
        let plan = exchange(input, by_hash(&table));
        let readers: Vec<_> =
            streams(&engine, &plan).into_iter().map(|stream| tokio::spawn(read(stream))).collect();
        for reader in readers {
            let error = reader.await.unwrap().unwrap_err().to_string();
            assert!(error.contains("the input broke"), "{error}");
        }
        engine.assert_clean("an input that fails").await;
    });
}

#[test]
fn outputs_that_nobody_reads_do_not_hold_up_the_others() {
    let table = table(Skew::Even);
    run(async {
        let engine = Engine::new(Some(600 * KIB), OUTPUTS);
        let plan = exchange(table.scan(2), by_hash(&table));
        let mut streams = streams(&engine, &plan);
        let last = streams.pop().unwrap();
        // One that has begun, and one that has not.
        streams[0].next().await.unwrap().unwrap();
        drop(streams);
        let rows = row_count(&read(last).await.unwrap());
        assert!(rows > table.rows() / OUTPUTS / 2, "{rows}");
        engine.assert_clean("two outputs that were dropped").await;
    });
}

#[test]
fn cancelling_leaves_nothing() {
    let table = table(Skew::Even);
    run(async {
        let engine = Engine::new(Some(600 * KIB), OUTPUTS);
        let tap = Tap::after(30);
        let plan = exchange(scripted(&table, 2, Ending::Complete, &tap), by_hash(&table));
        let streams = streams(&engine, &plan);
        // The first output takes what it gets; what is for the others has to go somewhere.
        let mut streams = streams.into_iter();
        let mut first = streams.next().unwrap();
        let reader = tokio::spawn(async move { while first.next().await.is_some() {} });
        tap.runs_dry().await;
        assert!(engine.space.used_bytes() > 0, "nothing was spilled");
        reader.abort();
        let _cancelled = reader.await;
        drop(streams);
        engine.assert_clean("an exchange that was cancelled").await;
    });
}

#[test]
fn a_full_disk_is_an_error_and_not_a_hang() {
    let table = table(Skew::Even);
    run(async {
        let (engine, faults) = Engine::simulated(Some(600 * KIB), OUTPUTS);
        faults.set_plan(FaultPlan::none().capacity(256 * KIB as u64));
        let plan = exchange(table.scan(2), by_hash(&table));
        let error = in_turn(streams(&engine, &plan)).await.unwrap_err().to_string();
        assert!(error.contains("no space left"), "{error}");
        engine.assert_clean("a full disk").await;
    });
}

/// An exchange of which one output has been read to its end, so that what is for the others waits.
async fn two_thirds_wait(engine: &Engine, table: &Table) -> (Waiting, usize) {
    let plan = exchange(table.scan(2), by_hash(table));
    let mut streams = streams(engine, &plan);
    let rows = row_count(&read(streams.remove(0)).await.unwrap());
    assert!(engine.governor.used_bytes() > 2 * MIB, "{}", engine.governor.used_bytes());
    assert_eq!(metric(&plan, "spilled_rows"), 0, "all rows fit at first");
    ((plan, streams), rows)
}

type Waiting = (Arc<dyn ExecutionPlan>, Vec<SendableRecordBatchStream>);

#[test]
fn others_may_ask_for_the_memory_of_rows_that_wait() {
    let table = table(Skew::Even);
    run(async {
        let engine = Engine::new(Some(6 * MIB), OUTPUTS);
        let ((plan, streams), rows) = two_thirds_wait(&engine, &table).await;
        let other = MemoryConsumer::new("other").register(&engine.pool());
        other.try_grow(5 * MIB).expect("memory that rows waited in");
        assert!(metric(&plan, "spilled_rows") > 0);
        assert!(engine.governor.used_bytes() <= 6 * MIB, "{}", engine.governor.used_bytes());
        let others = in_turn(streams).await.unwrap().concat();
        assert_eq!(rows + row_count(&others), table.rows());
        drop((other, others, plan));
        engine.assert_clean("an exchange that gave memory back").await;
    });
}

#[test]
fn memory_that_cannot_be_given_back_ends_the_exchange() {
    let table = table(Skew::Even);
    run(async {
        let (engine, faults) = Engine::simulated(Some(6 * MIB), OUTPUTS);
        let ((plan, streams), _) = two_thirds_wait(&engine, &table).await;
        faults.set_plan(FaultPlan::none().capacity(256 * KIB as u64));
        let other = MemoryConsumer::new("other").register(&engine.pool());
        assert!(other.try_grow(6 * MIB).is_err(), "rows were written to a full disk");
        let error = in_turn(streams).await.unwrap_err().to_string();
        assert!(error.contains("no space left"), "{error}");
        drop((other, plan));
        engine.assert_clean("an exchange that could not give memory back").await;
    });
}

#[test]
fn sql_gets_exchanges_that_can_spill() {
    let table = table(Skew::Half);
    let sql = "SELECT id, row_number() OVER (PARTITION BY k0 ORDER BY id) AS place FROM t";
    run(async {
        let right = plain();
        crate::harness::register(&right, "t", &table, 3);
        let right = right.sql(sql).await.unwrap().collect().await.unwrap();
        for limit in [None, Some(6 * MIB)] {
            let engine = Engine::new(limit, 3);
            engine.register("t", &table, 3);
            let plan = planned(&engine.context, sql).await.unwrap();
            assert_eq!(count_nodes(&plan, "ExchangeExec"), 1);
            assert_eq!(count_nodes(&plan, "RepartitionExec"), 0);
            assert_same_rows(&engine.collect(&plan).await.unwrap(), &right, &format!("limit {limit:?}"));
        }
    });
}

/// As a recursion gives them. DataFusion's exchange would put 8,192 of them together, whatever they hold.
#[test]
fn long_texts_that_come_one_by_one_from_one_input_are_handed_over_soon() {
    let sql = "WITH RECURSIVE r(i, s) AS (SELECT 0, repeat('x', 60000) UNION ALL
                   SELECT i + 1, repeat('y', 60000) FROM r WHERE i < 199)
               SELECT i % 7 AS part, max(s) AS longest FROM r GROUP BY i % 7";
    run(async {
        let engine = Engine::new(Some(8 * MIB), 2);
        let plan = planned(&engine.context, sql).await.unwrap();
        assert_eq!(count_nodes(&plan, "RepartitionExec"), 0);
        let mut exchange = Arc::clone(&plan);
        while exchange.name() != "ExchangeExec" || !exchange.schema().fields().iter().any(|f| f.name() == "i")
        {
            exchange = Arc::clone(exchange.children()[0]);
        }
        let outputs = at_once(streams(&engine, &exchange)).await.unwrap();
        let batches: Vec<_> = outputs.into_iter().flatten().collect();
        assert_eq!(row_count(&batches), 200);
        let largest = batches.iter().map(RecordBatch::num_rows).max();
        assert!(largest < Some(8), "{largest:?} rows of 60 KB");
        drop((batches, exchange, plan));
        engine.assert_clean("an exchange of long texts").await;
    });
}
