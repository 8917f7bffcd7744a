//! For how long work held the driver's thread at most: what everybody else waited for.
//!
//! Never: part of a decision.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest holds since the process started. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct LoopHolds {
    inside: Arc<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    query_us: AtomicU64,
    batch_us: AtomicU64,
}

/// Time by the clock, and time that the thread computed: on a busy machine the first says more of the machine than of the work.
#[derive(Debug)]
pub(super) struct Stopwatch {
    wall: Instant,
    cpu: Option<Duration>,
}

impl LoopHolds {
    /// The longest that one query took, of the thread's computing time.
    #[must_use]
    pub fn query(&self) -> Duration {
        Duration::from_micros(self.inside.query_us.load(Ordering::Relaxed))
    }

    /// The longest that one batch took to be planned, of the thread's computing time.
    #[must_use]
    pub fn batch(&self) -> Duration {
        Duration::from_micros(self.inside.batch_us.load(Ordering::Relaxed))
    }

    pub(super) fn queried(&self, watch: &Stopwatch) {
        self.inside.query_us.fetch_max(watch.micros(), Ordering::Relaxed);
    }

    pub(super) fn planned(&self, watch: &Stopwatch) {
        self.inside.batch_us.fetch_max(watch.micros(), Ordering::Relaxed);
    }
}

impl Stopwatch {
    pub fn start() -> Stopwatch {
        Stopwatch { wall: Instant::now(), cpu: thread_time() }
    }

    /// By the clock: what whoever waited for it has waited.
    pub fn elapsed(&self) -> Duration {
        self.wall.elapsed()
    }

    fn micros(&self) -> u64 {
        let computed = self.cpu.zip(thread_time()).map(|(from, to)| to.saturating_sub(from));
        u64::try_from(computed.unwrap_or_else(|| self.wall.elapsed()).as_micros()).unwrap_or(u64::MAX)
    }
}

/// How long this thread has computed, as Linux says it in nanoseconds. `None`: another system.
#[cfg(target_os = "linux")]
fn thread_time() -> Option<Duration> {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;
    thread_local! {
        // Opened once: it is this thread's from then on, and a read takes a microsecond.
        static TIMES: Option<File> = File::open("/proc/thread-self/schedstat").ok();
    }
    TIMES.with(|times| {
        let mut text = [0; 64];
        let read = times.as_ref()?.read_at(&mut text, 0).ok()?;
        let text = std::str::from_utf8(text.get(..read)?).ok()?;
        text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    })
}

#[cfg(not(target_os = "linux"))]
fn thread_time() -> Option<Duration> {
    None
}
