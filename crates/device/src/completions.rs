//! Results of a batch that have come, and the thread or task that waits for them.

use std::collections::VecDeque;
use std::task::{Context, Waker};

use parking_lot::{Condvar, Mutex};

use crate::error::Result;
use crate::request::Completion;

/// Shared by a batch and its operations.
#[derive(Default)]
pub(crate) struct Completions {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    finished: VecDeque<(usize, Result<Completion>)>,
    unfinished: usize,
    waker: Option<Waker>,
    parked: bool,
    /// All results are waited for, not the next one.
    wants_whole: bool,
}

impl State {
    fn is_ready(&self, whole: bool) -> bool {
        self.unfinished == 0 || (!whole && !self.finished.is_empty())
    }
}

/// What a task that waits finds.
pub(crate) enum Readiness {
    /// There are results; whether the task had been registered to be woken.
    Ready { was_asleep: bool },
    /// It will be woken; whether it was not registered before.
    Asleep { is_new: bool },
}

impl Completions {
    pub(crate) fn expect(&self, requests: usize) {
        self.state.lock().unfinished += requests;
    }

    /// Adds the result of a request; returns the task to wake, if one waits for this.
    #[must_use = "a task that is not woken sleeps for ever"]
    pub(crate) fn add(&self, index: usize, result: Result<Completion>) -> Option<Waker> {
        let mut state = self.state.lock();
        state.finished.push_back((index, result));
        assert!(state.unfinished > 0, "every request is reported exactly once");
        state.unfinished -= 1;
        if state.wants_whole && state.unfinished > 0 {
            return None;
        }
        let waker = state.waker.take();
        let parked = state.parked;
        drop(state);
        if parked {
            self.changed.notify_all();
        }
        waker
    }

    /// Whether there is a next result, or `whole`: whether all are there.
    pub(crate) fn is_ready(&self, whole: bool) -> bool {
        self.state.lock().is_ready(whole)
    }

    /// Puts this thread to sleep until ready.
    pub(crate) fn park(&self, whole: bool) {
        let mut state = self.state.lock();
        state.wants_whole = whole;
        while !state.is_ready(whole) {
            state.parked = true;
            self.changed.wait(&mut state);
        }
        state.parked = false;
    }

    /// Registers the task to be woken, unless ready.
    pub(crate) fn poll(&self, context: &mut Context<'_>, whole: bool) -> Readiness {
        let mut state = self.state.lock();
        if state.is_ready(whole) {
            return Readiness::Ready { was_asleep: state.waker.take().is_some() };
        }
        state.wants_whole = whole;
        match &mut state.waker {
            Some(waker) => {
                waker.clone_from(context.waker());
                Readiness::Asleep { is_new: false }
            }
            empty => {
                *empty = Some(context.waker().clone());
                Readiness::Asleep { is_new: true }
            }
        }
    }

    pub(crate) fn take_next(&self) -> Option<(usize, Result<Completion>)> {
        self.state.lock().finished.pop_front()
    }

    pub(crate) fn take_all(&self) -> VecDeque<(usize, Result<Completion>)> {
        std::mem::take(&mut self.state.lock().finished)
    }

    /// Requests not yet taken.
    pub(crate) fn len(&self) -> usize {
        let state = self.state.lock();
        state.unfinished + state.finished.len()
    }

    /// The waiter is gone. Returns whether a task was registered, and whether requests are still in flight.
    pub(crate) fn abandon(&self) -> (bool, bool) {
        let mut state = self.state.lock();
        (state.waker.take().is_some(), state.unfinished > 0)
    }
}
