//! A thread that does the same again and again until it is dropped. What it holds goes before the drop is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Ends, after the step that it is at, when dropped.
#[derive(Debug)]
pub struct RepeatingThread {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RepeatingThread {
    /// Does `step`, waits for so long, and does it again.
    #[must_use]
    pub fn start(pause: Duration, mut step: impl FnMut() + Send + 'static) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                step();
                std::thread::park_timeout(pause);
            }
        });
        Self { ended, thread: Some(thread) }
    }
}

impl Drop for RepeatingThread {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of it has been printed.
            let _ = thread.join();
        }
    }
}
