//! The source: starts readers, watches them, starts another when one ends or stands still.
//!
//! ```text
//! supervisor thread --starts--> reader thread --Ended--> supervisor: stopped, closed: over; else again after 0.5 s .. 30 s
//!        '-- every few seconds: Watch::round --Stalled--> the reader is given up, another begins
//! ```
//!
//! Never: two readers that both hand in: one that was given up hands in nothing more.

use crate::error::KafkaError;
use crate::reader::{End, Reader};
use crate::settings::{SESSION_MS, Settings};
use crate::shared::Shared;
use crate::wait::now_ms;
use crate::watch::{Verdict, Watch};
use forebay_source::{Condition, Desk, Health, Source};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// After a reader failed; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Never more than that between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A reader that ran so long begins with the first pause again.
const RAN_WELL: Duration = Duration::from_secs(60);
/// A reader that was given up, or told to stop, may take so long to go: its last commit and its consumer's end.
const GOES_WITHIN: Duration = Duration::from_secs(7);
/// Stopping as a whole.
const STOPS_WITHIN: Duration = Duration::from_secs(9);

/// What wakes the supervisor.
enum Word {
    Ended(End),
    Stop,
}

/// Job events from the topics of one cluster. Dropping it without [`Source::stop`] stops it too, without waiting.
#[derive(Debug)]
pub struct Kafka {
    stop: Arc<AtomicBool>,
    words: SyncSender<Word>,
    supervisor: Option<JoinHandle<()>>,
    over: Receiver<()>,
    /// The reader of now; tests reach into it.
    current: Arc<Mutex<Arc<Shared>>>,
}

impl Kafka {
    /// Starts to read. Connecting goes on in the background: how it goes is in `health`.
    ///
    /// # Errors
    /// A setting is not usable, or no thread was to be had. A broker that does not answer is no error here.
    pub fn start(settings: Settings, desk: Desk, health: Health) -> Result<Kafka, KafkaError> {
        // What cannot work is said now and not in the background.
        settings.reading()?;
        let watch = Watch::new(&settings, desk.durable().clone(), health.clone())?;
        let (words, from) = sync_channel(4);
        let (done, over) = sync_channel(1);
        let stop = Arc::new(AtomicBool::new(false));
        let current = Arc::new(Mutex::new(Arc::new(Shared::default())));
        let mut supervisor = Supervisor {
            settings: Arc::new(settings),
            desk,
            health,
            watch,
            stop: Arc::clone(&stop),
            from,
            words: words.clone(),
            current: Arc::clone(&current),
        };
        supervisor.health.is(Condition::Starting);
        let thread = std::thread::Builder::new().name("kafka-source".to_owned()).spawn(move || {
            supervisor.run();
            supervisor.health.is(Condition::Stopped);
            drop(supervisor);
            let _ = done.try_send(());
        });
        let supervisor = Some(thread.map_err(|e| KafkaError::Thread { why: e.to_string() })?);
        Ok(Kafka { stop, words, supervisor, over, current })
    }

    /// The reader of now.
    #[cfg(test)]
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn tell_to_stop(&self) {
        self.stop.store(true, Ordering::Release);
        // Full: then it is awake anyway, and sees the flag.
        let _ = self.words.try_send(Word::Stop);
    }
}

impl Source for Kafka {
    fn stop(mut self: Box<Self>) {
        self.tell_to_stop();
        if self.over.recv_timeout(STOPS_WITHIN) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the Kafka source has not ended in time; it hands in nothing more");
            return;
        }
        if let Some(thread) = self.supervisor.take()
            && thread.join().is_err()
        {
            tracing::error!("the Kafka source's supervisor panicked");
        }
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        self.tell_to_stop();
        // Nobody waits, but nothing is handed in from now on.
        self.current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .abandoned
            .store(self.supervisor.is_some(), Ordering::Release);
    }
}

struct Supervisor {
    settings: Arc<Settings>,
    desk: Desk,
    health: Health,
    watch: Watch,
    stop: Arc<AtomicBool>,
    from: Receiver<Word>,
    words: SyncSender<Word>,
    current: Arc<Mutex<Arc<Shared>>>,
}

/// What to do after a reader.
enum Next {
    /// Nothing more.
    Over,
    /// Another, after at least so long.
    Again { why: String, at_least: Duration },
    /// Another only if nobody else is in the group: what the broker said.
    Fenced(String),
}

