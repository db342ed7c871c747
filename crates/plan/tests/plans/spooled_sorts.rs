//! Sorts that write columns once and fetch them for the result: the rows are those of plain DataFusion, in the same order,
//! whatever they come from.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{Int64Type, SchemaRef};
use datafusion::datasource::MemTable;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use futures::StreamExt as _;
use nandina_plan::SortAlgorithm;
use nandina_simulation::FaultPlan;

use crate::harness::input::{Ending, Tap, scripted};
use crate::harness::pressure::{assert_spilled, fails_cleanly};
use crate::harness::streams::streams;
use crate::harness::tables::{KeyType, Table, TableShape};
use crate::harness::{Engine, MIB, metric, plain, planned, run};
use crate::late_columns::{FEW_ROWS, ROWS, check_faults, rows, schema};

const LIMITS: [Option<usize>; 4] = [None, Some(32 * MIB), Some(4 * MIB), Some(MIB)];

/// Queries whose order is a total one, and whether their sort has columns that it does not look at.
const QUERIES: &[(&str, bool)] = &[
    ("SELECT * FROM t ORDER BY k DESC NULLS LAST, id", true),
    ("SELECT comment, id, words FROM t ORDER BY id DESC", true),
    ("SELECT * FROM t ORDER BY same, id", true),
    ("SELECT words, comment, id + 1 AS next FROM t ORDER BY abs(id - 9000), id", true),
    ("SELECT words, comment, upper(comment) AS up, id FROM t ORDER BY comment NULLS FIRST, id", true),
    ("SELECT t.comment, u.words, t.id FROM t JOIN u ON t.id = u.id ORDER BY t.id", true),
    (
        "SELECT t.id, u.id, t.comment, u.comment FROM t FULL JOIN u ON t.k = u.id + 1 ORDER BY t.id, u.id",
        true,
    ),
    ("SELECT * FROM (SELECT * FROM t UNION ALL SELECT * FROM u WHERE id > 21000) ORDER BY id, k", true),
    ("SELECT comment, words, id, row_number() OVER (PARTITION BY k ORDER BY id) FROM t ORDER BY id", true),
    ("SELECT comment, words, id FROM t WHERE id < 0 ORDER BY id", true),
    ("SELECT comment, words, id FROM t ORDER BY id DESC LIMIT 9 OFFSET 3", false),
    ("SELECT id, k FROM t ORDER BY k, id", false),
    ("SELECT id, same FROM t ORDER BY id", false),
];

fn mem_table(rows: RecordBatch) -> Arc<MemTable> {
    let (schema, half) = (rows.schema(), rows.num_rows() / 2);
    let parts = [rows.slice(0, half), rows.slice(half, rows.num_rows() - half)].map(|rows| {
        let batches = (0..rows.num_rows() as u32).step_by(700);
        // Copies: each slice would count as wide as all of them in the statistics of the table.
        let copied = batches.map(|first| {
            let places = UInt32Array::from_iter_values(first..(first + 700).min(rows.num_rows() as u32));
            take_record_batch(&rows, &places).unwrap()
        });
        copied.collect()
    });
    Arc::new(MemTable::try_new(schema, parts.into()).unwrap())
}

fn engine(limit: Option<usize>, algorithm: SortAlgorithm) -> Engine {
    with_tables(Engine::new(limit, 2), algorithm)
}

fn with_tables(engine: Engine, algorithm: SortAlgorithm) -> Engine {
    engine.context.state_ref().write().config_mut().set_extension(Arc::new(algorithm));
    for (name, count, step) in [("t", ROWS, 1), ("u", FEW_ROWS, 10)] {
        engine.context.register_table(name, mem_table(rows(count, step))).unwrap();
    }
    engine
}

fn spools(plan: &Arc<dyn ExecutionPlan>) -> bool {
    displayable(plan.as_ref()).indent(false).to_string().contains("columns=spooled")
}

fn joined(schema: SchemaRef, batches: &[RecordBatch]) -> RecordBatch {
    concat_batches(&schema, batches).unwrap()
}

