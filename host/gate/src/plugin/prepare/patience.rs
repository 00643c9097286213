//! Limits the time that a plugin may sleep while it is loaded.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Total time that a plugin may sleep. A plugin has nothing to wait for: its clocks stand still, and it has neither
/// files nor a network.
pub(super) const MAX_SLEEP: Duration = Duration::from_secs(1);

/// The plugin slept for too long.
#[derive(Debug)]
pub(super) struct Slept;

/// Runs a future, and fails once it has slept for `max_sleep` in total.
///
/// Running time does not count, however long it gets on a busy machine. Fuel and CPU time limit it instead.
pub(super) async fn patiently<T>(
    run: impl Future<Output = T>,
    max_sleep: Duration,
) -> Result<T, Slept> {
    let mut run = pin!(run);
    let mut alarm = pin!(tokio::time::sleep(max_sleep));
    let mut left = max_sleep;
    let mut asleep_since: Option<Instant> = None;
    std::future::poll_fn(move |context| {
        if let Some(since) = asleep_since.take() {
            left = left.saturating_sub(since.elapsed());
        }
        if let Poll::Ready(done) = run.as_mut().poll(context) {
            return Poll::Ready(Ok(done));
        }
        if left.is_zero() {
            return Poll::Ready(Err(Slept));
        }
        let now = Instant::now();
        asleep_since = Some(now);
        alarm.as_mut().reset((now + left).into());
        alarm.as_mut().poll(context).map(|()| Err(Slept))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().build().unwrap();
        runtime.block_on(future)
    }

    #[test]
    fn fails_after_one_long_or_many_short_sleeps() {
        let max_sleep = Duration::from_millis(50);
        let day = async { tokio::time::sleep(Duration::from_secs(86_400)).await };
        let long = patiently(day, max_sleep);
        assert!(block_on(long).is_err());
        let naps = patiently(
            async {
                loop {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            },
            max_sleep,
        );
        assert!(block_on(naps).is_err());
    }

    #[test]
    fn does_not_count_running_time() {
        let max_sleep = Duration::from_millis(500);
        let busy = patiently(
            async {
                for _ in 0..20 {
                    std::thread::sleep(Duration::from_millis(50));
                    tokio::task::yield_now().await;
                }
            },
            max_sleep,
        );
        assert!(block_on(busy).is_ok());
    }
}
