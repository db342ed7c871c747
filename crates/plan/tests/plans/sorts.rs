//! Sorts give DataFusion's rows in DataFusion's order, whatever the types, the directions, the memory limit and the
//! number of rows that are wanted.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Decimal32Array, DictionaryArray, FixedSizeListArray, Float32Array, Int32Array, Int64Array,
    ListArray, NullArray, RecordBatch, StringArray, StructArray,
};
use arrow::datatypes::{DataType, Field, Int16Type, Int64Type};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::harness::input::{Ending, Tap, in_order, scripted};
use crate::harness::rows::{assert_same_rows, rows};
use crate::harness::sorts::{DIRECTIONS, Sort};
use crate::harness::streams::{read_all, streams};
use crate::harness::tables::{KEY_TYPES, KeyType, Skew, Table, TableShape};
use crate::harness::{BATCH_ROWS, Engine, KIB, MIB, metric, run};

const LIMITS: [Option<usize>; 4] = [None, Some(32 * MIB), Some(4 * MIB), Some(MIB)];

/// Sorts a table at a limit and compares. How many runs were written.
async fn check(
    sort: &Sort,
    table: &Table,
    limit: Option<usize>,
    partitions: usize,
    right: &[RecordBatch],
) -> usize {
    let what = format!("{sort:?} at {limit:?} of {partitions}, {:?}", table.schema.field(0).data_type());
    let engine = Engine::new(limit, partitions);
    let plan = sort.plan(table.scan(partitions));
    assert_eq!(plan.output_partitioning().partition_count(), 1, "{what}");
    let ours = engine.collect(&plan).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(ours.iter().all(|batch| batch.num_rows() <= BATCH_ROWS), "{what}");
    sort.assert_right(&ours, right, table, &what);
    let runs = metric(&plan, "spilled_runs");
    drop((ours, plan));
    engine.assert_clean(&what).await;
    runs
}

/// The same at every limit. How many runs were written at the smallest.
fn same_everywhere(sort: &Sort, table: &Table) -> usize {
    run(async {
        let right = sort.right_rows(table).await;
        let mut runs = 0;
        for limit in LIMITS {
            for partitions in [1, 3] {
                runs = check(sort, table, limit, partitions, &right).await;
            }
        }
        runs
    })
}

fn shape() -> TableShape {
    TableShape { domain: 3000, null_percent: 10, text_bytes: 150, ..TableShape::of_rows(12_000) }
}

#[test]
fn every_type_comes_into_order_in_every_direction() {
    for (number, key_type) in KEY_TYPES.into_iter().enumerate() {
        let table = Table::draw("", &[key_type], &TableShape { seed: number as u64, ..shape() });
        for direction in DIRECTIONS {
            let runs = same_everywhere(&Sort::by(direction), &table);
            assert!(runs > 1, "{key_type:?}: {runs} runs");
        }
    }
}

#[test]
fn nested_and_encoded_types_come_into_order() {
    let numbers: Vec<Option<i64>> = (0..9000).map(|n| (n % 11 != 0).then_some(n * 7919 % 1000)).collect();
    let texts: Vec<Option<String>> = numbers.iter().map(|n| n.map(|n| format!("value {}", n % 40))).collect();
    let items = |n: i64| (0..n % 4).map(move |item| (item != 2).then_some(n - item)).collect::<Vec<_>>();
    let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(numbers.iter().map(|n| n.map(items)));
    let fixed = FixedSizeListArray::from_iter_primitive::<Int64Type, _, _>(
        numbers.iter().map(|n| n.map(|n| vec![Some(n % 5), (n % 3 > 0).then_some(n)])),
        2,
    );
    let dictionary: DictionaryArray<Int16Type> = texts.iter().map(Option::as_deref).collect();
    let structs = StructArray::from(vec![
        (
            Arc::new(Field::new("a", DataType::Int64, true)),
            Arc::new(Int64Array::from_iter(numbers.iter().map(|n| n.map(|n| n % 10)))) as ArrayRef,
        ),
        (
            Arc::new(Field::new("b", DataType::Utf8, true)),
            Arc::new(StringArray::from_iter(texts.iter().map(Option::as_deref))),
        ),
    ]);
    let floats =
        numbers.iter().map(|n| n.map(|n| [0.0, -0.0, f32::NAN, -f32::NAN, n as f32][n as usize % 5]));
    let decimals = Decimal32Array::from_iter(numbers.iter().map(|n| n.map(|n| n as i32 - 500)));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(lists),
        Arc::new(fixed),
        Arc::new(dictionary),
        Arc::new(structs),
        Arc::new(Float32Array::from_iter(floats)),
        Arc::new(decimals),
        Arc::new(NullArray::new(numbers.len())),
    ];
    let payload: ArrayRef = Arc::new(StringArray::from_iter_values((0..9000).map(|n| format!("{n:0300}"))));
    for column in columns {
        let table = Table::of_columns(&["key", "payload"], vec![column, Arc::clone(&payload)]);
        for direction in DIRECTIONS {
            let sort = Sort::by(direction);
            assert!(same_everywhere(&sort, &table) > 1, "{}", table.schema);
            same_everywhere(&sort.first(500), &table);
        }
    }
}

