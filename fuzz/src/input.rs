//! Input `n` of a seed: which target it is for, and its bytes.
//!
//! ```text
//! (seed, n) -> a generator of numbers of its own -> target by share -> made up | from the corpus and changed | noise | huge
//! ```
//!
//! Never: anything that is remembered from one input to the next, so that each can be made again alone.

use crate::corpus::Seed;
use crate::mutate::{MOST, mutate};
use crate::targets::{FuzzTarget, InputFormat, ReportKey, TARGETS};
use crate::{generate, logs, ready, vary};
use forebay_kernel::event::{Event, Tick};
use forebay_kernel::ids::{Attempt, JobId, Seq};
use forebay_kernel::journal::{APPLY_VERSION, Batch};
use forebay_kernel::units::Timestamp;
use forebay_sim::trace::SplitMix64;
use forebay_wire::intake::AttemptKeys;
use serde_json::Value;
use std::collections::BTreeMap;

/// The key that true tokens are made with here.
pub static KEY: AttemptKeys = AttemptKeys::first([7; 32]);

/// Makes inputs.
#[derive(Debug)]
pub struct Maker {
    seed: u64,
    only: Option<&'static FuzzTarget>,
    events: Vec<Vec<u8>>,
    headers: Vec<Vec<u8>>,
    /// The events of the corpus that are taken, for batches.
    taken: Vec<Event>,
    batches: Vec<Vec<u8>>,
    /// Lines of each log, from the first one on.
    logs: Vec<Vec<Vec<u8>>>,
    lines: Vec<Vec<u8>>,
    /// By target: what text and JSON are changed from.
    ready: BTreeMap<&'static str, ReadyInputs>,
    token: String,
}

/// What the inputs of a target are changed from.
#[derive(Debug, Default)]
struct ReadyInputs {
    texts: Vec<Vec<u8>>,
    /// Those that are JSON, read.
    documents: Vec<Value>,
}

impl ReadyInputs {
    fn of(target: &FuzzTarget, corpus: &[Seed]) -> ReadyInputs {
        let found = corpus.iter().filter(|seed| seed.target() == Some(target.name)).map(|seed| seed.bytes.clone());
        let texts: Vec<_> = ready::inputs(target.name).into_iter().map(String::into_bytes).chain(found).collect();
        let documents = texts.iter().filter_map(|text| serde_json::from_slice(text).ok()).collect();
        ReadyInputs { texts, documents }
    }
}

impl Maker {
    /// For a seed, a corpus, and one target or all of them.
    #[must_use]
    pub fn new(seed: u64, corpus: &[Seed], only: Option<&'static FuzzTarget>) -> Maker {
        let of_events = corpus.iter().filter(|s| s.target().is_none());
        let (headers, events): (Vec<_>, Vec<_>) = of_events.partition(|s| s.name.ends_with(".headers"));
        let bytes = |seeds: Vec<&Seed>| -> Vec<Vec<u8>> { seeds.into_iter().map(|s| s.bytes.clone()).collect() };
        let (events, headers) = (bytes(events), bytes(headers));
        let decoded = events.iter().filter_map(|bytes| crate::targets::decode(bytes, ReportKey::Known).ok());
        let taken: Vec<Event> = decoded.map(|decoded| decoded.event).collect();
        let batches = taken.iter().filter_map(|event| batch(vec![event.clone()], 7)).collect();
        let logs: Vec<_> = logs::lines().into_iter().flatten().collect();
        let lines = LINES.iter().map(|line| line.as_bytes().to_vec()).chain(logs.iter().flatten().cloned()).collect();
        let ready = TARGETS.iter().map(|target| (target.name, ReadyInputs::of(target, corpus))).collect();
        let token = KEY.token(JobId(12), Attempt(3));
        Maker { seed, only, events, headers, taken, batches, logs, lines, ready, token }
    }

