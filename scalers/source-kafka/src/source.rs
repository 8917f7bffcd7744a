//! The source: a supervisor that starts a reader, watches it, and starts another one when it ends or hangs.
//!
//! ```text
//! supervisor thread --starts--> reader thread --Ended--> supervisor: stops, or restarts after 0.5 s to 30 s
//!        '-- every few seconds: Watchdog::check --Stalled--> the reader is abandoned, another one starts
//! ```
//!
//! Two readers never submit at the same time: one that was abandoned submits nothing more.

use crate::blocking::now_ms;
use crate::error::KafkaError;
use crate::reader::{Reader, ReaderEnd};
use crate::settings::{KafkaSettings, SESSION_MS};
use crate::shared::ReaderState;
use crate::watchdog::{WatchVerdict, Watchdog};
use backon::{BackoffBuilder, ExponentialBuilder};
use forebay_source::{Condition, Health, Source, SourceHandle};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The delays before a reader is restarted. Without jitter, because a group has one member.
const RESTART_DELAYS: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(500))
    .with_max_delay(Duration::from_secs(30))
    .without_max_times();
/// After a reader that ran this long, the delays start with the shortest one again.
const STABLE_AFTER: Duration = Duration::from_secs(60);
/// The time limit for a reader to end, with its last commit and the closing of its consumer.
const READER_STOPS_WITHIN: Duration = Duration::from_secs(7);
/// The time limit for stopping the source.
const STOPS_WITHIN: Duration = Duration::from_secs(9);

/// What wakes the supervisor.
enum SupervisorEvent {
    Ended(ReaderEnd),
    Stop,
}

/// Job events from the topics of one cluster. Dropping it without [`Source::stop`] stops it too, without waiting.
#[derive(Debug)]
pub struct KafkaSource {
    stop: Arc<AtomicBool>,
    events: SyncSender<SupervisorEvent>,
    supervisor: Option<JoinHandle<()>>,
    finished: Receiver<()>,
    /// The current reader's state.
    current: Arc<Mutex<Arc<ReaderState>>>,
}

impl KafkaSource {
    /// Starts to read. It connects in the background and reports in `health` how that goes.
    ///
    /// # Errors
    /// A setting is not valid, or the system has no thread left. A broker that does not respond is no error here.
    pub fn start(settings: KafkaSettings, handle: SourceHandle, health: Health) -> Result<KafkaSource, KafkaError> {
        // Settings that cannot work are reported now and not in the background.
        settings.reader_config()?;
        let watchdog = Watchdog::new(&settings, handle.positions().clone(), health.clone())?;
        let (events, received) = sync_channel(4);
        let (done, finished) = sync_channel(1);
        let stop = Arc::new(AtomicBool::new(false));
        let current = Arc::new(Mutex::new(Arc::new(ReaderState::default())));
        let mut supervisor = Supervisor {
            settings: Arc::new(settings),
            handle,
            health,
            watchdog,
            stop: Arc::clone(&stop),
            received,
            events: events.clone(),
            current: Arc::clone(&current),
        };
        supervisor.health.set_condition(Condition::Starting);
        let thread = std::thread::Builder::new().name("kafka-source".to_owned()).spawn(move || {
            supervisor.run();
            supervisor.health.set_condition(Condition::Stopped);
            drop(supervisor);
            let _ = done.try_send(());
        });
        let supervisor = Some(thread.map_err(|e| KafkaError::Thread { why: e.to_string() })?);
        Ok(KafkaSource { stop, events, supervisor, finished, current })
    }

    /// The current reader's state.
    #[cfg(test)]
    pub(crate) fn shared(&self) -> Arc<ReaderState> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn signal_stop(&self) {
        self.stop.store(true, Ordering::Release);
        // If the channel is full, the supervisor is awake anyway and sees the flag.
        let _ = self.events.try_send(SupervisorEvent::Stop);
    }
}

