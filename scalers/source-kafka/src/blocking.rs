//! Waits for a future on a thread that has no async runtime, up to a deadline.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The output of the future if it resolves before the deadline. After a time-out the future can be waited for again.
pub(crate) fn until<F: Future + ?Sized>(mut future: Pin<&mut F>, deadline: Instant) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::park_timeout(left);
    }
}

/// The wall clock in ms since 1970, for remarks.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::time::Duration;
    use tokio::sync::Semaphore;

    #[test]
    fn a_future_is_waited_for_up_to_the_deadline_and_again() {
        let permit = Semaphore::new(0);
        let mut future = pin!(permit.acquire());
        assert!(until(future.as_mut(), Instant::now() + Duration::from_millis(5)).is_none());
        std::thread::scope(|threads| {
            threads.spawn(|| permit.add_permits(1));
            assert!(until(future.as_mut(), Instant::now() + Duration::from_secs(5)).is_some());
        });
    }
}
