//! Reads the GPUs at a steady interval in a thread of its own, which nobody waits for: a call into the driver of a GPU that has failed may
//! never return. The others see the newest sample and since when a call has been under way.
//!
//! Never: a sample that is given out twice as if it were new, or a thread that is joined.

use super::{GpuReader, GpuSample};
use crate::outbox::Outbox;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The newest sample.
#[derive(Debug, Default)]
pub(crate) struct LatestSample {
    state: Mutex<SampleState>,
}

#[derive(Debug, Default)]
struct SampleState {
    number: u64,
    sample: Option<Result<Arc<GpuSample>, String>>,
    /// Since when a call has been under way.
    called: Option<Instant>,
}

/// What is known of the GPUs at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sampled {
    /// A sample that was not given out before.
    New(Arc<GpuSample>),
    /// The source was read and has no figures, for this reason.
    Failed(String),
    /// The source has not responded for so long.
    Hangs(Duration),
    /// Nothing has changed.
    Unchanged,
}

impl LatestSample {
    fn lock(&self) -> MutexGuard<'_, SampleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has come since sample `known`, whose number is updated. A call that has lasted for `patience` hangs.
    pub fn since(&self, known: &mut u64, patience: Duration) -> Sampled {
        let state = self.lock();
        if state.number > *known {
            *known = state.number;
            match &state.sample {
                Some(Ok(sample)) => return Sampled::New(Arc::clone(sample)),
                Some(Err(why)) => return Sampled::Failed(why.clone()),
                None => {}
            }
        }
        match state.called.map(|since| since.elapsed()) {
            Some(lasts) if lasts >= patience => Sampled::Hangs(lasts),
            _ => Sampled::Unchanged,
        }
    }

    fn put(&self, sample: Result<GpuSample, String>) {
        let mut state = self.lock();
        state.number += 1;
        state.called = None;
        state.sample = Some(sample.map(Arc::new));
    }
}

/// Reads until the agent stops.
pub(crate) fn run(mut reader: Box<dyn GpuReader>, latest: &LatestSample, interval: Duration, outbox: &Outbox) {
    loop {
        let begun = Instant::now();
        latest.lock().called = Some(begun);
        let sample = reader.read();
        latest.put(sample);
        if outbox.sleep(interval.saturating_sub(begun.elapsed())).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    /// Responds as often as it is told to.
    struct Scripted(Receiver<Result<GpuSample, String>>);

    impl GpuReader for Scripted {
        fn read(&mut self) -> Result<GpuSample, String> {
            self.0.recv().map_err(|_| "over".to_owned())?
        }
    }

    fn wait_for(latest: &LatestSample, known: &mut u64, wanted: impl Fn(&Sampled) -> bool) -> Sampled {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let sampled = latest.since(known, Duration::from_millis(50));
            if wanted(&sampled) {
                return sampled;
            }
            assert!(Instant::now() < end, "{sampled:?}");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_call_that_hangs_is_seen_and_one_that_returns_again_too() {
        let (to, script) = channel();
        let (latest, outbox) = (Arc::new(LatestSample::default()), Arc::new(Outbox::default()));
        let (sampled, stopped) = (Arc::clone(&latest), Arc::clone(&outbox));
        let thread = std::thread::spawn(move || run(Box::new(Scripted(script)), &sampled, Duration::ZERO, &stopped));
        let mut known = 0;
        to.send(Ok(GpuSample::default())).unwrap();
        wait_for(&latest, &mut known, |sampled| matches!(sampled, Sampled::New(_)));
        wait_for(&latest, &mut known, |sampled| matches!(sampled, Sampled::Hangs(_)));
        to.send(Err("no GPU".to_owned())).unwrap();
        wait_for(&latest, &mut known, |sampled| *sampled == Sampled::Failed("no GPU".to_owned()));
        outbox.stop();
        drop(to);
        thread.join().unwrap();
    }
}
