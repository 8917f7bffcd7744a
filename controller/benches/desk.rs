//! Durable intake without a broker: letters over a desk into a driver with its journal on disk.
//!
//! `cargo bench -p forebay --bench desk [-- JOBS]` prints jobs a second, and where a letter's time goes: decoding, then all of it.
//! Never: a figure of its own that matters alone; `cargo xtask bench intake` measures the whole with a real broker.

use forebay::checkpoints::Checkpoints;
use forebay::driver::{Settings, start};
use forebay::intake::{Caller, Intake, NoRoutes};
use forebay::policy::{Catalogue, compile};
use forebay::sources::clerk::{Channel, Clerk};
use forebay::sources::figures::SourceFigures;
use forebay_sim::market::Market;
use forebay_sim::world::{WorldOptions, spot_pairs};
use forebay_source::{Letter, Parcel, Stream};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Letters of a parcel, and parcels on their way: what a consumer does that is behind.
const PARCEL: u64 = 1_024;
const ON_THE_WAY: usize = 8;

fn main() {
    let jobs = std::env::args().filter_map(|word| word.parse().ok()).next_back().unwrap_or(500_000);
    let letters: Vec<Letter> = (0..jobs).map(letter).collect();
    let bytes: usize = letters.iter().map(|l| l.bytes.len()).sum();
    println!("{jobs} submissions of {} bytes", bytes / letters.len().max(1));
    decoding(&letters[..letters.len().min(100_000)]);
    whole(letters);
}

fn letter(n: u64) -> Letter {
    let queue = ["vision/batch", "language/batch", "search/batch"][(n % 3) as usize];
    let text = format!(
        r#"{{"specversion":"1.0","type":"job.submitted","dataschema":"urn:forebay:job.submitted:1","source":"//airflow/prod","id":"{n:08x}","time":"2026-11-21T09:00:00Z","subject":"train-{n}","data":{{"queue":"{queue}","labels":{{"team":"vision","costCenter":"4711"}},"run":{{"template":"train","image":"reg/r@sha256:ab","args":["--epochs","90"]}},"gang":{{"workers":1,"each":{{"gpus":1}}}},"checkpoint":{{"uri":"s3://ckpt/train-{n}/","every":"10m"}},"expectedRun":"9h"}}}}"#
    );
    Letter { bytes: text.into_bytes(), offset: n, ..Letter::default() }
}

fn decoding(letters: &[Letter]) {
    let caller = Caller::local();
    let intake = Intake { caller: &caller, routes: &NoRoutes, key: None };
    let begun = Instant::now();
    let taken = letters.iter().filter(|letter| intake.decode(&letter.bytes).is_ok()).count();
    assert_eq!(taken, letters.len(), "every one is good");
    println!("decoding      {:>9.2} us a letter", begun.elapsed().as_secs_f64() * 1e6 / taken.max(1) as f64);
}

fn whole(letters: Vec<Letter>) {
    let text = include_str!("../../policies/teams.yaml").to_owned();
    let policy = compile("teams.yaml", &text, &Catalogue::builtin()).expect("it compiles").policy;
    let folder = tempfile::tempdir().expect("a folder");
    let world = Box::new(|policy: &_, origin| {
        let market = Market::seeded(7, &spot_pairs(policy), 30 * 86_400_000);
        WorldOptions { origin, ..WorldOptions::new(7, market) }
    });
    let settings = Settings { policy: Some((text, policy)), ..Settings::new(folder.path().to_owned(), world) };
    let running = start(settings).expect("it starts");
    let (desk, incoming) = running.handle.desk();
    let clerk = Clerk {
        handle: running.handle.clone(),
        channels: vec![Channel { name: "kafka:jobs".into(), caller: Caller::local() }],
        routes: Arc::new(NoRoutes),
        key: None,
        checkpoints: Checkpoints::believing(&running.handle),
        figures: Arc::new(SourceFigures::default()),
    };
    std::thread::spawn(move || clerk.work(incoming));
    let (all, begun) = (letters.len(), Instant::now());
    let mut letters = letters.into_iter();
    let mut awaited = VecDeque::new();
    let (mut next, mut taken) = (0, 0);
    loop {
        let some: Vec<Letter> = letters.by_ref().take(PARCEL as usize).collect();
        if some.is_empty() || awaited.len() == ON_THE_WAY {
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
        let stream = Some(Stream { key: "kafka:jobs/0/0".into(), next, mark: 0 });
        let slot = loop {
            match desk.room_now(some.len() as u32) {
                Some(slot) => break slot,
                None => std::thread::yield_now(),
            }
        };
        awaited.push_back(desk.hand_in(Parcel { channel: 0, stream, letters: some }, slot).expect("it runs"));
    }
    let seconds = begun.elapsed().as_secs_f64();
    assert_eq!(taken, all, "each one is a job");
    println!("durable       {:>9.2} us a letter, {:.0} a second", seconds * 1e6 / all as f64, all as f64 / seconds);
    running.handle.stop();
    running.join().expect("it ends");
}