impl Source for KafkaSource {
    fn stop(mut self: Box<Self>) {
        self.signal_stop();
        if self.finished.recv_timeout(STOPS_WITHIN) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the Kafka source has not stopped in time; it submits nothing more");
            return;
        }
        if let Some(thread) = self.supervisor.take()
            && thread.join().is_err()
        {
            tracing::error!("the Kafka source's supervisor panicked");
        }
    }
}

impl Drop for KafkaSource {
    fn drop(&mut self) {
        self.signal_stop();
        // Nothing waits for the end, but nothing is submitted from now on.
        self.current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .abandoned
            .store(self.supervisor.is_some(), Ordering::Release);
    }
}

struct Supervisor {
    settings: Arc<KafkaSettings>,
    handle: SourceHandle,
    health: Health,
    watchdog: Watchdog,
    stop: Arc<AtomicBool>,
    received: Receiver<SupervisorEvent>,
    events: SyncSender<SupervisorEvent>,
    current: Arc<Mutex<Arc<ReaderState>>>,
}

/// What to do after a reader has ended.
enum NextStep {
    Stop,
    /// Start another reader, after at least this delay.
    Restart {
        why: String,
        min_delay: Duration,
    },
    /// Start another reader only if nobody else is in the group. The text is the broker's.
    Fenced(String),
}

impl Supervisor {
    fn run(&mut self) {
        let mut delays = RESTART_DELAYS.build();
        while !self.stop.load(Ordering::Acquire) {
            let began = Instant::now();
            let next = self.run_reader();
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            let (why, min_delay) = match next {
                NextStep::Stop => return,
                NextStep::Restart { why, min_delay } => (why, min_delay),
                NextStep::Fenced(reason) => match self.after_fence(&reason) {
                    Some(why) => (why, Duration::ZERO),
                    None => return,
                },
            };
            if began.elapsed() >= STABLE_AFTER {
                delays = RESTART_DELAYS.build();
            }
            // The delays have no end.
            let delay = delays.next().unwrap_or_default().max(min_delay);
            tracing::warn!(pause_ms = delay.as_millis(), "kafka: {why}");
            self.health.count_restart();
            self.health.add_remark(now_ms(), why.clone());
            self.health.set_condition(Condition::Failing { why });
            self.sleep(delay);
        }
    }

