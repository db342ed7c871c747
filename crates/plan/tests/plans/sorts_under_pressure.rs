//! However a sort ends, it leaves nothing behind; it gives memory back when another consumer needs it; and however it
//! fails, it says why and does not hang.

use std::time::Duration;

use datafusion::physical_plan::ExecutionPlanProperties as _;
use futures::StreamExt;
use nandina_simulation::FaultPlan;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::harness::input::{Ending, Tap, scripted};
use crate::harness::pressure::{assert_spilled, fails_cleanly, faults_noticed, take_what_is_held};
use crate::harness::sorts::{DIRECTIONS, Sort};
use crate::harness::streams::{cancel_when, read_all, streams};
use crate::harness::tables::{KeyType, Table, TableShape};
use crate::harness::{Engine, MIB, metric, run};

/// What these sorts may use; their rows take several times as much.
const LIMIT: usize = MIB;

/// About 5 MB, 32 batches.
fn table() -> Table {
    Table::draw("", &[KeyType::LongText(200)], &TableShape { text_bytes: 20, ..TableShape::of_rows(16_000) })
}

fn sorts() -> [Sort; 3] {
    let sort = Sort::by(DIRECTIONS[0]);
    [sort.clone(), sort.clone().first(12_000), sort.by_partition()]
}

/// Another consumer asks for most of the memory after so many batches of the input or, if those are all, after so many
/// of the output.
async fn gives_memory_back(sort: &Sort, batches_in: usize, batches_out: usize, keeps: bool) {
    let what = format!("{sort:?} after {batches_in} and {batches_out} batches, kept {keeps}");
    let (table, limit, wanted) = (table(), 12 * MIB, 11 * MIB);
    let right = sort.right_rows(&table).await;
    let engine = Engine::new(Some(limit), 2);
    let tap = Tap::after(batches_in);
    let plan = sort.plan(scripted(&table, 2, Ending::Complete, &tap));
    let mut stream = streams(&engine, &plan).remove(0);
    let (mut rows, mut kept) = (Vec::new(), Vec::new());
    if batches_in < table.batches.len() {
        let reader = tokio::spawn(read_all(vec![stream]));
        tap.runs_dry().await;
        kept.push(take_what_is_held(&engine, wanted, limit, &what).await);
        kept.truncate(usize::from(keeps));
        tap.release();
        rows.extend(reader.await.unwrap().remove(0).unwrap_or_else(|error| panic!("{what}: {error}")));
    } else {
        for _ in 0..batches_out {
            rows.push(stream.next().await.expect("a batch").expect("rows"));
        }
        kept.push(take_what_is_held(&engine, wanted, limit, &what).await);
        kept.truncate(usize::from(keeps));
        rows.extend(read_all(vec![stream]).await.remove(0).unwrap_or_else(|error| panic!("{what}: {error}")));
    }
    drop(kept);
    sort.assert_right(&rows, &right, &table, &what);
    assert!(metric(&plan, "spilled_runs") > 0, "{what}");
    drop((rows, plan));
    engine.assert_clean(&what).await;
}

#[test]
fn memory_is_given_back_at_every_moment() {
    for sort in &sorts()[..2] {
        for (batches_in, batches_out) in [(20, 0), (30, 0), (usize::MAX >> 4, 1), (usize::MAX >> 4, 9)] {
            for keeps in [false, true] {
                run(gives_memory_back(sort, batches_in, batches_out, keeps));
            }
        }
    }
}

#[test]
fn two_sorts_share_a_limit() {
    run(async {
        let table = table();
        let sort = Sort::by(DIRECTIONS[1]);
        let right = sort.right_rows(&table).await;
        let engine = Engine::new(Some(LIMIT), 2);
        let plans = [sort.plan(table.scan(2)), sort.plan(table.scan(2)), sort.plan(table.scan(1))];
        let all = plans.iter().flat_map(|plan| streams(&engine, plan)).collect();
        for outcome in read_all(all).await {
            sort.assert_right(&outcome.unwrap(), &right, &table, "sorts side by side");
        }
        drop(plans);
        engine.assert_clean("sorts side by side").await;
    });
}