#[test]
fn rows_are_those_of_plain_datafusion_in_the_same_order() {
    run(async {
        let plain = plain();
        for (name, count, step) in [("t", ROWS, 1), ("u", FEW_ROWS, 10)] {
            plain.register_table(name, mem_table(rows(count, step))).unwrap();
        }
        for (sql, spooled) in QUERIES {
            let right = plain.sql(sql).await.expect(sql).collect().await.expect(sql);
            for limit in LIMITS {
                let engine = engine(limit, SortAlgorithm::Ssd);
                let plan = planned(&engine.context, sql).await.expect(sql);
                assert_eq!(spools(&plan), *spooled, "{sql}");
                let ours =
                    engine.collect(&plan).await.unwrap_or_else(|error| panic!("{sql}, {limit:?}: {error}"));
                let (ours, right) = (joined(plan.schema(), &ours), joined(plan.schema(), &right));
                assert!(ours == right, "{sql} under {limit:?}");
                if *spooled && right.num_rows() > 0 {
                    assert_spilled(&engine);
                    assert!(metric(&plan, "page_reads") > 0, "{sql}");
                }
                drop(plan);
                engine.assert_clean(sql).await;
            }
        }
    });
}

#[test]
fn what_is_computed_anew_each_time_is_sorted_by_too() {
    run(async {
        let engine = engine(Some(MIB), SortAlgorithm::Ssd);
        let plan = planned(&engine.context, "SELECT * FROM t ORDER BY random()").await.unwrap();
        assert!(spools(&plan));
        let ours = joined(schema(), &engine.collect(&plan).await.unwrap());
        let ids = ours.column(0).as_primitive::<Int64Type>();
        let in_order = ids.values().iter().zip(0..).filter(|(id, place)| **id == *place).count();
        assert!(in_order < ROWS as usize / 10, "{in_order} rows have kept their places");
        let order = arrow::compute::sort_to_indices(ids, None, None).unwrap();
        assert!(take_record_batch(&ours, &order).unwrap() == rows(ROWS, 1));
    });
}

#[test]
fn rows_longer_than_the_limit_are_sorted() {
    run(async {
        let engine = Engine::new(Some(MIB), 2);
        engine.context.state_ref().write().config_mut().set_extension(Arc::new(SortAlgorithm::Ssd));
        let text = |number: i64| format!("{number} ").repeat(if number % 5 == 3 { 400_000 } else { 3 });
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..20).map(|n| n * 7 % 20)));
        let texts = numbers.as_primitive::<Int64Type>().values().iter().map(|&number| text(number));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
        let batch = RecordBatch::try_from_iter([("n", numbers), ("text", texts)]).unwrap();
        engine.context.register_table("long", mem_table(batch)).unwrap();
        let plan = planned(&engine.context, "SELECT text FROM long ORDER BY n").await.unwrap();
        assert!(spools(&plan));
        let ours = joined(plan.schema(), &engine.collect(&plan).await.unwrap());
        let texts = ours.column(0).as_string::<i32>();
        assert!(texts.len() == 20 && texts.iter().zip(0..).all(|(ours, number)| ours == Some(&text(number))));
        drop(plan);
        engine.assert_clean("long rows").await;
    });
}

#[test]
fn windows_have_few_rows_where_these_are_wide() {
    run(async {
        let engine = engine(Some(8 * MIB), SortAlgorithm::Ssd);
        let (rows, wide, wide_bytes) = (12_000, 6000..6100, 200_000);
        let numbers = (0..rows).map(|number| number * 7919 % rows);
        let width = |number: i64| if wide.contains(&number) { wide_bytes } else { 70 };
        let texts = numbers.clone().map(|number| "x".repeat(width(number)));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
        let batch = RecordBatch::try_from_iter([("n", numbers), ("text", texts)]).unwrap();
        engine.context.register_table("skewed", mem_table(batch)).unwrap();
        let plan = planned(&engine.context, "SELECT text FROM skewed ORDER BY n").await.unwrap();
        assert!(spools(&plan));
        let ours = engine.collect(&plan).await.unwrap();
        let lengths = ours.iter().flat_map(|batch| batch.column(0).as_string::<i32>().iter());
        assert!(lengths.map(|text| text.unwrap().len()).eq((0..rows).map(width)));
        // Of 256 KiB each.
        let windows = metric(&plan, "windows");
        assert!((80..200).contains(&windows), "{windows} windows");
    });
}

#[test]
fn explain_shows_that_the_sort_of_a_window_spools() {
    run(async {
        let engine = engine(Some(MIB), SortAlgorithm::Ssd);
        let sql = "EXPLAIN SELECT comment, words, id, row_number() OVER (ORDER BY k, id) FROM t";
        let explained = engine.collect(&planned(&engine.context, sql).await.unwrap()).await.unwrap();
        let texts = explained.iter().flat_map(|batch| batch.column(1).as_string::<i32>().iter().flatten());
        let texts: Vec<&str> = texts.collect();
        assert!(texts.iter().any(|text| text.contains("columns=spooled")), "{texts:?}");
    });
}

