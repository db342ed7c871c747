//! Ctrl-C: cancels what runs, and ends the program only when pressed again before that took effect.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use crate::failure::{Failure, Result};

/// Hears of Ctrl-C (and of SIGTERM, which is treated alike so that temporary files are removed).
#[derive(Clone)]
pub struct Interrupt {
    inner: Arc<Inner>,
}

struct Inner {
    pressed: AtomicU32,
    notify: Notify,
}

impl Interrupt {
    /// Starts to listen. From here on Ctrl-C no longer kills the process by itself.
    pub fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).map_err(|error| Failure::io("listening for signals", error));
        let (mut interrupt, mut terminate) =
            (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        let inner = Arc::new(Inner { pressed: AtomicU32::new(0), notify: Notify::new() });
        let listener = Interrupt { inner: Arc::clone(&inner) };
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                // The statement did not stop at the first; its temporary files go at the next start.
                if inner.pressed.fetch_add(1, Ordering::SeqCst) > 0 {
                    process::exit(130);
                }
                inner.notify.notify_waiters();
            }
        });
        Ok(listener)
    }

    /// Forgets earlier presses; called before something cancellable starts.
    pub fn reset(&self) {
        self.inner.pressed.store(0, Ordering::SeqCst);
    }

    pub fn is_pressed(&self) -> bool {
        self.inner.pressed.load(Ordering::SeqCst) > 0
    }

    /// Completes once Ctrl-C was pressed since the last [`Interrupt::reset`].
    pub async fn pressed(&self) {
        loop {
            let notified = self.inner.notify.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if self.is_pressed() {
                return;
            }
            notified.await;
        }
    }
}
