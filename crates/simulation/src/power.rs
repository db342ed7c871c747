//! The power that the media of one machine share.

use parking_lot::Mutex;

#[derive(Default)]
pub(crate) struct Power {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_off: bool,
    events: u64,
    loss_at_event: Option<u64>,
}

impl Power {
    /// Counts a change of a medium. True when the power fails during it: because it `fails`, or as planned.
    pub(crate) fn event(&self, fails: bool) -> bool {
        let mut state = self.state.lock();
        state.is_off |= fails || state.loss_at_event == Some(state.events);
        state.events += 1;
        state.is_off
    }

    pub(crate) fn is_on(&self) -> bool {
        !self.state.lock().is_off
    }

    pub(crate) fn events(&self) -> u64 {
        self.state.lock().events
    }

    pub(crate) fn fail_at(&self, event: u64) {
        self.state.lock().loss_at_event = Some(event);
    }

    pub(crate) fn restore(&self) {
        let mut state = self.state.lock();
        state.is_off = false;
        state.loss_at_event = None;
    }
}
