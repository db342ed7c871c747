//! Readers of other people's formats panic over some bytes that are damaged. Where that becomes an error that names the
//! file, the panic need not be reported: a program's panic hook can ask [`is_guarded`] before it writes about it.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread::Result;

use futures::Stream;

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Whether a panic of this thread would become an error about damaged bytes.
pub fn is_guarded() -> bool {
    DEPTH.get() > 0
}

/// What `read` returns, or what it panicked with. Nothing that it was changing may be used after a panic.
pub fn guarded<T>(read: impl FnOnce() -> T) -> Result<T> {
    DEPTH.set(DEPTH.get() + 1);
    let outcome = catch_unwind(AssertUnwindSafe(read));
    DEPTH.set(DEPTH.get() - 1);
    outcome
}

/// A future or stream whose polls are [`guarded`]. It must not be polled after a panic; a stream ends then.
pub struct Guarded<F> {
    inner: Pin<Box<F>>,
    has_panicked: bool,
}

impl<F> Guarded<F> {
    pub fn new(inner: F) -> Self {
        Guarded { inner: Box::pin(inner), has_panicked: false }
    }
}

impl<F: Future> Future for Guarded<F> {
    type Output = Result<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match guarded(|| self.inner.as_mut().poll(context)) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}

impl<S: Stream> Stream for Guarded<S> {
    type Item = Result<S::Item>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_panicked {
            return Poll::Ready(None);
        }
        match guarded(|| self.inner.as_mut().poll_next(context)) {
            Ok(polled) => polled.map(|item| item.map(Ok)),
            Err(panic) => {
                self.has_panicked = true;
                Poll::Ready(Some(Err(panic)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use futures::executor::block_on;

    use super::*;

    #[test]
    fn panics_are_returned_and_only_those_inside_are_guarded() {
        assert!(!is_guarded());
        assert_eq!(guarded(|| (is_guarded(), guarded(is_guarded).ok())).ok(), Some((true, Some(true))));
        let panic =
            guarded(|| guarded(|| -> u8 { panic!("damaged") }).map_err(|inner| (inner, is_guarded())));
        let (inner, is_outer_guarded) =
            panic.expect("the outer one returned").expect_err("the inner one panicked");
        assert_eq!((inner.downcast_ref::<&str>(), is_outer_guarded), (Some(&"damaged"), true));
        assert!(!is_guarded());
    }

    #[test]
    fn a_stream_ends_behind_a_panic() {
        let rows = futures::stream::iter([1, 0, 2]).map(|number| 10 / number);
        let read: Vec<_> = block_on(Guarded::new(rows).map(|item| item.ok()).collect());
        assert_eq!(read, [Some(10), None]);
        assert!(!is_guarded());
    }
}
