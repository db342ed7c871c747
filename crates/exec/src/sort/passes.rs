//! Fewer runs out of many: as long as there are more than can be read at once, the smallest are merged into one.
//!
//! ```text
//!   20 runs, 8 at once:  5 ─► 1,  8 ─► 1,  which leaves 9: 2 ─► 1 and 8 for the last merge
//! ```
//!
//! Every merge of runs writes its rows once more, so that it takes the smallest runs, and no more of them than needed.

use std::sync::Arc;

use datafusion::common::Result;

use super::merge::Merge;
use super::merger::Outgoing;
use super::reading::{LEAST_RUNS, Reading, open};
use super::run_sink::RunSink;
use super::shared_prefix::SharedPrefix;
use super::state::SortState;
use super::stored_run::StoredRun;

/// Merges runs until all that are left can be read at once, and reserves the memory for that.
pub async fn reduce_runs(state: &Arc<SortState>) -> Result<Reading> {
    let mut runs = Vec::new();
    loop {
        // Lanes that have to give memory back meanwhile add runs.
        let added = std::mem::take(&mut *state.runs.lock());
        if !added.is_empty() {
            runs.extend(added);
            runs = StoredRun::in_sequence(runs);
        }
        let (reading, at_once) = Reading::reserved(state, &runs);
        let too_many = runs.len().saturating_sub(at_once);
        if too_many == 0 {
            state.runs.lock().append(&mut runs);
            return Ok(reading);
        }
        runs.sort_by_key(StoredRun::bytes);
        let rest = runs.split_off(at_once.min(too_many + 1).max(LEAST_RUNS));
        let merged = merged(state, std::mem::replace(&mut runs, rest), &reading).await?;
        runs.extend(merged);
    }
}

/// One run of the rows of several.
async fn merged(
    state: &Arc<SortState>,
    runs: Vec<StoredRun>,
    reading: &Reading,
) -> Result<Option<StoredRun>> {
    state.metrics.intermediate_merges.add(1);
    let mut prefix = SharedPrefix::default();
    runs.iter().for_each(|run| prefix.join(&run.prefix));
    let ahead = reading.memory_ahead(runs.len());
    let merge = Merge::new(state, Vec::new(), open(state, runs, reading).await?, ahead);
    let mut sink = RunSink::new(state)?;
    let mut rows = Outgoing::default();
    while let Some(batch) = merge.next(&mut rows).await? {
        sink.push(&batch.gather(&state.spec.schema)?).await?;
    }
    sink.finish(prefix).await
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray as _;
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::BinaryExpr;
    use futures::executor::block_on;

    use super::super::run_sink::write_run;
    use super::super::testing::{numbered, push_texts, sort_by, state, text};
    use super::*;
    use crate::sort::chunk::Chunk;

    #[test]
    fn ten_thousand_runs_are_merged_four_at_a_time() {
        const RUNS: usize = 10_000;
        let mut state = state(sort_by(text(), 100), 64 << 20);
        // Reading has a quarter of the memory.
        let limit = 4 * 4 * Reading::least(&state, 0).bytes_of_one();
        Arc::get_mut(&mut state).unwrap().memory_limit = Some(limit);
        block_on(async {
            for run in 0..RUNS {
                // Every run overlaps with all others.
                let texts = [run, run + RUNS, run + 2 * RUNS].map(|number| Some(format!("{number:05}")));
                let mut chunk = Chunk::default();
                push_texts(&mut chunk, &state.spec, &texts);
                chunk.sort(None);
                state.keep_run(write_run(&state, &[(Arc::new(chunk), 0)]).await.unwrap());
            }
            assert_eq!(Reading::reserved(&state, &state.runs.lock()).1, 4);
            let reading = reduce_runs(&state).await.unwrap();
            let runs = std::mem::take(&mut *state.runs.lock());
            assert!(runs.len() <= 4, "{} runs are left", runs.len());
            // Each merge leaves three runs fewer.
            let merges = state.metrics.intermediate_merges.value();
            assert_eq!(merges, (RUNS - runs.len()).div_ceil(3));
            let ahead = reading.memory_ahead(runs.len());
            let merge = Merge::new(&state, Vec::new(), open(&state, runs, &reading).await.unwrap(), ahead);
            let (mut next, mut outgoing) = (0, Outgoing::default());
            while let Some(batch) = merge.next(&mut outgoing).await.unwrap() {
                let batch = batch.gather(&state.spec.schema).unwrap();
                for text in batch.column(0).as_string::<i32>() {
                    assert_eq!(text, Some(format!("{next:05}").as_str()));
                    next += 1;
                }
            }
            assert_eq!(next, 3 * RUNS);
        });
    }

    #[test]
    fn keys_that_are_longer_than_their_rows_are_reserved() {
        // Sixty-four times the text.
        let long = (0..6).fold(text(), |key, _| {
            Arc::new(BinaryExpr::new(Arc::clone(&key), Operator::StringConcat, key)) as _
        });
        let state = state(sort_by(long, 100), 64 << 20);
        let rows = 4000;
        let chunk = numbered(&state.spec, rows, 100);
        block_on(async {
            let run = write_run(&state, &[(chunk, 0)]).await.unwrap().unwrap();
            let runs = vec![run];
            let (reading, _) = Reading::reserved(&state, &runs);
            let open = open(&state, runs, &reading).await.unwrap();
            let first = &open[0].first;
            assert!(first.key_bytes() > 4 * reading.unit_bytes(), "{} bytes of keys", first.key_bytes());
            let held = reading.unit_bytes() + first.key_bytes();
            assert_eq!(open[0].memory.bytes(), held);
            // So it is with the pages that follow.
            let merge = Merge::new(&state, Vec::new(), open, reading.memory_ahead(1));
            let (mut given, mut outgoing, mut held_least) = (0, Outgoing::default(), usize::MAX);
            while let Some(batch) = merge.next(&mut outgoing).await.unwrap() {
                given += batch.gather(&state.spec.schema).unwrap().num_rows();
                if given < rows / 2 {
                    held_least = held_least.min(state.pool.reserved());
                }
            }
            assert_eq!(given, rows);
            assert!(held_least > held / 2 && held_least < usize::MAX, "{held_least} bytes while merging");
        });
    }
}