impl Supervisor {
    fn run(&mut self) {
        let mut pause = FIRST_PAUSE;
        while !self.stop.load(Ordering::Acquire) {
            let began = Instant::now();
            let next = self.one_reader();
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            let (why, at_least) = match next {
                Next::Over => return,
                Next::Again { why, at_least } => (why, at_least),
                Next::Fenced(said) => match self.after_fence(&said) {
                    Some(why) => (why, Duration::ZERO),
                    None => return,
                },
            };
            if began.elapsed() >= RAN_WELL {
                pause = FIRST_PAUSE;
            }
            tracing::warn!(pause_ms = pause.as_millis(), "kafka: {why}");
            self.health.restarted();
            self.health.remark(now_ms(), why.clone());
            self.health.is(Condition::Failing { why });
            self.pause(pause.max(at_least));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits, unless it is told to stop.
    fn pause(&self, pause: Duration) {
        let end = Instant::now() + pause;
        while !self.is_over() && Instant::now() < end {
            let left = end.saturating_duration_since(Instant::now()).min(self.settings.watch);
            // Words of readers that are no more may come; only the flag counts.
            let _ = self.from.recv_timeout(left);
        }
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Acquire) || self.desk.is_closed()
    }

    /// Whether we were shut out for good. A broker that crashed may take us for our own former membership and say the same: that one is
    /// forgotten after a session, while another controller stays. `Some`: begin again, and why.
    fn after_fence(&self, said: &str) -> Option<String> {
        let why = format!(
            "shut out of group {}, as when another controller with this journal has joined it ({said}): nothing is read until it is \
             clear whether there is one, for some 11 to 18 s",
            self.settings.group
        );
        tracing::warn!("kafka: {why}");
        self.health.is(Condition::Failing { why });
        // One that goes meanwhile is a member for a session more.
        let forgotten = Instant::now() + Duration::from_millis(2 * SESSION_MS);
        self.pause(Duration::from_millis(SESSION_MS + 2_000));
        while !self.is_over() {
            match self.watch.has_member() {
                Some(false) => {
                    return Some(format!(
                        "shut out of group {}, and nobody else is in it: joined anew",
                        self.settings.group
                    ));
                }
                Some(true) if Instant::now() < forgotten => self.pause(self.settings.watch),
                Some(true) => {
                    let why = format!(
                        "another controller with this journal has joined group {} and this one was shut out ({said}): two must not \
                         run with one journal; stop one of them",
                        self.settings.group
                    );
                    tracing::error!("kafka: {why}");
                    self.health.remark(now_ms(), why);
                    return None;
                }
                None => self.pause(self.settings.watch),
            }
        }
        None
    }

    /// Runs one reader to its end.
    fn one_reader(&mut self) -> Next {
        let shared = Arc::new(Shared::default());
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&shared);
        let (settings, desk, health) = (Arc::clone(&self.settings), self.desk.clone(), self.health.clone());
        let (words, stop, told) = (self.words.clone(), Arc::clone(&self.stop), Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("kafka-reader".to_owned()).spawn(move || {
            // Told by the drop, so that a panic is told as well.
            let mut teller = Teller { words, shared: Arc::clone(&told), end: panicked() };
            teller.end = match Reader::new(settings, desk, health, told, stop) {
                Ok(reader) => reader.run(),
                Err(error) => End::Failed(error.to_string()),
            };
        });
        let thread = match thread {
            Ok(thread) => thread,
            Err(error) => return again(KafkaError::Thread { why: error.to_string() }.to_string()),
        };
        let next = self.watch_over(&shared);
        // One that was told to stop still commits what is durable.
        shared.abandoned.store(!self.stop.load(Ordering::Acquire), Ordering::Release);
        let end = Instant::now() + GOES_WITHIN;
        while !thread.is_finished() && Instant::now() < end {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        shared.abandoned.store(true, Ordering::Release);
        if !thread.is_finished() {
            tracing::warn!("a reader that was given up does not end; it hands in nothing more");
        }
        next
    }

    fn watch_over(&mut self, shared: &Arc<Shared>) -> Next {
        let mut look = Instant::now() + self.settings.watch.min(Duration::from_millis(300));
        loop {
            match self.from.recv_timeout(look.saturating_duration_since(Instant::now())) {
                Ok(Word::Stop) | Err(RecvTimeoutError::Disconnected) => return Next::Over,
                Ok(Word::Ended(end)) => match self.ended(end) {
                    Some(next) => return next,
                    None => continue,
                },
                Err(RecvTimeoutError::Timeout) => {}
            }
            match self.watch.round(shared, &self.stop) {
                Verdict::Fine => {}
                Verdict::Stalled(why) => return again(why),
                // The group's own leader is an instance of before: only when it has been forgotten are partitions dealt anew.
                Verdict::Unread(why) => {
                    return Next::Again { why, at_least: Duration::from_millis(SESSION_MS + 1_000) };
                }
            }
            look = Instant::now() + self.settings.watch;
        }
    }

    fn ended(&self, end: End) -> Option<Next> {
        match end {
            End::Stopped if !self.stop.load(Ordering::Acquire) => None, // of one that was given up
            End::Stopped | End::Closed => Some(Next::Over),
            End::Fenced(said) => Some(Next::Fenced(said)),
            End::Failed(why) => Some(again(why)),
        }
    }
}

fn again(why: String) -> Next {
    Next::Again { why, at_least: Duration::ZERO }
}

fn panicked() -> End {
    End::Failed(
        "the reader panicked; it is started again. Its message is on standard error: please report it".to_owned(),
    )
}

/// Tells the supervisor how a reader ended, whichever way its thread ends.
struct Teller {
    words: SyncSender<Word>,
    shared: Arc<Shared>,
    end: End,
}

impl Drop for Teller {
    fn drop(&mut self) {
        // One that was given up has nothing to tell.
        if !self.shared.abandoned.load(Ordering::Acquire) {
            let _ = self.words.try_send(Word::Ended(self.end.clone()));
        }
    }
}
