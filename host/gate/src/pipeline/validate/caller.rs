//! Runs one call after another in the memory of one future.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

/// A future that runs calls one after another. The future of a call takes kilobytes, and it is made where it runs. So
/// a call that ends at its first poll costs no allocation, and its future is not moved.
///
/// Polled as a future, it returns the output of the call that was begun last.
pub(super) struct Caller<'c, I, O> {
    calls: Pin<Box<dyn Future<Output = Infallible> + Send + 'c>>,
    exchange: Arc<Mutex<Exchange<I, O>>>,
}

/// What goes into the future and comes out of it.
struct Exchange<I, O> {
    input: Option<I>,
    output: Option<O>,
}

// === impl Caller ===

impl<'c, I: Send + 'c, O: Send + 'c> Caller<'c, I, O> {
    /// Makes a caller that has no call yet.
    pub(super) fn new<F>(mut call: impl FnMut(I) -> F + Send + 'c) -> Self
    where
        F: Future<Output = O> + Send + 'c,
    {
        let exchange = Arc::new(Mutex::new(Exchange {
            input: None,
            output: None,
        }));
        let places = exchange.clone();
        let calls = Box::pin(async move {
            loop {
                // Nothing wakes this future while it has no input: whoever begins a call polls it.
                let input = poll_fn(|_| match lock(&places).input.take() {
                    Some(input) => Poll::Ready(input),
                    None => Poll::Pending,
                });
                let output = call(input.await).await;
                lock(&places).output = Some(output);
            }
        });
        Self { calls, exchange }
    }

    /// Begins a call. The call before it must have ended.
    pub(super) fn begin(&mut self, input: I) {
        lock(&self.exchange).input = Some(input);
    }
}

impl<I, O> Future for Caller<'_, I, O> {
    type Output = O;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<O> {
        match self.calls.as_mut().poll(context) {
            Poll::Ready(never) => match never {},
            Poll::Pending => match lock(&self.exchange).output.take() {
                Some(output) => Poll::Ready(output),
                None => Poll::Pending,
            },
        }
    }
}

/// A poisoned lock is taken as it is: each place is written in one step.
fn lock<I, O>(exchange: &Mutex<Exchange<I, O>>) -> std::sync::MutexGuard<'_, Exchange<I, O>> {
    exchange.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn calls_run_one_after_another() {
        let mut caller = Caller::new(|number: u32| async move { number * 2 });
        caller.begin(1);
        assert_eq!((&mut caller).now_or_never(), Some(2));
        caller.begin(21);
        assert_eq!((&mut caller).now_or_never(), Some(42));
    }

    #[tokio::test]
    async fn call_that_waits_is_woken() {
        let mut caller =
            Caller::new(|answer: oneshot::Receiver<&'static str>| async { answer.await.unwrap() });
        let (sender, answer) = oneshot::channel();
        caller.begin(answer);
        assert_eq!((&mut caller).now_or_never(), None);
        let waiting = tokio::spawn(caller);
        tokio::task::yield_now().await;
        sender.send("late").unwrap();
        assert_eq!(waiting.await.unwrap(), "late");
    }
}