#[test]
fn several_columns_decide_one_after_the_other() {
    for skew in [Skew::Even, Skew::Half, Skew::One] {
        let keys = [KeyType::Utf8View, KeyType::Float64, KeyType::Int16];
        let table = Table::draw("", &keys, &TableShape { domain: 200, skew, ..shape() });
        for turned in 0..4 {
            let directions = (0..3).map(|column| DIRECTIONS[(column + turned) % 4]).collect();
            assert!(same_everywhere(&Sort { directions, fetch: None, by_partition: false }, &table) > 1);
        }
    }
}

#[test]
fn long_keys_that_begin_alike_come_into_order() {
    let table = Table::draw("", &[KeyType::LongText(300)], &shape());
    for direction in DIRECTIONS {
        assert!(same_everywhere(&Sort::by(direction), &table) > 1);
    }
}

#[test]
fn the_first_rows_are_those_of_all() {
    for (key_type, skew) in
        [(KeyType::Int64, Skew::Even), (KeyType::Utf8View, Skew::Half), (KeyType::Float64, Skew::One)]
    {
        let table = Table::draw("", &[key_type, KeyType::Int32], &TableShape { skew, ..shape() });
        for (number, rows) in [1, 10, 700, 6_000, 11_999, 12_000, 50_000].into_iter().enumerate() {
            let directions = vec![DIRECTIONS[number % 4], DIRECTIONS[(number + 1) % 4]];
            let sort = Sort { directions, fetch: Some(rows), by_partition: false };
            let runs = same_everywhere(&sort, &table);
            assert!(runs > 0 || rows < 6_000, "no runs for {rows} rows of {key_type:?}");
            assert!(runs == 0 || rows > 10, "{runs} runs for {rows} rows of {key_type:?}");
        }
    }
}

#[test]
fn rows_may_be_wider_than_pages_and_shares_of_memory() {
    for text_bytes in [6 * KIB, 60 * KIB] {
        let rows = 30 * MIB / text_bytes / 2;
        let shape = TableShape { text_bytes, null_percent: 5, ..TableShape::of_rows(rows) };
        let table = Table::draw("", &[KeyType::Int64], &shape);
        for table in [table.clone(), table.in_batches_of(3)] {
            let sort = Sort::by(DIRECTIONS[0]);
            assert!(same_everywhere(&sort, &table) > 1);
            same_everywhere(&sort.first(40), &table);
        }
    }
}

#[test]
fn runs_that_are_too_many_are_merged_in_passes() {
    run(async {
        let shape = TableShape { text_bytes: 400, ..TableShape::of_rows(60_000) };
        let table = Table::draw("", &[KeyType::Int32], &shape);
        let sort = Sort::by(DIRECTIONS[0]);
        let engine = Engine::new(Some(400 * KIB), 2);
        let plan = sort.plan(table.scan(2));
        let ours = engine.collect(&plan).await.expect("rows");
        sort.assert_right(&ours, &sort.right_rows(&table).await, &table, "many runs");
        assert!(metric(&plan, "intermediate_merges") > 0, "{} runs", metric(&plan, "spilled_runs"));
        assert!(engine.governor.peak_bytes() < 800 * KIB, "{}", engine.governor.peak_bytes());
        drop((ours, plan));
        engine.assert_clean("a sort of many runs").await;
    });
}

#[test]
fn empty_inputs_and_lone_keys_are_sorted() {
    let nothing = Table::draw("", &[KeyType::Int64], &TableShape::of_rows(0));
    let one_batch = Table::draw("", &[KeyType::Utf8], &TableShape::of_rows(100));
    let keys: ArrayRef = Arc::new(Int32Array::from_iter((0..400_000).map(|n| Some(n * 919 % 100_003))));
    let lone = Table::of_columns(&["k"], vec![keys]);
    for fetch in [None, Some(5)] {
        let sort = Sort { fetch, ..Sort::by(DIRECTIONS[0]) };
        assert_eq!(same_everywhere(&sort, &nothing), 0);
        assert_eq!(same_everywhere(&sort, &one_batch), 0);
    }
    assert!(same_everywhere(&Sort::by(DIRECTIONS[3]), &lone) > 1);
}

#[test]
fn partitions_are_sorted_by_themselves() {
    let table = Table::draw("", &[KeyType::Int64], &TableShape { text_bytes: 500, ..shape() });
    let sort = Sort::by(DIRECTIONS[2]).by_partition();
    for limit in LIMITS {
        for one_by_one in [false, true] {
            run(async {
                let engine = Engine::new(limit, 3);
                let plan = sort.plan(table.scan(3));
                let mut outcomes = Vec::new();
                match one_by_one {
                    true => {
                        for stream in streams(&engine, &plan) {
                            outcomes.extend(read_all(vec![stream]).await);
                        }
                    }
                    false => outcomes = read_all(streams(&engine, &plan)).await,
                }
                for (outcome, dealt) in outcomes.into_iter().zip(table.deal(3)) {
                    let ours = outcome.unwrap();
                    assert!(sort.keys(&ours).is_sorted());
                    assert_same_rows(&ours, &dealt, &format!("a partition at {limit:?}"));
                }
                assert!(metric(&plan, "spilled_runs") > 0 || limit != Some(MIB));
                drop(plan);
                engine.assert_clean("sorted partitions").await;
            });
        }
    }
}

