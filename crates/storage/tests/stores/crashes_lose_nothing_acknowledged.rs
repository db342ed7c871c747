//! The power fails at every single change of the medium during a series of statements. Whatever survives of the
//! unsynced changes, the database opens with the state before or after the statement that was running.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use crate::setup;

use nandina_device::Device;
use nandina_simulation::{CrashOutcome, FaultPlan};
use nandina_storage::*;
use setup::*;

/// What each table holds: names and sorted keys.
type State = Vec<(String, Vec<i64>)>;

fn state(store: &Store) -> State {
    let content = |name: &String| {
        let mut keys = keys(&read(&store.table(name).unwrap()));
        keys.sort_unstable();
        (name.clone(), keys)
    };
    store.table_names().iter().map(content).collect()
}

/// The statements; `done` is told after each that was acknowledged.
fn run(device: Device, mut done: impl FnMut(usize)) -> Result<()> {
    let store = Store::open(device, Mode::Write)?;
    done(0);
    let writer = store.create_table_with_rows(definition("a"), IfExists::Fail, WriteOptions::default())?;
    fill(&writer, 0..3000)?;
    writer.commit_blocking()?;
    done(1);
    store.create_table(definition("b"), IfExists::Fail)?;
    done(2);
    let a = store.table("a")?;
    let writer = a.writer(WriteMode::Append, WriteOptions { window_bytes: Some(32 << 10), account: None })?;
    fill(&writer, 3000..4000)?;
    writer.commit_blocking()?;
    done(3);
    drop(a);
    let writer = store.table("a")?.writer(WriteMode::Overwrite, WriteOptions::default())?;
    fill(&writer, 9000..9010)?;
    writer.commit_blocking()?;
    done(4);
    let writer = store.create_table_with_rows(definition("b"), IfExists::Replace, WriteOptions::default())?;
    fill(&writer, 50..60)?;
    writer.commit_blocking()?;
    done(5);
    store.drop_table("a")?;
    done(6);
    Ok(())
}

fn fill(writer: &TableWriter, keys: std::ops::Range<i64>) -> Result<()> {
    let mut lane = writer.lane();
    lane.append_blocking(&rows(keys))?;
    lane.finish_blocking()
}

/// States after each statement, from a run without faults; and how many events it takes.
fn expected() -> (Vec<State>, u64) {
    let keys = |range: std::ops::Range<i64>| range.collect::<Vec<i64>>();
    let a = |range| ("a".to_owned(), keys(range));
    let b = |range| ("b".to_owned(), keys(range));
    let states = vec![
        vec![],
        vec![a(0..3000)],
        vec![a(0..3000), b(0..0)],
        vec![a(0..4000), b(0..0)],
        vec![a(9000..9010), b(0..0)],
        vec![a(9000..9010), b(50..60)],
        vec![b(50..60)],
    ];
    let (device, handle) = simulated();
    let mut last = 0;
    run(device.clone(), |statement| last = statement).unwrap();
    assert_eq!(last, 6);
    assert_eq!(state(&Store::open(device, Mode::Write).unwrap()), states[6]);
    (states, handle.events())
}

fn outcomes() -> Vec<CrashOutcome> {
    let random = (0..6).map(|seed| CrashOutcome::Random { seed });
    [CrashOutcome::LoseUnsynced, CrashOutcome::KeepAll].into_iter().chain(random).collect()
}

#[test]
fn power_fails_at_every_event() {
    let (states, events) = expected();
    assert!(events > 60, "{events} events");
    for event in 0..events {
        for outcome in outcomes() {
            let (device, handle) = simulated();
            handle.set_plan(FaultPlan::none().power_loss_at(event));
            let mut acknowledged = None;
            let result = run(device.clone(), |statement| acknowledged = Some(statement));
            handle.crash(outcome);
            let context = format!("event {event}, {outcome:?}, acknowledged {acknowledged:?}, {result:?}");
            let store =
                Store::open(device.clone(), Mode::Write).unwrap_or_else(|error| panic!("{context}: {error}"));
            let found = state(&store);
            let next = acknowledged.map_or(0, |statement| statement + 1).min(6);
            let before = acknowledged.unwrap_or(0);
            assert!(found == states[before] || found == states[next], "{context}: {found:?}");
            // Nothing is left behind: exactly the files that hold rows are there.
            let tables_with_rows = found.iter().filter(|(_, keys)| !keys.is_empty()).count();
            let segments = segment_files(&device).len();
            let appended = usize::from(found.iter().any(|(_, keys)| keys.len() == 4000));
            assert_eq!(segments, tables_with_rows + appended, "{context}: {:?}", device.list());
            assert!(!device.list().unwrap().iter().any(|name| name.ends_with(".new")), "{context}");
            // And it works on.
            store.create_table(definition("afterwards"), IfExists::Fail).unwrap();
        }
    }
}

#[test]
fn the_process_ends_at_every_event() {
    // Like a power failure in which nothing is lost, but noticed by nobody: the next process finds the live image.
    let (states, events) = expected();
    for event in 0..events {
        let (device, handle) = simulated();
        handle.set_plan(FaultPlan::none().power_loss_at(event));
        let mut acknowledged = None;
        let _ = run(device.clone(), |statement| acknowledged = Some(statement));
        handle.crash(CrashOutcome::KeepAll);
        let found = state(&Store::open(device, Mode::Write).unwrap());
        let before = acknowledged.unwrap_or(0);
        let next = acknowledged.map_or(0, |statement| statement + 1).min(6);
        assert!(found == states[before] || found == states[next], "event {event}: {found:?}");
    }
}

#[test]
fn every_failing_request_leaves_the_state_before_or_after() {
    let (states, _) = expected();
    let (device, handle) = simulated();
    run(device, |_| {}).unwrap();
    for request in 0..handle.requests() {
        let (device, handle) = simulated();
        handle.set_plan(FaultPlan::none().fail_request(request));
        let mut acknowledged = None;
        let result = run(device.clone(), |statement| acknowledged = Some(statement));
        let error = result.expect_err("a failed request fails a statement").to_string();
        assert!(error.contains("segment-") || error.contains("nandina."), "{error}");
        let store = Store::open(device.clone(), Mode::Write).unwrap();
        let before = acknowledged.unwrap();
        let found = state(&store);
        assert_eq!(found, states[before], "request {request}: {error}");
        let tables_with_rows = found.iter().filter(|(_, keys)| !keys.is_empty()).count();
        let appended = usize::from(found.iter().any(|(_, keys)| keys.len() == 4000));
        assert_eq!(segment_files(&device).len(), tables_with_rows + appended, "request {request}");
    }
}

#[test]
fn torn_and_short_writes() {
    let (states, _) = expected();
    let (device, handle) = simulated();
    run(device, |_| {}).unwrap();
    for request in 0..handle.requests() {
        let (device, handle) = simulated();
        handle.set_plan(FaultPlan::none().short_transfer(request, 4096));
        run(device.clone(), |_| {}).unwrap();
        assert_eq!(state(&Store::open(device, Mode::Write).unwrap()), states[6]);
        let (device, handle) = simulated();
        let mut acknowledged = None;
        handle.set_plan(FaultPlan::none().torn_write(request, 700));
        let result = run(device.clone(), |statement| acknowledged = Some(statement));
        let found = state(&Store::open(device, Mode::Write).unwrap());
        let before = acknowledged.unwrap();
        assert_eq!(found, states[before], "request {request}: {result:?}");
    }
}
