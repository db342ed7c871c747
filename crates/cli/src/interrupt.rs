//! Ctrl-C: cancels what runs, and ends the program only when pressed again before that took effect. SIGTERM also cancels
//! what runs, so that temporary files are removed, and then ends the program. SIGXFSZ is taken note of and no more: a file
//! that may not become larger (`ulimit -f`) is an error of the write, like a full disk, and not the end of the program.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::failure::{Failure, Result};

/// How long a statement that was cancelled may take to end. It ends between two batches of rows, of which a single one can
/// take minutes where a function is slow.
const PATIENCE: Duration = Duration::from_secs(3);

/// Hears of Ctrl-C and of SIGTERM.
#[derive(Clone)]
pub struct Interrupt {
    inner: Arc<Inner>,
}

struct Inner {
    pressed: AtomicU32,
    terminated: AtomicBool,
    overdue: AtomicBool,
    notify: Notify,
}

impl Inner {
    async fn hear(&self, mut interrupt: Signal, mut terminate: Signal, mut file_size: Signal) {
        let mut waits_until = None;
        loop {
            let patience_ends = sleep_until(waits_until.unwrap_or_else(Instant::now));
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = file_size.recv() => continue,
                _ = terminate.recv() => self.terminated.store(true, Ordering::SeqCst),
                () = patience_ends, if waits_until.is_some() => {
                    self.overdue.store(self.pressed.load(Ordering::SeqCst) > 0, Ordering::SeqCst);
                    self.notify.notify_waiters();
                    waits_until = None;
                    continue;
                }
            }
            waits_until = Some(Instant::now() + PATIENCE);
            // The statement did not stop at the first; its temporary files go at the next start.
            if self.pressed.fetch_add(1, Ordering::SeqCst) > 0 {
                process::exit(130);
            }
            self.notify.notify_waiters();
        }
    }
}

impl Interrupt {
    /// Starts to listen. From here on Ctrl-C no longer kills the process by itself.
    ///
    /// A thread of its own listens: the workers of a query look for signals only every so many polls, and while
    /// all of them compute that can take longer than a user is willing to wait.
    pub fn listen() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(|error| Failure::io("listening for signals", error))?;
        let listen = |kind| {
            let _inside = runtime.enter();
            signal(kind).map_err(|error| Failure::io("listening for signals", error))
        };
        let (interrupt, terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        let file_size = listen(SignalKind::from_raw(libc::SIGXFSZ))?;
        let inner = Arc::new(Inner {
            pressed: AtomicU32::new(0),
            terminated: AtomicBool::new(false),
            overdue: AtomicBool::new(false),
            notify: Notify::new(),
        });
        let listener = Interrupt { inner: Arc::clone(&inner) };
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || runtime.block_on(inner.hear(interrupt, terminate, file_size)))
            .map_err(|error| Failure::io("listening for signals", error))?;
        Ok(listener)
    }

    /// Forgets earlier presses, which were about something that is over. Whatever the program was started for must not
    /// do this: the user may have thought better of it before it began.
    pub fn reset(&self) {
        self.inner.pressed.store(0, Ordering::SeqCst);
        self.inner.overdue.store(false, Ordering::SeqCst);
    }

    pub fn is_pressed(&self) -> bool {
        self.inner.pressed.load(Ordering::SeqCst) > 0 || self.is_terminated()
    }

    /// Whether the program was asked to end (SIGTERM). That is not forgotten.
    pub fn is_terminated(&self) -> bool {
        self.inner.terminated.load(Ordering::SeqCst)
    }

    /// Completes once Ctrl-C was pressed since the last [`Interrupt::reset`].
    pub async fn pressed(&self) {
        self.heard(Self::is_pressed).await;
    }

    /// Completes when the cancelled work should have ended. The workers of a query may all be busy, so that no timer of
    /// theirs would tell.
    pub async fn overdue(&self) {
        self.heard(|interrupt| interrupt.inner.overdue.load(Ordering::SeqCst)).await;
    }

    /// Completes once the program was asked to end.
    pub async fn terminated(&self) {
        self.heard(Self::is_terminated).await;
    }

    async fn heard(&self, is_heard: impl Fn(&Self) -> bool) {
        loop {
            let notified = self.inner.notify.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if is_heard(self) {
                return;
            }
            notified.await;
        }
    }
}