    /// Sleeps, but not longer than until the source stops.
    fn sleep(&self, delay: Duration) {
        let end = Instant::now() + delay;
        while !self.is_stopping() && Instant::now() < end {
            let left = end.saturating_duration_since(Instant::now()).min(self.settings.watch_interval);
            // Events of earlier readers may come; only the flag counts.
            let _ = self.received.recv_timeout(left);
        }
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire) || self.handle.is_closed()
    }

    /// Finds out whether another controller fenced this one. A broker that crashed may do the same because of this controller's own former
    /// membership, which expires after a session, while another controller stays. Returns why to restart, or `None` to stop.
    fn after_fence(&self, reason: &str) -> Option<String> {
        let why = format!(
            "fenced by group {}, as if another controller with this journal had joined it ({reason}): nothing is read until it is clear \
             whether there is one, for about 11 to 18 s",
            self.settings.group
        );
        tracing::warn!("kafka: {why}");
        self.health.set_condition(Condition::Failing { why });
        // A member that leaves meanwhile is forgotten after one more session.
        let forgotten = Instant::now() + Duration::from_millis(2 * SESSION_MS);
        self.sleep(Duration::from_millis(SESSION_MS + 2_000));
        while !self.is_stopping() {
            match self.watchdog.has_member() {
                Some(false) => {
                    return Some(format!(
                        "fenced by group {}, and nobody else is in it: joined again",
                        self.settings.group
                    ));
                }
                Some(true) if Instant::now() < forgotten => self.sleep(self.settings.watch_interval),
                Some(true) => {
                    let why = format!(
                        "another controller with this journal has joined group {} and this one was fenced ({reason}): two must not run \
                         with one journal; stop one of them",
                        self.settings.group
                    );
                    tracing::error!("kafka: {why}");
                    self.health.add_remark(now_ms(), why);
                    return None;
                }
                None => self.sleep(self.settings.watch_interval),
            }
        }
        None
    }

    /// Runs one reader to its end.
    fn run_reader(&mut self) -> NextStep {
        let shared = Arc::new(ReaderState::default());
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&shared);
        let (settings, handle, health) = (Arc::clone(&self.settings), self.handle.clone(), self.health.clone());
        let (events, stop, reported) = (self.events.clone(), Arc::clone(&self.stop), Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("kafka-reader".to_owned()).spawn(move || {
            // The drop reports the end, so that a panic is reported as well.
            let mut reporter = EndReporter { events, shared: Arc::clone(&reported), end: panicked() };
            reporter.end = match Reader::new(settings, handle, health, reported, stop) {
                Ok(reader) => reader.run(),
                Err(error) => ReaderEnd::Failed(error.to_string()),
            };
        });
        let thread = match thread {
            Ok(thread) => thread,
            Err(error) => return restart(KafkaError::Thread { why: error.to_string() }.to_string()),
        };
        let next = self.supervise(&shared);
        // A reader that is stopping still commits what is durable.
        shared.abandoned.store(!self.stop.load(Ordering::Acquire), Ordering::Release);
        let end = Instant::now() + READER_STOPS_WITHIN;
        while !thread.is_finished() && Instant::now() < end {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        shared.abandoned.store(true, Ordering::Release);
        if !thread.is_finished() {
            tracing::warn!("an abandoned reader does not end; it submits nothing more");
        }
        next
    }

    fn supervise(&mut self, shared: &Arc<ReaderState>) -> NextStep {
        let mut next_check = Instant::now() + self.settings.watch_interval.min(Duration::from_millis(300));
        loop {
            match self.received.recv_timeout(next_check.saturating_duration_since(Instant::now())) {
                Ok(SupervisorEvent::Stop) | Err(RecvTimeoutError::Disconnected) => return NextStep::Stop,
                Ok(SupervisorEvent::Ended(end)) => match self.ended(end) {
                    Some(next) => return next,
                    None => continue,
                },
                Err(RecvTimeoutError::Timeout) => {}
            }
            match self.watchdog.check(shared, &self.stop) {
                WatchVerdict::Fine => {}
                WatchVerdict::Stalled(why) => return restart(why),
                // The leader of the group is an earlier instance: partitions are assigned again once it has expired.
                WatchVerdict::Unassigned(why) => {
                    return NextStep::Restart { why, min_delay: Duration::from_millis(SESSION_MS + 1_000) };
                }
            }
            next_check = Instant::now() + self.settings.watch_interval;
        }
    }

    fn ended(&self, end: ReaderEnd) -> Option<NextStep> {
        match end {
            ReaderEnd::Stopped if !self.stop.load(Ordering::Acquire) => None, // an abandoned reader
            ReaderEnd::Stopped | ReaderEnd::ControllerStopped => Some(NextStep::Stop),
            ReaderEnd::Fenced(reason) => Some(NextStep::Fenced(reason)),
            ReaderEnd::Failed(why) => Some(restart(why)),
        }
    }
}

fn restart(why: String) -> NextStep {
    NextStep::Restart { why, min_delay: Duration::ZERO }
}

fn panicked() -> ReaderEnd {
    ReaderEnd::Failed(
        "the reader panicked; it is restarted. Its message is on standard error: please report it".to_owned(),
    )
}

/// Reports to the supervisor how a reader ended, however its thread ends.
struct EndReporter {
    events: SyncSender<SupervisorEvent>,
    shared: Arc<ReaderState>,
    end: ReaderEnd,
}

impl Drop for EndReporter {
    fn drop(&mut self) {
        // An abandoned reader reports nothing.
        if !self.shared.abandoned.load(Ordering::Acquire) {
            let _ = self.events.try_send(SupervisorEvent::Ended(self.end.clone()));
        }
    }
}
