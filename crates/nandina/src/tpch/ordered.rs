//! Work done by several threads whose results are taken in order.
//!
//! ```text
//!   workers:   make(3)   make(4)   make(5)          at most 2 × workers results wait
//!                  └────────┴─────────┴──► ready ──► take(2), take(3), …   on the caller's thread
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};

struct State<T> {
    next: usize,
    taken: usize,
    ready: BTreeMap<usize, Result<T>>,
    stopped: bool,
}

/// Calls `make` for `0..parts` on `workers` threads and `take` with the results in that order. Ends early
/// with the first error, or when `stop` becomes true.
pub(super) fn run<T: Send>(
    parts: usize,
    workers: usize,
    stop: &AtomicBool,
    make: impl Fn(usize) -> Result<T> + Sync,
    mut take: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let state = Mutex::new(State { next: 0, taken: 0, ready: BTreeMap::new(), stopped: false });
    let changed = Condvar::new();
    let ahead = 2 * workers;
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let mut guard = state.lock();
                    while !guard.stopped && guard.next < parts && guard.next >= guard.taken + ahead {
                        changed.wait(&mut guard);
                    }
                    if guard.stopped || guard.next >= parts {
                        return;
                    }
                    let part = guard.next;
                    guard.next += 1;
                    drop(guard);
                    // A panic must not leave the taker waiting for this part.
                    let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| make(part)));
                    let made = made.unwrap_or_else(|_| {
                        Err(Error::Query { message: format!("the worker that made part {part} stopped") })
                    });
                    state.lock().ready.insert(part, made);
                    changed.notify_all();
                }
            });
        }
        let mut result = Ok(());
        for part in 0..parts {
            let mut guard = state.lock();
            let made = loop {
                if stop.load(Ordering::Relaxed) {
                    break Err(Error::Query { message: "cancelled".to_owned() });
                }
                match guard.ready.remove(&part) {
                    Some(made) => break made,
                    // Woken now and then to see whether to stop.
                    None => drop(changed.wait_for(&mut guard, std::time::Duration::from_millis(50))),
                }
            };
            drop(guard);
            result = made.and_then(&mut take);
            let mut guard = state.lock();
            guard.taken = part + 1;
            guard.stopped = result.is_err();
            drop(guard);
            changed.notify_all();
            if result.is_err() {
                break;
            }
        }
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order() {
        let mut taken = Vec::new();
        let slow_when_even = |part: usize| {
            std::thread::sleep(std::time::Duration::from_millis(if part.is_multiple_of(2) { 3 } else { 0 }));
            Ok(part)
        };
        run(20, 3, &AtomicBool::new(false), slow_when_even, |part| {
            taken.push(part);
            Ok(())
        })
        .unwrap();
        assert_eq!(taken, (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn errors_and_cancelling_end_it() {
        let fail_at_five = |part| match part {
            5 => Err(Error::Query { message: "five".to_owned() }),
            _ => Ok(part),
        };
        let mut taken = 0;
        let result = run(100, 2, &AtomicBool::new(false), fail_at_five, |_| {
            taken += 1;
            Ok(())
        });
        assert_eq!(result.unwrap_err().to_string(), "five");
        assert_eq!(taken, 5);
        let cancelled = run(100, 2, &AtomicBool::new(true), Ok, |_: usize| Ok(()));
        assert_eq!(cancelled.unwrap_err().to_string(), "cancelled");
    }
}
