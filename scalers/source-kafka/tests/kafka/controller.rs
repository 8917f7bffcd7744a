//! A controller for tests: it takes batches, "journals" them in order, and sends receipts. Like the real one it drops messages below the
//! journal's position. The tests' waiting function is here as well.

use forebay_source::{DurablePositions, IncomingBatches, Message, Receipt, SourceHandle};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// What the controller has journaled: messages by the key of their stream, in the order of their arrival.
#[derive(Debug, Default)]
pub struct TestJournal {
    pub messages: BTreeMap<String, Vec<Message>>,
    pub batches: usize,
    pub largest: usize,
}

impl TestJournal {
    pub fn count(&self) -> usize {
        self.messages.values().map(Vec::len).sum()
    }

    /// Bodies under a key, as text.
    pub fn bodies(&self, key: &str) -> Vec<String> {
        let of_it = self.messages.get(key).into_iter().flatten();
        of_it.map(|message| String::from_utf8_lossy(&message.bytes).into_owned()).collect()
    }

    /// All bodies, sorted.
    pub fn all(&self) -> Vec<String> {
        let mut all: Vec<String> = self.messages.keys().flat_map(|key| self.bodies(key)).collect();
        all.sort();
        all
    }
}

/// One run of a controller. The journal outlives it.
pub struct TestController {
    pub handle: SourceHandle,
    pub journal: Arc<Mutex<TestJournal>>,
    /// While this is set, no batch is taken, so that the permits run out.
    stuck: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TestController {
    pub fn start(room: usize, positions: &DurablePositions, journal: &Arc<Mutex<TestJournal>>) -> TestController {
        // RUST_LOG=forebay_source_kafka=debug shows what the source did. A second one is refused, which is fine.
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
        let (handle, incoming) = SourceHandle::new(Arc::new(Semaphore::new(room)), positions.clone());
        let (stuck, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (positions, book) = (positions.clone(), Arc::clone(journal));
        let (is_stuck, is_over) = (Arc::clone(&stuck), Arc::clone(&stop));
        let thread = std::thread::spawn(move || run(incoming, &positions, &book, &is_stuck, &is_over));
        TestController { handle, journal: Arc::clone(journal), stuck, stop, thread: Some(thread) }
    }

    /// A controller with 10,000 permits and an empty journal.
    pub fn new() -> TestController {
        TestController::start(10_000, &DurablePositions::default(), &Arc::default())
    }

    /// Whether submitted batches are left waiting.
    #[allow(dead_code)] // The tests in the crate share this file and do not need it.
    pub fn stick(&self, stuck: bool) {
        self.stuck.store(stuck, Ordering::Release);
    }

    /// Waits until this many messages are journaled.
    pub fn wait_for(&self, messages: usize) {
        wait_until(&format!("{messages} messages"), || {
            let journal = self.journal.lock().unwrap();
            (journal.count() >= messages).then_some(()).ok_or_else(|| format!("{} messages", journal.count()))
        });
    }
}

impl Drop for TestController {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

fn run(
    mut incoming: IncomingBatches,
    positions: &DurablePositions,
    book: &Mutex<TestJournal>,
    stuck: &AtomicBool,
    over: &AtomicBool,
) {
    while !over.load(Ordering::Acquire) {
        let submitted = if stuck.load(Ordering::Acquire) { None } else { incoming.batches.try_recv().ok() };
        let Some(submitted) = submitted else {
            std::thread::park_timeout(Duration::from_micros(200));
            continue;
        };
        let stream = submitted.batch.stream.expect("Kafka has streams");
        let from = positions.get(&stream.key).unwrap_or(0);
        let mut receipt = Receipt::default();
        {
            let mut book = book.lock().unwrap();
            book.batches += 1;
            book.largest = book.largest.max(submitted.batch.messages.len());
            let kept = book.messages.entry(stream.key.to_string()).or_default();
            for message in submitted.batch.messages {
                if message.offset < from {
                    receipt.seen += 1;
                } else {
                    receipt.taken += 1;
                    kept.push(message);
                }
            }
        }
        if stream.next > from {
            let moved = BTreeMap::from([
                (stream.key.to_string(), stream.next),
                (format!("{}#mark", stream.key), stream.fingerprint),
            ]);
            positions.update(&moved);
        }
        drop(submitted.permit);
        // Whoever asked may have gone.
        let _ = submitted.receipt.send(receipt);
    }
}

/// Polls for at most 120 s until there is a result. The failure contains the last error.
pub fn wait_until<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        match look() {
            Ok(found) => return found,
            Err(last) => assert!(Instant::now() < end, "waited in vain for {what}: {last}"),
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
}