/// So many rows of a number in no order and a text of so many bytes.
fn wide(rows: i64, text_bytes: usize) -> Arc<MemTable> {
    let numbers = (0..rows).map(|number| number * 7919 % rows);
    let texts = numbers.clone().map(|number| format!("{number:0text_bytes$}"));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    mem_table(RecordBatch::try_from_iter([("n", numbers), ("text", texts)]).unwrap())
}

#[test]
fn wide_rows_are_spooled_where_they_would_be_merged_again_and_again() {
    run(async {
        for (rows, text_bytes, limit, spooled) in [
            (16_000, 4100, Some(MIB), true),
            (16_000, 4100, Some(64 * MIB), false),
            (16_000, 4100, None, false),
            (160_000, 100, Some(MIB), false),
        ] {
            let what = format!("{rows} rows of {text_bytes} bytes under {limit:?}");
            for algorithm in [SortAlgorithm::Auto, SortAlgorithm::Merge] {
                let engine = engine(limit, algorithm);
                engine.context.register_table("wide", wide(rows, text_bytes)).unwrap();
                let plan = planned(&engine.context, "SELECT text, n FROM wide ORDER BY n").await.unwrap();
                assert_eq!(spools(&plan), spooled && algorithm == SortAlgorithm::Auto, "{what}");
                let ours = joined(plan.schema(), &engine.collect(&plan).await.unwrap());
                let numbers = ours.column(1).as_primitive::<Int64Type>();
                assert!(numbers.values().iter().copied().eq(0..rows), "{what}");
                let texts = ours.column(0).as_string::<i32>().iter().zip(0..rows);
                texts.for_each(|(text, number)| {
                    assert_eq!(
                        text.unwrap().trim_start_matches('0'),
                        number.to_string().trim_start_matches('0')
                    );
                });
                drop((plan, ours));
                engine.assert_clean(&what).await;
            }
        }
    });
}

#[test]
fn reads_and_writes_that_fail_or_are_damaged_end_the_query_and_short_ones_do_not() {
    run(async {
        let (engine, simulation) = Engine::simulated(Some(MIB), 2);
        let engine = with_tables(engine, SortAlgorithm::Ssd);
        let sql = "SELECT * FROM t ORDER BY k, id";
        let in_order = |rows: &[RecordBatch]| joined(schema(), rows);
        check_faults(&engine, &simulation, sql, in_order, "temp").await;
    });
}

#[test]
fn a_full_disk_ends_the_query_and_leaves_nothing() {
    run(async {
        let (engine, simulation) = Engine::simulated(Some(MIB), 2);
        let engine = with_tables(engine, SortAlgorithm::Ssd);
        simulation.set_plan(FaultPlan::none().capacity(2 * MIB as u64));
        let plan = planned(&engine.context, "SELECT * FROM t ORDER BY k, id").await.unwrap();
        let errors = fails_cleanly(&engine, plan, "a full disk").await;
        assert!(
            errors.len() == 1 && errors[0].contains("no space left in the temporary folder"),
            "{errors:?}"
        );
    });
}

#[test]
fn however_it_ends_it_leaves_nothing() {
    run(async {
        let engine = engine(Some(MIB), SortAlgorithm::Ssd);
        for batches in [0, 1, 5] {
            let plan = planned(&engine.context, "SELECT * FROM t ORDER BY k, id").await.unwrap();
            let mut stream = streams(&engine, &plan).remove(0);
            for _ in 0..batches {
                stream.next().await.unwrap().unwrap();
            }
            drop(stream);
            engine.assert_clean(&format!("a sort that is dropped after {batches} batches")).await;
        }
        let key = [KeyType::LongText(200)];
        let table = Table::draw("", &key, &TableShape { text_bytes: 20, ..TableShape::of_rows(16_000) });
        let sort = crate::harness::sorts::Sort::by(crate::harness::sorts::DIRECTIONS[0]);
        let plan = sort.plan(scripted(&table, 2, Ending::Error("the input broke"), &Tap::open()));
        let planned = plan.downcast_ref::<nandina_exec::sort::ExternalSortExec>().unwrap();
        assert!(planned.spoolable().is_some());
        planned.spool();
        let errors = fails_cleanly(&engine, plan, "an input that failed").await;
        assert!(errors.len() == 1 && errors[0].contains("the input broke"), "{errors:?}");
    });
}
