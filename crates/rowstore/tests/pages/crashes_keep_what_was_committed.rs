use nandina_rowstore::{PageStore, Result};
use nandina_simulation::{CrashOutcome, FaultPlan};

use crate::model::{COUNT_ROOT, Model};
use crate::setup::Devices;

const CHANGES: u64 = 160;
/// Changes between two that are waited for, and between two checkpoints.
const GROUP: u64 = 5;
const CHECKPOINT: u64 = 37;
const SEED: u64 = 11;

/// All models from no change to the last one.
fn models() -> Vec<Model> {
    let devices = Devices::new();
    let store = devices.open().unwrap();
    let mut models = vec![Model::default()];
    for number in 1..=CHANGES {
        let mut next = models[number as usize - 1].clone();
        next.step(&store, SEED).unwrap();
        models.push(next);
    }
    models
}

/// Changes pages until the power fails, and says how many changes are durable.
fn run(store: &PageStore, mut model: Model, mut durable: impl FnMut(u64)) -> Result<()> {
    while model.changes < CHANGES {
        let lsn = model.step(store, SEED)?;
        if model.changes.is_multiple_of(GROUP) {
            store.log().wait_until_durable(lsn)?;
            durable(model.changes);
        }
        if model.changes.is_multiple_of(CHECKPOINT) {
            store.checkpoint()?;
        }
    }
    Ok(())
}

fn outcomes() -> Vec<CrashOutcome> {
    let random = (0..4).map(|seed| CrashOutcome::Random { seed: seed * 77 });
    [CrashOutcome::LoseUnsynced, CrashOutcome::KeepAll].into_iter().chain(random).collect()
}

/// Opens the store and finds a state that it had: not before the one that was durable.
fn check(devices: &Devices, models: &[Model], durable: u64, context: &str) -> (PageStore, Model) {
    let store = devices.open().unwrap_or_else(|error| panic!("{context}: {error}"));
    let changes = store.root(COUNT_ROOT).unwrap();
    assert!((durable..=CHANGES).contains(&changes), "{context}: {changes} of {durable}");
    let model = models[changes as usize].clone();
    model.check(&store, context);
    (store, model)
}

#[test]
fn power_fails_at_every_event_and_again_during_recovery() {
    let models = models();
    let events = {
        let devices = Devices::new();
        let store = devices.open().unwrap();
        run(&store, Model::default(), |_| {}).unwrap();
        let events = devices.machine.events();
        models[CHANGES as usize].check(&store, "without a crash");
        let statistics = store.pool().statistics();
        assert!(statistics.misses > 50 && statistics.written > 50, "{statistics:?}");
        events
    };
    assert!(events > 100, "{events} events");
    let outcomes = outcomes();
    for event in 0..events {
        for (number, outcome) in outcomes.iter().copied().enumerate() {
            let context = format!("event {event}, {outcome:?}");
            let devices = Devices::new();
            devices.machine.lose_power_at(event);
            let mut durable = 0;
            let ended =
                devices.open().and_then(|store| run(&store, Model::default(), |count| durable = count));
            assert!(ended.is_err(), "{context}");
            devices.crash(outcome);
            // Again while it is opened, at another moment each time, and then while it goes on.
            for again in 0..3 {
                let moment = devices.machine.events() + (event + 3 * number as u64) % 23 + 9 * again;
                devices.machine.lose_power_at(moment);
                let context = format!("{context}, again at {moment}");
                match devices.open() {
                    Ok(store) => {
                        let changes = store.root(COUNT_ROOT);
                        let Ok(changes) = changes else { break };
                        assert!(changes >= durable, "{context}: {changes} of {durable}");
                        let _ = run(&store, models[changes as usize].clone(), |count| durable = count);
                    }
                    Err(error) => assert!(!error.to_string().contains("damaged"), "{context}: {error}"),
                }
                devices.crash(outcome);
            }
            let (store, model) = check(&devices, &models, durable, &context);
            run(&store, model, |_| {}).unwrap();
            models[CHANGES as usize].check(&store, &context);
            drop(store);
            let (_, model) = check(&devices, &models, CHANGES, &context);
            assert_eq!(model.changes, CHANGES);
        }
    }
}

#[test]
fn every_failing_request_loses_nothing() {
    let models = models();
    let devices = Devices::new();
    run(&devices.open().unwrap(), Model::default(), |_| {}).unwrap();
    let (of_pages, of_log) = (devices.of_pages.requests(), devices.of_log.requests());
    for request in 0..of_pages.max(of_log) {
        for is_log in [false, true] {
            let devices = Devices::new();
            let plan = FaultPlan::none().fail_request(request);
            if is_log {
                devices.of_log.set_plan(plan)
            } else {
                devices.of_pages.set_plan(plan)
            }
            let context = format!("request {request} of the {}", if is_log { "log" } else { "pages" });
            let mut durable = 0;
            match devices.open() {
                Ok(store) => {
                    let mut model = Model::default();
                    let mut errors = 0;
                    // What failed is tried again; a log that failed takes nothing more.
                    while model.changes < CHANGES && errors < 3 {
                        let before = model.clone();
                        let stepped =
                            model.step(&store, SEED).and_then(|lsn| store.log().wait_until_durable(lsn));
                        if stepped.is_err() {
                            errors += 1;
                            if model.changes == before.changes {
                                assert_eq!(
                                    store.root(COUNT_ROOT).unwrap_or(before.changes),
                                    before.changes,
                                    "{context}"
                                );
                            }
                        } else {
                            durable = model.changes;
                        }
                        if model.changes.is_multiple_of(CHECKPOINT) && store.checkpoint().is_err() {
                            errors += 1;
                        }
                    }
                    assert!(
                        errors == 0 || is_log || durable == CHANGES,
                        "{context}: {durable} after {errors}"
                    );
                }
                Err(error) => assert!(error.to_string().contains("pages") || is_log, "{context}: {error}"),
            }
            devices.of_log.set_plan(FaultPlan::none());
            devices.of_pages.set_plan(FaultPlan::none());
            if request % 2 == 0 {
                devices.crash(CrashOutcome::Random { seed: request });
            }
            let (store, model) = check(&devices, &models, durable, &context);
            run(&store, model, |_| {}).unwrap();
            models[CHANGES as usize].check(&store, &context);
        }
    }
}

#[test]
fn a_change_that_is_dropped_leaves_pages_as_they_were() {
    let devices = Devices::new();
    let store = devices.open().unwrap();
    let mut model = Model::default();
    for _ in 0..40 {
        model.step(&store, SEED).unwrap();
    }
    let pages: Vec<_> = model.pages.keys().copied().take(3).collect();
    let mut change = store.change();
    for page in pages {
        let page = change.latch(page).unwrap();
        change.write(page, 100, b"something else");
        change.shift(page, 90..400, 300);
        change.write(page, 310, b"and once more");
    }
    store.allocate(&mut change, crate::setup::CELLS).unwrap();
    drop(change);
    model.check(&store, "after a change that was dropped");
}