/// Drops the streams when the device has read so many bytes, or the input has given so many batches.
async fn cancel_in_phase(sort: &Sort, batches_in: usize, keep_plan: bool) {
    let table = table();
    let engine = Engine::new(Some(LIMIT), 2);
    let tap = Tap::after(batches_in);
    let plan = sort.plan(scripted(&table, 2, Ending::Complete, &tap));
    let mut all = streams(&engine, &plan);
    let plan = keep_plan.then_some(plan);
    if batches_in < table.batches.len() {
        cancel_when(all, tap.runs_dry()).await;
    } else {
        all[0].next().await.expect("more rows").expect("a batch");
        assert!(engine.space.used_bytes() > 0);
        drop(all);
    }
    assert_spilled(&engine);
    engine.assert_clean(&format!("{sort:?} cancelled after {batches_in}, plan kept {keep_plan}")).await;
    drop(plan);
}

#[test]
fn cancelling_leaves_nothing() {
    for sort in sorts() {
        for batches_in in [28, usize::MAX >> 4] {
            for keep_plan in [false, true] {
                run(cancel_in_phase(&sort, batches_in, keep_plan));
            }
        }
    }
}

#[test]
fn cancelling_at_any_moment_leaves_nothing() {
    let mut random = StdRng::seed_from_u64(7);
    let table = table();
    for sort in sorts() {
        for _ in 0..15 {
            let micros = random.random_range(0..150_000);
            run(async {
                let engine = Engine::new(Some(LIMIT), 2);
                let plan = sort.plan(table.scan(2));
                let all = streams(&engine, &plan);
                cancel_when(all, tokio::time::sleep(Duration::from_micros(micros))).await;
                engine.assert_clean(&format!("{sort:?} cancelled after {micros} µs")).await;
            });
        }
    }
}

#[test]
fn an_input_that_fails_fails_the_sort() {
    for sort in sorts() {
        for partitions in [1, 3] {
            run(async {
                let engine = Engine::new(Some(LIMIT), partitions);
                let input = scripted(&table(), partitions, Ending::Error("the input broke"), &Tap::open());
                let plan = sort.plan(input);
                let outputs = plan.output_partitioning().partition_count();
                let errors = fails_cleanly(&engine, plan, "a sort whose input failed").await;
                assert_eq!(errors.len(), outputs, "{errors:?}");
                assert!(errors.iter().all(|error| error.contains("the input broke")), "{errors:?}");
            });
        }
    }
}

#[test]
fn a_quota_that_is_exceeded_is_named() {
    for sort in sorts() {
        run(async {
            let engine = Engine::new(Some(LIMIT), 2);
            // Less than is written, however well pages are compressed.
            engine.space.set_quota_bytes(Some(64 << 10));
            let plan = sort.plan(table().scan(2));
            let errors = fails_cleanly(&engine, plan, "a sort beyond the quota").await;
            assert!(!errors.is_empty());
            for error in errors {
                assert!(error.contains("temporary space is used up: sort needs"), "{error}");
            }
        });
    }
}

#[test]
fn a_full_device_is_named() {
    run(async {
        let (engine, faults) = Engine::simulated(Some(LIMIT), 2);
        faults.set_plan(FaultPlan::none().capacity(MIB as u64));
        let plan = Sort::by(DIRECTIONS[0]).plan(table().scan(2));
        let errors = fails_cleanly(&engine, plan, "a sort on a full device").await;
        assert_eq!(errors.len(), 1);
        assert!(errors[0].contains("no space left"), "{errors:?}");
    });
}

#[test]
fn any_request_may_fail() {
    let table = table();
    let sort = Sort::by(DIRECTIONS[0]);
    let assert_right = |rows: &[_], right: &[_], what: &str| sort.assert_right(rows, right, &table, what);
    let failed = faults_noticed(24, || sort.plan(table.scan(1)), assert_right, "a sort");
    // A run that could not be written when others asked for memory is still there, and is written again.
    assert!(failed > 10, "{failed} of 24 faults were noticed");
}

#[test]
fn space_is_given_back_while_runs_are_read() {
    run(async {
        let shape = TableShape { text_bytes: 400, ..TableShape::of_rows(40_000) };
        let table = Table::draw("", &[KeyType::Int64], &shape);
        let engine = Engine::new(Some(LIMIT), 1);
        let plan = Sort::by(DIRECTIONS[0]).plan(table.scan(1));
        let mut stream = streams(&engine, &plan).remove(0);
        let mut rows = stream.next().await.unwrap().unwrap().num_rows();
        let all_bytes = engine.space.used_bytes();
        while rows < 30_000 {
            rows += stream.next().await.unwrap().unwrap().num_rows();
        }
        let left_bytes = engine.space.used_bytes();
        assert!(left_bytes < all_bytes / 2, "{left_bytes} of {all_bytes} bytes are left");
    });
}
