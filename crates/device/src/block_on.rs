//! Waiting for a future in a blocking thread. The future ends with requests of devices, which any thread may wait
//! for: this needs no runtime, and works within the executor of an embedding program, too, which
//! `futures::executor::block_on` refuses with a panic.

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

#[cfg(test)]
mod tests {
    use super::block_on;

    #[test]
    fn a_thread_may_block_within_another_executor() {
        let sum = futures::executor::block_on(async {
            let (sender, receiver) = futures::channel::oneshot::channel();
            let other = std::thread::spawn(|| sender.send(2));
            let sum = 1 + block_on(receiver).unwrap();
            other.join().unwrap().unwrap();
            sum
        });
        assert_eq!(sum, 3);
    }
}