    /// Which target input `n` is for; `bytes` becomes the input.
    pub fn make(&self, n: u64, bytes: &mut Vec<u8>) -> &'static FuzzTarget {
        let base = SplitMix64::new(self.seed).next_u64();
        let mut rng = SplitMix64::new(base ^ n.wrapping_mul(0xd134_2543_de82_ef95));
        let drawn = by_share(rng.below(TARGETS.iter().map(|t| t.share).sum()));
        let target = self.only.unwrap_or(drawn);
        bytes.clear();
        match rng.below(10_000) {
            0 => self.huge(&mut rng, target, bytes),
            1..200 => bytes.extend((0..rng.below(256)).map(|_| rng.next_u64().to_le_bytes()[0])),
            200..4500 => self.changed(&mut rng, target, bytes),
            kind => {
                self.made_up(&mut rng, target, bytes);
                if kind > 9000 {
                    mutate(&mut rng, bytes, one_of(self.seeds(target), kind));
                }
            }
        }
        target
    }

    fn seeds(&self, target: &FuzzTarget) -> &[Vec<u8>] {
        match target.shape {
            InputFormat::Event => &self.events,
            InputFormat::Headers => &self.headers,
            InputFormat::Batch => &self.batches,
            InputFormat::Lines => &self.lines,
            InputFormat::Text | InputFormat::Json => {
                self.ready.get(target.name).map_or(&[][..], |ready| ready.texts.as_slice())
            }
        }
    }

    fn changed(&self, rng: &mut SplitMix64, target: &FuzzTarget, bytes: &mut Vec<u8>) {
        let seeds = self.seeds(target);
        bytes.extend_from_slice(one_of(seeds, rng.next_u64()));
        let other = one_of(seeds, rng.next_u64());
        mutate(rng, bytes, other);
    }

    fn made_up(&self, rng: &mut SplitMix64, target: &FuzzTarget, bytes: &mut Vec<u8>) {
        match target.shape {
            InputFormat::Event => generate::event(rng, &self.token, bytes),
            InputFormat::Headers => generate::headers(rng, &self.token, bytes),
            InputFormat::Batch => {
                let mut events = Vec::new();
                for _ in 0..rng.below(5) {
                    events.extend(nth(&self.taken, rng.next_u64()).cloned());
                }
                bytes.extend(batch(events, rng.below(100)).into_iter().flatten());
            }
            InputFormat::Lines => self.made_up_log(rng, bytes),
            InputFormat::Text => {
                let seeds = self.seeds(target);
                bytes.extend_from_slice(one_of(seeds, rng.next_u64()));
                let other = one_of(seeds, rng.next_u64());
                vary::text(rng, bytes, other);
            }
            InputFormat::Json => {
                let documents = self.ready.get(target.name).map_or(&[][..], |ready| ready.documents.as_slice());
                if let Some(document) = nth(documents, rng.next_u64()) {
                    vary::json(rng, document, bytes);
                }
            }
        }
    }

    /// Lines as a log has them, from the first on, with a wrong one now and then.
    fn made_up_log(&self, rng: &mut SplitMix64, bytes: &mut Vec<u8>) {
        let log = nth(&self.logs, rng.next_u64()).map_or(&[][..], Vec::as_slice);
        let count = usize::try_from(rng.below(7)).unwrap_or(0);
        for line in log.iter().take(count) {
            let line = if rng.chance(50) { one_of(&self.lines, rng.next_u64()) } else { line.as_slice() };
            bytes.extend_from_slice(line);
        }
    }

    /// A piece over and over, up to 2 MiB: long lists, long texts, many fields, deep nesting.
    fn huge(&self, rng: &mut SplitMix64, target: &FuzzTarget, bytes: &mut Vec<u8>) {
        self.changed(rng, target, bytes);
        bytes.truncate(4096);
        let at = usize::try_from(rng.below(bytes.len() as u64 + 1)).unwrap_or(0);
        let piece = generate::pick(
            rng,
            &["0,", "\"a\",", "{\"a\":0},", "[", "{\"a\":", "x", "\\u0000", " ", "\"h1\",\"h2\",", "\n", "\u{ff}"],
        );
        let room = (MOST - bytes.len()) as u64;
        // Just below what is taken as often as far above it.
        let size = if rng.chance(500) { rng.below(1_000_000) } else { rng.below(room) };
        let times = usize::try_from(size).unwrap_or(0) / piece.len();
        drop(bytes.splice(at..at, piece.repeat(times).into_bytes()));
    }
}

fn nth<T>(of: &[T], n: u64) -> Option<&T> {
    of.get(usize::try_from(n % (of.len() as u64).max(1)).unwrap_or(0))
}

fn one_of(of: &[Vec<u8>], n: u64) -> &[u8] {
    nth(of, n).map_or(&[], Vec::as_slice)
}

fn by_share(mut n: u64) -> &'static FuzzTarget {
    for target in &TARGETS {
        if n < target.share {
            return target;
        }
        n -= target.share;
    }
    &TARGETS[0]
}

/// What is journaled for events. `delivered`: up to which number statuses were.
fn batch(events: Vec<Event>, delivered: u64) -> Option<Vec<u8>> {
    let tick = Tick { now: Timestamp(1_795_251_600_000), resumed: false, delivered };
    Batch { version: APPLY_VERSION, first_seq: Seq(41), tick, events, decisions: Vec::new() }.encode().ok()
}

/// Lines of no log that is read back after a crash: they have no checksum.
const LINES: [&str; 6] = [
    "{\"source\":\"f.jsonl\",\"position\":3,\"code\":\"Malformed\",\"path\":\"$\",\"message\":\"not JSON\",\"event\":\"{\"}\n",
    "{\"position\":18446744073709551615}\n",
    "{\"specversion\":\"1.0\",\"id\":\"00000000-0000-0000-0000-000000000007-1\",\"type\":\"status.queued\",\"data\":{}}\n",
    "{\"id\":\"00000000-0000-0000-0000-000000000007-2\"}\n",
    "{\"id\":\"00000000-0000-0000-0000-000000000008-1\"}\n",
    "\n",
];
