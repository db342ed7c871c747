//! Random statements, crashes included, beside a model that is a map of vectors.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use crate::setup;

use std::collections::BTreeMap;

use nandina_simulation::CrashOutcome;
use nandina_storage::*;
use setup::*;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// The ranges of keys that were written to each table, in order.
type Model = BTreeMap<String, Vec<std::ops::Range<i64>>>;

fn check(store: &Store, model: &Model, random: &mut Random, context: &str) {
    assert_eq!(store.table_names(), model.keys().cloned().collect::<Vec<_>>(), "{context}");
    for (name, ranges) in model {
        let table = store.table(name).unwrap();
        let expected: Vec<i64> = ranges.iter().cloned().flatten().collect();
        assert_eq!(table.rows(), expected.len() as u64, "{context}");
        let projection: Vec<usize> = (0..1 + random.below(4)).map(|_| random.below(5) as usize).collect();
        let options = ScanOptions {
            projection: Some([&[0], projection.as_slice()].concat()),
            window_bytes: Some(1 << random.below(24)),
            merge_gap_bytes: Some(1 << random.below(18)),
            request_bytes: Some(4096 << random.below(8)),
            ..Default::default()
        };
        let found = scan(&table, options).unwrap();
        assert_eq!(keys(&found), expected, "{context}");
        let pieces: Vec<_> =
            ranges.iter().map(|range| rows(range.clone()).project(&projection).unwrap()).collect();
        let rest: Vec<usize> = (1..found.num_columns()).collect();
        let found = found.project(&rest).unwrap();
        assert_batches_equal(
            &found,
            &arrow_select::concat::concat_batches(&found.schema(), &pieces).unwrap(),
        );
    }
}

fn statement(store: &Store, model: &mut Model, random: &mut Random) {
    let name = ["a", "b", "c"][random.below(3) as usize].to_owned();
    let from = random.below(1 << 40) as i64;
    let range = from..from + [0, 1, 50, 700, 5000][random.below(5) as usize];
    let written = || if range.is_empty() { vec![] } else { vec![range.clone()] };
    let options = WriteOptions { window_bytes: Some(1 << random.below(22)), account: None };
    match random.below(5) {
        0 => {
            let page_bytes = 32 << 10 << random.below(4);
            let new = definition(&name).with_page_bytes(page_bytes);
            let writer = store.create_table_with_rows(new, IfExists::Replace, options).unwrap();
            write(&writer, range.clone());
            writer.commit_blocking().unwrap();
            model.insert(name, written());
        }
        1 => {
            let result = store.drop_table(&name);
            assert_eq!(result.is_ok(), model.remove(&name).is_some());
        }
        kind => {
            let Ok(table) = store.table(&name) else { return };
            let mode = if kind == 2 { WriteMode::Overwrite } else { WriteMode::Append };
            let writer = table.writer(mode, options).unwrap();
            write(&writer, range.clone());
            if random.below(4) == 0 {
                return writer.abort();
            }
            writer.commit_blocking().unwrap();
            let ranges = model.get_mut(&name).unwrap();
            if mode == WriteMode::Overwrite {
                ranges.clear();
            }
            ranges.extend(written());
        }
    }
}

#[test]
fn acknowledged_statements_survive_everything() {
    for seed in 1..40 {
        let mut random = Random(0x9E37_79B9_7F4A_7C15 ^ seed);
        let (device, handle) = simulated();
        let mut model = Model::new();
        for round in 0..6 {
            let store = Store::open(device.clone(), Mode::Write).unwrap();
            check(&store, &model, &mut random, &format!("seed {seed}, round {round}, reopened"));
            for number in 0..random.below(8) {
                statement(&store, &mut model, &mut random);
                if random.below(3) == 0 {
                    check(
                        &store,
                        &model,
                        &mut random,
                        &format!("seed {seed}, round {round}, statement {number}"),
                    );
                }
            }
            drop(store);
            let outcome = [CrashOutcome::LoseUnsynced, CrashOutcome::KeepAll, CrashOutcome::Random { seed }];
            handle.crash(outcome[random.below(3) as usize]);
        }
        let store = Store::open(device.clone(), Mode::Write).unwrap();
        let named: usize = model.values().map(Vec::len).sum();
        assert_eq!(segment_files(&device).len(), named, "seed {seed}");
        drop(store);
    }
}
