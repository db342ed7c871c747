//! Leaves out of the steps before a difference what it does not need (delta debugging, Zeller and Hildebrandt 2002).

use std::path::Path;
use std::time::{Duration, Instant};

use super::engines::Engines;
use super::step::Step;
use crate::error::Result;

/// How a round was run.
pub struct Round<'r> {
    pub sessions: usize,
    pub memory_limit: Option<u64>,
    pub work: &'r Path,
    /// What is not found in this time is not left out.
    pub time: Duration,
}

/// The last step and as few before it as are found, so that the last one differs in the same way.
pub async fn shrink(round: &Round<'_>, steps: Vec<Step>, kind: &'static str) -> Result<Vec<Step>> {
    let Some((last, before)) = steps.split_last() else { return Ok(steps) };
    let started = Instant::now();
    let mut kept: Vec<Step> = before.to_vec();
    let mut size = kept.len().div_ceil(2);
    let mut tries = 0;
    while size > 0 {
        let mut from = 0;
        let mut has_cut = false;
        while from < kept.len() {
            if started.elapsed() > round.time {
                return Ok(kept.into_iter().chain([last.clone()]).collect());
            }
            let to = (from + size).min(kept.len());
            let without = kept.iter().enumerate().filter(|(place, _)| !(from..to).contains(place));
            let candidate: Vec<Step> = without.map(|(_, step)| step.clone()).collect();
            tries += 1;
            if differs(round, tries, &candidate, last, kind).await? {
                (kept, has_cut) = (candidate, true);
            } else {
                from = to;
            }
        }
        size = match size {
            // What was needed by what is gone now can go, too.
            1 if has_cut => 1,
            1 => 0,
            size => size.div_ceil(2),
        };
    }
    Ok(kept.into_iter().chain([last.clone()]).collect())
}

/// Whether the last step differs so behind these, none of which does.
async fn differs(
    round: &Round<'_>,
    number: usize,
    before: &[Step],
    last: &Step,
    kind: &'static str,
) -> Result<bool> {
    let folder = round.work.join(format!("shrink-{number}"));
    let mut engines = Engines::open(&folder, round.sessions, round.memory_limit)?;
    let mut found = None;
    for step in before {
        // One may differ without those before it, as a savepoint outside of a transaction.
        if !engines.run(step).await.is_ok_and(|said| said.difference(step).is_none()) {
            found = Some(false);
            break;
        }
    }
    if found.is_none() {
        found = engines.run(last).await.ok().map(|said| said.difference(last) == Some(kind));
    }
    drop(engines);
    std::fs::remove_dir_all(&folder).ok();
    Ok(found.unwrap_or(false))
}
