//! Waiting for a future in a blocking thread. Everything in this crate is async over the device's batches, which any
//! thread may wait for; this needs no runtime and may be called from anywhere a thread may block.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::Thread;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs `future` to its end in this thread, which sleeps while there is nothing to do.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            // An unpark between poll and park is remembered, so none is lost.
            Poll::Pending => std::thread::park(),
        }
    }
}
