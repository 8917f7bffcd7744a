//! Durable intake without a broker: messages of a source handle, into a driver with its journal on disk.
//!
//! `cargo bench -p forebay --bench intake [-- JOBS]` prints jobs per second, and the time of a message: for decoding, and in total.
//! `cargo xtask bench intake` measures the same with a real broker.

use forebay::checkpoints::Checkpoints;
use forebay::driver::{Settings, start};
use forebay::sources::decode_worker::{DecodeWorker, SourceChannel};
use forebay::sources::metrics::SourceMetrics;
use forebay_catalog::Catalogue;
use forebay_policy::compile;
use forebay_sim::market::Market;
use forebay_sim::world::{WorldOptions, spot_pairs};
use forebay_source::{Message, MessageBatch, StreamPosition};
use forebay_wire::intake::{Caller, Intake, NoRoutes};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// The messages of a batch and the batches in flight of a consumer that catches up.
const BATCH: u64 = 1_024;
const IN_FLIGHT: usize = 8;

fn main() {
    let jobs = std::env::args().filter_map(|word| word.parse().ok()).next_back().unwrap_or(500_000);
    let messages: Vec<Message> = (0..jobs).map(message).collect();
    let bytes: usize = messages.iter().map(|m| m.bytes.len()).sum();
    println!("{jobs} submissions of {} bytes", bytes / messages.len().max(1));
    decoding(&messages[..messages.len().min(100_000)]);
    whole(messages);
}

fn message(n: u64) -> Message {
    let queue = ["vision/batch", "language/batch", "search/batch"][(n % 3) as usize];
    let text = format!(
        r#"{{"specversion":"1.0","type":"job.submitted","dataschema":"urn:forebay:job.submitted:1","source":"//airflow/prod","id":"{n:08x}","time":"2026-11-21T09:00:00Z","subject":"train-{n}","data":{{"queue":"{queue}","labels":{{"team":"vision","costCenter":"4711"}},"run":{{"template":"train","image":"reg/r@sha256:ab","args":["--epochs","90"]}},"gang":{{"workers":1,"each":{{"gpus":1}}}},"checkpoint":{{"uri":"s3://ckpt/train-{n}/","every":"10m"}},"expectedRun":"9h"}}}}"#
    );
    Message { bytes: text.into_bytes(), offset: n, ..Message::default() }
}

fn decoding(messages: &[Message]) {
    let caller = Caller::local();
    let intake = Intake { caller: &caller, routes: &NoRoutes, key: None };
    let started = Instant::now();
    let taken = messages.iter().filter(|message| intake.decode(&message.bytes).is_ok()).count();
    assert_eq!(taken, messages.len(), "all are valid");
    println!("decoding      {:>9.2} us per message", started.elapsed().as_secs_f64() * 1e6 / taken.max(1) as f64);
}

fn whole(messages: Vec<Message>) {
    let text = include_str!("../../policies/teams.yaml").to_owned();
    let policy = compile("teams.yaml", &text, &Catalogue::builtin()).expect("it compiles").policy;
    let folder = tempfile::tempdir().expect("a folder");
    let world = Box::new(|policy: &_, origin| {
        let market = Market::seeded(7, &spot_pairs(policy), 30 * 86_400_000);
        WorldOptions { origin, ..WorldOptions::new(7, market) }
    });
    let settings = Settings { policy: Some((text, policy)), ..Settings::new(folder.path().to_owned(), world) };
    let running = start(settings).expect("it starts");
    let (source, incoming) = running.handle.source();
    let worker = DecodeWorker {
        handle: running.handle.clone(),
        channels: vec![SourceChannel { name: "kafka:jobs".into(), caller: Caller::local() }],
        routes: Arc::new(NoRoutes),
        key: None,
        checkpoints: Checkpoints::trusting(&running.handle),
        metrics: Arc::new(SourceMetrics::default()),
    };
    std::thread::spawn(move || worker.run(incoming));
    let (all, started) = (messages.len(), Instant::now());
    let mut messages = messages.into_iter();
    let mut awaited = VecDeque::new();
    let (mut next, mut taken) = (0, 0);
    loop {
        let some: Vec<Message> = messages.by_ref().take(BATCH as usize).collect();
        if some.is_empty() || awaited.len() == IN_FLIGHT {
            let Some(receipt): Option<tokio::sync::oneshot::Receiver<forebay_source::Receipt>> = awaited.pop_front()
            else {
                break;
            };
            taken += receipt.blocking_recv().expect("it becomes durable").taken as usize;
        }
        if some.is_empty() {
            continue;
        }
        next += some.len() as u64;
        let stream = Some(StreamPosition { key: "kafka:jobs/0/0".into(), next, fingerprint: 0 });
        let permit = loop {
            match source.try_reserve(some.len() as u32) {
                Some(permit) => break permit,
                None => std::thread::yield_now(),
            }
        };
        awaited.push_back(source.submit(MessageBatch { channel: 0, stream, messages: some }, permit).expect("it runs"));
    }
    let seconds = started.elapsed().as_secs_f64();
    assert_eq!(taken, all, "each one is a job");
    println!(
        "durable       {:>9.2} us per message, {:.0} per second",
        seconds * 1e6 / all as f64,
        all as f64 / seconds
    );
    running.handle.stop();
    running.join().expect("it ends");
}