#[test]
fn a_plan_can_be_executed_again() {
    run(async {
        let table = Table::draw("", &[KeyType::Int64], &shape());
        for fetch in [None, Some(100)] {
            let sort = Sort { fetch, ..Sort::by(DIRECTIONS[0]) };
            let right = sort.right_rows(&table).await;
            let engine = Engine::new(Some(MIB), 2);
            let mut plan = sort.plan(table.scan(2));
            for time in 0..2 {
                let ours = engine.collect(&plan).await.unwrap();
                sort.assert_right(&ours, &right, &table, &format!("time {time}"));
                plan = plan.reset_state().unwrap();
            }
        }
    });
}

#[test]
fn a_limit_becomes_a_filter_that_drops_no_wanted_row() {
    run(async {
        let table = Table::draw("", &[KeyType::Int64], &shape());
        let sort = Sort::by(DIRECTIONS[0]).first(10);
        let engine = Engine::new(None, 1);
        let plan = sort.plan(table.scan(1));
        let before = shown(&plan);
        assert!(
            before.contains("ExternalSortExec: TopK(fetch=10)") && !before.contains("filter="),
            "{before}"
        );
        let ours = engine.collect(&plan).await.unwrap();
        let worst = crate::harness::rows::integers(&ours, 0).pop().unwrap().unwrap();
        let after = shown(&plan);
        assert!(after.contains(&format!("filter=[k0@0 < {worst}]")), "{after}");
    });
}

fn shown(plan: &Arc<dyn ExecutionPlan>) -> String {
    datafusion::physical_plan::displayable(plan.as_ref()).one_line().to_string()
}

#[test]
fn an_input_in_order_is_read_no_further_than_needed() {
    use std::sync::atomic::Ordering;

    use datafusion::physical_expr::expressions::col;
    use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};

    run(async {
        let days: ArrayRef = Arc::new(Int32Array::from_iter_values((0..50_000).map(|n| n / 100)));
        let times: ArrayRef = Arc::new(Int64Array::from_iter_values((0..50_000).map(|n| n * 7919 % 100)));
        let table = Table::of_columns(&["day", "time"], vec![days, times]);
        let day = PhysicalSortExpr::new_default(col("day", &table.schema).unwrap()).nulls_last();
        let sort = Sort { directions: vec![DIRECTIONS[0]; 2], fetch: Some(150), by_partition: false };
        let right = sort.right_rows(&table).await;
        let batches_read = async |input: Arc<dyn ExecutionPlan>, tap: &Tap| {
            let ours = Engine::new(None, 1).collect(&sort.plan(input)).await.unwrap();
            sort.assert_right(&ours, &right, &table, "an input in order");
            tap.asked.load(Ordering::SeqCst)
        };
        let tap = Tap::open();
        let known = in_order(&table, LexOrdering::new([day]).unwrap(), &tap);
        assert!(batches_read(known, &tap).await <= 2);
        // Where nobody says that it is in order, all of it is read.
        let tap = Tap::open();
        let unknown = scripted(&table, 1, Ending::Complete, &tap);
        assert_eq!(batches_read(unknown, &tap).await, table.batches.len());
    });
}

#[test]
fn partitions_sorted_by_themselves_hold_the_first_rows_of_all() {
    let table = Table::draw("", &[KeyType::Int64], &TableShape { text_bytes: 500, ..shape() });
    for wanted in [10, 700, 9_000] {
        let first = Sort::by(DIRECTIONS[1]).first(wanted);
        let sort = first.clone().by_partition();
        for limit in LIMITS {
            run(async {
                let what = format!("the first {wanted} at {limit:?}");
                let right = first.keys(&first.right_rows(&table).await);
                let engine = Engine::new(limit, 3);
                let plan = sort.plan(table.scan(3));
                let mut keys = Vec::new();
                let outcomes = read_all(streams(&engine, &plan)).await;
                for (outcome, dealt) in outcomes.into_iter().zip(table.deal(3)) {
                    let ours = outcome.unwrap();
                    let of_partition = sort.keys(&ours);
                    assert!(of_partition.is_sorted() && of_partition.len() <= wanted, "{what}");
                    let (some, whole) = (rows(&ours), rows(&dealt));
                    assert!(some.windows(2).all(|pair| pair[0] != pair[1]), "{what}: a row came twice");
                    assert!(some.iter().all(|row| whole.binary_search(row).is_ok()), "{what}");
                    keys.extend(of_partition);
                }
                keys.sort();
                // Each may hold others as well; whoever merges them takes the first.
                assert_eq!(keys[..wanted], right[..], "{what}");
                assert!(metric(&plan, "spilled_runs") > 0 || limit != Some(MIB) || wanted < 9_000);
                drop(plan);
                engine.assert_clean(&what).await;
            });
        }
    }
}
