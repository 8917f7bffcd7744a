//! A controller for tests: takes parcels, "journals" them in order, answers. And what tests wait with.
//!
//! Never: takes a letter below the journal's position, as the real one.

use forebay_source::{Desk, Durable, Incoming, Letter, Receipt, desk};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// What the controller has journaled: letters by the key of their stream, in order of their arrival.
#[derive(Debug, Default)]
pub struct Journal {
    pub letters: BTreeMap<String, Vec<Letter>>,
    pub parcels: usize,
    pub largest: usize,
}

impl Journal {
    pub fn count(&self) -> usize {
        self.letters.values().map(Vec::len).sum()
    }

    /// Bodies under a key, as text.
    pub fn bodies(&self, key: &str) -> Vec<String> {
        let of_it = self.letters.get(key).into_iter().flatten();
        of_it.map(|letter| String::from_utf8_lossy(&letter.bytes).into_owned()).collect()
    }

    /// All bodies, sorted.
    pub fn all(&self) -> Vec<String> {
        let mut all: Vec<String> = self.letters.keys().flat_map(|key| self.bodies(key)).collect();
        all.sort();
        all
    }
}

/// One run of a controller. What it has journaled outlives it.
pub struct Controller {
    pub desk: Desk,
    pub journal: Arc<Mutex<Journal>>,
    /// While set: takes nothing from the desk, so that its room fills.
    stuck: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Controller {
    pub fn start(room: usize, durable: &Durable, journal: &Arc<Mutex<Journal>>) -> Controller {
        // RUST_LOG=forebay_source_kafka=debug shows what the source did. A second one is refused, which is fine.
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
        let (desk, incoming) = desk(Arc::new(Semaphore::new(room)), durable.clone());
        let (stuck, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (durable, book) = (durable.clone(), Arc::clone(journal));
        let (is_stuck, is_over) = (Arc::clone(&stuck), Arc::clone(&stop));
        let thread = std::thread::spawn(move || run(incoming, &durable, &book, &is_stuck, &is_over));
        Controller { desk, journal: Arc::clone(journal), stuck, stop, thread: Some(thread) }
    }

    /// One with a room for 10,000 letters and nothing journaled.
    pub fn new() -> Controller {
        Controller::start(10_000, &Durable::default(), &Arc::default())
    }

    /// Whether it is to leave what is handed in lying.
    #[allow(dead_code)] // The tests in the crate share this file and do not need it.
    pub fn stick(&self, stuck: bool) {
        self.stuck.store(stuck, Ordering::Release);
    }

    /// Waits until so many letters are journaled.
    pub fn wait_for(&self, letters: usize) {
        wait_until(&format!("{letters} letters"), || {
            let journal = self.journal.lock().unwrap();
            (journal.count() >= letters).then_some(()).ok_or_else(|| format!("{} letters", journal.count()))
        });
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

fn run(mut incoming: Incoming, durable: &Durable, book: &Mutex<Journal>, stuck: &AtomicBool, over: &AtomicBool) {
    while !over.load(Ordering::Acquire) {
        let posted = if stuck.load(Ordering::Acquire) { None } else { incoming.from.try_recv().ok() };
        let Some(posted) = posted else {
            std::thread::park_timeout(Duration::from_micros(200));
            continue;
        };
        let stream = posted.parcel.stream.expect("Kafka has streams");
        let from = durable.of(&stream.key).unwrap_or(0);
        let mut receipt = Receipt::default();
        {
            let mut book = book.lock().unwrap();
            book.parcels += 1;
            book.largest = book.largest.max(posted.parcel.letters.len());
            let kept = book.letters.entry(stream.key.to_string()).or_default();
            for letter in posted.parcel.letters {
                if letter.offset < from {
                    receipt.seen += 1;
                } else {
                    receipt.taken += 1;
                    kept.push(letter);
                }
            }
        }
        if stream.next > from {
            let moved =
                BTreeMap::from([(stream.key.to_string(), stream.next), (format!("{}#mark", stream.key), stream.mark)]);
            durable.put(&moved);
        }
        drop(posted.slot);
        // Whoever asked may have gone.
        let _ = posted.answer.send(receipt);
    }
}

/// Waits for it, for 120 s; what it last said stands in the failure.
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
